//! A local timer that expires while the streams run, and the delay from each expiry to its handler.

use crate::outcome::histogram;
use crate::run::x86::TimerHandler;
use hal::Hal as _;
use hdrhistogram::Histogram;
use machine::{SimHal, Stream};
use std::sync::{Arc, Mutex};
use systems::Alarm;

/// The timer of one CPU: each expiry starts it anew.
pub(super) struct Ticker {
    period_ns: u64,
    state: Mutex<State>,
}

struct State {
    /// The period is drawn from half to one and a half of its mean, so that expiries fall anywhere in the streams'
    /// rhythm.
    random: Stream,
    due_ns: u64,
    waits: Histogram<u64>,
}

/// A stream of the run's seed, with a number that no model has.
const RANDOM_STREAM: u64 = 1 << 32;

impl Ticker {
    pub(super) fn new(period_ns: u64, seed: u64) -> Arc<Self> {
        let random = Stream::new(seed, RANDOM_STREAM);
        let state = State { random, due_ns: 0, waits: histogram() };
        Arc::new(Self { period_ns, state: Mutex::new(state) })
    }

    /// Starts the timer of the calling CPU, whose interrupts are off.
    pub(super) fn start(&self, alarm: &Alarm<SimHal>) {
        self.arm(alarm);
    }

    /// The handler of the timer's interrupt.
    pub(super) fn handler(self: Arc<Self>) -> TimerHandler {
        Arc::new(move |alarm| {
            {
                let mut state = self.state.lock().expect("one host thread");
                let waited_ns = SimHal.now_ns().saturating_sub(state.due_ns);
                state.waits.saturating_record(waited_ns);
            }
            self.arm(alarm);
        })
    }

    fn arm(&self, alarm: &Alarm<SimHal>) {
        let wait_ns = {
            let mut state = self.state.lock().expect("one host thread");
            let wait_ns = self.period_ns / 2 + state.random.next() % self.period_ns.max(1);
            wait_ns.clamp(1, u32::MAX.into())
        };
        alarm.arm(SimHal.now_ns() + wait_ns);
        self.state.lock().expect("one host thread").due_ns = SimHal.now_ns() + wait_ns;
    }

    /// The delays so far from expiry to the handler's first line.
    pub(super) fn waits(&self) -> Histogram<u64> {
        self.state.lock().expect("the machine stands still").waits.clone()
    }

    pub(super) fn reset(&self) {
        self.state.lock().expect("the machine stands still").waits.reset();
    }
}

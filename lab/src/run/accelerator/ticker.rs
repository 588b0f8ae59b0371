//! A local timer that expires meanwhile, and how long each expiry waits for its handler.

use super::system::latency_histogram;
use crate::run::x86::{LOCAL_TIMER, TimerHandler};
use drivers::apic::Lapic;
use hal::Hal as _;
use hdrhistogram::Histogram;
use machine::{SimHal, Stream};
use spec::apic::TimerDivide;
use std::sync::{Arc, Mutex};

/// The timer of one CPU: each expiry starts it anew.
pub(super) struct Ticker {
    period_ns: u64,
    state: Mutex<State>,
}

struct State {
    lapic: Option<Arc<Lapic<SimHal>>>,
    /// Half to one and a half periods are drawn, so that expiries fall anywhere in the streams' rhythm.
    random: Stream,
    due_ns: u64,
    waits: Histogram<u64>,
}

/// Of the run's seed; no model has this number.
const RANDOM_STREAM: u64 = 1 << 32;

impl Ticker {
    pub(super) fn new(period_ns: u64, seed: u64) -> Arc<Self> {
        let random = Stream::new(seed, RANDOM_STREAM);
        let state = State { lapic: None, random, due_ns: 0, waits: latency_histogram() };
        Arc::new(Self { period_ns, state: Mutex::new(state) })
    }

    /// Starts the timer of the CPU that calls, whose interrupts are off.
    pub(super) fn start(&self, lapic: Arc<Lapic<SimHal>>) {
        self.state.lock().expect("one host thread").lapic = Some(lapic);
        self.arm();
    }

    /// What the timer's interrupt does.
    pub(super) fn handler(self: Arc<Self>) -> TimerHandler {
        Arc::new(move || {
            {
                let mut state = self.state.lock().expect("one host thread");
                let waited_ns = SimHal.now_ns().saturating_sub(state.due_ns);
                state.waits.saturating_record(waited_ns);
            }
            self.arm();
        })
    }

    fn arm(&self) {
        let (lapic, wait_ns) = {
            let mut state = self.state.lock().expect("one host thread");
            let wait_ns = self.period_ns / 2 + state.random.next() % self.period_ns.max(1);
            (state.lapic.clone(), wait_ns)
        };
        let Some(lapic) = lapic else { return };
        // A tick is a nanosecond on this machine.
        lapic.start_timer(LOCAL_TIMER, TimerDivide::BY_1, wait_ns.clamp(1, u32::MAX.into()) as u32);
        self.state.lock().expect("one host thread").due_ns = SimHal.now_ns() + wait_ns;
    }

    /// From expiry to the handler's first line, so far.
    pub(super) fn waits(&self) -> Histogram<u64> {
        self.state.lock().expect("the machine stands still").waits.clone()
    }

    pub(super) fn reset(&self) {
        self.state.lock().expect("the machine stands still").waits.reset();
    }
}

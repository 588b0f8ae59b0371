//! A controller under observation: its inputs, its answers, and which of its steps are taken.

use crate::checkers::programs;
use crate::mark::Mark;
use crate::verdict::violate;
use hal::{ThreadId, Threads};
use irq::moderation::{Controller, Found, Moderated, Next, Outcome, Sample, Setting, Step, TuningView};
use machine::SimHal;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

const NAME: &str = "tuning";
/// Bits of a step's id that belong to the controller; the bits above say which controller it is.
const ID_BITS: u32 = 20;
/// Id of the first step of a controller that was put in: it must be given the level that it starts with.
const FIRST: u32 = (1 << ID_BITS) - 1;

/// The promises of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Promise {
    /// Our own: it gives up a step after this long without an answer, in ns, and its windows count everything.
    Adaptive { program_ns_max: u64 },
    /// No promise: a published controller, with its faults.
    Published,
}

/// Observations of a controller, beside its own reports.
struct State {
    /// Whose it is.
    consumer: u32,
    inner: Box<dyn Controller>,
    promise: Promise,
    epoch: u32,
    /// The level that it starts with is on its way; until then the controller gets no inputs.
    first: bool,
    now_ns: u64,
    /// Completions that were reported to it, or to any of its predecessors.
    told: u64,
    /// Looks since the last sample: when, and completions.
    looks: VecDeque<(u64, u32)>,
    sample: Option<Sample>,
    /// The step that it waits for, and since when.
    waits: Option<(u64, u64)>,
    /// It has asked for the deferred work, and the work has not run yet.
    called: Option<u64>,
    /// Windows whose counts were verified.
    windows: u64,
}

/// The harness's access to a [`Watch`].
#[derive(Clone)]
pub(super) struct Watched(Arc<Mutex<State>>);

/// The state of a tuner.
pub(super) struct Watch(Watched);

impl Watched {
    pub(super) fn new(inner: Box<dyn Controller>, promise: Promise, consumer: u32) -> Self {
        Self(Arc::new(Mutex::new(State {
            consumer,
            inner,
            promise,
            epoch: 0,
            first: false,
            now_ns: 0,
            told: 0,
            looks: VecDeque::new(),
            sample: None,
            waits: None,
            called: None,
            windows: 0,
        })))
    }

    pub(super) fn controller(&self) -> Box<dyn Controller> {
        Box::new(Watch(self.clone()))
    }

    fn with<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        body(&mut self.0.lock().expect("one host thread"))
    }

    /// Another controller takes over. Its first level is programmed at the next look.
    pub(super) fn replace(&self, inner: Box<dyn Controller>, promise: Promise) {
        self.with(|state| {
            (state.inner, state.promise, state.epoch) = (inner, promise, state.epoch + 1);
            (state.sample, state.waits, state.called, state.first) = (None, None, None, true);
            state.looks.clear();
        });
    }

    pub(super) fn view(&self) -> TuningView {
        self.with(|state| state.inner.view())
    }

    pub(super) fn is_adaptive(&self) -> bool {
        self.with(|state| state.promise != Promise::Published)
    }

    /// Completions that were reported to it.
    pub(super) fn told(&self) -> u64 {
        self.with(|state| state.told)
    }

    /// The time since which a step waits to be programmed.
    pub(super) fn called(&self) -> Option<u64> {
        self.with(|state| state.called)
    }

    /// A step is under way.
    pub(super) fn waits(&self) -> bool {
        self.with(|state| state.first || state.waits.is_some())
    }

    /// Windows whose counts were verified.
    pub(super) fn windows(&self) -> u64 {
        self.with(|state| state.windows)
    }
}

impl State {
    /// Passes a call on, and checks its effects.
    fn pass(&mut self, now_ns: u64, call: impl FnOnce(&mut dyn Controller) -> Next) -> Next {
        self.now_ns = self.now_ns.max(now_ns);
        if self.first {
            return self.ask_first();
        }
        let phase = self.inner.view().phase;
        let next = call(&mut *self.inner);
        self.see_late();
        self.see_step();
        self.see_sample(phase);
        self.see_call(next);
        next
    }

    fn see_call(&mut self, next: Next) {
        if next == Next::Program {
            if self.called.is_none() {
                programs::wanted(self.consumer);
            }
            self.called.get_or_insert(self.now_ns);
        }
    }

    /// The level to start with is asked for once.
    fn ask_first(&mut self) -> Next {
        if self.waits.is_some() {
            return Next::Measure;
        }
        self.waits = Some((0, self.now_ns));
        self.see_call(Next::Program);
        Next::Program
    }

    /// The number of the step that it waits for. Reading the step itself would take it.
    fn present(&self) -> Option<u64> {
        let view = self.inner.view();
        (view.phase == "programming").then_some(view.counts.steps)
    }

    /// A step without an answer in time is given up at the next look.
    fn see_late(&self) {
        let Promise::Adaptive { program_ns_max } = self.promise else { return };
        let Some((number, since)) = self.waits.filter(|(number, _)| Some(*number) == self.present()) else { return };
        let waited = self.now_ns.saturating_sub(since);
        if waited >= program_ns_max {
            let late =
                format!("step {number} is still waited for after {waited} ns, and is late after {program_ns_max}");
            violate(NAME, late);
        }
    }

    fn see_step(&mut self) {
        let present = self.present();
        self.waits = match self.waits {
            Some((number, _)) if present == Some(number) => self.waits,
            _ => present.map(|number| (number, self.now_ns)),
        };
    }

    /// A window that ended counts all completions within it, by interrupt or by poll.
    fn see_sample(&mut self, phase: &str) {
        let sample = self.inner.view().sample;
        if sample == self.sample {
            return;
        }
        self.sample = sample;
        let Some(sample) = sample else { return };
        // A search leaves out the completions after a theft of the CPU.
        if self.promise != Promise::Published && matches!(phase, "settling" | "holding") {
            let start_ns = self.now_ns.saturating_sub(sample.elapsed_ns);
            let done = |from: &dyn Fn(u64) -> bool| -> u64 {
                self.looks.iter().filter(|(at, _)| from(*at)).map(|(_, done)| u64::from(*done)).sum()
            };
            // A look at the very start may belong to the previous window.
            let (least, most) = (done(&|at| at > start_ns), done(&|at| at >= start_ns));
            let rate = |done: u64| (u128::from(done) * 1_000_000_000 / u128::from(sample.elapsed_ns.max(1))) as u64;
            let counted = sample.completions_per_s;
            if !(rate(least)..=rate(most)).contains(&counted) {
                let (least, most) = (rate(least), rate(most));
                violate(NAME, format!("{counted} completions a second are counted, and {least} to {most} were done"));
            }
            self.windows += 1;
        }
        let now_ns = self.now_ns;
        self.looks.retain(|&(at, _)| at >= now_ns);
    }

    fn answered(&mut self, now_ns: u64, id: u32, outcome: Outcome) -> Next {
        self.now_ns = self.now_ns.max(now_ns);
        if std::mem::take(&mut self.first) {
            self.waits = None;
            return Next::Measure;
        }
        let next = self.inner.programmed(now_ns, id, outcome);
        self.see_step();
        self.see_call(next);
        next
    }

    fn look(&mut self, now_ns: u64, found: Found) {
        self.told += u64::from(found.completions);
        if !self.first {
            self.looks.push_back((self.now_ns.max(now_ns), found.completions));
        }
    }
}

impl Controller for Watch {
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next {
        programs::called();
        self.0.with(|state| {
            state.look(now_ns, found);
            state.pass(now_ns, |inner| inner.interrupt(now_ns, found))
        })
    }

    fn polled(&mut self, now_ns: u64, found: Found) -> Next {
        programs::called();
        self.0.with(|state| {
            state.look(now_ns, found);
            state.pass(now_ns, |inner| inner.polled(now_ns, found))
        })
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.0.with(|state| state.inner.deadline_ns())
    }

    fn elapsed(&mut self, now_ns: u64) -> Next {
        programs::called();
        self.0.with(|state| state.pass(now_ns, |inner| inner.elapsed(now_ns)))
    }

    fn step(&self) -> Option<Step> {
        programs::called();
        self.0.with(|state| {
            state.called = None;
            programs::taken(state.consumer);
            let epoch = state.epoch << ID_BITS;
            if state.first {
                let (level, setting) = (state.inner.level(), state.inner.view().setting);
                return Some(Step { id: epoch | FIRST, level, setting });
            }
            state.inner.step().map(|step| Step { id: epoch | step.id, ..step })
        })
    }

    fn programmed(&mut self, now_ns: u64, id: u32, outcome: Outcome) -> Next {
        programs::called();
        self.0.with(|state| {
            // An answer to a controller that has been replaced is ignored.
            if id >> ID_BITS == state.epoch {
                return state.answered(now_ns, id & FIRST, outcome);
            }
            Next::Measure
        })
    }

    fn level(&self) -> usize {
        self.0.with(|state| state.inner.level())
    }

    fn view(&self) -> TuningView {
        self.0.with(|state| state.inner.view())
    }
}

/// A device whose commands may hang on their way.
pub(super) struct Slow {
    device: Arc<dyn Moderated>,
    hangs: Mutex<Hang>,
    sleepers: Mutex<Vec<ThreadId>>,
    last: Mutex<Option<(Setting, Outcome)>>,
    /// One manager at a time programs it: the driver promises no order of two commands.
    pub(super) busy: AtomicBool,
}

/// The fate of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hang {
    /// Its commands are answered.
    #[default]
    No,
    /// No command is answered until the device is healed; the device has then not taken them.
    Lost,
    /// No command is answered until the device is healed; the device then takes them.
    Late,
}

impl Slow {
    pub(super) fn new(device: Arc<dyn Moderated>) -> Arc<Self> {
        Arc::new(Self {
            device,
            hangs: Mutex::default(),
            sleepers: Mutex::default(),
            last: Mutex::default(),
            busy: AtomicBool::new(false),
        })
    }

    fn hangs(&self) -> Hang {
        *self.hangs.lock().expect("one host thread")
    }

    pub(super) fn set(&self, hang: Hang) {
        *self.hangs.lock().expect("one host thread") = hang;
    }

    /// The driver's clock: wakes threads that wait for an answer, whether it has come or never will.
    pub(super) fn tick(&self) {
        if self.hangs() == Hang::No {
            let sleepers = std::mem::take(&mut *self.sleepers.lock().expect("one host thread"));
            sleepers.into_iter().for_each(|thread| SimHal.wake(thread));
        }
    }

    /// The last command, and its result.
    pub(super) fn last(&self) -> Option<(Setting, Outcome)> {
        *self.last.lock().expect("one host thread")
    }
}

impl Moderated for Slow {
    fn program(&self, setting: Setting) -> Outcome {
        let hang = self.hangs();
        if hang != Hang::No {
            Mark::Struck.of(0);
        }
        while self.hangs() != Hang::No {
            self.sleepers.lock().expect("one host thread").push(SimHal.current_thread());
            SimHal.park();
        }
        let outcome = if hang == Hang::Lost { Outcome::Failed } else { self.device.program(setting) };
        *self.last.lock().expect("one host thread") = Some((setting, outcome));
        outcome
    }
}

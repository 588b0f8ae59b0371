//! Timers of the HPET: each deadline must be served, by the line of the timer's message. Source of expected words: IA-PC HPET
//! specification 1.0a ("HPET").

use super::beliefs::composed;
use super::drive::{BindError, claim, free_line, install};
use super::guard::Guard;
use super::manage::wait_for;
use super::sources::Waiting;
use super::stack::PcStack;
use crate::checkers::beliefs::Comparison;
use crate::draw::Draw;
use crate::server::{HPET_REQUESTER, Host};
use crate::verdict::violate;
use drivers::hpet::HpetTimers;
use drivers::message::MessageDomain;
use hal::{CpuSet, Hal as _, Lock, Regs as _};
use irq::{Action, AllocRequest, Belief, Flow, Irq, IrqReturn, RequesterId};
use machine::fabric::hpet::Hpet;
use machine::model::ModelId;
use machine::{Regs, SimHal, inspect};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Deadlines have numbers of their own.
const DEADLINE: u64 = 1 << 57;
/// Timers of the block.
const TIMERS: u32 = 3;
/// A tick of the counter.
const TICK_NS: u64 = 10;
/// The least time to a deadline. If the counter has passed it when it is written, it is twice as long at the next try.
const LEAST_NS: u64 = 1_000;
/// A deadline is served no later than this: longer than a line is disabled, throttled or on its way.
const LATE_MAX_NS: u64 = 20_000_000;

// HPET, "General Configuration Register", "Main Counter Value Register", "Timer N Comparator Value Register".
const CONFIGURATION: u32 = 0x010;
const COUNTER: u32 = 0x0f0;
const COMPARATOR: u32 = 0x108;
const STRIDE: u32 = 0x20;
/// HPET, "Timer N Configuration and Capability Register": Tn_INT_ENB_CNF and Tn_FSB_EN_CNF; then level, periodic, set value,
/// 32-bit mode and the I/O APIC's input, which nobody sets.
const ENABLED: u64 = 1 << 2;
const BY_MESSAGE: u64 = 1 << 14;
const NEVER: u64 = 1 << 1 | 1 << 3 | 1 << 6 | 1 << 8 | 0x1f << 9;

/// A step of a manager. Timers count modulo their number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimerStep {
    /// A deadline, and as many more, each of them set when the one before it is served.
    Arm { timer: u32, ns: u64, more: u32 },
    /// A deadline; waits for its handler, for a while.
    Fire { timer: u32, ns: u64 },
    /// Frees a timer's line, and gives it another one.
    Reline { timer: u32, ns: u64 },
}

impl TimerStep {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let timer = draw.below(64) as u32;
        match draw.below(10) {
            0..7 => Self::Arm { timer, ns: draw.time_ns(1_000, 60_000), more: draw.below(12) as u32 },
            _ => Self::Reline { timer, ns: draw.time_ns(50, 30_000) },
        }
    }
}

impl fmt::Display for TimerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arm { timer, ns, more } => write!(f, "timer {timer}: {more} and one deadlines, {ns} ns apart"),
            Self::Fire { timer, ns } => write!(f, "timer {timer}: a deadline in {ns} ns, and wait for its handler"),
            Self::Reline { timer, ns } => write!(f, "free the line of timer {timer}, give it another after {ns} ns"),
        }
    }
}

/// The deadline of a timer, and those to come.
#[derive(Default)]
struct Due {
    /// What the counter has then.
    at: Option<u64>,
    more: u32,
    ns: u64,
}

/// The deadlines of one timer, and their handler.
struct Alarm {
    model: ModelId,
    regs: Regs,
    number: u32,
    due: Lock<SimHal, Due>,
    waiting: Mutex<Waiting>,
}

struct Timer {
    alarm: Arc<Alarm>,
    bound: Mutex<Option<(Irq, Arc<Guard>)>>,
    busy: AtomicBool,
}

/// The block's timers.
pub(super) struct Timers {
    model: ModelId,
    domain: Arc<MessageDomain<SimHal, HpetTimers<Regs>>>,
    timers: Vec<Timer>,
}

impl Alarm {
    /// Sets the comparator, and again if the counter was faster.
    fn set(&self, due: &mut Due) {
        Waiting::ask(&self.waiting, DEADLINE | u64::from(self.number) << 32);
        let mut ticks = due.ns.max(LEAST_NS) / TICK_NS;
        loop {
            let at = self.regs.read64(COUNTER) + ticks;
            self.regs.write64(COMPARATOR + STRIDE * self.number, at);
            due.at = Some(at);
            if self.regs.read64(COUNTER) < at {
                return;
            }
            ticks *= 2;
        }
    }

    fn begin(&self, ns: u64, more: u32) {
        let mut due = self.due.lock();
        if due.at.is_none() {
            (due.ns, due.more) = (ns, more);
            self.set(&mut due);
        }
    }

    fn forget(&self) {
        let mut due = self.due.lock();
        (due.at, due.more) = (None, 0);
        Waiting::serve(&self.waiting);
    }
}

/// What comes before the deadline was triggered by hand, or belonged to an earlier one.
impl Action for Alarm {
    fn handle(&self, _: Irq) -> IrqReturn {
        let mut due = self.due.lock();
        let counter = inspect(self.model, |hpet: &Hpet, world| hpet.counter(world)).unwrap_or(0);
        let Some(at) = due.at.take_if(|at| *at <= counter) else { return IrqReturn::None };
        let late_ns = (counter - at) * TICK_NS;
        if late_ns > LATE_MAX_NS {
            violate("waits", format!("a deadline of timer {} was served {late_ns} ns late", self.number));
        }
        Waiting::serve(&self.waiting);
        if let Some(more) = due.more.checked_sub(1) {
            due.more = more;
            self.set(&mut due);
        }
        IrqReturn::Handled
    }
}

impl Timers {
    /// Starts the counter, and gives each timer a line; on the boot thread.
    pub(super) fn bring_up(host: &Arc<Host>, numbers: &AtomicU64) -> Self {
        let model = host.models.hpet;
        let regs = Regs::Model { model, region: 0 };
        let source = HpetTimers::new(regs);
        let can: Vec<_> = (0..=TIMERS).map(|timer| source.can_send(timer)).collect();
        if can != [true, true, true, false] {
            violate("operations", format!("all of {TIMERS} timers can send messages; their driver says {can:?}"));
        }
        let domain = Arc::new(MessageDomain::new(SimHal, source, host.unposted()).expect("never posted"));
        let timer = |number| Timer {
            alarm: Arc::new(Alarm {
                model,
                regs,
                number,
                due: Lock::new(SimHal, Due::default()),
                waiting: Mutex::default(),
            }),
            bound: Mutex::default(),
            busy: AtomicBool::new(false),
        };
        let timers = Self { model, domain, timers: (0..TIMERS).map(timer).collect() };
        timers.start(host, numbers).expect("the timers' lines come up");
        regs.write64(CONFIGURATION, 1);
        timers
    }

    /// Gives a line to each timer that has none.
    fn start(&self, host: &Host, numbers: &AtomicU64) -> Result<(), BindError> {
        let free = |timer: &&Timer| timer.bound.lock().expect("one host thread").is_none();
        self.timers.iter().filter(free).try_for_each(|timer| self.connect(host, timer, numbers))
    }

    fn connect(&self, host: &Host, timer: &Timer, numbers: &AtomicU64) -> Result<(), BindError> {
        let number = timer.alarm.number;
        let request = AllocRequest::fixed(RequesterId(HPET_REQUESTER), number, CpuSet::first(host.cpus()));
        let line = host.core().alloc_line(self.domain.clone(), &request, Flow::Edge)?;
        let guard = install(host, line, format!("hpet{number}"), (timer.alarm.clone(), None), numbers)?;
        *timer.bound.lock().expect("one host thread") = Some((line, guard));
        Ok(())
    }

    /// How many lines it has at most.
    pub(super) fn lines(&self) -> usize {
        self.timers.len()
    }

    /// The line of a timer, if it has one now.
    pub(super) fn line(&self, number: usize) -> Option<Irq> {
        self.timers[number].bound.lock().expect("one host thread").as_ref().map(|(line, _)| *line)
    }

    /// One manager at a time takes the handler of that line.
    pub(super) fn busy(&self, number: usize) -> &AtomicBool {
        &self.timers[number].busy
    }

    /// Whose messages this line takes.
    pub(super) fn requester_of(&self, irq: Irq) -> Option<u16> {
        self.number_of(irq).map(|_| HPET_REQUESTER)
    }

    fn number_of(&self, irq: Irq) -> Option<u32> {
        (0..).zip(0..self.timers.len()).find(|&(_, number)| self.line(number) == Some(irq)).map(|(number, _)| number)
    }

    /// The timer's registers hold the line's message and mask.
    pub(super) fn compare(&self, belief: &Belief<'_>, handle: Option<u64>, now: &mut Comparison) {
        let Some(number) = self.number_of(belief.irq) else { return };
        now.arrived(self.model);
        let held = inspect(self.model, |hpet: &Hpet, _| hpet.timer(number)).flatten();
        let Some(held) = held else { return };
        let which = u64::from(number);
        now.same("enable of timer", which, u64::from(!belief.masked) << 2, held.configuration & ENABLED);
        now.same("unused bits of timer", which, 0_u8, held.configuration & NEVER);
        if !belief.masked {
            now.same("delivery by message of timer", which, BY_MESSAGE, held.configuration & BY_MESSAGE);
        }
        // Both are read back (IA-PC HPET, "Timer N Configuration and Capability Register").
        now.promised("mask of timer", which, !belief.masked || held.configuration & ENABLED == 0);
        if let Some((address, data)) = composed(belief, handle) {
            now.promised("route of timer", which, address << 32 | u64::from(data) == held.route);
            now.same("route of timer", which, address << 32 | u64::from(data), held.route);
        }
    }
}

/// Does one step; false on a PC whose timers are not used.
pub(super) fn apply(stack: &PcStack, step: &TimerStep) -> bool {
    let Some(timers) = &stack.timers else { return false };
    let timer = |number: u32| &timers.timers[number as usize % timers.timers.len()];
    match *step {
        TimerStep::Arm { timer: number, ns, more } => arm(stack, timer(number), ns, more),
        TimerStep::Fire { timer: number, ns } => {
            let timer = timer(number);
            arm(stack, timer, ns, 0);
            wait_for(|| Waiting::is_empty(&timer.alarm.waiting));
        }
        TimerStep::Reline { timer: number, ns } => reline(stack, timers, timer(number), ns),
    }
    true
}

fn arm(stack: &PcStack, timer: &Timer, ns: u64, more: u32) {
    if let Some(_claim) = claim(&timer.busy)
        && timer.bound.lock().expect("one host thread").is_some()
    {
        timer.alarm.begin(ns, more);
        stack.saw("timer: deadline");
    }
}

/// A deadline that passes without a line is nobody's.
fn reline(stack: &PcStack, timers: &Timers, timer: &Timer, ns: u64) {
    let Some(_claim) = claim(&timer.busy) else { return };
    let Some((line, guard)) = timer.bound.lock().expect("one host thread").take() else { return };
    stack.lines_freed.store(true, Relaxed);
    let freed = free_line(&stack.host, line, &guard).map_err(BindError::from);
    timer.alarm.forget();
    machine::push_writes(timers.model);
    let held = inspect(timers.model, |hpet: &Hpet, _| hpet.timer(timer.alarm.number)).flatten();
    if freed.is_ok() && held.is_some_and(|held| held.configuration & ENABLED != 0) {
        violate("beliefs", format!("timer {} has no line, and its interrupt is enabled", timer.alarm.number));
    }
    SimHal.delay_ns(ns);
    match freed.and_then(|()| timers.connect(&stack.host, timer, &stack.numbers)) {
        Ok(()) => stack.saw("timer: line freed and given"),
        Err(_) if stack.promises.faulty => {}
        Err(error) => violate("operations", format!("a timer gets no other line: {error}, and no fault explains it")),
    }
}

/// Gives back what faults took.
pub(super) fn settle(stack: &PcStack) {
    let Some(timers) = &stack.timers else { return };
    if let Err(error) = timers.start(&stack.host, &stack.numbers) {
        violate("operations", format!("a timer gets no line, healed: {error}"));
    }
}

/// True if no deadline waits.
pub(super) fn is_done(stack: &PcStack) -> bool {
    let mut timers = stack.timers.iter().flat_map(|timers| &timers.timers);
    timers.all(|timer| Waiting::is_empty(&timer.alarm.waiting))
}

/// The last deadlines.
pub(super) fn prove(stack: &PcStack) {
    for timer in stack.timers.iter().flat_map(|timers| &timers.timers) {
        timer.alarm.begin(5_000, 2);
    }
}

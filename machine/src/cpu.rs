//! The CPUs: interrupt state, time debt, and time accounts.

use crate::time::Ps;
use hal::CpuId;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;

/// The account that a CPU's time is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Account {
    User,
    System,
    Irq,
}

/// A CPU's time by account, in picoseconds. The rest of the span is idle time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTimes {
    /// Application code.
    pub user: Ps,
    /// Kernel code on behalf of threads, and busy waits.
    pub system: Ps,
    /// Interrupt context.
    pub irq: Ps,
}

/// Why an interrupt entry runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exception {
    /// This vector of the local APIC.
    Vector(u8),
    /// The IRQ exception of a machine with a GIC. The handler reads from its CPU interface which interrupt it is.
    Irq,
    /// An IRQ exception while interrupts were off. Only a priority above the interrupt mask causes it (pseudo-NMI).
    PseudoNmi,
}

impl Exception {
    /// The vector, for traces. A GIC's exceptions have none.
    pub(crate) fn vector(self) -> u8 {
        if let Self::Vector(vector) = self { vector } else { 0 }
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vector(vector) => write!(f, "vector {vector:#04x}"),
            Self::Irq => write!(f, "IRQ exception"),
            Self::PseudoNmi => write!(f, "pseudo-NMI"),
        }
    }
}

/// The interrupt request input of a CPU, as its interrupt controller drives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum IrqInput {
    /// No interrupt to take.
    #[default]
    Low,
    /// An interrupt that the CPU takes while interrupts are on.
    Irq,
    /// An interrupt whose priority is above the mask. "Interrupts off" is then a priority mask and does not block it.
    PseudoNmi,
}

/// A CPU. Its size is a power of two, so that its place among the CPUs is found by a shift.
#[repr(align(128))]
pub(crate) struct Cpu {
    pub(crate) id: CpuId,
    is_console: bool,
    irq_input: Cell<IrqInput>,
    irq_on: Cell<bool>,
    /// Interrupts were turned on with a debt outstanding that they may not cut short: they are taken from this time
    /// on.
    irq_on_from: Cell<Ps>,
    /// The exception level's own mask (PSTATE.I), which taking an exception sets. Only pseudo-NMIs use it, because
    /// ordinary interrupts are off then anyway.
    exceptions_masked: Cell<bool>,
    /// Nesting depth of interrupts being handled.
    depth: Cell<u32>,
    /// Start of the outermost interrupt.
    interrupt_since: Cell<Ps>,
    longest_interrupt: Cell<Ps>,
    /// Time owed, in ps.
    debt: Cell<u64>,
    /// Posted register writes of this CPU wait until then, behind another CPU's whose time has not come.
    pub(crate) writes_wait: Cell<Ps>,
    times: [Cell<u64>; 3],
    /// Counts waits. An event of an earlier wait is stale.
    generation: Cell<u32>,
    /// The host address of the word that the CPU waits on; 0 for none.
    relaxes_on: Cell<usize>,
    /// An ACCEPT event is pending.
    accept_pending: Cell<bool>,
    /// The disturbed schedule delays the ACCEPT event ([`crate::unrest`]). Turning interrupts off prevents it.
    accept_late: Cell<bool>,
    /// Number of the local timer's setting, and when it expires; 0 if it is not armed.
    pub(crate) timer: Cell<(u32, Ps)>,
    /// The scheduler prefers another thread to the running one.
    need_resched: Cell<bool>,
    /// Halted: the next interrupt pays the cost of the wake-up.
    idle: Cell<bool>,
    /// In its idle loop, which checks the run queue itself.
    in_idle_loop: Cell<bool>,
    /// A SLICE event is pending.
    slice_armed: Cell<bool>,
}

impl Cpu {
    /// A halted CPU, or the console.
    fn new(id: CpuId, is_console: bool) -> Self {
        Self {
            id,
            is_console,
            irq_input: Cell::default(),
            irq_on: Cell::new(!is_console),
            irq_on_from: Cell::new(Ps(0)),
            exceptions_masked: Cell::new(false),
            depth: Cell::new(0),
            interrupt_since: Cell::new(Ps(0)),
            longest_interrupt: Cell::new(Ps(0)),
            debt: Cell::new(0),
            writes_wait: Cell::default(),
            times: Default::default(),
            generation: Cell::new(0),
            relaxes_on: Cell::new(0),
            accept_pending: Cell::new(false),
            accept_late: Cell::new(false),
            timer: Cell::default(),
            need_resched: Cell::new(false),
            idle: Cell::new(true),
            in_idle_loop: Cell::new(false),
            slice_armed: Cell::new(false),
        }
    }
}

impl Cpu {
    /// True for the console ([`Cpus`]).
    #[inline]
    pub(crate) fn is_console(&self) -> bool {
        self.is_console
    }
}

/// The request of the CPU's interrupt controller, and whether the CPU takes it.
impl Cpu {
    /// The request input.
    #[inline]
    pub(crate) fn irq_input(&self) -> IrqInput {
        self.irq_input.get()
    }

    /// Drives the request input. The caller then plans the acceptance.
    #[inline]
    pub(crate) fn set_irq_input(&self, input: IrqInput) {
        self.irq_input.set(input);
    }

    /// True if there is an interrupt to take now.
    #[inline]
    pub(crate) fn is_interrupted(&self) -> bool {
        match self.irq_input.get() {
            IrqInput::Low => false,
            _ if self.irq_on.get() => true,
            input => input == IrqInput::PseudoNmi && !self.exceptions_masked.get(),
        }
    }

    #[inline]
    pub(crate) fn irq_on(&self) -> bool {
        self.irq_on.get()
    }

    /// Turns interrupts on or off, and returns whether they were on.
    #[inline]
    pub(crate) fn set_irq_on(&self, on: bool) -> bool {
        self.irq_on.replace(on)
    }

    /// Interrupts are taken from this time on.
    #[inline]
    pub(crate) fn irq_on_from(&self) -> Ps {
        self.irq_on_from.get()
    }

    #[inline]
    pub(crate) fn set_irq_on_from(&self, from: Ps) {
        self.irq_on_from.set(from);
    }

    /// Masks or unmasks exceptions. Returns whether they were masked.
    pub(crate) fn set_exceptions_masked(&self, masked: bool) -> bool {
        self.exceptions_masked.replace(masked)
    }

    /// Plans the acceptance of an interrupt.
    #[inline]
    pub(crate) fn plan_acceptance(&self, is_late: bool) {
        self.accept_pending.set(true);
        self.accept_late.set(is_late);
    }

    /// True while an acceptance is planned.
    #[inline]
    pub(crate) fn is_acceptance_planned(&self) -> bool {
        self.accept_pending.get()
    }

    /// True while an acceptance is planned and the disturbed schedule has not delayed it.
    #[inline]
    pub(crate) fn is_acceptance_due(&self) -> bool {
        self.accept_pending.get() && !self.accept_late.get()
    }

    /// The planned acceptance happens.
    #[inline]
    pub(crate) fn end_acceptance(&self) {
        self.accept_pending.set(false);
        self.accept_late.set(false);
    }

    /// Arms the local timer until `end`; 0 disarms it. Earlier settings become stale. Returns the number of this one.
    pub(crate) fn rearm_timer(&self, end: Ps) -> u32 {
        let generation = self.timer.get().0.wrapping_add(1);
        self.timer.set((generation, end));
        generation
    }

    /// True if the timer's latest setting has this number.
    pub(crate) fn is_timer_armed_as(&self, generation: u64) -> bool {
        u64::from(self.timer.get().0) == generation
    }
}

/// Interrupts being handled.
impl Cpu {
    /// Nesting depth of interrupts being handled.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth.get()
    }

    /// Enters one more interrupt, with interrupts off. Returns true if the CPU was halted.
    #[inline]
    pub(crate) fn enter_interrupt(&self, now: Ps) -> bool {
        self.irq_on.set(false);
        if self.depth.get() == 0 {
            self.interrupt_since.set(now);
        }
        self.depth.set(self.depth.get() + 1);
        self.idle.replace(false)
    }

    /// The interrupt handler returns, and interrupts are on.
    #[inline]
    pub(crate) fn leave_interrupt(&self) {
        self.depth.set(self.depth.get() - 1);
        self.irq_on.set(true);
    }

    /// Records how long one interrupt took.
    #[inline]
    pub(crate) fn note_interrupt(&self, took: Ps) {
        if took > self.longest_interrupt.get() {
            self.longest_interrupt.set(took);
        }
    }

    /// The longest interrupt since the last call. An interrupt that has not returned yet counts with its time so far.
    pub(crate) fn take_longest_interrupt(&self, now: Ps) -> Ps {
        let running = if self.depth.get() > 0 { now.saturating_sub(self.interrupt_since.get()) } else { Ps(0) };
        self.longest_interrupt.replace(Ps(0)).max(running)
    }
}

/// The code that the CPU runs.
impl Cpu {
    /// True if the scheduler prefers another thread for this CPU.
    #[inline]
    pub(crate) fn need_resched(&self) -> bool {
        self.need_resched.get()
    }

    #[inline]
    pub(crate) fn set_need_resched(&self, need: bool) {
        self.need_resched.set(need);
    }

    /// True while the CPU is halted.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.get()
    }

    #[inline]
    pub(crate) fn set_idle(&self, idle: bool) {
        self.idle.set(idle);
    }

    /// True while the CPU is in its idle loop.
    #[inline]
    pub(crate) fn in_idle_loop(&self) -> bool {
        self.in_idle_loop.get()
    }

    #[inline]
    pub(crate) fn set_in_idle_loop(&self, inside: bool) {
        self.in_idle_loop.set(inside);
    }

    /// True while a SLICE event is pending.
    #[inline]
    pub(crate) fn is_slice_armed(&self) -> bool {
        self.slice_armed.get()
    }

    #[inline]
    pub(crate) fn set_slice_armed(&self, armed: bool) {
        self.slice_armed.set(armed);
    }
}

/// Time and waits.
impl Cpu {
    /// The account for time outside named work.
    #[inline]
    pub(crate) fn kernel_account(&self) -> Account {
        if self.depth.get() > 0 { Account::Irq } else { Account::System }
    }

    /// Time owed, in ps.
    #[inline]
    pub(crate) fn debt(&self) -> u64 {
        self.debt.get()
    }

    /// Clears the debt. Returns how much it was, in ps.
    #[inline]
    pub(crate) fn take_debt(&self) -> u64 {
        self.debt.replace(0)
    }

    /// Adds to the debt.
    #[inline]
    pub(crate) fn owe(&self, cost_ps: u64, account: Account) {
        self.debt.set(self.debt.get() + cost_ps);
        self.charge(cost_ps, account);
    }

    #[inline]
    pub(crate) fn charge(&self, ps: u64, account: Account) {
        let time = &self.times[account as usize];
        time.set(time.get() + ps);
    }

    /// Total charged time, in ps.
    pub(crate) fn charged(&self) -> u64 {
        self.times.iter().map(Cell::get).sum()
    }

    pub(crate) fn times(&self) -> CpuTimes {
        let [user, system, irq] = [0, 1, 2].map(|index: usize| Ps(self.times[index].get()));
        CpuTimes { user, system, irq }
    }

    /// The number of the current wait, for the event that ends it.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get().into()
    }

    /// The wait is over. Events that would end it are stale from now on.
    #[inline]
    pub(crate) fn end_wait(&self) {
        self.generation.set(self.generation.get().wrapping_add(1));
    }

    /// True while the CPU waits on a word.
    pub(crate) fn is_relaxing(&self) -> bool {
        self.relaxes_on.get() != 0
    }
}

/// The CPUs of a machine, followed by the console. The console stands for the host's own stack while the machine is
/// stopped. The console has interrupts off, and no time passes for it.
pub(crate) struct Cpus {
    /// Counted, so that the CPUs stay at one address when this struct moves.
    all: Rc<[Cpu]>,
    /// The running CPU or the console, one of `all`.
    running: Cell<NonNull<Cpu>>,
    /// CPUs that wait on a word, in ascending order.
    relaxing: RefCell<Vec<CpuId>>,
    /// Number of CPUs that wait on a word. Every store to a word looks at it.
    relaxing_count: Cell<usize>,
}

impl Cpus {
    /// `count` halted CPUs. The console runs.
    pub(crate) fn new(count: u32) -> Self {
        let all: Rc<[Cpu]> = (0..=count).map(|cpu| Cpu::new(CpuId(cpu), cpu == count)).collect();
        let running = Cell::new(NonNull::from(&all[count as usize]));
        Self { all, running, relaxing: RefCell::default(), relaxing_count: Cell::new(0) }
    }

    /// Number of CPUs, without the console.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.all.len() as u32 - 1
    }

    /// The running CPU.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn running(&self) -> &Cpu {
        // SAFETY: only `new` and `set_running` set it, to an element of `all`. `all` is never replaced and this struct
        // owns it, so the element lives, at this address, as long as the returned reference. All access is shared.
        unsafe { self.running.get().as_ref() }
    }

    #[inline]
    fn set_running(&self, index: usize) {
        self.running.set(NonNull::from(&self.all[index]));
    }

    /// `cpu` runs from now on.
    #[inline]
    pub(crate) fn run(&self, cpu: CpuId) {
        self.set_running(cpu.index());
    }

    /// The console runs from now on.
    #[inline]
    pub(crate) fn run_console(&self) {
        self.set_running(self.all.len() - 1);
    }

    /// True if the host's own stack runs, and not a coroutine.
    #[inline]
    pub(crate) fn on_console(&self) -> bool {
        self.running().is_console()
    }

    /// The CPU of this number, or the console.
    #[inline]
    pub(crate) fn of(&self, id: CpuId) -> &Cpu {
        &self.all[id.index()]
    }

    /// The CPUs without the console.
    #[inline]
    pub(crate) fn real(&self) -> &[Cpu] {
        &self.all[..self.all.len() - 1]
    }

    /// CPUs, and perhaps the console, that wait for a word.
    pub(crate) fn stuck(&self) -> Vec<CpuId> {
        self.all.iter().filter(|cpu| cpu.is_relaxing()).map(|cpu| cpu.id).collect()
    }

    /// `cpu` waits on the word at this host address.
    pub(crate) fn relax(&self, cpu: &Cpu, address: usize) {
        cpu.relaxes_on.set(address);
        let mut relaxing = self.relaxing.borrow_mut();
        let place = relaxing.partition_point(|other| *other < cpu.id);
        relaxing.insert(place, cpu.id);
        self.relaxing_count.set(relaxing.len());
    }

    /// `cpu` no longer waits on a word.
    pub(crate) fn end_relaxing(&self, cpu: &Cpu) {
        cpu.relaxes_on.set(0);
        let mut relaxing = self.relaxing.borrow_mut();
        relaxing.retain(|other| *other != cpu.id);
        self.relaxing_count.set(relaxing.len());
    }

    /// True if any CPU waits on a word.
    #[inline]
    pub(crate) fn is_any_relaxing(&self) -> bool {
        self.relaxing_count.get() != 0
    }

    /// Calls `f` for each CPU that waits on the word at this host address, in ascending order.
    #[inline]
    pub(crate) fn for_each_relaxing(&self, address: usize, mut f: impl FnMut(&Cpu)) {
        for id in self.relaxing.borrow().iter() {
            let cpu = self.of(*id);
            if cpu.relaxes_on.get() == address {
                f(cpu);
            }
        }
    }
}

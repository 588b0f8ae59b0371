//! One simulated CPU: its interrupt state, its debt of time, and where its time went.

use crate::core::{Core, Next};
use crate::event::{Event, cpu_event};
use crate::gic::Interrupts;
use crate::lapic::{Lapic, LapicEffect};
use crate::observe::Fact;
use crate::time::Ps;
use crate::trace::Track;
use crate::unrest::Kind;
use hal::CpuId;
use std::cell::{Cell, RefCell};
use std::fmt;

/// What a CPU waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// A time: the key of the end.
    Until(Ps, u64),
    /// A write to the word at this host address, no longer than to the key of the deadline.
    Word(usize, Ps, u64),
    /// An interrupt.
    Interrupt,
}

/// Whom a CPU's time is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Account {
    User,
    System,
    Irq,
}

/// Where a CPU's time went, in picoseconds. What is missing to the span is idle time.
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
    /// The IRQ exception of a machine with a GIC. Which interrupt it is, the handler reads from its CPU interface.
    Irq,
    /// The IRQ exception while interrupts were off: one that only a priority above their mask causes (pseudo-NMI).
    PseudoNmi,
}

impl Exception {
    /// The vector, for traces; a GIC's exceptions have none.
    fn vector(self) -> u8 {
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

/// The interrupt request input of a CPU, as a GIC's CPU interface drives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum IrqInput {
    /// Nothing to take.
    #[default]
    Low,
    /// Something to take while interrupts are on.
    Irq,
    /// Something of so high a priority that interrupts off, which are a priority mask then, do not hold it back.
    PseudoNmi,
}

/// A CPU.
pub(crate) struct Cpu {
    pub(crate) id: CpuId,
    pub(crate) lapic: RefCell<Lapic>,
    /// What the CPU interface of a GIC asks for; on a machine with local APICs it never asks.
    pub(crate) irq_input: Cell<IrqInput>,
    pub(crate) irq_on: Cell<bool>,
    /// Interrupts were turned on with a debt outstanding that they may not cut: they are taken from here on.
    pub(crate) irq_on_from: Cell<Ps>,
    /// The exception level's own mask (PSTATE.I): set by taking an exception. Only pseudo-NMIs look at it, since
    /// ordinary interrupts are off then anyway.
    pub(crate) exceptions_masked: Cell<bool>,
    /// How many interrupts are being handled, one on top of another.
    pub(crate) depth: Cell<u32>,
    /// When the outermost one began.
    pub(crate) interrupt_since: Cell<Ps>,
    pub(crate) longest_interrupt: Cell<Ps>,
    /// Time owed, in ps.
    pub(crate) debt: Cell<u64>,
    times: [Cell<u64>; 3],
    /// Counts waits; an event of an earlier one is stale.
    pub(crate) generation: Cell<u32>,
    /// The host address of the word that it relaxes on; 0 for none.
    pub(crate) relaxes_on: Cell<usize>,
    /// An ACCEPT event is under way.
    pub(crate) accept_pending: Cell<bool>,
    /// It comes later than it could ([`crate::unrest`]), and turning interrupts off forestalls it.
    pub(crate) accept_late: Cell<bool>,
    pub(crate) timer_generation: Cell<u32>,
    /// The scheduler has something better for this CPU than what runs.
    pub(crate) need_resched: Cell<bool>,
    /// Halted: the next interrupt pays the wake-up.
    pub(crate) idle: Cell<bool>,
    /// In its idle loop, which looks at the run queue itself.
    pub(crate) in_idle_loop: Cell<bool>,
    /// A SLICE event is under way.
    pub(crate) slice_armed: Cell<bool>,
}

impl Cpu {
    pub(crate) fn new(id: CpuId) -> Self {
        Self {
            id,
            lapic: RefCell::new(Lapic::new(id.0)),
            irq_input: Cell::default(),
            irq_on: Cell::new(true),
            irq_on_from: Cell::new(Ps(0)),
            exceptions_masked: Cell::new(false),
            depth: Cell::new(0),
            interrupt_since: Cell::new(Ps(0)),
            longest_interrupt: Cell::new(Ps(0)),
            debt: Cell::new(0),
            times: Default::default(),
            generation: Cell::new(0),
            relaxes_on: Cell::new(0),
            accept_pending: Cell::new(false),
            accept_late: Cell::new(false),
            timer_generation: Cell::new(0),
            need_resched: Cell::new(false),
            idle: Cell::new(true),
            in_idle_loop: Cell::new(false),
            slice_armed: Cell::new(false),
        }
    }

    /// Whether there is an interrupt to take now.
    #[inline]
    pub(crate) fn is_interrupted(&self) -> bool {
        if self.irq_on.get() {
            self.lapic.borrow().deliverable().is_some() || self.irq_input.get() != IrqInput::Low
        } else {
            self.irq_input.get() == IrqInput::PseudoNmi && !self.exceptions_masked.get()
        }
    }

    /// Adds to the debt.
    #[inline]
    pub(crate) fn owe(&self, cost_ps: u64, account: Account) {
        self.debt.set(self.debt.get() + cost_ps);
        self.charge(cost_ps, account);
    }

    fn charge(&self, ps: u64, account: Account) {
        let time = &self.times[account as usize];
        time.set(time.get() + ps);
    }

    fn charged(&self) -> u64 {
        self.times.iter().map(Cell::get).sum()
    }

    pub(crate) fn times(&self) -> CpuTimes {
        let [user, system, irq] = [0, 1, 2].map(|index: usize| Ps(self.times[index].get()));
        CpuTimes { user, system, irq }
    }
}

/// What an entry takes at least that changed nothing.
const STORM_ENTRY_PS: u64 = 1000;
/// How long the machine runs on when the console waits for a word.
pub(crate) const CONSOLE_STEP: Ps = Ps(100_000);

impl Core {
    /// The account of plain time of the running CPU.
    pub(crate) fn kernel_account(&self) -> Account {
        if self.cpu().depth.get() > 0 { Account::Irq } else { Account::System }
    }

    /// Turns interrupts off; what was due while they were on comes first.
    #[inline]
    pub(crate) fn irq_save(&self) -> bool {
        let were_on = self.cpu().irq_on.get();
        if were_on {
            self.settle();
            if self.cpu().accept_pending.get() && !self.cpu().accept_late.get() {
                self.take_interrupts();
            }
            self.cpu().irq_on.set(false);
        }
        were_on
    }

    /// Turns interrupts on and takes what waits.
    pub(crate) fn irq_enable(&self) {
        // A CPU that unwinds at the end of the machine has nothing to take.
        if self.dead.get() {
            return;
        }
        self.cpu().irq_on.set(true);
        self.take_interrupts();
        self.owed_point();
    }

    /// Takes every deliverable interrupt of the running CPU, then reschedules if one asked for it.
    ///
    /// What is owed until then no interrupt may cut. With nothing to do it stays owed: it goes with what the CPU does
    /// next, and what arrives before its end is taken then.
    pub(crate) fn take_interrupts(&self) {
        let cpu = self.cpu();
        loop {
            if cpu.debt.get() > 0 && self.must_settle(cpu) {
                let were_on = cpu.irq_on.replace(false);
                self.settle();
                cpu.irq_on.set(were_on);
            }
            let Some(vector) = cpu.lapic.borrow_mut().accept() else { break };
            self.tell_of_cpu(|cpu| Fact::Accepted { cpu, vector });
            self.enter(cpu, Exception::Vector(vector));
        }
        if cpu.irq_input.get() != IrqInput::Low {
            self.take_exceptions(cpu);
        }
        cpu.irq_on_from.set(self.local_now());
        if cpu.need_resched.get() && cpu.depth.get() == 0 && !cpu.in_idle_loop.get() && cpu.irq_on.get() {
            self.reschedule();
        }
    }

    /// Whether the CPU has something to do at the end of its debt. On a machine with a GIC it is not kept at all: a
    /// pseudo-NMI may cut it.
    fn must_settle(&self, cpu: &Cpu) -> bool {
        let schedules = cpu.depth.get() == 0 && (cpu.need_resched.get() || cpu.in_idle_loop.get());
        schedules || cpu.is_interrupted() || self.config.interrupts != Interrupts::X2Apic
    }

    /// Takes what a GIC asks for, for as long as it asks: what it is, and that it ends, is its handler's affair.
    #[cold]
    fn take_exceptions(&self, cpu: &Cpu) {
        while cpu.is_interrupted() && !self.dead.get() {
            let start = self.now();
            let were_on = cpu.irq_on.get();
            let were_masked = cpu.exceptions_masked.replace(true);
            self.tell_of_cpu(|cpu| Fact::Exception { cpu, pseudo_nmi: !were_on });
            self.enter(cpu, if were_on { Exception::Irq } else { Exception::PseudoNmi });
            cpu.irq_on.set(were_on);
            cpu.exceptions_masked.set(were_masked);
            if self.now() == start {
                // A handler that leaves the request standing is entered again and again; time passes all the same.
                cpu.owe(STORM_ENTRY_PS, Account::Irq);
            }
        }
    }

    /// One interrupt, on top of whatever runs.
    fn enter(&self, cpu: &Cpu, exception: Exception) {
        let start = self.now();
        cpu.irq_on.set(false);
        if cpu.depth.get() == 0 {
            cpu.interrupt_since.set(start);
        }
        cpu.depth.set(cpu.depth.get() + 1);
        if cpu.idle.replace(false) {
            cpu.owe(self.config.costs.wake_from_idle.0, Account::Irq);
        }
        match self.entry.get() {
            Some(entry) => entry(exception),
            None => self.cpu_fault("interrupt without a handler", exception.to_string()),
        }
        if self.config.interrupts != Interrupts::X2Apic {
            self.settle();
        }
        cpu.depth.set(cpu.depth.get() - 1);
        cpu.irq_on.set(true);
        self.tell_of_cpu(|id| {
            let in_service = cpu.lapic.borrow().in_service();
            Fact::Returned { cpu: id, depth: cpu.depth.get(), in_service }
        });
        let took = self.local_now().saturating_sub(start);
        self.trace(Track::Cpu(cpu.id.0), "interrupt", start, took, exception.vector().into());
        if took > cpu.longest_interrupt.get() {
            cpu.longest_interrupt.set(took);
        }
        if self.config.interrupt_limit.is_some_and(|limit| took > limit) {
            self.cpu_fault("interrupt longer than its limit", format!("{exception} took {} ns", took.as_ns()));
        }
    }

    pub(crate) fn cpu_fault(&self, kind: &'static str, text: String) {
        let requester = self.cpu().id.0.into();
        let source = crate::model::ModelId(u32::MAX);
        self.record_fault(crate::fault::FaultRecord { at: self.now(), source, kind, requester, text, count: 1 });
    }

    /// Waits until a word is written, or a deadline; interrupts are taken meanwhile if they are on.
    pub(crate) fn relax_on(&self, word: &crate::word::Word, seen: u64, deadline: Ps) {
        self.settle();
        // What it owed may have lasted beyond the deadline: time does not go back to it.
        if hal::Word::get(word) != seen || self.dead.get() || deadline <= self.now() {
            return;
        }
        if self.on_console() {
            // A coroutine has to write it: let the machine run a little.
            self.run_for(CONSOLE_STEP.min(deadline.saturating_sub(self.now())));
            return;
        }
        let cpu = self.cpu();
        if cpu.need_resched.get() && cpu.irq_on.get() && cpu.depth.get() == 0 {
            // A thread that this one woke on its own CPU goes first: it may be the one that writes the word.
            return self.reschedule();
        }
        let (start, charged) = (self.now(), cpu.charged());
        let address = core::ptr::from_ref(word) as usize;
        let sequence = self.queue.borrow_mut().reserve_sequence();
        self.relaxing.set(self.relaxing.get() + 1);
        let next = self.wait_once(Wait::Word(address, deadline, sequence));
        self.relaxing.set(self.relaxing.get() - 1);
        match next {
            Next::Accept => {
                self.take_interrupts();
                self.settle();
            }
            Next::Limit => self.set_now(deadline),
            _ => {}
        }
        let waited = self.now().saturating_sub(start).0;
        cpu.charge(waited.saturating_sub(cpu.charged() - charged), self.kernel_account());
    }

    /// Sleeps until an interrupt was handled.
    pub(crate) fn wait_for_interrupt(&self) {
        let cpu = self.cpu();
        // One taken before the sleep would end no sleep.
        cpu.irq_on.set(false);
        self.settle();
        cpu.irq_on.set(true);
        if !cpu.is_interrupted() {
            cpu.idle.set(true);
            self.tell_of_cpu(|cpu| Fact::Halted { cpu });
            let start = self.now();
            while self.wait_once(Wait::Interrupt) != Next::Accept {}
            self.tell_of_cpu(|cpu| Fact::Woken { cpu });
            self.trace(Track::Cpu(cpu.id.0), "idle", start, self.now().saturating_sub(start), 0);
        }
        self.take_interrupts();
        cpu.idle.set(false);
    }

    /// WRMSR to the running CPU's own LAPIC.
    pub(crate) fn lapic_write(&self, register: u32, value: u64) {
        if self.config.interrupts.gic().is_some() {
            return self.cpu_fault("no local APIC on this machine", format!("WRMSR {register:#x} of {value:#x}"));
        }
        let cpu = self.cpu();
        cpu.owe(self.config.costs.lapic_write.0, self.kernel_account());
        let effect = cpu.lapic.borrow_mut().write(register, value);
        match effect {
            LapicEffect::None => {}
            LapicEffect::IdleEoi => {
                self.tell_of_cpu(|cpu| Fact::IdleEoi { cpu });
                self.cpu_fault("EOI with nothing in service", String::new());
            }
            LapicEffect::Ended { vector, broadcast } => {
                self.tell_of_cpu(|cpu| Fact::Ended { cpu, vector });
                if broadcast {
                    self.broadcast_eoi(cpu, vector);
                }
            }
            LapicEffect::Ipi { apic_id, vector } => self.send_ipi(CpuId(apic_id), vector.into()),
            LapicEffect::Timer(ticks) => {
                let generation = cpu.timer_generation.get().wrapping_add(1);
                cpu.timer_generation.set(generation);
                if ticks > 0 {
                    let delay = Ps(self.config.costs.timer_tick.0 * u64::from(ticks)) + self.late(Kind::LateTimer);
                    let at = self.local_now() + delay;
                    self.push(at, Event::for_cpu(cpu.id, cpu_event::TIMER, generation.into()));
                }
            }
            LapicEffect::Fault(register) => {
                self.cpu_fault("LAPIC access faults", format!("WRMSR {register:#x} of {value:#x}"));
            }
        }
    }

    /// The I/O APICs hear that a level-triggered vector ended.
    fn broadcast_eoi(&self, cpu: &Cpu, vector: u8) {
        cpu.owe(self.config.costs.level_eoi.0, self.kernel_account());
        self.settle();
        for (index, model) in self.models().iter().enumerate() {
            let id = crate::model::ModelId(index as u32);
            model.borrow_mut().eoi_broadcast(&mut crate::world::World::new(self, id), vector);
        }
    }

    /// RDMSR of the running CPU's own LAPIC.
    pub(crate) fn lapic_read(&self, register: u32) -> u64 {
        self.settle();
        let value = self.cpu().lapic.borrow().read(register);
        value.unwrap_or_else(|_| {
            self.cpu_fault("LAPIC access faults", format!("RDMSR {register:#x}"));
            0
        })
    }

    /// An IPI is on its way: a vector, or a kick from a CPU of this number. To a CPU that does not exist: a fault.
    pub(crate) fn send_ipi(&self, to: CpuId, content: u64) {
        if to.0 >= self.config.cpus {
            return self.cpu_fault("IPI to no CPU", format!("CPU {to}, {content:#04x}"));
        }
        let is_gic = self.config.interrupts.gic().is_some();
        self.tell_of_cpu(|from| Fact::IpiSent { from, to: to.0, vector: if is_gic { 0 } else { content as u8 } });
        let at = self.local_now() + self.config.costs.ipi + self.late(Kind::LateMessage);
        self.push(at, Event::for_cpu(to, cpu_event::RAISE, content));
    }

    /// A read of a model's register by the running CPU.
    pub(crate) fn mmio_read(&self, model: crate::model::ModelId, region: u8, offset: u32, width_bytes: u8) -> u64 {
        let own = self.model(model).borrow().access_costs(region, offset);
        let cost = own.map_or(self.config.costs.register_read, |own| own.read);
        self.cpu().owe((cost + self.push_writes(model)).0, self.kernel_account());
        self.settle();
        let mut target = self.model(model).borrow_mut();
        target.read(&mut crate::world::World::new(self, model), region, offset, width_bytes)
    }

    /// A posted write: with interrupts off it is only owed and arrives when its time has come, and in order. One that a
    /// hypervisor traps has been emulated when this returns.
    pub(crate) fn mmio_write(
        &self,
        model: crate::model::ModelId,
        region: u8,
        offset: u32,
        width_bytes: u8,
        value: u64,
    ) {
        if offset >= Event::OFFSET_END {
            return self.cpu_fault("register write beyond any window", format!("region {region}, offset {offset:#x}"));
        }
        let (order, own, is_trapped) = {
            let target = self.model(model).borrow();
            (target.write_order(region, offset), target.access_costs(region, offset), target.is_trapped())
        };
        let cpu = self.cpu();
        cpu.owe(own.map_or(self.config.costs.register_write, |own| own.write).0, self.kernel_account());
        // For the console no time passes: what is due comes first.
        if is_trapped && !self.on_console() {
            self.settle();
            self.note(self.now(), Event::write(model, region, offset, width_bytes, value));
            let mut target = self.model(model).borrow_mut();
            return target.write(&mut crate::world::World::new(self, model), region, offset, width_bytes, value);
        }
        if cpu.irq_on.get() {
            self.settle();
        }
        let at = self.write_arrival(model, order);
        self.push(at, Event::write(model, region, offset, width_bytes, value));
        self.owed_point();
    }
}

//! How a CPU takes interrupts.

use super::Core;
use super::points::{Next, Wait};
use crate::cpu::{Account, Cpu, Exception, IrqInput};
use crate::observe::Fact;
use crate::time::Ps;

/// Minimum time of an interrupt entry whose handler let no time pass.
const STORM_ENTRY_PS: u64 = 1000;

impl Core {
    /// Turns interrupts off. Events that were due while they were on happen first.
    #[inline]
    pub(crate) fn irq_save(&self) -> bool {
        let were_on = self.cpu().irq_on();
        if were_on {
            self.settle();
            if self.cpu().is_acceptance_due() {
                self.take_interrupts();
            }
            self.cpu().set_irq_on(false);
        }
        were_on
    }

    /// Turns interrupts on and takes pending interrupts.
    pub(crate) fn irq_enable(&self) {
        // While the machine shuts down, a CPU that unwinds takes no interrupts.
        if self.dead.get() {
            return;
        }
        self.cpu().set_irq_on(true);
        self.take_interrupts();
        self.owed_point();
    }

    /// Takes every deliverable interrupt of the running CPU, then reschedules if an interrupt asked for it.
    ///
    /// No interrupt may cut short the debt that the CPU has until then. If the CPU has nothing to do afterwards, the
    /// debt stays: it is paid with the CPU's next action, and interrupts that arrive before its end are taken at its
    /// end.
    pub(super) fn take_interrupts(&self) {
        let cpu = self.cpu();
        loop {
            if cpu.debt() > 0 && self.must_settle(cpu) {
                let were_on = cpu.set_irq_on(false);
                self.settle();
                cpu.set_irq_on(were_on);
            }
            if cpu.irq_input() == IrqInput::Low {
                break;
            }
            let Some(vector) = self.board.controller().accept(cpu) else {
                self.take_exceptions(cpu);
                break;
            };
            self.board.tell_of_cpu(|cpu| Fact::Accepted { cpu, vector });
            self.enter(cpu, Exception::Vector(vector));
        }
        cpu.set_irq_on_from(self.board.local_now());
        if cpu.need_resched() && cpu.depth() == 0 && !cpu.in_idle_loop() && cpu.irq_on() {
            self.reschedule();
        }
    }

    /// True if the CPU has something to do at the end of its debt. No debt is kept at all where an interrupt may be
    /// taken while interrupts are off.
    fn must_settle(&self, cpu: &Cpu) -> bool {
        let schedules = cpu.depth() == 0 && (cpu.need_resched() || cpu.in_idle_loop());
        schedules || cpu.is_interrupted() || self.cuts_critical_sections
    }

    /// Enters the handler for as long as the controller requests an interrupt. The handler identifies the interrupt
    /// and ends it.
    #[cold]
    fn take_exceptions(&self, cpu: &Cpu) {
        while cpu.is_interrupted() && !self.dead.get() {
            let start = self.now();
            let were_on = cpu.irq_on();
            let were_masked = cpu.set_exceptions_masked(true);
            self.board.tell_of_cpu(|cpu| Fact::Exception { cpu, pseudo_nmi: !were_on });
            self.enter(cpu, if were_on { Exception::Irq } else { Exception::PseudoNmi });
            cpu.set_irq_on(were_on);
            cpu.set_exceptions_masked(were_masked);
            if self.now() == start {
                // If the handler does not clear the request, it is entered again and again. Time must pass all the
                // same.
                cpu.owe(STORM_ENTRY_PS, Account::Irq);
            }
        }
    }

    /// Enters one interrupt on top of the running code.
    fn enter(&self, cpu: &Cpu, exception: Exception) {
        let start = self.now();
        self.end_stores(cpu.id);
        let wake = if cpu.enter_interrupt(start) { self.board.costs.wake_from_idle } else { Ps(0) };
        cpu.owe(wake.0, Account::Irq);
        match self.entry.get() {
            Some(entry) => entry(exception),
            None => self.board.cpu_fault("interrupt without a handler", exception.to_string()),
        }
        if self.cuts_critical_sections {
            self.settle();
        }
        cpu.leave_interrupt();
        self.board.tell_of_cpu(|id| {
            let in_service = self.board.controller().in_service(cpu.id);
            Fact::Returned { cpu: id, depth: cpu.depth(), in_service }
        });
        let took = self.board.local_now().saturating_sub(start);
        self.board.trace_cpu("interrupt", start, took, exception.vector().into());
        // A CPU that wakes up does not do the interrupt's work yet.
        let took = took.saturating_sub(wake);
        cpu.note_interrupt(took);
        if self.interrupt_limit.is_some_and(|limit| took > limit) {
            let text = format!("{exception} took {} ns", took.as_ns());
            self.board.cpu_fault("interrupt longer than its limit", text);
        }
    }

    /// Sleeps until an interrupt was handled.
    pub(crate) fn wait_for_interrupt(&self) {
        let cpu = self.cpu();
        // An interrupt taken before the sleep would not end the sleep.
        cpu.set_irq_on(false);
        self.settle();
        cpu.set_irq_on(true);
        if !cpu.is_interrupted() {
            cpu.set_idle(true);
            self.board.tell_of_cpu(|cpu| Fact::Halted { cpu });
            let start = self.now();
            while self.wait_once(Wait::Interrupt) != Next::Accept {}
            self.board.tell_of_cpu(|cpu| Fact::Woken { cpu });
            self.board.trace_cpu("idle", start, self.now().saturating_sub(start), 0);
        }
        self.take_interrupts();
        cpu.set_idle(false);
    }
}

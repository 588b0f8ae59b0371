//! What arrives at a CPU: interrupts, and the ends of its waits and timers.

use crate::core::Core;
use crate::cpu::Cpu;
use crate::event::{Event, cpu_event};
use crate::threads::Reason;
use hal::CpuId;

impl Core {
    /// An event for a CPU. `Some` when its coroutine must run.
    pub(crate) fn cpu_event(&self, id: CpuId, code: u32, arg: u64) -> Option<Reason> {
        let cpu = &self.cpus[id.index()];
        match code {
            cpu_event::RESUME => (u64::from(cpu.generation.get()) == arg).then_some(Reason::Resume),
            cpu_event::ACCEPT => {
                cpu.accept_pending.set(false);
                cpu.is_interrupted().then_some(Reason::Accept)
            }
            cpu_event::RAISE => {
                let accepted = self.raise(id.0, arg as u8, false);
                // A LAPIC that firmware has not enabled yet cannot take the kick; the CPU then leaves its halt as by
                // an INIT, and looks at its run queue.
                (!accepted && cpu.idle.get() && arg == u64::from(self.config.reschedule_vector))
                    .then_some(Reason::Accept)
            }
            cpu_event::TIMER => {
                if u64::from(cpu.timer_generation.get()) == arg && cpu.lapic.borrow_mut().timer_fired() {
                    self.request_accept(cpu);
                }
                None
            }
            _ => {
                self.slice_over(cpu);
                None
            }
        }
    }

    /// A vector arrives at a LAPIC. APIC ids are CPU numbers.
    pub(crate) fn raise(&self, apic_id: u32, vector: u8, level: bool) -> bool {
        let Some(cpu) = self.real_cpus().get(apic_id as usize) else { return false };
        if !cpu.lapic.borrow_mut().raise(vector, level) {
            return false;
        }
        self.request_accept(cpu);
        true
    }

    /// Acceptance is an event too, so that it has its place in the order: after the one that brought the interrupt.
    pub(crate) fn request_accept(&self, cpu: &Cpu) {
        if !cpu.accept_pending.get() && cpu.is_interrupted() {
            cpu.accept_pending.set(true);
            self.chain(Event::for_cpu(cpu.id, cpu_event::ACCEPT, 0));
        }
    }
}

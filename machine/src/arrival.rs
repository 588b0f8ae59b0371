//! What arrives at a CPU: interrupts, and the ends of its waits and timers.

use crate::core::Core;
use crate::cpu::{Cpu, IrqInput};
use crate::event::{Event, cpu_event};
use crate::gic;
use crate::observe::{Arrival, Fact};
use crate::threads::Reason;
use crate::time::Ps;
use crate::unrest::Kind;
use crate::world::World;
use hal::{CpuId, ThreadId};

impl Core {
    /// An event for a CPU. `Some` when its coroutine must run.
    pub(crate) fn cpu_event(&self, id: CpuId, code: u32, arg: u64) -> Option<Reason> {
        let cpu = &self.cpus[id.index()];
        match code {
            cpu_event::RESUME => (u64::from(cpu.generation.get()) == arg).then_some(Reason::Resume),
            cpu_event::ACCEPT => {
                cpu.accept_pending.set(false);
                cpu.accept_late.set(false);
                cpu.is_interrupted().then_some(Reason::Accept)
            }
            cpu_event::RAISE => {
                if self.config.interrupts.gic().is_some() {
                    return self.raise_at_gic(cpu, gic::SGI, arg);
                }
                let accepted = self.raise(id.0, arg as u8, false);
                // A LAPIC that firmware has not enabled yet cannot take the kick; the CPU then leaves its halt as by
                // an INIT, and looks at its run queue.
                (!accepted && cpu.idle.get() && arg == u64::from(self.config.reschedule_vector))
                    .then_some(Reason::Accept)
            }
            cpu_event::TIMER => {
                if u64::from(cpu.timer_generation.get()) == arg {
                    let fired = cpu.lapic.borrow_mut().timer_fired();
                    fired.into_iter().for_each(|vector| _ = self.raise(id.0, vector, false));
                }
                None
            }
            cpu_event::WAKE => {
                self.starved_wakes(ThreadId(arg as u32));
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
        let arrival = self.real_cpus().get(apic_id as usize).map_or(Arrival::Refused, |cpu| {
            let mut lapic = cpu.lapic.borrow_mut();
            match (lapic.is_requested(vector), lapic.raise(vector, level)) {
                (_, false) => Arrival::Refused,
                (false, true) => Arrival::Pending,
                (true, true) => Arrival::Merged,
            }
        });
        self.tell(|| Fact::Raised { cpu: apic_id, vector, level, arrival });
        if arrival == Arrival::Refused {
            return false;
        }
        self.request_accept(&self.cpus[apic_id as usize]);
        true
    }

    /// A kick arrives at the GIC, or a time slice ends there. As at a LAPIC: what the GIC does not signal ends a halt
    /// all the same.
    fn raise_at_gic(&self, cpu: &Cpu, code: u32, arg: u64) -> Option<Reason> {
        let id = gic::MODEL;
        self.model(id).borrow_mut().event(&mut World::new(self, id), code, arg << 16 | u64::from(cpu.id.0));
        (cpu.irq_input.get() == IrqInput::Low && cpu.idle.get()).then_some(Reason::Accept)
    }

    /// The end of a time slice, as the interrupt architecture has it.
    pub(crate) fn raise_timer(&self, cpu: &Cpu) {
        if self.config.interrupts.gic().is_none() {
            self.raise(cpu.id.0, self.config.timer_vector, false);
        } else {
            self.raise_at_gic(cpu, gic::TICK, 0);
        }
    }

    pub(crate) fn set_irq_input(&self, cpu: u32, input: IrqInput) {
        let Some(cpu) = self.real_cpus().get(cpu as usize) else { return };
        cpu.irq_input.set(input);
        self.request_accept(cpu);
    }

    pub(crate) fn unmask_exceptions(&self, cpu: u32) {
        let Some(cpu) = self.real_cpus().get(cpu as usize) else { return };
        cpu.exceptions_masked.set(false);
        self.request_accept(cpu);
    }

    /// Acceptance is an event too, so that it has its place in the order: after the one that brought the interrupt.
    pub(crate) fn request_accept(&self, cpu: &Cpu) {
        if !cpu.accept_pending.get() && cpu.is_interrupted() {
            cpu.accept_pending.set(true);
            let accept = Event::for_cpu(cpu.id, cpu_event::ACCEPT, 0);
            let late = self.late(Kind::LateAcceptance);
            cpu.accept_late.set(late > Ps(0));
            let at = cpu.irq_on_from.get().max(self.now()) + late;
            if at > self.now() {
                self.push(at, accept);
            } else {
                self.chain(accept);
            }
        }
    }
}

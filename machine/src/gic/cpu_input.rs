//! The GIC as the interrupt controller of the CPUs. Its model drives their request inputs and receives kicks and time
//! slices.

use super::{Gic, GicConfig, MODEL, SGI, TICK, Version};
use crate::board::Board;
use crate::board::controller::{Built, Controller};
use crate::cpu::{Cpu, IrqInput};
use crate::fabric::port::Credits;
use crate::observe::{Arrival, Fact};
use hal::CpuId;

/// A GIC after reset.
pub(crate) fn build(version: Version, config: &GicConfig, cpus: u32, credits: &Credits) -> Built {
    let model = Gic::new(version, config.clone(), cpus, credits.clone());
    Built { controller: Box::new(CpuInput), model: Some(Box::new(model)) }
}

/// The CPUs' view of the GIC. The model holds the state.
struct CpuInput;

impl CpuInput {
    /// Informs the model of an event for `cpu`. True if the event signals nothing and the CPU is halted: as with a
    /// LAPIC, an interrupt that is not signalled still ends a halt.
    fn tell(board: &Board, cpu: &Cpu, code: u32, arg: u64) -> bool {
        board.model_event(MODEL, code, arg << 16 | u64::from(cpu.id.0));
        cpu.irq_input() == IrqInput::Low && cpu.is_idle()
    }
}

impl Controller for CpuInput {
    /// Pseudo-NMIs may be taken while interrupts are off.
    fn cuts_critical_sections(&self) -> bool {
        true
    }

    /// Messages of this form belong to a PC. No CPU accepts them here.
    fn message(&self, board: &Board, apic_id: u32, vector: u8, level: bool) -> bool {
        board.tell(|| Fact::Raised { cpu: apic_id, vector, level, arrival: Arrival::Refused });
        false
    }

    /// The sender. The GIC has its own SGI for kicks and records who sent it.
    fn kick(&self, from: CpuId) -> u64 {
        from.0.into()
    }

    fn ipi_vector(&self, _content: u64) -> u8 {
        0
    }

    fn ipi(&self, board: &Board, cpu: &Cpu, content: u64) -> bool {
        Self::tell(board, cpu, SGI, content)
    }

    fn time_slice(&self, board: &Board, cpu: &Cpu) {
        Self::tell(board, cpu, TICK, 0);
    }
}

//! Costs of the CPUs' own actions.

use crate::time::Ps;
use crate::work::WorkKinds;

/// Costs of the CPUs' own actions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Named work.
    pub work: WorkKinds,
    /// From the interrupt's arrival at a halted CPU to its first instruction.
    pub wake_from_idle: Ps,
    /// A read of a device register: the CPU waits for the answer.
    pub register_read: Ps,
    /// A posted write to a device register: a doorbell.
    pub register_write: Ps,
    /// A write to the local APIC: an EOI.
    pub lapic_write: Ps,
    /// Extra cost of a write that ends a level-triggered interrupt: on a virtual machine it causes an exit.
    pub level_eoi: Ps,
    /// What a CPU waits for a cache line that devices also update, if another agent had it last.
    pub line_update: Ps,
    /// What a device's atomic update takes longer if another agent had the cache line last.
    pub line_move: Ps,
    /// From the sender's register write to the arrival at the other CPU's LAPIC.
    pub ipi: Ps,
    /// A tick of the LAPIC timer's clock, undivided.
    pub timer_tick: Ps,
    /// How long a thread runs while another waits for its CPU.
    pub time_slice: Ps,
}

impl Default for Costs {
    /// Free actions on a 1 GHz timer clock and 3 ms slices: for tests of order, not of time.
    fn default() -> Self {
        Self {
            work: WorkKinds::default(),
            wake_from_idle: Ps(0),
            register_read: Ps(1000),
            register_write: Ps(1000),
            lapic_write: Ps(0),
            level_eoi: Ps(0),
            line_update: Ps(1000),
            line_move: Ps(0),
            ipi: Ps(1000),
            timer_tick: Ps(1000),
            time_slice: Ps::from_ns(3_000_000),
        }
    }
}

//! The part of an interrupt controller that CPUs and the machine see.
//!
//! Local APICs and GICs are two implementations of it. A controller drives the request input of each CPU
//! ([`Board::drive`]). For everything else the machine calls the controller.

use super::Board;
use super::model::Model;
use crate::cpu::Cpu;
use hal::CpuId;

/// A controller. If it has a model behind it, that model is model 0.
pub(crate) struct Built {
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) model: Option<Box<dyn Model>>,
}

/// The interrupt controller of the CPUs of a machine.
pub(crate) trait Controller {
    /// True if an interrupt may be taken while interrupts are off. A CPU then keeps no time debt after a handler has
    /// ended.
    fn cuts_critical_sections(&self) -> bool {
        false
    }

    /// `cpu` takes a vector; its request input is not low. None when the handler itself finds out which interrupt to
    /// take.
    fn accept(&self, _cpu: &Cpu) -> Option<u8> {
        None
    }

    /// The highest vector that `cpu` has in service.
    fn in_service(&self, _cpu: CpuId) -> Option<u8> {
        None
    }

    /// Vectors that are pending at `cpu`, and vectors in service, 64 per word. None for a controller without vectors.
    fn vectors(&self, _cpu: CpuId) -> Option<[[u64; 4]; 2]> {
        None
    }

    /// Delivers a message to the CPU of this APIC id. False when no CPU accepts it.
    fn message(&self, board: &Board, apic_id: u32, vector: u8, level: bool) -> bool;

    /// The content of the IPI with which `from` makes another CPU check its run queue.
    fn kick(&self, from: CpuId) -> u64;

    /// The vector of an IPI with this content; 0 for a controller without vectors.
    fn ipi_vector(&self, content: u64) -> u8;

    /// An IPI arrives at `cpu`. True if it ends a halt without being taken; the CPU then checks its run queue.
    fn ipi(&self, board: &Board, cpu: &Cpu, content: u64) -> bool;

    /// The local timer of `cpu` has expired.
    fn timer(&self, _board: &Board, _cpu: &Cpu) {}

    /// The time slice of the thread on `cpu` is over.
    fn time_slice(&self, board: &Board, cpu: &Cpu);

    /// `cpu` reads one of its own registers.
    fn read(&self, _board: &Board, _cpu: &Cpu, _register: u32) -> Result<u64, Fault> {
        Err(Fault::NoRegisters)
    }

    /// `cpu` writes one of its own registers.
    fn write(&self, _cpu: &Cpu, _register: u32, _value: u64) -> Effect {
        Effect::Fault(Fault::NoRegisters)
    }
}

/// The effect on the machine of a write to a CPU's own register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// No effect outside the controller.
    None,
    /// An EOI without an interrupt in service. It is harmless, but software has ended an interrupt twice.
    IdleEoi,
    /// The highest vector in service ended.
    Ended {
        /// Vector.
        vector: u8,
        /// The vector is level-triggered: broadcast its EOI to the I/O APICs.
        broadcast: bool,
    },
    /// An IPI to this CPU.
    Ipi {
        /// Destination, physical.
        to: CpuId,
        /// Vector.
        vector: u8,
    },
    /// The timer was armed. Holds the ticks of its clock until it fires (0: disarmed).
    Timer(u32),
    /// The access faults.
    Fault(Fault),
}

/// Why an access to a CPU's own register faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The register does not exist, or does not accept this value (#GP on hardware).
    Access,
    /// A command for an IPI was written while the last one was pending (xAPIC mode; SDM vol. 3, "Interrupt Command Register").
    CommandPending,
    /// The machine has no local APIC.
    NoRegisters,
}

impl Fault {
    /// The name used in reports.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Access => "LAPIC access faults",
            Self::CommandPending => "IPI command while the last one is pending",
            Self::NoRegisters => "no local APIC on this machine",
        }
    }
}

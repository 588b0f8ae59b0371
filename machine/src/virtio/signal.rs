//! Event descriptors between guest and host: the costs of a kick and of an interrupt.

use crate::fabric::ioapic;
use crate::model::{AccessCosts, ModelId};
use crate::time::Ps;

/// Cost of a trapped register access for the guest's CPU: an exit and the hypervisor's handling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exits {
    /// A register that the hypervisor's user part emulates.
    pub register: Ps,
    /// A queue notification: the hypervisor signals an event descriptor and returns (ioeventfd).
    pub kick: Ps,
}

impl Exits {
    pub(super) fn costs(&self, is_notification: bool) -> AccessCosts {
        let write = if is_notification { self.kick } else { self.register };
        AccessCosts { read: self.register, write }
    }
}

/// The cost of an interrupt from an event descriptor (irqfd).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Irqfd {
    /// How long the sender of the signal is busy.
    pub signal: Ps,
    /// From the signal to the interrupt controller.
    pub latency: Ps,
}

/// A wire to an interrupt controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// The controller.
    pub controller: ModelId,
    /// Its event for a change of the wire.
    pub code: u32,
    /// Argument: asserted.
    pub asserted: u64,
    /// Argument: not asserted.
    pub released: u64,
    /// How the controller is to be programmed.
    pub trigger: Trigger,
}

/// The wire state that means an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// Its assertion: the event descriptor gives a pulse.
    Edge,
    /// That it is asserted, until it is not. Only vectors 0 to 31 may be wired so.
    Level,
}

impl Line {
    /// To a pin of an I/O APIC.
    pub fn ioapic(controller: ModelId, pin: u8, trigger: Trigger) -> Self {
        let [released, asserted] = [false, true].map(|asserted| ioapic::pin_arg(pin, asserted));
        Self { controller, code: ioapic::PIN, asserted, released, trigger }
    }
}

//! High precision event timer: the registers for its message-signalled (FSB) interrupts.
//!
//! Source: IA-PC HPET specification 1.0a, "Register Overview" and "Timer N FSB Interrupt Route Register".

use crate::register::{ReadOnly, ReadWrite, Register};
use bitfield_struct::bitfield;

/// General capabilities: a [`Capabilities`].
pub const CAPABILITIES: Register<u64, ReadOnly> = Register::at(0x000);
/// General configuration.
pub const CONFIGURATION: Register<u64, ReadWrite> = Register::at(0x010);
/// Main counter.
pub const MAIN_COUNTER: Register<u64, ReadWrite> = Register::at(0x0f0);
/// Offset of the first timer's registers.
pub const TIMERS: u32 = 0x100;
/// Bytes from one timer's registers to the next's.
pub const TIMER_STRIDE: u32 = 0x20;
/// A timer's [`TimerConfiguration`], behind the timer's own offset.
pub const TIMER_CONFIGURATION: Register<u64, ReadWrite> = Register::at(0x00);
/// A timer's comparator, likewise.
pub const TIMER_COMPARATOR: Register<u64, ReadWrite> = Register::at(0x08);
/// A timer's [`FsbRoute`], likewise.
pub const TIMER_FSB_ROUTE: Register<u64, ReadWrite> = Register::at(0x10);

/// General capabilities.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Capabilities {
    /// Revision; never 0.
    pub revision: u8,
    /// Timers, less one.
    #[bits(5)]
    pub timers_less_one: u8,
    /// The main counter has 64 bits.
    pub counter_64: bool,
    __: bool,
    /// Can replace the legacy timers' interrupt routes.
    pub legacy_route: bool,
    /// Vendor id.
    pub vendor: u16,
    /// Period of the counter in femtoseconds.
    pub period_fs: u32,
}

/// Configuration and capabilities of one timer.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct TimerConfiguration {
    __: bool,
    /// Level triggered instead of edge.
    pub level: bool,
    /// The timer interrupts.
    pub interrupt_enable: bool,
    /// Periodic.
    pub periodic: bool,
    /// Can be periodic. Read-only.
    pub can_be_periodic: bool,
    /// Has 64 bits. Read-only.
    pub is_64_bit: bool,
    /// The next write of the comparator sets the accumulator.
    pub set_value: bool,
    __: bool,
    /// Runs in 32-bit mode.
    pub mode_32: bool,
    /// I/O APIC input that it drives when FSB delivery is off.
    #[bits(5)]
    pub route: u8,
    /// Delivers by message ([`FsbRoute`]).
    pub fsb_enable: bool,
    /// Can deliver by message. Read-only.
    pub can_fsb: bool,
    __: u16,
    /// I/O APIC inputs that it can drive. Read-only.
    pub route_capability: u32,
}

/// The message of one timer.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct FsbRoute {
    /// Data written.
    pub data: u32,
    /// Address written to.
    pub address: u32,
}

const _: () = {
    assert!(size_of::<TimerConfiguration>() == 8);
    assert!(TIMER_FSB_ROUTE.offset() + 8 <= TIMER_STRIDE);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsb_bits_are_14_and_15() {
        let configuration = TimerConfiguration::from_bits(0xc004);
        assert!(configuration.fsb_enable() && configuration.can_fsb() && configuration.interrupt_enable());
    }

    #[test]
    fn fsb_route_holds_the_data_low() {
        assert_eq!(FsbRoute::new().with_address(0xfee0_0018).with_data(1).into_bits(), 0xfee0_0018_0000_0001);
    }
}

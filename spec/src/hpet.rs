//! High precision event timer: what its message-signalled (FSB) interrupts need.
//!
//! Source: IA-PC HPET specification 1.0a, "Register Overview" and "Timer N FSB Interrupt Route Register".

use bitfield_struct::bitfield;

/// Offset of the general capabilities, 64 bits.
pub const CAPABILITIES: u32 = 0x000;
/// Offset of the general configuration, 64 bits.
pub const CONFIGURATION: u32 = 0x010;
/// Offset of the main counter, 64 bits.
pub const MAIN_COUNTER: u32 = 0x0f0;
/// Offset of the first timer's registers.
pub const TIMERS: u32 = 0x100;
/// Bytes from one timer's registers to the next's.
pub const TIMER_STRIDE: u32 = 0x20;
/// Offset of a timer's [`TimerConfiguration`] in its registers, 64 bits.
pub const TIMER_CONFIGURATION: u32 = 0x00;
/// Offset of a timer's comparator, 64 bits.
pub const TIMER_COMPARATOR: u32 = 0x08;
/// Offset of a timer's [`FsbRoute`], 64 bits.
pub const TIMER_FSB_ROUTE: u32 = 0x10;

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
    assert!(TIMER_FSB_ROUTE + 8 <= TIMER_STRIDE);
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

//! Local APIC, x2APIC and I/O APIC.
//!
//! Sources: Intel SDM vol. 3, chapter "Advanced Programmable Interrupt Controller (APIC)": "Local APIC Register
//! Address Map", "x2APIC Register Address Space", "Interrupt Command Register", "Local Vector Table"; Intel 82093AA
//! I/O APIC datasheet and VT-d, "I/OxAPIC Programming" for the remappable redirection entry.

use bitfield_struct::bitfield;

/// The xAPIC's registers in its 4 KiB page, 16 bytes apart.
pub mod xapic {
    use crate::register::{ReadOnly, ReadWrite, Register, Registers, WriteOnly};

    /// Local APIC id, in bits 31:24.
    pub const ID: Register<u32, ReadWrite> = Register::at(0x020);
    /// [`super::Version`].
    pub const VERSION: Register<u32, ReadOnly> = Register::at(0x030);
    /// Task priority.
    pub const TPR: Register<u32, ReadWrite> = Register::at(0x080);
    /// Processor priority.
    pub const PPR: Register<u32, ReadOnly> = Register::at(0x0a0);
    /// End of interrupt; 0 must be written.
    pub const EOI: Register<u32, WriteOnly> = Register::at(0x0b0);
    /// Logical destination.
    pub const LDR: Register<u32, ReadWrite> = Register::at(0x0d0);
    /// Destination format.
    pub const DFR: Register<u32, ReadWrite> = Register::at(0x0e0);
    /// [`super::Spurious`].
    pub const SVR: Register<u32, ReadWrite> = Register::at(0x0f0);
    /// In service: eight banks of 32 vectors.
    pub const ISR: Registers<u32, ReadOnly> = Registers::spaced(0x100, super::BANKS, STRIDE);
    /// Trigger mode, eight banks.
    pub const TMR: Registers<u32, ReadOnly> = Registers::spaced(0x180, super::BANKS, STRIDE);
    /// Requested, eight banks.
    pub const IRR: Registers<u32, ReadOnly> = Registers::spaced(0x200, super::BANKS, STRIDE);
    /// Error status.
    pub const ESR: Register<u32, ReadWrite> = Register::at(0x280);
    /// Interrupt command, bits 31:0. Writing it sends.
    pub const ICR_LOW: Register<u32, ReadWrite> = Register::at(0x300);
    /// Interrupt command, bits 63:32: the destination in bits 31:24.
    pub const ICR_HIGH: Register<u32, ReadWrite> = Register::at(0x310);
    /// Timer's entry of the local vector table, a [`super::LvtTimer`].
    pub const LVT_TIMER: Register<u32, ReadWrite> = Register::at(0x320);
    /// Thermal sensor's entry.
    pub const LVT_THERMAL: Register<u32, ReadWrite> = Register::at(0x330);
    /// Performance counters' entry.
    pub const LVT_PERFORMANCE: Register<u32, ReadWrite> = Register::at(0x340);
    /// LINT0 pin's entry.
    pub const LVT_LINT0: Register<u32, ReadWrite> = Register::at(0x350);
    /// LINT1 pin's entry.
    pub const LVT_LINT1: Register<u32, ReadWrite> = Register::at(0x360);
    /// Error's entry.
    pub const LVT_ERROR: Register<u32, ReadWrite> = Register::at(0x370);
    /// Timer's initial count; writing starts the timer, 0 stops it.
    pub const TIMER_INITIAL: Register<u32, ReadWrite> = Register::at(0x380);
    /// Timer's current count.
    pub const TIMER_CURRENT: Register<u32, ReadOnly> = Register::at(0x390);
    /// Timer's divider, a [`super::TimerDivide`].
    pub const TIMER_DIVIDE: Register<u32, ReadWrite> = Register::at(0x3e0);
    /// Bytes from one register, or bank, to the next.
    pub const STRIDE: u32 = 0x10;
}

/// The x2APIC's model-specific registers; the offset is the register's number, 0x800 + xAPIC offset / 16. All but [`x2apic::ICR`]
/// hold 32 bits.
pub mod x2apic {
    use crate::register::{ReadOnly, ReadWrite, Register, Registers, WriteOnly};

    /// The MSR that enables the APIC and x2APIC mode, an [`super::ApicBase`]. Part of the same window of MSRs.
    pub const APIC_BASE: Register<u64, ReadWrite> = Register::at(0x01b);
    /// x2APIC id, 32 bits.
    pub const ID: Register<u64, ReadOnly> = Register::at(0x802);
    /// [`super::Version`].
    pub const VERSION: Register<u64, ReadOnly> = Register::at(0x803);
    /// Task priority.
    pub const TPR: Register<u64, ReadWrite> = Register::at(0x808);
    /// Processor priority.
    pub const PPR: Register<u64, ReadOnly> = Register::at(0x80a);
    /// End of interrupt; writing anything but 0 faults.
    pub const EOI: Register<u64, WriteOnly> = Register::at(0x80b);
    /// Logical destination.
    pub const LDR: Register<u64, ReadOnly> = Register::at(0x80d);
    /// [`super::Spurious`].
    pub const SVR: Register<u64, ReadWrite> = Register::at(0x80f);
    /// In service: eight banks of 32 vectors.
    pub const ISR: Registers<u64, ReadOnly> = Registers::spaced(0x810, super::BANKS, 1);
    /// Trigger mode, eight banks.
    pub const TMR: Registers<u64, ReadOnly> = Registers::spaced(0x818, super::BANKS, 1);
    /// Requested, eight banks.
    pub const IRR: Registers<u64, ReadOnly> = Registers::spaced(0x820, super::BANKS, 1);
    /// Error status.
    pub const ESR: Register<u64, ReadWrite> = Register::at(0x828);
    /// Interrupt command, an [`super::InterruptCommand`] of 64 bits. Writing it sends.
    pub const ICR: Register<u64, ReadWrite> = Register::at(0x830);
    /// Timer's entry of the local vector table, a [`super::LvtTimer`].
    pub const LVT_TIMER: Register<u64, ReadWrite> = Register::at(0x832);
    /// Thermal sensor's entry.
    pub const LVT_THERMAL: Register<u64, ReadWrite> = Register::at(0x833);
    /// Performance counters' entry.
    pub const LVT_PERFORMANCE: Register<u64, ReadWrite> = Register::at(0x834);
    /// LINT0 pin's entry.
    pub const LVT_LINT0: Register<u64, ReadWrite> = Register::at(0x835);
    /// LINT1 pin's entry.
    pub const LVT_LINT1: Register<u64, ReadWrite> = Register::at(0x836);
    /// Error's entry.
    pub const LVT_ERROR: Register<u64, ReadWrite> = Register::at(0x837);
    /// Timer's initial count.
    pub const TIMER_INITIAL: Register<u64, ReadWrite> = Register::at(0x838);
    /// Timer's current count.
    pub const TIMER_CURRENT: Register<u64, ReadOnly> = Register::at(0x839);
    /// Timer's divider, a [`super::TimerDivide`].
    pub const TIMER_DIVIDE: Register<u64, ReadWrite> = Register::at(0x83e);
    /// Self-IPI: the vector in bits 7:0.
    pub const SELF_IPI: Register<u64, WriteOnly> = Register::at(0x83f);
}

/// Banks of the ISR, TMR and IRR: 256 vectors, 32 a bank.
pub const BANKS: u32 = 8;

/// IA32_APIC_BASE (SDM vol. 3, "Local APIC Status and Location", "x2APIC States").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct ApicBase {
    __: u8,
    /// This is the bootstrap processor. Read-only.
    pub bootstrap: bool,
    __: bool,
    /// EXTD: x2APIC mode.
    pub x2apic: bool,
    /// EN: the APIC is globally enabled.
    pub enable: bool,
    /// Physical address of the xAPIC's page, in pages of 4 KiB.
    #[bits(52)]
    pub page: u64,
}

/// Version register (SDM vol. 3, "Local APIC Version Register").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Version {
    /// 0x10 to 0x15 for an integrated APIC.
    pub version: u8,
    __: u8,
    /// Entries of the local vector table, less one.
    pub lvt_entries_less_one: u8,
    /// Whether EOI broadcasts can be suppressed.
    pub can_suppress_eoi_broadcast: bool,
    #[bits(7)]
    __: u8,
}

/// Spurious-interrupt vector register (SDM vol. 3, "Spurious-Interrupt Vector Register").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Spurious {
    /// Vector of a spurious interrupt. Its handler sends no EOI.
    pub vector: u8,
    /// APIC software enable; 0 at reset.
    pub enable: bool,
    #[bits(3)]
    __: u8,
    /// EOIs of level interrupts are not broadcast to I/O APICs.
    pub suppress_eoi_broadcast: bool,
    #[bits(19)]
    __: u32,
}

/// Delivery modes of messages, commands and redirection entries (SDM vol. 3, "Interrupt Command Register").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliveryMode(pub u8);

impl DeliveryMode {
    /// Fixed: delivers the vector in the vector field.
    pub const FIXED: Self = Self(0b000);
    /// Lowest priority: delivers the vector to the destination that runs at the lowest priority.
    pub const LOWEST_PRIORITY: Self = Self(0b001);
    /// System management interrupt.
    pub const SMI: Self = Self(0b010);
    /// Non-maskable interrupt; the vector is ignored.
    pub const NMI: Self = Self(0b100);
    /// INIT.
    pub const INIT: Self = Self(0b101);
    /// Start-up IPI; interrupt command only.
    pub const START_UP: Self = Self(0b110);
    /// ExtINT: the vector comes from an external controller such as an 8259. Not valid in the interrupt command.
    pub const EXT_INT: Self = Self(0b111);
}

/// Destination shorthands of the interrupt command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shorthand(pub u8);

impl Shorthand {
    /// No shorthand: the destination field names the CPUs.
    pub const NONE: Self = Self(0b00);
    /// This CPU.
    pub const SELF: Self = Self(0b01);
    /// All CPUs, including this one.
    pub const ALL: Self = Self(0b10);
    /// All CPUs except this one.
    pub const OTHERS: Self = Self(0b11);
}

/// Interrupt command register in x2APIC form (SDM vol. 3, "ICR Operation in x2APIC Mode"). In xAPIC form the
/// destination is 8 bits at 63:56, and bit 12 tells the delivery status.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct InterruptCommand {
    /// Vector.
    pub vector: u8,
    /// A [`DeliveryMode`].
    #[bits(3)]
    pub delivery_mode: u8,
    /// The destination is logical.
    pub logical: bool,
    /// xAPIC only, read-only: the last command has not been accepted yet.
    pub delivery_pending: bool,
    __: bool,
    /// Level: assert. 1 for everything but INIT level de-assert.
    pub assert: bool,
    /// Trigger mode: level.
    pub level: bool,
    #[bits(2)]
    __: u8,
    /// A [`Shorthand`].
    #[bits(2)]
    pub shorthand: u8,
    #[bits(12)]
    __: u16,
    /// Destination's APIC id; shifted left by 24 in xAPIC form.
    pub destination: u32,
}

/// Timer's entry of the local vector table (SDM vol. 3, "Local Vector Table").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct LvtTimer {
    /// Vector.
    pub vector: u8,
    #[bits(4)]
    __: u8,
    /// Delivery pending. Read-only.
    pub delivery_pending: bool,
    #[bits(3)]
    __: u8,
    /// Masked; 1 at reset.
    pub masked: bool,
    /// A [`TimerMode`].
    #[bits(2)]
    pub mode: u8,
    #[bits(13)]
    __: u16,
}

/// Modes of the local timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerMode(pub u8);

impl TimerMode {
    /// Counts down once.
    pub const ONE_SHOT: Self = Self(0b00);
    /// Periodic: starts again when the count reaches zero.
    pub const PERIODIC: Self = Self(0b01);
    /// TSC deadline: fires when the time-stamp counter reaches a value.
    pub const TSC_DEADLINE: Self = Self(0b10);
}

/// The pin, thermal, performance and error entries of the local vector table.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct LvtEntry {
    /// Vector.
    pub vector: u8,
    /// A [`DeliveryMode`].
    #[bits(3)]
    pub delivery_mode: u8,
    __: bool,
    /// Delivery pending. Read-only.
    pub delivery_pending: bool,
    /// Pins only: active low.
    pub active_low: bool,
    /// Pins only, read-only: remote IRR.
    pub remote_irr: bool,
    /// Pins only: level triggered.
    pub level: bool,
    /// Masked; 1 at reset.
    pub masked: bool,
    #[bits(15)]
    __: u16,
}

/// Divider of the local timer: a code in bits 3, 1 and 0 (SDM vol. 3, "Divide Configuration Register").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerDivide(pub u32);

impl TimerDivide {
    /// By 1.
    pub const BY_1: Self = Self(0b1011);
    /// By 2.
    pub const BY_2: Self = Self(0b0000);
    /// By 4.
    pub const BY_4: Self = Self(0b0001);
    /// By 16.
    pub const BY_16: Self = Self(0b0011);
}

/// Registers of an I/O APIC (82093AA datasheet, "Memory Mapped Registers", "I/O APIC Registers").
pub mod ioapic {
    use crate::register::{ReadWrite, Register, WriteOnly};

    /// IOREGSEL: the index of the register in the window.
    pub const SELECT: Register<u32, ReadWrite> = Register::at(0x00);
    /// IOWIN: the selected register.
    pub const WINDOW: Register<u32, ReadWrite> = Register::at(0x10);
    /// EOIR: directed end of interrupt, by vector; version 0x20 and up.
    pub const EOI: Register<u32, WriteOnly> = Register::at(0x40);
    /// Register index of the id, in bits 27:24.
    pub const ID: u8 = 0x00;
    /// Register index of the version, an [`super::IoApicVersion`].
    pub const VERSION: u8 = 0x01;
    /// Register index of the first redirection entry's low half; two registers an entry.
    pub const REDIRECTION: u8 = 0x10;
    /// From this version on there is an [`EOI`] register.
    pub const VERSION_WITH_EOI: u8 = 0x20;
}

/// Version of an I/O APIC.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IoApicVersion {
    /// 0x11 for the 82093AA, 0x20 and up with an EOI register.
    pub version: u8,
    __: u8,
    /// Redirection entries, less one.
    pub entries_less_one: u8,
    __: u8,
}

/// Redirection entry in compatibility format (82093AA datasheet, "I/O Redirection Table Registers").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Redirection {
    /// Vector.
    pub vector: u8,
    /// A [`DeliveryMode`].
    #[bits(3)]
    pub delivery_mode: u8,
    /// The destination is logical.
    pub logical: bool,
    /// Delivery pending. Read-only.
    pub delivery_pending: bool,
    /// Active low.
    pub active_low: bool,
    /// Remote IRR: a level interrupt was accepted and awaits its EOI. Read-only.
    pub remote_irr: bool,
    /// Level triggered.
    pub level: bool,
    /// Masked; 1 at reset.
    pub masked: bool,
    #[bits(39)]
    __: u64,
    /// Destination's APIC id.
    pub destination: u8,
}

/// Redirection entry in remappable format (VT-d, "I/OxAPIC Programming").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct RemappableRedirection {
    /// Vector by which a directed or broadcast EOI finds the entry. For level interrupts: the remapping entry's.
    pub vector: u8,
    #[bits(3)]
    __: u8,
    /// Bit 15 of the handle.
    pub handle_high: bool,
    /// Delivery pending. Read-only.
    pub delivery_pending: bool,
    /// Active low.
    pub active_low: bool,
    /// Remote IRR. Read-only.
    pub remote_irr: bool,
    /// Level triggered.
    pub level: bool,
    /// Masked; 1 at reset.
    pub masked: bool,
    #[bits(31)]
    __: u32,
    /// Interrupt format; 1 for remappable.
    pub remappable: bool,
    /// Bits 14:0 of the handle.
    #[bits(15)]
    pub handle_low: u16,
}

const _: () = {
    assert!(x2apic::ID.offset() == 0x800 + xapic::ID.offset() / 16);
    assert!(x2apic::EOI.offset() == 0x800 + xapic::EOI.offset() / 16);
    assert!(x2apic::SVR.offset() == 0x800 + xapic::SVR.offset() / 16);
    assert!(x2apic::IRR.first() == 0x800 + xapic::IRR.first() / 16);
    assert!(x2apic::ICR.offset() == 0x800 + xapic::ICR_LOW.offset() / 16);
    assert!(x2apic::LVT_ERROR.offset() == 0x800 + xapic::LVT_ERROR.offset() / 16);
    assert!(x2apic::TIMER_DIVIDE.offset() == 0x800 + xapic::TIMER_DIVIDE.offset() / 16);
    assert!(size_of::<InterruptCommand>() == 8);
    assert!(size_of::<Redirection>() == 8);
    assert!(size_of::<RemappableRedirection>() == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_ipi_of_vector_0xfd_to_apic_id_0x123() {
        let command = InterruptCommand::new().with_vector(0xfd).with_assert(true).with_destination(0x123);
        assert_eq!(command.into_bits(), 0x0000_0123_0000_40fd);
    }

    #[test]
    fn spurious_register_as_an_operating_system_enables_it() {
        assert_eq!(Spurious::new().with_vector(0xff).with_enable(true).into_bits(), 0x1ff);
        assert_eq!(Spurious::new().with_suppress_eoi_broadcast(true).into_bits(), 0x1000);
    }

    #[test]
    fn local_timer_masked_periodic() {
        assert_eq!(LvtTimer::new().with_masked(true).with_mode(TimerMode::PERIODIC.0).into_bits(), 0x3_0000);
        assert_eq!(LvtEntry::new().with_masked(true).into_bits(), 0x1_0000);
    }

    #[test]
    fn apic_base_at_reset_of_the_bootstrap_processor() {
        let base = ApicBase::from_bits(0xfee0_0900);
        assert!(base.bootstrap() && base.enable() && !base.x2apic());
        assert_eq!(base.page() << 12, 0xfee0_0000);
        assert_eq!(base.with_x2apic(true).into_bits(), 0xfee0_0d00);
    }

    #[test]
    fn redirection_entries_in_both_formats() {
        let plain = Redirection::new().with_vector(0x30).with_level(true).with_active_low(true).with_destination(2);
        assert_eq!(plain.into_bits(), 0x0200_0000_0000_a030);
        let remapped = RemappableRedirection::new().with_handle_low(3).with_remappable(true).with_vector(9);
        assert_eq!(remapped.into_bits(), 0x0007_0000_0000_0009);
        assert_eq!(RemappableRedirection::new().with_handle_high(true).into_bits(), 0x800);
    }
}

//! The CPU interface of GICv3, in system registers (IHI 0069H, "AArch64 System register descriptions"). Every CPU has its
//! own; accesses are 64 bits wide.
//!
//! An offset is the register's encoding: op0 in bits 15:14, op1 in 13:11, CRn in 10:7, CRm in 6:3, op2 in 2:0.

use super::{ReadOnly, ReadWrite, Register, WriteOnly};
use bitfield_struct::bitfield;

/// The offset of the system register that `mrs` and `msr` name by these numbers.
pub const fn encoding(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2
}

/// ICC_PMR_EL1: priority mask, in bits 7:0.
pub const PMR: Register<u64, ReadWrite> = Register::at(encoding(3, 0, 4, 6, 0));
/// ICC_AP1R<n>_EL1: active priorities of group 1. [`Control::active_priority_registers`] says how many are there; an
/// access to another one is undefined.
pub const AP1R: [Register<u64, ReadWrite>; 4] = [
    Register::at(encoding(3, 0, 12, 9, 0)),
    Register::at(encoding(3, 0, 12, 9, 1)),
    Register::at(encoding(3, 0, 12, 9, 2)),
    Register::at(encoding(3, 0, 12, 9, 3)),
];
/// ICC_DIR_EL1: deactivates an INTID. With EOImode 0 a write is ignored, or reported as a system error.
pub const DIR: Register<u64, WriteOnly> = Register::at(encoding(3, 0, 12, 11, 1));
/// ICC_RPR_EL1: running priority, in bits 7:0.
pub const RPR: Register<u64, ReadOnly> = Register::at(encoding(3, 0, 12, 11, 3));
/// ICC_SGI1R_EL1: sends a software-generated interrupt of group 1, a [`SoftwareInterrupt`].
pub const SGI1R: Register<u64, WriteOnly> = Register::at(encoding(3, 0, 12, 11, 5));
/// ICC_IAR1_EL1: acknowledge. A read takes the most urgent interrupt of group 1; its INTID in bits 23:0.
pub const IAR1: Register<u64, ReadOnly> = Register::at(encoding(3, 0, 12, 12, 0));
/// ICC_EOIR1_EL1: drops the priority of an INTID, and with EOImode 0 deactivates it.
pub const EOIR1: Register<u64, WriteOnly> = Register::at(encoding(3, 0, 12, 12, 1));
/// ICC_HPPIR1_EL1: the most urgent pending interrupt of group 1. A read changes nothing.
pub const HPPIR1: Register<u64, ReadOnly> = Register::at(encoding(3, 0, 12, 12, 2));
/// ICC_BPR1_EL1: binary point, in bits 2:0.
pub const BPR1: Register<u64, ReadWrite> = Register::at(encoding(3, 0, 12, 12, 3));
/// ICC_CTLR_EL1: control, a [`Control`].
pub const CTLR: Register<u64, ReadWrite> = Register::at(encoding(3, 0, 12, 12, 4));
/// ICC_SRE_EL1: selects system registers as the interface, a [`SystemRegisterEnable`].
pub const SRE: Register<u64, ReadWrite> = Register::at(encoding(3, 0, 12, 12, 5));
/// ICC_IGRPEN1_EL1: bit 0 enables group 1.
pub const IGRPEN1: Register<u64, ReadWrite> = Register::at(encoding(3, 0, 12, 12, 7));

/// Control (IHI 0069H, "ICC_CTLR_EL1").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// CBPR: one binary point for both groups.
    pub common_binary_point: bool,
    /// EOImode: EOIR drops the priority only, DIR deactivates.
    pub eoi_mode: bool,
    #[bits(4)]
    __: u8,
    /// PMHE: the mask is a hint of how to choose among CPUs.
    pub mask_hint: bool,
    __: bool,
    /// PRIbits: bits of a priority, less one. Read-only.
    #[bits(3)]
    pub priority_bits_less_one: u8,
    /// IDbits: 0 for INTIDs of 16 bits, 1 for 24. Read-only.
    #[bits(3)]
    pub id_bits: u8,
    /// SEIS: errors may be reported as system errors. Read-only.
    pub system_errors: bool,
    /// A3V: affinity level 3 may be other than 0 in software-generated interrupts. Read-only.
    pub affinity3: bool,
    #[bits(2)]
    __: u8,
    /// RSS: affinity level 0 may be above 15. Read-only.
    pub range_selector: bool,
    /// ExtRange: extended INTIDs are there. Read-only.
    pub extended: bool,
    #[bits(44)]
    __: u64,
}

impl Control {
    /// How many of [`AP1R`] there are: 1 for up to 5 bits of priority, 2 for 6, 4 for more (IHI 0069H,
    /// "ICC_AP1R<n>_EL1").
    pub const fn active_priority_registers(self) -> usize {
        match self.priority_bits_less_one() {
            0..=4 => 1,
            5 => 2,
            _ => 4,
        }
    }
}

/// System register enable (IHI 0069H, "ICC_SRE_EL1").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct SystemRegisterEnable {
    /// SRE: the system registers are the interface.
    pub enable: bool,
    /// DFB: no bypass of FIQ.
    pub no_fiq_bypass: bool,
    /// DIB: no bypass of IRQ.
    pub no_irq_bypass: bool,
    #[bits(61)]
    __: u64,
}

/// A command to send a software-generated interrupt (IHI 0069H, "ICC_SGI1R_EL1").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct SoftwareInterrupt {
    /// The CPUs of affinity 3.2.1 whose level 0 is 16·`range` + the bit's number.
    pub targets: u16,
    /// Affinity level 1.
    pub affinity1: u8,
    /// The INTID.
    #[bits(4)]
    pub intid: u8,
    #[bits(4)]
    __: u8,
    /// Affinity level 2.
    pub affinity2: u8,
    /// IRM: to all but the sender; the affinity is ignored.
    pub others: bool,
    #[bits(3)]
    __: u8,
    /// RS: which sixteen of level 0.
    #[bits(4)]
    pub range: u8,
    /// Affinity level 3.
    pub affinity3: u8,
    __: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_the_manuals() {
        assert_eq!([IAR1.offset(), EOIR1.offset(), HPPIR1.offset()], [0xc660, 0xc661, 0xc662]);
        assert_eq!([BPR1.offset(), CTLR.offset(), SRE.offset(), IGRPEN1.offset()], [0xc663, 0xc664, 0xc665, 0xc667]);
        assert_eq!([DIR.offset(), RPR.offset(), SGI1R.offset()], [0xc659, 0xc65b, 0xc65d]);
        assert_eq!(PMR.offset(), 0xc230);
        assert_eq!(AP1R.map(|register| register.offset()), [0xc648, 0xc649, 0xc64a, 0xc64b]);
    }

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        assert_eq!(Control::new().with_eoi_mode(true).into_bits(), 2);
        let control = Control::from_bits(0x8c00 | 4 << 8);
        assert!(control.affinity3() && control.id_bits() == 1 && control.priority_bits_less_one() == 4);
        let registers = |bits: u8| Control::new().with_priority_bits_less_one(bits - 1).active_priority_registers();
        assert_eq!([4, 5, 6, 7, 8].map(registers), [1, 1, 2, 4, 4]);
        assert_eq!(SystemRegisterEnable::new().with_enable(true).into_bits(), 1);
        let sgi = SoftwareInterrupt::new().with_intid(7).with_targets(1 << 2).with_affinity1(1).with_affinity2(2);
        assert_eq!(sgi.with_affinity3(3).with_range(1).into_bits(), 0x0003_1002_0701_0004);
        assert_eq!(SoftwareInterrupt::new().with_others(true).into_bits(), 1 << 40);
    }
}

//! The CPU interface of GICv2 (IHI 0048B, "CPU interface register descriptions"). Every CPU sees its own at the same
//! address.

use super::{ReadOnly, ReadWrite, Register, Registers, WriteOnly};
use bitfield_struct::bitfield;

/// Size of the region, in bytes: DIR lies in the second page.
pub const BYTES: u32 = 0x2000;

/// Control, a [`Control`].
pub const CTLR: Register<u32, ReadWrite> = Register::at(0x000);
/// Priority mask, in bits 7:0: interrupts of equal or lower urgency are held back.
pub const PMR: Register<u32, ReadWrite> = Register::at(0x004);
/// Binary point, in bits 2:0: how many bits of a priority decide whether it preempts.
pub const BPR: Register<u32, ReadWrite> = Register::at(0x008);
/// Interrupt acknowledge, an [`Acknowledge`]: a read returns the most urgent interrupt and makes it active.
pub const IAR: Register<u32, ReadOnly> = Register::at(0x00c);
/// End of interrupt: write the [`Acknowledge`] that was read. Drops the priority; with EOImode 0 also deactivates.
pub const EOIR: Register<u32, WriteOnly> = Register::at(0x010);
/// Running priority, in bits 7:0.
pub const RPR: Register<u32, ReadOnly> = Register::at(0x014);
/// The most urgent pending interrupt, an [`Acknowledge`]. A read changes nothing.
pub const HPPIR: Register<u32, ReadOnly> = Register::at(0x018);
/// Aliased binary point: the binary point of group 1.
pub const ABPR: Register<u32, ReadWrite> = Register::at(0x01c);
/// Aliased acknowledge: acknowledges interrupts of group 1 only.
pub const AIAR: Register<u32, ReadOnly> = Register::at(0x020);
/// Aliased end of interrupt, for interrupts of group 1.
pub const AEOIR: Register<u32, WriteOnly> = Register::at(0x024);
/// The most urgent pending interrupt if it is of group 1.
pub const AHPPIR: Register<u32, ReadOnly> = Register::at(0x028);
/// Active priorities; with two groups, those of group 0.
pub const APR: Registers<u32, ReadWrite> = Registers::at(0x0d0, 4);
/// Active priorities of group 1.
pub const NSAPR: Registers<u32, ReadWrite> = Registers::at(0x0e0, 4);
/// Identification of the implementer.
pub const IIDR: Register<u32, ReadOnly> = Register::at(0x0fc);
/// Deactivates an interrupt: write the [`Acknowledge`] that was read. With EOImode 0 a write is unpredictable.
pub const DIR: Register<u32, WriteOnly> = Register::at(0x1000);

/// Control (IHI 0048B, "GICC_CTLR", the copy without security extensions, or the non-secure one).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// Interrupts are signalled to the CPU.
    pub enable: bool,
    #[bits(4)]
    __: u8,
    /// FIQBypDisGrp1.
    pub fiq_bypass_disable: bool,
    /// IRQBypDisGrp1.
    pub irq_bypass_disable: bool,
    #[bits(2)]
    __: u8,
    /// EOImodeNS: EOIR drops the priority only, DIR deactivates.
    pub eoi_mode: bool,
    #[bits(22)]
    __: u32,
}

/// Control without security extensions, whole (IHI 0048B, "GICC_CTLR").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct V2Control {
    /// EnableGrp0: interrupts of group 0 are signalled.
    pub enable: bool,
    /// EnableGrp1: those of group 1 are.
    pub enable_group1: bool,
    /// AckCtl: IAR, EOIR and HPPIR serve group 1 too.
    pub acknowledge_group1: bool,
    /// FIQEn: group 0 is signalled as FIQ.
    pub group0_is_fiq: bool,
    /// CBPR: the BPR applies to both groups.
    pub common_binary_point: bool,
    #[bits(4)]
    __: u8,
    /// EOImode: EOIR drops the priority only, DIR deactivates.
    pub eoi_mode: bool,
    #[bits(22)]
    __: u32,
}

/// The value that IAR reads and that software writes to EOIR and DIR (IHI 0048B, "GICC_IAR").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Acknowledge {
    /// The INTID.
    #[bits(10)]
    pub intid: u16,
    /// SGIs: the CPU interface that sent it; otherwise 0.
    #[bits(3)]
    pub source: u8,
    #[bits(19)]
    __: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        assert_eq!([CTLR.offset(), PMR.offset(), BPR.offset()], [0x00, 0x04, 0x08]);
        assert_eq!([IAR.offset(), EOIR.offset(), RPR.offset(), HPPIR.offset()], [0x0c, 0x10, 0x14, 0x18]);
        assert_eq!(DIR.offset(), 0x1000);
        assert_eq!([ABPR.offset(), AIAR.offset(), AEOIR.offset(), AHPPIR.offset()], [0x1c, 0x20, 0x24, 0x28]);
        assert_eq!((APR.first(), NSAPR.first()), (0xd0, 0xe0));
        let whole = V2Control::from_bits(0x21f);
        assert!(whole.enable_group1() && whole.acknowledge_group1() && whole.group0_is_fiq() && whole.eoi_mode());
        assert_eq!(Control::new().with_enable(true).with_eoi_mode(true).into_bits(), 0x201);
        let sgi = Acknowledge::from_bits(0x0c05);
        assert_eq!((sgi.intid(), sgi.source()), (5, 3));
        assert_eq!(Acknowledge::from_bits(0x3ff).intid(), 1023);
    }
}

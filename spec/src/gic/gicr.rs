//! Redistributors of GICv3 (IHI 0069H, "The GIC Redistributor register descriptions"): two frames of 64 KiB for each CPU,
//! one after the other. GICv4 has four.

use super::{OneToClear, OneToSet, ReadOnly, ReadWrite, Register, Registers, WriteOnly};
use bitfield_struct::bitfield;

/// Size of one frame, in bytes.
pub const FRAME_BYTES: u32 = 0x1_0000;
/// From a GICv3's redistributor to the next, in bytes.
pub const STRIDE_BYTES: u32 = 2 * FRAME_BYTES;
/// From a GICv4's redistributor to the next ([`Type::virtual_lpis`]), in bytes.
pub const V4_STRIDE_BYTES: u32 = 4 * FRAME_BYTES;
/// Offset of the frame of SGIs and PPIs, in bytes.
pub const SGI_FRAME: u32 = FRAME_BYTES;

/// Control, a [`Control`].
pub const CTLR: Register<u32, ReadWrite> = Register::at(0x0000);
/// Identification of the implementer.
pub const IIDR: Register<u32, ReadOnly> = Register::at(0x0004);
/// Its CPU and its features, a [`Type`].
pub const TYPER: Register<u64, ReadOnly> = Register::at(0x0008);
/// Its CPU sleeps or not, a [`Waker`].
pub const WAKER: Register<u32, ReadWrite> = Register::at(0x0014);
/// With direct LPIs: makes an LPI pending, by INTID in bits 31:0.
pub const SETLPIR: Register<u64, WriteOnly> = Register::at(0x0040);
/// With direct LPIs: takes its pending state away.
pub const CLRLPIR: Register<u64, WriteOnly> = Register::at(0x0048);
/// Address of the LPIs' configuration bytes, a [`PropertyBase`]. May be written only while LPIs are disabled.
pub const PROPBASER: Register<u64, ReadWrite> = Register::at(0x0070);
/// Address of the LPIs' pending bits, a [`PendingBase`]. May be written only while LPIs are disabled.
pub const PENDBASER: Register<u64, ReadWrite> = Register::at(0x0078);
/// With direct LPIs: forgets the configuration of an LPI, by INTID.
pub const INVLPIR: Register<u64, WriteOnly> = Register::at(0x00a0);
/// With direct LPIs: forgets the configuration of all.
pub const INVALLR: Register<u64, WriteOnly> = Register::at(0x00b0);
/// With direct LPIs: bit 0 is 1 while an operation of the two registers above is in progress.
pub const SYNCR: Register<u32, ReadOnly> = Register::at(0x00c0);
/// Peripheral id, the architecture's revision in bits 7:4.
pub const PIDR2: Register<u32, ReadOnly> = Register::at(0xffe8);

/// The group of each private interrupt; 1 is group 1. This and all that follow are in the second frame, with offsets from
/// the redistributor's start.
pub const IGROUPR0: Register<u32, ReadWrite> = Register::at(SGI_FRAME + 0x080);
/// Enables private interrupts; reads which are enabled.
pub const ISENABLER0: Register<u32, OneToSet> = Register::at(SGI_FRAME + 0x100);
/// Disables private interrupts; reads which are enabled.
pub const ICENABLER0: Register<u32, OneToClear> = Register::at(SGI_FRAME + 0x180);
/// Makes private interrupts pending; reads which are.
pub const ISPENDR0: Register<u32, OneToSet> = Register::at(SGI_FRAME + 0x200);
/// Makes private interrupts not pending; reads which are.
pub const ICPENDR0: Register<u32, OneToClear> = Register::at(SGI_FRAME + 0x280);
/// Makes private interrupts active; reads which are.
pub const ISACTIVER0: Register<u32, OneToSet> = Register::at(SGI_FRAME + 0x300);
/// Makes private interrupts inactive; reads which are active.
pub const ICACTIVER0: Register<u32, OneToClear> = Register::at(SGI_FRAME + 0x380);
/// Priorities of private interrupts, a byte each.
pub const IPRIORITYR: Registers<u32, ReadWrite> = Registers::at(SGI_FRAME + 0x400, 8);
/// Triggers of SGIs (the first, read-only: always edge) and PPIs (the second), two bits each.
pub const ICFGR: Registers<u32, ReadWrite> = Registers::at(SGI_FRAME + 0xc00, 2);

/// Control (IHI 0069H, "GICR_CTLR").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// EnableLPIs. An implementation need not let it be cleared again.
    pub enable_lpis: bool,
    /// CES: EnableLPIs can be cleared. Read-only.
    pub can_clear_enable: bool,
    /// IR: INVLPIR and INVALLR are there. Read-only.
    pub has_invalidate: bool,
    /// RWP: a write that disables (ICENABLER0, DPG*, EnableLPIs) has not taken effect yet. Read-only.
    pub write_pending: bool,
    #[bits(20)]
    __: u32,
    /// DPG0: 1-of-N interrupts of group 0 pass this CPU by.
    pub skip_group0: bool,
    /// DPG1NS: those of non-secure group 1.
    pub skip_group1: bool,
    /// DPG1S: those of secure group 1.
    pub skip_group1_secure: bool,
    #[bits(4)]
    __: u8,
    /// UWP: a message to this redistributor is under way. Read-only.
    pub upstream_pending: bool,
}

/// The CPU and the features of a redistributor (IHI 0069H, "GICR_TYPER").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Type {
    /// PLPIS: LPIs are there.
    pub physical_lpis: bool,
    /// VLPIS: virtual LPIs (GICv4).
    pub virtual_lpis: bool,
    /// Dirty.
    pub dirty: bool,
    /// DirectLPI: LPIs without an ITS.
    pub direct_lpi: bool,
    /// The last one of its region.
    pub last: bool,
    /// DPGS: the DPG bits of the control register are there.
    pub has_skip: bool,
    /// MPAM.
    pub mpam: bool,
    /// RVPEID.
    pub rvpeid: bool,
    /// Processor_Number: names the redistributor in ITS commands, unless GITS_TYPER.PTA.
    pub number: u16,
    /// CommonLPIAff: which redistributors share the table of LPI configuration.
    #[bits(2)]
    pub common_table: u8,
    /// VSGI.
    pub virtual_sgi: bool,
    /// PPInum: 0 when there are no extended PPIs.
    #[bits(5)]
    pub extended_ppis: u8,
    /// The affinity of its CPU, levels 3, 2, 1, 0 in a byte each.
    pub affinity: u32,
}

/// Wakes a redistributor (IHI 0069H, "GICR_WAKER").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Waker {
    __: bool,
    /// ProcessorSleep: the CPU sleeps; 1 at reset.
    pub sleep: bool,
    /// ChildrenAsleep: its interface is quiet. Read-only.
    pub asleep: bool,
    #[bits(29)]
    __: u32,
}

/// How agents share memory that the GIC accesses (IHI 0069H, the Shareability fields).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shareability(pub u8);

impl Shareability {
    /// Not shared.
    pub const NONE: Self = Self(0b00);
    /// Inner shareable: CPUs and their devices.
    pub const INNER: Self = Self(0b01);
    /// Outer shareable.
    pub const OUTER: Self = Self(0b10);
}

/// How the GIC caches memory (IHI 0069H, the InnerCache fields).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cacheability(pub u8);

impl Cacheability {
    /// Device memory.
    pub const DEVICE: Self = Self(0b000);
    /// Normal, not cached.
    pub const NONE: Self = Self(0b001);
    /// Normal, read and write allocate, write back.
    pub const WRITE_BACK: Self = Self(0b111);
}

/// Where the configuration bytes of LPIs are (IHI 0069H, "GICR_PROPBASER"): one byte each, from INTID 8192 on.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct PropertyBase {
    /// IDbits: bits of an INTID, less one.
    #[bits(5)]
    pub id_bits_less_one: u8,
    #[bits(2)]
    __: u8,
    /// A [`Cacheability`].
    #[bits(3)]
    pub inner_cache: u8,
    /// A [`Shareability`].
    #[bits(2)]
    pub shareability: u8,
    /// Address in pages of 4 KiB.
    #[bits(40)]
    pub page: u64,
    #[bits(4)]
    __: u8,
    /// 0: as the inner one.
    #[bits(3)]
    pub outer_cache: u8,
    #[bits(5)]
    __: u8,
}

/// Where the pending bits of a redistributor's LPIs are (IHI 0069H, "GICR_PENDBASER"): INTID n is bit n mod 8 of byte
/// n div 8; the first 1 KiB belongs to the implementation.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct PendingBase {
    #[bits(7)]
    __: u8,
    /// A [`Cacheability`].
    #[bits(3)]
    pub inner_cache: u8,
    /// A [`Shareability`].
    #[bits(2)]
    pub shareability: u8,
    #[bits(4)]
    __: u8,
    /// Address in units of 64 KiB.
    #[bits(36)]
    pub unit: u64,
    #[bits(4)]
    __: u8,
    /// 0: as the inner one.
    #[bits(3)]
    pub outer_cache: u8,
    #[bits(3)]
    __: u8,
    /// PTZ: the table is all zero. Write-only.
    pub zeroed: bool,
    __: bool,
}

/// The configuration byte of an LPI (IHI 0069H, "LPI Configuration tables").
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct LpiProperty {
    /// Enabled.
    pub enable: bool,
    /// Reserved with one security state, where it should be written 1; LPIs are of group 1.
    pub group1: bool,
    /// Bits 7:2 of the priority.
    #[bits(6)]
    pub priority_high: u8,
}

impl LpiProperty {
    /// The byte of an LPI of this priority. The two lowest priority bits do not exist.
    pub const fn of(priority: super::Priority, enable: bool) -> Self {
        Self::new().with_group1(true).with_priority_high(priority.0 >> 2).with_enable(enable)
    }

    /// Its priority.
    pub const fn priority(self) -> super::Priority {
        super::Priority(self.priority_high() << 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gic::Priority;

    #[test]
    fn offsets_are_the_manuals() {
        assert_eq!([CTLR.offset(), TYPER.offset(), WAKER.offset()], [0x00, 0x08, 0x14]);
        assert_eq!([PROPBASER.offset(), PENDBASER.offset(), SYNCR.offset()], [0x70, 0x78, 0xc0]);
        assert_eq!([IGROUPR0.offset(), ISENABLER0.offset(), ICENABLER0.offset()], [0x1_0080, 0x1_0100, 0x1_0180]);
        assert_eq!([ISPENDR0.offset(), ICPENDR0.offset()], [0x1_0200, 0x1_0280]);
        assert_eq!([ISACTIVER0.offset(), ICACTIVER0.offset()], [0x1_0300, 0x1_0380]);
        assert_eq!([IPRIORITYR.get(7).offset(), ICFGR.get(1).offset()], [0x1_041c, 0x1_0c04]);
    }

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        assert!(Control::from_bits(8).write_pending() && Control::from_bits(1).enable_lpis());
        assert_eq!(Waker::new().with_sleep(true).into_bits(), 2);
        assert!(Waker::from_bits(4).asleep());
        let typer = Type::from_bits(0x0000_0102_0003_0011);
        assert!(typer.physical_lpis() && typer.last());
        assert_eq!((typer.number(), typer.affinity()), (0x300, 0x102));
        let table = PropertyBase::new()
            .with_id_bits_less_one(15)
            .with_inner_cache(Cacheability::WRITE_BACK.0)
            .with_shareability(Shareability::INNER.0)
            .with_page(0x4_0010);
        assert_eq!(table.into_bits(), 0x4001_078f);
        let pending = PendingBase::new().with_unit(0x4001).with_zeroed(true);
        assert_eq!(pending.into_bits(), 0x4000_0000_4001_0000);
        assert_eq!(LpiProperty::of(Priority(0xc0), true).into_bits(), 0xc3);
        assert_eq!(LpiProperty::from_bits(0xa2).priority(), Priority(0xa0));
    }
}

//! The distributor (IHI 0048B, "Distributor register descriptions"; IHI 0069H, "The GIC Distributor register
//! descriptions"). Offsets are the same in both versions where both have the register.
//!
//! Registers with a bit for each interrupt have 32 in each; INTID n is bit n mod 32 of register n div 32. In GICv3 with
//! affinity routing those of SGIs and PPIs (register 0) are in the redistributors instead, and read as zero here.

use super::{OneToClear, OneToSet, ReadOnly, ReadWrite, Register, Registers, WriteOnly};
use bitfield_struct::bitfield;

/// Size of the frame: 4 KiB in GICv2, in bytes.
pub const V2_BYTES: u32 = 0x1000;
/// Size of the frame: 64 KiB in GICv3, in bytes.
pub const V3_BYTES: u32 = 0x1_0000;

/// Control: [`V2Control`] or [`Control`]. GICv3: what is disabled has taken effect once RWP reads 0.
pub const CTLR: Register<u32, ReadWrite> = Register::at(0x000);
/// The features of the distributor: a [`Type`].
pub const TYPER: Register<u32, ReadOnly> = Register::at(0x004);
/// Identification of the implementer.
pub const IIDR: Register<u32, ReadOnly> = Register::at(0x008);
/// GICv3 with message-based SPIs: writing an INTID to it makes that pending (non-secure).
pub const SETSPI_NSR: Register<u32, WriteOnly> = Register::at(0x040);
/// GICv3 with message-based SPIs: writing an INTID to it takes the pending state away again (non-secure).
pub const CLRSPI_NSR: Register<u32, WriteOnly> = Register::at(0x048);
/// The group of each interrupt; 1 is group 1.
pub const IGROUPR: Registers<u32, ReadWrite> = Registers::at(0x080, 32);
/// Enables interrupts; reads which are enabled.
pub const ISENABLER: Registers<u32, OneToSet> = Registers::at(0x100, 32);
/// Disables interrupts; reads which are enabled.
pub const ICENABLER: Registers<u32, OneToClear> = Registers::at(0x180, 32);
/// Makes interrupts pending; reads which are.
pub const ISPENDR: Registers<u32, OneToSet> = Registers::at(0x200, 32);
/// Makes interrupts not pending; reads which are.
pub const ICPENDR: Registers<u32, OneToClear> = Registers::at(0x280, 32);
/// Makes interrupts active; reads which are.
pub const ISACTIVER: Registers<u32, OneToSet> = Registers::at(0x300, 32);
/// Makes interrupts inactive; reads which are active.
pub const ICACTIVER: Registers<u32, OneToClear> = Registers::at(0x380, 32);
/// Priorities, a byte each: INTID n is byte n mod 4 of register n div 4.
pub const IPRIORITYR: Registers<u32, ReadWrite> = Registers::at(0x400, 255);
/// GICv2: CPU interfaces that may take the interrupt, a byte each with a bit for each CPU. The first eight registers
/// (SGIs and PPIs) read-only: they tell the CPU that reads its own bit. GICv3 with affinity routing: reserved.
pub const ITARGETSR: Registers<u32, ReadWrite> = Registers::at(0x800, 255);
/// Trigger, two bits each, of which the upper is 1 for edge: INTID n is bits 2·(n mod 16) of register n div 16.
pub const ICFGR: Registers<u32, ReadWrite> = Registers::at(0xc00, 64);
/// GICv2: sends a software-generated interrupt, a [`V2SoftwareInterrupt`].
pub const SGIR: Register<u32, WriteOnly> = Register::at(0xf00);
/// GICv2: takes the pending state of SGIs away. A byte each with a bit for each source CPU.
pub const CPENDSGIR: Registers<u32, OneToClear> = Registers::at(0xf10, 4);
/// GICv2: makes SGIs pending, as if sent by the CPUs whose bits are written.
pub const SPENDSGIR: Registers<u32, OneToSet> = Registers::at(0xf20, 4);
/// GICv3: the destination of an SPI, a [`Route`]. Indexed by INTID, so 32 is the first.
pub const IROUTER: Registers<u64, ReadWrite> = Registers::at(0x6000, 1020);
/// GICv3: peripheral id, with the architecture's revision in bits 7:4 (3 or 4). In GICv2 it is at 0xfe8.
pub const PIDR2: Register<u32, ReadOnly> = Register::at(0xffe8);

/// Control of GICv2, of an implementation without security extensions (IHI 0048B, "GICD_CTLR"). Non-secure accesses of
/// one with them see bit 0 only, as the enable of group 1.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct V2Control {
    /// Interrupts of group 0 are forwarded.
    pub enable: bool,
    /// Interrupts of group 1 are forwarded.
    pub enable_group1: bool,
    #[bits(30)]
    __: u32,
}

/// Control of GICv3 with one security state (IHI 0069H, "GICD_CTLR", "When access is Secure, in a system that supports
/// only one Security state"). The non-secure view of two states has the enables of group 1 in bits 0 and 1, so that
/// setting both means the same in either.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// Group 0 is forwarded.
    pub enable_group0: bool,
    /// Group 1 is forwarded.
    pub enable_group1: bool,
    #[bits(2)]
    __: u8,
    /// ARE: affinity routing. Not to be cleared once set.
    pub affinity_routing: bool,
    __: bool,
    /// DS: there is one security state.
    pub disable_security: bool,
    /// E1NWF: 1-of-N interrupts may wake CPUs.
    pub wake_for_any: bool,
    #[bits(23)]
    __: u32,
    /// RWP: a write that disables something (the enables of groups here, or any ICENABLER of the distributor) has not
    /// taken effect everywhere yet. Read-only.
    pub write_pending: bool,
}

/// The features of a distributor (IHI 0048B and IHI 0069H, "GICD_TYPER").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Type {
    /// ITLinesNumber: INTIDs below 32·(N+1), and below 1020.
    #[bits(5)]
    pub lines: u8,
    /// CPUNumber: CPU interfaces less one; GICv3: of those that work without affinity routing.
    #[bits(3)]
    pub cpus_less_one: u8,
    __: bool,
    __: bool,
    /// SecurityExtn: there are two security states.
    pub security: bool,
    /// GICv2: LSPI. GICv3: num_LPIs, 2^(N+1) message interrupts; 0: as many as `id_bits_less_one` says.
    #[bits(5)]
    pub lpis: u8,
    /// MBIS: SPIs can be raised by messages.
    pub message_spis: bool,
    /// LPIS: there are message interrupts.
    pub has_lpis: bool,
    /// DVIS: virtual messages can be injected directly.
    pub direct_virtual: bool,
    /// IDbits: bits of an INTID, less one.
    #[bits(5)]
    pub id_bits_less_one: u8,
    /// A3V: affinity level 3 may be other than 0.
    pub affinity3: bool,
    /// No1N: an SPI cannot go to any of several CPUs.
    pub no_any: bool,
    /// RSS: SGIs reach affinity level 0 up to 255, not only 15.
    pub range_selector: bool,
    #[bits(5)]
    __: u8,
}

impl Type {
    /// The first INTID that is no SPI of this distributor.
    pub const fn spi_end(self) -> u32 {
        let end = 32 * (self.lines() as u32 + 1);
        if end > 1020 { 1020 } else { end }
    }
}

/// The destination of an SPI (IHI 0069H, "GICD_IROUTERn").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Route {
    /// Affinity level 0.
    pub affinity0: u8,
    /// Affinity level 1.
    pub affinity1: u8,
    /// Affinity level 2.
    pub affinity2: u8,
    #[bits(7)]
    __: u8,
    /// Interrupt_Routing_Mode: to any CPU that takes part; the affinity is ignored.
    pub any: bool,
    /// Affinity level 3.
    pub affinity3: u8,
    #[bits(24)]
    __: u32,
}

/// Which CPUs a software-generated interrupt of GICv2 goes to (IHI 0048B, "GICD_SGIR").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetFilter(pub u8);

impl TargetFilter {
    /// The CPUs of the target list.
    pub const LIST: Self = Self(0b00);
    /// All but the sender.
    pub const OTHERS: Self = Self(0b01);
    /// The sender.
    pub const SELF: Self = Self(0b10);
}

/// A command to send a software-generated interrupt (IHI 0048B, "GICD_SGIR").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct V2SoftwareInterrupt {
    /// The INTID.
    #[bits(4)]
    pub intid: u8,
    #[bits(11)]
    __: u16,
    /// NSATT: of group 1; secure writes only.
    pub group1: bool,
    /// The list: a bit for each CPU interface.
    pub targets: u8,
    /// A [`TargetFilter`].
    #[bits(2)]
    pub filter: u8,
    #[bits(6)]
    __: u8,
}

/// Architecture revision in a peripheral id register 2, bits 7:4: 2, 3 or 4 (IHI 0069H, "GICD_PIDR2").
pub const fn architecture(pidr2: u32) -> u8 {
    (pidr2 >> 4) as u8 & 0xf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_the_manuals() {
        assert_eq!((ISENABLER.get(0).offset(), ISENABLER.get(31).offset()), (0x100, 0x17c));
        assert_eq!((ICENABLER.first(), ISPENDR.first(), ICPENDR.first()), (0x180, 0x200, 0x280));
        assert_eq!((ISACTIVER.first(), ICACTIVER.first()), (0x300, 0x380));
        assert_eq!((IPRIORITYR.get(254).offset(), ITARGETSR.get(8).offset()), (0x7f8, 0x820));
        assert_eq!((ICFGR.get(2).offset(), IGROUPR.get(1).offset()), (0xc08, 0x084));
        assert_eq!((SGIR.offset(), CPENDSGIR.get(3).offset(), SPENDSGIR.get(0).offset()), (0xf00, 0xf1c, 0xf20));
        assert_eq!((IROUTER.get(32).offset(), IROUTER.get(1019).offset()), (0x6100, 0x7fd8));
        assert_eq!((SETSPI_NSR.offset(), CLRSPI_NSR.offset()), (0x40, 0x48));
    }

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        let on = Control::new().with_affinity_routing(true).with_enable_group1(true).with_enable_group0(true);
        assert_eq!(on.into_bits(), 0x13);
        assert!(Control::from_bits(0x8000_0000).write_pending());
        assert!(Control::from_bits(0x40).disable_security());
        // A GICv3 of 288 INTIDs, 16 bits of INTID, messages, affinity 3: as QEMU's virt machine says.
        let typer = Type::from_bits(0x037a_0008);
        assert_eq!((typer.spi_end(), typer.id_bits_less_one()), (288, 15));
        assert!(typer.has_lpis() && typer.affinity3() && typer.no_any() && !typer.message_spis());
        assert!(Type::from_bits(1 << 16).message_spis());
        assert_eq!(Type::from_bits(0x1f).spi_end(), 1020);
        assert_eq!(Type::from_bits(0x0000_0c64).cpus_less_one(), 3);
        assert_eq!(Route::new().with_any(true).into_bits(), 0x8000_0000);
        let route = Route::new().with_affinity3(4).with_affinity2(3).with_affinity1(2).with_affinity0(1);
        assert_eq!(route.into_bits(), 0x04_0003_0201);
        let sgi = V2SoftwareInterrupt::new().with_intid(5).with_targets(0b10);
        assert_eq!(sgi.into_bits(), 0x0002_0005);
        assert_eq!(sgi.with_filter(TargetFilter::OTHERS.0).into_bits(), 0x0102_0005);
        assert_eq!(architecture(0x3b), 3);
    }
}

//! Controller properties in BAR 0 (Base 3.1.3) and the doorbells behind them (PCIe 3.1.2).

use crate::register::{OneToClear, OneToSet, ReadOnly, ReadWrite, Register, WriteOnly};
use bitfield_struct::bitfield;

/// Controller Capabilities (Base 3.1.3.1).
pub const CAP: Register<u64, ReadOnly> = Register::at(0x00);
/// Version (Base 3.1.3.2).
pub const VS: Register<u32, ReadOnly> = Register::at(0x08);
/// Interrupt Mask Set; not for MSI-X (Base 3.1.3.3).
pub const INTMS: Register<u32, OneToSet> = Register::at(0x0c);
/// Interrupt Mask Clear; not for MSI-X (Base 3.1.3.4).
pub const INTMC: Register<u32, OneToClear> = Register::at(0x10);
/// Controller Configuration (Base 3.1.3.5).
pub const CC: Register<u32, ReadWrite> = Register::at(0x14);
/// Controller Status; NSSRO alone can be written, and is cleared by 1 (Base 3.1.3.6).
pub const CSTS: Register<u32, OneToClear> = Register::at(0x1c);
/// NVM Subsystem Reset; reads zero (Base 3.1.3.7).
pub const NSSR: Register<u32, WriteOnly> = Register::at(0x20);
/// Admin Queue Attributes (Base 3.1.3.8).
pub const AQA: Register<u32, ReadWrite> = Register::at(0x24);
/// Admin Submission Queue Base Address (Base 3.1.3.9).
pub const ASQ: Register<u64, ReadWrite> = Register::at(0x28);
/// Admin Completion Queue Base Address (Base 3.1.3.10).
pub const ACQ: Register<u64, ReadWrite> = Register::at(0x30);
/// Offset of the first doorbell (PCIe 3.1.2).
pub const DOORBELLS: u32 = 0x1000;

/// The doorbell for the tail of submission queue `qid`, with `dstrd` from [`Cap`] (PCIe 3.1.2.1):
/// `1000h + 2y × (4 << DSTRD)`.
pub const fn sq_tail_doorbell(qid: u16, dstrd: u8) -> Register<u32, WriteOnly> {
    Register::at(DOORBELLS + 2 * qid as u32 * (4 << dstrd))
}

/// The doorbell for the head of completion queue `qid` (PCIe 3.1.2.2): `1000h + (2y + 1) × (4 << DSTRD)`.
pub const fn cq_head_doorbell(qid: u16, dstrd: u8) -> Register<u32, WriteOnly> {
    Register::at(DOORBELLS + (2 * qid as u32 + 1) * (4 << dstrd))
}

/// Controller Capabilities (Base 3.1.3.1).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// MQES: the most entries of an I/O queue, 0's based.
    pub mqes: u16,
    /// CQR: queues must be physically contiguous.
    pub cqr: bool,
    /// AMS: weighted round robin with urgent priority class.
    pub ams_wrr: bool,
    /// AMS: vendor specific arbitration.
    pub ams_vendor: bool,
    #[bits(5)]
    __: u8,
    /// TO: the longest that CSTS.RDY takes to follow CC.EN, in 500 ms units.
    pub to: u8,
    /// DSTRD: doorbell stride, `4 << DSTRD` bytes.
    #[bits(4)]
    pub dstrd: u8,
    /// NSSRS: NVM subsystem reset.
    pub nssrs: bool,
    /// CSS bit 0: the NVM command set.
    pub css_nvm: bool,
    #[bits(5)]
    __: u8,
    /// CSS bit 6: one or more I/O command sets.
    pub css_io_sets: bool,
    /// CSS bit 7: no I/O command set.
    pub css_admin_only: bool,
    /// BPS: boot partitions.
    pub bps: bool,
    /// CPS: controller power scope.
    #[bits(2)]
    pub cps: u8,
    /// MPSMIN: smallest memory page, `2^(12 + MPSMIN)` bytes.
    #[bits(4)]
    pub mpsmin: u8,
    /// MPSMAX: largest memory page, `2^(12 + MPSMAX)` bytes.
    #[bits(4)]
    pub mpsmax: u8,
    /// PMRS: persistent memory region.
    pub pmrs: bool,
    /// CMBS: controller memory buffer.
    pub cmbs: bool,
    /// NSSS: NVM subsystem shutdown.
    pub nsss: bool,
    /// CRMS: controller ready modes, ready with media.
    pub crwms: bool,
    /// CRMS: controller ready modes, ready independent of media.
    pub crims: bool,
    #[bits(3)]
    __: u8,
}
const _: () = assert!(size_of::<Cap>() == 8);

/// Version (Base 3.1.3.2): 2.0.0 reads `0002_0000h`.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Version {
    /// TER.
    pub tertiary: u8,
    /// MNR.
    pub minor: u8,
    /// MJR.
    pub major: u16,
}
const _: () = assert!(size_of::<Version>() == 4);

/// Controller Configuration (Base 3.1.3.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// EN: 0 → 1 starts the controller, 1 → 0 is a controller reset.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// CSS: command set selected; 000b is the NVM command set.
    #[bits(3)]
    pub css: u8,
    /// MPS: memory page size, `2^(12 + MPS)` bytes.
    #[bits(4)]
    pub mps: u8,
    /// AMS: arbitration; 000b is round robin.
    #[bits(3)]
    pub ams: u8,
    /// SHN: shutdown notification, a [`ShutdownNotification`].
    #[bits(2)]
    pub shn: u8,
    /// IOSQES: I/O submission entries of `2^IOSQES` bytes.
    #[bits(4)]
    pub iosqes: u8,
    /// IOCQES: I/O completion entries of `2^IOCQES` bytes.
    #[bits(4)]
    pub iocqes: u8,
    /// CRIME: ready independent of media.
    pub crime: bool,
    #[bits(7)]
    __: u8,
}
const _: () = assert!(size_of::<Cc>() == 4);

/// Values of CC.SHN (Base 3.1.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShutdownNotification(pub u8);

impl ShutdownNotification {
    /// No notification.
    pub const NONE: Self = Self(0);
    /// Normal shutdown.
    pub const NORMAL: Self = Self(1);
    /// Abrupt shutdown.
    pub const ABRUPT: Self = Self(2);
}

/// Controller Status (Base 3.1.3.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// RDY: follows CC.EN.
    pub rdy: bool,
    /// CFS: fatal error, only a reset helps.
    pub cfs: bool,
    /// SHST: a [`ShutdownStatus`].
    #[bits(2)]
    pub shst: u8,
    /// NSSRO: an NVM subsystem reset occurred; write 1 to clear.
    pub nssro: bool,
    /// PP: processing paused.
    pub pp: bool,
    /// ST: the shutdown is that of the whole subsystem.
    pub st: bool,
    #[bits(25)]
    __: u32,
}
const _: () = assert!(size_of::<Csts>() == 4);

/// Values of CSTS.SHST (Base 3.1.3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShutdownStatus(pub u8);

impl ShutdownStatus {
    /// Normal operation.
    pub const NORMAL: Self = Self(0);
    /// Shutdown in progress.
    pub const OCCURRING: Self = Self(1);
    /// Shutdown complete.
    pub const COMPLETE: Self = Self(2);
}

/// Admin Queue Attributes (Base 3.1.3.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// ASQS: admin submission queue entries, 0's based.
    #[bits(12)]
    pub asqs: u16,
    #[bits(4)]
    __: u8,
    /// ACQS: admin completion queue entries, 0's based.
    #[bits(12)]
    pub acqs: u16,
    #[bits(4)]
    __: u8,
}
const _: () = assert!(size_of::<Aqa>() == 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_fields_stand_where_the_manual_puts_them() {
        // MQES 3FFh, CQR, TO 20 (10 s), DSTRD 1, NVM command set, MPSMAX 4.
        let cap = Cap::from_bits(0x0040_0021_1401_03ff);
        assert_eq!((cap.mqes(), cap.cqr(), cap.to(), cap.dstrd()), (0x3ff, true, 20, 1));
        assert_eq!((cap.css_nvm(), cap.mpsmin(), cap.mpsmax()), (true, 0, 4));
        assert_eq!(Cap::new().with_css_admin_only(true).into_bits(), 1 << 44);
        assert_eq!(Cap::new().with_crims(true).into_bits(), 1 << 60);
    }

    #[test]
    fn cc_and_csts_words() {
        // 64-byte and 16-byte entries, enabled: the word every driver writes.
        assert_eq!(Cc::new().with_en(true).with_iosqes(6).with_iocqes(4).into_bits(), 0x0046_0001);
        assert_eq!(Cc::new().with_shn(ShutdownNotification::NORMAL.0).into_bits(), 0x4000);
        assert_eq!(Cc::from_bits(0x0000_0780).mps(), 0xf);
        let csts = Csts::from_bits(0x0000_000b);
        assert_eq!((csts.rdy(), csts.cfs(), csts.shst()), (true, true, ShutdownStatus::COMPLETE.0));
        assert_eq!(Aqa::new().with_asqs(31).with_acqs(63).into_bits(), 0x003f_001f);
        assert_eq!(Version::from_bits(0x0001_0400).minor(), 4);
    }

    #[test]
    fn doorbells_follow_the_stride() {
        assert_eq!((sq_tail_doorbell(0, 0).offset(), cq_head_doorbell(0, 0).offset()), (0x1000, 0x1004));
        assert_eq!((sq_tail_doorbell(3, 0).offset(), cq_head_doorbell(3, 0).offset()), (0x1018, 0x101c));
        assert_eq!((sq_tail_doorbell(1, 4).offset(), cq_head_doorbell(1, 4).offset()), (0x1080, 0x10c0));
    }
}

//! The group and work queue tables in BAR 0, and the portals in BAR 2.

use crate::register::{ReadWrite, Register, Registers};
use bitfield_struct::bitfield;

/// Bytes of an entry of the group configuration table: four quadwords that name queues, one that names engines, and
/// the flags (DSA, "Group Configuration Table").
pub const GRPCFG_BYTES: u32 = 64;
/// In an entry: the group's queues, one bit each.
pub const GRPCFG_QUEUES: Registers<u64, ReadWrite> = Registers::at(0, 4);
/// In an entry: the group's engines, one bit each.
pub const GRPCFG_ENGINES: Register<u64, ReadWrite> = Register::at(32);
/// In an entry: its [`GroupFlags`].
pub const GRPCFG_FLAGS: Register<u32, ReadWrite> = Register::at(40);
/// Bytes of an entry of the work queue table, times `2^WQCAP.config_shift` (DSA, "Work Queue Configuration Table").
pub const WQCFG_BYTES_MIN: u32 = 32;

/// Registers of an entry of the work queue table, behind its own offset (DSA, "Work Queue Configuration Table").
pub mod wqcfg {
    use crate::register::{ReadOnly, ReadWrite, Register};

    /// [`super::WqSize`].
    pub const SIZE: Register<u32, ReadWrite> = Register::at(0);
    /// [`super::WqThreshold`].
    pub const THRESHOLD: Register<u32, ReadWrite> = Register::at(4);
    /// [`super::WqMode`].
    pub const MODE: Register<u32, ReadWrite> = Register::at(8);
    /// [`super::WqLimits`].
    pub const LIMITS: Register<u32, ReadWrite> = Register::at(12);
    /// [`super::WqStatus`].
    pub const STATUS: Register<u32, ReadOnly> = Register::at(24);
}

/// Group flags (DSA, "Group Configuration Table").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GroupFlags {
    /// Traffic class A.
    #[bits(3)]
    pub class_a: u8,
    /// Traffic class B.
    #[bits(3)]
    pub class_b: u8,
    __: bool,
    /// The global limit of read buffers applies.
    pub global_limit: bool,
    /// Read buffers reserved.
    pub buffers_reserved: u8,
    #[bits(4)]
    __: u8,
    /// Read buffers allowed.
    pub buffers_allowed: u8,
    #[bits(4)]
    __: u8,
}
const _: () = assert!(size_of::<GroupFlags>() == 4);

/// Bytes 0–3 of a queue's entry.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WqSize {
    /// Entries of the queue.
    pub size: u16,
    __: u16,
}
const _: () = assert!(size_of::<WqSize>() == 4);

/// Bytes 4–7 of a queue's entry.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WqThreshold {
    /// Entries that a limited portal may fill.
    pub threshold: u16,
    __: u16,
}
const _: () = assert!(size_of::<WqThreshold>() == 4);

/// Bytes 8–11 of a queue's entry.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WqMode {
    /// Dedicated: one submitter counts its descriptors. Otherwise the queue is shared.
    pub dedicated: bool,
    /// Block on fault allowed.
    pub block_on_fault: bool,
    /// Address translation off.
    pub ats_disable: bool,
    __: bool,
    /// 1 to 15.
    #[bits(4)]
    pub priority: u8,
    /// PASID of a dedicated queue.
    #[bits(20)]
    pub pasid: u32,
    /// The PASID is used.
    pub pasid_enable: bool,
    /// Privileged.
    pub privileged: bool,
    #[bits(2)]
    __: u8,
}
const _: () = assert!(size_of::<WqMode>() == 4);

/// Bytes 12–15 of a queue's entry.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WqLimits {
    /// A transfer has at most `2^n` bytes.
    #[bits(5)]
    pub transfer_shift_max: u8,
    /// A batch has at most `2^n` descriptors.
    #[bits(4)]
    pub batch_shift_max: u8,
    #[bits(23)]
    __: u32,
}
const _: () = assert!(size_of::<WqLimits>() == 4);

/// Bytes 24–27 of a queue's entry, read only.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WqStatus {
    /// Entries in use.
    pub occupancy: u16,
    /// An occupancy interrupt is wanted.
    pub occupancy_interrupt: bool,
    #[bits(12)]
    __: u16,
    /// The mode can be changed.
    pub mode_support: bool,
    /// [`QueueState`].
    #[bits(2)]
    pub state: u8,
}
const _: () = assert!(size_of::<WqStatus>() == 4);

/// State of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueState(pub u8);

impl QueueState {
    /// Disabled: accepts no descriptors.
    pub const DISABLED: Self = Self(0);
    /// Enabled: accepts descriptors.
    pub const ENABLED: Self = Self(1);
    /// Between two states.
    pub const BUSY: Self = Self(2);
}

/// Bytes of a portal (DSA, "Portals").
pub const PORTAL_BYTES: u32 = 0x1000;
/// Portals of one queue, in the order of [`Portal`].
pub const PORTALS_PER_QUEUE: u32 = 4;

/// The portals of a queue (DSA, "Portals").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Portal {
    /// May fill the queue; interrupts by the MSI-X table.
    UnlimitedMsix = 0,
    /// May fill the queue up to its threshold; interrupts by the MSI-X table.
    LimitedMsix = 1,
    /// May fill the queue; interrupts by interrupt message storage.
    UnlimitedIms = 2,
    /// May fill the queue up to its threshold; interrupts by interrupt message storage.
    LimitedIms = 3,
}

/// Offset of a queue's portal in BAR 2.
pub const fn portal(queue: u8, kind: Portal) -> u32 {
    (queue as u32 * PORTALS_PER_QUEUE + kind as u32) * PORTAL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        assert_eq!(WqMode::new().with_dedicated(true).with_priority(10).into_bits(), 0xa1);
        assert_eq!(WqMode::new().with_pasid_enable(true).into_bits(), 0x1000_0000);
        assert_eq!(WqLimits::new().with_transfer_shift_max(21).with_batch_shift_max(1).into_bits(), 0x35);
        assert_eq!(WqStatus::from_bits(0x4000_0007).state(), QueueState::ENABLED.0);
        assert_eq!(WqStatus::from_bits(0x4000_0007).occupancy(), 7);
        assert_eq!(portal(0, Portal::LimitedMsix), 0x1000);
        assert_eq!(portal(3, Portal::UnlimitedMsix), 0xc000);
    }
}

//! Registers of a remapping unit (VT-d, "Register Descriptions").

use crate::register::{OneToClear, ReadOnly, ReadWrite, Register, Registers, WriteOnly};
use bitfield_struct::bitfield;

/// The [`Version`].
pub const VER: Register<u32, ReadOnly> = Register::at(0x00);
/// The [`Capability`].
pub const CAP: Register<u64, ReadOnly> = Register::at(0x08);
/// The [`ExtendedCapability`].
pub const ECAP: Register<u64, ReadOnly> = Register::at(0x10);
/// Global command: a [`GlobalCommand`].
pub const GCMD: Register<u32, WriteOnly> = Register::at(0x18);
/// Global status: a [`GlobalStatus`].
pub const GSTS: Register<u32, ReadOnly> = Register::at(0x1c);
/// The [`FaultStatus`].
pub const FSTS: Register<u32, OneToClear> = Register::at(0x34);
/// [`EventControl`] of fault events.
pub const FECTL: Register<u32, ReadWrite> = Register::at(0x38);
/// The fault event's data.
pub const FEDATA: Register<u32, ReadWrite> = Register::at(0x3c);
/// The fault event's address, bits 31:0.
pub const FEADDR: Register<u32, ReadWrite> = Register::at(0x40);
/// The fault event's address, bits 63:32.
pub const FEUADDR: Register<u32, ReadWrite> = Register::at(0x44);
/// [`QueuePointer`] of the head.
pub const IQH: Register<u64, ReadOnly> = Register::at(0x80);
/// [`QueuePointer`] of the tail.
pub const IQT: Register<u64, ReadWrite> = Register::at(0x88);
/// The [`QueueAddress`].
pub const IQA: Register<u64, ReadWrite> = Register::at(0x90);
/// The invalidation completion status.
pub const ICS: Register<u32, OneToClear> = Register::at(0x9c);
/// [`EventControl`] of invalidation completion events.
pub const IECTL: Register<u32, ReadWrite> = Register::at(0xa0);
/// That event's data.
pub const IEDATA: Register<u32, ReadWrite> = Register::at(0xa4);
/// That event's address, bits 31:0.
pub const IEADDR: Register<u32, ReadWrite> = Register::at(0xa8);
/// That event's address, bits 63:32.
pub const IEUADDR: Register<u32, ReadWrite> = Register::at(0xac);
/// The [`QueueError`].
pub const IQERCD: Register<u64, ReadOnly> = Register::at(0xb0);
/// The [`TableAddress`].
pub const IRTA: Register<u64, ReadWrite> = Register::at(0xb8);

/// Version register.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Version {
    /// Minor.
    #[bits(4)]
    pub minor: u8,
    /// Major.
    #[bits(4)]
    pub major: u8,
    #[bits(24)]
    __: u32,
}

/// Capability register.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Capability {
    /// ND: domains, 2^(4+2n).
    #[bits(3)]
    pub domains: u8,
    /// AFL: advanced fault logging.
    pub advanced_fault_log: bool,
    /// RWBF: the write buffer must be flushed.
    pub write_buffer_flush: bool,
    /// PLMR.
    pub protected_low_memory: bool,
    /// PHMR.
    pub protected_high_memory: bool,
    /// CM: caches entries that are not present, too.
    pub caching_mode: bool,
    /// SAGAW.
    #[bits(5)]
    pub address_widths: u8,
    #[bits(3)]
    __: u8,
    /// MGAW, less one.
    #[bits(6)]
    pub guest_address_width_less_one: u8,
    /// ZLR.
    pub zero_length_read: bool,
    __: bool,
    /// FRO: offset of the fault records, in units of 16 bytes.
    #[bits(10)]
    pub fault_record_offset_16_bytes: u16,
    /// SLLPS.
    #[bits(4)]
    pub large_pages: u8,
    __: bool,
    /// PSI.
    pub page_selective: bool,
    /// NFR: fault records, less one.
    pub fault_records_less_one: u8,
    /// MAMV.
    #[bits(6)]
    pub address_mask_max: u8,
    /// DWD.
    pub write_drain: bool,
    /// DRD.
    pub read_drain: bool,
    /// FL1GP.
    pub first_level_1g: bool,
    #[bits(2)]
    __: u8,
    /// PI: posted interrupts.
    pub posted_interrupts: bool,
    /// FL5LP.
    pub first_level_5: bool,
    /// ECMDS.
    pub enhanced_commands: bool,
    /// ESIRTPS: setting the table pointer also invalidates the interrupt-entry cache.
    pub table_pointer_invalidates: bool,
    /// ESRTPS.
    pub root_pointer_invalidates: bool,
}

/// Extended capability register.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct ExtendedCapability {
    /// C: snoops the caches for its tables; without it software flushes them.
    pub coherent: bool,
    /// QI: queued invalidation.
    pub queued_invalidation: bool,
    /// DT.
    pub device_tlb: bool,
    /// IR: interrupt remapping.
    pub interrupt_remapping: bool,
    /// EIM: 32-bit APIC ids.
    pub extended_interrupt_mode: bool,
    __: bool,
    /// PT.
    pub pass_through: bool,
    /// SC.
    pub snoop_control: bool,
    /// IRO, in units of 16 bytes.
    #[bits(10)]
    pub iotlb_offset_16_bytes: u16,
    #[bits(2)]
    __: u8,
    /// MHMV: largest index mask of an interrupt-entry cache invalidation.
    #[bits(4)]
    pub handle_mask_max: u8,
    #[bits(40)]
    __: u64,
}

/// Global command register. One command at a time: software writes the enabled features of [`GlobalStatus`] again with
/// one change, and waits for the status to follow (VT-d, "Global Command Register").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GlobalCommand {
    #[bits(23)]
    __: u32,
    /// CFI: compatibility-format interrupts pass.
    pub compatibility_format: bool,
    /// SIRTP: take [`TableAddress`]. One-shot.
    pub set_interrupt_table: bool,
    /// IRE: interrupt remapping.
    pub interrupt_remapping: bool,
    /// QIE: queued invalidation.
    pub queued_invalidation: bool,
    /// WBF. One-shot.
    pub write_buffer_flush: bool,
    /// EAFL.
    pub advanced_fault_log: bool,
    /// SFL. One-shot.
    pub set_fault_log: bool,
    /// SRTP. One-shot.
    pub set_root_table: bool,
    /// TE.
    pub translation: bool,
}

/// Global status register: the bits of the command register that are in effect.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GlobalStatus {
    #[bits(23)]
    __: u32,
    /// CFIS.
    pub compatibility_format: bool,
    /// IRTPS: the table address was taken.
    pub interrupt_table_set: bool,
    /// IRES.
    pub interrupt_remapping: bool,
    /// QIES.
    pub queued_invalidation: bool,
    /// WBFS.
    pub write_buffer_flush: bool,
    /// AFLS.
    pub advanced_fault_log: bool,
    /// FLS.
    pub fault_log_set: bool,
    /// RTPS.
    pub root_table_set: bool,
    /// TES.
    pub translation: bool,
}

/// Fault status register. All but PPF and FRI are cleared by writing 1.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FaultStatus {
    /// PFO: a fault came while all records were full. RW1C.
    pub overflow: bool,
    /// PPF: at least one fault record has its fault bit set. Read-only.
    pub pending: bool,
    /// AFO. RW1C.
    pub advanced_overflow: bool,
    /// APF. RW1C.
    pub advanced_pending: bool,
    /// IQE: invalidation queue error, a descriptor or the tail is wrong; the queue stands. RW1C.
    pub queue_error: bool,
    /// ICE: a device answered a device-TLB invalidation wrongly. RW1C.
    pub completion_error: bool,
    /// ITE: a device did not answer; descriptors up to the head are aborted, the queue stands. RW1C.
    pub time_out_error: bool,
    /// DEP, formerly PRO. RW1C.
    pub deprecated: bool,
    /// FRI: the first record with a fault. Read-only, valid with PPF.
    pub record_index: u8,
    __: u16,
}

/// Control of an event's interrupt.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EventControl {
    #[bits(30)]
    __: u32,
    /// IP: held pending. Read-only.
    pub pending: bool,
    /// IM: masked; 1 at reset.
    pub masked: bool,
}

/// Head or tail of the invalidation queue.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct QueuePointer {
    #[bits(4)]
    __: u8,
    /// Index of a 128-bit descriptor.
    #[bits(15)]
    pub index: u16,
    #[bits(45)]
    __: u64,
}

/// Invalidation queue address.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct QueueAddress {
    /// QS: 2^n pages of 4 KiB, so 2^(8+n) descriptors of 128 bits.
    #[bits(3)]
    pub size: u8,
    #[bits(8)]
    __: u8,
    /// DW: 256-bit descriptors.
    pub wide: bool,
    /// Page of the queue.
    #[bits(52)]
    pub page: u64,
}

/// Invalidation queue error record.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct QueueError {
    /// IQEI: a [`QueueErrorInfo`], valid with IQE.
    #[bits(4)]
    pub info: u8,
    #[bits(28)]
    __: u32,
    /// ITESID: the device that did not answer, valid with ITE; 0 when it is unknown.
    pub time_out_source: u16,
    /// ICESID: the device that answered wrongly, valid with ICE.
    pub completion_source: u16,
}

/// Why a descriptor was refused (VT-d, "Invalidation Queue Error Record Register").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueErrorInfo(pub u8);

impl QueueErrorInfo {
    /// Not available.
    pub const NONE: Self = Self(0);
    /// The tail points outside the queue.
    pub const TAIL: Self = Self(1);
    /// The fetch of a descriptor failed.
    pub const FETCH: Self = Self(2);
    /// The type is unknown.
    pub const TYPE: Self = Self(3);
    /// A reserved field is set.
    pub const RESERVED: Self = Self(4);
    /// Descriptor width of 256 bits is not supported.
    pub const WIDTH: Self = Self(5);
    /// The tail is not a multiple of the descriptor's width.
    pub const TAIL_ALIGNMENT: Self = Self(6);
    /// Its translation type is not the unit's.
    pub const TRANSLATION_TYPE: Self = Self(7);
}

/// Interrupt-remapping table address.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct TableAddress {
    /// S: 2^(n+1) entries.
    #[bits(4)]
    pub size: u8,
    #[bits(7)]
    __: u8,
    /// EIME: 32-bit APIC ids.
    pub extended_interrupt_mode: bool,
    /// Page of the table.
    #[bits(52)]
    pub page: u64,
}

/// Bytes of one fault record.
pub const FAULT_RECORD_SIZE: u32 = 16;
/// A fault record's halves, behind its own offset: each a part of a [`FaultRecord`].
pub const FAULT_RECORD: Registers<u64, ReadOnly> = Registers::at(0, 2);
/// The last 32 bits of a fault record, behind its own offset: a write of F clears the record.
pub const FAULT_RECORD_CLEAR: Register<u32, OneToClear> = Register::at(12);

/// Fault recording register, 128 bits, as an interrupt fault fills it: for other faults bits 63:12 are an address.
/// Software clears a record by writing 1 to F, in the last of its four 32-bit parts.
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct FaultRecord {
    #[bits(48)]
    __: u64,
    /// FI: the interrupt index, for faults of reason 0x20 to 0x28.
    pub interrupt_index: u16,
    /// SID: the requester.
    pub source: u16,
    #[bits(13)]
    __: u16,
    /// PRIV.
    pub privileged: bool,
    /// EXE.
    pub execute: bool,
    /// PP: the PASID is valid.
    pub pasid_present: bool,
    /// FR: a [`FaultReason`].
    pub reason: u8,
    /// PV.
    #[bits(20)]
    pub pasid: u32,
    /// AT.
    #[bits(2)]
    pub address_type: u8,
    /// T1: read request.
    pub read: bool,
    /// F: the record is full. RW1C.
    pub fault: bool,
}

/// Fault reasons of interrupt remapping and posting (VT-d, "Fault Reason Encodings").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultReason(pub u8);

impl FaultReason {
    /// A reserved bit of the request is set.
    pub const REQUEST_RESERVED: Self = Self(0x20);
    /// The index lies outside the table.
    pub const INDEX: Self = Self(0x21);
    /// The entry is not present.
    pub const NOT_PRESENT: Self = Self(0x22);
    /// The table could not be read.
    pub const TABLE_ACCESS: Self = Self(0x23);
    /// A reserved bit of the entry is set.
    pub const IRTE_RESERVED: Self = Self(0x24);
    /// A request in compatibility format while such requests are blocked.
    pub const COMPATIBILITY_BLOCKED: Self = Self(0x25);
    /// The requester is not the entry's.
    pub const SOURCE: Self = Self(0x26);
    /// The posted descriptor could not be accessed.
    pub const DESCRIPTOR_ACCESS: Self = Self(0x27);
    /// A reserved bit of the posted descriptor is set.
    pub const DESCRIPTOR_RESERVED: Self = Self(0x28);
}

const _: () = {
    assert!(size_of::<Capability>() == 8);
    assert!(size_of::<FaultRecord>() == FAULT_RECORD_SIZE as usize);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_bits() {
        assert!(Capability::from_bits(1 << 59).posted_interrupts());
        assert!(Capability::from_bits(1 << 62).table_pointer_invalidates());
        assert_eq!(Capability::from_bits(0x22 << 24).fault_record_offset_16_bytes() * 16, 0x220);
        assert_eq!(Capability::from_bits(7 << 40).fault_records_less_one(), 7);
        assert_eq!(Capability::from_bits(0x2f << 16).guest_address_width_less_one(), 47);
        assert_eq!(Capability::from_bits(0x12 << 48).address_mask_max(), 0x12);
        let extended = ExtendedCapability::from_bits(0x00f0_001a);
        assert!(extended.queued_invalidation() && extended.interrupt_remapping());
        assert!(extended.extended_interrupt_mode() && !extended.coherent());
        assert_eq!(extended.handle_mask_max(), 15);
    }

    #[test]
    fn command_and_status_bits() {
        assert_eq!(GlobalCommand::new().with_interrupt_remapping(true).into_bits(), 1 << 25);
        assert_eq!(GlobalCommand::new().with_set_interrupt_table(true).into_bits(), 1 << 24);
        assert_eq!(GlobalCommand::new().with_queued_invalidation(true).into_bits(), 1 << 26);
        assert_eq!(GlobalCommand::new().with_compatibility_format(true).into_bits(), 1 << 23);
        assert_eq!(GlobalStatus::new().with_translation(true).into_bits(), 1 << 31);
        assert_eq!(FaultStatus::from_bits(0x0372).record_index(), 3);
        let errors = FaultStatus::from_bits(0x72);
        assert!(errors.queue_error() && errors.completion_error() && errors.time_out_error() && errors.pending());
        assert_eq!(EventControl::new().with_masked(true).into_bits(), 0x8000_0000);
    }

    #[test]
    fn addresses() {
        let table = TableAddress::new().with_size(0xf).with_extended_interrupt_mode(true).with_page(0x1234);
        assert_eq!(table.into_bits(), 0x0123_480f);
        assert_eq!(QueueAddress::new().with_size(1).with_page(0x77).into_bits(), 0x7_7001);
        assert_eq!(QueuePointer::new().with_index(3).into_bits(), 0x30);
        assert_eq!(QueueError::from_bits(0x3a00_0000_0004).time_out_source(), 0x3a00);
    }

    #[test]
    fn fault_record_of_a_wrong_requester() {
        let record = FaultRecord::from_bits(0x8000_0026_0000_3a08_0017_0000_0000_0000);
        assert!(record.fault());
        assert_eq!(FaultReason(record.reason()), FaultReason::SOURCE);
        assert_eq!(record.source(), 0x3a08);
        assert_eq!(record.interrupt_index(), 0x17);
    }
}

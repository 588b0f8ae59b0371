//! Submission queue entries: the common layout (Base 3.3.3.1) and the dwords of the commands that we use.

use bitfield_struct::bitfield;

/// A submission queue entry, 64 bytes (Base 3.3.3.1, common command format).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Command {
    /// Opcode, fused operation, PSDT and command id.
    pub cdw0: Cdw0,
    /// The namespace.
    pub nsid: u32,
    /// Command specific.
    pub cdw2: u32,
    /// Command specific.
    pub cdw3: u32,
    /// MPTR, metadata pointer.
    pub mptr: u64,
    /// PRP Entry 1.
    pub prp1: u64,
    /// PRP Entry 2: the second page, or the list of the further ones (Base 4.1.1).
    pub prp2: u64,
    /// Command specific dwords 10 to 15.
    pub cdw10: u32,
    /// Dword 11.
    pub cdw11: u32,
    /// Dword 12.
    pub cdw12: u32,
    /// Dword 13.
    pub cdw13: u32,
    /// Dword 14.
    pub cdw14: u32,
    /// Dword 15.
    pub cdw15: u32,
}
const _: () = assert!(size_of::<Command>() == super::SQE_BYTES);
const _: () = assert!(core::mem::offset_of!(Command, mptr) == 16);
const _: () = assert!(core::mem::offset_of!(Command, prp1) == 24);
const _: () = assert!(core::mem::offset_of!(Command, prp2) == 32);
const _: () = assert!(core::mem::offset_of!(Command, cdw10) == 40);

const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Command {
    /// The entry as the eight little-endian 64-bit words that lie in the queue.
    pub const fn to_words(self) -> [u64; 8] {
        [
            join(self.cdw0.into_bits(), self.nsid),
            join(self.cdw2, self.cdw3),
            self.mptr,
            self.prp1,
            self.prp2,
            join(self.cdw10, self.cdw11),
            join(self.cdw12, self.cdw13),
            join(self.cdw14, self.cdw15),
        ]
    }

    /// The entry that lies in the queue as `words`.
    pub const fn from_words(words: [u64; 8]) -> Self {
        Self {
            cdw0: Cdw0::from_bits(low(words[0])),
            nsid: high(words[0]),
            cdw2: low(words[1]),
            cdw3: high(words[1]),
            mptr: words[2],
            prp1: words[3],
            prp2: words[4],
            cdw10: low(words[5]),
            cdw11: high(words[5]),
            cdw12: low(words[6]),
            cdw13: high(words[6]),
            cdw14: low(words[7]),
            cdw15: high(words[7]),
        }
    }

    /// The starting LBA of a read or write: dwords 10 and 11 (NVM 3.2.4, 3.2.6).
    pub const fn slba(&self) -> u64 {
        join(self.cdw10, self.cdw11)
    }

    /// The entry with its starting LBA in dwords 10 and 11.
    #[must_use]
    pub const fn with_slba(mut self, slba: u64) -> Self {
        self.cdw10 = low(slba);
        self.cdw11 = high(slba);
        self
    }
}

/// Command dword 0 (Base 3.3.3.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cdw0 {
    /// OPC: an [`AdminOpcode`] or an [`IoOpcode`], by the queue.
    pub opcode: u8,
    /// FUSE: 00b is a normal command.
    #[bits(2)]
    pub fuse: u8,
    #[bits(4)]
    __: u8,
    /// PSDT: 00b means that PRPs are used.
    #[bits(2)]
    pub psdt: u8,
    /// CID: unique among the commands in flight on its submission queue.
    pub cid: u16,
}
const _: () = assert!(size_of::<Cdw0>() == 4);

/// Opcodes of the admin queue (Base 5, "Admin Command Set").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdminOpcode(pub u8);

impl AdminOpcode {
    /// Delete I/O Submission Queue (Base 5.7).
    pub const DELETE_IO_SQ: Self = Self(0x00);
    /// Create I/O Submission Queue (Base 5.5).
    pub const CREATE_IO_SQ: Self = Self(0x01);
    /// Get Log Page (Base 5.16).
    pub const GET_LOG_PAGE: Self = Self(0x02);
    /// Delete I/O Completion Queue (Base 5.6).
    pub const DELETE_IO_CQ: Self = Self(0x04);
    /// Create I/O Completion Queue (Base 5.4).
    pub const CREATE_IO_CQ: Self = Self(0x05);
    /// Identify (Base 5.17).
    pub const IDENTIFY: Self = Self(0x06);
    /// Abort (Base 5.1).
    pub const ABORT: Self = Self(0x08);
    /// Set Features (Base 5.27).
    pub const SET_FEATURES: Self = Self(0x09);
    /// Get Features (Base 5.15).
    pub const GET_FEATURES: Self = Self(0x0a);
    /// Asynchronous Event Request (Base 5.2).
    pub const ASYNC_EVENT_REQUEST: Self = Self(0x0c);
}

/// Opcodes of an I/O queue with the NVM command set (NVM 3.2; Flush is Base 7.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IoOpcode(pub u8);

impl IoOpcode {
    /// Flush: data transfer none.
    pub const FLUSH: Self = Self(0x00);
    /// Write: host to controller.
    pub const WRITE: Self = Self(0x01);
    /// Read: controller to host.
    pub const READ: Self = Self(0x02);
    /// Dataset Management (NVM 3.2.3): host to controller, a list of [`DatasetRange`].
    pub const DATASET_MANAGEMENT: Self = Self(0x09);
}

/// Dword 10 of the commands that create (Base 5.4, 5.5) and delete (Base 5.6, 5.7) queues.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QueueDw10 {
    /// QID.
    pub qid: u16,
    /// QSIZE: entries, 0's based; reserved when deleting.
    pub qsize: u16,
}
const _: () = assert!(size_of::<QueueDw10>() == 4);

/// Dword 11 of Create I/O Completion Queue (Base 5.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateCqDw11 {
    /// PC: physically contiguous.
    pub pc: bool,
    /// IEN: interrupts enabled.
    pub ien: bool,
    #[bits(14)]
    __: u16,
    /// IV: interrupt vector, the MSI-X table index.
    pub iv: u16,
}
const _: () = assert!(size_of::<CreateCqDw11>() == 4);

/// Dword 11 of Create I/O Submission Queue (Base 5.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateSqDw11 {
    /// PC: physically contiguous.
    pub pc: bool,
    /// QPRIO: priority class, 00b urgent; only with weighted round robin.
    #[bits(2)]
    pub qprio: u8,
    #[bits(13)]
    __: u16,
    /// CQID: the completion queue, which exists already.
    pub cqid: u16,
}
const _: () = assert!(size_of::<CreateSqDw11>() == 4);

/// Dword 10 of Abort (Base 5.1). Bit 0 of the completion's dword 0 is 1 when the command was not aborted.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AbortDw10 {
    /// SQID of the command.
    pub sqid: u16,
    /// CID of the command.
    pub cid: u16,
}
const _: () = assert!(size_of::<AbortDw10>() == 4);

/// Dword 10 of Identify (Base 5.17).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IdentifyDw10 {
    /// CNS: which structure, see [`super::identify`].
    pub cns: u8,
    #[bits(8)]
    __: u8,
    /// CNTID.
    pub cntid: u16,
}
const _: () = assert!(size_of::<IdentifyDw10>() == 4);

/// Dword 10 of Get Features (Base 5.15) and Set Features (Base 5.27).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FeatureDw10 {
    /// FID: a [`FeatureId`].
    pub fid: u8,
    /// SEL: a [`FeatureSelect`]; Get Features only, reserved in Set Features.
    #[bits(3)]
    pub sel: u8,
    #[bits(20)]
    __: u32,
    /// SV: save; Set Features only, reserved in Get Features.
    pub sv: bool,
}
const _: () = assert!(size_of::<FeatureDw10>() == 4);

/// Which feature (Base 5.27.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FeatureId(pub u8);

impl FeatureId {
    /// Volatile Write Cache (Base 5.27.1.4): bit 0 of dword 11, WCE, enables it.
    pub const VOLATILE_WRITE_CACHE: Self = Self(0x06);
    /// Number of Queues (Base 5.27.1.5).
    pub const NUMBER_OF_QUEUES: Self = Self(0x07);
    /// Interrupt Coalescing (Base 5.27.1.6).
    pub const INTERRUPT_COALESCING: Self = Self(0x08);
    /// Interrupt Vector Configuration (Base 5.27.1.7).
    pub const INTERRUPT_VECTOR_CONFIGURATION: Self = Self(0x09);
}

/// Which value of a feature Get Features returns (Base 5.15).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeatureSelect(pub u8);

impl FeatureSelect {
    /// The value in force.
    pub const CURRENT: Self = Self(0);
    /// The value after a reset when none is saved.
    pub const DEFAULT: Self = Self(1);
}

/// Number of Queues: dword 11 of Set Features asks, dword 0 of the completion grants (Base 5.27.1.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NumberOfQueues {
    /// NSQR, NSQA: I/O submission queues, 0's based; FFFFh is invalid.
    pub nsq: u16,
    /// NCQR, NCQA: I/O completion queues, 0's based; FFFFh is invalid.
    pub ncq: u16,
}
const _: () = assert!(size_of::<NumberOfQueues>() == 4);

/// Interrupt Coalescing: dword 11 of Set Features, dword 0 of Get Features' completion (Base 5.27.1.6).
/// Not for the admin completion queue. Advisory, over all I/O completion queues of the controller.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// THR: entries aggregated before an interrupt, 0's based.
    pub thr: u8,
    /// TIME: the longest delay, in 100 µs units; 0 is no delay.
    pub time: u8,
    #[bits(16)]
    __: u16,
}
const _: () = assert!(size_of::<InterruptCoalescing>() == 4);

/// Interrupt Vector Configuration: dword 11 (Base 5.27.1.7).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptVector {
    /// IV: the vector.
    pub iv: u16,
    /// CD: coalescing disabled for it.
    pub cd: bool,
    #[bits(15)]
    __: u16,
}
const _: () = assert!(size_of::<InterruptVector>() == 4);

/// Dword 12 of Read and Write (NVM 3.2.4, 3.2.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReadWriteDw12 {
    /// NLB: logical blocks, 0's based.
    pub nlb: u16,
    #[bits(4)]
    __: u8,
    /// DTYPE: directive, Write only.
    #[bits(4)]
    pub dtype: u8,
    /// STC: storage tag check.
    pub stc: bool,
    #[bits(1)]
    __: u8,
    /// PRINFO: protection information.
    #[bits(4)]
    pub prinfo: u8,
    /// FUA: force unit access.
    pub fua: bool,
    /// LR: limited retry.
    pub lr: bool,
}
const _: () = assert!(size_of::<ReadWriteDw12>() == 4);

/// Dword 10 of Dataset Management (NVM 3.2.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct DatasetDw10 {
    /// NR: ranges, 0's based.
    pub nr: u8,
    #[bits(24)]
    __: u32,
}
const _: () = assert!(size_of::<DatasetDw10>() == 4);

/// Dword 11 of Dataset Management (NVM 3.2.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct DatasetDw11 {
    /// IDR: integral dataset for read.
    pub idr: bool,
    /// IDW: integral dataset for write.
    pub idw: bool,
    /// AD: deallocate the ranges.
    pub ad: bool,
    #[bits(29)]
    __: u32,
}
const _: () = assert!(size_of::<DatasetDw11>() == 4);

/// One range of Dataset Management, 16 bytes (NVM 3.2.3, "Range Definition").
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatasetRange {
    /// Context attributes; hints.
    pub attributes: u32,
    /// Length in logical blocks; not 0's based.
    pub blocks: u32,
    /// The first logical block.
    pub slba: u64,
}
const _: () = assert!(size_of::<DatasetRange>() == 16);

impl DatasetRange {
    /// The range as the two little-endian 64-bit words that lie in memory.
    pub const fn to_words(self) -> [u64; 2] {
        [join(self.attributes, self.blocks), self.slba]
    }

    /// The range that lies in memory as `words`.
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self { attributes: low(words[0]), blocks: high(words[0]), slba: words[1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_lies_in_the_queue_as_the_manual_says() {
        let command = Command {
            cdw0: Cdw0::new().with_opcode(IoOpcode::READ.0).with_cid(0x1234),
            nsid: 1,
            prp1: 0x1111_2222_3333_4000,
            prp2: 0x5555_6666_7777_8000,
            cdw12: ReadWriteDw12::new().with_nlb(7).with_fua(true).into_bits(),
            ..Command::default()
        }
        .with_slba(0x0000_00ab_cdef_0123);
        let words = [
            0x0000_0001_1234_0002,
            0,
            0,
            0x1111_2222_3333_4000,
            0x5555_6666_7777_8000,
            0x0000_00ab_cdef_0123,
            0x0000_0000_4000_0007,
            0,
        ];
        assert_eq!(command.to_words(), words);
        assert_eq!(Command::from_words(words), command);
        assert_eq!(command.slba(), 0xab_cdef_0123);
    }

    #[test]
    fn every_word_survives_the_way_back() {
        let words = [0x0102_0304_0506_c308, 0x11, 0x22, 0x33, 0x44, 0x5555_0000_0055, 0x6600_0000_0066, 0x77_0000_0077];
        let command = Command::from_words(words);
        assert_eq!((command.cdw0.fuse(), command.cdw0.psdt(), command.cdw0.cid()), (3, 3, 0x0506));
        assert_eq!(command.to_words(), words);
    }

    #[test]
    fn queue_creation_dwords() {
        assert_eq!(QueueDw10::new().with_qid(3).with_qsize(1023).into_bits(), 0x03ff_0003);
        assert_eq!(CreateCqDw11::new().with_pc(true).with_ien(true).with_iv(9).into_bits(), 0x0009_0003);
        assert_eq!(CreateSqDw11::new().with_pc(true).with_qprio(2).with_cqid(3).into_bits(), 0x0003_0005);
        assert_eq!(AbortDw10::new().with_sqid(3).with_cid(0x77).into_bits(), 0x0077_0003);
    }

    #[test]
    fn a_range_to_deallocate_lies_in_memory_as_the_manual_says() {
        let range = DatasetRange { attributes: 0, blocks: 8, slba: 0x12_3456_7890 };
        assert_eq!(range.to_words(), [0x0000_0008_0000_0000, 0x0000_0012_3456_7890]);
        assert_eq!(DatasetRange::from_words(range.to_words()), range);
        assert_eq!(DatasetDw10::new().with_nr(255).into_bits(), 0xff);
        assert_eq!(DatasetDw11::new().with_ad(true).into_bits(), 4);
    }

    #[test]
    fn feature_dwords() {
        assert_eq!(
            FeatureDw10::new().with_fid(FeatureId::INTERRUPT_COALESCING.0).with_sv(true).into_bits(),
            0x8000_0008
        );
        assert_eq!(FeatureDw10::new().with_fid(9).with_sel(FeatureSelect::DEFAULT.0).into_bits(), 0x0000_0109);
        assert_eq!(InterruptCoalescing::new().with_thr(7).with_time(2).into_bits(), 0x0000_0207);
        assert_eq!(InterruptVector::new().with_iv(5).with_cd(true).into_bits(), 0x0001_0005);
        assert_eq!(NumberOfQueues::new().with_nsq(31).with_ncq(15).into_bits(), 0x000f_001f);
        assert_eq!(IdentifyDw10::new().with_cns(1).into_bits(), 1);
    }
}

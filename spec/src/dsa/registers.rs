//! Registers in BAR 0 (DSA, "Register Descriptions").

use crate::register::{OneToClear, ReadOnly, ReadWrite, Register, Registers, WriteOnly};
use bitfield_struct::bitfield;

/// Version: major in 15:8, minor in 7:0 (DSA, "VERSION").
pub const VERSION: Register<u32, ReadOnly> = Register::at(0x00);
/// General capabilities (DSA, "GENCAP").
pub const GENCAP: Register<u64, ReadOnly> = Register::at(0x10);
/// Work queue capabilities (DSA, "WQCAP").
pub const WQCAP: Register<u64, ReadOnly> = Register::at(0x20);
/// Group capabilities (DSA, "GRPCAP").
pub const GRPCAP: Register<u64, ReadOnly> = Register::at(0x30);
/// Engine capabilities (DSA, "ENGCAP").
pub const ENGCAP: Register<u64, ReadOnly> = Register::at(0x38);
/// Operation capabilities, 256 bits, one for each opcode (DSA, "OPCAP").
pub const OPCAP: Registers<u64, ReadOnly> = Registers::at(0x40, 4);
/// Offsets of the tables, 128 bits (DSA, "Table Offsets").
pub const OFFSETS: Registers<u64, ReadOnly> = Registers::at(0x60, 2);
/// General configuration (DSA, "GENCFG").
pub const GENCFG: Register<u32, ReadWrite> = Register::at(0x80);
/// General control (DSA, "GENCTRL").
pub const GENCTRL: Register<u32, ReadWrite> = Register::at(0x88);
/// General status (DSA, "GENSTS").
pub const GENSTS: Register<u32, ReadOnly> = Register::at(0x90);
/// Interrupt cause (DSA, "INTCAUSE").
pub const INTCAUSE: Register<u32, OneToClear> = Register::at(0x98);
/// Command (DSA, "CMD").
pub const CMD: Register<u32, WriteOnly> = Register::at(0xa0);
/// Command status (DSA, "CMDSTATUS").
pub const CMDSTATUS: Register<u32, ReadOnly> = Register::at(0xa8);
/// Command capabilities, one bit for each command; 0 in version 1 devices without GENCAP bit 4 (DSA, "CMDCAP").
pub const CMDCAP: Register<u32, ReadOnly> = Register::at(0xb0);
/// Software error, 256 bits (DSA, "SWERROR").
pub const SWERROR: Registers<u64, ReadOnly> = Registers::at(0xc0, 4);
/// First 32 bits of the software error. Writing 1 clears valid and overflow.
pub const SWERROR_CLEAR: Register<u32, OneToClear> = Register::at(0xc0);
/// The value of VERSION for version 1.0.
pub const VERSION_1: u32 = 0x100;
/// Offsets in [`Offsets`] count in these many bytes.
pub const TABLE_UNIT_BYTES: u32 = 0x100;

/// General capabilities (DSA, "GENCAP").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct GenCap {
    /// Block on fault.
    pub block_on_fault: bool,
    /// Overlapping copy.
    pub overlapping_copy: bool,
    /// Cache control, memory.
    pub cache_control_memory: bool,
    /// Cache control, cache flush.
    pub cache_control_flush: bool,
    /// The CMDCAP register exists.
    pub command_capabilities: bool,
    #[bits(3)]
    __: u8,
    /// Destination readback.
    pub destination_readback: bool,
    /// Drain descriptor readback.
    pub drain_readback: bool,
    #[bits(6)]
    __: u8,
    /// A transfer has at most `2^n` bytes.
    #[bits(5)]
    pub transfer_shift_max: u8,
    /// A batch has at most `2^n` descriptors.
    #[bits(4)]
    pub batch_shift_max: u8,
    /// Interrupt message storage, in units of 256 entries.
    #[bits(6)]
    pub message_storage: u8,
    /// The tables may be written.
    pub configurable: bool,
    /// Descriptors that an engine works on at once.
    pub descriptors_per_engine: u8,
    #[bits(24)]
    __: u32,
}
const _: () = assert!(size_of::<GenCap>() == 8);

/// Work queue capabilities (DSA, "WQCAP").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct WqCap {
    /// Entries of all queues together.
    pub total_size: u16,
    /// Queues.
    pub queues: u8,
    /// An entry of the WQCFG table has `32 << n` bytes.
    #[bits(4)]
    pub config_shift: u8,
    #[bits(20)]
    __: u32,
    /// Shared queues.
    pub shared: bool,
    /// Dedicated queues.
    pub dedicated: bool,
    /// Address translation may be turned off for a queue.
    pub ats_control: bool,
    /// Priorities.
    pub priority: bool,
    /// WQCFG shows the occupancy.
    pub occupancy: bool,
    /// Interrupts on occupancy.
    pub occupancy_interrupt: bool,
    #[bits(10)]
    __: u16,
}
const _: () = assert!(size_of::<WqCap>() == 8);

/// Group capabilities (DSA, "GRPCAP").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct GrpCap {
    /// Groups.
    pub groups: u8,
    /// Read buffers of all groups together.
    pub read_buffers: u8,
    /// Read buffers can be reserved.
    pub read_buffer_control: bool,
    /// Read buffers can be limited.
    pub read_buffer_limit: bool,
    #[bits(46)]
    __: u64,
}
const _: () = assert!(size_of::<GrpCap>() == 8);

/// Engine capabilities (DSA, "ENGCAP").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct EngCap {
    /// Engines.
    pub engines: u8,
    #[bits(56)]
    __: u64,
}
const _: () = assert!(size_of::<EngCap>() == 8);

/// First half of the table offsets, each in units of [`TABLE_UNIT_BYTES`] (DSA, "Table Offsets").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Offsets {
    /// Group configuration table.
    pub grpcfg: u16,
    /// Work queue configuration table.
    pub wqcfg: u16,
    /// MSI-X permissions table.
    pub msix_permissions: u16,
    /// Interrupt message storage; 0 when there is none.
    pub message_storage: u16,
}
const _: () = assert!(size_of::<Offsets>() == 8);

/// General control (DSA, "GENCTRL").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GenCtrl {
    /// An error in SWERROR interrupts.
    pub software_error_interrupt: bool,
    /// A halt interrupts.
    pub halt_interrupt: bool,
    #[bits(30)]
    __: u32,
}
const _: () = assert!(size_of::<GenCtrl>() == 4);

/// General status (DSA, "GENSTS").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GenSts {
    /// [`DeviceState`].
    #[bits(2)]
    pub state: u8,
    /// The reset that a halted device needs: 0 software reset, 1 FLR, 2 warm, 3 cold reset.
    #[bits(2)]
    pub reset_type: u8,
    #[bits(28)]
    __: u32,
}
const _: () = assert!(size_of::<GenSts>() == 4);

/// State of the device (DSA, "GENSTS").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceState(pub u8);

impl DeviceState {
    /// Disabled: accepts no descriptors, may be configured.
    pub const DISABLED: Self = Self(0);
    /// Enabled.
    pub const ENABLED: Self = Self(1);
    /// Draining: the device finishes its work, then is disabled.
    pub const DRAIN: Self = Self(2);
    /// Halted after a failure: needs the reset that GENSTS names.
    pub const HALT: Self = Self(3);
}

/// Interrupt cause (DSA, "INTCAUSE").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IntCause {
    /// An error was recorded in SWERROR.
    pub software_error: bool,
    /// A command has completed.
    pub command: bool,
    /// A queue's occupancy fell below its limit.
    pub occupancy: bool,
    /// A performance counter overflowed.
    pub performance: bool,
    /// The device has halted.
    pub halt: bool,
    #[bits(27)]
    __: u32,
}
const _: () = assert!(size_of::<IntCause>() == 4);

/// Command (DSA, "CMD").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cmd {
    /// Its operand: for [`Command::ENABLE_WQ`] a queue's number, for other queue commands a [`QueueMask`].
    #[bits(20)]
    pub operand: u32,
    /// [`Command`].
    #[bits(5)]
    pub command: u8,
    #[bits(6)]
    __: u8,
    /// Interrupt on completion, through MSI-X entry 0.
    pub interrupt: bool,
}
const _: () = assert!(size_of::<Cmd>() == 4);

/// The operand of Disable, Drain, Abort and Reset WQ: a set of queues in one group of sixteen (DSA, "CMD").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QueueMask {
    /// Bit i: queue `16 × group + i`.
    pub queues: u16,
    /// The group of sixteen queues.
    #[bits(4)]
    pub group: u8,
    #[bits(12)]
    __: u16,
}
const _: () = assert!(size_of::<QueueMask>() == 4);

/// A command's code (DSA, "CMD").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command(pub u8);

impl Command {
    /// Enable Device.
    pub const ENABLE_DEVICE: Self = Self(1);
    /// Disable Device, after all work in progress.
    pub const DISABLE_DEVICE: Self = Self(2);
    /// Drain All.
    pub const DRAIN_ALL: Self = Self(3);
    /// Abort All.
    pub const ABORT_ALL: Self = Self(4);
    /// Reset Device: aborts all work, disables the device, and clears its configuration.
    pub const RESET_DEVICE: Self = Self(5);
    /// Enable WQ.
    pub const ENABLE_WQ: Self = Self(6);
    /// Disable WQ, after the queue's work in progress.
    pub const DISABLE_WQ: Self = Self(7);
    /// Drain WQ.
    pub const DRAIN_WQ: Self = Self(8);
    /// Abort WQ.
    pub const ABORT_WQ: Self = Self(9);
    /// Reset WQ: aborts the queue's work, disables the queue, and clears its configuration.
    pub const RESET_WQ: Self = Self(10);
}

/// Command status (DSA, "CMDSTATUS").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CmdStatus {
    /// [`CommandError`]; 0 when it succeeded.
    pub error: u8,
    /// The result of the command.
    pub result: u16,
    #[bits(7)]
    __: u8,
    /// The command is in progress.
    pub active: bool,
}
const _: () = assert!(size_of::<CmdStatus>() == 4);

/// Why a command failed (DSA, "CMDSTATUS").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandError(pub u8);

impl CommandError {
    /// None.
    pub const NONE: Self = Self(0x00);
    /// No such command.
    pub const INVALID_COMMAND: Self = Self(0x01);
    /// No such queue.
    pub const INVALID_QUEUE: Self = Self(0x02);
    /// An error of the hardware itself.
    pub const HARDWARE: Self = Self(0x03);
    /// Enable Device: the device is already enabled.
    pub const DEVICE_ENABLED: Self = Self(0x10);
    /// Enable Device: the queues' sizes exceed WQCAP.
    pub const TOTAL_SIZE: Self = Self(0x14);
    /// Enable Device: the groups are wrong. There are four such codes, 15h to 18h; this is the first.
    pub const GROUPS: Self = Self(0x15);
    /// Enable WQ: the device is not enabled.
    pub const DEVICE_NOT_ENABLED: Self = Self(0x20);
    /// Enable WQ: the queue is already enabled.
    pub const QUEUE_ENABLED: Self = Self(0x21);
    /// Enable WQ: a size of zero.
    pub const QUEUE_SIZE: Self = Self(0x22);
    /// Enable WQ: a priority of zero.
    pub const PRIORITY: Self = Self(0x23);
    /// Enable WQ: a mode that WQCAP lacks.
    pub const MODE: Self = Self(0x24);
    /// Enable WQ: block on fault, which GENCAP lacks.
    pub const BLOCK_ON_FAULT: Self = Self(0x25);
    /// Enable WQ: PASID enabled although the function has none.
    pub const PASID: Self = Self(0x26);
    /// Enable WQ: batches longer than GENCAP allows.
    pub const BATCH_SIZE: Self = Self(0x27);
    /// Enable WQ: transfers longer than GENCAP allows.
    pub const TRANSFER_SIZE: Self = Self(0x28);
    /// Disable Device: the device is not enabled.
    pub const DISABLE_NOT_ENABLED: Self = Self(0x31);
    /// A queue command other than Enable: the queue or the device is not enabled.
    pub const QUEUE_NOT_ENABLED: Self = Self(0x32);
}

/// First quadword of the software error register (DSA, "SWERROR").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct SwError {
    /// An error is recorded. Write 1 to clear.
    pub valid: bool,
    /// Overflow: later errors were not recorded. Write 1 to clear.
    pub overflow: bool,
    /// The fields of the descriptor are valid.
    pub descriptor_valid: bool,
    /// The queue is valid.
    pub queue_valid: bool,
    /// The descriptor was in a batch.
    pub batch: bool,
    /// The faulting access was a write.
    pub write: bool,
    /// The descriptor was privileged.
    pub privileged: bool,
    __: bool,
    /// [`super::CompletionStatus`] or [`SwErrorCode`].
    pub error: u8,
    /// The queue.
    pub queue: u8,
    __: u8,
    /// [`super::Opcode`].
    pub opcode: u8,
    /// PASID.
    #[bits(20)]
    pub pasid: u32,
    #[bits(4)]
    __: u8,
}
const _: () = assert!(size_of::<SwError>() == 8);

/// Errors of submission, for which no completion record can be written. Other values of [`SwError::error`] are those of
/// completion records.
///
/// These numbers could not be checked against a second source. Treat them as this library's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwErrorCode(pub u8);

impl SwErrorCode {
    /// A descriptor to a queue that is not enabled.
    pub const QUEUE_NOT_ENABLED: Self = Self(0x51);
    /// A descriptor to a dedicated queue that is full.
    pub const QUEUE_FULL: Self = Self(0x52);
    /// A descriptor to a portal that the device lacks.
    pub const PORTAL: Self = Self(0x53);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        assert!(GenCap::from_bits(0x8000_0000).configurable());
        assert_eq!(GenCap::new().with_transfer_shift_max(0x1f).into_bits(), 0x001f_0000);
        assert_eq!(GenCap::new().with_descriptors_per_engine(0x40).into_bits(), 0x40_0000_0000);
        assert_eq!(WqCap::new().with_total_size(128).with_queues(8).into_bits(), 0x08_0080);
        assert_eq!(WqCap::new().with_dedicated(true).into_bits(), 1 << 49);
        assert_eq!(Cmd::new().with_command(6).with_operand(3).into_bits(), 0x0060_0003);
        assert_eq!(Cmd::new().with_interrupt(true).into_bits(), 0x8000_0000);
        assert_eq!(QueueMask::new().with_queues(2).with_group(1).into_bits(), 0x1_0002);
        assert_eq!(CmdStatus::from_bits(0x8000_0122).error(), 0x22);
        assert_eq!(CmdStatus::from_bits(0x8000_0122).result(), 1);
        assert!(CmdStatus::from_bits(0x8000_0000).active());
        let error = SwError::from_bits(0x0004_0003_130d);
        assert_eq!((error.error(), error.queue(), error.opcode()), (0x13, 3, 4));
        assert!(error.valid() && error.descriptor_valid() && error.queue_valid() && !error.overflow());
    }
}

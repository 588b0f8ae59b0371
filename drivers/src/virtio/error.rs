//! What can go wrong, by whose fault: the device's at bring-up, the device's in a ring, or the caller's.

use core::fmt;
use hal::DmaError;
use spec::virtio::DeviceId;
use spec::virtio::feature::Features;

/// Why a device cannot be driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VirtioError {
    /// No memory for rings.
    Dma(DmaError),
    /// MagicValue reads this.
    Magic(u32),
    /// Version reads this; 2 is driven.
    Version(u32),
    /// A device of this kind; the second was expected.
    Device(DeviceId, DeviceId),
    /// The device does not offer these features, without which it is not driven.
    Lacks(Features),
    /// It did not take the features that the driver chose among its own.
    FeaturesRefused(Features),
    /// The status did not read 0 within this many nanoseconds after a reset.
    ResetTimeout(u64),
    /// The queue did not end its reset within this many nanoseconds.
    QueueResetTimeout(u16, u64),
    /// There is no such queue.
    NoQueue(u16),
    /// The queue did not start.
    QueueNotReady(u16),
    /// The queue is ready before the driver has started it.
    QueueInUse(u16),
    /// The device gives no vector to this queue (`None`: to the configuration).
    NoVector(Option<u16>),
    /// The named field of the configuration has this value, which the standard rules out.
    Config(&'static str, u64),
    /// The configuration did not stand still for so many reads.
    ConfigUnstable(u32),
    /// A PCI capability is missing, or points outside its region: its cfg_type.
    Capability(u8),
    /// The device's list of PCI capabilities does not end.
    CapabilityLoop,
    /// A queue of the driver's was asked for with this many entries; the second is the most that is valid.
    Entries(u16, u16),
    /// The device refused a control command: class and command.
    Refused(u8, u8),
    /// A control command was not answered within this many nanoseconds; the control queue is given up.
    ControlTimeout(u64),
    /// The control queue is missing, busy or given up.
    NoControl,
    /// A ring was broken by its device.
    Queue(QueueFault),
    /// The call needs this feature, which was not negotiated.
    NotNegotiated(&'static str),
    /// The named value is this; the second is the most that is valid.
    TooMany(&'static str, u64, u64),
    /// Another call resets the device or one of its queues. Try again when it is over.
    Busy,
    /// The device was shut down.
    ShutDown,
}

impl fmt::Display for VirtioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Dma(error) => error.fmt(f),
            Self::Magic(word) => write!(f, "MagicValue reads {word:#x}; a virtio device says 0x74726976"),
            Self::Version(version) => write!(f, "version {version} of the registers; 2 is driven"),
            Self::Device(found, expected) => write!(f, "a device of kind {}; {} was expected", found.0, expected.0),
            Self::Lacks(features) => write!(f, "the device lacks features {:#x}", features.0),
            Self::FeaturesRefused(features) => write!(f, "the device does not work with features {:#x}", features.0),
            Self::ResetTimeout(ns) => write!(f, "the device did not end its reset within {ns} ns"),
            Self::QueueResetTimeout(queue, ns) => write!(f, "queue {queue} did not end its reset within {ns} ns"),
            Self::NoQueue(queue) => write!(f, "the device has no queue {queue}"),
            Self::QueueNotReady(queue) => write!(f, "queue {queue} did not become ready"),
            Self::QueueInUse(queue) => write!(f, "queue {queue} is in use before it was started"),
            Self::NoVector(Some(queue)) => write!(f, "the device has no vector for queue {queue}"),
            Self::NoVector(None) => write!(f, "the device has no vector for its configuration"),
            Self::Config(field, value) => write!(f, "configuration field {field} reads {value}, which is not valid"),
            Self::ConfigUnstable(reads) => write!(f, "the configuration changed during each of {reads} reads"),
            Self::Capability(kind) => write!(f, "the virtio capability of type {kind} is missing or points nowhere"),
            Self::CapabilityLoop => write!(f, "the list of PCI capabilities does not end"),
            Self::Entries(entries, most) => {
                write!(f, "a queue of {entries} entries; 2 to {most}, a power of 2, are valid")
            }
            Self::Refused(class, command) => write!(f, "the device refused command {command} of class {class}"),
            Self::ControlTimeout(ns) => write!(f, "a control command was not answered within {ns} ns"),
            Self::NoControl => write!(f, "the control queue is missing, busy, or was given up"),
            Self::Queue(fault) => fault.fmt(f),
            Self::NotNegotiated(what) => write!(f, "{what} was not negotiated"),
            Self::TooMany(what, value, most) => write!(f, "{what} is {value}; {most} at most is valid"),
            Self::Busy => write!(f, "another call resets the device or one of its queues"),
            Self::ShutDown => write!(f, "the device was shut down"),
        }
    }
}

impl core::error::Error for VirtioError {}

impl From<DmaError> for VirtioError {
    fn from(error: DmaError) -> Self {
        Self::Dma(error)
    }
}

impl From<QueueFault> for VirtioError {
    fn from(fault: QueueFault) -> Self {
        Self::Queue(fault)
    }
}

/// A violation of the standard by the device in a ring. It breaks this queue and no other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueFault {
    /// The used index went from the first to the second, with so many buffers in flight.
    UsedIndex(u16, u16, u16),
    /// A used entry names this descriptor, outside the queue of so many.
    Id(u32, u16),
    /// A used entry names this descriptor, at which no buffer in flight begins.
    NotInFlight(u16),
    /// A used entry says that so many bytes were written, into a buffer with room for the second.
    Length(u32, u32),
}

impl fmt::Display for QueueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UsedIndex(from, to, in_flight) => {
                write!(f, "the used index jumped from {from} to {to} with {in_flight} buffers in flight")
            }
            Self::Id(id, entries) => write!(f, "used descriptor {id}; 0 to {} are valid", entries - 1),
            Self::NotInFlight(id) => write!(f, "used descriptor {id} begins no buffer in flight"),
            Self::Length(bytes, most) => write!(f, "{bytes} bytes written into a buffer with room for {most}"),
        }
    }
}

impl core::error::Error for QueueFault {}

/// Why a buffer was not taken into a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Too few descriptors are free; try again when buffers have been used.
    Full,
    /// The queue is broken or stopped.
    Stopped,
    /// So many parts; 1 to the second are valid.
    Parts(usize, usize),
    /// A part without a byte.
    Empty,
    /// A device-readable part follows a device-writable one (VIRTIO 2.7.4.2).
    Order,
    /// The request reaches past the end: first sector and sectors of the device.
    Range(u64, u64),
    /// A length of so many bytes, which is zero, too long, or no multiple of a sector.
    Length(u32),
    /// The device is read-only, or cannot do this.
    NotSupported,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => write!(f, "the queue is full"),
            Self::Stopped => write!(f, "the queue is stopped or broken"),
            Self::Parts(count, most) => write!(f, "a buffer of {count} parts; 1 to {most} are valid"),
            Self::Empty => write!(f, "a part of 0 bytes; at least 1 is needed"),
            Self::Order => write!(f, "a part to read follows one to write; all to read come first"),
            Self::Range(sector, sectors) => write!(f, "the request at sector {sector} passes the end of {sectors}"),
            Self::Length(bytes) => {
                write!(f, "{bytes} bytes; a multiple of 512 above 0 within the device's limit is valid")
            }
            Self::NotSupported => write!(f, "the device does not take requests of this kind"),
        }
    }
}

impl core::error::Error for Refusal {}

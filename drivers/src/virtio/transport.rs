//! The interface of every virtio transport (VIRTIO 4). The transport knows no device type, and the
//! device's driver no transport.

use super::VirtioError;
use hal::DeviceAddress;
use spec::virtio::feature::Features;
use spec::virtio::{DeviceId, Status};

/// Addresses of the parts of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueMemory {
    /// Entries, a power of two.
    pub entries: u16,
    /// Descriptor area: table or ring.
    pub descriptors: DeviceAddress,
    /// Driver area: available ring, or the driver's event suppression.
    pub available: DeviceAddress,
    /// Device area: used ring, or the device's event suppression.
    pub used: DeviceAddress,
}

/// Why a vector came, as far as the transport can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    /// Look at the queues of this vector.
    pub queues: bool,
    /// The configuration has changed, or may have.
    pub configuration: bool,
}

impl Cause {
    /// Not from this device.
    pub const NONE: Self = Self { queues: false, configuration: false };
}

/// The vector of the interrupt that came, as it was mapped in the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupt {
    /// The only one: everything is signalled by it.
    Single,
    /// A vector; `configuration` when that is mapped to it.
    Vector {
        /// Its number.
        vector: u16,
        /// True if configuration changes come by this vector.
        configuration: bool,
    },
}

/// A device behind its transport. Called by any thread; what takes several registers is done under a lock.
pub trait Transport: Send + Sync {
    /// The device type.
    fn device_id(&self) -> DeviceId;
    /// The features that the device offers.
    fn features(&self) -> Features;
    /// Reports the accepted features to the device.
    fn accept(&self, features: Features);
    /// Its status.
    fn status(&self) -> Status;
    /// Changes its status; all zero resets it.
    fn set_status(&self, status: Status);

    /// 8 bits of the device type's configuration.
    fn config8(&self, offset: u32) -> u8;
    /// 16 bits.
    fn config16(&self, offset: u32) -> u16;
    /// 32 bits.
    fn config32(&self, offset: u32) -> u32;
    /// Changes with the configuration.
    fn config_generation(&self) -> u32;

    /// Most entries of a queue; 0 when there is none.
    fn queue_entries_max(&self, queue: u16) -> u16;
    /// Starts a queue.
    ///
    /// # Errors
    /// [`VirtioError::QueueNotReady`]: the device has the addresses, and may use the queue until it is reset.
    /// [`VirtioError::QueueInUse`], [`VirtioError::Capability`]: it was told no address.
    fn start_queue(&self, queue: u16, memory: &QueueMemory) -> Result<(), VirtioError>;
    /// Begins the reset of one queue, with VIRTIO_F_RING_RESET.
    fn reset_queue(&self, queue: u16);
    /// True once the reset is done.
    fn queue_is_reset(&self, queue: u16) -> bool;
    /// Tells the device that a queue has new buffers. Does not wait.
    fn notify(&self, queue: u16);

    /// The feature that has to be negotiated for vectors; none where they need none.
    fn vector_feature(&self) -> Features;
    /// How many vectors device and platform both have. 1 or less: only [`Interrupt::Single`].
    fn vectors(&self) -> u16;
    /// Whether the device can still interrupt by [`Interrupt::Single`] although there are vectors.
    fn has_single(&self) -> bool;
    /// Maps the configuration to a vector or to none. Returns the mapping that the device reports.
    fn map_configuration(&self, vector: u16) -> u16;
    /// Maps a queue that is not started.
    fn map_queue(&self, queue: u16, vector: u16) -> u16;
    /// An interrupt came: acknowledges it where the transport demands that, before any ring is looked at.
    fn interrupt(&self, interrupt: Interrupt) -> Cause;
}

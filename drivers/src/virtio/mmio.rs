//! Virtio over MMIO, version 2 (VIRTIO 4.2), with several interrupts where the device offers them (MULTI_IRQ:
//! `docs/virtio-mmio-multi-irq.md`).

use super::VirtioError;
use super::transport::{Cause, Interrupt, QueueMemory, Transport};
use crate::register::Typed as _;
use hal::{DeviceAddress, Hal, Lock, Regs};
use spec::register::{ReadOnly, Register, WriteOnly};
use spec::virtio::feature::{Feature, Features};
use spec::virtio::mmio::{self, InterruptStatus};
use spec::virtio::{DeviceId, NO_VECTOR, Status};

/// When a write to the device's registers takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RegisterWrites {
    /// Some time after the access: the device is hardware behind a bus that posts writes. An acknowledgement is then read
    /// back before a used ring is looked at, which costs an access at each interrupt that has one.
    #[default]
    Posted,
    /// Before the access returns: a hypervisor emulates the registers. Nothing is read back.
    AtOnce,
}

/// The platform's description of a device, apart from its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MmioConfig {
    /// Interrupts that it lists, from vector 0 on. With 1 the device is driven as without the extension.
    pub interrupts: u16,
    /// Whether lines of level-triggered vectors are shared with other devices, so that the status has to be read.
    pub shared_lines: bool,
    /// When a register write takes effect. No description of a platform says so; the default is right for every device.
    pub writes: RegisterWrites,
}

impl Default for MmioConfig {
    fn default() -> Self {
        Self { interrupts: 1, shared_lines: false, writes: RegisterWrites::Posted }
    }
}

/// The register window of a device.
pub struct Mmio<H: Hal> {
    regs: H::Regs,
    config: MmioConfig,
    /// Vectors that are level-triggered, a bit each.
    level: u32,
    vectors: u16,
    always_acknowledges: bool,
    /// Held while a selection register stands.
    select: Lock<H, ()>,
}

impl<H: Hal> Mmio<H> {
    /// The device behind `regs`.
    ///
    /// # Errors
    /// [`VirtioError::Magic`], [`VirtioError::Version`] when there is none that this driver knows.
    pub fn new(hal: H, regs: H::Regs, config: MmioConfig) -> Result<Self, VirtioError> {
        let magic = regs.read(mmio::MAGIC);
        if magic != mmio::MAGIC_VALUE {
            return Err(VirtioError::Magic(magic));
        }
        let version = regs.read(mmio::VERSION);
        if version != mmio::VERSION_VALUE {
            return Err(VirtioError::Version(version));
        }
        let mut transport =
            Self { regs, config, level: 0, vectors: 1, always_acknowledges: false, select: Lock::new(hal, ()) };
        if transport.features().has(Feature::MULTI_IRQ) {
            let count = transport.regs.read(mmio::VECTOR_COUNT).min(mmio::VECTORS_MAX);
            // A device that offers the feature without a vector is driven by its one interrupt.
            transport.vectors = config.interrupts.min(count as u16);
            transport.level = transport.regs.read(mmio::VECTOR_LEVEL);
        }
        Ok(transport)
    }

    /// Reads and acknowledges the status at every vector too, as if a vector's interrupt did not say enough. Only for
    /// comparison: it shows what the two accesses cost.
    pub fn always_acknowledge(mut self) -> Self {
        self.always_acknowledges = true;
        self
    }

    fn is_level(&self, vector: u16) -> bool {
        u32::from(vector) < mmio::LEVEL_VECTORS && self.level >> vector & 1 != 0
    }

    fn on_queue<R>(&self, queue: u16, access: impl FnOnce(&H::Regs) -> R) -> R {
        let _selected = self.select.lock();
        self.regs.write(mmio::QUEUE_SEL, queue.into());
        access(&self.regs)
    }

    fn write_address(&self, low: Register<u32, WriteOnly>, address: DeviceAddress) {
        self.regs.write(low, address.0 as u32);
        self.regs.write(low.behind(4), (address.0 >> 32) as u32);
    }

    /// The status, acknowledged (VIRTIO 4.2.2). A change of the configuration needs no read-back, since the driver reads
    /// the configuration from the same device. Used buffers lie in memory, so theirs must have arrived before the look.
    fn acknowledge(&self) -> InterruptStatus {
        let status = InterruptStatus::from_bits(self.regs.read(mmio::INTERRUPT_STATUS));
        if status.into_bits() != 0 {
            self.regs.write(mmio::INTERRUPT_ACK, status.into_bits());
        }
        if status.used_buffer() {
            self.read_back(mmio::INTERRUPT_STATUS);
        }
        status
    }

    /// Returns when earlier writes have taken effect. Acknowledgements are write-only, so their status is read.
    fn read_back(&self, status: Register<u32, ReadOnly>) {
        if self.config.writes == RegisterWrites::Posted {
            self.regs.read(status);
        }
    }
}

impl<H: Hal> Transport for Mmio<H> {
    fn device_id(&self) -> DeviceId {
        DeviceId(self.regs.read(mmio::DEVICE_ID))
    }

    fn features(&self) -> Features {
        let _selected = self.select.lock();
        let half = |number: u32| {
            self.regs.write(mmio::DEVICE_FEATURES_SEL, number);
            u64::from(self.regs.read(mmio::DEVICE_FEATURES)) << (32 * number)
        };
        Features(half(0) | half(1))
    }

    fn accept(&self, features: Features) {
        let _selected = self.select.lock();
        for half in 0..2 {
            self.regs.write(mmio::DRIVER_FEATURES_SEL, half);
            self.regs.write(mmio::DRIVER_FEATURES, (features.0 >> (32 * half)) as u32);
        }
    }

    fn status(&self) -> Status {
        Status::from_bits(self.regs.read(mmio::STATUS) as u8)
    }

    fn set_status(&self, status: Status) {
        self.regs.write(mmio::STATUS, status.into_bits().into());
    }

    fn config8(&self, offset: u32) -> u8 {
        self.regs.read8(mmio::CONFIG + offset)
    }

    fn config16(&self, offset: u32) -> u16 {
        self.regs.read16(mmio::CONFIG + offset)
    }

    fn config32(&self, offset: u32) -> u32 {
        self.regs.read32(mmio::CONFIG + offset)
    }

    fn config_generation(&self) -> u32 {
        self.regs.read(mmio::CONFIG_GENERATION)
    }

    fn queue_entries_max(&self, queue: u16) -> u16 {
        let most = self.on_queue(queue, |regs| regs.read(mmio::QUEUE_SIZE_MAX));
        u16::try_from(most).unwrap_or(u16::MAX)
    }

    fn start_queue(&self, queue: u16, memory: &QueueMemory) -> Result<(), VirtioError> {
        self.on_queue(queue, |regs| {
            if regs.read(mmio::QUEUE_READY) != 0 {
                return Err(VirtioError::QueueInUse(queue));
            }
            regs.write(mmio::QUEUE_SIZE, memory.entries.into());
            self.write_address(mmio::QUEUE_DESC_LOW, memory.descriptors);
            self.write_address(mmio::QUEUE_DRIVER_LOW, memory.available);
            self.write_address(mmio::QUEUE_DEVICE_LOW, memory.used);
            regs.write(mmio::QUEUE_READY, 1);
            if regs.read(mmio::QUEUE_READY) == 1 { Ok(()) } else { Err(VirtioError::QueueNotReady(queue)) }
        })
    }

    fn reset_queue(&self, queue: u16) {
        self.on_queue(queue, |regs| regs.write(mmio::QUEUE_RESET, 1));
    }

    fn queue_is_reset(&self, queue: u16) -> bool {
        self.on_queue(queue, |regs| regs.read(mmio::QUEUE_RESET) == 0)
    }

    fn notify(&self, queue: u16) {
        self.regs.write(mmio::QUEUE_NOTIFY, queue.into());
    }

    fn vector_feature(&self) -> Features {
        Features::of(&[Feature::MULTI_IRQ])
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    /// Without the extension's feature the device knows no vectors (MULTI_IRQ).
    fn has_single(&self) -> bool {
        true
    }

    fn map_configuration(&self, vector: u16) -> u16 {
        self.regs.write(mmio::CONFIG_VECTOR, vector.into());
        u16::try_from(self.regs.read(mmio::CONFIG_VECTOR)).unwrap_or(NO_VECTOR)
    }

    fn map_queue(&self, queue: u16, vector: u16) -> u16 {
        let mapped = self.on_queue(queue, |regs| {
            regs.write(mmio::QUEUE_VECTOR, vector.into());
            regs.read(mmio::QUEUE_VECTOR)
        });
        u16::try_from(mapped).unwrap_or(NO_VECTOR)
    }

    /// A queue's vector costs no access at all when it is an edge (MULTI_IRQ 4.2), and one write when it is a level on a
    /// line of its own. A posted acknowledgement costs a read in addition.
    fn interrupt(&self, interrupt: Interrupt) -> Cause {
        let (vector, shares_configuration) = match interrupt {
            Interrupt::Single => {
                let status = self.acknowledge();
                return Cause { queues: status.used_buffer(), configuration: status.config_change() };
            }
            Interrupt::Vector { vector, configuration } => (vector, configuration),
        };
        if self.is_level(vector) {
            let bit = 1 << vector;
            if self.config.shared_lines && self.regs.read(mmio::VECTOR_STATUS) & bit == 0 {
                return Cause::NONE;
            }
            self.regs.write(mmio::VECTOR_ACK, bit);
            self.read_back(mmio::VECTOR_STATUS);
        }
        if self.always_acknowledges {
            let status = InterruptStatus::from_bits(self.regs.read(mmio::INTERRUPT_STATUS));
            // Another vector's handler finds a change by its bit, so the bit is left to it.
            let configuration = shares_configuration && status.config_change();
            let taken = InterruptStatus::new().with_used_buffer(true).with_config_change(configuration);
            self.regs.write(mmio::INTERRUPT_ACK, taken.into_bits());
            return Cause { queues: true, configuration };
        }
        Cause { queues: true, configuration: shares_configuration && self.acknowledge().config_change() }
    }
}

//! Virtio over PCI with MSI-X (VIRTIO 4.1). The table itself is [`crate::pci::MsixTable`]'s.

use super::VirtioError;
use super::transport::{Cause, Interrupt, QueueMemory, Transport};
use crate::pci::list::{self, Unfound};
use crate::register::{Typed as _, Width};
use alloc::boxed::Box;
use alloc::sync::Arc;
use hal::{DeviceAddress, Hal, Lock, Regs, Word};
use spec::register::{ReadWrite, Readable, Register, Registers, Writable};
use spec::virtio::feature::Features;
use spec::virtio::pci::{CAPABILITY_ID, CapabilityHead, CapabilityPlace, Isr, Structure, VENDOR, capability, common};
use spec::virtio::{DeviceId, Status};

/// The first PCI device id of non-transitional devices.
const DEVICE_BASE: u32 = 0x1040;

/// A base address register's region.
#[derive(Clone)]
pub struct Bar<R> {
    /// The window.
    pub regs: Arc<R>,
    /// Its length, in bytes.
    pub len_bytes: u32,
}

/// A structure of the device in one of its regions.
struct Window<R> {
    regs: Arc<R>,
    offset: u32,
    len_bytes: u32,
}

impl<R: Regs> Window<R> {
    fn at(&self, field: u32) -> u32 {
        self.offset + field
    }

    /// Whether `bytes` at `field` lie inside.
    fn holds(&self, field: u32, bytes: u32) -> bool {
        field.checked_add(bytes).is_some_and(|end| end <= self.len_bytes)
    }
}

/// The capabilities of a function, as they stand in its configuration space.
struct Capabilities<'a, R> {
    config: &'a R,
    bars: &'a [Option<Bar<R>>; 6],
}

impl<R: Regs> Capabilities<'_, R> {
    /// The first capability of a type whose region is usable (VIRTIO 4.1.4.1: in the order of the list), of `least`
    /// bytes; and where it stands.
    fn find(&self, kind: Structure, least: u32) -> Result<(u32, Window<R>), VirtioError> {
        // What the device must obey: lengths in 4.1.4, alignments in 4.1.4.3.1, 4.1.4.4.1, 4.1.4.5.1 and 4.1.4.6.1.
        let (capability_bytes, alignment_bytes) = match kind {
            Structure::NOTIFY => (capability::NOTIFY_BYTES, 2),
            Structure::ISR => (capability::BYTES, 1),
            _ => (capability::BYTES, 4),
        };
        let usable = |offset: u32, head: u32| {
            let head = CapabilityHead::from_bits(head);
            let is_of_kind = head.id() == CAPABILITY_ID && head.structure() == kind.0;
            if !is_of_kind || head.length_bytes() < capability_bytes || !list::is_whole(offset, capability_bytes.into())
            {
                return None;
            }
            let window = self.window(offset, least)?;
            window.offset.is_multiple_of(alignment_bytes).then_some((offset, window))
        };
        list::find(self.config, usable).map_err(|unfound| match unfound {
            Unfound::Missing => VirtioError::Capability(kind.0),
            Unfound::Loop => VirtioError::CapabilityLoop,
        })
    }

    /// The window that a capability describes, if it lies in its region.
    fn window(&self, capability: u32, least: u32) -> Option<Window<R>> {
        let place = CapabilityPlace::from_bits(self.config.read32(capability + capability::PLACE));
        let bar = self.bars.get(usize::from(place.bar()))?.as_ref()?;
        let offset = self.config.read32(capability + capability::OFFSET);
        let len_bytes = self.config.read32(capability + capability::LENGTH);
        let inside = offset.checked_add(len_bytes).is_some_and(|end| end <= bar.len_bytes);
        (inside && len_bytes >= least).then(|| Window { regs: bar.regs.clone(), offset, len_bytes })
    }
}

/// A virtio function.
pub struct Pci<H: Hal> {
    id: DeviceId,
    common: Window<H::Regs>,
    notify: Window<H::Regs>,
    notify_multiplier: u32,
    isr: Window<H::Regs>,
    device: Option<Window<H::Regs>>,
    /// Usable MSI-X entries.
    vectors: u16,
    /// The notification address of each queue, as read at its start.
    notify_offsets: Box<[H::Word]>,
    /// Held while a selection register stands.
    select: Lock<H, ()>,
}

impl<H: Hal> Pci<H> {
    /// The function with configuration space `config` and regions `bars`. `vectors` is how many MSI-X entries are enabled
    /// and have a line; 0 or 1: the INTx line is used, and MSI-X is to be off. When a device refuses all vectors
    /// ([`VirtioError::NoVector`]), turn MSI-X off and make the function again with 0.
    ///
    /// # Errors
    /// [`VirtioError::Device`] for another PCI device; [`VirtioError::Capability`], [`VirtioError::CapabilityLoop`] when
    /// a structure cannot be found.
    pub fn new(hal: H, config: &H::Regs, bars: &[Option<Bar<H::Regs>>; 6], vectors: u16) -> Result<Self, VirtioError> {
        let id = config.read32(0);
        let device = DeviceId((id >> 16).wrapping_sub(DEVICE_BASE));
        if id as u16 != VENDOR || id >> 16 <= DEVICE_BASE {
            return Err(VirtioError::Device(device, DeviceId::NONE));
        }
        let capabilities = Capabilities { config, bars };
        let (_, common) = capabilities.find(Structure::COMMON, common::QUEUE_NOTIF_CONFIG_DATA.offset())?;
        let (at, notify) = capabilities.find(Structure::NOTIFY, 2)?;
        let (_, isr) = capabilities.find(Structure::ISR, 1)?;
        let queues = common.regs.read(common::NUM_QUEUES.behind(common.offset));
        Ok(Self {
            id: device,
            notify_multiplier: config.read32(at + capability::NOTIFY_MULTIPLIER),
            device: capabilities.find(Structure::DEVICE, 1).ok().map(|(_, window)| window),
            common,
            notify,
            isr,
            vectors,
            notify_offsets: (0..queues).map(|_| H::Word::new(0)).collect(),
            select: Lock::new(hal, ()),
        })
    }

    fn read<T: Width, A: Readable>(&self, register: Register<T, A>) -> T {
        self.common.regs.read(register.behind(self.common.offset))
    }

    fn write<T: Width, A: Writable>(&self, register: Register<T, A>, value: T) {
        self.common.regs.write(register.behind(self.common.offset), value);
    }

    fn write_address(&self, halves: Registers<u32, ReadWrite>, address: DeviceAddress) {
        self.write(halves.get(0), address.0 as u32);
        self.write(halves.get(1), (address.0 >> 32) as u32);
    }

    fn on_queue<R>(&self, queue: u16, access: impl FnOnce() -> R) -> R {
        let _selected = self.select.lock();
        self.write(common::QUEUE_SELECT, queue);
        access()
    }

    /// The window of the device's configuration, if `bytes` at `offset` lie in it.
    fn config_at(&self, offset: u32, bytes: u32) -> Option<&Window<H::Regs>> {
        self.device.as_ref().filter(|window| window.holds(offset, bytes))
    }

    fn notify_offset(&self, queue: u16) -> Option<u32> {
        let offset = u32::from(self.read(common::QUEUE_NOTIFY_OFF)).checked_mul(self.notify_multiplier)?;
        (usize::from(queue) < self.notify_offsets.len() && self.notify.holds(offset, 2) && offset.is_multiple_of(2))
            .then_some(offset)
    }
}

impl<H: Hal> Transport for Pci<H> {
    fn device_id(&self) -> DeviceId {
        self.id
    }

    fn features(&self) -> Features {
        let _selected = self.select.lock();
        let half = |number: u32| {
            self.write(common::DEVICE_FEATURE_SELECT, number);
            u64::from(self.read(common::DEVICE_FEATURE)) << (32 * number)
        };
        Features(half(0) | half(1))
    }

    fn accept(&self, features: Features) {
        let _selected = self.select.lock();
        for half in 0..2 {
            self.write(common::DRIVER_FEATURE_SELECT, half);
            self.write(common::DRIVER_FEATURE, (features.0 >> (32 * half)) as u32);
        }
    }

    fn status(&self) -> Status {
        Status::from_bits(self.read(common::DEVICE_STATUS))
    }

    fn set_status(&self, status: Status) {
        self.write(common::DEVICE_STATUS, status.into_bits());
    }

    /// Beyond the end of the configuration everything reads 0.
    fn config8(&self, offset: u32) -> u8 {
        self.config_at(offset, 1).map_or(0, |window| window.regs.read8(window.at(offset)))
    }

    fn config16(&self, offset: u32) -> u16 {
        self.config_at(offset, 2).map_or(0, |window| window.regs.read16(window.at(offset)))
    }

    fn config32(&self, offset: u32) -> u32 {
        self.config_at(offset, 4).map_or(0, |window| window.regs.read32(window.at(offset)))
    }

    fn config_generation(&self) -> u32 {
        self.read(common::CONFIG_GENERATION).into()
    }

    fn queue_entries_max(&self, queue: u16) -> u16 {
        if usize::from(queue) < self.notify_offsets.len() {
            self.on_queue(queue, || self.read(common::QUEUE_SIZE))
        } else {
            0
        }
    }

    fn start_queue(&self, queue: u16, memory: &QueueMemory) -> Result<(), VirtioError> {
        self.on_queue(queue, || {
            if self.read(common::QUEUE_ENABLE) != 0 {
                return Err(VirtioError::QueueInUse(queue));
            }
            let offset = self.notify_offset(queue).ok_or(VirtioError::Capability(Structure::NOTIFY.0))?;
            self.notify_offsets[usize::from(queue)].set(offset.into());
            self.write(common::QUEUE_SIZE, memory.entries);
            self.write_address(common::QUEUE_DESC, memory.descriptors);
            self.write_address(common::QUEUE_DRIVER, memory.available);
            self.write_address(common::QUEUE_DEVICE, memory.used);
            self.write(common::QUEUE_ENABLE, 1);
            if self.read(common::QUEUE_ENABLE) == 1 { Ok(()) } else { Err(VirtioError::QueueNotReady(queue)) }
        })
    }

    fn reset_queue(&self, queue: u16) {
        if self.common.holds(common::QUEUE_RESET.offset(), 2) {
            self.on_queue(queue, || self.write(common::QUEUE_RESET, 1));
        }
    }

    fn queue_is_reset(&self, queue: u16) -> bool {
        self.common.holds(common::QUEUE_RESET.offset(), 2)
            && self.on_queue(queue, || self.read(common::QUEUE_RESET) == 0)
    }

    fn notify(&self, queue: u16) {
        if let Some(offset) = self.notify_offsets.get(usize::from(queue)) {
            self.notify.regs.write16(self.notify.at(offset.get() as u32), queue);
        }
    }

    fn vector_feature(&self) -> Features {
        Features::NONE
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    /// MSI-X that is on takes the INTx line away, and what is mapped to no vector does not interrupt (PCI Express 6.0, 6.1.4.3;
    /// VIRTIO 4.1.5.1.2).
    fn has_single(&self) -> bool {
        self.vectors <= 1
    }

    fn map_configuration(&self, vector: u16) -> u16 {
        self.write(common::CONFIG_MSIX_VECTOR, vector);
        self.read(common::CONFIG_MSIX_VECTOR)
    }

    fn map_queue(&self, queue: u16, vector: u16) -> u16 {
        self.on_queue(queue, || {
            self.write(common::QUEUE_MSIX_VECTOR, vector);
            self.read(common::QUEUE_MSIX_VECTOR)
        })
    }

    /// MSI-X needs no acknowledgement. Reading the status clears the INTx line.
    fn interrupt(&self, interrupt: Interrupt) -> Cause {
        match interrupt {
            Interrupt::Vector { configuration, .. } => Cause { queues: true, configuration },
            Interrupt::Single => {
                let isr = Isr::from_bits(self.isr.regs.read8(self.isr.at(0)));
                Cause { queues: isr.queue(), configuration: isr.configuration() }
            }
        }
    }
}

//! Virtio over PCI with MSI-X (VIRTIO 4.1), a non-transitional device.
//!
//! | region | what |
//! |---|---|
//! | [`REGION_STRUCTURES`] | BAR 4: common configuration, ISR, device configuration, notifications, a page each |
//! | [`REGION_MSIX`] | BAR 1: the MSI-X table at 0, the pending bits at [`PBA_OFFSET`] |
//! | [`REGION_CONFIG`] | PCI configuration space: MSI-X, then a vendor capability for each structure |
//!
//! Absent: INTx (without MSI-X the ISR byte alone tells), and access by way of configuration space.

use super::code;
use super::common::{Common, StatusChange};
use super::device::{Bus, Cause, Device, Wire};
use super::signal::{Exits, Irqfd};
use crate::memory::with_field;
use crate::model::{AccessCosts, Model, ModelId, Upstream};
use crate::msix::{Msix, PBA_OFFSET};
use crate::pci::{BAR_64, Function, MSIX_CAPABILITY_OFFSET};
use crate::time::Ps;
use crate::world::World;
use spec::virtio::feature::Feature;
use spec::virtio::pci::{self, CapabilityHead, CapabilityPlace, Isr, Structure, capability, common};
use spec::virtio::{NO_VECTOR, Status};

/// BAR 4: structures.
pub const REGION_STRUCTURES: u8 = 0;
/// BAR 1: MSI-X.
pub const REGION_MSIX: u8 = 1;
/// PCI configuration space.
pub const REGION_CONFIG: u8 = 2;

/// The BAR of the structures.
const STRUCTURES_BAR: u8 = 4;
/// From one structure to the next in BAR 4, in bytes.
const PAGE: u32 = 0x1000;
/// Structures in the order of their pages and capabilities.
const STRUCTURES: [Structure; 4] = [Structure::COMMON, Structure::ISR, Structure::DEVICE, Structure::NOTIFY];
/// The first vendor capability, and how far apart they are.
const CAPABILITIES: u32 = 0x50;
const CAPABILITY_STRIDE: u32 = 0x18;
/// Bytes from one queue's notification register to the next.
const NOTIFY_MULTIPLIER: u32 = 4;

/// What distinguishes one device on PCI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PciConfig {
    /// Shown in traces and faults.
    pub name: String,
    /// PCI requester id.
    pub requester: u16,
    /// The bus or IOMMU that takes its messages.
    pub upstream: ModelId,
    /// MSI-X table entries, 1 to 2048.
    pub vectors: u16,
    /// What register accesses cost the guest.
    pub exits: Exits,
    /// What interrupts cost the host.
    pub irqfd: Irqfd,
}

/// MSI-X, and what stands in for it while it is off.
struct Messages {
    msix: Msix,
    isr: Isr,
    irqfd: Irqfd,
    sent: u64,
}

impl Wire for Messages {
    fn raise(&mut self, world: &mut World<'_>, common: &Common, cause: Cause) -> Ps {
        let vector = match cause {
            _ if !self.msix.is_enabled() => {
                match cause {
                    Cause::Used(_) => self.isr.set_queue(true),
                    Cause::Config => self.isr.set_configuration(true),
                }
                return Ps(0);
            }
            Cause::Used(vector) => vector,
            Cause::Config => common.config_vector,
        };
        if vector == NO_VECTOR {
            return Ps(0);
        }
        world.schedule(world.now() + self.irqfd.latency, code::MESSAGE, vector.into());
        self.irqfd.signal
    }
}

/// A device behind PCI.
pub struct VirtioPci<D> {
    config: PciConfig,
    function: Function,
    common: Common,
    messages: Messages,
    device: D,
    kicks: u64,
}

impl<D: Device> VirtioPci<D> {
    /// After power-on.
    pub fn new(config: PciConfig, device: D) -> Self {
        let vectors = config.vectors.clamp(1, 2048);
        let function = Function {
            vendor: pci::VENDOR,
            device: pci::device(device.id()),
            // Network or mass storage controller, other.
            class: if device.id() == spec::virtio::DeviceId::NET { 0x02_80_00 } else { 0x01_80_00 },
            bars: [0, 0, 0, 0, BAR_64, 0],
            msix_bar: 1,
            table_offset: 0,
            pending_offset: PBA_OFFSET,
        };
        let common = Common::new(config.requester.into(), super::ring_features().or(device.features()), &device);
        let messages = Messages { msix: Msix::new(vectors), isr: Isr::new(), irqfd: config.irqfd, sent: 0 };
        Self { config, function, common, messages, device, kicks: 0 }
    }

    /// The device behind the transport.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    fn with_bus(&mut self, world: &mut World<'_>, act: impl FnOnce(&mut D, &mut Bus<'_, '_>)) {
        act(&mut self.device, &mut Bus { world, common: &mut self.common, wire: &mut self.messages });
    }

    /// 32 bits of configuration space.
    fn configuration(&self, offset: u32) -> u32 {
        if offset == MSIX_CAPABILITY_OFFSET {
            return self.function.read(&self.messages.msix, offset) | CAPABILITIES << 8;
        }
        let Some(place) = offset.checked_sub(CAPABILITIES) else {
            return self.function.read(&self.messages.msix, offset);
        };
        let (index, field) = (place / CAPABILITY_STRIDE, place % CAPABILITY_STRIDE);
        let Some(&structure) = STRUCTURES.get(index as usize) else { return 0 };
        let is_notify = structure == Structure::NOTIFY;
        let is_last = index as usize + 1 == STRUCTURES.len();
        match field {
            capability::HEAD => CapabilityHead::new()
                .with_id(pci::CAPABILITY_ID)
                .with_next(if is_last { 0 } else { (CAPABILITIES + (index + 1) * CAPABILITY_STRIDE) as u8 })
                .with_length_bytes(if is_notify { capability::NOTIFY_BYTES } else { capability::BYTES })
                .with_structure(structure.0)
                .into_bits(),
            capability::PLACE => CapabilityPlace::new().with_bar(STRUCTURES_BAR).into_bits(),
            capability::OFFSET => index * PAGE,
            capability::LENGTH => match structure {
                Structure::COMMON => common::BYTES,
                Structure::ISR => 1,
                Structure::DEVICE => self.device.config().len() as u32,
                _ => self.common.queues.len() as u32 * NOTIFY_MULTIPLIER,
            },
            capability::NOTIFY_MULTIPLIER if is_notify => NOTIFY_MULTIPLIER,
            _ => 0,
        }
    }

    fn structure_read(&mut self, world: &mut World<'_>, offset: u32, width_bytes: u8) -> u64 {
        match (STRUCTURES.get((offset / PAGE) as usize), offset % PAGE) {
            (Some(&Structure::COMMON), field) => self.common_read(world, field, width_bytes),
            // Reading clears it.
            (Some(&Structure::ISR), 0) => std::mem::take(&mut self.messages.isr).into_bits().into(),
            (Some(&Structure::DEVICE), field) => {
                super::read_config(world, &self.common, &self.device, field, width_bytes)
            }
            _ => {
                self.common.fault(world, "virtio-pci register that cannot be read", format!("offset {offset:#x}"));
                0
            }
        }
    }

    fn common_read(&mut self, world: &mut World<'_>, field: u32, width_bytes: u8) -> u64 {
        if width_bytes != width(field) {
            let text = format!("{width_bytes} bytes at {field:#x}");
            self.common.fault(world, "virtio-pci register accessed in a wrong width", text);
            return 0;
        }
        let state = &self.common;
        let queue = state.queues.get(state.queue_select as usize);
        match field {
            common::DEVICE_FEATURE_SELECT => state.device_features_select.into(),
            common::DEVICE_FEATURE => state.device_features().into(),
            common::DRIVER_FEATURE_SELECT => state.driver_features_select.into(),
            common::DRIVER_FEATURE => state.driver_features().into(),
            common::CONFIG_MSIX_VECTOR => state.config_vector.into(),
            common::NUM_QUEUES => state.queues.len() as u64,
            common::DEVICE_STATUS => state.status.into_bits().into(),
            common::CONFIG_GENERATION => state.config_generation.into(),
            common::QUEUE_SELECT => state.queue_select.into(),
            // 0: no such queue (VIRTIO 4.1.4.3).
            common::QUEUE_SIZE => queue.map_or(0, |queue| queue.entries.into()),
            common::QUEUE_MSIX_VECTOR => queue.map_or(NO_VECTOR, |queue| queue.vector).into(),
            common::QUEUE_ENABLE => queue.is_some_and(|queue| queue.ring.is_some()).into(),
            common::QUEUE_NOTIFY_OFF => state.queue_select.into(),
            _ => {
                let Some(queue) = queue else { return 0 };
                let value = match field & !7 {
                    common::QUEUE_DESC => queue.descriptors,
                    common::QUEUE_DRIVER => queue.available,
                    common::QUEUE_DEVICE => queue.used,
                    _ => 0,
                };
                value >> (field % 8 * 8) & 0xffff_ffff
            }
        }
    }

    fn structure_write(&mut self, world: &mut World<'_>, offset: u32, width_bytes: u8, value: u64) {
        match (STRUCTURES.get((offset / PAGE) as usize), offset % PAGE) {
            (Some(&Structure::COMMON), field) if width_bytes == width(field) => {
                self.common_write(world, field, value as u32);
            }
            (Some(&Structure::NOTIFY), field) if width_bytes == 2 && field.is_multiple_of(NOTIFY_MULTIPLIER) => {
                self.kicks += 1;
                let bus = Bus { world, common: &mut self.common, wire: &mut self.messages };
                super::kicked(&mut self.device, bus, field / NOTIFY_MULTIPLIER);
            }
            _ => {
                let text = format!("{value:#x} in {width_bytes} bytes to {offset:#x}");
                self.common.fault(world, "virtio-pci write that is no register's", text);
            }
        }
    }

    fn common_write(&mut self, world: &mut World<'_>, field: u32, value: u32) {
        let vector = if value < self.config.vectors.into() { value as u16 } else { NO_VECTOR };
        let half = |old: u64| with_field(old, field % 8 * 8, 32, value.into());
        let state = &mut self.common;
        match field {
            common::DEVICE_FEATURE_SELECT => state.device_features_select = value,
            common::DRIVER_FEATURE_SELECT => state.driver_features_select = value,
            common::DRIVER_FEATURE => state.set_driver_features(world, value),
            common::CONFIG_MSIX_VECTOR => state.config_vector = vector,
            common::DEVICE_STATUS => self.set_status(world, value as u8),
            common::QUEUE_SELECT => state.queue_select = value,
            common::QUEUE_SIZE => state.configure(world, |queue| queue.entries = value),
            // As on the MMIO transport, only before the queue starts; hardware may take it at any time.
            common::QUEUE_MSIX_VECTOR => state.configure(world, |queue| queue.vector = vector),
            common::QUEUE_ENABLE if value == 1 => state.start_queue(world),
            common::QUEUE_RESET if value == 1 && state.has(Feature::RING_RESET) => {
                if let Some(queue) = state.reset_queue() {
                    self.device.queue_reset(queue);
                }
            }
            _ => match field & !7 {
                common::QUEUE_DESC => state.configure(world, |queue| queue.descriptors = half(queue.descriptors)),
                common::QUEUE_DRIVER => state.configure(world, |queue| queue.available = half(queue.available)),
                common::QUEUE_DEVICE => state.configure(world, |queue| queue.used = half(queue.used)),
                _ => {
                    let text = format!("{value:#x} to {field:#x} of the common configuration");
                    state.fault(world, "virtio-pci write that is no register's", text);
                }
            },
        }
    }

    fn set_status(&mut self, world: &mut World<'_>, bits: u8) {
        match self.common.set_status(world, bits) {
            StatusChange::None => {}
            StatusChange::Started => self.with_bus(world, |device, bus| device.started(bus)),
            StatusChange::Reset => {
                self.common.reset();
                self.messages.isr = Isr::new();
                self.messages.msix.forget_pending();
                self.device.reset();
            }
        }
    }

    /// A vector's message is due: sends it, or makes it pending while the vector is masked.
    fn message(&mut self, world: &mut World<'_>, vector: u16) {
        let msix = &mut self.messages.msix;
        // The driver may have turned it off, or reset the device, since it was raised.
        if vector >= self.config.vectors || !msix.is_enabled() || self.common.status == Status::new() {
            return;
        }
        if msix.is_masked(vector) {
            return msix.set_pending(vector);
        }
        self.messages.sent += 1;
        let (address, data) = msix.message(vector);
        let requester = self.config.requester;
        world.upstream(self.config.upstream, Upstream::Message { requester, address, data });
    }

    fn send_unmasked(&mut self, world: &mut World<'_>) {
        while let Some(vector) = self.messages.msix.take_unmasked_pending() {
            self.message(world, vector);
        }
    }
}

/// The width of a field of the common configuration, in bytes (VIRTIO 4.1.4.3); 64-bit fields are two of 32.
fn width(field: u32) -> u8 {
    match field {
        common::DEVICE_STATUS | common::CONFIG_GENERATION => 1,
        common::CONFIG_MSIX_VECTOR | common::NUM_QUEUES => 2,
        common::QUEUE_SELECT..common::QUEUE_DESC => 2,
        common::QUEUE_NOTIF_CONFIG_DATA..common::BYTES => 2,
        _ => 4,
    }
}

impl<D: Device> Model for VirtioPci<D> {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            code::MESSAGE | code::RAISE => self.message(world, arg as u16),
            code::JUMP_USED => super::jump_used(world, &mut self.common, arg),
            _ => self.with_bus(world, |device, bus| device.event(bus, code, arg)),
        }
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        match region {
            REGION_STRUCTURES => self.structure_read(world, offset, width_bytes),
            REGION_MSIX => self.messages.msix.read(offset).into(),
            _ => self.configuration(offset).into(),
        }
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        match region {
            REGION_STRUCTURES => return self.structure_write(world, offset, width_bytes, value),
            REGION_MSIX => self.messages.msix.write(offset, value as u32),
            _ => crate::pci::write(&mut self.messages.msix, offset, value as u32),
        }
        self.send_unmasked(world);
    }

    fn access_costs(&self, region: u8, offset: u32) -> Option<AccessCosts> {
        let notify = STRUCTURES.iter().position(|&structure| structure == Structure::NOTIFY).map(|page| page as u32);
        Some(self.config.exits.costs(region == REGION_STRUCTURES && Some(offset / PAGE) == notify))
    }

    /// As [`super::VirtioMmio`]'s; this transport has nothing to acknowledge.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let own =
            [("interrupts", self.messages.sent), ("kicks", self.kicks), ("status_reads", 0), ("acknowledgements", 0)];
        own.into_iter().chain(self.device.counters()).collect()
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

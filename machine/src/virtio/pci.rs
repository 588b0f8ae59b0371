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
use crate::model::{AccessCosts, ModelId};
use crate::observe::Fact;
use crate::pci::{Bar, Capability, Function, Identity, MSIX_BAR_BYTES, MsixPlace, PBA_OFFSET, Place, Shell, Widths};
use crate::time::Ps;
use crate::world::World;
use core::ops::Range;
use spec::virtio::feature::Feature;
use spec::virtio::pci::{self, CapabilityHead, CapabilityPlace, Isr, Structure, capability, common};
use spec::virtio::{NO_VECTOR, Status};

/// BAR 4: structures.
pub const REGION_STRUCTURES: u8 = 0;
/// BAR 1: MSI-X.
pub const REGION_MSIX: u8 = 1;
/// PCI configuration space.
pub const REGION_CONFIG: u8 = 2;

/// Offsets in the common configuration, for patterns.
mod at {
    use spec::virtio::pci::common;
    pub(super) const DEVICE_FEATURE_SELECT: u32 = common::DEVICE_FEATURE_SELECT.offset();
    pub(super) const DEVICE_FEATURE: u32 = common::DEVICE_FEATURE.offset();
    pub(super) const DRIVER_FEATURE_SELECT: u32 = common::DRIVER_FEATURE_SELECT.offset();
    pub(super) const DRIVER_FEATURE: u32 = common::DRIVER_FEATURE.offset();
    pub(super) const CONFIG_MSIX_VECTOR: u32 = common::CONFIG_MSIX_VECTOR.offset();
    pub(super) const NUM_QUEUES: u32 = common::NUM_QUEUES.offset();
    pub(super) const DEVICE_STATUS: u32 = common::DEVICE_STATUS.offset();
    pub(super) const CONFIG_GENERATION: u32 = common::CONFIG_GENERATION.offset();
    pub(super) const QUEUE_SELECT: u32 = common::QUEUE_SELECT.offset();
    pub(super) const QUEUE_SIZE: u32 = common::QUEUE_SIZE.offset();
    pub(super) const QUEUE_MSIX_VECTOR: u32 = common::QUEUE_MSIX_VECTOR.offset();
    pub(super) const QUEUE_ENABLE: u32 = common::QUEUE_ENABLE.offset();
    pub(super) const QUEUE_NOTIFY_OFF: u32 = common::QUEUE_NOTIFY_OFF.offset();
    pub(super) const QUEUE_NOTIF_CONFIG_DATA: u32 = common::QUEUE_NOTIF_CONFIG_DATA.offset();
    pub(super) const QUEUE_RESET: u32 = common::QUEUE_RESET.offset();
    pub(super) const QUEUE_DESC: u32 = common::QUEUE_DESC.first();
    pub(super) const QUEUE_DRIVER: u32 = common::QUEUE_DRIVER.first();
    pub(super) const QUEUE_DEVICE: u32 = common::QUEUE_DEVICE.first();
}

/// The BAR of the structures.
const STRUCTURES_BAR: u8 = 4;
/// From one structure to the next in BAR 4, in bytes.
const PAGE: u32 = 0x1000;
/// Structures in the order of their pages and capabilities.
const STRUCTURES: [Structure; 4] = [Structure::COMMON, Structure::ISR, Structure::DEVICE, Structure::NOTIFY];
/// The first vendor capability, and how far apart they are.
const CAPABILITIES: u8 = 0x50;
const CAPABILITY_STRIDE: u8 = 0x18;
/// Bytes of BAR 4.
const STRUCTURES_BYTES: u32 = STRUCTURES.len() as u32 * PAGE;
/// Bytes from one queue's notification register to the next.
const NOTIFY_MULTIPLIER: u32 = 4;

/// The description of one device on PCI.
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
    /// The guest's cost of register accesses.
    pub exits: Exits,
    /// The host's cost of interrupts.
    pub irqfd: Irqfd,
}

/// MSI-X, and the ISR byte while MSI-X is off.
struct Messages {
    pci: Shell,
    isr: Isr,
    irqfd: Irqfd,
}

impl Wire for Messages {
    fn raise(&mut self, world: &mut World<'_>, common: &Common, cause: Cause) -> Ps {
        let vector = match cause {
            _ if !self.pci.is_enabled() => {
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
    common: Common,
    messages: Messages,
    device: D,
    kicks: u64,
}

impl<D: Device> VirtioPci<D> {
    /// After power-on.
    pub fn new(config: PciConfig, device: D) -> Self {
        let identity = identity(&device);
        let place = Place { name: config.name.clone(), requester: config.requester, port: config.upstream };
        let common = Common::new(config.requester.into(), super::ring_features().or(device.features()), &device);
        let pci = Shell::new(place, &identity, config.vectors.clamp(1, 2048));
        let messages = Messages { pci, isr: Isr::new(), irqfd: config.irqfd };
        Self { config, common, messages, device, kicks: 0 }
    }

    /// The device behind the transport.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    fn with_bus(&mut self, world: &mut World<'_>, act: impl FnOnce(&mut D, &mut Bus<'_, '_>)) {
        act(&mut self.device, &mut Bus { world, common: &mut self.common, wire: &mut self.messages });
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
            at::DEVICE_FEATURE_SELECT => state.device_features_select.into(),
            at::DEVICE_FEATURE => state.device_features().into(),
            at::DRIVER_FEATURE_SELECT => state.driver_features_select.into(),
            at::DRIVER_FEATURE => state.driver_features().into(),
            at::CONFIG_MSIX_VECTOR => state.config_vector.into(),
            at::NUM_QUEUES => state.queues.len() as u64,
            at::DEVICE_STATUS => state.status.into_bits().into(),
            at::CONFIG_GENERATION => state.config_generation.into(),
            at::QUEUE_SELECT => state.queue_select.into(),
            // 0: no such queue (VIRTIO 4.1.4.3).
            at::QUEUE_SIZE => queue.map_or(0, |queue| queue.entries.into()),
            at::QUEUE_MSIX_VECTOR => queue.map_or(NO_VECTOR, |queue| queue.vector).into(),
            at::QUEUE_ENABLE => queue.is_some_and(|queue| queue.ring.is_some()).into(),
            at::QUEUE_NOTIFY_OFF => state.queue_select.into(),
            at::QUEUE_RESET => queue.is_some_and(|queue| queue.is_resetting).into(),
            _ => {
                let Some(queue) = queue else { return 0 };
                let value = match field & !7 {
                    at::QUEUE_DESC => queue.descriptors,
                    at::QUEUE_DRIVER => queue.available,
                    at::QUEUE_DEVICE => queue.used,
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
        let half = |old: u64| with_field(old, field % 8 * 8, 32, value.into());
        let state = &mut self.common;
        match field {
            at::DEVICE_FEATURE_SELECT => state.device_features_select = value,
            at::DRIVER_FEATURE_SELECT => state.driver_features_select = value,
            at::DRIVER_FEATURE => state.set_driver_features(world, value),
            at::CONFIG_MSIX_VECTOR => state.config_vector = Common::mapped(world, value, self.config.vectors.into()),
            at::DEVICE_STATUS => self.set_status(world, value as u8),
            at::QUEUE_SELECT => state.queue_select = value,
            at::QUEUE_SIZE => state.configure(world, |queue| queue.entries = value),
            // As on the MMIO transport, only before the queue starts; hardware may take it at any time.
            at::QUEUE_MSIX_VECTOR => {
                let vector = Common::mapped(world, value, self.config.vectors.into());
                state.configure(world, |queue| queue.vector = vector);
            }
            at::QUEUE_ENABLE if value == 1 => state.start_queue(world),
            at::QUEUE_RESET if value == 1 && state.has(Feature::RING_RESET) => {
                if let Some(queue) = state.begin_queue_reset(world) {
                    self.device.queue_reset(queue);
                }
            }
            _ => match field & !7 {
                at::QUEUE_DESC => state.configure(world, |queue| queue.descriptors = half(queue.descriptors)),
                at::QUEUE_DRIVER => state.configure(world, |queue| queue.available = half(queue.available)),
                at::QUEUE_DEVICE => state.configure(world, |queue| queue.used = half(queue.used)),
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
                if self.common.begin_reset(world) {
                    self.reset();
                }
            }
        }
    }

    /// A reset that took a while is over.
    fn end_reset(&mut self, arg: u64) {
        if let Some(queue) = self.common.resets(arg).and_then(|queue| self.common.end_queue_reset(queue)) {
            self.device.queue_reset(queue);
        } else if arg == 0 && self.common.is_resetting {
            self.reset();
        }
    }

    fn reset(&mut self) {
        self.common.reset();
        self.messages.isr = Isr::new();
        self.messages.pci.forget_pending();
        self.device.reset();
    }

    /// A vector's message is due. The driver may have turned MSI-X off, or reset the device, since it was raised.
    fn message(&mut self, world: &mut World<'_>, vector: u16) {
        if vector < self.config.vectors && self.common.status != Status::new() {
            self.messages.pci.signal(world, vector);
        }
    }
}

/// Network or mass storage controller, other; a vendor capability for each structure.
fn identity(device: &impl Device) -> Identity {
    Identity {
        vendor: pci::VENDOR,
        device: pci::device(device.id()),
        class: if device.id() == spec::virtio::DeviceId::NET { 0x02_80_00 } else { 0x01_80_00 },
        bars: vec![
            Bar { reads: Widths::Any, writes: Widths::Any, ..Bar::new(STRUCTURES_BAR, STRUCTURES_BYTES) },
            Bar { wide: false, ..Bar::new(1, MSIX_BAR_BYTES) },
        ],
        msix: MsixPlace { region: REGION_MSIX, table: 0, pending: PBA_OFFSET },
        capabilities: (0..).zip(STRUCTURES).map(|(index, structure)| capability(device, index, structure)).collect(),
    }
}

/// The capability that locates a structure (VIRTIO 4.1.4).
fn capability(device: &impl Device, index: u8, structure: Structure) -> Capability {
    let is_notify = structure == Structure::NOTIFY;
    let length = if is_notify { capability::NOTIFY_BYTES } else { capability::BYTES };
    let mut words = vec![0; usize::from(length) / 4];
    let mut put = |field: u32, value: u32| words[field as usize / 4] = value;
    let head = CapabilityHead::new().with_id(pci::CAPABILITY_ID).with_length_bytes(length).with_structure(structure.0);
    put(capability::HEAD, head.into_bits());
    put(capability::PLACE, CapabilityPlace::new().with_bar(STRUCTURES_BAR).into_bits());
    put(capability::OFFSET, u32::from(index) * PAGE);
    let bytes = match structure {
        Structure::COMMON => common::BYTES,
        Structure::ISR => 1,
        Structure::DEVICE => device.config().len() as u32,
        _ => device.queue_entries().len() as u32 * NOTIFY_MULTIPLIER,
    };
    put(capability::LENGTH, bytes);
    if is_notify {
        put(capability::NOTIFY_MULTIPLIER, NOTIFY_MULTIPLIER);
    }
    Capability { offset: CAPABILITIES + index * CAPABILITY_STRIDE, words }
}

/// The width of a field of the common configuration, in bytes (VIRTIO 4.1.4.3); 64-bit fields are two of 32.
fn width(field: u32) -> u8 {
    match field {
        at::DEVICE_STATUS | at::CONFIG_GENERATION => 1,
        at::CONFIG_MSIX_VECTOR | at::NUM_QUEUES => 2,
        at::QUEUE_SELECT..at::QUEUE_DESC => 2,
        at::QUEUE_NOTIF_CONFIG_DATA..common::BYTES => 2,
        _ => 4,
    }
}

impl<D: Device> Function for VirtioPci<D> {
    fn shell(&self) -> &Shell {
        &self.messages.pci
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.messages.pci
    }

    fn on_event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            code::MESSAGE => self.message(world, arg as u16),
            code::RAISE => {
                world.tell(|| Fact::Struck { source: world.me(), fault: "spurious" });
                self.message(world, arg as u16);
            }
            code::JUMP_USED => super::jump_used(world, &mut self.common, arg),
            code::ANNOUNCE => self.with_bus(world, |_, bus| bus.announce()),
            code::RESET => self.end_reset(arg),
            _ => self.with_bus(world, |device, bus| device.event(bus, code, arg)),
        }
    }

    fn read_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        if region == REGION_STRUCTURES { self.structure_read(world, offset, width_bytes) } else { 0 }
    }

    fn write_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        if region == REGION_STRUCTURES {
            self.structure_write(world, offset, width_bytes, value);
        }
    }

    fn access_costs(&self, region: u8, offset: u32) -> Option<AccessCosts> {
        let notify = STRUCTURES.iter().position(|&structure| structure == Structure::NOTIFY).map(|page| page as u32);
        Some(self.config.exits.costs(region == REGION_STRUCTURES && Some(offset / PAGE) == notify))
    }

    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        self.common.uses(range)
    }

    fn given_back(&mut self, range: &Range<u64>) -> Option<u64> {
        self.common.given_back(range)
    }

    /// As [`super::VirtioMmio`]'s; this transport has nothing to acknowledge.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let sent = self.messages.pci.message_counts().sent;
        let own = [("interrupts", sent), ("kicks", self.kicks), ("status_reads", 0), ("acknowledgements", 0)];
        own.into_iter().chain(self.device.counters()).collect()
    }
}

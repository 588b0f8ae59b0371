//! Virtio over MMIO, version 2 (VIRTIO 4.2), with several interrupts (MULTI_IRQ) where the device offers them.

use super::code;
use super::common::{Common, StatusChange};
use super::device::{Bus, Device};
use super::lines::Lines;
use super::signal::{Exits, Irqfd, Line, Trigger};
use crate::memory::with_field;
use crate::model::{AccessCosts, Model, ModelId};
use crate::observe::Fact;
use crate::time::Ps;
use crate::world::World;
use core::fmt;
use core::ops::Range;
use spec::virtio::NO_VECTOR;
use spec::virtio::feature::{Feature, Features};
use spec::virtio::mmio as reg;

/// Offsets, for patterns.
mod at {
    use spec::virtio::mmio as reg;
    pub(super) const MAGIC: u32 = reg::MAGIC.offset();
    pub(super) const VERSION: u32 = reg::VERSION.offset();
    pub(super) const DEVICE_ID: u32 = reg::DEVICE_ID.offset();
    pub(super) const VENDOR_ID: u32 = reg::VENDOR_ID.offset();
    pub(super) const DEVICE_FEATURES: u32 = reg::DEVICE_FEATURES.offset();
    pub(super) const QUEUE_SIZE_MAX: u32 = reg::QUEUE_SIZE_MAX.offset();
    pub(super) const INTERRUPT_STATUS: u32 = reg::INTERRUPT_STATUS.offset();
    pub(super) const VECTOR_COUNT: u32 = reg::VECTOR_COUNT.offset();
    pub(super) const VECTOR_LEVEL: u32 = reg::VECTOR_LEVEL.offset();
    pub(super) const VECTOR_STATUS: u32 = reg::VECTOR_STATUS.offset();
    pub(super) const CONFIG_GENERATION: u32 = reg::CONFIG_GENERATION.offset();
    pub(super) const DEVICE_FEATURES_SEL: u32 = reg::DEVICE_FEATURES_SEL.offset();
    pub(super) const DRIVER_FEATURES: u32 = reg::DRIVER_FEATURES.offset();
    pub(super) const DRIVER_FEATURES_SEL: u32 = reg::DRIVER_FEATURES_SEL.offset();
    pub(super) const QUEUE_SEL: u32 = reg::QUEUE_SEL.offset();
    pub(super) const QUEUE_SIZE: u32 = reg::QUEUE_SIZE.offset();
    pub(super) const QUEUE_NOTIFY: u32 = reg::QUEUE_NOTIFY.offset();
    pub(super) const INTERRUPT_ACK: u32 = reg::INTERRUPT_ACK.offset();
    pub(super) const QUEUE_DESC_LOW: u32 = reg::QUEUE_DESC_LOW.offset();
    pub(super) const QUEUE_DESC_HIGH: u32 = reg::QUEUE_DESC_HIGH.offset();
    pub(super) const QUEUE_DRIVER_LOW: u32 = reg::QUEUE_DRIVER_LOW.offset();
    pub(super) const QUEUE_DRIVER_HIGH: u32 = reg::QUEUE_DRIVER_HIGH.offset();
    pub(super) const QUEUE_DEVICE_LOW: u32 = reg::QUEUE_DEVICE_LOW.offset();
    pub(super) const QUEUE_DEVICE_HIGH: u32 = reg::QUEUE_DEVICE_HIGH.offset();
    pub(super) const VECTOR_ACK: u32 = reg::VECTOR_ACK.offset();
    pub(super) const QUEUE_READY: u32 = reg::QUEUE_READY.offset();
    pub(super) const STATUS: u32 = reg::STATUS.offset();
    pub(super) const QUEUE_RESET: u32 = reg::QUEUE_RESET.offset();
    pub(super) const CONFIG_VECTOR: u32 = reg::CONFIG_VECTOR.offset();
    pub(super) const QUEUE_VECTOR: u32 = reg::QUEUE_VECTOR.offset();
}

/// "CAMP", as this transport's vendor.
const VENDOR: u32 = 0x504d_4143;

/// The description of one device on the MMIO transport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MmioConfig {
    /// Shown in traces and faults.
    pub name: String,
    /// Its interrupts, in the order in which the platform lists them.
    pub lines: Vec<Line>,
    /// Whether it offers VIRTIO_F_MULTI_IRQ.
    pub multi_irq: bool,
    /// The guest's cost of register accesses.
    pub exits: Exits,
    /// The host's cost of interrupts.
    pub irqfd: Irqfd,
}

/// Why a device cannot be built so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmioConfigError {
    /// Interrupts: 1 to 2048 are valid, and 1 without MULTI_IRQ.
    Lines(usize),
    /// A level-triggered vector from 32 on.
    Level(usize),
}

impl fmt::Display for MmioConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines(count) => write!(f, "{count} interrupts; 1 to 2048 are valid, and 1 without MULTI_IRQ"),
            Self::Level(vector) => write!(f, "vector {vector} is level-triggered; only 0 to 31 may be"),
        }
    }
}

impl std::error::Error for MmioConfigError {}

/// Register accesses, for reports: each is an exit.
#[derive(Default)]
struct Accesses {
    kicks: u64,
    status_reads: u64,
    acknowledgements: u64,
}

/// A device behind the MMIO transport. Its registers are region 0.
pub struct VirtioMmio<D> {
    config: MmioConfig,
    common: Common,
    lines: Lines,
    device: D,
    accesses: Accesses,
    has_posted_writes: bool,
}

impl<D: Device> VirtioMmio<D> {
    /// After power-on.
    ///
    /// # Errors
    /// [`MmioConfigError`] for interrupts that the transport cannot have.
    pub fn new(config: MmioConfig, device: D) -> Result<Self, MmioConfigError> {
        let count = config.lines.len();
        if count == 0 || count > reg::VECTORS_MAX as usize || (count > 1 && !config.multi_irq) {
            return Err(MmioConfigError::Lines(count));
        }
        let beyond = config.lines.iter().skip(reg::LEVEL_VECTORS as usize);
        if let Some(level) = beyond.into_iter().position(|line| line.trigger == Trigger::Level) {
            return Err(MmioConfigError::Level(level + reg::LEVEL_VECTORS as usize));
        }
        let ours = if config.multi_irq { Features::of(&[Feature::MULTI_IRQ]) } else { Features::NONE };
        let common = Common::new(super::REQUESTER_MMIO, super::ring_features().or(ours).or(device.features()), &device);
        let lines = Lines::new(config.irqfd, &config.lines);
        Ok(Self { config, common, lines, device, accesses: Accesses::default(), has_posted_writes: false })
    }

    /// Hardware instead of a hypervisor: a register write is on its way for a while, and a read pushes it (Arm ARM, "Device
    /// memory": Early Write Acknowledgement).
    pub fn with_posted_writes(self) -> Self {
        Self { has_posted_writes: true, ..self }
    }

    /// The device behind the transport.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    fn with_bus(&mut self, world: &mut World<'_>, act: impl FnOnce(&mut D, &mut Bus<'_, '_>)) {
        act(&mut self.device, &mut Bus { world, common: &mut self.common, wire: &mut self.lines });
    }

    fn register(&mut self, world: &mut World<'_>, offset: u32) -> u32 {
        let queue = self.common.queues.get(self.common.queue_select as usize);
        match offset {
            at::MAGIC => reg::MAGIC_VALUE,
            at::VERSION => reg::VERSION_VALUE,
            at::DEVICE_ID => self.device.id().0,
            at::VENDOR_ID => VENDOR,
            at::DEVICE_FEATURES => self.common.device_features(),
            at::QUEUE_SIZE_MAX => queue.map_or(0, |queue| queue.entries_max.into()),
            at::QUEUE_READY => queue.is_some_and(|queue| queue.ring.is_some()).into(),
            at::INTERRUPT_STATUS => {
                self.accesses.status_reads += 1;
                self.lines.read_status()
            }
            at::STATUS => self.common.status.into_bits().into(),
            at::QUEUE_RESET => queue.is_some_and(|queue| queue.is_resetting).into(),
            at::CONFIG_GENERATION => self.common.config_generation.into(),
            at::VECTOR_COUNT if self.config.multi_irq => self.lines.count(),
            at::CONFIG_VECTOR if self.config.multi_irq => self.common.config_vector.into(),
            at::QUEUE_VECTOR if self.config.multi_irq => queue.map_or(NO_VECTOR, |queue| queue.vector).into(),
            at::VECTOR_LEVEL if self.config.multi_irq => self.lines.levels(),
            at::VECTOR_STATUS if self.config.multi_irq => self.lines.held(),
            _ => {
                self.common.fault(world, "virtio-mmio register that cannot be read", format!("offset {offset:#x}"));
                0
            }
        }
    }

    fn set_register(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        let low = |old: u64| with_field(old, 0, 32, value.into());
        let high = |old: u64| with_field(old, 32, 32, value.into());
        let multi = self.common.has(Feature::MULTI_IRQ);
        let common = &mut self.common;
        match offset {
            at::DEVICE_FEATURES_SEL => common.device_features_select = value,
            at::DRIVER_FEATURES_SEL => common.driver_features_select = value,
            at::DRIVER_FEATURES => common.set_driver_features(world, value),
            at::QUEUE_SEL => common.queue_select = value,
            at::QUEUE_SIZE => common.configure(world, |queue| queue.entries = value),
            at::QUEUE_DESC_LOW => common.configure(world, |queue| queue.descriptors = low(queue.descriptors)),
            at::QUEUE_DESC_HIGH => common.configure(world, |queue| queue.descriptors = high(queue.descriptors)),
            at::QUEUE_DRIVER_LOW => common.configure(world, |queue| queue.available = low(queue.available)),
            at::QUEUE_DRIVER_HIGH => common.configure(world, |queue| queue.available = high(queue.available)),
            at::QUEUE_DEVICE_LOW => common.configure(world, |queue| queue.used = low(queue.used)),
            at::QUEUE_DEVICE_HIGH => common.configure(world, |queue| queue.used = high(queue.used)),
            at::QUEUE_READY if value & 1 != 0 => common.start_queue(world),
            // VIRTIO 4.2.2.2: with RING_RESET the driver does not write 0; without it, it stops the queue so.
            at::QUEUE_READY => self.reset_queue(world),
            at::QUEUE_RESET if value & 1 != 0 && common.has(Feature::RING_RESET) => self.reset_queue(world),
            at::QUEUE_NOTIFY => self.kicked(world, value),
            at::INTERRUPT_ACK => {
                self.accesses.acknowledgements += 1;
                self.lines.acknowledge_status(world, &self.common, value);
            }
            at::STATUS => self.set_status(world, value as u8),
            at::CONFIG_VECTOR | at::QUEUE_VECTOR | at::VECTOR_ACK if multi => {
                self.set_vector(world, offset, value);
            }
            // MULTI_IRQ 3.1, rule 2: ignored, where the device offers the extension.
            at::CONFIG_VECTOR | at::QUEUE_VECTOR | at::VECTOR_ACK if self.config.multi_irq => {}
            _ => {
                let text = format!("{value:#x} to offset {offset:#x}");
                common.fault(world, "virtio-mmio register that cannot be written", text);
            }
        }
    }

    /// MULTI_IRQ 3.1, rules 3 and 4.
    fn set_vector(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        match offset {
            at::CONFIG_VECTOR => self.common.config_vector = Common::mapped(world, value, self.lines.count()),
            at::VECTOR_ACK => {
                self.accesses.acknowledgements += 1;
                self.lines.acknowledge_vectors(world, value);
            }
            _ => {
                let vector = Common::mapped(world, value, self.lines.count());
                self.common.configure(world, |queue| queue.vector = vector);
            }
        }
    }

    fn reset_queue(&mut self, world: &mut World<'_>) {
        if let Some(queue) = self.common.begin_queue_reset(world) {
            self.device.queue_reset(queue);
        }
    }

    /// A reset that took a while is over.
    fn end_reset(&mut self, world: &mut World<'_>, arg: u64) {
        if let Some(queue) = self.common.resets(arg).and_then(|queue| self.common.end_queue_reset(queue)) {
            self.device.queue_reset(queue);
        } else if arg == 0 && self.common.is_resetting {
            self.reset(world);
        }
    }

    fn reset(&mut self, world: &mut World<'_>) {
        self.common.reset();
        self.lines.reset(world);
        self.device.reset();
    }

    fn kicked(&mut self, world: &mut World<'_>, queue: u32) {
        self.accesses.kicks += 1;
        super::kicked(&mut self.device, Bus { world, common: &mut self.common, wire: &mut self.lines }, queue);
    }

    fn set_status(&mut self, world: &mut World<'_>, bits: u8) {
        match self.common.set_status(world, bits) {
            StatusChange::None => {}
            StatusChange::Started => self.with_bus(world, |device, bus| device.started(bus)),
            StatusChange::Reset => {
                if self.common.begin_reset(world) {
                    self.reset(world);
                }
            }
        }
    }
}

impl<D: Device> Model for VirtioMmio<D> {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            code::ASSERT => self.lines.assert(world, arg),
            code::RESAMPLE => self.lines.resample(world, &self.common, arg),
            code::RAISE => {
                if self.lines.raise_vector(world, arg as u16) > Ps(0) {
                    world.tell(|| Fact::Struck { source: world.me(), fault: "spurious" });
                }
            }
            code::JUMP_USED => super::jump_used(world, &mut self.common, arg),
            code::ANNOUNCE => self.with_bus(world, |_, bus| bus.announce()),
            code::RESET => self.end_reset(world, arg),
            _ => self.with_bus(world, |device, bus| device.event(bus, code, arg)),
        }
    }

    fn read(&mut self, world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8) -> u64 {
        if offset >= reg::CONFIG {
            return super::read_config(world, &self.common, &self.device, offset - reg::CONFIG, width_bytes);
        }
        if width_bytes != 4 || !offset.is_multiple_of(4) {
            let text = format!("{width_bytes} bytes at {offset:#x}");
            self.common.fault(world, "virtio-mmio register read other than by 32 bits", text);
            return 0;
        }
        self.register(world, offset).into()
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8, value: u64) {
        if width_bytes != 4 || !offset.is_multiple_of(4) || offset >= reg::CONFIG {
            let text = format!("{value:#x} in {width_bytes} bytes to {offset:#x}");
            return self.common.fault(world, "virtio-mmio write that is no register's", text);
        }
        self.set_register(world, offset, value as u32);
    }

    fn is_trapped(&self) -> bool {
        !self.has_posted_writes
    }

    fn access_costs(&self, _region: u8, offset: u32) -> Option<AccessCosts> {
        Some(self.config.exits.costs(offset == at::QUEUE_NOTIFY))
    }

    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        self.common.uses(range)
    }

    fn given_back(&mut self, range: &Range<u64>) -> Option<u64> {
        self.common.given_back(range)
    }

    /// `interrupts`: raised; the others: exits of each kind. Then the device's own.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Accesses { kicks, status_reads, acknowledgements } = self.accesses;
        let own = [
            ("interrupts", self.lines.raised),
            ("kicks", kicks),
            ("status_reads", status_reads),
            ("acknowledgements", acknowledgements),
        ];
        own.into_iter().chain(self.device.counters()).collect()
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// The argument of a line's resampler: the device `model`, and the vector.
pub fn resample_event(model: ModelId, vector: u16) -> crate::fabric::ioapic::Resampler {
    crate::fabric::ioapic::Resampler { model, code: code::RESAMPLE, arg: vector.into() }
}

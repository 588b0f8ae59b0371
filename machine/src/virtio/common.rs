//! The transport-independent state of every device: features, status, queues (VIRTIO 2 and 3.1).

use super::either::Ring;
use super::ring::{Layout, RingFeatures};
use super::{Device, code};
use crate::observe::Fact;
use crate::time::Ps;
use crate::unrest::Kind;
use crate::world::World;
use core::ops::Range;
use spec::virtio::feature::{Feature, Features};
use spec::virtio::{NO_VECTOR, Status};

/// One queue's registers, and the queue itself while it is ready.
pub(super) struct Queue {
    pub(super) entries_max: u16,
    /// The driver's settings; checked when the queue starts.
    pub(super) entries: u32,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    pub(super) vector: u16,
    pub(super) ring: Option<Ring>,
    /// Its reset has begun and is not over.
    pub(super) is_resetting: bool,
    /// Its driver has given back some of its memory, from this address on.
    lost: Option<u64>,
}

impl Queue {
    fn new(entries_max: u16) -> Self {
        Self {
            entries_max,
            entries: entries_max.into(),
            descriptors: 0,
            available: 0,
            used: 0,
            vector: NO_VECTOR,
            ring: None,
            is_resetting: false,
            lost: None,
        }
    }

    fn areas(&self) -> [u64; 3] {
        [self.descriptors, self.available, self.used]
    }
}

/// The state that a transport's registers and the device share.
pub(super) struct Common {
    /// Named in faults: the device.
    requester: u64,
    offered: Features,
    accepted: Features,
    pub(super) status: Status,
    /// The device's reset has begun and is not over: until then the status is what it was.
    pub(super) is_resetting: bool,
    pub(super) device_features_select: u32,
    pub(super) driver_features_select: u32,
    pub(super) queue_select: u32,
    pub(super) config_vector: u16,
    pub(super) config_generation: u8,
    pub(super) queues: Box<[Queue]>,
}

/// The transport's task after a write of the status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StatusChange {
    /// No task.
    None,
    /// The device starts.
    Started,
    /// Reset everything to its state after power-on.
    Reset,
}

/// 32 of 64 feature bits.
fn half(features: Features, select: u32) -> u32 {
    if select > 1 { 0 } else { (features.0 >> (select * 32)) as u32 }
}

impl Common {
    pub(super) fn new(requester: u64, offered: Features, device: &impl Device) -> Self {
        Self {
            requester,
            offered,
            accepted: Features::NONE,
            status: Status::new(),
            is_resetting: false,
            device_features_select: 0,
            driver_features_select: 0,
            queue_select: 0,
            config_vector: NO_VECTOR,
            config_generation: 0,
            queues: device.queue_entries().into_iter().map(Queue::new).collect(),
        }
    }

    pub(super) fn fault(&self, world: &mut World<'_>, kind: &'static str, text: String) {
        world.fault(kind, self.requester, text);
    }

    /// Whether `feature` has been negotiated: accepted, and the choice is closed.
    pub(super) fn has(&self, feature: Feature) -> bool {
        self.status.features_ok() && self.accepted.has(feature)
    }

    /// True if the device works: the driver has started it, and no error has stopped it.
    pub(super) fn is_running(&self) -> bool {
        self.status.driver_ok() && !self.status.needs_reset()
    }

    pub(super) fn device_features(&self) -> u32 {
        half(self.offered, self.device_features_select)
    }

    pub(super) fn driver_features(&self) -> u32 {
        half(self.accepted, self.driver_features_select)
    }

    pub(super) fn set_driver_features(&mut self, world: &mut World<'_>, value: u32) {
        if self.status.features_ok() {
            return self.fault(world, "virtio features changed after FEATURES_OK", format!("{value:#x}"));
        }
        let select = self.driver_features_select;
        // Bits from 64 on: none is offered.
        if select <= 1 {
            self.accepted = Features(crate::memory::with_field(self.accepted.0, select * 32, 32, value.into()));
        }
    }

    /// A write of the device status (VIRTIO 2.1.1, 3.1.1). Bits are set only, one after another; 0 resets.
    pub(super) fn set_status(&mut self, world: &mut World<'_>, bits: u8) -> StatusChange {
        let (old, mut new) = (self.status, Status::from_bits(bits));
        if bits == 0 {
            return StatusChange::Reset;
        }
        if old.into_bits() & !bits & !Status::new().with_needs_reset(true).into_bits() != 0 {
            let text = format!("{:#04x} after {:#04x}", bits, old.into_bits());
            self.fault(world, "virtio status bits cleared without a reset", text);
            return StatusChange::None;
        }
        if new.features_ok() && !old.features_ok() {
            let beyond = self.accepted.0 & !self.offered.0;
            if beyond != 0 || !self.accepted.has(Feature::VERSION_1) {
                let text = format!("accepted {:#x} of {:#x}", self.accepted.0, self.offered.0);
                self.fault(world, "virtio features that the device cannot work with", text);
                new.set_features_ok(false);
            } else if world.refuses() {
                new.set_features_ok(false);
            }
        }
        // The device sets this one (VIRTIO 2.1.2).
        new.set_needs_reset(old.needs_reset());
        if new.driver_ok() && !new.features_ok() {
            self.fault(world, "virtio DRIVER_OK without FEATURES_OK", format!("status {bits:#04x}"));
            new.set_driver_ok(false);
        }
        self.status = new;
        if !new.driver_ok() || old.driver_ok() {
            return StatusChange::None;
        }
        self.tell_of_lost(world);
        StatusChange::Started
    }

    pub(super) fn reset(&mut self) {
        let entries: Vec<_> = self.queues.iter().map(|queue| queue.entries_max).collect();
        self.accepted = Features::NONE;
        (self.status, self.is_resetting) = (Status::new(), false);
        (self.device_features_select, self.driver_features_select, self.queue_select) = (0, 0, 0);
        self.config_vector = NO_VECTOR;
        self.queues = entries.into_iter().map(Queue::new).collect();
    }

    /// The queue that is selected.
    pub(super) fn selected(&mut self) -> Option<&mut Queue> {
        self.queues.get_mut(self.queue_select as usize)
    }

    /// Changes a field of the selected queue, which must exist and not be ready (VIRTIO 4.2.2.2, 4.1.4.3.2).
    pub(super) fn configure(&mut self, world: &mut World<'_>, change: impl FnOnce(&mut Queue)) {
        let select = self.queue_select;
        match self.selected() {
            None => self.fault(world, "virtio queue that does not exist", format!("queue {select}")),
            Some(queue) if queue.ring.is_some() => {
                self.fault(world, "virtio queue changed while it is ready", format!("queue {select}"));
            }
            Some(queue) => change(queue),
        }
    }

    /// What a queue, or a change of the configuration, is mapped to: `vector`, if the device has so many and does not refuse it;
    /// else none, which the driver reads back (VIRTIO 1.3, 4.1.5.1.2; MULTI_IRQ 3.1).
    pub(super) fn mapped(world: &World<'_>, vector: u32, vectors: u32) -> u16 {
        if vector < vectors && !world.refuses() { vector as u16 } else { NO_VECTOR }
    }

    /// Starts the selected queue. A queue with invalid settings stays off, and the driver reads that back.
    pub(super) fn start_queue(&mut self, world: &mut World<'_>) {
        let features = RingFeatures {
            event_index: self.has(Feature::EVENT_IDX),
            indirect: self.has(Feature::INDIRECT_DESC),
            packed: self.has(Feature::RING_PACKED),
        };
        let (select, negotiated) = (self.queue_select, self.status.features_ok());
        let Some(queue) = self.selected() else {
            return self.fault(world, "virtio queue that does not exist", format!("queue {select}"));
        };
        if queue.ring.is_some() {
            return;
        }
        let entries = u16::try_from(queue.entries).ok().filter(|&entries| entries <= queue.entries_max);
        let layout = Layout {
            entries: entries.unwrap_or(0),
            descriptors: queue.descriptors,
            available: queue.available,
            used: queue.used,
        };
        match Ring::new(world, layout, features) {
            _ if !negotiated => {
                self.fault(world, "virtio queue started before FEATURES_OK", format!("queue {select}"));
            }
            Ok(_) if world.refuses() => {}
            Ok(ring) => queue.ring = Some(ring),
            Err(error) => self.fault(world, "virtio queue that cannot work", format!("queue {select}: {error}")),
        }
    }

    /// Begins the reset of the selected queue, if it exists. Returns its number if the reset is over at once; else
    /// [`code::RESET`] ends it.
    pub(super) fn begin_queue_reset(&mut self, world: &mut World<'_>) -> Option<u16> {
        let number = self.queue_select as u16;
        let late = world.effect_delay(Kind::LateReset);
        let queue = self.selected()?;
        if queue.ring.is_none() || late == Ps(0) {
            return self.end_queue_reset(number);
        }
        if !std::mem::replace(&mut queue.is_resetting, true) {
            world.schedule(world.now() + late, code::RESET, u64::from(number) + 1);
        }
        None
    }

    /// Stops a queue: its registers are as after a reset (VIRTIO 2.6.1). Returns its number if it exists.
    pub(super) fn end_queue_reset(&mut self, number: u16) -> Option<u16> {
        let queue = self.queues.get_mut(usize::from(number))?;
        *queue = Queue::new(queue.entries_max);
        Some(number)
    }

    /// Begins the reset of the device. True if it is over at once; else [`code::RESET`] ends it.
    pub(super) fn begin_reset(&mut self, world: &mut World<'_>) -> bool {
        let late = world.effect_delay(Kind::LateReset);
        if self.status == Status::new() || late == Ps(0) {
            return true;
        }
        if !std::mem::replace(&mut self.is_resetting, true) {
            world.schedule(world.now() + late, code::RESET, 0);
        }
        false
    }

    /// As [`crate::model::Model::uses`].
    pub(super) fn uses(&self, range: &Range<u64>) -> Option<u64> {
        let ready = self.queues.iter().filter(|queue| queue.ring.is_some() && self.status.driver_ok());
        ready.flat_map(Queue::areas).find(|address| range.contains(address))
    }

    /// As [`crate::model::Model::given_back`]. Before DRIVER_OK a device consumes no buffer (VIRTIO 1.3, 3.1.1), so a queue that is ready
    /// may go, until the device starts with it.
    pub(super) fn given_back(&mut self, range: &Range<u64>) -> Option<u64> {
        let works = self.status.driver_ok();
        let ready = self.queues.iter_mut().filter(|queue| queue.ring.is_some());
        let lost = ready.filter_map(|queue| {
            let lost = queue.areas().into_iter().find(|address| range.contains(address))?;
            queue.lost = Some(lost);
            Some(lost)
        });
        lost.last().filter(|_| works)
    }

    /// The device starts: tells of a queue that is ready and whose memory is gone.
    fn tell_of_lost(&self, world: &World<'_>) {
        for address in self.queues.iter().filter_map(|queue| queue.lost) {
            world.tell(|| Fact::GivenBack { device: world.me(), address });
        }
    }

    /// The queue whose reset is over with this argument of [`code::RESET`]; none if something else ended it before.
    pub(super) fn resets(&self, arg: u64) -> Option<u16> {
        let number = u16::try_from(arg.checked_sub(1)?).ok()?;
        self.queues.get(usize::from(number)).filter(|queue| queue.is_resetting).map(|_| number)
    }
}

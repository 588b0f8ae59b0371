//! From reset to running, for any device on any transport (VIRTIO 3.1.1), and the handlers of its vectors.

use super::transport::{Interrupt, Transport};
use super::vectors::{Rung, VectorMap, VectorPolicy, ladder};
use super::{Queue, QueueConfig, VirtioError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Work};
use irq::{Action, Irq, IrqReturn};
use spec::virtio::feature::{Feature, Features};
use spec::virtio::{DeviceId, NO_VECTOR, Status};

/// How long a reset may take, in nanoseconds: the standard names no limit.
const RESET_NS: u64 = 1_000_000_000;
/// Interval between two polls of a reset.
const RESET_POLL_NS: u64 = 10_000;
/// Reads of a configuration that keeps changing before it is given up.
const CONFIG_READS_MAX: u32 = 16;

/// A driver's requirements for one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueWish {
    /// Its number.
    pub queue: u16,
    /// Most entries; the device may have fewer.
    pub entries: u16,
    /// True if the queue must interrupt. Other queues get no vector.
    pub interrupts: bool,
}

/// The ring features that every driver of this tree uses. Packed rings are taken where they are offered (VIRTIO 6.1).
pub(super) const RING_FEATURES: Features = Features::of(&[
    Feature::INDIRECT_DESC,
    Feature::EVENT_IDX,
    Feature::VERSION_1,
    Feature::RING_PACKED,
    Feature::RING_RESET,
]);

/// The queues that a driver wants, given what was negotiated.
pub(super) type WishList<'a> = dyn Fn(&dyn Transport, Features) -> Result<Vec<QueueWish>, VirtioError> + 'a;

/// A driver's requirements for its device.
pub(super) struct Wants<'a> {
    pub(super) device: DeviceId,
    /// Features of the device type. The session adds those of rings and transport.
    pub(super) features: Features,
    pub(super) policy: VectorPolicy,
    /// Which queues, when these features were negotiated.
    pub(super) queues: &'a WishList<'a>,
}

/// A device up to its DRIVER_OK.
pub(super) struct Session<H: Hal> {
    pub(super) features: Features,
    pub(super) map: VectorMap,
    /// In the order of the wishes.
    pub(super) queues: Vec<Queue<H>>,
}

/// Brings a device up to its DRIVER_OK, and lets `build` make the driver of it. A device of the right type with which that
/// fails is marked as failed (VIRTIO 3.1.1).
pub(super) fn open<H: Hal, T>(
    hal: H,
    transport: &dyn Transport,
    wants: &Wants<'_>,
    build: impl FnOnce(Session<H>) -> Result<T, VirtioError>,
) -> Result<T, VirtioError> {
    let found = transport.device_id();
    if found != wants.device {
        return Err(VirtioError::Device(found, wants.device));
    }
    climb(hal, transport, wants)
        .and_then(build)
        .inspect_err(|_| transport.set_status(transport.status().with_failed(true)))
}

/// Resets, negotiates, maps and starts queues, rung by rung of the ladder until the device agrees to one.
fn climb<H: Hal>(hal: H, transport: &dyn Transport, wants: &Wants<'_>) -> Result<Session<H>, VirtioError> {
    let mut features = negotiate(hal, transport, wants, wants.policy != VectorPolicy::Single)?;
    let mut wishes = (wants.queues)(transport, features)?;
    let maps = ladder(wants.policy, transport.vectors(), &wishes);
    let mut refused = VirtioError::NoVector(None);
    for (rung, map) in maps.into_iter().enumerate() {
        let vectors = map.rung != Rung::Single;
        if !vectors && !transport.has_single() {
            break;
        }
        if rung > 0 || !vectors {
            features = negotiate(hal, transport, wants, vectors)?;
            wishes = (wants.queues)(transport, features)?;
        }
        match attach(hal, transport, features, &wishes, &map) {
            Ok(queues) => return Ok(Session { features, map, queues }),
            Err(error @ VirtioError::NoVector(_)) if vectors => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// DRIVER_OK: from here on the device serves its queues.
pub(super) fn start(transport: &dyn Transport) {
    transport.set_status(transport.status().with_driver_ok(true));
}

/// Reset to FEATURES_OK.
fn negotiate<H: Hal>(
    hal: H,
    transport: &dyn Transport,
    wants: &Wants<'_>,
    vectors: bool,
) -> Result<Features, VirtioError> {
    reset(hal, transport)?;
    let seen = Status::new().with_acknowledge(true);
    transport.set_status(seen);
    transport.set_status(seen.with_driver(true));
    let offered = transport.features();
    let required = Features::of(&[Feature::VERSION_1]);
    if offered.and(required) != required {
        return Err(VirtioError::Lacks(required));
    }
    let ours = RING_FEATURES.or(wants.features);
    let wanted = if vectors && transport.vectors() > 1 { ours.or(transport.vector_feature()) } else { ours };
    let features = offered.and(wanted);
    transport.accept(features);
    transport.set_status(seen.with_driver(true).with_features_ok(true));
    if !transport.status().features_ok() {
        return Err(VirtioError::FeaturesRefused(features));
    }
    Ok(features)
}

/// Resets a device and waits for it (VIRTIO 2.4.2, 4.2.3.1).
pub(super) fn reset<H: Hal>(hal: H, transport: &dyn Transport) -> Result<(), VirtioError> {
    transport.set_status(Status::new());
    wait(hal, || transport.status() == Status::new()).map_err(VirtioError::ResetTimeout)
}

/// Waits until `done`. On a timeout returns the time limit.
pub(super) fn wait<H: Hal>(hal: H, done: impl Fn() -> bool) -> Result<(), u64> {
    let deadline_ns = hal.now_ns().saturating_add(RESET_NS);
    loop {
        // Reads the time first, so that one look at the device always follows the deadline.
        let late = hal.now_ns() >= deadline_ns;
        if done() {
            return Ok(());
        }
        if late {
            return Err(RESET_NS);
        }
        hal.delay_ns(RESET_POLL_NS);
    }
}

fn attach<H: Hal>(
    hal: H,
    transport: &dyn Transport,
    features: Features,
    wishes: &[QueueWish],
    map: &VectorMap,
) -> Result<Vec<Queue<H>>, VirtioError> {
    let vectors = map.rung != Rung::Single;
    if vectors && transport.map_configuration(map.configuration) != map.configuration {
        return Err(VirtioError::NoVector(None));
    }
    wishes
        .iter()
        .zip(&map.queues)
        .map(|(wish, &(_, vector))| {
            let queue = map_queue(hal, transport, features, wish, vectors.then_some(vector))?;
            // A device consumes no buffers before DRIVER_OK (VIRTIO 2.1.2), so queues may be dropped when another fails.
            transport.start_queue(wish.queue, &queue.memory())?;
            Ok(queue)
        })
        .collect()
}

/// Makes one queue and maps it before it is started (MULTI_IRQ 3.2; VIRTIO 4.1.5.1.2). The device knows no address of it yet.
pub(super) fn map_queue<H: Hal>(
    hal: H,
    transport: &dyn Transport,
    features: Features,
    wish: &QueueWish,
    vector: Option<u16>,
) -> Result<Queue<H>, VirtioError> {
    let most = transport.queue_entries_max(wish.queue);
    if most == 0 {
        return Err(VirtioError::NoQueue(wish.queue));
    }
    // The next lower power of two: on MMIO any size up to the most is the driver's to choose.
    let entries = 1 << wish.entries.min(most).max(1).ilog2();
    let mut queue = Queue::new(
        hal,
        QueueConfig {
            number: wish.queue,
            entries,
            event_index: features.has(Feature::EVENT_IDX),
            indirect: features.has(Feature::INDIRECT_DESC),
            packed: features.has(Feature::RING_PACKED),
        },
    )?;
    if !wish.interrupts {
        queue.disable_notifications();
    }
    if let Some(vector) = vector
        && transport.map_queue(wish.queue, vector) != vector
    {
        return Err(VirtioError::NoVector(Some(wish.queue)));
    }
    Ok(queue)
}

/// Reads fields of the configuration that belong together: again while the generation changes (VIRTIO 2.5.1).
pub(super) fn read_config<T>(transport: &dyn Transport, read: impl Fn() -> T) -> Result<T, VirtioError> {
    for _ in 0..CONFIG_READS_MAX {
        let before = transport.config_generation();
        let value = read();
        if transport.config_generation() == before {
            return Ok(value);
        }
    }
    Err(VirtioError::ConfigUnstable(CONFIG_READS_MAX))
}

/// The action of a device's driver when a vector comes.
pub(super) trait Served: Send + Sync {
    /// Buffers of `queue` may have been used. It may be any queue of the session's, ready or not.
    fn queue_interrupt(&self, queue: u16);
    /// The configuration may have changed.
    fn configuration_changed(&self);
}

/// The handler of one vector.
pub(super) struct VectorHandler<H: Hal, S> {
    hal: H,
    transport: Arc<dyn Transport>,
    interrupt: Interrupt,
    queues: Vec<u16>,
    device: Arc<S>,
}

/// A handler for each vector of `map`, by number; for the single interrupt, one.
pub(super) fn handlers<H: Hal, S: Served + 'static>(
    hal: H,
    transport: &Arc<dyn Transport>,
    map: &VectorMap,
    device: &Arc<S>,
) -> Vec<Arc<dyn Action>> {
    let handler = |interrupt, queues| -> Arc<dyn Action> {
        Arc::new(VectorHandler { hal, transport: transport.clone(), interrupt, queues, device: device.clone() })
    };
    if map.rung == Rung::Single {
        return [handler(Interrupt::Single, map.queues.iter().map(|&(queue, _)| queue).collect())].into();
    }
    let of = |vector| {
        let configuration = map.configuration == vector && vector != NO_VECTOR;
        handler(Interrupt::Vector { vector, configuration }, map.queues_of(vector).collect())
    };
    (0..map.vectors()).map(of).collect()
}

impl<H: Hal, S: Served> Action for VectorHandler<H, S> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        self.hal.work(Work::IrqHandler, 1);
        let cause = self.transport.interrupt(self.interrupt);
        if cause.configuration {
            self.device.configuration_changed();
        }
        if cause.queues {
            for &queue in &self.queues {
                self.device.queue_interrupt(queue);
            }
        }
        if cause.queues || cause.configuration { IrqReturn::Handled } else { IrqReturn::None }
    }
}

#[cfg(test)]
mod tests;

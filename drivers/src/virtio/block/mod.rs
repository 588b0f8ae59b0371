//! A block device (VIRTIO 5.2): read, write, flush and get-id over several queues.
//!
//! Every accepted request ends exactly once: with the device's outcome, or with the [`BlockError`] of what happened to its
//! queue or device. A queue that its device breaks stops ([`BatchDone::queue_broken`]); [`Block::recover`] resets it alone,
//! ends its requests, and starts it anew, while the others work on.

mod queue;
mod request;

pub use queue::BlockQueueCounters;
pub use request::{BatchDone, BlockError, BlockOp, BlockRequest, Completed, Submitted};

use super::session::{self, QueueWish, Served, Wants, read_config};
use super::transport::Transport;
use super::{Queue, QueueFault, Refusal, Rung, VectorMap, VectorPolicy, VirtioError};
use crate::control::{Control, FREE};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Lock, Word};
use irq::Action;
use queue::Side;
use spec::virtio::DeviceId;
use spec::virtio::block::{FLUSH, MQ, RO, SECTOR_BYTES, SEG_MAX, SIZE_MAX, config};
use spec::virtio::feature::{Feature, Features};

/// How a device is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockConfig {
    /// Most queues; the device may have fewer.
    pub queues: u16,
    /// Most entries of a queue; the device may have fewer.
    pub entries: u16,
    /// How vectors are shared out.
    pub policy: VectorPolicy,
}

impl Default for BlockConfig {
    /// One queue of 128 entries.
    fn default() -> Self {
        Self { queues: 1, entries: 128, policy: VectorPolicy::Ladder }
    }
}

/// Properties that a device reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// The negotiated features.
    pub features: Features,
    /// Its size in sectors of 512 bytes.
    pub sectors: u64,
    /// Longest transfer of one request, in bytes: a multiple of 512.
    pub transfer_bytes_max: u32,
}

impl BlockInfo {
    /// True if the device is read-only.
    pub fn read_only(&self) -> bool {
        self.features.has(RO)
    }

    /// Why a request cannot be given to this device.
    fn validate(&self, request: &BlockRequest) -> Result<(), Refusal> {
        match request.op {
            BlockOp::Flush if !self.features.has(FLUSH) => Err(Refusal::NotSupported),
            BlockOp::Write if self.read_only() => Err(Refusal::NotSupported),
            BlockOp::Flush | BlockOp::GetId => Ok(()),
            BlockOp::Read | BlockOp::Write => {
                let bytes = request.len_bytes;
                if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) || bytes > self.transfer_bytes_max {
                    return Err(Refusal::Length(bytes));
                }
                let end = request.sector.checked_add(u64::from(bytes / SECTOR_BYTES));
                let inside = end.is_some_and(|end| end <= self.sectors);
                if inside { Ok(()) } else { Err(Refusal::Range(request.sector, self.sectors)) }
            }
        }
    }
}

/// A block device.
pub struct Block<H: Hal> {
    hal: H,
    transport: Arc<dyn Transport>,
    info: BlockInfo,
    map: VectorMap,
    entries: u16,
    queues: Vec<Lock<H, Side<H>>>,
    done: Arc<dyn BatchDone>,
    configuration_changes: H::Word,
    /// Of [`Control`]; [`OVER`] behind a shutdown.
    busy: H::Word,
}

/// The device was shut down.
const OVER: u64 = 2;

const WANTED: Features = Features::of(&[SIZE_MAX, SEG_MAX, RO, FLUSH, MQ]);

fn queues(transport: &dyn Transport, features: Features, wanted: &BlockConfig) -> Result<Vec<QueueWish>, VirtioError> {
    let has = if features.has(MQ) { read_config(transport, || transport.config16(config::NUM_QUEUES))? } else { 1 };
    if has == 0 {
        return Err(VirtioError::Config("num_queues", 0));
    }
    let wish = |queue| QueueWish { queue, entries: wanted.entries, interrupts: true };
    Ok((0..wanted.queues.min(has)).map(wish).collect())
}

impl<H: Hal> Block<H> {
    /// Brings a device up to its DRIVER_OK, which [`Block::start`] sets once the [handlers](Block::handlers) are in
    /// place.
    ///
    /// # Errors
    /// [`VirtioError`]; the device is then marked as failed.
    pub fn open(
        hal: H,
        transport: Arc<dyn Transport>,
        config: &BlockConfig,
        done: Arc<dyn BatchDone>,
    ) -> Result<Arc<Self>, VirtioError> {
        if config.queues == 0 {
            return Err(VirtioError::Config("queues", 0));
        }
        let wishes = |transport: &dyn Transport, features| queues(transport, features, config);
        let wants = Wants { device: DeviceId::BLOCK, features: WANTED, policy: config.policy, queues: &wishes };
        session::open(hal, &*transport, &wants, |session| {
            let info = read_info(&*transport, session.features)?;
            // Until DRIVER_OK the device uses no queue, so those that have started may still be dropped.
            let side = |queue: Queue<H>| {
                let memory = Side::memory(hal, queue.memory().entries)?;
                Ok(Lock::new(hal, Side::new(memory, queue)))
            };
            Ok(Arc::new(Self {
                hal,
                info,
                map: session.map,
                entries: config.entries,
                queues: session.queues.into_iter().map(side).collect::<Result<_, VirtioError>>()?,
                done,
                configuration_changes: H::Word::new(0),
                busy: H::Word::new(FREE),
                transport: transport.clone(),
            }))
        })
    }

    /// A handler for each vector, by its number; one for the single interrupt. The caller requests the lines with them
    /// before [`Block::start`].
    pub fn handlers(self: &Arc<Self>) -> Vec<Arc<dyn Action>> {
        session::handlers(self.hal, &self.transport, &self.map, self)
    }

    /// Starts the device.
    pub fn start(&self) {
        session::start(&*self.transport);
    }

    /// Properties that the device reports.
    pub fn info(&self) -> BlockInfo {
        self.info
    }

    /// How its vectors are mapped.
    pub fn vectors(&self) -> &VectorMap {
        &self.map
    }

    /// How many queues it has. Any CPU may submit to any.
    pub fn queues(&self) -> u16 {
        self.queues.len() as u16
    }

    /// Configuration changes that were announced, a new capacity for example.
    pub fn configuration_changes(&self) -> u64 {
        self.configuration_changes.get()
    }

    /// Submits requests in order, up to the first that is refused, and notifies once.
    pub fn submit(&self, queue: u16, requests: &[BlockRequest]) -> Submitted {
        let Some(side) = self.queues.get(usize::from(queue)) else {
            return Submitted { accepted: 0, refused: Some(Refusal::NotSupported) };
        };
        let mut side = side.lock();
        let mut refused = None;
        let mut accepted = 0;
        for request in requests {
            let added = self.info.validate(request).and_then(|()| side.add(request, self.hal.now_ns()));
            if let Err(why) = added {
                refused = Some(why);
                break;
            }
            accepted += 1;
        }
        if side.publish() {
            self.transport.notify(queue);
        }
        Submitted { accepted, refused }
    }

    /// Takes completed requests without waiting for an interrupt. Returns their number.
    pub fn poll(&self, queue: u16) -> usize {
        let mut taken = 0;
        while let Some(batch) = self.take_batch(queue) {
            taken += batch;
        }
        taken
    }

    /// One batch, delivered with no lock held. None when no completion is left.
    fn take_batch(&self, queue: u16) -> Option<usize> {
        let (batch, count, broken) = self.queues.get(usize::from(queue))?.lock().take(self.hal);
        if count > 0 {
            self.done.batch_done(queue, &batch[..count]);
        }
        if let Some(fault) = broken {
            self.done.queue_broken(queue, fault);
        }
        (count > 0).then_some(count)
    }

    /// The device's violation that broke a queue, if any.
    pub fn fault(&self, queue: u16) -> Option<QueueFault> {
        self.queues.get(usize::from(queue))?.lock().fault()
    }

    /// Requests of a queue that are not over.
    pub fn in_flight(&self, queue: u16) -> usize {
        self.queues.get(usize::from(queue)).map_or(0, |side| side.lock().in_flight())
    }

    /// When the oldest of them was submitted: how to tell a device that does not answer.
    pub fn oldest_ns(&self, queue: u16) -> Option<u64> {
        self.queues.get(usize::from(queue))?.lock().oldest_ns()
    }

    /// The counters of a queue since its last start.
    pub fn counters(&self, queue: u16) -> Option<BlockQueueCounters> {
        Some(self.queues.get(usize::from(queue))?.lock().counters())
    }

    /// Resets one queue, ends its requests with [`BlockError::QueueReset`], and starts it anew (VIRTIO 2.6.1). In a
    /// thread: it waits for the device. If the new start fails, the queue stays stopped, and this may be called again.
    ///
    /// # Errors
    /// [`VirtioError::NotNegotiated`] when queues cannot be reset by themselves: [`Block::shut_down`] is left;
    /// [`VirtioError::Busy`] during another recovery or a shutdown; [`VirtioError::ShutDown`] behind one;
    /// [`VirtioError::QueueResetTimeout`]; the errors of a start.
    pub fn recover(&self, queue: u16) -> Result<(), VirtioError> {
        let side = self.queues.get(usize::from(queue)).ok_or(VirtioError::NoQueue(queue))?;
        if !self.info.features.has(Feature::RING_RESET) {
            return Err(VirtioError::NotNegotiated("VIRTIO_F_RING_RESET"));
        }
        let _control = self.control()?;
        side.lock().stop();
        self.transport.reset_queue(queue);
        session::wait(self.hal, || self.transport.queue_is_reset(queue))
            .map_err(|limit_ns| VirtioError::QueueResetTimeout(queue, limit_ns))?;
        self.end_all(queue, BlockError::QueueReset);
        let vector = self.map.queues.iter().find(|&&(of, _)| of == queue).map(|&(_, vector)| vector);
        let vector = vector.filter(|_| self.map.rung != Rung::Single);
        let wish = QueueWish { queue, entries: self.entries, interrupts: true };
        let memory = Side::memory(self.hal, self.entries)?;
        let fresh = session::map_queue(self.hal, &*self.transport, self.info.features, &wish, vector)?;
        match self.transport.start_queue(queue, &fresh.memory()) {
            Ok(()) => *side.lock() = Side::new(memory, fresh),
            Err(error) => {
                if matches!(error, VirtioError::QueueNotReady(_)) {
                    side.lock().keep(fresh);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Resets the device and ends every request with [`BlockError::Shutdown`]. In a thread.
    ///
    /// # Errors
    /// [`VirtioError::ResetTimeout`]; requests then stay the device's. [`VirtioError::Busy`] during a recovery or another
    /// shutdown; [`VirtioError::ShutDown`] behind one.
    pub fn shut_down(&self) -> Result<(), VirtioError> {
        let mut control = self.control()?;
        for side in &self.queues {
            side.lock().stop();
        }
        session::reset(self.hal, &*self.transport)?;
        for queue in 0..self.queues() {
            self.end_all(queue, BlockError::Shutdown);
        }
        control.behind = OVER;
        Ok(())
    }

    /// The right to give rings to the device, and to take them back.
    fn control(&self) -> Result<Control<'_, H::Word>, VirtioError> {
        Control::begin(&self.busy).map_err(|state| match state {
            OVER => VirtioError::ShutDown,
            _ => VirtioError::Busy,
        })
    }

    /// Ends the requests of a queue that the device cannot reach any more.
    fn end_all(&self, queue: u16, error: BlockError) {
        loop {
            let ended = self.queues[usize::from(queue)].lock().reclaim(error);
            let Some(ended) = ended else { return };
            self.done.batch_done(queue, &[ended]);
        }
    }
}

fn read_info(transport: &dyn Transport, features: Features) -> Result<BlockInfo, VirtioError> {
    let (sectors, size_max) = read_config(transport, || {
        let low = u64::from(transport.config32(config::CAPACITY));
        let high = u64::from(transport.config32(config::CAPACITY + 4));
        (high << 32 | low, features.has(SIZE_MAX).then(|| transport.config32(config::SIZE_MAX)))
    })?;
    let transfer_bytes_max = size_max.unwrap_or(u32::MAX) / SECTOR_BYTES * SECTOR_BYTES;
    if transfer_bytes_max == 0 {
        return Err(VirtioError::Config("size_max", size_max.unwrap_or(0).into()));
    }
    Ok(BlockInfo { features, sectors, transfer_bytes_max })
}

impl<H: Hal> Served for Block<H> {
    fn queue_interrupt(&self, queue: u16) {
        loop {
            self.poll(queue);
            let again = self.queues.get(usize::from(queue)).is_some_and(|side| side.lock().enable_notifications());
            if !again {
                return;
            }
        }
    }

    fn configuration_changed(&self) {
        self.configuration_changes.fetch_add(1);
    }
}

#[cfg(test)]
mod tests;

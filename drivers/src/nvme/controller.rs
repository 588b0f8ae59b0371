//! The controller: bring-up, queue pairs, reset and shutdown.

mod config;
mod identity;
mod requests;

use super::admin::{Admin, Unmade};
use super::port::Port;
use super::prp;
use super::queue::Parts;
use super::{BatchDone, IoError, NvmeError, QueuePair};
use crate::control::Control;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Lock, Word};
use irq::moderation::Tuner;
use spec::nvme::{AdminOpcode, FeatureId, NumberOfQueues};

pub use config::{Config, ControllerSnapshot, QueueConfig};
pub use identity::{ControllerInfo, Namespace};
pub use requests::AbortReport;

/// AQA takes 12 bits, 0's based (Base 3.1.3.8).
const ADMIN_ENTRIES_MAX: u16 = 4096;

/// An NVMe controller.
///
/// It may be shared between threads. Creating, deleting, reset and shutdown are one at a time
/// ([`NvmeError::Busy`]). Call [`Controller::shutdown`] before dropping it: until then the device may write to the
/// queues' memory.
pub struct Controller<H: Hal> {
    port: Port<H>,
    admin: Admin<H>,
    info: ControllerInfo,
    namespace: Namespace,
    /// Queue pairs that may exist, and how many were asked for.
    granted: u16,
    wanted: u16,
    /// By queue id − 1.
    queues: Lock<H, Vec<Option<Arc<QueuePair<H>>>>>,
    /// 1 while a control operation runs.
    busy: H::Word,
    /// Fed by all I/O queues, except those whose vector feature 09h excludes.
    tuner: Lock<H, Option<Arc<Tuner<H>>>>,
    features: Lock<H, Features>,
    /// What is believed of feature 08h: 1 while it is on. Written under the lock of `features`.
    coalescing: H::Word,
}

/// What is believed of features that can be set.
#[derive(Default)]
struct Features {
    /// Vectors that 09h excludes.
    excluded: Vec<u16>,
    /// How often one was set, or all were set back by a start: begun, and over.
    given: u64,
    over: u64,
}

impl<H: Hal> Controller<H> {
    /// Resets and starts the controller behind the register window `bar`, identifies it and its namespace, and
    /// negotiates the number of queues. Waits as long as CAP.TO and `config` allow.
    ///
    /// # Errors
    /// Any [`NvmeError`]; the controller is then disabled again.
    pub fn new(hal: H, bar: H::Regs, config: Config) -> Result<Self, NvmeError> {
        if !(2..=ADMIN_ENTRIES_MAX).contains(&config.admin_entries) {
            return Err(NvmeError::QueueEntries(config.admin_entries, ADMIN_ENTRIES_MAX.into()));
        }
        let port = Port::new(hal, bar)?;
        port.disable()?;
        let admin = Admin::new(&port, config.admin_entries, config.admin_timeout_ns)?;
        match bring_up(&port, &admin, &config) {
            Ok((info, namespace, granted)) => Ok(Self {
                queues: Lock::new(hal, alloc::vec![None; granted.into()]),
                busy: H::Word::new(0),
                tuner: Lock::new(hal, None),
                features: Lock::new(hal, Features::default()),
                coalescing: H::Word::new(0),
                wanted: config.queue_pairs,
                port,
                admin,
                info,
                namespace,
                granted,
            }),
            Err(error) => {
                if port.disable().is_err() {
                    // A device that does not stop may still write its memory, so the memory stays allocated.
                    core::mem::forget(admin);
                }
                Err(error)
            }
        }
    }

    /// The answer of Identify Controller.
    pub fn info(&self) -> &ControllerInfo {
        &self.info
    }

    /// The namespace that I/O goes to.
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// How many I/O queue pairs the controller granted.
    pub fn queue_pairs_max(&self) -> u16 {
        self.granted
    }

    /// The most entries of an I/O queue (CAP.MQES).
    pub fn queue_entries_max(&self) -> u32 {
        u32::from(self.port.cap.mqes()) + 1
    }

    /// The longest transfer of one request in bytes that the controller and this driver take.
    pub fn transfer_bytes_max(&self) -> u32 {
        self.info.transfer_bytes_max.min(prp::TRANSFER_BYTES_MAX)
    }

    /// Makes an I/O queue pair whose completions go to `done`. The caller requests the vector's line with the pair as
    /// its action.
    ///
    /// # Errors
    /// [`NvmeError::QueueEntries`], [`NvmeError::TransferLength`], [`NvmeError::NoQueueLeft`], no memory, and what the
    /// device refuses (a vector that it does not have, for one).
    pub fn create_queue_pair(
        &self,
        config: QueueConfig,
        done: Arc<dyn BatchDone>,
    ) -> Result<Arc<QueuePair<H>>, NvmeError> {
        let _control = self.control()?;
        self.validate(&config)?;
        let (index, pair) = self.new_pair(&config, done)?;
        // It is entered first: when the device does not answer, the pair's memory must outlive a reset.
        self.queues.lock()[index] = Some(pair.clone());
        pair.restart();
        self.declare_coalescing(&pair);
        self.attach_tuner(&pair);
        match self.admin.create_pair(&self.port, &pair) {
            Ok(()) => {
                pair.open();
                Ok(pair)
            }
            Err(Unmade { error, is_undone }) => {
                if is_undone {
                    pair.fail_all(IoError::QueueDeleted);
                    self.queues.lock()[index] = None;
                }
                Err(error)
            }
        }
    }

    fn validate(&self, config: &QueueConfig) -> Result<(), NvmeError> {
        let most = self.queue_entries_max();
        if config.entries < 2 || u32::from(config.entries) > most {
            return Err(NvmeError::QueueEntries(config.entries, most));
        }
        if config.transfer_bytes_max == 0 || config.transfer_bytes_max > prp::TRANSFER_BYTES_MAX {
            return Err(NvmeError::TransferLength(config.transfer_bytes_max, prp::TRANSFER_BYTES_MAX));
        }
        Ok(())
    }

    fn new_pair(
        &self,
        config: &QueueConfig,
        done: Arc<dyn BatchDone>,
    ) -> Result<(usize, Arc<QueuePair<H>>), NvmeError> {
        let free = self.queues.lock().iter().position(Option::is_none);
        let index = free.ok_or(NvmeError::NoQueueLeft(self.granted))?;
        let pair = QueuePair::new(Parts {
            hal: self.port.hal,
            regs: self.port.regs.clone(),
            dstrd: self.port.cap.dstrd(),
            qid: index as u16 + 1,
            entries: config.entries,
            vector: config.vector,
            namespace: self.namespace,
            deallocates: self.info.deallocates,
            transfer_bytes_max: config.transfer_bytes_max.min(self.transfer_bytes_max()),
            done,
        })?;
        Ok((index, Arc::new(pair)))
    }

    /// Deletes queue pair `qid`. Commands in flight end with the device's status, or as [`IoError::QueueDeleted`].
    ///
    /// # Errors
    /// [`NvmeError::NoQueue`], or the reason why the device did not delete it. In the second case the pair is stopped,
    /// its commands may still complete, and the controller needs a reset.
    pub fn delete_queue_pair(&self, qid: u16) -> Result<(), NvmeError> {
        let _control = self.control()?;
        let pair = self.queue_pair(qid).ok_or(NvmeError::NoQueue(qid))?;
        pair.stop();
        self.delete(&pair)?;
        self.queues.lock()[usize::from(qid) - 1] = None;
        Ok(())
    }

    /// The submission queue goes first (Base 3.3.1): the device then posts the last of its completions.
    fn delete(&self, pair: &QueuePair<H>) -> Result<(), NvmeError> {
        self.admin.delete_queue(&self.port, AdminOpcode::DELETE_IO_SQ, pair.qid())?;
        pair.take_completions();
        self.admin.delete_queue(&self.port, AdminOpcode::DELETE_IO_CQ, pair.qid())?;
        pair.fail_all(IoError::QueueDeleted);
        Ok(())
    }

    /// I/O queue pair `qid`, if it exists.
    pub fn queue_pair(&self, qid: u16) -> Option<Arc<QueuePair<H>>> {
        self.queues.lock().get(usize::from(qid).checked_sub(1)?)?.clone()
    }

    pub(super) fn tuner(&self) -> Option<Arc<Tuner<H>>> {
        self.tuner.lock().clone()
    }

    /// Tells `pair` whether coalescing is on. Under the lock: what is set meanwhile is told behind this.
    fn declare_coalescing(&self, pair: &QueuePair<H>) {
        let _features = self.features.lock();
        pair.declare_coalescing(self.believes_coalescing());
    }

    /// Lets `pair` feed the tuner, unless its vector is excluded.
    pub(super) fn attach_tuner(&self, pair: &QueuePair<H>) {
        let features = self.features.lock();
        let is_excluded = pair.vector().is_some_and(|vector| features.excluded.contains(&vector));
        pair.tuning.attach(if is_excluded { None } else { self.tuner() });
    }

    pub(super) fn set_tuner(&self, tuner: Arc<Tuner<H>>) {
        *self.tuner.lock() = Some(tuner);
    }

    pub(super) fn all_pairs(&self) -> Vec<Arc<QueuePair<H>>> {
        self.queues.lock().iter().flatten().cloned().collect()
    }

    /// Whether the controller works: neither gone nor in a fatal error.
    ///
    /// # Errors
    /// [`NvmeError::Gone`] or [`NvmeError::Fatal`].
    pub fn check_health(&self) -> Result<(), NvmeError> {
        self.port.check_health()
    }

    /// Resets the controller: every command in flight ends, once, as the device still said or as
    /// [`IoError::ControllerReset`]; then the controller and all of its queue pairs start anew. Features are back at
    /// their defaults, except that a [tuned](Controller::tune) controller has the level of its tuner.
    ///
    /// # Errors
    /// The reason why the controller did not come back. All commands have ended nevertheless, and all queues refuse
    /// requests; after [`NvmeError::Timeout`] or [`NvmeError::Gone`] from the disabling itself the device may still
    /// touch buffers, so cut it off the bus before they are used again.
    pub fn reset(&self) -> Result<(), NvmeError> {
        let _control = self.control()?;
        self.stop(IoError::ControllerReset)?;
        // No queue is left half-started. A device that does not stop outweighs the cause: it may still touch buffers.
        self.start_again().or_else(|cause| self.stop(IoError::ControllerReset).and(Err(cause)))
    }

    /// Starts the disabled controller with the queue pairs that exist.
    fn start_again(&self) -> Result<(), NvmeError> {
        self.forget_features();
        enable(&self.port, &self.admin)?;
        let granted = negotiate_queues(&self.port, &self.admin, self.wanted)?;
        for pair in self.all_pairs() {
            if pair.qid() > granted {
                return Err(NvmeError::NoQueueLeft(granted));
            }
            pair.restart();
            self.declare_coalescing(&pair);
            self.admin.create_pair(&self.port, &pair)?;
            self.attach_tuner(&pair);
            pair.open();
        }
        if let Some(tuner) = self.tuner() {
            // The reset has set the default, and a device that refuses may keep it.
            let _ = tuner.restore(self);
            // One that fails meanwhile has not come back.
            self.port.check_health()?;
        }
        Ok(())
    }

    /// A start sets features back to their defaults. Before the admin queue opens: what is set from then on counts.
    fn forget_features(&self) {
        let mut features = self.features.lock();
        let (given, over) = (features.given + 1, features.over + 1);
        *features = Features { given, over, ..Features::default() };
        self.coalescing.set(0);
    }

    /// Disables the device, then ends every command in flight with `why`.
    fn stop(&self, why: IoError) -> Result<(), NvmeError> {
        let pairs = self.all_pairs();
        pairs.iter().for_each(|pair| pair.stop());
        self.admin.pair.stop();
        let disabled = self.port.disable();
        pairs.iter().for_each(|pair| pair.fail_all(why));
        self.admin.pair.fail_all(why);
        disabled
    }

    /// Shuts the controller down in order (Base 3.6.1): deletes the queues, announces the shutdown, waits for it and
    /// disables the device. What is in flight ends as the device says, or as [`IoError::Shutdown`]. A
    /// [`Controller::reset`] starts it again, without queues.
    ///
    /// # Errors
    /// Why the device does not stop: it may then still touch buffers, as behind [`Controller::reset`]. Else the first thing that
    /// went wrong; the rest is done nevertheless.
    pub fn shutdown(&self) -> Result<(), NvmeError> {
        let _control = self.control()?;
        let pairs = self.all_pairs();
        pairs.iter().for_each(|pair| pair.stop());
        let deleted = pairs.iter().try_for_each(|pair| self.delete(pair));
        let shut_down = self.port.shut_down(self.info.rtd3e_us);
        let stopped = self.stop(IoError::Shutdown);
        if stopped.is_ok() {
            self.queues.lock().fill(None);
        }
        stopped.and(deleted).and(shut_down)
    }

    /// The present state of the controller and its queues.
    pub fn snapshot(&self) -> ControllerSnapshot {
        let admin = self.admin.pair.snapshot();
        let pairs = self.all_pairs();
        let queues = core::iter::once(admin).chain(pairs.iter().map(|pair| pair.snapshot())).collect();
        ControllerSnapshot { cap: self.port.cap, csts: self.port.status().ok(), queues }
    }

    fn control(&self) -> Result<Control<'_, H::Word>, NvmeError> {
        Control::begin(&self.busy).map_err(|_| NvmeError::Busy)
    }
}

/// Starts a disabled controller with an empty admin queue.
fn enable<H: Hal>(port: &Port<H>, admin: &Admin<H>) -> Result<(), NvmeError> {
    admin.pair.restart();
    port.enable(admin.pair.sq_address(), admin.pair.cq_address(), admin.pair.entries)?;
    // Not before the device is ready (Base 3.5.1): an Abort does not wait for the end of a reset, and its doorbell would be lost.
    admin.pair.open();
    Ok(())
}

fn bring_up<H: Hal>(
    port: &Port<H>,
    admin: &Admin<H>,
    config: &Config,
) -> Result<(ControllerInfo, Namespace, u16), NvmeError> {
    enable(port, admin)?;
    let info = ControllerInfo::read(admin.identify(port, identity::CONTROLLER, 0)?)?;
    if config.nsid == 0 || config.nsid > info.namespaces_max {
        return Err(NvmeError::NoNamespace(config.nsid, info.namespaces_max));
    }
    let data = admin.identify(port, identity::NAMESPACE, config.nsid)?;
    let namespace = Namespace::read(data, config.nsid, info.namespaces_max)?;
    let granted = negotiate_queues(port, admin, config.queue_pairs)?;
    Ok((info, namespace, granted))
}

/// Asks for `pairs` of queues; returns how many the controller grants (Base 5.27.1.5; FFFFh may not be asked for).
fn negotiate_queues<H: Hal>(port: &Port<H>, admin: &Admin<H>, pairs: u16) -> Result<u16, NvmeError> {
    let asked = pairs.clamp(1, u16::MAX - 1) - 1;
    let dw11 = NumberOfQueues::new().with_nsq(asked).with_ncq(asked).into_bits();
    let dw0 = admin.set_feature(port, FeatureId::NUMBER_OF_QUEUES, dw11)?;
    let granted = NumberOfQueues::from_bits(dw0);
    Ok(granted.nsq().min(granted.ncq()).min(asked) + 1)
}

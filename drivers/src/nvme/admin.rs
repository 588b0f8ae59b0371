//! The admin queue: commands that their caller waits for.

use super::port::Port;
use super::queue::{Parts, QueuePair};
use super::{BatchDone, Completed, IoError, Namespace, NvmeError, Refusal};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Dma, Hal, Lock};
use spec::nvme::identify::{self, Cns};
use spec::nvme::{
    AbortDw10, AdminOpcode, Cdw0, Command, CreateCqDw11, CreateSqDw11, FeatureDw10, FeatureId, FeatureSelect,
    IdentifyDw10, QueueDw10,
};

/// The longest wait between two looks at the controller's health, and at a mailbox that another thread's poll filled.
const WAIT_SLICE_NS: u64 = 100_000;

/// Where one command's answer is awaited.
#[derive(Clone, Copy)]
enum Mail {
    Free,
    Waiting,
    Answered(Result<u32, IoError>),
    /// The caller has stopped waiting, but the answer may still arrive.
    GivenUp,
}

/// The mailboxes; the admin queue's tags are their indices.
struct Mailboxes<H: Hal>(Lock<H, Vec<Mail>>);

impl<H: Hal> Mailboxes<H> {
    fn claim(&self) -> Option<usize> {
        let mut boxes = self.0.lock();
        let index = boxes.iter().position(|mail| matches!(mail, Mail::Free))?;
        boxes[index] = Mail::Waiting;
        Some(index)
    }

    fn take(&self, index: usize) -> Option<Result<u32, IoError>> {
        let mut boxes = self.0.lock();
        let Mail::Answered(answer) = boxes[index] else { return None };
        boxes[index] = Mail::Free;
        Some(answer)
    }

    /// Stops waiting for `index`, unless the answer has arrived at the last moment.
    fn give_up(&self, index: usize) -> Option<Result<u32, IoError>> {
        let mut boxes = self.0.lock();
        let (mail, answer) = match boxes[index] {
            Mail::Answered(answer) => (Mail::Free, Some(answer)),
            _ => (Mail::GivenUp, None),
        };
        boxes[index] = mail;
        answer
    }

    fn set(&self, index: usize, mail: Mail) {
        self.0.lock()[index] = mail;
    }
}

impl<H: Hal> BatchDone for Mailboxes<H> {
    fn batch_done(&self, batch: &[Completed]) {
        let mut boxes = self.0.lock();
        for done in batch {
            let mail = &mut boxes[done.tag as usize];
            *mail = if matches!(mail, Mail::GivenUp) { Mail::Free } else { Mail::Answered(done.result) };
        }
    }
}

/// Why a queue pair was not made.
pub(super) struct Unmade {
    pub(super) error: NvmeError,
    /// The device has neither of its queues.
    pub(super) is_undone: bool,
}

impl From<Unmade> for NvmeError {
    fn from(unmade: Unmade) -> Self {
        unmade.error
    }
}

/// The admin queue pair and what its commands need.
pub(super) struct Admin<H: Hal> {
    pub(super) pair: QueuePair<H>,
    mail: Arc<Mailboxes<H>>,
    timeout_ns: u64,
    /// Where Identify puts its answer; used by one control operation at a time, and kept until the device is stopped.
    identify: H::Dma,
}

impl<H: Hal> Admin<H> {
    pub(super) fn new(port: &Port<H>, entries: u16, timeout_ns: u64) -> Result<Self, NvmeError> {
        let mail = Arc::new(Mailboxes(Lock::new(port.hal, alloc::vec![Mail::Free; usize::from(entries - 1)])));
        let pair = QueuePair::new(Parts {
            hal: port.hal,
            regs: port.regs.clone(),
            dstrd: port.cap.dstrd(),
            qid: 0,
            entries,
            vector: None,
            namespace: Namespace { nsid: 0, blocks: 0, block_shift: 0 },
            deallocates: false,
            transfer_bytes_max: 0,
            done: mail.clone(),
        })?;
        let identify = port.hal.dma_alloc(identify::BYTES, identify::BYTES)?;
        Ok(Self { pair, mail, timeout_ns, identify })
    }

    /// Runs one command and returns dword 0 of its completion entry.
    pub(super) fn execute(&self, port: &Port<H>, opcode: AdminOpcode, command: Command) -> Result<u32, NvmeError> {
        let index = self.mail.claim().ok_or(NvmeError::AdminFull(self.pair.depth()))?;
        let command = Command { cdw0: Cdw0::with_opcode(command.cdw0, opcode.0), ..command };
        if let Err(refusal) = self.pair.submit_command(command, index as u64) {
            self.mail.set(index, Mail::Free);
            return Err(if refusal == Refusal::Full {
                NvmeError::AdminFull(self.pair.depth())
            } else {
                NvmeError::Stopped
            });
        }
        match self.answer(port, index) {
            Ok(Ok(dw0)) => Ok(dw0),
            Ok(Err(IoError::Device { status, .. })) => Err(NvmeError::Command(opcode, status)),
            Ok(Err(error)) => Err(NvmeError::Lost(opcode, error)),
            Err(error) => Err(error),
        }
    }

    fn answer(&self, port: &Port<H>, index: usize) -> Result<Result<u32, IoError>, NvmeError> {
        let deadline_ns = port.hal.now_ns().saturating_add(self.timeout_ns);
        loop {
            let now_ns = port.hal.now_ns();
            self.pair.take_completions();
            if let Some(answer) = self.mail.take(index) {
                return Ok(answer);
            }
            let health = if now_ns >= deadline_ns {
                Err(NvmeError::Timeout("an admin command", self.timeout_ns / 1_000_000))
            } else {
                port.check_health()
            };
            if let Err(error) = health {
                return self.mail.give_up(index).ok_or(error);
            }
            self.pair.wait_for_completion(deadline_ns.min(now_ns + WAIT_SLICE_NS));
        }
    }

    /// Runs Identify and returns its data.
    pub(super) fn identify(&self, port: &Port<H>, cns: Cns, nsid: u32) -> Result<&H::Dma, NvmeError> {
        let dw10 = IdentifyDw10::new().with_cns(cns.0);
        let command =
            Command { nsid, prp1: self.identify.device_address().0, cdw10: dw10.into_bits(), ..Command::default() };
        self.execute(port, AdminOpcode::IDENTIFY, command)?;
        Ok(&self.identify)
    }

    /// Creates both queues of `pair` in the device, the completion queue first (Base 5.4, 5.5).
    pub(super) fn create_pair(&self, port: &Port<H>, pair: &QueuePair<H>) -> Result<(), Unmade> {
        // Refused by the device, or never sent to it.
        let is_undone = |error| matches!(error, NvmeError::Command(..) | NvmeError::AdminFull(_) | NvmeError::Stopped);
        let refused = |error| Unmade { is_undone: is_undone(error), error };
        let dw10 = QueueDw10::new().with_qid(pair.qid()).with_qsize(pair.entries - 1).into_bits();
        let interrupts = CreateCqDw11::new().with_pc(true).with_ien(pair.vector().is_some());
        let dw11 = interrupts.with_iv(pair.vector().unwrap_or(0)).into_bits();
        let create_cq = Command { prp1: pair.cq_address().0, cdw10: dw10, cdw11: dw11, ..Command::default() };
        self.execute(port, AdminOpcode::CREATE_IO_CQ, create_cq).map_err(refused)?;
        let dw11 = CreateSqDw11::new().with_pc(true).with_cqid(pair.qid()).into_bits();
        let create_sq = Command { prp1: pair.sq_address().0, cdw10: dw10, cdw11: dw11, ..Command::default() };
        self.execute(port, AdminOpcode::CREATE_IO_SQ, create_sq).map(|_| ()).map_err(|error| {
            // Without an answer the device may have made both, or make them yet: then it refuses this, and keeps them.
            let deleted = self.delete_queue(port, AdminOpcode::DELETE_IO_CQ, pair.qid());
            Unmade { is_undone: refused(error).is_undone && deleted.is_ok(), error }
        })
    }

    /// Deletes one queue (Base 5.6, 5.7).
    pub(super) fn delete_queue(&self, port: &Port<H>, opcode: AdminOpcode, qid: u16) -> Result<(), NvmeError> {
        let cdw10 = QueueDw10::new().with_qid(qid).into_bits();
        self.execute(port, opcode, Command { cdw10, ..Command::default() }).map(|_| ())
    }

    /// Aborts command `cid` of queue `sqid`; true when the device says that it did (Base 5.1: bit 0 of dword 0 clear).
    pub(super) fn abort(&self, port: &Port<H>, sqid: u16, cid: u16) -> Result<bool, NvmeError> {
        let cdw10 = AbortDw10::new().with_sqid(sqid).with_cid(cid).into_bits();
        let dw0 = self.execute(port, AdminOpcode::ABORT, Command { cdw10, ..Command::default() })?;
        Ok(dw0 & 1 == 0)
    }

    /// Get Features, the value in force; `dw11` names the part of the feature, where it has parts.
    pub(super) fn get_feature(&self, port: &Port<H>, feature: FeatureId, dw11: u32) -> Result<u32, NvmeError> {
        let dw10 = FeatureDw10::new().with_fid(feature.0).with_sel(FeatureSelect::CURRENT.0);
        let command = Command { cdw10: dw10.into_bits(), cdw11: dw11, ..Command::default() };
        self.execute(port, AdminOpcode::GET_FEATURES, command)
    }

    /// Set Features, not saved; returns dword 0.
    pub(super) fn set_feature(&self, port: &Port<H>, feature: FeatureId, dw11: u32) -> Result<u32, NvmeError> {
        let dw10 = FeatureDw10::new().with_fid(feature.0);
        let command = Command { cdw10: dw10.into_bits(), cdw11: dw11, ..Command::default() };
        self.execute(port, AdminOpcode::SET_FEATURES, command)
    }
}

#[cfg(all(test, loom))]
mod loom_mail {
    //! `RUSTFLAGS="--cfg loom" cargo test --release -p campanile-drivers --lib loom_mail`

    use super::*;
    use crate::loom_world::{CPU, LoomHal};
    use hal::CpuId;
    use loom::thread;

    /// An answer comes while its command is given up: it is taken or thrown away, and its mailbox is free again.
    #[test]
    fn a_mailbox_outlives_an_answer_of_the_last_moment() {
        loom::model(|| {
            let mail = Arc::new(Mailboxes(Lock::new(LoomHal, alloc::vec![Mail::Free])));
            assert_eq!(mail.claim(), Some(0));
            let own = mail.clone();
            let other_waiter = thread::spawn(move || {
                CPU.with(|cpu| cpu.set(1));
                own.batch_done(&[Completed { tag: 0, result: Ok(7), submitted_ns: 0, cpu: CpuId(0) }]);
            });
            let answer = mail.take(0).or_else(|| mail.give_up(0));
            assert!(matches!(answer, None | Some(Ok(7))));
            other_waiter.join().unwrap();
            assert_eq!(mail.claim(), Some(0));
        });
    }
}

//! The admin command set (Base 5).

use super::async_event::ERROR_LOG;
use super::prp::DataPointer;
use super::queues::{CompletionQueue, SubmissionQueue};
use super::{Nvme, code, identify};
use crate::observe::Fact;
use crate::world::World;
use spec::nvme::identify::{BYTES, Cns};
use spec::nvme::{AbortDw10, AdminOpcode, Command, CreateCqDw11, CreateSqDw11, IdentifyDw10, QueueDw10, Status};

/// The result of a command: dword 0 of its completion, or why it failed.
type Outcome = Result<u32, Status>;

/// Bytes of the largest supported log page: SMART / Health Information (Base 5.16.1.3).
const LOG_BYTES: usize = 512;
/// SMART / Health Information and Firmware Slot Information: all zero (Base 5.16.1.3, 5.16.1.4).
const OTHER_LOGS: [u8; 2] = [0x02, 0x03];
/// Invalid Log Page, command specific 09h (Base 5.16).
const INVALID_LOG_PAGE: Status = Status(0x109);
/// Retain Asynchronous Event: reading the log does not clear its event (Base 5.16).
const RETAIN_EVENT: u32 = 1 << 15;

impl Nvme {
    /// Starts the next admin command, if there is one and its completion will have room.
    pub(super) fn begin_admin(&mut self, world: &mut World<'_>) {
        if self.admin_busy || !self.controller.runs() || !self.queues.may_fetch(0) {
            return;
        }
        self.admin_busy = true;
        let at = world.now() + world.jitter(self.config.timing.admin);
        world.schedule(at, code::ADMIN, self.controller.epoch.into());
    }

    pub(super) fn admin_done(&mut self, world: &mut World<'_>, epoch: u64) {
        if epoch != u64::from(self.controller.epoch) {
            return;
        }
        self.admin_busy = false;
        if !self.controller.runs() || !self.queues.may_fetch(0) {
            return;
        }
        match self.queues.sqs[0].fetch(world) {
            Ok(command) => {
                self.counters.admin_commands += 1;
                self.admin(world, &command);
            }
            Err(error) => {
                return self.fatal(world, "NVMe submission queue outside memory", format!("queue 0: {error}"));
            }
        }
        self.begin_admin(world);
    }

    fn admin(&mut self, world: &mut World<'_>, command: &Command) {
        let cid = command.cdw0.cid();
        let opcode = AdminOpcode(command.cdw0.opcode());
        let waits = opcode == AdminOpcode::ASYNC_EVENT_REQUEST;
        let deletes = matches!(opcode, AdminOpcode::DELETE_IO_SQ | AdminOpcode::DELETE_IO_CQ);
        if let Some(late) = self.config.faults.aborts_unanswered
            && opcode == AdminOpcode::ABORT
        {
            self.late_aborts.push(AbortDw10::from_bits(command.cdw10));
            world.schedule(world.now() + late, code::ABORT, command.cdw10.into());
            return world.tell(|| Fact::Struck { source: world.me(), fault: "Abort" });
        }
        let outcome = if command.cdw0.fuse() != 0 || command.cdw0.psdt() != 0 {
            Err(Status::INVALID_FIELD)
        } else if self.config.faults.admin_fails && !waits {
            world.tell(|| Fact::Struck { source: world.me(), fault: "admin command" });
            Err(Status::INTERNAL_ERROR)
        } else if !waits && !deletes && world.refuses() {
            Err(Status::INTERNAL_ERROR)
        } else {
            match opcode {
                AdminOpcode::DELETE_IO_SQ => self.delete_sq(world, command),
                AdminOpcode::CREATE_IO_SQ => self.create_sq(command),
                AdminOpcode::GET_LOG_PAGE => self.log_page(world, command),
                AdminOpcode::DELETE_IO_CQ => self.delete_cq(command),
                AdminOpcode::CREATE_IO_CQ => self.create_cq(command),
                AdminOpcode::IDENTIFY => self.identify(world, command),
                AdminOpcode::ABORT => Ok(self.abort(world, AbortDw10::from_bits(command.cdw10))),
                AdminOpcode::SET_FEATURES => self.set_feature(command),
                AdminOpcode::GET_FEATURES => self.features.get(command),
                AdminOpcode::ASYNC_EVENT_REQUEST => match self.event_request(world, cid) {
                    Some(status) => Err(status),
                    None => return,
                },
                _ => Err(Status::INVALID_OPCODE),
            }
        };
        let (status, dw0) = outcome.map_or_else(|status| (status, 0), |dw0| (Status::SUCCESS, dw0));
        self.complete(world, 0, cid, status, dw0);
    }

    /// Size and address of a queue, checked in the order of Base 5.4 and 5.5.
    fn queue_shape(&self, command: &Command, contiguous: bool, granted: u16) -> Result<(u16, u32), Status> {
        let dword10 = QueueDw10::from_bits(command.cdw10);
        let (qid, size) = (dword10.qid(), u32::from(dword10.qsize()) + 1);
        if qid == 0 || qid > granted {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if size < 2 || size > self.config.queue_entries_max {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // CAP.CQR: contiguous queues are required.
        if !contiguous {
            return Err(Status::INVALID_FIELD);
        }
        if !command.prp1.is_multiple_of(self.controller.page()) {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        Ok((qid, size))
    }

    fn create_cq(&mut self, command: &Command) -> Outcome {
        let dword11 = CreateCqDw11::from_bits(command.cdw11);
        let (qid, size) = self.queue_shape(command, dword11.pc(), self.features.completion_queues)?;
        if self.queues.cq(qid).is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if dword11.iv() >= self.config.vectors {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        let vector = dword11.ien().then_some(dword11.iv());
        self.queues.cqs[usize::from(qid)] = CompletionQueue::new(command.prp1, size, vector);
        Ok(0)
    }

    fn create_sq(&mut self, command: &Command) -> Outcome {
        let dword11 = CreateSqDw11::from_bits(command.cdw11);
        let (qid, size) = self.queue_shape(command, dword11.pc(), self.features.submission_queues)?;
        if self.queues.sq(qid).is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let cqid = dword11.cqid();
        // An id out of range is invalid. An id in range without a created queue names no completion queue (Base 5.5).
        if cqid == 0 || cqid > self.features.completion_queues {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let cq = self.queues.cq(cqid).ok_or(Status::COMPLETION_QUEUE_INVALID)?;
        cq.users += 1;
        self.queues.sqs[usize::from(qid)] = SubmissionQueue::new(command.prp1, size, cqid);
        Ok(0)
    }

    /// Commands in progress are completed as aborted before the queue is deleted. Commands not fetched vanish with it
    /// (Base 5.7).
    fn delete_sq(&mut self, world: &mut World<'_>, command: &Command) -> Outcome {
        let qid = QueueDw10::from_bits(command.cdw10).qid();
        if qid == 0 {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let cqid = self.queues.sq(qid).ok_or(Status::INVALID_QUEUE_ID)?.cqid;
        self.ready.set(qid, false);
        self.abort_queue(world, qid);
        self.late_aborts.retain(|late| late.sqid() != qid);
        self.queues.sqs[usize::from(qid)] = SubmissionQueue::default();
        self.recount_backlog(world);
        self.queues.cqs[usize::from(cqid)].users -= 1;
        self.counters.queues_deleted += 1;
        Ok(0)
    }

    fn delete_cq(&mut self, command: &Command) -> Outcome {
        let qid = QueueDw10::from_bits(command.cdw10).qid();
        if qid == 0 {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let cq = self.queues.cq(qid).ok_or(Status::INVALID_QUEUE_ID)?;
        if cq.users > 0 {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        let cq = core::mem::take(cq);
        self.corrections.retain(|_, correction| correction.cqid != qid);
        if let Some(vector) = cq.vector {
            self.forget_entries(vector, cq.unacknowledged());
        }
        self.counters.queues_deleted += 1;
        Ok(0)
    }

    /// Dword 0: bit 0 is 1 when the command was not aborted (Base 5.1).
    fn abort(&mut self, world: &mut World<'_>, which: AbortDw10) -> u32 {
        let aborted = if which.sqid() == 0 {
            let found = self.events.withdraw(which.cid());
            if found {
                self.complete(world, 0, which.cid(), Status::ABORT_REQUESTED, 0);
            }
            found
        } else {
            self.abort_command(world, which.sqid(), which.cid())
        };
        u32::from(!aborted)
    }

    /// An Abort without an answer is done at last.
    pub(super) fn abort_late(&mut self, world: &mut World<'_>, which: u64) {
        let found = self.late_aborts.iter().position(|late| u64::from(late.into_bits()) == which);
        if let Some(found) = found {
            let which = self.late_aborts.swap_remove(found);
            self.abort_command(world, which.sqid(), which.cid());
        }
    }

    fn identify(&mut self, world: &mut World<'_>, command: &Command) -> Outcome {
        let cns = Cns(IdentifyDw10::from_bits(command.cdw10).cns());
        let page = identify::page(&self.config, cns, command.nsid, (command.cdw11 >> 24) as u8)?;
        self.answer(world, command, &page)
    }

    fn log_page(&mut self, world: &mut World<'_>, command: &Command) -> Outcome {
        let page = command.cdw10 as u8;
        if page != ERROR_LOG && !OTHER_LOGS.contains(&page) {
            return Err(INVALID_LOG_PAGE);
        }
        // NUMD, 0's based dwords, in dword 10 bits 31:16 and dword 11 bits 15:0.
        let dwords = u64::from(command.cdw11 & 0xffff) << 16 | u64::from(command.cdw10 >> 16);
        let offset = u64::from(command.cdw12) | u64::from(command.cdw13) << 32;
        if offset > LOG_BYTES as u64 || dwords >= BYTES as u64 / 4 {
            return Err(Status::INVALID_FIELD);
        }
        self.answer(world, command, &[0; BYTES][..(dwords as usize + 1) * 4])?;
        if page == ERROR_LOG && command.cdw10 & RETAIN_EVENT == 0 {
            self.events.log_was_read();
            self.deliver_event(world);
        }
        Ok(0)
    }

    /// Writes `bytes`, a multiple of four, to the command's data buffer.
    fn answer(&self, world: &mut World<'_>, command: &Command, bytes: &[u8]) -> Outcome {
        let data = DataPointer { prp1: command.prp1, prp2: command.prp2, bytes: bytes.len() as u32 };
        let write = |world: &mut World<'_>, offset: u64, segment: super::prp::Segment| {
            let part = &bytes[offset as usize..][..segment.bytes as usize];
            for (index, dword) in part.as_chunks::<4>().0.iter().enumerate() {
                world.write32(segment.address + index as u64 * 4, u32::from_le_bytes(*dword))?;
            }
            Ok(())
        };
        data.for_each(world, self.controller.page(), write).map_err(super::prp::Failure::status)?;
        Ok(0)
    }
}

//! Control operations on a drive that another manager resets. They are one at a time, and who comes second is told so
//! ([`drivers::nvme::Controller`]).

use super::drive::Drive;
use super::stack::PcStack;
use crate::verdict::violate;
use drivers::nvme::{BatchDone, Completed, NvmeError, QueueConfig};
use machine::inspect;
use machine::nvme::Nvme;
use std::sync::Arc;

/// NVMe Base, "Offset 14h: CC": bit 0 is EN.
const CC: u32 = 0x14;

/// No queue of this is made: it has one entry.
struct Nobody;

impl BatchDone for Nobody {
    fn batch_done(&self, batch: &[Completed]) {
        violate("commands", format!("{} commands of a queue that was never made", batch.len()));
    }
}

/// Asks for things that come to nothing even where the drive has time for them; then for a reset.
pub(super) fn intrude(stack: &PcStack, drive: &Drive) {
    let Some(controller) = drive.controller() else { return };
    let [begun, over] = drive.controls();
    if begun == over {
        return;
    }
    let turn = drive.begin_control();
    let nothing = QueueConfig { entries: 1, vector: None, transfer_bytes_max: 512 };
    let ask = |create: bool| match create {
        true => controller.create_queue_pair(nothing, Arc::new(Nobody)).map(drop),
        false => controller.delete_queue_pair(u16::MAX),
    };
    for create in [true, false] {
        let before = is_down(drive);
        let answer = ask(create);
        // The reset that had disabled the drive has not enabled it yet.
        let is_within = before && is_down(drive) && drive.controls() == [begun + 1, over];
        if is_within && !matches!(answer, Err(NvmeError::Busy)) {
            let what = if create { "made" } else { "deleted" };
            let text = format!("a queue of drive {} was to be {what} during a reset: {answer:?}", drive.index);
            violate("operations", text);
        }
    }
    drive.end_control(&turn);
    stack.reset(drive);
}

fn is_down(drive: &Drive) -> bool {
    inspect(drive.model, |drive: &Nvme, _| drive.held(CC) & 1 == 0) == Some(true)
}

//! Control operations on a drive that another manager resets. They are one at a time, and who comes second is told so
//! ([`drivers::nvme::Controller`]).

use super::drive::Drive;
use crate::verdict::violate;
use drivers::nvme::{BatchDone, Completed, NvmeError, QueueConfig};
use machine::inspect;
use machine::nvme::Nvme;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// NVMe Base, "Offset 14h: CC": bit 0 is EN.
const CC: u32 = 0x14;

/// No queue of this is made: it has one entry.
struct Nobody;

impl BatchDone for Nobody {
    fn batch_done(&self, batch: &[Completed]) {
        violate("commands", format!("{} commands of a queue that was never made", batch.len()));
    }
}

/// Asks for things that come to nothing even where the drive has time for them. Only on a machine where nobody else would be told
/// that the drive is busy.
pub(super) fn intrude(drive: &Drive) {
    let Some(controller) = drive.controller() else { return };
    let nothing = QueueConfig { entries: 1, vector: None, transfer_bytes_max: 512 };
    for what in ["made", "deleted"] {
        if !is_under_reset(drive) {
            return;
        }
        let answer = match what {
            "made" => controller.create_queue_pair(nothing, Arc::new(Nobody)).map(drop),
            _ => controller.delete_queue_pair(u16::MAX),
        };
        // The reset that had disabled the drive has not enabled it yet.
        if is_under_reset(drive) && !matches!(answer, Err(NvmeError::Busy)) {
            let text = format!("a queue of drive {} was to be {what} during a reset: {answer:?}", drive.index);
            violate("operations", text);
        }
    }
}

fn is_under_reset(drive: &Drive) -> bool {
    drive.busy.load(Relaxed) && inspect(drive.model, |drive: &Nvme, _| drive.held(CC) & 1 == 0) == Some(true)
}

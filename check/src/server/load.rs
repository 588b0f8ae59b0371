//! A queue's load: keeps some commands in flight, and counts the completions of each.

use drivers::nvme::{BatchDone, Completed, IoOp, IoRequest, QueuePair};
use hal::{Dma as _, Hal};
use machine::SimHal;
use std::sync::{Arc, Mutex, OnceLock, Weak};

#[derive(Default)]
struct Ledger {
    /// Completions of each command ever submitted.
    completions: Vec<u8>,
    /// Commands still to submit.
    left: u64,
    completed: u64,
    errors: u64,
    latency_ns_max: u64,
}

/// The load of one queue. It submits from its own completions, so interrupts alone keep it going.
#[derive(Default)]
pub struct Load {
    /// The queue reports to the load, and so owns it.
    pair: OnceLock<Weak<QueuePair<SimHal>>>,
    buffer: OnceLock<Arc<<SimHal as Hal>::Dma>>,
    ledger: Mutex<Ledger>,
}

impl Load {
    /// Gives it its queue, and a page that all its commands share, because these drives store no data.
    ///
    /// # Panics
    /// When it has one.
    pub fn attach(&self, pair: &Arc<QueuePair<SimHal>>, buffer: Arc<<SimHal as Hal>::Dma>) {
        assert!(self.pair.set(Arc::downgrade(pair)).is_ok() && self.buffer.set(buffer).is_ok(), "a load has one queue");
    }

    /// Submits `count` commands, never more than `depth` at a time.
    pub fn start(&self, count: u64, depth: u32) {
        self.ledger.lock().expect("one host thread").left += count;
        (0..depth).for_each(|_| self.submit_one());
    }

    fn submit_one(&self) {
        let pair = self.pair.get().and_then(Weak::upgrade).expect("the queue is attached");
        let tag = {
            let mut ledger = self.ledger.lock().expect("one host thread");
            if ledger.left == 0 {
                return;
            }
            ledger.left -= 1;
            ledger.completions.push(0);
            ledger.completions.len() as u64 - 1
        };
        let buffer = self.buffer.get().expect("the queue is attached").device_address();
        let request = IoRequest { tag, op: IoOp::Read, lba: tag % 1024, buffer, len_bytes: 4096 };
        let submitted = pair.submit(&[request]);
        assert_eq!(submitted.accepted, 1, "refused: {:?}", submitted.refused);
    }

    /// True if all started commands have completed.
    pub fn is_done(&self) -> bool {
        let ledger = self.ledger.lock().expect("one host thread");
        ledger.left == 0 && ledger.completed == ledger.completions.len() as u64
    }

    /// Commands submitted, and completions.
    pub fn counts(&self) -> (u64, u64) {
        let ledger = self.ledger.lock().expect("one host thread");
        (ledger.completions.len() as u64, ledger.completed)
    }

    /// The longest from submission to completion since the last look, in ns.
    pub fn take_latency_ns_max(&self) -> u64 {
        std::mem::take(&mut self.ledger.lock().expect("one host thread").latency_ns_max)
    }

    /// Every command completed exactly once, without an error.
    ///
    /// # Panics
    /// When one did not.
    pub fn check(&self) {
        let ledger = self.ledger.lock().expect("one host thread");
        let wrong: Vec<_> = ledger.completions.iter().enumerate().filter(|(_, times)| **times != 1).collect();
        assert!(wrong.is_empty(), "commands that did not complete exactly once, (command, times): {wrong:?}");
        assert_eq!((ledger.left, ledger.errors), (0, 0), "commands never submitted, commands failed");
    }
}

impl BatchDone for Load {
    fn batch_done(&self, batch: &[Completed]) {
        let now_ns = hal::Hal::now_ns(SimHal);
        for completed in batch {
            {
                let mut ledger = self.ledger.lock().expect("one host thread");
                ledger.completions[completed.tag as usize] += 1;
                ledger.completed += 1;
                ledger.errors += u64::from(completed.result.is_err());
                ledger.latency_ns_max = ledger.latency_ns_max.max(now_ns - completed.submitted_ns);
            }
            self.submit_one();
        }
    }
}

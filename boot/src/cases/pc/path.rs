//! Reads in a tight loop, with no other work, for counting instructions.

use super::Fixture;
use crate::arch;
use crate::cases::pci::Bus;
use crate::cases::{Options, count, expect};
use crate::kernel::Bare;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use drivers::message::MessageDomain;
use drivers::nvme::{
    BatchDone, Completed, CompletionLook, Config, Controller, IoOp, IoRequest, QueueConfig, QueuePair,
};
use drivers::pci::{MsixCapability, MsixTable};
use hal::{CpuId, CpuSet, Dma, Hal};
use irq::{AllocRequest, RequestFlags};

const ENTRIES: u16 = 64;
/// Size of a read, the same as Linux's.
const READ_BYTES: u32 = 4096;
/// The reads use this many blocks of that size on the drive.
const BLOCKS: u64 = 1024;
/// Reads before the counted ones.
const WARM_UP: u64 = 64;
/// Logical blocks in one read.
const SECTORS: u64 = 8;

/// Counts completions, and failures among them.
#[derive(Default)]
pub(super) struct Done {
    pub(super) completed: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl BatchDone for Done {
    fn batch_done(&self, batch: &[Completed]) {
        let failed = batch.iter().filter(|completed| completed.result.is_err()).count();
        if failed > 0 {
            self.failed.fetch_add(failed as u64, SeqCst);
        }
        self.completed.fetch_add(batch.len() as u64, SeqCst);
    }
}

/// `rounds` reads between two marks, at most `depth` in flight. A thread submits a read for every free slot with one
/// call, and sleeps until an interrupt has completed some. `check=1`: with the completion look after each submission.
pub(super) fn path(system: &Arc<Fixture>, options: &Options) -> Result<(), String> {
    let (rounds, depth) = (options.number("rounds", 1000)?, options.number("depth", 1)?);
    if !(1..u64::from(ENTRIES)).contains(&depth) {
        return Err(format!("depth={depth}; a queue takes 1 to {}", ENTRIES - 1));
    }
    let bridge = system.platform.pcie.as_ref().ok_or("firmware tells of no PCIe configuration space")?;
    let mut bus = Bus::new(bridge);
    let function = bus.find(crate::cases::nvme::CLASS).ok_or("no NVMe drive on bus 0")?;
    let bar = bus.region(&function, 0)?;
    let controller = Controller::new(Bare, bar, Config::default()).map_err(|error| format!("the drive: {error}"))?;
    let capability = MsixCapability::find(&function.config).map_err(|error| error.to_string())?;
    let table = MsixTable::enable(function.config, bar, capability);
    let messages =
        MessageDomain::new(Bare, table, system.messages(&mut bus, &function)?).map_err(|error| error.to_string())?;
    let done = Arc::new(Done::default());
    let config = QueueConfig { entries: ENTRIES, vector: Some(1), transfer_bytes_max: READ_BYTES };
    let pair = controller.create_queue_pair(config, done.clone()).map_err(|error| error.to_string())?;
    let request = AllocRequest::fixed(function.requester, 1, CpuSet::of(CpuId(0)));
    let line = system
        .core
        .alloc_line(Arc::new(messages), &request, system.message_flow())
        .map_err(|error| error.to_string())?;
    let requested = system.core.request(line, String::from("nvme0q0"), RequestFlags::default(), pair.clone());
    requested.map_err(|error| error.to_string())?;
    pair.set_completion_look(if options.number("check", 0)? == 1 { CompletionLook::On } else { CompletionLook::Off });

    let buffer = Bare.dma_alloc(depth as usize * READ_BYTES as usize, READ_BYTES as usize);
    let buffer = buffer.map_err(|error| format!("buffers: {error}"))?;
    let mut reads = Reads { pair, done, buffer, depth, submitted: 0, requests: Vec::with_capacity(depth as usize) };
    reads.run(WARM_UP)?;
    let before = system.core.count(line, CpuId(0));
    arch::mark();
    reads.run(rounds)?;
    arch::mark();
    count("reads", rounds);
    count("interrupts", system.core.count(line, CpuId(0)) - before);
    count("strays", system.strays());
    expect("failed reads", reads.done.failed.load(SeqCst), 0)?;
    expect("strays", system.strays(), 0)
}

struct Reads {
    pair: Arc<QueuePair<Bare>>,
    done: Arc<Done>,
    buffer: <Bare as Hal>::Dma,
    depth: u64,
    submitted: u64,
    requests: Vec<IoRequest>,
}

impl Reads {
    /// `count` reads, from the first submission to the last completion.
    fn run(&mut self, count: u64) -> Result<(), String> {
        let mut completed = self.submitted;
        let end = completed + count;
        while completed < end {
            self.requests.clear();
            while self.submitted < end.min(completed + self.depth) {
                self.requests.push(IoRequest {
                    tag: self.submitted,
                    op: IoOp::Read,
                    lba: self.submitted * 17 % BLOCKS * SECTORS,
                    buffer: self.buffer.device_address().offset(self.submitted % self.depth * u64::from(READ_BYTES)),
                    len_bytes: READ_BYTES,
                });
                self.submitted += 1;
            }
            let outcome = self.pair.submit(&self.requests);
            if outcome.accepted != self.requests.len() {
                return Err(format!("a read was refused: {:?}", outcome.refused));
            }
            completed = sleep(&self.done, completed);
        }
        Ok(())
    }
}

/// Halts until more than `completed` reads have completed.
fn sleep(done: &Done, completed: u64) -> u64 {
    loop {
        let were_on = metal::interrupts_off();
        let now = done.completed.load(SeqCst);
        if now == completed {
            // The halt turns interrupts on; until then they are off.
            metal::wait_for_interrupt();
        }
        if were_on {
            metal::interrupts_on();
        }
        if now > completed {
            return now;
        }
    }
}

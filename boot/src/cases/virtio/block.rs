//! A block device: data written and read back, first one request at a time, then many on every queue.

use super::{Connect, Found, connect_all, interrupts, text};
use crate::cases::reads::{Reads, Transfer, Written, carry, fill};
use crate::cases::{Fixture, Options, count, expect, settle, wait};
use crate::kernel::Bare;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::virtio::block::{BatchDone, Block, BlockConfig, BlockOp, Completed};
use drivers::virtio::{QueueFault, Rung};
use spin::Once;

/// Entries of a queue.
const ENTRIES: u16 = 128;

/// Receives completions: first of the writes that fill the device, then of each queue's reads.
#[derive(Default)]
struct Ends {
    written: Written,
    reads: Once<Vec<Arc<Reads>>>,
    broken: Once<(u16, QueueFault)>,
}

impl BatchDone for Ends {
    fn batch_done(&self, queue: u16, batch: &[Completed]) {
        match self.reads.get() {
            Some(reads) => batch.iter().for_each(|done| reads[usize::from(queue)].ended(done.tag, done.result)),
            None => batch.iter().for_each(|done| self.written.note(done.result.is_err())),
        }
    }

    fn queue_broken(&self, queue: u16, fault: QueueFault) {
        self.broken.call_once(|| (queue, fault));
    }
}

fn submit(block: &Block<Bare>, queue: u16, op: BlockOp, transfer: Transfer) -> Result<(), String> {
    let submitted = block.submit(queue, &[transfer.virtio(op)]);
    if submitted.accepted == 1 { Ok(()) } else { Err(format!("{:?}", submitted.refused)) }
}

/// Writes known data and reads it back. First come `rounds` reads, one at a time, on queue 0; each must interrupt
/// once. Then come as many over all queues, `depth` in flight, and each completion submits the next. The device must
/// have `queues` queues.
///
/// # Errors
/// The first failure.
pub(in crate::cases) fn block(
    system: &Fixture,
    found: &Found,
    connect: Connect<'_>,
    options: &Options,
) -> Result<(), String> {
    let (rounds, depth) = (options.number("rounds", 1000)?, options.number("depth", 16)?);
    let queues = options.number("queues", 1)? as u16;
    let ends = Arc::new(Ends::default());
    let config = BlockConfig { queues, entries: ENTRIES, ..BlockConfig::default() };
    let block = Block::open(Bare, found.transport.clone(), &config, ends.clone()).map_err(text)?;
    expect("queues", block.queues().into(), queues.into())?;
    let lines = connect_all(system, found, block.vectors(), block.handlers(), connect)?;
    block.start();
    count("queues", block.queues().into());
    count("vectors", lines.len() as u64);
    count("single_interrupt", (block.vectors().rung == Rung::Single).into());
    fill(&ends.written, |transfer| submit(&block, 0, BlockOp::Write, transfer), || ())?;

    let taken = || lines.iter().map(|&line| interrupts(system, line)).sum::<u64>();
    let make = |queue: u16| {
        let reads = Arc::new(Reads::new(depth, queue.into())?);
        let device = block.clone();
        reads.attach(move |transfer| submit(&device, queue, BlockOp::Read, transfer));
        Ok(reads)
    };
    let reads = (0..queues).map(make).collect::<Result<Vec<_>, String>>()?;
    ends.reads.call_once(|| reads.clone());

    crate::println!("begin");
    system.mark();
    let before = taken();
    reads[0].submit_from_thread(true);
    for round in 1..=rounds {
        reads[0].start(1);
        wait("a read", || reads[0].progress().0 == round)?;
    }
    settle(system.platform.cpus())?;
    let one_by_one = taken() - before;
    reads[0].submit_from_thread(false);
    carry(&reads, rounds, || Ok(()))?;
    settle(system.platform.cpus())?;
    system.mark();
    crate::println!("end");

    for (vector, &line) in lines.iter().enumerate() {
        count(&format!("interrupts_vector{vector}"), interrupts(system, line));
    }
    let counters: Vec<_> = (0..queues).filter_map(|queue| block.counters(queue)).collect();
    let sum = |value: fn(&drivers::virtio::block::BlockQueueCounters) -> u64| counters.iter().map(value).sum::<u64>();
    count("reads", reads.iter().map(|reads| reads.progress().0).sum());
    count("interrupts", taken());
    count("interrupts_at_depth_1", one_by_one);
    count("configuration_changes", block.configuration_changes());
    count("strays", system.strays());
    if let Some((queue, fault)) = ends.broken.get() {
        return Err(format!("queue {queue} was broken: {fault:?}"));
    }
    expect("interrupts of reads one by one", one_by_one, rounds)?;
    expect("requests", sum(|queue| queue.requests), crate::cases::reads::BLOCKS + 2 * rounds)?;
    expect("requests completed", sum(|queue| queue.completed), crate::cases::reads::BLOCKS + 2 * rounds)?;
    expect("requests failed", sum(|queue| queue.errors), 0)?;
    expect("strays", system.strays(), 0)?;
    system.check()
}

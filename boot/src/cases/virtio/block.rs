//! A block device: data written and read back, first one request at a time, then many on every queue.

use super::{Connect, Found, connect_all, cpu_of, interrupts, text};
use crate::cases::reads::{Reads, Transfer, Written, carry, fill};
use crate::cases::{Fixture, Options, count, expect, settle, wait};
use crate::kernel::Bare;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::virtio::block::{BatchDone, Block, BlockConfig, BlockOp, Completed};
use drivers::virtio::{QueueFault, Rung, VectorPolicy};
use irq::Irq;
use spec::virtio::block::config;
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
/// have `queues` queues. With `single=1` the driver does not accept several interrupts. With `grow=1` the device then
/// grows to twice its size, and announces that once.
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
    let is_single = options.number("single", 0)? != 0;
    let policy = if is_single { VectorPolicy::Single } else { VectorPolicy::Ladder };
    let config = BlockConfig { queues, entries: ENTRIES, policy };
    let block = Block::open(Bare, found.transport.clone(), &config, ends.clone()).map_err(text)?;
    expect("queues", block.queues().into(), queues.into())?;
    let lines = connect_all(system, found, block.vectors(), block.handlers(), connect)?;
    block.start();
    count("queues", block.queues().into());
    count("lines", lines.len() as u64);
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
    if options.number("grow", 0)? != 0 {
        grow(&block, found)?;
    }

    let counted = Counted { rounds, one_by_one, taken: taken() };
    report(system, &block, &lines, &reads, &counted);
    if let Some((queue, fault)) = ends.broken.get() {
        return Err(format!("queue {queue} was broken: {fault:?}"));
    }
    judge(system, &block, &lines, &counted)
}

/// Figures of a run.
struct Counted {
    rounds: u64,
    /// Interrupts of the reads one by one, and of everything.
    one_by_one: u64,
    taken: u64,
}

fn report(system: &Fixture, block: &Block<Bare>, lines: &[Irq], reads: &[Arc<Reads>], counted: &Counted) {
    for (vector, &line) in lines.iter().enumerate() {
        count(&format!("interrupts_vector{vector}"), interrupts(system, line));
    }
    if block.vectors().rung != Rung::Single {
        count("of_configuration", interrupts(system, lines[0]));
    }
    let done = reads.iter().map(|reads| reads.progress().0).sum();
    count("reads", done);
    count("requests", done);
    count("interrupts", counted.taken);
    count("interrupts_at_depth_1", counted.one_by_one);
    count("configuration_changes", block.configuration_changes());
    count("interrupts_elsewhere", elsewhere(system, block, lines));
    count("strays", system.strays());
}

fn judge(system: &Fixture, block: &Block<Bare>, lines: &[Irq], counted: &Counted) -> Result<(), String> {
    let counters: Vec<_> = (0..block.queues()).filter_map(|queue| block.counters(queue)).collect();
    let sum = |value: fn(&drivers::virtio::block::BlockQueueCounters) -> u64| counters.iter().map(value).sum::<u64>();
    let requests = crate::cases::reads::BLOCKS + 2 * counted.rounds;
    expect("interrupts of reads one by one", counted.one_by_one, counted.rounds)?;
    expect("requests", sum(|queue| queue.requests), requests)?;
    expect("requests completed", sum(|queue| queue.completed), requests)?;
    expect("requests failed", sum(|queue| queue.errors), 0)?;
    expect("interrupts at a CPU of another queue", elsewhere(system, block, lines), 0)?;
    expect("strays", system.strays(), 0)?;
    system.check()
}

/// Interrupts of lines that came at another CPU than that of their first queue.
fn elsewhere(system: &Fixture, block: &Block<Bare>, lines: &[Irq]) -> u64 {
    let away = |(vector, &line)| {
        let own = system.core.count(line, cpu_of(system, block.vectors(), vector));
        interrupts(system, line) - own
    };
    (0..).zip(lines).map(away).sum()
}

/// Lets the program that runs the image double the device's size. The device announces that by one interrupt.
fn grow(block: &Block<Bare>, found: &Found) -> Result<(), String> {
    crate::println!("ready to grow");
    wait("a change of the configuration", || block.configuration_changes() > 0)?;
    let sectors = u64::from(found.transport.config32(config::CAPACITY));
    expect("sectors", sectors, 2 * crate::cases::reads::BLOCKS)?;
    expect("changes of the configuration", block.configuration_changes(), 1)
}

//! Several NVMe drives whose messages all go to one CPU. Their interrupts coincide, so a posting unit needs few
//! notifications for them.

use super::Fixture;
use super::path::Done;
use crate::arch::{self, Registers};
use crate::cases::nvme::{CLASS, submit};
use crate::cases::pci::{Bus, Function};
use crate::cases::reads::{BLOCK_BYTES, BLOCKS, Transfer, Written, fill, pattern};
use crate::cases::{Options, count, expect, settle, wait};
use crate::kernel::Bare;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use drivers::message::MessageDomain;
use drivers::nvme::{CompletionLook, Config, Controller, IoOp, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixTable};
use hal::{CpuId, CpuSet, Dma, Hal, Word};
use irq::{AllocRequest, Irq, RequestFlags};
use spec::msi::msix_entry;

/// Entries of a queue.
const ENTRIES: u16 = 64;
/// The CPU that takes all interrupts.
pub(super) const CPU: CpuId = CpuId(0);
/// The MSI-X vector of a drive's queue.
const VECTOR: u32 = 1;

/// A drive with one queue, and the buffer of its one read.
pub(super) struct Drive {
    pair: Arc<QueuePair<Bare>>,
    done: Arc<Done>,
    buffer: <Bare as Hal>::Dma,
    pub(super) line: Irq,
    /// The entry of the MSI-X table by which its queue interrupts.
    pub(super) entry: (Registers, u32),
}

/// Rounds in which a thread submits a read to every NVMe drive of bus 0 and waits for all of them, then checks their data.
/// Nothing but the count of completions happens in the interrupts. Options: `rounds` (reads of all drives), `hold_ns` (for
/// how long the thread keeps interrupts off after the submissions, so that messages coincide).
pub(super) fn bursts(system: &Arc<Fixture>, options: &Options) -> Result<(), String> {
    let (reads, hold_ns) = (options.number("rounds", 10_000)?, options.number("hold_ns", 0)?);
    let bridge = system.platform.pcie.as_ref().ok_or("firmware tells of no PCIe configuration space")?;
    let mut bus = Bus::new(bridge);
    let functions = bus.all(CLASS);
    let drives = functions.iter().zip(0..).map(|(function, index)| drive(system, &mut bus, function, index));
    let drives = drives.collect::<Result<Vec<_>, String>>()?;
    if drives.is_empty() {
        return Err("no NVMe drive on bus 0".into());
    }
    let rounds = reads.div_ceil(drives.len() as u64);
    let before = system.pc.statistics();
    arch::mark();
    (0..rounds).try_for_each(|round| burst(&drives, round, hold_ns))?;
    arch::mark();
    settle(system.platform.cpus())?;
    let (after, mut interrupts) = (system.pc.statistics(), 0);
    for Drive { pair, line, .. } in &drives {
        interrupts += system.core.count(*line, CPU);
        expect("interrupts on another CPU", interrupts_elsewhere(system, *line), 0)?;
        expect("commands in flight", pair.snapshot().in_flight.into(), 0)?;
        expect("completions told", pair.snapshot().completion.completed, rounds)?;
    }
    count("drives", drives.len() as u64);
    count("reads", rounds * drives.len() as u64);
    count("interrupts", interrupts);
    count("burst_notifications", after.notifications - before.notifications);
    count("burst_vectors", after.vectors - before.vectors);
    count("strays", system.strays());
    expect("strays", system.strays(), 0)?;
    system.check()
}

/// Reads a block from every drive.
pub(super) fn burst(drives: &[Drive], round: u64, hold_ns: u64) -> Result<(), String> {
    let lba = |index: usize| (round * 17 + index as u64) % BLOCKS;
    for (index, Drive { buffer, .. }) in drives.iter().enumerate() {
        buffer.words().iter().zip(0..).for_each(|(word, at)| word.set(!pattern(lba(index), at)));
    }
    let were_on = Bare.irq_save();
    let submitted = drives.iter().enumerate().try_for_each(|(index, Drive { pair, buffer, .. })| {
        submit(pair, IoOp::Read, Transfer { tag: round, lba: lba(index), buffer: buffer.device_address() })
    });
    let end_ns = Bare.now_ns() + hold_ns;
    while hold_ns > 0 && Bare.now_ns() < end_ns {
        core::hint::spin_loop();
    }
    Bare.irq_restore(were_on);
    submitted?;
    wait("the reads of a round", || drives.iter().all(|drive| drive.done.completed.load(SeqCst) > round))?;
    for (index, Drive { buffer, done, .. }) in drives.iter().enumerate() {
        let wrong = buffer.words().iter().zip(0..).filter(|(word, at)| word.get() != pattern(lba(index), *at)).count();
        expect("wrong words in a block", wrong as u64, 0)?;
        expect("completions", done.completed.load(SeqCst), round + 1)?;
        expect("failed reads", done.failed.load(SeqCst), 0)?;
    }
    Ok(())
}

fn interrupts_elsewhere(system: &Fixture, line: Irq) -> u64 {
    (0..system.platform.cpus()).map(CpuId).filter(|&cpu| cpu != CPU).map(|cpu| system.core.count(line, cpu)).sum()
}

/// Brings up a drive, and writes its known blocks.
pub(super) fn drive(system: &Arc<Fixture>, bus: &mut Bus, function: &Function, index: u64) -> Result<Drive, String> {
    let bar = bus.region(function, 0)?;
    let controller =
        Controller::new(Bare, bar, Config::default()).map_err(|error| format!("drive {index}: {error}"))?;
    let capability = MsixCapability::find(&function.config).map_err(|error| error.to_string())?;
    let table = bus.region(function, capability.table_bar)?;
    let entry = (table, capability.table_offset + VECTOR * msix_entry::SIZE);
    let table = MsixTable::enable(function.config, table, capability);
    let messages = MessageDomain::new(Bare, table, system.messages(bus, function)?);
    let messages = Arc::new(messages.map_err(|error| error.to_string())?);
    let written = Arc::new(Written::default());
    let polled = QueueConfig { entries: ENTRIES, vector: None, transfer_bytes_max: 4096 };
    let filler = controller.create_queue_pair(polled, written.clone()).map_err(|error| error.to_string())?;
    fill(&written, |transfer| submit(&filler, IoOp::Write, transfer), || _ = filler.poll(1))?;
    let done = Arc::new(Done::default());
    let config = QueueConfig { vector: Some(VECTOR as u16), ..polled };
    let pair = controller.create_queue_pair(config, done.clone()).map_err(|error| error.to_string())?;
    let buffer = Bare.dma_alloc(BLOCK_BYTES, BLOCK_BYTES).map_err(|error| format!("a buffer: {error}"))?;
    let request = AllocRequest::fixed(function.requester, VECTOR, CpuSet::of(CPU));
    let line = system.core.alloc_line(messages, &request, system.message_flow()).map_err(|error| error.to_string())?;
    let requested = system.core.request(line, format!("nvme{index}q0"), RequestFlags::default(), pair.clone());
    requested.map_err(|error| error.to_string())?;
    pair.set_completion_look(CompletionLook::Off);
    Ok(Drive { pair, done, buffer, line, entry })
}

//! The first and only process of the Linux guest of `campanile boot judges`: it reads NVMe drives from all CPUs and checks
//! every byte, while interrupts move and CPUs go offline and come back. It prints `count NAME VALUE` lines.
//!
//! The kernel passes options that it does not know as environment variables: `drives`, `reads`, `depth`, `moves`, `trips`,
//! and `readers`, the CPUs whose threads read. `stranger=COUNT`: then another function sends so many messages that belong
//! to the first drive; none may arrive, and the drive is read once more.
//!
//! Interrupts of an NVMe drive's queues are managed: the kernel refuses to move them. A drive with a single vector has an
//! ordinary one; one drive is such a drive if there are moves.

mod aio;
mod begin;
mod cpu;
mod drives;
mod interrupts;
mod log;
mod options;
mod stranger;
mod system;

use aio::keep_in_flight;
use begin::begin;
use cpu::bind;
use drives::{BLOCKS, content, open};
use interrupts::{Interrupt, interrupts};
use log::log_lines;
use options::{number, option};
use std::env;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use system::{Outcome, check, mount_at, text};

/// A pass takes a moment; in this time the kernel's own time-out has passed several times.
const LATE: Duration = Duration::from_secs(20);
/// After so many lines of the kernel's log about late completions the disturbances end. Each cost the kernel's time-out.
const LATE_LINES_MAX: usize = 20;
/// In this time a message would have arrived.
const STRANGE: Duration = Duration::from_millis(500);
/// Time between two disturbances.
const PAUSE: Duration = Duration::from_millis(3);

/// The sum over the rows that are `wanted`.
fn sum(rows: &[Interrupt], wanted: impl Fn(&Interrupt) -> bool) -> u64 {
    rows.iter().filter(|row| wanted(row)).map(|row| row.count).sum()
}

/// Counters of the reading threads.
#[derive(Default)]
struct Shared {
    reads: AtomicU64,
    stop: AtomicBool,
    /// A pass took so long that the kernel must have polled for its completions.
    late: AtomicBool,
}

/// Reads a drive again and again, until `count` reads are done and, with `until_stop`, until it is told to stop.
fn read(shared: &Shared, drive: usize, cpu: usize, count: usize, depth: usize, until_stop: bool) -> Outcome<()> {
    bind(cpu)?;
    let disk = open(drive)?;
    let mut done = 0;
    while !shared.late.load(SeqCst) && (done < count || until_stop && !shared.stop.load(SeqCst)) {
        let began = Instant::now();
        keep_in_flight(&disk, BLOCKS, depth, false, |index| content(drive, index))?;
        done += BLOCKS;
        shared.reads.fetch_add(BLOCKS as u64, SeqCst);
        // A busy host can put the guest's clock wrong, so the log decides.
        if began.elapsed() > LATE && !late_lines()?.is_empty() {
            shared.late.store(true, SeqCst);
        }
    }
    Ok(())
}

/// Lines of the kernel's log about reads that completed without an interrupt, or failed.
fn late_lines() -> Outcome<Vec<String>> {
    log_lines(&["timeout, ", "completion polled", "I/O error"])
}

/// Moves the interrupt of the drive with a single vector, and takes CPUs offline and back, preferably the one that has that
/// interrupt. It ends early if too many completions are late.
fn disturb(shared: &Shared, moves: usize, trips: usize, cpus: usize) -> Outcome<()> {
    let rows = interrupts()?;
    // Admin queue and I/O queue share it.
    let row = rows.iter().find(|row| row.queues.len() > 1).ok_or("no drive with a single vector")?;
    let affinity = format!("/proc/irq/{}/smp_affinity_list", row.id);
    let mut trips_done = 0;
    let (mut moved, mut refused) = (0, 0);
    for step in 0..moves.max(trips) {
        if step < moves {
            match fs::write(&affinity, format!("{}", step % cpus)) {
                Ok(()) => moved += 1,
                Err(_) => refused += 1,
            }
            std::thread::sleep(PAUSE);
        }
        if trips_done * moves.max(1) < trips * (step + 1) && trips_done < trips {
            let cpu = match step % cpus {
                0 => 1 + trips_done % (cpus - 1),
                cpu => cpu,
            };
            let online = format!("/sys/devices/system/cpu/cpu{cpu}/online");
            text(&online, fs::write(&online, "0"))?;
            std::thread::sleep(PAUSE);
            text(&online, fs::write(&online, "1"))?;
            trips_done += 1;
            if shared.late.load(SeqCst) || late_lines()?.len() >= LATE_LINES_MAX {
                break;
            }
        }
    }
    println!("count moves {moved}");
    println!("count moves_refused {refused}");
    println!("count offline_trips {trips_done}");
    check("moves were refused", refused * 4 <= moves)
}

/// Lets a stranger send messages of the first drive, whose queues are idle, and reads the drive again.
fn stranger(count: usize) -> Outcome<()> {
    let queues = |rows: &[Interrupt]| sum(rows, |row| !row.queues.is_empty() || row.id == "PMN");
    let before = queues(&interrupts()?);
    stranger::send(count)?;
    std::thread::sleep(STRANGE);
    println!("count stolen {}", queues(&interrupts()?) - before);
    keep_in_flight(&open(0)?, BLOCKS, 4, false, |index| content(0, index))?;
    println!("count reads_after {BLOCKS}");
    Ok(())
}

/// Counts lines by their chain of chips. Only PCI messages may be posted.
fn chips() -> Outcome<()> {
    mount_at(c"debugfs", c"/sys/kernel/debug");
    let (mut posted, mut pins, mut wrong) = (0, 0, 0);
    for entry in text("irqs", fs::read_dir("/sys/kernel/debug/irq/irqs"))? {
        let entry = text("irqs", entry)?;
        let said = fs::read_to_string(entry.path()).unwrap_or_default();
        let chain: Vec<&str> = said.lines().filter_map(|line| Some(line.trim().strip_prefix("chip:")?.trim())).collect();
        let is_posted = chain.iter().any(|chip| chip.contains("POST"));
        let is_pin = chain.iter().any(|chip| chip.contains("IO-APIC") || chip.contains("HPET"));
        posted += u32::from(is_posted);
        pins += u32::from(is_pin && chain.len() > 1);
        wrong += u32::from(is_posted && is_pin);
    }
    println!("count lines_posted {posted}");
    println!("count pins_and_timers_remapped {pins}");
    check("a pin or a timer is posted", wrong == 0)
}

fn run() -> Outcome<()> {
    let (drives, reads, depth) = (number("drives")?, number("reads")?, number("depth")?);
    let (moves, trips, readers) = (number("moves")?, number("trips")?, option("readers")?);
    let readers: Vec<usize> = text("readers", readers.split(',').map(str::parse).collect::<Result<_, _>>())?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    begin(cpus)?;
    for drive in 0..drives {
        let disk = open(drive)?;
        keep_in_flight(&disk, BLOCKS, 16, true, |index| content(drive, index))?;
    }
    chips()?;
    // The kernel names the mode when it has chosen it: "cluster x2apic", "physical flat". A storm's log overwrites this.
    let modes = log_lines(&["Switched APIC routing to"])?;
    println!("count x2apic {}", u8::from(modes.last().is_some_and(|line| line.contains("x2apic"))));
    let before = interrupts()?;
    let shared = Shared::default();
    let is_disturbed = moves + trips > 0;
    let share = reads.div_ceil(drives * readers.len());
    std::thread::scope(|scope| {
        let spawn = |(drive, cpu)| {
            let shared = &shared;
            scope.spawn(move || read(shared, drive, cpu, share, depth, is_disturbed))
        };
        let pairs = (0..drives).flat_map(|drive| readers.iter().map(move |&cpu| (drive, cpu)));
        let threads: Vec<_> = pairs.map(spawn).collect();
        let disturbed = if is_disturbed { disturb(&shared, moves, trips, cpus) } else { Ok(()) };
        shared.stop.store(true, SeqCst);
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ended.collect::<Vec<_>>().into_iter().fold(disturbed, |all, one| all.and(one))
    })?;
    let after = interrupts()?;
    let taken = |wanted: &dyn Fn(&Interrupt) -> bool| sum(&after, wanted) - sum(&before, wanted);
    println!("count reads {}", shared.reads.load(SeqCst));
    println!("count interrupts {}", taken(&|row| !row.queues.is_empty()));
    println!("count notifications_taken {}", taken(&|row| row.id == "PMN"));
    println!("count errors {}", taken(&|row| row.id == "ERR" || row.id == "MIS"));
    let strange = env::var("stranger").map_or(Ok(0), |count| text("stranger", count.parse()))?;
    if strange > 0 {
        stranger(strange)?;
    }
    let strays = log_lines(&["No irq handler", "nobody cared"])?;
    let late = late_lines()?;
    let faults = log_lines(&["[INTR-REMAP]", "fault reason"])?;
    println!("count strays {}", strays.len());
    println!("count late_reads {}", late.len());
    println!("count faults {}", faults.len());
    strays.iter().chain(&late).chain(&faults).take(5).for_each(|line| println!("kernel: {line}"));
    check("the kernel polled for a completion, or a read failed", late.is_empty())?;
    check("the remapping unit refused a message", strange > 0 || faults.is_empty())
}

fn main() {
    system::run(run);
}

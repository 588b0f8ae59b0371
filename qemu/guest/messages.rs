//! Two drives of a guest on arm64 by messages: the first is read from all CPUs, undisturbed, between two marks in QEMU's
//! trace; then the interrupt of the second moves from CPU to CPU while that drive is read.
//!
//! Linux manages the vectors of a drive with several queues and refuses to move them. The second drive has a single vector,
//! which is an ordinary interrupt.

use crate::aio::keep_in_flight;
use crate::cpu;
use crate::drives::{BLOCKS, content, open};
use crate::interrupts::{Interrupt, interrupts};
use crate::options::number;
use crate::system::{Outcome, check, text};
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::raw::{c_int, c_long, c_void};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

unsafe extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, access: c_int, flags: c_int, file: c_int, offset: c_long) -> *mut c_void;
}

/// The distributor of QEMU's `virt`.
const DISTRIBUTOR: c_long = 0x0800_0000;
const PAGE: usize = 4096;
const PROT_READ: c_int = 1;
const MAP_SHARED: c_int = 1;
/// Makes a mapping of /dev/mem that of a device.
const O_SYNC: i32 = 0o4_010_000;

/// Time between two moves.
const PAUSE: Duration = Duration::from_millis(3);

/// Marks the begin or the end of the steady state: reads the distributor's register at this offset. The kernel must run
/// with `iomem=relaxed`.
fn mark(register: usize) -> Outcome<()> {
    let memory = text("/dev/mem", OpenOptions::new().read(true).custom_flags(O_SYNC).open("/dev/mem"))?;
    // SAFETY: a new mapping; the kernel chooses its address.
    let page = unsafe {
        let at = DISTRIBUTOR + (register - register % PAGE) as c_long;
        mmap(std::ptr::null_mut(), PAGE, PROT_READ, MAP_SHARED, memory.as_raw_fd(), at)
    } as usize;
    check("the distributor cannot be mapped", page != usize::MAX)?;
    let register = (page + register % PAGE) as *const u32;
    // SAFETY: the register lies in the mapping, which stays; reading it changes nothing.
    unsafe { register.read_volatile() };
    Ok(())
}

/// The interrupts of the drives' queues.
fn of_queues() -> Outcome<Vec<Interrupt>> {
    Ok(interrupts()?.into_iter().filter(|row| !row.queues.is_empty()).collect())
}

fn total() -> Outcome<u64> {
    Ok(of_queues()?.iter().map(|interrupt| interrupt.count).sum())
}

/// Reads a drive in passes on one CPU, until `count` reads are done.
fn read(drive: usize, cpu: usize, count: usize, depth: usize) -> Outcome<usize> {
    cpu::bind(cpu)?;
    let disk = open(drive)?;
    let mut done = 0;
    while done < count {
        keep_in_flight(&disk, BLOCKS, depth, false, |index| content(drive, index))?;
        done += BLOCKS;
    }
    Ok(done)
}

/// The undisturbed reads, shared by all CPUs; their number.
fn steady(drive: usize, reads: usize, depth: usize, cpus: usize) -> Outcome<usize> {
    let register = number("mark")?;
    let before = total()?;
    mark(register)?;
    let done = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..cpus).map(|cpu| scope.spawn(move || read(drive, cpu, reads.div_ceil(cpus), depth))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        // All are joined before the first error is returned.
        ended.collect::<Vec<_>>().into_iter().sum::<Outcome<usize>>()
    })?;
    mark(register)?;
    println!("count calm_interrupts {}", total()? - before);
    Ok(done)
}

/// Moves an interrupt, each time to another CPU, while its drive is read; the number of reads.
fn moves(drive: usize, id: &str, moves: usize, cpus: usize) -> Outcome<usize> {
    let effective = format!("/proc/irq/{id}/effective_affinity_list");
    let first: usize = text(&effective, text(&effective, fs::read_to_string(&effective))?.trim().parse())?;
    let stop = AtomicBool::new(false);
    let reads = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut done = 0;
            while !stop.load(SeqCst) {
                done += read(drive, 0, BLOCKS, 1)?;
            }
            Ok::<_, String>(done)
        });
        let affinity = format!("/proc/irq/{id}/smp_affinity_list");
        let moved = (1..=moves).try_for_each(|step| {
            thread::sleep(PAUSE);
            text(&affinity, fs::write(&affinity, format!("{}", (first + step) % cpus)))
        });
        stop.store(true, SeqCst);
        let done = reader.join().unwrap_or_else(|_| Err("the reads panicked".into()));
        moved.and(done)
    })?;
    println!("count moves {moves}");
    Ok(reads)
}

/// Reads both drives: `reads` of the first, and the second during `moves`.
pub(crate) fn messages() -> Outcome<()> {
    let (reads, depth, moves_wanted) = (number("reads")?, number("depth")?, number("moves")?);
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    for drive in 0..2 {
        keep_in_flight(&open(drive)?, BLOCKS, 16, true, |index| content(drive, index))?;
    }
    let rows = of_queues()?;
    // Its admin queue and its I/O queue share the vector.
    let single = rows.iter().find(|row| row.queues.len() > 1).ok_or("no drive has a single vector")?;
    let drive = usize::from(single.queues[0].starts_with("nvme1"));
    let calm = steady(1 - drive, reads, depth, cpus)?;
    let moved = moves(drive, &single.id, moves_wanted, cpus)?;
    println!("count reads {}", calm + moved);
    println!("count interrupts {}", total()?);
    Ok(())
}

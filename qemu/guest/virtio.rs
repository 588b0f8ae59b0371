//! The first and only process of the Linux guest that judges virtio: it uses one device from all CPUs, checks every byte,
//! and counts the device's interrupts by queue and CPU. It prints `count NAME VALUE` lines.
//!
//! The kernel passes options that it does not know as environment variables: `device` (`blk` or `net`), `requests` of all
//! CPUs together, `depth` in flight of each CPU, and `end=restart` where the machine cannot be powered off.
//!
//! `blk` reads the drive, which then grows to twice its size. `net` sends ICMP echo requests to an address of the host for each CPU; the host's kernel answers.

mod aio;
mod begin;
mod cpu;
mod log;
mod options;
mod ping;
mod system;

use aio::{BLOCK, Page, keep_in_flight};
use begin::begin;
use cpu::bind;
use log::log_lines;
use options::{number, option};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use system::{Outcome, check, open_disk, text};

const DISK: &str = "/dev/vda";
/// Blocks of the drive that are used, read in passes.
const BLOCKS: usize = 64;

/// What a block of the drive holds.
fn content(index: usize) -> Page {
    let mut page = [0; BLOCK];
    for (at, bytes) in page.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&((index << 16 | at) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    Page(page)
}

/// Reads in passes until `count` are done; their number.
fn read(cpu: usize, count: usize, depth: usize) -> Outcome<usize> {
    bind(cpu)?;
    let disk = open_disk(DISK)?;
    let mut done = 0;
    while done < count {
        keep_in_flight(&disk, BLOCKS, depth, false, content)?;
        done += BLOCKS;
    }
    Ok(done)
}

/// The drive's size, in sectors of 512 bytes, as the kernel knows it.
fn sectors() -> Outcome<u64> {
    let path = "/sys/block/vda/size";
    text(path, text(path, fs::read_to_string(path))?.trim().parse())
}

/// Lets the program that runs the guest double the drive's size, and waits until the kernel knows of it.
fn grow() -> Outcome<()> {
    let before = sectors()?;
    println!("ready to grow");
    let deadline = Instant::now() + Duration::from_secs(20);
    while sectors()? != 2 * before {
        check("the kernel has not heard in 20 s that the drive grew", Instant::now() < deadline)?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// An interrupt of the device: a row of /proc/interrupts.
struct Interrupt {
    /// The driver's name for it.
    name: String,
    by_cpu: Vec<u64>,
}

impl Interrupt {
    fn count(&self) -> u64 {
        self.by_cpu.iter().sum()
    }

    /// The number of the queue that has this vector for itself: `virtio0-req.3`, `virtio0-input.3`, `virtio0-output.3`.
    fn queue(&self) -> Option<usize> {
        let (_, queue) = self.name.split_once('-')?;
        queue.split_once('.')?.1.parse().ok()
    }
}

fn interrupts(cpus: usize) -> Outcome<Vec<Interrupt>> {
    let table = text("/proc/interrupts", fs::read_to_string("/proc/interrupts"))?;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.last().filter(|name| name.starts_with("virtio"))?;
        let by_cpu = words.get(1..=cpus)?.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Interrupt { name: (*name).to_owned(), by_cpu })
    };
    Ok(table.lines().skip(1).filter_map(row).collect())
}

/// The CPUs whose requests take a queue of the device.
fn cpus_of(device: &str, queue: usize) -> Outcome<Vec<usize>> {
    if device == "net" {
        // virtio-net has a pair of queues for each CPU.
        return Ok(vec![queue]);
    }
    let path = format!("/sys/block/vda/mq/{queue}/cpu_list");
    let list = text(&path, fs::read_to_string(&path))?;
    text(&path, list.trim().split(", ").map(str::parse).collect::<Result<_, _>>())
}

/// Prints the counts of the device's interrupts.
fn report(device: &str, interrupts: &[Interrupt], cpus: usize) -> Outcome<()> {
    let (mut at_own_cpu, mut of_queues, mut silent) = (0, 0, 0);
    for interrupt in interrupts {
        println!("{:20} {:?}", interrupt.name, interrupt.by_cpu);
        if let Some(queue) = interrupt.queue() {
            of_queues += interrupt.count();
            silent += u32::from(interrupt.count() == 0);
            at_own_cpu += cpus_of(device, queue)?.iter().map(|&cpu| interrupt.by_cpu[cpu]).sum::<u64>();
        }
    }
    println!("count lines {}", interrupts.len());
    println!("count interrupts {}", interrupts.iter().map(Interrupt::count).sum::<u64>());
    println!("count of_queues {of_queues}");
    let of_configuration = interrupts.iter().filter(|interrupt| interrupt.name.ends_with("-config"));
    println!("count of_configuration {}", of_configuration.map(Interrupt::count).sum::<u64>());
    println!("count at_own_cpu {at_own_cpu}");
    println!("count silent_queues {silent}");
    for cpu in 0..cpus {
        println!("count cpu{cpu} {}", interrupts.iter().map(|interrupt| interrupt.by_cpu[cpu]).sum::<u64>());
    }
    Ok(())
}

fn run() -> Outcome<()> {
    let (device, requests, depth) = (option("device")?, number("requests")?, number("depth")?);
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    begin(cpus)?;
    match &device[..] {
        "blk" => keep_in_flight(&open_disk(DISK)?, BLOCKS, 16, true, content)?,
        "net" => ping::prepare()?,
        _ => return Err(format!("device={device} is neither blk nor net")),
    }
    let share = requests.div_ceil(cpus);
    let work = |cpu| match &device[..] {
        "blk" => read(cpu, share, depth),
        _ => bind(cpu).and_then(|()| ping::ping(cpu, share, depth)),
    };
    let done = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || work(cpu))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        // All are joined before the first error is returned.
        ended.collect::<Vec<_>>().into_iter().sum::<Outcome<usize>>()
    })?;
    println!("count requests {done}");
    if device == "blk" {
        grow()?;
    }
    report(&device, &interrupts(cpus)?, cpus)?;
    // "is not a head": the device completed a request that it did not have.
    let lines = log_lines(&["is not a head", "No irq handler", "nobody cared", "I/O error", "timed out"])?;
    println!("count complaints {}", lines.len());
    lines.iter().take(5).for_each(|line| println!("kernel: {line}"));
    Ok(())
}

fn main() {
    system::run(run);
}

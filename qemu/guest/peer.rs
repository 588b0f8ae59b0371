//! The first and only process of a Linux guest that does the same work as a case of `boot/`, so that the kernel's
//! interrupts can be counted beside ours. `campanile boot` counts; this process drives the device and prints `count
//! NAME VALUE` lines.
//!
//! The kernel passes options that it does not know as environment variables: `case`, and the arguments of that case.

mod aio;
mod cpu;
mod drive;
mod drives;
mod interrupts;
mod messages;
mod options;
mod system;

use aio::{BLOCK, Page, keep_in_flight};
use drive::{disk, queue_interrupts};
use options::{number, option};
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::raw::{c_int, c_ulong};
use system::{Outcome, check, text};

unsafe extern "C" {
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

const TCGETS: c_ulong = 0x5401;
const TCSETS: c_ulong = 0x5402;

/// Uncounted reads before the counted ones.
const WARM_UP: usize = 64;

/// The `struct termios` of Linux's asm-generic/termbits.h.
#[repr(C)]
#[derive(Default)]
struct Terminal {
    input: u32,
    output: u32,
    control: u32,
    local: u32,
    line: u8,
    characters: [u8; 19],
}

/// Interrupts so far of the line that a driver has requested under this name.
fn interrupts_of(name: &str) -> Outcome<u64> {
    let table = text("/proc/interrupts", fs::read_to_string("/proc/interrupts"))?;
    let line = table.lines().find(|line| line.ends_with(name)).ok_or_else(|| format!("no interrupt of {name}"))?;
    Ok(line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum())
}

/// Reads `rounds` typed bytes, one at a time: the next is requested when the last has arrived.
fn serial() -> Outcome<()> {
    let rounds = number("rounds")?;
    let mut console = text("the UART", OpenOptions::new().read(true).write(true).open("/dev/ttyAMA0"))?;
    let mut terminal = Terminal::default();
    // SAFETY: the structure has the kernel's layout and is alive.
    check("TCGETS", unsafe { ioctl(console.as_raw_fd(), TCGETS, &mut terminal) } == 0)?;
    // Bytes are delivered as they arrive, without echo.
    (terminal.input, terminal.local) = (0, 0);
    // SAFETY: as above.
    check("TCSETS", unsafe { ioctl(console.as_raw_fd(), TCSETS, &mut terminal) } == 0)?;
    let mut byte = [0];
    for _ in 0..rounds {
        println!("ready for a byte");
        text("the UART", console.read_exact(&mut byte))?;
    }
    println!("count received {rounds}");
    println!("count interrupts {}", interrupts_of("uart-pl011")?);
    Ok(())
}

/// Has the judges' kernel raise an unused interrupt `rounds` times, each time after its handler has run.
fn raise() -> Outcome<()> {
    let rounds = number("rounds")?;
    let file = "/sys/module/irq_raise/parameters/rounds";
    text(file, fs::write(file, rounds.to_string()))?;
    // The same number of characters in every run: the UART's own interrupts must not differ.
    println!("count interrupts {:06}", interrupts_of("irq-raise")?);
    Ok(())
}

/// Reads the drive. `loads` lists the reads in flight and the total reads of each load, as in `1:1000,32:1000`. Before
/// the reads it prints the address range of each kernel function that `symbols` names, as `symbol NAME FIRST END`; END
/// is the first address behind the function.
fn nvme() -> Outcome<()> {
    symbols(&option("symbols")?)?;
    let disk = disk()?;
    for load in option("loads")?.split(',') {
        let (depth, rounds) = load.split_once(':').ok_or_else(|| format!("{load} is no DEPTH:READS"))?;
        let rounds = text(rounds, rounds.parse())?;
        let depth_number = text(depth, depth.parse())?;
        keep_in_flight(&disk, WARM_UP, depth_number, false, |_| Page([0; BLOCK]))?;
        let before = queue_interrupts()?.0;
        mark();
        keep_in_flight(&disk, rounds, depth_number, false, |_| Page([0; BLOCK]))?;
        mark();
        println!("count reads_{depth} {rounds}");
        println!("count interrupts_{depth} {}", queue_interrupts()?.0 - before);
    }
    Ok(())
}

/// Begins or ends a span that `qemu/plugin/count.rs` counts.
fn mark() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a NOPL, which does nothing.
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1f, 0x80, 0x50, 0x4d, 0x41, 0x43", options(nomem, nostack, preserves_flags));
    }
}

fn symbols(names: &str) -> Outcome<()> {
    let table = text("/proc/kallsyms", fs::read_to_string("/proc/kallsyms"))?;
    let symbol = |line| {
        let mut words = str::split_whitespace(line);
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        Some((u64::from_str_radix(address, 16).ok()?, name))
    };
    let mut all: Vec<_> = table.lines().filter_map(symbol).collect();
    all.sort_unstable();
    for name in names.split(',') {
        let known = all.iter().find(|(_, known)| *known == name);
        let (first, _) = known.ok_or_else(|| format!("the kernel has no {name}"))?;
        let end = all.iter().map(|(address, _)| address).find(|address| *address > first).unwrap_or(&u64::MAX);
        println!("symbol {name} {first:x} {end:x}");
    }
    Ok(())
}

fn run() -> Outcome<()> {
    match option("case")?.as_str() {
        "serial" => serial(),
        "raise" => raise(),
        "nvme" => nvme(),
        "messages" => messages::messages(),
        other => Err(format!("no case {other:?}; there are serial, raise, nvme and messages")),
    }
}

fn main() {
    system::run(run);
}

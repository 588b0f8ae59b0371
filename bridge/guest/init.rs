//! The first and only process of the test guest: drives the kernel's own NVMe driver on the served drive, and prints
//! what it finds, a line each. Built alone and static (scripts/test-bridge), so that the initrd is this one file.
//!
//! It ends with `guest: passed` or with what failed, and powers the machine off.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::raw::{c_char, c_int, c_long, c_ulong, c_void};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn mount(source: *const c_char, at: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void) -> c_int;
    fn reboot(command: c_int) -> c_int;
    fn sync();
}

// Linux on x86_64.
const IO_SETUP: c_long = 206;
const IO_DESTROY: c_long = 207;
const IO_GETEVENTS: c_long = 208;
const IO_SUBMIT: c_long = 209;
const O_DIRECT: i32 = 0o40000;
const NVME_IOCTL_ADMIN_CMD: c_ulong = 0xc048_4e41;
const NVME_IOCTL_RESET: c_ulong = 0x4e44;
const BLKFLSBUF: c_ulong = 0x1261;
const POWER_OFF: c_int = 0x4321_fedc;

const BLOCK: usize = 4096;
/// I/Os of one measurement.
const IOS: usize = 1024;

type Outcome<T> = Result<T, String>;

fn text<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

fn check(what: &str, right: bool) -> Outcome<()> {
    if right { Ok(()) } else { Err(what.into()) }
}

/// Neighbours in time are not neighbours on the disk: the kernel would make one command of them. Odd, so that with a
/// power of two of I/Os each block is met once.
const STRIDE: usize = 17;

/// Memory that O_DIRECT takes.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; BLOCK]);

/// The `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    reqprio: i16,
    fd: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// The `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

/// The `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

/// An admin command through the kernel: dword 0 of its completion.
fn admin(opcode: u8, cdw10: u32, cdw11: u32) -> Outcome<u32> {
    let controller = text("/dev/nvme0", File::open("/dev/nvme0"))?;
    let mut command = AdminCommand { opcode, cdw10, cdw11, ..AdminCommand::default() };
    // SAFETY: the structure is the kernel's, and lives during the call.
    let status = unsafe { ioctl(controller.as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &mut command) };
    check(&format!("admin command {opcode:#x} {cdw10:#x}: status {status:#x}"), status == 0)?;
    Ok(command.result)
}

/// Interrupts of the drive's I/O queues so far, and how many of its lines there are.
fn interrupts() -> Outcome<(u64, usize)> {
    let table = text("/proc/interrupts", fs::read_to_string("/proc/interrupts"))?;
    let queue = |line: &&str| {
        line.rsplit(' ').next().is_some_and(|name| name.starts_with("nvme0q") && name != "nvme0q0")
    };
    let counts = |line: &str| -> u64 { line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum() };
    let lines: Vec<_> = table.lines().filter(queue).collect();
    Ok((lines.iter().map(|line| counts(line)).sum(), lines.len()))
}

fn disk() -> Outcome<File> {
    let path = Path::new("/dev/nvme0n1");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        check("/dev/nvme0n1 has not come in 20 s", Instant::now() < deadline)?;
        std::thread::sleep(Duration::from_millis(10));
    }
    text("/dev/nvme0n1", OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path))
}

/// `IOS` I/Os with `depth` in flight: reads, each checked against `expected`; or writes of that.
fn keep_in_flight(disk: &File, depth: usize, write: bool, expected: impl Fn(usize) -> Page) -> Outcome<()> {
    let mut context: u64 = 0;
    // SAFETY: as io_setup(2) says: a context of 0 to be filled in.
    let made = unsafe { syscall(IO_SETUP, depth as c_long, &mut context) };
    check("io_setup", made == 0)?;
    let mut pages = vec![Page([0; BLOCK]); depth];
    let mut block_of = vec![0; depth];
    let (mut next, mut done) = (0, 0);
    let mut free: Vec<usize> = (0..depth).collect();
    while done < IOS {
        let mut batch = Vec::new();
        while next < IOS
            && let Some(slot) = free.pop()
        {
            block_of[slot] = next;
            if write {
                pages[slot] = expected(next);
            }
            batch.push(Iocb {
                data: slot as u64,
                opcode: u16::from(write),
                fd: disk.as_raw_fd() as u32,
                buf: pages[slot].0.as_ptr() as u64,
                nbytes: BLOCK as u64,
                offset: (next * STRIDE % IOS * BLOCK) as i64,
                ..Iocb::default()
            });
            next += 1;
        }
        let pointers: Vec<*const Iocb> = batch.iter().map(|iocb| &raw const *iocb).collect();
        if !pointers.is_empty() {
            // SAFETY: the blocks and the pages that they name live until their events have come.
            let taken = unsafe { syscall(IO_SUBMIT, context, pointers.len() as c_long, pointers.as_ptr()) };
            check(&format!("io_submit took {taken} of {}", pointers.len()), taken == pointers.len() as c_long)?;
        }
        let mut events = vec![IoEvent::default(); depth];
        // SAFETY: room for `depth` events, no time limit.
        let got = unsafe {
            syscall(IO_GETEVENTS, context, 1 as c_long, depth as c_long, events.as_mut_ptr(), std::ptr::null::<c_void>())
        };
        check(&format!("io_getevents: {got}"), got > 0)?;
        for event in &events[..got as usize] {
            let slot = event.data as usize;
            check(&format!("block {}: {}", block_of[slot], event.res), event.res == BLOCK as i64)?;
            if !write {
                let right = pages[slot].0 == expected(block_of[slot]).0;
                check(&format!("block {} holds other bytes", block_of[slot]), right)?;
            }
            free.push(slot);
        }
        done += got as usize;
    }
    // SAFETY: nothing is in flight.
    unsafe { syscall(IO_DESTROY, context) };
    Ok(())
}

/// What block `index` holds in generation `generation`: no two are alike.
fn content(generation: u64, index: usize) -> Page {
    let mut state = (generation << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut page = Page([0; BLOCK]);
    for word in page.0.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    page
}

/// Reads at `depth`, verified, with the interrupts that they took.
fn measure(disk: &File, name: &str, depth: usize, generation: u64) -> Outcome<()> {
    let (before, _) = interrupts()?;
    keep_in_flight(disk, depth, false, |index| content(generation, index))?;
    let taken = interrupts()?.0 - before;
    println!("guest: {name} qd {depth}: {IOS} reads, {taken} interrupts, {:.4} per I/O", taken as f64 / IOS as f64);
    Ok(())
}

fn buffered(generation: u64) -> Outcome<()> {
    let mut disk = text("open", OpenOptions::new().read(true).write(true).open("/dev/nvme0n1"))?;
    text("seek", disk.seek(SeekFrom::Start(16 << 20)))?;
    let bytes: Vec<u8> = (0..1024).flat_map(|index| content(generation, index).0).collect();
    text("write", disk.write_all(&bytes))?;
    text("fsync", disk.sync_all())?;
    // SAFETY: no argument.
    check("BLKFLSBUF", unsafe { ioctl(disk.as_raw_fd(), BLKFLSBUF, 0) } == 0)?;
    let mut read = vec![0; bytes.len()];
    text("read", disk.read_exact_at(&mut read, 16 << 20))?;
    check("4 MiB through the page cache came back changed", read == bytes)
}

fn wait_for_queues(what: &str) -> Outcome<usize> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (_, lines) = interrupts()?;
        if lines > 0 {
            return Ok(lines);
        }
        check(&format!("no I/O queue 20 s after {what}"), Instant::now() < deadline)?;
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn unplug(disk: File) -> Outcome<()> {
    drop(disk);
    println!("guest: unplug me");
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new("/dev/nvme0n1").exists() {
        check("the drive is still there 20 s after it was unplugged", Instant::now() < deadline)?;
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("guest: unplugged");
    Ok(())
}

fn run() -> Outcome<()> {
    let disk_file = disk()?;
    let queues = wait_for_queues("boot")?;
    let model = text("model", fs::read_to_string("/sys/class/nvme/nvme0/model"))?;
    println!("guest: {} with {queues} I/O queues", model.trim());
    check("the model is not ours", model.starts_with("Campanile"))?;

    keep_in_flight(&disk_file, 32, true, |index| content(1, index))?;
    measure(&disk_file, "coalescing off", 1, 1)?;
    measure(&disk_file, "coalescing off", 32, 1)?;
    // Feature 08h: time 255 x 100 us, threshold 7: eight entries a message.
    admin(0x09, 0x08, 255 << 8 | 7)?;
    let set = admin(0x0a, 0x08, 0)?;
    check(&format!("feature 08h reads {set:#x}"), set == 255 << 8 | 7)?;
    measure(&disk_file, "coalescing on", 32, 1)?;
    admin(0x09, 0x08, 0)?;
    measure(&disk_file, "coalescing off again", 1, 1)?;

    buffered(2)?;
    println!("guest: 4 MiB written, flushed and read back through the page cache");

    let controller = text("/dev/nvme0", File::open("/dev/nvme0"))?;
    // SAFETY: no argument.
    let reset = unsafe { ioctl(controller.as_raw_fd(), NVME_IOCTL_RESET, 0) };
    check(&format!("controller reset: {reset}"), reset == 0)?;
    wait_for_queues("the reset")?;
    keep_in_flight(&disk_file, 32, false, |index| content(1, index))?;
    println!("guest: controller reset; every block as before");
    drop(controller);
    unplug(disk_file)
}

fn mount_all() {
    for (kind, at) in [(c"devtmpfs", c"/dev"), (c"proc", c"/proc"), (c"sysfs", c"/sys")] {
        _ = fs::create_dir(at.to_str().expect("ASCII"));
        // SAFETY: strings that end with a zero; these file systems take no data.
        unsafe { mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    }
}

fn main() {
    mount_all();
    match run() {
        Ok(()) => println!("guest: passed"),
        Err(why) => println!("guest: FAILED: {why}"),
    }
    // SAFETY: nothing is open that matters; the first process may power the machine off.
    unsafe {
        sync();
        reboot(POWER_OFF);
    }
}

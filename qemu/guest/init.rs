//! The first and only process of the test guest. It drives the kernel's own NVMe driver on the served drive, and
//! prints its findings, one per line. It is built alone and static (scripts/guest-initrd), so that the initrd is this
//! one file.
//!
//! Its last line is `guest: passed` or the failure. Then it powers the machine off.

mod aio;
mod drive;
mod system;

use aio::{BLOCK, Page, keep_in_flight};
use drive::{disk, queue_interrupts};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::raw::{c_int, c_ulong};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use system::{Outcome, check, text};

unsafe extern "C" {
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

const NVME_IOCTL_ADMIN_CMD: c_ulong = 0xc048_4e41;
const NVME_IOCTL_RESET: c_ulong = 0x4e44;
const BLKFLSBUF: c_ulong = 0x1261;

/// Completion entries per message while coalescing is on.
const ENTRIES: u64 = 8;
/// I/Os of one measurement.
const IOS: usize = 1024;

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

/// Sends an admin command through the kernel; returns dword 0 of its completion.
fn admin(opcode: u8, cdw10: u32, cdw11: u32) -> Outcome<u32> {
    let controller = text("/dev/nvme0", File::open("/dev/nvme0"))?;
    let mut command = AdminCommand { opcode, cdw10, cdw11, ..AdminCommand::default() };
    // SAFETY: the structure has the kernel's layout and lives during the call.
    let status = unsafe { ioctl(controller.as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &mut command) };
    check(&format!("admin command {opcode:#x} {cdw10:#x}: status {status:#x}"), status == 0)?;
    Ok(command.result)
}

/// The content of block `index` in generation `generation`. No two blocks are alike.
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

/// Reads at `depth` and verifies the data. Returns the number of interrupts taken.
fn measure(disk: &File, name: &str, depth: usize, generation: u64) -> Outcome<u64> {
    let (before, _) = queue_interrupts()?;
    keep_in_flight(disk, IOS, depth, false, |index| content(generation, index))?;
    let taken = queue_interrupts()?.0 - before;
    println!("guest: {name} qd {depth}: {IOS} reads, {taken} interrupts, {:.4} per I/O", taken as f64 / IOS as f64);
    Ok(taken)
}

/// Reads with `ENTRIES` entries per message. If the host is so busy that QEMU does not run between two messages, the
/// two become one interrupt. There are never more interrupts than messages, so the measurement with the most
/// interrupts counts.
fn measure_coalesced(disk: &File, name: &str) -> Outcome<()> {
    for _ in 0..5 {
        if measure(disk, name, 32, 1)? * ENTRIES * 100 >= 95 * IOS as u64 {
            break;
        }
    }
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
        let (_, lines) = queue_interrupts()?;
        if lines > 0 {
            return Ok(lines);
        }
        check(&format!("no I/O queue 20 s after {what}"), Instant::now() < deadline)?;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sets a feature and reads it back, which must agree.
fn set_feature(id: u32, value: u32, get: u32) -> Outcome<()> {
    admin(0x09, id, value)?;
    let is = admin(0x0a, id, get)?;
    check(&format!("feature {id:#x} was set to {value:#x} and reads {is:#x}"), is == value)
}

/// Measures interrupts per I/O with coalescing off and on, on a drive that reports its coalescing.
fn coalescing(disk: &File) -> Outcome<()> {
    measure(disk, "coalescing off", 1, 1)?;
    measure(disk, "coalescing off", 32, 1)?;
    // Feature 08h: time 255 x 100 us; the threshold is 0's based.
    set_feature(0x08, 255 << 8 | (ENTRIES as u32 - 1), 0)?;
    measure_coalesced(disk, "coalescing on")?;
    // Feature 09h of vector 1: coalescing disabled.
    set_feature(0x09, 1 << 16 | 1, 1)?;
    measure(disk, "coalescing on, not for vector 1,", 32, 1)?;
    set_feature(0x09, 1, 1)?;
    set_feature(0x08, 0, 0)?;
    measure(disk, "coalescing off again", 1, 1).map(drop)
}

/// Measures the same on a drive that coalesces but reports that it does not.
fn hidden_coalescing(disk: &File) -> Outcome<()> {
    let said = admin(0x0a, 0x08, 0)?;
    check(&format!("feature 08h reads {said:#x} on a drive that coalesces without declaring it"), said == 0)?;
    measure_coalesced(disk, "hidden coalescing")
}

/// Unbinds the drive from its driver, which deletes the queues, and binds it again.
fn rebind(open: File) -> Outcome<File> {
    drop(open);
    let device = text("the drive's device", fs::canonicalize("/sys/class/nvme/nvme0/device"))?;
    let name = device.file_name().and_then(|name| name.to_str()).ok_or("the drive's device has no name")?;
    text("unbind", fs::write("/sys/bus/pci/drivers/nvme/unbind", name))?;
    check("the drive is still there without a driver", !Path::new("/dev/nvme0n1").exists())?;
    text("bind", fs::write("/sys/bus/pci/drivers/nvme/bind", name))?;
    let disk = disk()?;
    wait_for_queues("the driver came back")?;
    Ok(disk)
}

/// Deletes the only I/O queue without the driver's knowledge, while reads are in flight. The driver's timeout must
/// notice the hanging reads, reset the controller and read again.
fn delete_under_io(disk: &File) -> Outcome<()> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let timeout = "/sys/block/nvme0n1/queue/io_timeout";
    let before = text(timeout, fs::read_to_string(timeout))?;
    text(timeout, fs::write(timeout, TIMEOUT.as_millis().to_string()))?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| keep_in_flight(disk, IOS, 32, false, |index| content(1, index)));
        std::thread::sleep(Duration::from_millis(100));
        // Delete I/O Submission Queue and Delete I/O Completion Queue (NVMe Base 2.0, 5.7 and 5.6) of queue 1.
        let deleted = admin(0x00, 1, 0).and_then(|_| admin(0x04, 1, 0));
        let read = reads.join().unwrap_or_else(|_| Err("the reads panicked".into()));
        deleted.and(read)
    })?;
    check("nothing hung on a deleted queue", start.elapsed() >= TIMEOUT)?;
    text(timeout, fs::write(timeout, before.trim()))?;
    println!("guest: queue deleted under 32 reads; the driver has reset the drive, every block as before");
    Ok(())
}

fn unplug(disk: File) -> Outcome<()> {
    drop(disk);
    let function = text("the drive's device", fs::canonicalize("/sys/class/nvme/nvme0/device"))?;
    println!("guest: unplug me");
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new("/dev/nvme0n1").exists() || function.exists() {
        check("the drive is still there 20 s after it was unplugged", Instant::now() < deadline)?;
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("guest: unplugged");
    Ok(())
}

fn run() -> Outcome<()> {
    let hidden = text("/proc/cmdline", fs::read_to_string("/proc/cmdline"))?.contains("hidden");
    let disk_file = disk()?;
    let queues = wait_for_queues("boot")?;
    let model = text("model", fs::read_to_string("/sys/class/nvme/nvme0/model"))?;
    println!("guest: {} with {queues} I/O queues", model.trim());
    check("the model is not ours", model.starts_with("Campanile"))?;

    keep_in_flight(&disk_file, IOS, 32, true, |index| content(1, index))?;
    if hidden {
        hidden_coalescing(&disk_file)?;
    } else {
        coalescing(&disk_file)?;
    }

    buffered(2)?;
    println!("guest: 4 MiB written, flushed and read back through the page cache");

    let controller = text("/dev/nvme0", File::open("/dev/nvme0"))?;
    // SAFETY: no argument.
    let reset = unsafe { ioctl(controller.as_raw_fd(), NVME_IOCTL_RESET, 0) };
    check(&format!("controller reset: {reset}"), reset == 0)?;
    wait_for_queues("the reset")?;
    keep_in_flight(&disk_file, IOS, 32, false, |index| content(1, index))?;
    println!("guest: controller reset; every block as before");
    drop(controller);

    let disk_file = rebind(disk_file)?;
    keep_in_flight(&disk_file, IOS, 32, false, |index| content(1, index))?;
    println!("guest: driver gone and back; every block as before");
    if queues == 1 {
        delete_under_io(&disk_file)?;
    }
    unplug(disk_file)
}

fn main() {
    system::run(run);
}

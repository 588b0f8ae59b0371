//! A stranger: a PCI function that sends a message which belongs to another function. Linux has no driver for it here, so
//! this process programs its message by itself.
//!
//! Source: PCI Local Bus Specification 3.0, 6.8.1 (MSI) and 6.8.2 (MSI-X); QEMU's docs/specs/edu.rst.

use crate::system::{Outcome, check, text};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::raw::{c_int, c_long, c_void};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

unsafe extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, access: c_int, flags: c_int, file: c_int, offset: c_long) -> *mut c_void;
}

const READ_AND_WRITE: c_int = 3;
const SHARED: c_int = 1;
/// Bytes of a BAR that are mapped.
const PAGE: usize = 4096;

/// Vendor and device of QEMU's educational device, and its register that raises an interrupt.
const EDU: (&str, &str) = ("0x1234", "0x11e8");
const RAISE: usize = 0x60;
/// Command: memory accesses and its own. Pointer to the first capability; ids of MSI and MSI-X.
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 6;
const CAPABILITIES: u64 = 0x34;
const MSI: u8 = 5;
const MSIX: u8 = 0x11;

/// The function's folder with this vendor and device.
fn function(vendor: &str, device: &str) -> Outcome<PathBuf> {
    let is = |folder: &Path, file: &str, value: &str| {
        fs::read_to_string(folder.join(file)).is_ok_and(|said| said.trim() == value)
    };
    let folders = text("PCI", fs::read_dir("/sys/bus/pci/devices"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = folders.filter(|folder| is(folder, "vendor", vendor) && is(folder, "device", device));
    found.next().ok_or_else(|| format!("no PCI function {vendor}:{device}"))
}

/// A function's configuration space.
struct Config(File);

impl Config {
    fn open(folder: &Path) -> Outcome<Self> {
        let path = folder.join("config");
        let name = path.display().to_string();
        text(&name, OpenOptions::new().read(true).write(true).open(path)).map(Self)
    }

    fn read<const N: usize>(&self, at: u64) -> Outcome<[u8; N]> {
        let mut bytes = [0; N];
        text("configuration space", self.0.read_exact_at(&mut bytes, at))?;
        Ok(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Outcome<()> {
        text("configuration space", self.0.write_all_at(bytes, at))
    }

    fn capability(&self, id: u8) -> Outcome<u64> {
        let mut at = self.read::<1>(CAPABILITIES)?[0];
        while at != 0 {
            let [found, next] = self.read(at.into())?;
            if found == id {
                return Ok(at.into());
            }
            at = next;
        }
        Err(format!("no capability {id:#x}"))
    }
}

/// The page of a BAR that holds `offset`, and where in it that lies.
fn page(folder: &Path, bar: u8, offset: usize) -> Outcome<*mut u32> {
    let path = folder.join(format!("resource{bar}"));
    let file = text("a BAR", OpenOptions::new().read(true).write(true).open(path))?;
    let base = offset / PAGE * PAGE;
    // SAFETY: a new mapping, which nothing else knows.
    let at = unsafe {
        mmap(std::ptr::null_mut(), PAGE, READ_AND_WRITE, SHARED, file.as_raw_fd(), base as c_long)
    };
    check("a BAR cannot be mapped", at.addr() != usize::MAX)?;
    Ok(at.cast::<u8>().wrapping_add(offset - base).cast())
}

/// Address and data of the message by which vector `vector` of the first NVMe drive interrupts.
fn message(vector: usize) -> Outcome<[u32; 3]> {
    let folder = text("the drive", fs::canonicalize("/sys/class/nvme/nvme0/device"))?;
    let config = Config::open(&folder)?;
    let table = u32::from_le_bytes(config.read(config.capability(MSIX)? + 4)?);
    let entry = page(&folder, (table & 7) as u8, (table & !7) as usize + 16 * vector)?;
    // SAFETY: the entry's address and data lie within the page.
    Ok([0, 1, 2].map(|word| unsafe { entry.add(word).read_volatile() }))
}

/// Lets the stranger send the message of the drive's second vector `count` times.
pub(crate) fn send(count: usize) -> Outcome<()> {
    let [low, high, data] = message(1)?;
    println!("the stranger sends {data:#x} to {high:#x}:{low:#x}");
    let folder = function(EDU.0, EDU.1)?;
    text("the stranger", fs::write(folder.join("enable"), "1"))?;
    let config = Config::open(&folder)?;
    let command = u16::from_le_bytes(config.read(COMMAND)?);
    config.write(COMMAND, &(command | MEMORY_AND_MASTER).to_le_bytes())?;
    let msi = config.capability(MSI)?;
    // 64-bit form: address at 4 and 8, data at 12; control at 2, bit 0 enables.
    config.write(msi + 4, &low.to_le_bytes())?;
    config.write(msi + 8, &high.to_le_bytes())?;
    config.write(msi + 12, &(data as u16).to_le_bytes())?;
    let [control, more] = config.read(msi + 2)?;
    config.write(msi + 2, &[control | 1, more])?;
    let raise = page(&folder, 0, RAISE)?;
    for _ in 0..count {
        // SAFETY: the device's register.
        unsafe { raise.write_volatile(1) };
    }
    Ok(())
}

//! Reads and writes a disk through Linux's asynchronous I/O and keeps a given number of I/Os in flight.

use crate::system::{Outcome, check};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::raw::{c_long, c_void};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

const IS_ARM: bool = cfg!(target_arch = "aarch64");
const IO_SETUP: c_long = if IS_ARM { 0 } else { 206 };
const IO_DESTROY: c_long = if IS_ARM { 1 } else { 207 };
const IO_SUBMIT: c_long = if IS_ARM { 2 } else { 209 };
const IO_GETEVENTS: c_long = if IS_ARM { 4 } else { 208 };

/// Bytes of one I/O.
pub(crate) const BLOCK: usize = 4096;

/// Consecutive I/Os are not neighbours on the disk, or the kernel would merge them into one command. The stride is
/// odd: if the number of I/Os is a power of two, each block is accessed exactly once.
const STRIDE: usize = 17;

/// A buffer that is aligned as O_DIRECT requires.
#[repr(C, align(4096))]
#[derive(Clone)]
pub(crate) struct Page(pub(crate) [u8; BLOCK]);

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

/// Runs `count` I/Os with `depth` in flight. Reads are checked against `expected`; writes write `expected`.
pub(crate) fn keep_in_flight(
    disk: &File,
    count: usize,
    depth: usize,
    write: bool,
    expected: impl Fn(usize) -> Page,
) -> Outcome<()> {
    let mut context: u64 = 0;
    // SAFETY: io_setup(2) asks for a context of 0, and fills it in.
    let made = unsafe { syscall(IO_SETUP, depth as c_long, &mut context) };
    check("io_setup", made == 0)?;
    let mut pages = vec![Page([0; BLOCK]); depth];
    let mut block_of = vec![0; depth];
    let (mut next, mut done) = (0, 0);
    let mut free: Vec<usize> = (0..depth).collect();
    while done < count {
        let mut batch = Vec::new();
        while next < count
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
                offset: (next * STRIDE % count * BLOCK) as i64,
                ..Iocb::default()
            });
            next += 1;
        }
        let pointers: Vec<*const Iocb> = batch.iter().map(|iocb| &raw const *iocb).collect();
        if !pointers.is_empty() {
            // SAFETY: the control blocks and the pages that they name live until their completion events have arrived.
            let taken = unsafe { syscall(IO_SUBMIT, context, pointers.len() as c_long, pointers.as_ptr()) };
            check(&format!("io_submit took {taken} of {}", pointers.len()), taken == pointers.len() as c_long)?;
        }
        let mut events = vec![IoEvent::default(); depth];
        // SAFETY: the buffer has room for `depth` events; there is no time limit.
        let got = unsafe {
            syscall(
                IO_GETEVENTS,
                context,
                1 as c_long,
                depth as c_long,
                events.as_mut_ptr(),
                std::ptr::null::<c_void>(),
            )
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

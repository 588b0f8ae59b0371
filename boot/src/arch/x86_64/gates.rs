//! The interrupt descriptor table, and the short entry code of each gate.

use crate::kernel::cpu::{self, Exception};
use core::arch::asm;
use core::cell::UnsafeCell;

/// Vectors for which the CPU pushes an error code (SDM 6.13).
const WITH_ERROR_CODE: [u8; 9] = [8, 10, 11, 12, 13, 14, 17, 21, 30];

unsafe extern "C" {
    fn exception_entry();
}

/// 256 gates of 16 bytes (SDM 6.14.1), and 16 bytes of code for each.
#[repr(C, align(4096))]
struct Gates {
    table: UnsafeCell<[[u64; 2]; 256]>,
    code: UnsafeCell<[[u8; 16]; 256]>,
}

// SAFETY: written once, by the CPU that boots, before any other runs and before any interrupt.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates { table: UnsafeCell::new([[0; 2]; 256]), code: UnsafeCell::new([[0; 16]; 256]) };

/// Fills the table.
pub(super) fn fill() {
    let target = exception_entry as *const () as usize;
    for vector in 0..=255_u8 {
        let index = usize::from(vector);
        let start = GATES.code.get().cast::<u8>().wrapping_add(16 * index).addr();
        let mut code = [0x90; 16];
        // PUSH 0 if the CPU pushes no error code; PUSH vector; JMP exception_entry.
        let mut at = 0;
        if !WITH_ERROR_CODE.contains(&vector) {
            code[..2].copy_from_slice(&[0x6a, 0]);
            at = 2;
        }
        code[at] = 0x68;
        code[at + 1..at + 5].copy_from_slice(&u32::from(vector).to_le_bytes());
        code[at + 5] = 0xe9;
        let next = start + at + 10;
        code[at + 6..at + 10].copy_from_slice(&(target.wrapping_sub(next) as i32).to_le_bytes());
        // Present, 64-bit interrupt gate, code segment 8.
        let entry = start as u64;
        let low = entry & 0xffff | 8 << 16 | 0x8e << 40 | (entry >> 16 & 0xffff) << 48;
        // SAFETY: only this CPU runs, and the table is not in use yet; the image's memory is executable.
        unsafe {
            (*GATES.code.get())[index] = code;
            (*GATES.table.get())[index] = [low, entry >> 32];
        }
    }
}

/// Loads the table on this CPU.
pub(super) fn load() {
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let pointer = Pointer { limit: 4095, base: GATES.table.get().addr() as u64 };
    // SAFETY: the table is static and filled in.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(nostack)) };
}

/// The stack frame that gate and CPU have pushed.
#[repr(C)]
struct Pushed {
    vector: u64,
    /// 0 if the vector has no error code.
    error: u64,
    rip: u64,
}

/// Handles an interrupt or an exception.
#[unsafe(no_mangle)]
extern "C" fn exception(pushed: &Pushed) {
    if pushed.vector < 32 {
        fault(pushed);
    }
    cpu::exception(Exception::Interrupt(pushed.vector as u8));
}

#[cold]
fn fault(&Pushed { vector, error, rip }: &Pushed) -> ! {
    let cr2: u64;
    // SAFETY: a plain read.
    unsafe { asm!("mov {}, cr2", out(reg) cr2, options(nomem, nostack)) };
    panic!("exception {vector} at {rip:#x}: error code {error:#x}, CR2 {cr2:#x}");
}

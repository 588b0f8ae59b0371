//! aarch64: QEMU's `virt` machine.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487); PSCI (DEN 0022); semihosting (DUI 0471).
#![allow(unsafe_code)]

mod firmware;
mod tree;
mod uart;

pub(crate) use firmware::dsdt;
pub(crate) use metal::Registers;
pub(crate) use tree::{Platform, Window};
pub(crate) use uart::{UART, write_byte};

use crate::kernel::{self, cpu::Exception};
use core::arch::{asm, global_asm};
use metal::{Clock, Mmio, Timer};

global_asm!(include_str!("start.s"));

/// Level 1 of the translation table: 512 blocks of 1 GiB (DDI 0487 D8.3).
#[unsafe(no_mangle)]
static TABLE: Table = table();

#[repr(C, align(4096))]
struct Table([u64; 512]);

const fn table() -> Table {
    /// Valid block, access flag.
    const BLOCK: u64 = 1 | 1 << 10;
    /// Attribute 1 (normal memory), inner shareable.
    const MEMORY: u64 = BLOCK | 1 << 2 | 3 << 8;
    /// Attribute 0 (device memory), never executed.
    const DEVICE: u64 = BLOCK | 3 << 53;
    let mut blocks = [0; 512];
    let mut index = 0;
    while index < 512 {
        let address = (index as u64) << 30;
        blocks[index] = address | if index == 0 || index >= 256 { DEVICE } else { MEMORY };
        index += 1;
    }
    Table(blocks)
}

unsafe extern "C" {
    static __image_end: u8;
    fn _start_secondary();
    /// Saves this stack's pointer in `save`, and switches to the stack `next`.
    pub(crate) fn switch_stack(save: *mut usize, next: usize);
}

/// The first address after the image.
pub(crate) fn image_end() -> usize {
    (&raw const __image_end).addr()
}

#[unsafe(no_mangle)]
extern "C" fn boot_cpu_main(exception_level: u64) -> ! {
    set_cpu(0);
    CLOCK.set_rate_of_cpu();
    kernel::main(tree::read(exception_level as u8))
}

#[unsafe(no_mangle)]
extern "C" fn secondary_cpu_main(cpu: u64) -> ! {
    set_cpu(cpu as u32);
    kernel::secondary_main()
}

/// Kinds that `exception_entry` in start.s passes: 0 synchronous, 1 IRQ, 2 FIQ, 3 SError; 16 and above unexpected.
#[unsafe(no_mangle)]
extern "C" fn exception(kind: u64, elr: u64) {
    match kind {
        1 => kernel::cpu::exception(Exception::Interrupt(0)),
        _ => {
            let (esr, far): (u64, u64);
            // SAFETY: plain reads of system registers.
            unsafe { asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) esr, out(reg) far) };
            panic!("exception {kind} at {elr:#x}: ESR {esr:#x}, FAR {far:#x}");
        }
    }
}

/// This CPU's number.
#[inline]
pub(crate) fn cpu() -> u32 {
    let cpu: u64;
    // SAFETY: a plain read of a system register.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) cpu, options(nomem, nostack, preserves_flags)) };
    cpu as u32
}

fn set_cpu(cpu: u32) {
    // SAFETY: TPIDR_EL1 is reserved for software.
    unsafe { asm!("msr tpidr_el1, {}", in(reg) u64::from(cpu), options(nomem, nostack)) };
}

/// The generic timer's virtual count.
pub(crate) static CLOCK: Clock = Clock::new();

/// Programs the virtual timer (PPI 27) to interrupt in `ns`; `None` stops it.
pub(crate) fn set_timer(ns: Option<u64>) {
    Timer::Virtual.arm(ns);
}

/// The window of `len_bytes` at `base`.
pub(crate) const fn window(base: usize, len_bytes: u32) -> Registers {
    // SAFETY: `TABLE` maps devices one to one, and RAM lies elsewhere; the caller names a device.
    Registers::Mmio(unsafe { Mmio::new(base, len_bytes) })
}

/// The initial stack pointer of a new thread whose stack ends at `top`: [`switch_stack`] returns to `entry`.
pub(crate) fn new_stack(top: usize, entry: extern "C" fn() -> !) -> usize {
    let frame = top - 96;
    // SAFETY: the caller owns the stack below `top`; x30 is the last of the twelve registers of the frame.
    unsafe {
        core::ptr::write_bytes(frame as *mut u8, 0, 96);
        *((frame + 88) as *mut usize) = entry as usize;
    }
    frame
}

/// Starts `cpu` on a stack that ends at `top`. The CPU's number lies at `top`.
///
/// # Errors
/// PSCI's return value, when not 0 (DEN 0022, CPU_ON).
pub(crate) fn start_cpu(platform: &Platform, cpu: u32, top: usize) -> Result<(), i64> {
    const CPU_ON: u64 = 0xc400_0003;
    let top = top - 16;
    // SAFETY: the caller gives the stack to that CPU for ever.
    unsafe { *(top as *mut u64) = cpu.into() };
    let affinity = platform.affinities[cpu as usize];
    let entry = _start_secondary as *const () as u64;
    let mut result = CPU_ON as i64;
    // SAFETY: a firmware call with the arguments that DEN 0022 asks for; it may change x0 to x3 (SMCCC).
    unsafe {
        match platform.psci_smc {
            true => asm!("dsb sy", "smc #0", inout("x0") result, inout("x1") affinity => _, inout("x2") entry => _,
                inout("x3") top => _, options(nostack)),
            false => asm!("dsb sy", "hvc #0", inout("x0") result, inout("x1") affinity => _, inout("x2") entry => _,
                inout("x3") top => _, options(nostack)),
        }
    }
    if result == 0 { Ok(()) } else { Err(result) }
}

/// Ends the machine with an exit code (semihosting, SYS_EXIT_EXTENDED with ADP_Stopped_ApplicationExit).
pub(crate) fn exit(code: u8) -> ! {
    let block = [0x20026_u64, code.into()];
    // SAFETY: the host reads the block, and the call does not return.
    unsafe { asm!("hlt #0xf000", in("x0") 0x20, in("x1") block.as_ptr(), options(nostack)) };
    loop {
        // SAFETY: nothing is left to do.
        unsafe { asm!("wfi") };
    }
}

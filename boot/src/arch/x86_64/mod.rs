//! x86_64: QEMU's `q35` machine.
//!
//! Source: Intel SDM vol. 3 ("SDM"); ACPI 6.5; the PVH boot protocol.
#![allow(unsafe_code)]

mod clock;
mod gates;
mod tables;
mod uart;

pub(crate) use clock::{CLOCK, set_timer, timer_hz};
pub(crate) use metal::Registers;
pub(crate) use tables::{IoApic, Platform};
pub(crate) use uart::write_byte;

use crate::kernel;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, Ordering};
use hal::Regs;
use metal::{Mmio, interrupts_off, interrupts_on};

global_asm!(include_str!("start.s"));

/// Start address of the other CPUs: page 8 of memory.
const TRAMPOLINE: usize = 0x8000;
/// IA32_GS_BASE. It holds the address of the CPU's number in [`NUMBERS`].
const GS_BASE: u32 = 0xc000_0101;
static NUMBERS: [u32; kernel::cpu::CPUS_MAX] = {
    let mut numbers = [0; kernel::cpu::CPUS_MAX];
    let mut cpu = 0;
    while cpu < numbers.len() {
        numbers[cpu] = cpu as u32;
        cpu += 1;
    }
    numbers
};
/// The local APIC of the accessing CPU in xAPIC mode (SDM 11.4.1).
pub(crate) const LAPIC: Registers = window(0xfee0_0000, 0x1000);
/// The same in x2APIC mode.
pub(crate) const X2APIC: Registers = Registers::Cpu(metal::CpuRegisters);
/// IA32_APIC_BASE, whose bit 10 is set in x2APIC mode (SDM 11.12.1).
const APIC_BASE: u32 = 0x1b;
const IN_X2APIC_MODE: u64 = 1 << 10;
/// The interrupt command register in x2APIC mode (SDM 11.12.9).
const X2APIC_ICR: u32 = 0x830;
/// Both halves of the interrupt command register (SDM 11.6.1); writing the low one sends.
const ICR_LOW: u32 = 0x300;
const ICR_HIGH: u32 = 0x310;
/// The mask registers of the two 8259s.
const PIC_MASKS: [u16; 2] = [0x21, 0xa1];
/// Delay between INIT and the start-up message (SDM 8.4.4.1).
const INIT_NS: u64 = 10_000_000;

unsafe extern "C" {
    static __image_end: u8;
    static trampoline_start: u8;
    static trampoline_stack: u8;
    static trampoline_end: u8;
    /// Saves this stack's pointer in `save`, and switches to the stack `next`.
    pub(crate) fn switch_stack(save: *mut usize, next: usize);
}

/// The first address after the image.
pub(crate) fn image_end() -> usize {
    (&raw const __image_end).addr()
}

#[unsafe(no_mangle)]
extern "C" fn boot_cpu_main(start_info: usize) -> ! {
    // Firmware has used the 8259s, so mask them.
    PIC_MASKS.into_iter().for_each(|port| write_port(port, 0xff));
    gates::fill();
    start_this_cpu(0);
    kernel::main(tables::read(start_info))
}

#[unsafe(no_mangle)]
extern "C" fn secondary_cpu_main() -> ! {
    start_this_cpu(NEXT.load(Ordering::Acquire));
    kernel::secondary_main()
}

/// The number of the CPU that is being started.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Sets up the gates and the number of `cpu`.
fn start_this_cpu(cpu: u32) {
    gates::load();
    let base = (&raw const NUMBERS[cpu as usize]).addr();
    // SAFETY: the segment belongs to this kernel, and only `cpu` uses it.
    unsafe { asm!("wrmsr", in("ecx") GS_BASE, in("eax") base as u32, in("edx") base >> 32, options(nostack)) };
}

/// This CPU's number.
#[inline]
pub(crate) fn cpu() -> u32 {
    let cpu: u32;
    // SAFETY: a plain read of this CPU's place in `NUMBERS`.
    unsafe { asm!("mov {:e}, gs:[0]", out(reg) cpu, options(readonly, nostack, preserves_flags)) };
    cpu
}

/// The window of `len_bytes` at `base`.
pub(crate) const fn window(base: usize, len_bytes: u32) -> Registers {
    // SAFETY: the image maps memory one to one, and RAM lies elsewhere; the caller names a device.
    Registers::Mmio(unsafe { Mmio::new(base, len_bytes) })
}

/// The initial stack pointer of a new thread whose stack ends at `top`: [`switch_stack`] returns to `entry`.
pub(crate) fn new_stack(top: usize, entry: extern "C" fn() -> !) -> usize {
    // Six saved registers and the return address; at a function's entry the stack is 8 bytes off a multiple of 16.
    let frame = top - 16 - 6 * 8;
    // SAFETY: the caller owns the stack below `top`.
    unsafe {
        core::ptr::write_bytes(frame as *mut u8, 0, 64);
        *((frame + 48) as *mut usize) = entry as usize;
    }
    frame
}

/// Starts `cpu` on a stack that ends at `top`: INIT, then the start-up message with the trampoline's page (SDM
/// 8.4.4.1).
///
/// # Errors
/// None here: the caller notices a CPU that does not come up.
pub(crate) fn start_cpu(platform: &Platform, cpu: u32, top: usize) -> Result<(), i64> {
    NEXT.store(cpu, Ordering::Release);
    let (start, end) = ((&raw const trampoline_start).addr(), (&raw const trampoline_end).addr());
    let stack = TRAMPOLINE + (&raw const trampoline_stack).addr() - start;
    // SAFETY: memory below 1 MiB, unused by image and heap; no CPU runs there now.
    unsafe {
        core::ptr::copy_nonoverlapping(start as *const u8, TRAMPOLINE as *mut u8, end - start);
        (stack as *mut u64).write_volatile(top as u64);
    }
    let command = |low: u32| {
        let id = platform.apic_ids[cpu as usize];
        if X2APIC.read64(APIC_BASE) & IN_X2APIC_MODE != 0 {
            return X2APIC.write64(X2APIC_ICR, u64::from(id) << 32 | u64::from(low));
        }
        let were_on = interrupts_off();
        LAPIC.write32(ICR_HIGH, id << 24);
        LAPIC.write32(ICR_LOW, low);
        if were_on {
            interrupts_on();
        }
    };
    // INIT, asserted.
    command(0x4500);
    CLOCK.delay_ns(INIT_NS);
    command(0x4600 | (TRAMPOLINE >> 12) as u32);
    Ok(())
}

/// Marks the beginning or end of the part that `qemu/plugin/count.rs` counts.
pub(crate) fn mark() {
    // SAFETY: a NOPL has no effect.
    unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x50, 0x4d, 0x41, 0x43", options(nomem, nostack, preserves_flags)) };
}

/// Reads a byte from an I/O port.
fn read_port(port: u16) -> u8 {
    let value: u8;
    // SAFETY: only this kernel uses the devices behind these ports.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

/// Writes a byte to an I/O port.
fn write_port(port: u16, value: u8) {
    // SAFETY: as above.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

/// Ends the machine: QEMU's isa-debug-exit at F4h makes an exit code of 2·value + 1.
pub(crate) fn exit(code: u8) -> ! {
    write_port(0xf4, code);
    loop {
        // SAFETY: nothing is left to do.
        unsafe { asm!("cli", "hlt") };
    }
}

//! x86_64. Source: Intel SDM vol. 2 and 3.
#![allow(unsafe_code, reason = "instructions that Rust has no words for")]

mod x2apic;

pub use x2apic::X2Apic as CpuRegisters;

use core::arch::{asm, x86_64::_rdtsc};
use core::sync::atomic::{Ordering, fence};

/// RFLAGS.IF.
const IF: u64 = 1 << 9;

/// Turns interrupts off on this CPU. Returns true if they were on. Privileged.
#[inline]
pub fn interrupts_off() -> bool {
    let flags: u64;
    // SAFETY: code without interrupts is always sound. The compiler moves no memory access across it.
    unsafe { asm!("pushfq", "cli", "pop {}", out(reg) flags) };
    flags & IF != 0
}

/// Turns interrupts on. Privileged, and the kernel must be ready to take them.
#[inline]
pub fn interrupts_on() {
    // SAFETY: handlers may interrupt code anywhere, and access only data that is shared soundly.
    unsafe { asm!("sti", options(nostack)) };
}

/// Turns interrupts on and waits for one. The caller has turned them off. No interrupt is taken between STI and HLT
/// (SDM vol. 2, STI), so an interrupt that comes before the wait ends it. Privileged.
#[inline]
pub fn wait_for_interrupt() {
    // SAFETY: as in `interrupts_on`.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}

/// Orders every earlier store of this CPU to memory before its next write to a device. Stores stay in order on x86
/// (SDM 9.2.2), so this holds back only the compiler.
#[inline]
pub fn order_stores() {
    fence(Ordering::Release);
}

/// Reads the time stamp counter. The kernel must find out its rate: from CPUID leaf 15H, or against another clock.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86_64 CPU has it.
    unsafe { _rdtsc() }
}

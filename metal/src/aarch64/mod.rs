//! aarch64. Source: Arm Architecture Reference Manual (DDI 0487).
#![allow(unsafe_code, reason = "instructions that Rust has no words for")]

mod gic;
mod timer;

pub use gic::GicCpuInterface as CpuRegisters;
pub use timer::Timer;

use crate::Clock;
use core::arch::asm;
use core::sync::atomic::{Ordering, fence};

/// DAIF.I as MRS reads it.
const I: u64 = 1 << 7;

/// Masks IRQs on this CPU. Returns true if they were unmasked. Needs EL1 or above.
#[inline]
pub fn interrupts_off() -> bool {
    let daif: u64;
    // SAFETY: code without interrupts is always sound. The compiler moves no memory access across it.
    unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) daif, options(nostack, preserves_flags)) };
    daif & I == 0
}

/// Unmasks IRQs. Needs EL1 or above, and a kernel that is ready to take them.
#[inline]
pub fn interrupts_on() {
    // SAFETY: handlers may interrupt code anywhere, and access only data that is shared soundly.
    unsafe { asm!("msr daifclr, #2", options(nostack, preserves_flags)) };
}

/// Waits for an interrupt and takes it. The caller has masked IRQs, so that none is taken between its last look and
/// the wait. A masked IRQ ends WFI too (DDI 0487 D1.6.2).
#[inline]
pub fn wait_for_interrupt() {
    // SAFETY: as in `interrupts_on`.
    unsafe { asm!("dsb sy", "wfi", "msr daifclr, #2", "isb", options(nostack)) };
}

/// Orders every earlier store of this CPU to memory before its next write to a device. Rust's fences order only the
/// inner shareable domain, and devices are outside of it.
#[inline]
pub fn order_stores() {
    // SAFETY: a barrier.
    unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
    fence(Ordering::Release);
}

/// The generic timer's virtual count.
#[inline]
pub fn ticks() -> u64 {
    let count: u64;
    // SAFETY: a plain read of a system register. It is not executed ahead of earlier code.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) count, options(nostack)) };
    count
}

/// Ticks of the count per second, as firmware has set it.
#[inline]
fn ticks_hz() -> u64 {
    let hz: u64;
    // SAFETY: a plain read of a system register.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags)) };
    hz
}

impl Clock {
    /// Sets the rate that firmware has left in CNTFRQ_EL0.
    ///
    /// # Panics
    /// When firmware has left 0 there.
    pub fn set_rate_of_cpu(&self) {
        self.set_rate(ticks_hz(), 1_000_000_000);
    }
}

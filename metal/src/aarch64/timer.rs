//! The generic timer (DDI 0487 D12).

use super::ticks_hz;
use core::arch::asm;

/// One of this CPU's timers at EL1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// The virtual one: PPI 27 by the base system architecture.
    Virtual,
    /// The physical one: PPI 30.
    Physical,
}

impl Timer {
    /// Makes the timer interrupt this CPU in `ns`. None stops the timer and lowers its interrupt line.
    pub fn arm(self, ns: Option<u64>) {
        let ticks = |ns: u64| (u128::from(ticks_hz()) * u128::from(ns)).div_ceil(1_000_000_000) as u64;
        // TVAL is a signed number of 32 bits.
        let (ticks, control) = ns.map_or((0, 0_u64), |ns| (ticks(ns).min(0x7fff_ffff), 1));
        // SAFETY: the timer reaches no memory; its interrupt comes where the kernel takes interrupts.
        unsafe {
            match self {
                Self::Virtual => asm!("msr cntv_tval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) ticks,
                    in(reg) control, options(nostack)),
                Self::Physical => asm!("msr cntp_tval_el0, {}", "msr cntp_ctl_el0, {}", "isb", in(reg) ticks,
                    in(reg) control, options(nostack)),
            }
        }
    }
}

//! The time stamp counter as a clock, and the local APIC's timer.

use super::{LAPIC, read_port, write_port};
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};

/// Local vector table, timer; initial count; current count; divide configuration (SDM 11.5.4).
const LVT_TIMER: u32 = 0x320;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;
/// Divides by 1.
const BY_1: u32 = 0xb;
/// The vector of the timer.
pub(crate) const TIMER_VECTOR: u8 = 0xec;
/// Over how long the clocks are compared with the PIT.
const CALIBRATION_NS: u64 = 10_000_000;
/// The PIT's (8254).
const PIT_HZ: u64 = 1_193_182;

/// Nanoseconds of a tick of the TSC, times 2^32; ticks a second of the APIC's timer.
static TSC_NS: AtomicU64 = AtomicU64::new(0);
static APIC_HZ: AtomicU64 = AtomicU64::new(0);

fn tsc() -> u64 {
    // SAFETY: every x86_64 has it.
    unsafe { _rdtsc() }
}

/// Compares TSC and APIC timer with the PIT's channel 2, which counts down once.
pub(super) fn calibrate() {
    let ticks = CALIBRATION_NS * PIT_HZ / 1_000_000_000;
    LAPIC.write::<u32>(DIVIDE, BY_1);
    LAPIC.write::<u32>(LVT_TIMER, 1 << 16);
    // Gate on, speaker off; channel 2, both bytes, mode 0: the output rises at the end.
    write_port(0x61, read_port(0x61) & 0xfc | 1);
    write_port(0x43, 0xb0);
    write_port(0x42, ticks as u8);
    write_port(0x42, (ticks >> 8) as u8);
    LAPIC.write::<u32>(INITIAL_COUNT, 0xffff_ffff);
    let begin = tsc();
    while read_port(0x61) & 1 << 5 == 0 {
        core::hint::spin_loop();
    }
    let (end, left) = (tsc(), LAPIC.read::<u32>(CURRENT_COUNT));
    LAPIC.write::<u32>(INITIAL_COUNT, 0);
    TSC_NS.store((CALIBRATION_NS << 32) / (end - begin), Ordering::Relaxed);
    APIC_HZ.store(u64::from(0xffff_ffff - left) * 1_000_000_000 / CALIBRATION_NS, Ordering::Relaxed);
}

/// Nanoseconds of the time stamp counter.
#[inline]
pub(crate) fn now_ns() -> u64 {
    ((u128::from(tsc()) * u128::from(TSC_NS.load(Ordering::Relaxed))) >> 32) as u64
}

/// Has this CPU's APIC timer interrupt in `ns`; none: never.
pub(crate) fn set_timer(ns: Option<u64>) {
    let Some(ns) = ns else { return LAPIC.write::<u32>(INITIAL_COUNT, 0) };
    let ticks = (u128::from(ns) * u128::from(APIC_HZ.load(Ordering::Relaxed)) / 1_000_000_000) as u64;
    LAPIC.write::<u32>(DIVIDE, BY_1);
    LAPIC.write::<u32>(LVT_TIMER, TIMER_VECTOR.into());
    LAPIC.write::<u32>(INITIAL_COUNT, ticks.clamp(1, 0xffff_ffff) as u32);
}

//! The time stamp counter as a clock, and the local APIC's timer.

use super::{LAPIC, read_port, write_port};
use core::sync::atomic::{AtomicU64, Ordering};
use hal::Regs;
use metal::{Clock, ticks};

/// Local vector table, timer; initial count; current count; divide configuration (SDM 11.5.4).
const LVT_TIMER: u32 = 0x320;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;
/// Divides by 1.
const BY_1: u32 = 0xb;
/// The vector of the timer.
const TIMER_VECTOR: u8 = 0xec;
/// Duration of the comparison of the clocks with the PIT.
const CALIBRATION_NS: u64 = 10_000_000;
/// Attempts of it: the most exact one counts. A host that stops this CPU in between puts the result wrong.
const ATTEMPTS: u32 = 8;
/// An attempt is exact enough if its doubt is this part of it.
const EXACT: u64 = 100;
/// Frequency of the PIT (8254).
const PIT_HZ: u64 = 1_193_182;

/// The time stamp counter, calibrated at boot.
pub(crate) static CLOCK: Clock = Clock::new();
/// Ticks a second of the APIC's timer.
static APIC_HZ: AtomicU64 = AtomicU64::new(0);

/// Measures the frequencies of TSC and APIC timer.
pub(super) fn calibrate() {
    let mut best = compare();
    for _ in 1..ATTEMPTS {
        if best.doubt <= best.tsc / EXACT {
            break;
        }
        let other = compare();
        if other.doubt < best.doubt {
            best = other;
        }
    }
    CLOCK.set_rate(best.tsc, CALIBRATION_NS);
    APIC_HZ.store(best.apic * 1_000_000_000 / CALIBRATION_NS, Ordering::Relaxed);
}

/// The ticks of both clocks in the time of the PIT.
struct Compared {
    tsc: u64,
    apic: u64,
    /// By so many ticks of the TSC the figures may be too large.
    doubt: u64,
}

/// Compares TSC and APIC timer with channel 0 of the PIT, which counts down once. Not every machine has port 61h, which
/// channel 2 needs. The interrupt of channel 0 is masked at both controllers.
fn compare() -> Compared {
    let pit_ticks = CALIBRATION_NS * PIT_HZ / 1_000_000_000;
    LAPIC.write32(DIVIDE, BY_1);
    LAPIC.write32(LVT_TIMER, 1 << 16);
    // Channel 0, both bytes, mode 0: the output rises at the end.
    write_port(0x43, 0x30);
    write_port(0x40, pit_ticks as u8);
    let begin = ticks();
    LAPIC.write32(INITIAL_COUNT, 0xffff_ffff);
    // From this write on the PIT counts.
    write_port(0x40, (pit_ticks >> 8) as u8);
    let counting = ticks();
    // Read back the status of channel 0; bit 7 is its output (8254 datasheet, "Read-Back Command").
    let is_over = || {
        write_port(0x43, 0xe2);
        read_port(0x40) & 1 << 7 != 0
    };
    let mut look = counting;
    let last = loop {
        let before = core::mem::replace(&mut look, ticks());
        if is_over() {
            break before;
        }
    };
    let left = LAPIC.read32(CURRENT_COUNT);
    let end = ticks();
    LAPIC.write32(INITIAL_COUNT, 0);
    let (tsc, counted) = (end - begin, last - counting);
    Compared { tsc, apic: (0xffff_ffff - left).into(), doubt: tsc - counted }
}

/// Ticks a second of the APIC's timer.
pub(crate) fn timer_hz() -> u64 {
    APIC_HZ.load(Ordering::Relaxed)
}

/// Programs this CPU's APIC timer to interrupt in `ns`; `None` stops it.
pub(crate) fn set_timer(ns: Option<u64>) {
    let Some(ns) = ns else { return LAPIC.write32(INITIAL_COUNT, 0) };
    let ticks = (u128::from(ns) * u128::from(APIC_HZ.load(Ordering::Relaxed)) / 1_000_000_000) as u64;
    LAPIC.write32(DIVIDE, BY_1);
    LAPIC.write32(LVT_TIMER, TIMER_VECTOR.into());
    LAPIC.write32(INITIAL_COUNT, ticks.clamp(1, 0xffff_ffff) as u32);
}

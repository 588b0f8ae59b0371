//! What can run in a host's user mode: registers over ordinary memory, the clock, waits.
#![allow(unsafe_code, reason = "a window over memory of the test's own")]

use campanile_metal::{Clock, CpuRegisters, Mmio, Registers, relax_on, ticks};
use hal::{AtomicWord, Regs, Word};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A window over `block`, which the test reaches through the window alone from now on.
fn window(block: &mut [u64; 2]) -> Mmio {
    // SAFETY: the block is aligned to 8 bytes, and the tests use the window no longer than the block.
    unsafe { Mmio::new(block.as_mut_ptr().expose_provenance(), 16) }
}

#[test]
fn registers_are_reached_at_their_width() {
    let mut block = [0_u64; 2];
    let regs = window(&mut block);
    regs.write64(8, 0x1122_3344_5566_7788);
    regs.write16(10, 0xbeef);
    regs.write8(15, 0x99);
    assert_eq!((regs.read32(12), regs.read8(8), regs.read16(14)), (0x9922_3344, 0x88, 0x9922));
    regs.write32(12, 0xdead_beef);
    assert_eq!((regs.read64(0), regs.read64(8)), (0, 0xdead_beef_beef_7788));
}

#[test]
fn an_access_that_is_no_register_panics() {
    let mut block = [0_u64; 2];
    let regs = window(&mut block);
    let refused = |access: &dyn Fn()| catch_unwind(AssertUnwindSafe(access)).is_err();
    assert!(refused(&|| _ = regs.read32(16)), "behind the window");
    assert!(refused(&|| _ = regs.read32(u32::MAX - 3)), "far behind the window");
    assert!(refused(&|| regs.write32(2, 0)), "not aligned to its width");
    assert!(refused(&|| regs.write64(12, 0)), "begins inside and ends outside");
    assert!(refused(&|| _ = Registers::Cpu(CpuRegisters).read8(0x802)), "a CPU's registers have no narrow accesses");
    assert!(refused(&|| _ = CpuRegisters.read64(0x10)), "not a register of the interrupt controller");
}

#[test]
fn both_kinds_of_registers_are_one_type() {
    let mut block = [0_u64; 2];
    let regs = Registers::Mmio(window(&mut block));
    regs.write32(4, 7);
    regs.write8(0, 1);
    assert_eq!((regs.read64(0), regs.read16(4)), (7 << 32 | 1, 7));
}

#[test]
fn a_clock_stands_until_its_rate_is_known_and_then_runs() {
    let clock = Clock::new();
    assert_eq!(clock.now_ns(), 0);
    assert!(catch_unwind(AssertUnwindSafe(|| clock.delay_ns(1))).is_err(), "the wait would not end");
    assert!(catch_unwind(AssertUnwindSafe(|| clock.set_rate(0, 1))).is_err(), "a counter that stands");
    clock.set_rate(3, 1);
    let (before, now, after) = (clock.now_ns(), ticks(), clock.now_ns());
    // 1/3 is rounded down at 2^-32.
    assert!(before <= now / 3 && now / 3 <= after + after / 1_000_000 + 1, "{before} {now} {after}");
    clock.delay_ns(10_000);
    assert!(clock.now_ns() >= after + 10_000);
}

#[test]
fn a_wait_says_whether_the_word_has_changed() {
    let word = AtomicWord::new(5);
    assert!(!relax_on(&word, 5));
    word.set(6);
    assert!(relax_on(&word, 5));
}

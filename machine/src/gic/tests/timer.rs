//! The physical timer by literal encodings (DDI 0487): CNTFRQ df00, CNTPCT df01, CNTP_TVAL df10, CNTP_CTL df11,
//! CNTP_CVAL df12.

use super::{bare, v2, v3, with_registers};
use crate::SimHal;
use crate::gic::GicWindows;
use crate::time::Ps;
use hal::{Hal as _, Regs as _, Threads};
use std::sync::{Arc, Mutex};

/// GICD_ISPENDR0 or GICR_ISPENDR0, bit 30: the timer's PPI.
fn is_pending(gic: GicWindows, version: u32) -> bool {
    let word = if version == 2 { gic.distributor.read32(0x200) } else { gic.redistributors.read32(0x1_0200) };
    word & 1 << 30 != 0
}

#[test]
fn the_interrupt_is_a_level_while_the_compare_value_is_reached() {
    for (version, interrupts) in [(2, v2()), (3, v3())] {
        let faults = with_registers(interrupts, 2, move |gic| {
            let timer = gic.timer;
            assert_eq!(timer.read64(0xdf00), 1_000_000_000);
            timer.write64(0xdf12, timer.read64(0xdf01) + 5_000);
            timer.write64(0xdf11, 1);
            assert_eq!((timer.read64(0xdf11), is_pending(gic, version)), (1, false));
            SimHal.delay_ns(5_000);
            assert_eq!((timer.read64(0xdf11), is_pending(gic, version)), (5, true));
            timer.write64(0xdf11, 3);
            assert_eq!((timer.read64(0xdf11), is_pending(gic, version)), (7, false), "masked");
            timer.write64(0xdf11, 1);
            assert!(is_pending(gic, version));
            timer.write64(0xdf11, 0);
            assert_eq!((timer.read64(0xdf11), is_pending(gic, version)), (0, false), "stopped");
        });
        assert_eq!(faults, []);
    }
}

#[test]
fn a_later_setting_replaces_an_earlier_one() {
    let faults = with_registers(v3(), 1, |gic| {
        let timer = gic.timer;
        timer.write64(0xdf10, 1_000);
        timer.write64(0xdf11, 1);
        timer.write64(0xdf10, 9_000);
        assert!((8_990..=9_000).contains(&timer.read64(0xdf10)));
        SimHal.delay_ns(2_000);
        assert!(!is_pending(gic, 3), "the earlier one has passed");
        SimHal.delay_ns(7_000);
        assert!(is_pending(gic, 3));
        // A value below 0 lies in the past.
        timer.write64(0xdf10, 0xffff_fff0);
        assert!(is_pending(gic, 3));
    });
    assert_eq!(faults, []);
}

#[test]
fn each_cpu_has_a_timer_of_its_own() {
    let (mut machine, gic) = bare(v2(), 2);
    let taken = Arc::new(Mutex::new(Vec::new()));
    let log = taken.clone();
    machine.set_exception_entry(move |_| {
        let word = gic.cpu_interface.read32(0x00c);
        log.lock().expect("one host thread").push((SimHal.cpu().0, word));
        gic.timer.write64(0xdf11, 0);
        gic.cpu_interface.write32(0x010, word);
    });
    let end = machine.run_boot(Ps::from_ns(1_000_000), move || {
        gic.distributor.write32(0x000, 1);
        let on_cpu_1 = move || {
            gic.cpu_interface.write32(0x004, 0xf0);
            gic.distributor.write32(0x100, 1 << 30);
            gic.cpu_interface.write32(0x000, 1);
            gic.timer.write64(0xdf10, 3_000);
            gic.timer.write64(0xdf11, 1);
        };
        let affinity = hal::Affinity::Cpu(hal::CpuId(1));
        let spec = hal::ThreadSpec { name: "timer", affinity, urgent: false };
        SimHal.spawn(spec, Box::new(on_cpu_1)).expect("CPU 1 exists");
        SimHal.delay_ns(50_000);
    });
    assert_eq!(end, Ok(()));
    assert_eq!(*taken.lock().expect("one host thread"), [(1, 30)]);
}

#[test]
fn what_is_no_register_of_the_timer_is_a_fault() {
    let faults = with_registers(v3(), 1, |gic| {
        gic.timer.write64(0xdf00, 1);
        assert_eq!(gic.timer.read64(0xdf18), 0);
    });
    assert_eq!(faults, [("GIC write to a read-only register", 1), ("GIC access to no register", 1)]);
}

//! Threaded handlers over a real GIC driver: the accesses that a cycle costs, and that a line waits for its thread.

mod gic_rig;

use drivers::gic::EoiMode;
use gic_rig::{ALL, Count, Do, Options, Rig, Version, WIRE, wire_arg};
use hal::{CpuId, CpuSet, Hal as _, Threads};
use irq::{IrqChipState, RequestFlags};
use machine::SimHal;
use std::sync::{Arc, Mutex};

/// The published experiment: a thread sets the line pending, the forced-threaded handler completes it.
#[test]
fn a_cycle_masks_with_eoimode_0_and_touches_no_distributor_with_1() {
    const CYCLES: u64 = 50;
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { force_threads: true, ..Options::default() });
        let names = [
            "mask_writes",
            "unmask_writes",
            "distributor_writes",
            "distributor_reads",
            "control_reads",
            "redistributor_reads",
            "redistributor_writes",
            "deactivated",
            "acknowledged",
        ];
        let count = Arc::new(Count::default());
        let handler = count.clone();
        let line = rig.run(move |system| {
            let line = system.spi(40);
            system.core.request(line, "bench", RequestFlags::default(), handler).expect("a new line");
            line
        });
        let start = rig.counters(names);
        let seen = count.clone();
        rig.run(move |system| {
            for cycle in 1..=CYCLES {
                system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("a GIC keeps it");
                while seen.all() < cycle {
                    SimHal.delay_ns(1_000);
                    SimHal.yield_now();
                }
                SimHal.delay_ns(1_000);
                SimHal.yield_now();
            }
        });
        let end = rig.counters(names);
        let [mask, unmask, writes, reads, control, r_reads, r_writes, deactivated, taken] =
            core::array::from_fn(|index| end[index] - start[index]);
        assert!(taken >= CYCLES, "{version:?} {mode:?}: {taken}");
        assert_eq!((r_reads, r_writes), (0, 0), "{version:?} {mode:?}");
        match mode {
            EoiMode::Split => {
                assert_eq!((mask, unmask, reads, control), (0, 0, 0, 0), "{version:?}");
                assert_eq!(writes, CYCLES, "{version:?}: the one that raises it");
                assert!(deactivated >= CYCLES, "{version:?}");
            }
            EoiMode::Together | EoiMode::SplitAtOnce => {
                assert_eq!((mask, unmask), (CYCLES, CYCLES), "{version:?}");
                assert_eq!(writes, 3 * CYCLES, "{version:?}: raised, masked, unmasked");
                match version {
                    Version::V2 => assert_eq!(reads, 0, "no register would tell"),
                    Version::V3 => assert!(control >= CYCLES && reads == control, "RWP, after each mask: {control}"),
                }
            }
        }
        rig.finish();
    }
}

/// A level stays raised until the device is served, which the thread does: it must not come again before that.
#[test]
fn a_level_is_not_delivered_again_before_its_thread_is_done() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { force_threads: true, ..Options::default() });
        let count = Arc::new(Count::default());
        let handler = count.clone();
        let states = Arc::new(Mutex::new(Vec::new()));
        let seen = states.clone();
        rig.run(move |system| {
            let line = system.spi(40);
            let core = system.core.clone();
            let slow = Do(move || {
                irq::Action::handle(&*handler, line);
                let state = |which| core.irqchip_state(line, which).expect("a GIC keeps it");
                let held = [IrqChipState::Active, IrqChipState::Masked].map(state);
                seen.lock().expect("one host thread").push(held);
                SimHal.delay_ns(20_000);
            });
            system.core.request(line, "slow", RequestFlags::default(), Arc::new(slow)).expect("a new line");
        });
        // Raised at 1 µs and served (lowered) at 15 µs; raised again at 40 µs and lowered at 70 µs: two interrupts,
        // and no third.
        for (at_ns, asserted) in [(1_000, true), (15_000, false), (40_000, true), (70_000, false)] {
            rig.wire(at_ns, WIRE, wire_arg(40, 0, asserted));
        }
        rig.run(|_| SimHal.delay_ns(150_000));
        let held = [mode == EoiMode::Split, mode != EoiMode::Split];
        let states = states.lock().expect("one host thread").clone();
        assert_eq!(states, [held; 3], "{version:?} {mode:?}: active, or masked");
        assert_eq!(count.all(), 3, "{version:?} {mode:?}");
        rig.finish();
    }
}

/// The affinity of an active line changes; its thread ends the interrupt from its CPU of that time.
#[test]
fn an_active_line_moves_and_is_deactivated_once() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { cpus: 2, force_threads: true, ..Options::default() });
        let count = Arc::new(Count::default());
        let handler = count.clone();
        let line = rig.run(move |system| {
            let line = system.spi(40);
            let slow = Do(move || {
                irq::Action::handle(&*handler, line);
                SimHal.delay_ns(20_000);
            });
            system.core.request(line, "slow", RequestFlags::default(), Arc::new(slow)).expect("a new line");
            line
        });
        rig.run(move |system| {
            let raise = || system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("it keeps it");
            raise();
            SimHal.delay_ns(2_000);
            SimHal.yield_now();
            system.core.set_affinity(line, &CpuSet::of(CpuId(1))).expect("it moves");
            SimHal.delay_ns(60_000);
            assert_eq!(system.core.irqchip_state(line, IrqChipState::Active), Ok(false));
            raise();
            SimHal.delay_ns(60_000);
            assert_eq!(system.core.irqchip_state(line, IrqChipState::Active), Ok(false));
        });
        assert_eq!((count.on(0), count.on(1)), (1, 1), "{version:?} {mode:?}");
        rig.finish();
    }
}

/// A CPU goes offline while it has a line active: the line's thread ends it on another CPU, and the line interrupts
/// again there.
#[test]
fn a_cpu_goes_while_its_line_is_active() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { cpus: 2, force_threads: true, ..Options::default() });
        let count = Arc::new(Count::default());
        let handler = count.clone();
        let line = rig.run(move |system| {
            let line = system.spi(40);
            let slow = Do(move || {
                irq::Action::handle(&*handler, line);
                SimHal.delay_ns(20_000);
            });
            system.core.request(line, "slow", RequestFlags::default(), Arc::new(slow)).expect("a new line");
            system.core.set_affinity(line, &CpuSet::of(CpuId(1))).expect("it moves");
            line
        });
        rig.run(move |system| {
            let raise = || system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("it keeps it");
            raise();
            SimHal.delay_ns(3_000);
            let there = system.clone();
            system.on(1, move || there.core.cpu_offline().expect("CPU 0 is left"));
            SimHal.delay_ns(60_000);
            assert_eq!(system.core.irqchip_state(line, IrqChipState::Active), Ok(false));
            raise();
            SimHal.delay_ns(60_000);
            SimHal.yield_now();
            SimHal.delay_ns(60_000);
            assert_eq!(system.core.irqchip_state(line, IrqChipState::Active), Ok(false));
        });
        assert_eq!((count.on(0), count.on(1)), (1, 1), "{version:?} {mode:?}");
        rig.finish();
    }
}

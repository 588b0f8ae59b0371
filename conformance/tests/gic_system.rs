//! A whole Arm system: deadlines of the core without a tick, the kernel's tick, CPUs that come and go, and descriptions
//! that are wrong.

mod gic_rig;

use drivers::gic::{EoiMode, GicError};
use gic_rig::{ALL, Count, Do, Options, PULSE, Rig, Version, WIRE, hardware, wire_arg};
use hal::{Affinity, CpuId, CpuSet, Hal as _, Regs as _, ThreadSpec, Threads as _};
use irq::{Interrupts, IrqError, RequestFlags, StormConfig, Trigger};
use machine::time::Ps;
use machine::unrest::{Chance, Kind, Unrest};
use machine::{MachineConfig, SimHal};
use spec::gic::IntId;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use systems::arm::{ArmBuilder, ArmError, MessageHardware, TimerHardware};

/// Three interrupts within 10 µs are a storm, and mask the line for 50 µs.
const STORM: StormConfig = StormConfig { burst: 3, burst_ns_min: 10_000, unhandled_max: u32::MAX, throttle_ns: 50_000 };

/// The line storms on a CPU that takes no other interrupt. Its timer lets it in again.
#[test]
fn a_throttled_line_comes_back_without_a_tick() {
    for (version, mode) in ALL {
        for cpu in 0..2 {
            let mut rig = Rig::new(version, mode, Options { cpus: 2, storm: STORM, ..Options::default() });
            let count = Arc::new(Count::default());
            let handler = count.clone();
            rig.run(move |system| {
                let line = system.arm.wire(IntId(40), Trigger::EdgeRising, CpuSet::of(CpuId(cpu))).expect("a wire");
                line.request("storms", RequestFlags::default(), handler).expect("a new line").keep();
            });
            for pulse in 1..=4 {
                rig.wire(pulse * 1_000, PULSE, wire_arg(40, 0, true));
            }
            rig.run(|_| SimHal.delay_ns(20_000));
            assert_eq!(count.on(cpu), 3, "{version:?} {mode:?}: masked");
            rig.run(|_| SimHal.delay_ns(60_000));
            assert_eq!(count.on(cpu), 4, "{version:?} {mode:?}: what came meanwhile was kept");
            rig.finish();
        }
    }
}

/// From 1 ms on, RWP stays set behind a disable for up to ten minutes; the driver waits 10 ms (IHI 0069H, "GICD_CTLR", RWP). A
/// GICv2 has no RWP.
#[test]
fn a_disable_that_takes_effect_too_late_is_counted() {
    let chance = Chance { per_mille: 1_000, longest: Ps::from_ns(600_000_000_000) };
    let unrest = Unrest { chances: [Chance::default(); Kind::COUNT], ..Unrest::new(1) }.with(Kind::LateDisable, chance);
    let machine =
        MachineConfig { unrest: Some(Unrest { from: Ps::from_ns(1_000_000), ..unrest }), ..Default::default() };
    for (version, late) in [(Version::V2, 0), (Version::V3, 1)] {
        let mut rig = Rig::new(version, EoiMode::Split, Options { machine: machine.clone(), ..Options::default() });
        let counts = rig.run(|system| {
            let line = system.spi(40);
            system
                .core
                .request(line, "counts", RequestFlags::default(), Arc::new(Count::default()))
                .expect("a new line");
            SimHal.delay_ns(1_000_000);
            let before = system.arm.late_writes();
            system.core.disable(line).expect("it has a handler");
            (before, system.arm.late_writes())
        });
        assert_eq!(counts, (0, late), "{version:?}");
        assert_eq!(rig.faults(), []);
    }
}

/// Another CPU frees a line: this CPU is notified, and arms its own timer for the remaining work.
#[test]
fn a_line_that_another_cpu_frees_is_given_back() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { cpus: 2, ..Options::default() });
        let due = rig.run(move |system| {
            let line = system.arm.spi(IntId(40), CpuSet::of(CpuId(1))).expect("a wire");
            line.free().expect("it has no handler");
            let before = system.core.next_deadline_ns(CpuId(1)).is_some();
            SimHal.delay_ns(20_000);
            (before, system.core.next_deadline_ns(CpuId(1)))
        });
        assert_eq!(due, (true, None), "{version:?} {mode:?}");
        rig.finish();
    }
}

/// Without a deadline the timer is not touched.
#[test]
fn a_timer_that_nobody_needs_is_left_alone() {
    let mut rig = Rig::new(Version::V3, EoiMode::Split, Options { cpus: 2, ..Options::default() });
    let timer = rig.windows.timer;
    let control = rig.run(move |system| {
        let line = system.spi(40);
        system.core.request(line, "counts", RequestFlags::default(), Arc::new(Count::default())).expect("a new line");
        system.core.retrigger(line).expect("a GIC can");
        SimHal.delay_ns(100_000);
        (timer.read64(0xdf11), timer.read64(0xdf12))
    });
    assert_eq!(control, (0, 0));
    rig.finish();
}

/// The kernel's tick and the core's deadlines share each CPU's timer.
#[test]
fn the_kernels_tick_comes_when_it_was_asked_for() {
    let mut machine = rig_machine(1);
    let windows = machine.gic().expect("it was asked for");
    let entry = Arc::new(std::sync::OnceLock::<Arc<systems::arm::Arm<SimHal>>>::new());
    let taken = entry.clone();
    machine.set_exception_entry(move |_| taken.get().into_iter().for_each(|arm| arm.exception()));
    let ticks = Arc::new(Mutex::new(Vec::new()));
    let log = ticks.clone();
    let asked = machine.run_boot(machine::time::Ps::from_ns(10_000_000), move || {
        let tick = Do(move || log.lock().expect("one host thread").push(SimHal.now_ns()));
        let timer = TimerHardware::physical_timer(windows.timer);
        let arm = ArmBuilder::new(SimHal, hardware(&windows, Version::V3, 1), timer).tick("tick", Arc::new(tick));
        let arm = arm.flight_ns(3_000).build().expect("the machine is as described");
        assert!(entry.set(arm.clone()).is_ok(), "once");
        arm.start_cpu().expect("the boot CPU");
        let start = SimHal.now_ns();
        arm.tick_at(start + 30_000);
        // The core's own deadline is earlier, and is no tick.
        arm.spi(IntId(40), CpuSet::of(CpuId(0))).expect("a wire").free().expect("it has no handler");
        SimHal.delay_ns(10_000);
        assert_eq!(arm.core().next_deadline_ns(CpuId(0)), None, "given back");
        SimHal.delay_ns(40_000);
        arm.tick_at(SimHal.now_ns() + 5_000);
        arm.no_tick();
        SimHal.delay_ns(20_000);
        start + 30_000
    });
    let asked = asked.expect("it ends");
    let ticks = ticks.lock().expect("one host thread").clone();
    assert!(matches!(ticks[..], [at] if (asked..asked + 1_000).contains(&at)), "{ticks:?} for {asked}");
    assert_eq!(machine.faults().0, []);
}

/// Defect: a CPU that never starts counted as online. The numbers of freed lines waited for it for ever, and a line that was
/// moved there was mute.
#[test]
fn a_cpu_that_has_not_started_gets_no_line() {
    let mut machine = rig_machine(2);
    let windows = machine.gic().expect("it was asked for");
    let entry = Arc::new(std::sync::OnceLock::<Arc<systems::arm::Arm<SimHal>>>::new());
    let taken = entry.clone();
    machine.set_exception_entry(move |_| taken.get().into_iter().for_each(|arm| arm.exception()));
    let done = machine.run_boot(machine::time::Ps::from_ns(10_000_000), move || {
        let timer = TimerHardware::physical_timer(windows.timer);
        let arm = ArmBuilder::new(SimHal, hardware(&windows, Version::V3, 2), timer).lines_max(8);
        let arm = arm.flight_ns(3_000).build().expect("the machine is as described");
        assert!(entry.set(arm.clone()).is_ok(), "once");
        arm.start_cpu().expect("the boot CPU");
        let [here, there] = [0, 1].map(|cpu| CpuSet::of(CpuId(cpu)));
        for _ in 0..20 {
            arm.spi(IntId(40), here.clone()).expect("there is room").free().expect("it has no handler");
            SimHal.delay_ns(20_000);
        }
        let line = arm.spi(IntId(40), here).expect("a wire");
        assert_eq!(line.set_affinity(&there), Err(IrqError::NoCpu(line.irq())));
        assert!(matches!(arm.spi(IntId(41), there.clone()), Err(IrqError::NoCpu(_))));
        let second = arm.clone();
        let spec = ThreadSpec { name: "start", affinity: Affinity::Cpu(CpuId(1)), urgent: false };
        SimHal.spawn(spec, Box::new(move || second.start_cpu().expect("it starts"))).expect("the CPU exists");
        SimHal.delay_ns(100_000);
        assert_eq!(line.set_affinity(&there), Ok(()));
    });
    done.expect("it ends");
    assert_eq!(machine.faults().0, []);
}

fn rig_machine(cpus: u32) -> machine::Machine {
    let interrupts = machine::Interrupts::GicV3(machine::gic::GicConfig::default());
    machine::Machine::new(machine::MachineConfig { cpus, interrupts, ..machine::MachineConfig::default() })
}

#[test]
fn a_cpu_is_started_once_and_stopped_once() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { cpus: 2, ..Options::default() });
        let kicks = Arc::new(AtomicU64::new(0));
        let counted = kicks.clone();
        rig.run(move |system| {
            let kick = Arc::new(Do(move || _ = counted.fetch_add(1, Relaxed)));
            let sgi = system.private(3, kick);
            system.enable_everywhere(sgi);
            assert_eq!(system.arm.start_cpu(), Err(ArmError::Started(CpuId(0))));
            let there = system.clone();
            let stopped = system.on(1, move || {
                let off = SimHal.irq_save();
                let emptied = there.arm.empty_cpu();
                let again = there.arm.stop_cpu();
                SimHal.irq_restore(off);
                (emptied, again)
            });
            assert_eq!(stopped, (Ok(CpuId(1)), Err(ArmError::Stopped(CpuId(1)))));
            let alone = system.arm.stop_cpu();
            assert!(matches!(alone, Err(ArmError::Irq(IrqError::Cpu(CpuId(0), _)))), "{alone:?}");
            let there = system.clone();
            system.on(1, move || there.come_up());
            system.arm.send(IntId(3), CpuId(1)).expect("it has started");
            SimHal.delay_ns(10_000);
        });
        assert_eq!(kicks.load(Relaxed), 1, "{version:?} {mode:?}: its private lines came back with it");
        rig.finish();
    }
}

#[test]
fn the_accounting_tells_of_strays() {
    let mut rig = Rig::new(Version::V2, EoiMode::Together, Options::default());
    let windows = rig.windows;
    rig.run(move |_| windows.distributor.write32(0x104, 1 << 13));
    rig.wire(1_000, WIRE, wire_arg(45, 0, true));
    let table = rig.run(|system| {
        SimHal.delay_ns(20_000);
        let table: Interrupts = system.arm.interrupts();
        table.to_string()
    });
    for row in ["GICv2   0-percpu    reschedule", "GICv2  30-percpu    timer", "ERR:          1"] {
        assert!(table.contains(row), "{row:?} is not in\n{table}");
    }
}

#[test]
fn a_wrong_description_is_an_error_that_says_so() {
    let mut rig = Rig::new(Version::V2, EoiMode::Split, Options::default());
    let windows = rig.windows;
    rig.run(move |_| {
        let timer = || TimerHardware::physical_timer(windows.timer);
        let builder = |version| ArmBuilder::new(SimHal, hardware(&windows, version, 1), timer());
        let error = |builder: ArmBuilder<SimHal>| builder.build().err().expect("it is wrong");
        assert_eq!(error(builder(Version::V3)), ArmError::Gic(GicError::Revision(0)));
        assert_eq!(error(builder(Version::V2).pseudo_nmis()), ArmError::PseudoNmi);
        let kick = builder(Version::V2).reschedule(IntId(16), "kick", Arc::new(Count::default()));
        assert_eq!(error(kick), ArmError::NotSoftware(IntId(16)));
        let wrong = TimerHardware { ppi: IntId(40), ..timer() };
        let wrong = ArmBuilder::new(SimHal, hardware(&windows, Version::V2, 1), wrong);
        assert_eq!(error(wrong), ArmError::NotPpi(IntId(40)));
        let silent = TimerHardware { frequency_hz: Some(0), ..timer() };
        let silent = ArmBuilder::new(SimHal, hardware(&windows, Version::V2, 1), silent);
        assert_eq!(error(silent), ArmError::Frequency);
        let messages = MessageHardware::Distributor { base: 0x0800_0000, first: IntId(72), count: 8 };
        let messages = builder(Version::V2).messages(messages);
        assert_eq!(error(messages), ArmError::NeedsV3("message registers in its distributor"));
        let many = ArmBuilder::new(SimHal, hardware(&windows, Version::V2, 9), timer());
        assert_eq!(error(many), ArmError::Gic(GicError::Cpus(9)));
    });
}

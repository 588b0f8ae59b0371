//! The machine with a GIC: exceptions, idle, kicks, time slices, pseudo-NMIs.

use super::{bare, v2};
use crate::Interrupts;
use crate::gic::{GicConfig, GicWindows, PULSE, WIRE, wire_arg};
use crate::time::Ps;
use crate::{Costs, Machine, MachineConfig, RunEnd, SimHal};
use hal::{Affinity, CpuId, Hal as _, Regs as _, ThreadSpec, Threads, Work};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<(u64, String)>>>;

fn note(log: &Log, text: impl Into<String>) {
    log.lock().expect("one host thread").push((SimHal.now_ns(), text.into()));
}

fn texts(log: &Log) -> Vec<String> {
    log.lock().expect("one host thread").iter().map(|(_, text)| text.clone()).collect()
}

/// Set-up of every CPU of a GICv2: SGIs, the timer's PPI, its interface.
fn join_v2(gic: GicWindows) {
    gic.cpu_interface.write32(0x004, 0xf0);
    gic.distributor.write32(0x100, 0x4000_ffff);
    gic.cpu_interface.write32(0x000, 1);
}

/// SPI 40: edge, to CPU 0.
fn enable_spi_v2(gic: GicWindows) {
    gic.distributor.write32(0xc08, 0x0002_0000);
    gic.distributor.write32(0x428, 0xa0);
    gic.distributor.write32(0x828, 1);
    gic.distributor.write32(0x104, 1 << 8);
    gic.distributor.write32(0x000, 1);
}

fn handle_v2(machine: &mut Machine, gic: GicWindows, log: &Log) {
    let log = log.clone();
    machine.set_exception_entry(move |exception| {
        let word = gic.cpu_interface.read32(0x00c);
        note(&log, format!("{exception}: {word:#x} on CPU {}", SimHal.cpu()));
        if word < 1020 {
            gic.cpu_interface.write32(0x010, word);
        }
    });
}

fn thread(name: &'static str, cpu: u32) -> ThreadSpec {
    ThreadSpec { name, affinity: Affinity::Cpu(CpuId(cpu)), urgent: false }
}

#[test]
fn an_interrupt_wakes_an_idle_cpu_and_is_acknowledged_by_its_handler() {
    let (mut machine, gic) = bare(v2(), 1);
    let log = Log::default();
    handle_v2(&mut machine, gic, &log);
    machine.poke(gic.model, Ps::from_ns(5_000), PULSE, wire_arg(40, 0, true));
    let end = machine.run_boot(Ps::from_ns(100_000), move || {
        join_v2(gic);
        enable_spi_v2(gic);
        SimHal.wait_for_interrupt();
        SimHal.now_ns()
    });
    // The pulse, a read of IAR, a write of EOIR: 1 ns each.
    assert_eq!(end, Ok(5_002));
    assert_eq!(texts(&log), ["IRQ exception: 0x28 on CPU 0"]);
    // The console sees the registers of CPU 0, and no time passes for it.
    assert_eq!((gic.distributor.read32(0x100), gic.distributor.read32(0x104)), (0x4000_ffff, 1 << 8));
    assert_eq!(machine.now(), Ps::from_ns(5_002));
    assert_eq!(machine.faults().0, []);
}

#[test]
fn a_kick_is_an_sgi_that_names_its_sender() {
    let (mut machine, gic) = bare(v2(), 2);
    let log = Log::default();
    handle_v2(&mut machine, gic, &log);
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(100_000), move || {
        gic.distributor.write32(0x000, 1);
        let sleeper_log = inner.clone();
        let sleeper = move || {
            join_v2(gic);
            SimHal.park();
            note(&sleeper_log, "woken");
        };
        // CPU 1's interface is off when the CPU is started. The CPU leaves its halt all the same.
        let sleeper = SimHal.spawn(thread("sleeper", 1), Box::new(sleeper)).expect("CPU 1 exists");
        SimHal.delay_ns(5_000);
        SimHal.wake(sleeper);
        SimHal.delay_ns(5_000);
    });
    assert_eq!(end, Ok(()));
    assert_eq!(texts(&log), ["IRQ exception: 0x0 on CPU 1", "woken"]);
}

/// The same happens while a CPU comes back from offline and sets its private interrupts up again.
#[test]
fn a_kick_that_comes_while_its_sgi_is_disabled_stays_pending() {
    let (mut machine, gic) = bare(v2(), 2);
    let log = Log::default();
    handle_v2(&mut machine, gic, &log);
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(100_000), move || {
        gic.distributor.write32(0x000, 1);
        let other = move || {
            join_v2(gic);
            gic.distributor.write32(0x180, 0xffff);
            SimHal.delay_ns(5_000);
            note(&inner, format!("pending {:#x}", gic.distributor.read32(0xf20)));
            gic.distributor.write32(0x100, 0xffff);
            SimHal.delay_ns(1_000);
        };
        SimHal.spawn(thread("other", 1), Box::new(other)).expect("CPU 1 exists");
        SimHal.delay_ns(3_000);
        SimHal.kick(CpuId(1));
        SimHal.delay_ns(10_000);
    });
    assert_eq!(end, Ok(()));
    assert_eq!(texts(&log), ["pending 0x1", "IRQ exception: 0x0 on CPU 1"]);
}

#[test]
fn time_slices_end_by_the_timers_ppi() {
    let costs = Costs { time_slice: Ps::from_ns(1_000), ..Costs::default() };
    let mut machine = Machine::new(MachineConfig { costs, interrupts: v2(), ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    let interrupts = Log::default();
    handle_v2(&mut machine, gic, &interrupts);
    let log = Log::default();
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(100), move || {
        gic.distributor.write32(0x000, 1);
        join_v2(gic);
        for name in ["a", "b"] {
            let log = inner.clone();
            let body = move || {
                for _ in 0..3 {
                    SimHal.delay_ns(600);
                    note(&log, name);
                }
            };
            SimHal.spawn(thread(name, 0), Box::new(body)).expect("CPU 0 exists");
        }
    });
    assert_eq!(end, Ok(()));
    assert_eq!(machine.run_until(Ps::from_ns(50_000)), RunEnd::Quiet);
    assert_ne!(texts(&log), ["a", "a", "a", "b", "b", "b"], "slices of 1 µs cut 1.8 µs of work");
    assert!(texts(&interrupts).contains(&"IRQ exception: 0x1e on CPU 0".into()), "PPI 30");
}

/// Mask and unmask of one SPI, as a ONESHOT thread without EOImode 1 does it: two writes and a poll, counted.
#[test]
fn accesses_are_counted_by_kind_of_register_and_cost_what_they_should() {
    let far = crate::model::AccessCosts { read: Ps::from_ns(200), write: Ps::from_ns(100) };
    let near = crate::model::AccessCosts { read: Ps::from_ns(20), write: Ps::from_ns(10) };
    let costs = crate::gic::GicCosts { distributor: far, cpu_interface: near };
    let config = GicConfig { spis: 32, costs, write_pending_time: Ps::from_ns(150), ..GicConfig::default() };
    let mut machine = Machine::new(MachineConfig { interrupts: Interrupts::GicV3(config), ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    let took = machine.run_boot(Ps::from_ns(100_000), move || {
        let start = SimHal.now_ns();
        gic.distributor.write32(0x184, 1 << 8);
        while gic.distributor.read32(0x000) >> 31 == 1 {}
        gic.distributor.write32(0x104, 1 << 8);
        gic.redistributors.write32(0x1_0100, 1);
        gic.cpu_interface.write64(0xc230, 0xf0);
        gic.cpu_interface.read64(0xc230);
        SimHal.now_ns() - start
    });
    assert_eq!(took, Ok(100 + 200 + 100 + 100 + 10 + 20));
    let counters = machine.with_any_model(gic.model, |model| model.counters());
    let counted: Vec<_> = counters.into_iter().filter(|&(_, count)| count > 0).collect();
    let expected = [
        ("distributor_reads", 1),
        ("distributor_writes", 2),
        ("redistributor_writes", 1),
        ("interface_reads", 1),
        ("interface_writes", 1),
        ("control_reads", 1),
        ("unmask_writes", 2),
        ("mask_writes", 1),
    ];
    assert_eq!(counted, expected);
}

/// There is no local APIC. The only effect is a fault.
#[test]
fn a_local_apic_is_not_there() {
    let (mut machine, _) = bare(v2(), 1);
    let end = machine.run_boot(Ps::from_ns(10_000), || {
        crate::Regs::Lapic.write64(0x80f, 0x1ff);
        crate::Regs::Lapic.write64(0x83f, 0x41);
        SimHal.delay_ns(1_000);
    });
    assert_eq!(end, Ok(()));
    assert_eq!(
        machine.faults().0.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
        ["no local APIC on this machine"]
    );
}

/// The watchdog sees GIC interrupts in the same way as vectors.
#[test]
fn an_interrupt_that_takes_too_long_is_recorded() {
    let mut config = MachineConfig { interrupts: v2(), ..MachineConfig::default() };
    config.interrupt_limit = Some(Ps::from_ns(99));
    let mut machine = Machine::new(config);
    let gic = machine.gic().expect("it was asked for");
    machine.set_exception_entry(move |_| {
        let word = gic.cpu_interface.read32(0x00c);
        SimHal.delay_ns(98);
        gic.cpu_interface.write32(0x010, word);
    });
    machine.poke(gic.model, Ps::from_ns(500), PULSE, wire_arg(40, 0, true));
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        join_v2(gic);
        enable_spi_v2(gic);
        SimHal.delay_ns(1_000);
    });
    assert_eq!(end, Ok(()));
    assert_eq!(machine.take_longest_interrupt(), Ps::from_ns(100));
    let fault = &machine.faults().0[0];
    assert_eq!((fault.kind, fault.text.as_str()), ("interrupt longer than its limit", "IRQ exception took 100 ns"));
}

/// A handler that does not acknowledge is entered again and again. Time passes, so the machine does not hang.
#[test]
fn an_unacknowledged_interrupt_is_a_storm_and_no_hang() {
    let (mut machine, gic) = bare(v2(), 1);
    machine.set_exception_entry(|_| {});
    machine.poke(gic.model, Ps::from_ns(100), WIRE, wire_arg(40, 0, true));
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        join_v2(gic);
        gic.distributor.write32(0x828, 1);
        gic.distributor.write32(0x104, 1 << 8);
        gic.distributor.write32(0x000, 1);
        SimHal.delay_ns(1_000);
    });
    assert!(matches!(end, Err(crate::BootError::TimeLimit(_))), "{end:?}");
}

/// With interrupts off, an ordinary interrupt waits and a pseudo-NMI does not; it also comes on top of an ordinary
/// handler that has acknowledged.
#[test]
fn a_pseudo_nmi_is_taken_with_interrupts_off() {
    let config = GicConfig { spis: 32, pseudo_nmi: Some(0xc0), ..GicConfig::default() };
    let mut costs = Costs::default();
    costs.work.set_ps(Work::IrqHandler, 1_000_000);
    let interrupts = Interrupts::GicV3(config);
    let mut machine = Machine::new(MachineConfig { interrupts, costs, ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    let log = Log::default();
    let inner = log.clone();
    machine.set_exception_entry(move |exception| {
        let intid = gic.cpu_interface.read64(0xc660);
        note(&inner, format!("{exception}: {intid}"));
        if intid == 40 {
            SimHal.work(Work::IrqHandler, 1);
            SimHal.delay_ns(0);
        }
        gic.cpu_interface.write64(0xc661, intid);
        note(&inner, format!("{intid} ends"));
    });
    // SPI 40 at 10 µs, with interrupts off, and NMI 41 at 12; then 40 at 30, with interrupts on, and NMI 41 within.
    for (at_us, intid) in [(10_000, 40), (12_000, 41), (30_000, 40), (30_500, 41)] {
        machine.poke(gic.model, Ps::from_ns(at_us), PULSE, wire_arg(intid, 0, true));
    }
    let outer = log.clone();
    let end = machine.run_boot(Ps::from_ns(100_000), move || {
        super::v3::bring_up(gic, 0);
        gic.distributor.write32(0xc08, 0x000a_0000);
        gic.distributor.write32(0x428, 0x80c0);
        gic.distributor.write64(0x6148, 0);
        gic.distributor.write32(0x104, 3 << 8);
        let state = SimHal.irq_save();
        SimHal.delay_ns(20_000);
        note(&outer, "interrupts on");
        SimHal.irq_restore(state);
        SimHal.delay_ns(40_000);
    });
    assert_eq!(end, Ok(()));
    assert_eq!(
        texts(&log),
        [
            "pseudo-NMI: 41",
            "41 ends",
            "interrupts on",
            "IRQ exception: 40",
            "40 ends",
            "IRQ exception: 40",
            "pseudo-NMI: 41",
            "41 ends",
            "40 ends",
        ]
    );
    let faults: Vec<_> = machine.faults().0.iter().map(|fault| fault.kind).collect();
    assert_eq!(faults, ["GIC trigger of an enabled interrupt is changed"]);
}

/// The engine's shortcuts do not change the result here either.
#[test]
fn the_engines_short_cuts_change_nothing() {
    let run = |short_cuts| {
        let config = MachineConfig { cpus: 2, interrupts: v2(), short_cuts, ..MachineConfig::default() };
        let mut machine = Machine::new(config);
        let gic = machine.gic().expect("it was asked for");
        let log = Log::default();
        handle_v2(&mut machine, gic, &log);
        for step in 0..100 {
            machine.poke(gic.model, Ps::from_ns(1_000 + step * 137), PULSE, wire_arg(40, 0, true));
        }
        let end = machine.run_boot(Ps::from_ns(100_000), move || {
            join_v2(gic);
            enable_spi_v2(gic);
            for step in 0..40 {
                SimHal.delay_ns(313);
                gic.distributor.write32(0xf00, 0x0200_0000 + step % 16);
            }
        });
        assert_eq!(end, Ok(()));
        (machine.engine_counters().digest, texts(&log))
    };
    let with = run(true);
    assert!(with.1.len() > 40);
    assert_eq!(with, run(false));
}

//! Lines, vectors, CPUs, and how they are printed.

use super::*;
use alloc::string::ToString;

#[test]
fn a_stray_vector_is_counted_and_ended_once() {
    let bench = Bench::new(ALL_OPS);
    let stray = Target::at(CPU1, Vector(0x77));
    bench.vector(stray);
    assert_eq!(bench.said(), "eoi");
    assert_eq!((bench.core.stray_vectors(CPU1), bench.core.last_stray()), (1, Some(stray)));
    // A vector that was harvested from a posted descriptor is not in service. It must not be ended.
    bench.hal.interrupt(CPU1, || assert!(!bench.core.dispatch(Vector(0x77))));
    assert_eq!((bench.said().as_str(), bench.core.stray_vectors(CPU1)), ("", 2));
}

#[test]
fn a_freed_vector_that_still_comes_is_acked_and_nobodys_until_it_cannot() {
    let bench = Bench::with(ALL_OPS, |config| identities(config).device_last = Identity(0x20));
    let irq = bench.alloc(Flow::Edge);
    let target = bench.core.view(irq).unwrap().effective.unwrap();
    let action = bench.request(irq, |_| panic!("freed"));
    bench.core.free(irq, &action).unwrap();
    bench.core.free_line(irq).unwrap();
    bench.log.take();
    assert_eq!(bench.core.free_line(irq), Err(IrqError::NoLine(irq)));
    bench.vector(target);
    assert_eq!(bench.said(), "ack");
    *bench.domain.0.pending.lock().unwrap() = true;
    bench.hal.advance_ns(1_000_000);
    let again = || bench.core.alloc_line(bench.domain.clone(), &on(CpuSet::of(CPU0)), Flow::Edge);
    assert_eq!(again(), Err(IrqError::NoVector { cpu: CPU0, used: 1, reserved: 0, total: 1 }));
    *bench.domain.0.pending.lock().unwrap() = false;
    bench.hal.advance_ns(1_000_000);
    assert!(again().is_ok());
}

#[test]
fn when_vectors_run_out_the_error_says_where_and_how_many() {
    let bench = Bench::with(ALL_OPS, |config| identities(config).device_last = Identity(0x22));
    let managed = AllocRequest { managed: true, ..on(CpuSet::first(2)) };
    bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge).unwrap();
    // The managed line uses CPU 0 and has reserved a vector on CPU 1.
    let alloc = |cpu| bench.core.alloc_line(bench.domain.clone(), &on(CpuSet::of(cpu)), Flow::Edge);
    for cpu in [CPU0, CPU0, CPU1, CPU1] {
        alloc(cpu).unwrap();
    }
    let text = "no vector left: CPU 1, with the most room, uses 2 of 3, 1 reserved";
    assert_eq!(alloc(CPU1).unwrap_err().to_string(), text);
    let text = "no vector left: CPU 0, with the most room, uses 3 of 3, 0 reserved";
    assert_eq!(alloc(CPU0).unwrap_err().to_string(), text);
    assert_eq!(bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge).unwrap_err().to_string(), text);
}

#[test]
fn queues_are_spread_so_that_every_cpu_has_one() {
    let text = |queues, cpus| {
        spread(queues, &CpuSet::first(cpus)).map(|sets| sets.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(text(3, 8).unwrap(), ["0-2", "3-5", "6-7"]);
    assert_eq!(text(2, 2).unwrap(), ["0", "1"]);
    assert_eq!(text(3, 2), Err(IrqError::Spread(3, 2)));
    assert_eq!(text(0, 2), Err(IrqError::Spread(0, 2)));
}

#[test]
fn handlers_share_only_when_all_do() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::Edge);
    let shared = RequestFlags { shared: true, ..RequestFlags::default() };
    let first = handler(|_| IrqReturn::None);
    let log = bench.log.clone();
    let second = handler(move |_| {
        log.add("second");
        IrqReturn::Handled
    });
    bench.core.request(irq, "first", shared, first.clone()).unwrap();
    bench.core.request(irq, "second", shared, second.clone()).unwrap();
    let refused = bench.core.request(irq, "third", RequestFlags::default(), first.clone());
    assert_eq!(refused, Err(IrqError::NotShared(irq)));
    bench.log.take();
    bench.fire(irq);
    assert_eq!(bench.said(), "ack second");
    assert_eq!(bench.core.view(irq).unwrap().unhandled, 0, "one of them knew it");
    bench.core.free(irq, &first).unwrap();
    assert_eq!(bench.core.free(irq, &first), Err(IrqError::NoAction(irq)));
    assert_eq!(bench.core.free_line(irq), Err(IrqError::InUse(irq)));
    assert_eq!(bench.said(), "", "the line has another handler");
    bench.core.free(irq, &second).unwrap();
    assert_eq!(bench.said(), "mask");
}

#[test]
fn a_handler_cannot_wait_for_itself() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::Edge);
    let core = bench.core.clone();
    bench.request(irq, move |irq| {
        assert_eq!(core.disable(irq), Err(IrqError::InHandler(irq)));
        assert_eq!(core.synchronize(irq), Err(IrqError::InHandler(irq)));
        core.disable_nosync(irq).unwrap();
        IrqReturn::Handled
    });
    bench.fire(irq);
    let view = bench.core.view(irq).unwrap();
    assert_eq!((view.disabled_depth, view.masked, view.count), (1, true, 1));
}

#[test]
fn a_managed_line_goes_and_comes_with_its_cpu() {
    let bench = Bench::new(ALL_OPS);
    let managed = AllocRequest { managed: true, ..on(CpuSet::of(CPU1)) };
    let irq = bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge).unwrap();
    bench.request(irq, |_| IrqReturn::Handled);
    assert_eq!(bench.core.set_affinity(irq, &CpuSet::of(CPU0)), Err(IrqError::Managed(irq)));
    bench.log.take();
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert_eq!(bench.said(), "mask deactivate");
    let view = bench.core.view(irq).unwrap();
    assert!(view.shutdown && view.effective.is_none());
    assert_eq!(bench.core.cpu_offline(), Err(IrqError::Cpu(CPU0, "is the last one online")));
    bench.core.retrigger(irq).unwrap();
    assert_eq!(bench.said(), "", "its chips still target an offline CPU");
    bench.core.cpu_online(CPU1).unwrap();
    assert_eq!(bench.said(), "set_affinity unmask retrigger");
    assert_eq!(bench.core.view(irq).unwrap().effective.unwrap().cpu, CPU1);
}

#[test]
fn a_managed_line_that_is_made_while_its_cpu_is_offline_comes_with_it() {
    let bench = Bench::new(ALL_OPS);
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    let managed = AllocRequest { managed: true, ..on(CpuSet::of(CPU1)) };
    let irq = bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge).unwrap();
    bench.request(irq, |_| IrqReturn::Handled);
    let view = bench.core.view(irq).unwrap();
    assert!(view.shutdown && view.effective.is_none());
    bench.core.cpu_online(CPU1).unwrap();
    let view = bench.core.view(irq).unwrap();
    assert_eq!((view.shutdown, view.masked, view.effective.unwrap().cpu), (false, false, CPU1));
}

#[test]
fn a_managed_line_does_not_come_with_another_cpu() {
    let bench = Bench::with(ALL_OPS, |config| *config = x86(3, 8));
    let managed = AllocRequest { managed: true, ..on(CpuSet::of(CPU1)) };
    let irq = bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge).unwrap();
    bench.request(irq, |_| IrqReturn::Handled);
    for cpu in [CPU1, CpuId(2)] {
        bench.hal.on_cpu(cpu, || bench.core.cpu_offline()).unwrap();
    }
    bench.core.cpu_online(CpuId(2)).unwrap();
    assert!(bench.core.view(irq).unwrap().shutdown);
    bench.core.cpu_online(CPU1).unwrap();
    assert_eq!(bench.core.view(irq).unwrap().effective.unwrap().cpu, CPU1);
}

#[test]
fn a_vector_pending_on_a_cpu_that_goes_is_fired_at_its_new_one() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::Edge);
    *bench.domain.0.pending.lock().unwrap() = true;
    bench.core.cpu_offline().unwrap();
    assert_eq!(bench.said(), "set_affinity retrigger");
    let view = bench.core.view(irq).unwrap();
    assert_eq!((view.effective.unwrap().cpu, view.retired.len()), (CPU1, 0));
    // The line returns to its affinity when its CPU is online again.
    *bench.domain.0.pending.lock().unwrap() = false;
    bench.core.cpu_online(CPU0).unwrap();
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    assert_eq!(bench.core.view(irq).unwrap().effective.unwrap().cpu, CPU0);
}

#[test]
fn accounting_prints_as_proc_interrupts() {
    let hal = HostHal::manual(2);
    let mut core = IrqCore::new(hal, x86(2, 8)).unwrap();
    let pmn = "Posted MSI notification event";
    core.set_system_vector(Vector(0xeb), "PMN", pmn, Arc::new(|core| assert!(core.dispatch(Vector(0x20))))).unwrap();
    for taken in [0x02, 0x1f, 0x20, 0xeb].map(Vector) {
        let refused = core.set_system_vector(taken, "PMN", pmn, Arc::new(|_| ()));
        assert_eq!(refused, Err(IrqError::SystemVector(taken.identity())));
    }
    let chip = LogChip::new(ALL_OPS, Log::default());
    let irq = core.alloc_line(Arc::new(LogDomain(Arc::new(chip))), &on(CpuSet::of(CPU1)), Flow::Edge).unwrap();
    core.request(irq, "nvme0q1", RequestFlags::default(), handler(|_| IrqReturn::Handled)).unwrap();
    hal.interrupt(CPU1, || core.handle_vector(Vector(0xeb)));
    hal.interrupt(CPU1, || core.handle_vector(Vector(0x20)));
    hal.interrupt(CPU0, || core.handle_vector(Vector(0x99)));
    let expected = "           CPU0       CPU1       \n\
                    \x20 0:          0          2       LOG   0-edge      nvme0q1\n\
                    PMN:          0          1   Posted MSI notification event\n\
                    ERR:          1\n";
    assert_eq!(core.interrupts().to_string(), expected);
}

#[test]
fn a_thousand_lines_need_a_fourth_column() {
    for (lines_max, row) in [(999, "  0: "), (1_000, "   0: ")] {
        let bench = Bench::with(ALL_OPS, |config| config.lines_max = lines_max);
        bench.line(Flow::Edge);
        let interrupts = bench.core.interrupts().to_string();
        assert!(interrupts.lines().nth(1).unwrap().starts_with(row), "{interrupts}");
    }
}

#[test]
fn the_debug_view_names_every_level() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::Edge);
    bench.fire(irq);
    bench.core.disable(irq).unwrap();
    let expected = "irq 0: edge test\n  domain VECTOR chip LOG hwirq 0x0\n  flags masked\n  \
                    disabled depth 1 affinity 0 effective CPU 0 vector 0x20\n  \
                    count 1 unhandled 0 unexpected 0 storms 0\n";
    assert_eq!(bench.core.view(irq).unwrap().to_string(), expected);
}

/// Defect: the CPUs of another system counted as online, and a line whose CPU went was delivered there.
#[test]
fn a_cpu_of_another_system_is_never_online() {
    let bench = Bench::with(ALL_OPS, |config| (config.cpus, config.first_cpu) = (3, 1));
    let irq = bench.core.alloc_line(bench.domain.clone(), &on(CpuSet::of(CPU1)), Flow::Edge).unwrap();
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert_eq!(bench.core.view(irq).unwrap().effective.unwrap().cpu, CpuId(2));
    let last = bench.hal.on_cpu(CpuId(2), || bench.core.cpu_offline());
    assert_eq!(last, Err(IrqError::Cpu(CpuId(2), "is the last one online")));
    let foreign = IrqError::Cpu(CPU0, "does not belong to this system");
    assert_eq!(bench.core.cpu_online(CPU0), Err(foreign));
    assert_eq!(bench.core.set_affinity(irq, &CpuSet::of(CPU0)), Err(IrqError::NoCpu(irq)));
    let managed = AllocRequest { managed: true, ..on(CpuSet::first(3)) };
    assert_eq!(bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge), Err(foreign));
}

#[test]
fn a_core_starts_with_the_cpus_that_it_is_told() {
    let mut core = IrqCore::new(HostHal::manual(3), CoreConfig { first_cpu: 1, ..x86(3, 8) }).unwrap();
    core.set_online(&CpuSet::of(CPU1)).unwrap();
    assert_eq!(core.cpu_online(CPU1), Err(IrqError::Cpu(CPU1, "is online already")));
    assert_eq!(core.cpu_online(CpuId(2)), Ok(()));
    for foreign in [CPU0, CpuId(3)] {
        let refused = core.set_online(&CpuSet::of(foreign));
        assert_eq!(refused, Err(IrqError::Cpu(foreign, "does not belong to this system")));
    }
    assert!(matches!(core.set_online(&CpuSet::new()), Err(IrqError::Config(_))));
}

#[test]
fn impossible_configurations_are_refused() {
    let refused = |change: fn(&mut CoreConfig)| {
        let mut config = x86(2, 8);
        change(&mut config);
        matches!(IrqCore::new(HostHal::manual(2), config), Err(IrqError::Config(_)))
    };
    assert!(refused(|config| config.cpus = 0));
    assert!(refused(|config| config.first_cpu = 2), "none is left");
    assert!(refused(|config| identities(config).device_first = Identity(0x1f)));
    assert!(refused(|config| config.storm.burst = 0));
}

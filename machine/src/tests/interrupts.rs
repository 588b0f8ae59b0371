//! Interrupts: what they cut, where they wait, what they cost.

use super::*;

#[test]
fn an_interrupt_cuts_a_charge_and_lengthens_it() {
    let (mut machine, bell) = machine(1);
    let log = Log::default();
    let inner = log.clone();
    machine.set_interrupt_entry(move |vector| {
        note(&inner, format!("vector {vector:#x}"));
        SimHal.work(Work::IrqHandler, 1);
        Regs::Lapic.write32(EOI, 0);
    });
    machine.poke(bell, Ps::from_ns(401), 0, 0x41);
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
        SimHal.work(SUBMIT, 1);
        SimHal.irq_restore(SimHal.irq_save());
        note(&inner, "submitted");
    });
    assert_eq!(end, Ok(()));
    assert_eq!(entries(&log), ["401 vector 0x41", "1101 submitted"]);
    let times = machine.cpu_times()[0];
    assert_eq!((times.system, times.irq), (Ps::from_ns(1000), Ps::from_ns(100)));
}

/// What the end of an interrupt costs a virtual machine: an exit, when it must be broadcast to I/O APICs.
#[test]
fn the_end_of_a_level_costs_more_than_that_of_an_edge() {
    const LEVEL: u64 = 1 << 8;
    for (vector, cost_ns) in [(0x41, 30), (0x41 | LEVEL, 30 + 1500)] {
        let costs = Costs { lapic_write: Ps::from_ns(30), level_eoi: Ps::from_ns(1500), ..costs() };
        let mut machine = Machine::new(MachineConfig { costs, ..MachineConfig::default() });
        let bell = machine.add_model(|_| Box::new(Bell::default()));
        machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
        machine.poke(bell, Ps::from_ns(401), 0, vector);
        let end = machine.run_boot(Ps::from_ns(10_000), || {
            Regs::Lapic.write32(SVR, 0x1ff);
            SimHal.delay_ns(1000);
        });
        assert_eq!(end, Ok(()));
        assert_eq!(machine.cpu_times()[0].irq, Ps::from_ns(cost_ns));
    }
}

#[test]
fn with_interrupts_off_an_interrupt_waits() {
    let (mut machine, bell) = machine(1);
    let log = Log::default();
    let inner = log.clone();
    machine.set_interrupt_entry(move |vector| {
        note(&inner, format!("vector {vector:#x}"));
        Regs::Lapic.write32(EOI, 0);
    });
    machine.poke(bell, Ps::from_ns(401), 0, 0x41);
    machine.poke(bell, Ps::from_ns(402), 0, 0x51);
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
        let state = SimHal.irq_save();
        SimHal.delay_ns(1000);
        note(&inner, "on again");
        SimHal.irq_restore(state);
    });
    assert_eq!(end, Ok(()));
    assert_eq!(entries(&log), ["1001 on again", "1001 vector 0x51", "1001 vector 0x41"]);
}

/// What interrupts are turned on with is owed, and no interrupt cuts it.
#[test]
fn an_interrupt_waits_for_the_end_of_what_was_owed_with_interrupts_off() {
    let (mut machine, bell) = machine(1);
    let log = Log::default();
    let inner = log.clone();
    machine.set_interrupt_entry(move |vector| {
        note(&inner, format!("vector {vector:#x}"));
        Regs::Lapic.write32(EOI, 0);
        SimHal.work(Work::IrqHandler, 1);
    });
    // The second arrives while the first returns.
    machine.poke(bell, Ps::from_ns(401), 0, 0x41);
    machine.poke(bell, Ps::from_ns(1050), 0, 0x31);
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
        let state = SimHal.irq_save();
        SimHal.work(SUBMIT, 1);
        SimHal.irq_restore(state);
        SimHal.work(SUBMIT, 1);
        SimHal.delay_ns(0);
        note(&inner, "submitted");
    });
    assert_eq!(end, Ok(()));
    assert_eq!(entries(&log), ["1001 vector 0x41", "1101 vector 0x31", "2201 submitted"]);
}

#[test]
fn an_interrupt_is_taken_between_two_critical_sections() {
    let (mut machine, bell) = machine(1);
    let log = Log::default();
    let inner = log.clone();
    machine.set_interrupt_entry(move |vector| {
        note(&inner, format!("vector {vector:#x}"));
        Regs::Lapic.write32(EOI, 0);
    });
    machine.poke(bell, Ps::from_ns(401), 0, 0x41);
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
        for section in ["first", "second"] {
            let state = SimHal.irq_save();
            note(&inner, section);
            SimHal.work(SUBMIT, 1);
            SimHal.irq_restore(state);
        }
    });
    assert_eq!(end, Ok(()));
    assert_eq!(entries(&log), ["1 first", "1001 vector 0x41", "1001 second"]);
}

/// The interrupt that is to wake the thread is due at the very time at which its CPU halts.
#[test]
fn an_interrupt_at_the_instant_of_a_sleep_ends_it() {
    for short_cuts in [true, false] {
        let config = MachineConfig { cpus: 1, costs: costs(), short_cuts, ..MachineConfig::default() };
        let mut machine = Machine::new(config);
        let bell = machine.add_model(|_| Box::new(Bell::default()));
        machine.set_interrupt_entry(|vector| {
            Regs::Lapic.write32(EOI, 0);
            if vector == 0x41 {
                SimHal.wake(SimHal.current_thread());
            }
        });
        machine.poke(bell, Ps::from_ns(401), 0, 0x41);
        let end = machine.run_boot(Ps::from_ns(10_000), move || {
            Regs::Lapic.write32(SVR, 0x1ff);
            let state = SimHal.irq_save();
            SimHal.work(SUBMIT, 1);
            SimHal.irq_restore(state);
            SimHal.park();
        });
        assert_eq!(end, Ok(()));
    }
}

/// A CPU that wakes from a halt for 500 ns does not yet do the interrupt's work.
#[test]
fn the_wake_of_a_halted_cpu_is_no_part_of_its_interrupt() {
    let mut config = MachineConfig { cpus: 1, costs: costs(), ..MachineConfig::default() };
    config.interrupt_limit = Some(Ps::from_ns(200));
    let mut machine = Machine::new(config);
    let bell = machine.add_model(|_| Box::new(Bell::default()));
    machine.set_interrupt_entry(|_| {
        SimHal.work(Work::IrqHandler, 1);
        Regs::Lapic.write32(EOI, 0);
    });
    machine.poke(bell, Ps::from_ns(401), 0, 0x41);
    let end = machine.run_boot(Ps::from_ns(10_000), || {
        Regs::Lapic.write32(SVR, 0x1ff);
        SimHal.wait_for_interrupt();
    });
    assert_eq!(end, Ok(()));
    assert!(machine.now() >= Ps::from_ns(401 + 500 + 100), "{:?}: it woke and served", machine.now());
    assert_eq!(machine.take_longest_interrupt(), Ps::from_ns(100));
    assert!(machine.faults().0.is_empty());
}

/// A handler of 100 ns under limits of 99 and 200 ns.
#[test]
fn an_interrupt_that_takes_too_long_is_recorded() {
    for (limit_ns, recorded) in [(99, 2), (200, 0)] {
        let mut config = MachineConfig { cpus: 1, costs: costs(), ..MachineConfig::default() };
        config.interrupt_limit = Some(Ps::from_ns(limit_ns));
        let mut machine = Machine::new(config);
        let bell = machine.add_model(|_| Box::new(Bell::default()));
        machine.set_interrupt_entry(|_| {
            SimHal.work(Work::IrqHandler, 1);
            Regs::Lapic.write32(EOI, 0);
        });
        machine.poke(bell, Ps::from_ns(401), 0, 0x41);
        machine.poke(bell, Ps::from_ns(2_401), 0, 0x41);
        let end = machine.run_boot(Ps::from_ns(10_000), || {
            Regs::Lapic.write32(SVR, 0x1ff);
            SimHal.delay_ns(5_000);
        });
        assert_eq!(end, Ok(()));
        let faults = machine.faults().0;
        let long = faults.iter().filter(|fault| fault.kind == "interrupt longer than its limit");
        assert_eq!(long.map(|fault| fault.count).sum::<u64>(), recorded, "limit {limit_ns} ns: {faults:?}");
        assert_eq!(machine.take_longest_interrupt(), Ps::from_ns(100));
        assert_eq!(machine.take_longest_interrupt(), Ps(0));
    }
}

//! Register accesses: when a write arrives, in which order, at what cost.

use super::*;

#[test]
fn a_posted_write_arrives_when_its_time_has_come() {
    let (mut machine, bell) = machine(1);
    let regs = machine.regs(bell, 0);
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        let state = SimHal.irq_save();
        SimHal.work(SUBMIT, 1);
        regs.write32(0, 7);
        SimHal.work(SUBMIT, 1);
        SimHal.irq_restore(state);
    });
    assert_eq!(end, Ok(()));
    let writes = machine.with_model(bell, |bell: &mut Bell| bell.writes.clone());
    assert_eq!(writes, Some(vec![(Ps::from_ns(1 + 1000 + 1), 7)]));
}

#[test]
fn a_register_with_costs_of_its_own_costs_these() {
    let (mut machine, bell) = machine(1);
    let regs = machine.regs(bell, 0);
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        regs.read32(0x80);
        let state = SimHal.irq_save();
        regs.write32(0x80, 7);
        regs.write32(0, 8);
        SimHal.irq_restore(state);
    });
    assert_eq!(end, Ok(()));
    let writes = machine.with_model(bell, |bell: &mut Bell| bell.writes.clone());
    assert_eq!(writes, Some(vec![(Ps::from_ns(1 + 300 + 20), 7), (Ps::from_ns(1 + 300 + 20 + 1), 8)]));
}

/// CPU 0 writes late in its debt and lets CPU 1 go before; what CPU 1 writes then comes second all the same.
#[test]
fn a_write_does_not_overtake_one_that_was_made_before_on_another_cpu() {
    let (mut machine, bell) = machine(2);
    let regs = machine.regs(bell, 0);
    let end = machine.run_boot(Ps::from_ns(100_000), move || {
        let (turn, over) = (Arc::new(<Word as hal::Word>::new(0)), Arc::new(<Word as hal::Word>::new(0)));
        let (my_turn, done) = (turn.clone(), over.clone());
        let second = move || {
            Regs::Lapic.write64(SVR, 0x1ff);
            while my_turn.load() == 0 {
                SimHal.relax_on(&my_turn, 0, u64::MAX);
            }
            regs.write32(0, 2);
            done.swap(1);
        };
        SimHal.spawn(thread("second", 1), Box::new(second)).expect("CPU 1 exists");
        SimHal.delay_ns(5_000);
        let state = SimHal.irq_save();
        SimHal.work(SUBMIT, 1);
        regs.write32(0, 1);
        turn.set(1);
        SimHal.irq_restore(state);
        while over.load() == 0 {
            SimHal.relax_on(&over, 0, u64::MAX);
        }
        SimHal.delay_ns(5_000);
    });
    assert_eq!(end, Ok(()));
    let writes = machine.with_model(bell, |bell: &mut Bell| bell.writes.iter().map(|&(_, value)| value).collect());
    assert_eq!(writes, Some(vec![1, 2]));
}

/// Nor is it held back by what another CPU, with interrupts off, will have written by then.
#[test]
fn a_trapped_write_takes_effect_at_its_own_time() {
    for (is_trapped, expected) in [(false, [(1_002, 1), (1_002, 2)]), (true, [(504, 2), (1_002, 1)])] {
        let mut machine = Machine::new(MachineConfig { cpus: 2, costs: costs(), ..MachineConfig::default() });
        let bell = machine.add_model(|_| Box::new(Bell { is_trapped, ..Bell::default() }));
        let regs = machine.regs(bell, 0);
        let end = machine.run_boot(Ps::from_ns(10_000), move || {
            let second = move || {
                SimHal.delay_ns(503 - SimHal.now_ns());
                regs.write32(0, 2);
            };
            SimHal.spawn(thread("second", 1), Box::new(second)).expect("CPU 1 exists");
            let state = SimHal.irq_save();
            SimHal.work(SUBMIT, 1);
            regs.write32(0, 1);
            SimHal.irq_restore(state);
            SimHal.delay_ns(2_000);
        });
        assert_eq!(end, Ok(()));
        let writes = machine.with_model(bell, |bell: &mut Bell| bell.writes.clone());
        let expected = expected.map(|(at_ns, value)| (Ps::from_ns(at_ns), value));
        assert_eq!(writes.as_deref(), Some(&expected[..]), "trapped: {is_trapped}");
    }
}

/// A read comes behind its CPU's writes (PCI Express, "Transaction Ordering"), also behind one that waits for another CPU's.
#[test]
fn a_read_waits_for_the_writes_of_its_cpu() {
    let (mut machine, bell) = machine(2);
    let regs = machine.regs(bell, 0);
    let read_ns = Arc::new(<Word as hal::Word>::new(0));
    let was_read = read_ns.clone();
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        let second = move || {
            SimHal.delay_ns(503 - SimHal.now_ns());
            regs.write32(0, 2);
            regs.read32(0);
            was_read.set(SimHal.now_ns());
        };
        SimHal.spawn(thread("second", 1), Box::new(second)).expect("CPU 1 exists");
        let state = SimHal.irq_save();
        SimHal.work(SUBMIT, 1);
        regs.write32(0, 1);
        SimHal.irq_restore(state);
        SimHal.delay_ns(2_000);
    });
    assert_eq!(end, Ok(()));
    assert!(read_ns.get() >= 1_002, "the write arrives at 1002 ns, and was read at {} ns", read_ns.get());
}

#[test]
fn a_register_write_beyond_any_window_is_a_fault_and_arrives_nowhere() {
    let (mut machine, bell) = machine(1);
    let regs = machine.regs(bell, 0);
    let boot = move || [1 << 26, 1 << 26 | 0x80, u32::MAX].map(|offset| regs.write32(offset, 7));
    machine.run_boot(Ps::from_ns(1_000), boot).expect("it ends");
    machine.run_until(Ps::from_ns(10_000));
    assert_eq!(machine.with_model(bell, |bell: &mut Bell| bell.writes.len()), Some(0));
    let (faults, _) = machine.faults();
    assert_eq!((faults[0].kind, faults[0].count), ("register write beyond any window", 3));
}

/// SDM vol. 3, "APIC Timer": the current count begins at the initial count and goes down at the divided clock; it is 0 once the
/// timer has expired, or was stopped.
#[test]
fn the_current_count_of_a_local_timer_goes_down() {
    let (mut machine, _) = machine(1);
    let counts = machine.run_boot(Ps::from_ns(100_000), || {
        let lapic = Regs::Lapic;
        let count = || lapic.read64(0x839);
        // Masked, and divided by 2.
        lapic.write64(0x832, 0x1_00ec);
        lapic.write64(0x83e, 0b0000);
        let before = count();
        lapic.write64(0x838, 4_000);
        let begun = count();
        SimHal.delay_ns(2_000);
        let later = count();
        SimHal.delay_ns(10_000);
        let expired = count();
        lapic.write64(0x838, 4_000);
        lapic.write64(0x838, 0);
        [before, begun, later, expired, count()]
    });
    let [before, begun, later, expired, stopped] = counts.expect("it ends");
    assert_eq!((before, expired, stopped), (0, 0, 0));
    assert!((3_900..=4_000).contains(&begun) && (2_900..=3_000).contains(&later), "{begun}, {later}");
}

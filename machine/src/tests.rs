//! The machine as a whole: time, interrupts, threads, shutdown.

use crate::model::{AccessCosts, Model, ModelId};
use crate::time::Ps;
use crate::world::World;
use crate::{BootError, Costs, Machine, MachineConfig, Regs, RunEnd, SimHal, Word};
use hal::{Affinity, CpuId, Hal, Lock, Regs as _, ThreadSpec, Word as _, Work};
use std::sync::{Arc, Mutex};

const SVR: u32 = 0x80f;
const EOI: u32 = 0x80b;

/// Raises vector `arg` at CPU `code` when its event comes; counts register writes. The register at 80h has its own costs.
#[derive(Default)]
struct Bell {
    writes: Vec<(Ps, u64)>,
    is_trapped: bool,
}

impl Model for Bell {
    fn name(&self) -> &str {
        "bell"
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        world.interrupt(code, arg as u8, arg >> 8 != 0);
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, offset: u32, _: u8) -> u64 {
        offset.into()
    }
    fn write(&mut self, world: &mut World<'_>, _: u8, _: u32, _: u8, value: u64) {
        self.writes.push((world.now(), value));
    }
    fn access_costs(&self, _: u8, offset: u32) -> Option<AccessCosts> {
        (offset == 0x80).then_some(AccessCosts { read: Ps::from_ns(300), write: Ps::from_ns(20) })
    }
    fn is_trapped(&self) -> bool {
        self.is_trapped
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

fn costs() -> Costs {
    let mut costs = Costs { wake_from_idle: Ps::from_ns(500), ..Costs::default() };
    costs.work_ps[Work::SubmitAio as usize] = 1_000_000;
    costs.work_ps[Work::IrqHandler as usize] = 100_000;
    costs
}

fn machine(cpus: u32) -> (Machine, ModelId) {
    let mut machine = Machine::new(MachineConfig { cpus, costs: costs(), ..MachineConfig::default() });
    let bell = machine.add_model(|_| Box::new(Bell::default()));
    (machine, bell)
}

fn thread(name: &'static str, cpu: u32) -> ThreadSpec {
    ThreadSpec { name, affinity: Affinity::Cpu(CpuId(cpu)), urgent: false }
}

type Log = Arc<Mutex<Vec<(u64, String)>>>;

fn note(log: &Log, text: impl Into<String>) {
    log.lock().expect("one host thread").push((SimHal.now_ns(), text.into()));
}

fn entries(log: &Log) -> Vec<String> {
    log.lock().expect("one host thread").iter().map(|(at, text)| format!("{at} {text}")).collect()
}

#[test]
fn boot_runs_on_cpu_0_and_its_time_passes() {
    let (mut machine, bell) = machine(2);
    let regs = machine.regs(bell, 0);
    let seen = machine.run_boot(Ps::from_ns(10_000), move || {
        SimHal.delay_ns(250);
        (SimHal.cpu(), regs.read32(0x40))
    });
    assert_eq!(seen, Ok((CpuId(0), 0x40)));
    // IPI to the halted CPU, then its wake-up is no interrupt; then 250 ns and the read.
    assert_eq!(machine.now(), Ps::from_ns(1 + 250 + 1));
}

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
        SimHal.work(Work::SubmitAio, 1);
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
        SimHal.work(Work::SubmitAio, 1);
        SimHal.irq_restore(state);
        SimHal.work(Work::SubmitAio, 1);
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
            SimHal.work(Work::SubmitAio, 1);
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
            SimHal.work(Work::SubmitAio, 1);
            SimHal.irq_restore(state);
            SimHal.park();
        });
        assert_eq!(end, Ok(()));
    }
}

#[test]
fn a_posted_write_arrives_when_its_time_has_come() {
    let (mut machine, bell) = machine(1);
    let regs = machine.regs(bell, 0);
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        let state = SimHal.irq_save();
        SimHal.work(Work::SubmitAio, 1);
        regs.write32(0, 7);
        SimHal.work(Work::SubmitAio, 1);
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
        SimHal.work(Work::SubmitAio, 1);
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
            SimHal.work(Work::SubmitAio, 1);
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

#[test]
fn threads_park_and_wake_across_cpus() {
    let (mut machine, _) = machine(2);
    let log = Log::default();
    machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(100_000), move || {
        let sleeper_log = inner.clone();
        let sleeper = SimHal.spawn(
            thread("sleeper", 1),
            Box::new(move || {
                Regs::Lapic.write32(SVR, 0x1ff);
                note(&sleeper_log, "sleeps");
                SimHal.park();
                note(&sleeper_log, format!("woken on CPU {}", SimHal.cpu()));
            }),
        );
        SimHal.delay_ns(2000);
        SimHal.wake(sleeper.expect("CPU 1 exists"));
        SimHal.delay_ns(2000);
        note(&inner, "boot ends");
    });
    assert_eq!(end, Ok(()));
    assert_eq!(entries(&log), ["2 sleeps", "2502 woken on CPU 1", "4001 boot ends"]);
}

#[test]
fn a_wake_before_the_park_is_not_lost() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(1000), || {
        SimHal.wake(SimHal.current_thread());
        SimHal.park();
    });
    assert_eq!(end, Ok(()));
}

/// The wait then used to end at its deadline, before the present.
#[test]
fn a_wait_whose_deadline_has_passed_takes_no_time_back() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(100_000), || {
        let (word, off) = (<Word as hal::Word>::new(0), SimHal.irq_save());
        let start_ns = SimHal.now_ns();
        SimHal.work(Work::SubmitAio, 5);
        SimHal.relax_on(&word, 0, start_ns + 1_000);
        SimHal.irq_restore(off);
        SimHal.now_ns() - start_ns
    });
    assert_eq!(end, Ok(5_000));
}

/// As a kernel's timers do. Each wake of a thread that is ready used to raise the timer anew, for ever.
#[test]
fn a_tick_that_wakes_a_thread_ends_the_slice_once() {
    let config = Costs { time_slice: Ps::from_ns(1000), ..costs() };
    let mut machine = Machine::new(MachineConfig { costs: config, ..MachineConfig::default() });
    let woken = Arc::new(Mutex::new(None));
    let timer = woken.clone();
    machine.set_interrupt_entry(move |vector| {
        SimHal.work(Work::IrqHandler, 1);
        Regs::Lapic.write32(EOI, 0);
        let thread = *timer.lock().expect("one host thread");
        if let Some(thread) = thread.filter(|_| vector == 0xec) {
            SimHal.wake(thread);
        }
    });
    let log = Log::default();
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
        for name in ["a", "b"] {
            let log = inner.clone();
            let body = move || {
                (0..3).for_each(|_| SimHal.delay_ns(600));
                note(&log, name);
            };
            let id = SimHal.spawn(thread(name, 0), Box::new(body)).expect("CPU 0 exists");
            *woken.lock().expect("one host thread") = Some(id);
        }
    });
    assert_eq!(end, Ok(()));
    assert_eq!(machine.run_until(Ps::from_ns(50_000)), RunEnd::Quiet);
    assert_eq!(log.lock().expect("one host thread").len(), 2);
}

#[test]
fn threads_of_one_cpu_take_turns() {
    let config = Costs { time_slice: Ps::from_ns(1000), ..costs() };
    let mut machine = Machine::new(MachineConfig { costs: config, ..MachineConfig::default() });
    machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
    let log = Log::default();
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
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
    let order: Vec<String> = log.lock().expect("one host thread").iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(order.len(), 6);
    assert_ne!(order, ["a", "a", "a", "b", "b", "b"], "slices of 1 µs cut 1.8 µs of work");
}

#[test]
fn a_lock_is_handed_between_cpus() {
    let (mut machine, _) = machine(4);
    machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
    let total = machine.run_boot(Ps::from_ns(1_000_000), || {
        let counter = Arc::new(Lock::new(SimHal, 0u32));
        let done = Arc::new(Word::new(0));
        for cpu in 1..4 {
            let (counter, done) = (counter.clone(), done.clone());
            let body = move || {
                for _ in 0..10 {
                    let mut value = counter.lock();
                    let before = *value;
                    SimHal.delay_ns(70);
                    *value = before + 1;
                }
                done.fetch_add(1);
            };
            SimHal.spawn(thread("adder", cpu), Box::new(body)).expect("the CPU exists");
        }
        while done.get() < 3 {
            SimHal.relax_on(&done, done.get(), u64::MAX);
        }
        *counter.lock()
    });
    assert_eq!(total, Ok(30));
    assert!(machine.now() >= Ps::from_ns(30 * 70), "the lock excludes");
}

#[test]
fn a_wait_that_nobody_ends_is_reported() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(1_000_000), || {
        let word = Word::new(0);
        SimHal.relax_on(&word, 0, u64::MAX);
    });
    assert_eq!(end, Err(BootError::Stuck(RunEnd::Deadlock(vec![CpuId(0)]))));
}

#[test]
fn the_console_waits_for_a_lock_that_a_thread_holds() {
    let (mut machine, _) = machine(1);
    let lock = Arc::new(Lock::new(SimHal, 1));
    let held = lock.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        let body = move || {
            let mut value = held.lock();
            SimHal.delay_ns(5000);
            *value = 2;
        };
        SimHal.spawn(thread("holder", 0), Box::new(body)).expect("CPU 0 exists");
    });
    assert_eq!(end, Ok(()));
    machine.run_until(Ps::from_ns(1000));
    let before = machine.now();
    assert_eq!(*lock.lock(), 2);
    assert!(machine.now() > before + Ps::from_ns(3000) && machine.now() < before + Ps::from_ns(4500));
}

#[test]
fn the_console_lets_threads_run_when_it_yields() {
    let (mut machine, _) = machine(1);
    let word = Arc::new(<Word as hal::Word>::new(0));
    let written = word.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        let body = move || {
            SimHal.delay_ns(500);
            written.set(1);
        };
        SimHal.spawn(thread("writer", 0), Box::new(body)).expect("CPU 0 exists");
    });
    assert_eq!(end, Ok(()));
    for _ in 0..50 {
        SimHal.yield_now();
    }
    assert_eq!(word.get(), 1);
}

#[test]
fn a_thread_moves_to_its_new_affinity_when_it_is_woken() {
    let (mut machine, _) = machine(2);
    let log = Log::default();
    let seen = log.clone();
    let end = machine.run_boot(Ps::from_ns(1_000_000), move || {
        Regs::Lapic.write64(SVR, 0x1ff);
        let body = move || {
            for _ in 0..2 {
                SimHal.park();
                note(&seen, format!("CPU {}", SimHal.cpu()));
            }
        };
        let mover = SimHal.spawn(thread("mover", 0), Box::new(body)).expect("CPU 0 exists");
        SimHal.wake(mover);
        SimHal.yield_now();
        SimHal.set_affinity(mover, &Affinity::Cpu(CpuId(1))).expect("CPU 1 exists");
        SimHal.wake(mover);
        SimHal.delay_ns(10_000);
        assert!(SimHal.set_affinity(mover, &Affinity::Cpu(CpuId(2))).is_err());
    });
    assert_eq!(end, Ok(()));
    machine.run_until(Ps::from_ns(100_000));
    let seen: Vec<String> = log.lock().expect("one host thread").iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(seen, ["CPU 0", "CPU 1"]);
}

#[test]
fn a_waiter_lets_the_urgent_thread_of_its_own_cpu_write_the_word() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(1_000_000), || {
        Regs::Lapic.write64(SVR, 0x1ff);
        let word = Arc::new(<Word as hal::Word>::new(0));
        let writer = word.clone();
        let spec = ThreadSpec { urgent: true, ..thread("writer", 0) };
        SimHal.spawn(spec, Box::new(move || _ = writer.swap(1))).expect("CPU 0 exists");
        while word.load() == 0 {
            SimHal.relax_on(&word, 0, u64::MAX);
        }
    });
    assert_eq!(end, Ok(()));
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(10_000), || {
        let word = Word::new(0);
        SimHal.relax_on(&word, 0, 700);
        SimHal.now_ns()
    });
    assert_eq!(end, Ok(700));
}

/// Some of everything; the digest, and the log.
fn busy_run(short_cuts: bool) -> (u64, Vec<String>) {
    let config = MachineConfig { cpus: 3, costs: costs(), jitter_percent: 40, short_cuts, ..MachineConfig::default() };
    let mut machine = Machine::new(config);
    let bell = machine.add_model(|_| Box::new(Bell::default()));
    machine.set_interrupt_entry(|_| {
        SimHal.work(Work::IrqHandler, 1);
        Regs::Lapic.write32(EOI, 0);
    });
    for step in 0..200u64 {
        machine.poke(bell, Ps::from_ns(1000 + step * 137), (step % 3) as u32, 0x40 + step % 64);
    }
    let regs = machine.regs(bell, 0);
    let log = Log::default();
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(100), move || {
        for cpu in 0..3 {
            let log = inner.clone();
            let body = move || {
                Regs::Lapic.write32(SVR, 0x1ff);
                for step in 0..40 {
                    SimHal.work(Work::SubmitAio, 1);
                    regs.write32(0, step);
                    SimHal.irq_restore(SimHal.irq_save());
                    note(&log, format!("CPU {cpu} step {step}"));
                    SimHal.yield_now();
                }
            };
            SimHal.spawn(thread("worker", cpu), Box::new(body)).expect("the CPU exists");
        }
    });
    assert_eq!(end, Ok(()));
    machine.run_until(Ps::from_ns(100_000));
    (machine.engine_counters().digest, entries(&log))
}

/// The digest of 2026-11, before the machine could be observed or disturbed. It may change with the engine's order of
/// events, and with nothing else.
#[test]
fn a_machine_that_nobody_watches_is_what_it_was() {
    assert_eq!(busy_run(true).0, 8_289_548_140_284_101_269);
}

#[test]
fn the_engines_short_cuts_change_nothing() {
    let with = busy_run(true);
    assert_eq!(with.1.len(), 120);
    assert_eq!(with, busy_run(false));
}

#[test]
fn runs_on_other_host_threads_are_the_same() {
    let here = busy_run(true);
    let there: Vec<_> = (0..3).map(|_| std::thread::spawn(|| busy_run(true))).collect();
    for run in there {
        assert_eq!(run.join().expect("it ran"), here);
    }
}

#[test]
fn shutting_down_unwinds_every_thread() {
    struct Witness(Arc<Mutex<u32>>);
    impl Drop for Witness {
        fn drop(&mut self) {
            *self.0.lock().expect("one host thread") += 1;
        }
    }
    let dropped = Arc::new(Mutex::new(0));
    let (mut machine, _) = machine(2);
    let count = dropped.clone();
    let end = machine.run_boot(Ps::from_ns(1000), move || {
        for cpu in 0..2 {
            let witness = Witness(count.clone());
            let body = move || {
                let _witness = witness;
                let lock = Lock::new(SimHal, ());
                let _guard = lock.lock();
                SimHal.delay_ns(1_000_000);
            };
            SimHal.spawn(thread("held", cpu), Box::new(body)).expect("the CPU exists");
        }
    });
    assert_eq!(end, Ok(()));
    machine.run_until(Ps::from_ns(5000));
    drop(machine);
    assert_eq!(*dropped.lock().expect("one host thread"), 2);
    drop(Machine::new(MachineConfig::default()));
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

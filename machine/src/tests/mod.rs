//! The machine as a whole: time, interrupts, threads, shutdown.

use crate::model::{AccessCosts, Model, ModelId};
use crate::time::Ps;
use crate::world::World;
use crate::{BootError, Costs, Machine, MachineConfig, Regs, RunEnd, SimHal, Word};
use hal::{Affinity, CpuId, Hal, Lock, Regs as _, ThreadSpec, Threads, Word as _, Work};
use std::sync::{Arc, Mutex};

mod interrupts;
mod registers;
mod threads;
mod waits;

/// Work of the tests' own.
const SUBMIT: Work = Work::custom(0);

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
    costs.work.set_ps(SUBMIT, 1_000_000);
    costs.work.set_ps(Work::IrqHandler, 100_000);
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
                    SimHal.work(SUBMIT, 1);
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

//! The machine of trials: a CPU on which managers and load run them.

use super::{NoFault, Trial, TrialStep, Trials};
use crate::coverage::Coverage;
use crate::draw::Draw;
use crate::mark::Mark;
use crate::subject::{Build, Rig};
use crate::verdict::violate;
use hal::{Affinity, CpuId, Regs as _, ThreadSpec, Threads as _};
use machine::model::Model;
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, MachineConfig, Regs, SimHal};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Trials of the load end within this time: none takes any.
const LIMIT: Ps = Ps::from_ns(1_000_000_000);

/// End of interrupt of a local APIC, as an x2APIC numbers its registers (Intel SDM 3, "x2APIC Register Address Space").
const EOI: u32 = 0x80b;
/// Spurious-interrupt vector register: software-enabled, vector FFh.
const SVR: (u32, u32) = (0x80f, 0x1ff);
/// Between two events of the clock.
const TICK: Ps = Ps::from_ns(20_000);

/// A clock that nobody hears. Without any event the machine's time would stand, and a step's time would not come.
struct Clock;

impl Model for Clock {
    fn name(&self) -> &str {
        "clock"
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        world.schedule(world.now() + TICK, code, arg);
    }

    fn read(&mut self, _: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8) -> u64 {
        0
    }

    fn write(&mut self, _: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8, _value: u64) {}

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// A machine that has nothing but a CPU and a clock.
pub struct TrialRig {
    machine: Machine,
    stack: Arc<TrialStack>,
    load: u64,
    seed: u64,
}

/// The trials, and how many were run.
pub struct TrialStack {
    trials: &'static Trials,
    numbers: AtomicU64,
    is_loaded: AtomicBool,
    seen: Mutex<Coverage>,
}

impl TrialStack {
    fn run(&self, trial: &Trial, seed: u64, index: u32) {
        let number = self.numbers.fetch_add(1, Relaxed);
        Mark::Submitted.of(number);
        if let Err(text) = (trial.run)(&mut Draw::new(seed, trial.name, index)) {
            violate(self.trials.name, format!("{}: {text}", trial.name));
        }
        Mark::Completed.of(number);
        self.seen.lock().expect("one host thread").add(trial.name, 1);
    }
}

impl TrialRig {
    pub(super) fn build(trials: &'static Trials, build: &mut Build<'_, NoFault>) -> Self {
        let load = build.knobs.number_with("load", 0..=1_000, 0, |draw| draw.time_ns(8, 63));
        let machine = MachineConfig { cpus: 1, memory_bytes: 1 << 20, ..build.machine() };
        let stack =
            TrialStack { trials, numbers: AtomicU64::new(0), is_loaded: AtomicBool::new(true), seen: Mutex::default() };
        let mut machine = Machine::new(machine);
        // The host wakes managers by reschedule interrupts.
        machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
        let clock = machine.add_model(|_| Box::new(Clock));
        machine.poke(clock, TICK, 0, 0);
        Self { machine, stack: Arc::new(stack), load, seed: build.seed }
    }

    /// Runs `body` on the CPU until it has ended.
    fn boot(&mut self, body: impl FnOnce(&TrialStack) + Send + 'static) {
        let stack = self.stack.clone();
        if let Err(why) = self.machine.run_boot(LIMIT, move || body(&stack)) {
            panic!("{why}");
        }
    }
}

impl Rig for TrialRig {
    type Step = TrialStep;
    type Fault = NoFault;
    type Stack = TrialStack;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn bring_up(&mut self) {
        self.boot(|_| Regs::Lapic.write32(SVR.0, SVR.1));
    }

    fn stack(&self) -> Arc<TrialStack> {
        self.stack.clone()
    }

    /// A thread of its own: a boot would let the machine's time pass, and with it that of the first steps.
    fn start_load(&mut self) {
        let (load, seed, stack) = (self.load, self.seed, self.stack.clone());
        stack.is_loaded.store(false, Relaxed);
        let body = move || {
            for index in 0..load {
                let list = stack.trials.list;
                stack.run(&list[index as usize % list.len()], seed, index as u32);
            }
            stack.is_loaded.store(true, Relaxed);
        };
        let spec = ThreadSpec { name: "load", affinity: Affinity::Cpu(CpuId(0)), urgent: false };
        SimHal.spawn(spec, Box::new(body)).expect("a CPU");
    }

    fn apply(stack: &Arc<TrialStack>, step: &TrialStep) {
        stack.run(step.trial, step.seed, 0);
    }

    fn inject(&mut self, fault: &NoFault) {
        match *fault {}
    }

    fn heal(&mut self, fault: &NoFault) {
        match *fault {}
    }

    fn is_done(&self) -> bool {
        self.stack.is_loaded.load(Relaxed)
    }

    fn prove(&mut self) {
        let seed = self.seed;
        self.boot(move |stack| stack.trials.list.iter().for_each(|trial| stack.run(trial, seed, u32::MAX)));
    }

    fn audit(&mut self) {}

    fn cover(&mut self, coverage: &mut Coverage) {
        coverage.merge(&self.stack.seen.lock().expect("one host thread"));
    }

    fn describe(&self) -> String {
        format!("trials: {}\n", self.stack.numbers.load(Relaxed))
    }
}

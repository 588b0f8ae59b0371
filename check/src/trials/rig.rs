//! The machine of trials: a CPU on which managers and load run them.

use super::{NoFault, Trial, TrialStep, Trials};
use crate::coverage::Coverage;
use crate::draw::Draw;
use crate::mark::Mark;
use crate::subject::{Build, Rig};
use crate::verdict::violate;
use machine::model::Model;
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, MachineConfig};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Trials of the load end within this time: none takes any.
const LIMIT: Ps = Ps::from_ns(1_000_000_000);

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
        let stack = TrialStack { trials, numbers: AtomicU64::new(0), seen: Mutex::default() };
        let mut machine = Machine::new(machine);
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

    fn bring_up(&mut self) {}

    fn stack(&self) -> Arc<TrialStack> {
        self.stack.clone()
    }

    fn start_load(&mut self) {
        let (load, seed) = (self.load, self.seed);
        self.boot(move |stack| {
            for index in 0..load {
                let list = stack.trials.list;
                stack.run(&list[index as usize % list.len()], seed, index as u32);
            }
        });
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
        true
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

//! The machine, whose threads take the steps in turn.

use super::NoFault;
use super::clock::{BEGIN, Clock, VECTOR};
use super::desk::{Desk, Finding, Shape};
use super::step::SchedulerStep;
use crate::coverage::Coverage;
use crate::draw::{Draw, Knobs};
use crate::mark::Mark;
use crate::server;
use crate::subject::{Build, Rig};
use crate::verdict::violate;
use hal::{Affinity, CpuId, CpuSet, Hal as _, Regs as _, ThreadId, ThreadSpec, Threads as _};
use machine::model::ModelId;
use machine::time::Ps;
use machine::{Costs, Machine, MachineConfig, Regs, SimHal};
use sched::Topology;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

const CHECKER: &str = "scheduler";
/// Work on the boot thread ends within this time.
const LIMIT: Ps = Ps::from_ns(1_000_000_000);
/// Steps of one turn.
const STEPS: u64 = 8;
/// Turns of the last load.
const PROOF: u64 = 16;
/// The x2APIC's registers for the end of an interrupt and for switching it on (Intel SDM 3, "x2APIC Register Address
/// Space").
const EOI: u32 = 0x80b;
const SPURIOUS: u32 = 0x80f;
const SWITCHED_ON: u32 = 0x1ff;

/// What the machine's threads share.
pub struct SchedulerStack {
    desk: Mutex<Desk>,
    seed: u64,
    /// Steps drawn so far.
    drawn: AtomicU32,
    /// Turns that are left, the next one's number, and how many have ended.
    left: AtomicU64,
    turn: AtomicU64,
    ended: AtomicU64,
    /// Turns that the next interrupt of the clock hands on.
    posted: AtomicU32,
    workers: OnceLock<Vec<Worker>>,
}

/// A thread that takes turns, and how many it has been given.
struct Worker {
    id: ThreadId,
    allowed: CpuSet,
    given: AtomicU32,
}

/// A machine under its scheduler, with a scheduler on a desk.
pub struct SchedulerRig {
    machine: Machine,
    clock: ModelId,
    cpus: u32,
    workers: u32,
    turns: u64,
    tokens: u32,
    urgent: bool,
    stack: Arc<SchedulerStack>,
}

/// Nodes and cache domains of so many CPUs; none: there is no topology.
fn draw_domains(knobs: &mut Knobs, names: [&'static str; 2], most: u64, none_percent: u64) -> Option<(u32, u32)> {
    let draw = |draw: &mut Draw| if draw.percent(none_percent) { 0 } else { draw.within(1..=most) };
    let cache = knobs.number_with(names[0], 0..=most, 0, draw) as u32;
    let caches = knobs.number(names[1], 1..=3) as u32;
    (cache > 0).then_some((cache * caches, cache))
}

/// The caches and nodes by which the threads of a machine are placed; on most machines there are none.
pub(crate) fn draw_topology(knobs: &mut Knobs) -> Option<Topology> {
    let domains = draw_domains(knobs, ["cache_cpus", "node_caches"], 4, 75);
    domains.map(|(node_cpus, cache_cpus)| Topology { node_cpus, cache_cpus })
}

fn draw_shape(knobs: &mut Knobs) -> Shape {
    // Sets of CPUs of several words are another matter than those of one.
    let draw = |draw: &mut Draw| if draw.percent(88) { draw.within(1..=12) } else { draw.within(60..=200) };
    let cpus = knobs.number_with("scheduled_cpus", 1..=256, 1, draw) as u32;
    let domains = draw_domains(knobs, ["cache_cpus", "node_caches"], 8, 30);
    let slice_ns = knobs.number_with("slice_ns", 1..=4_000_000, 1, |draw| draw.time_ns(100, 4_000_000));
    let threads = |draw: &mut Draw| draw.within(1..=u64::from(3 * cpus).max(4));
    let threads_max = knobs.number_with("threads", 1..=1_000, 1, threads) as usize;
    Shape { cpus, slice_ns, domains, threads_max }
}

impl SchedulerRig {
    pub(super) fn build(build: &mut Build<'_, NoFault>) -> Self {
        let (base, seed) = (build.machine(), build.seed);
        let knobs = &mut *build.knobs;
        let shape = draw_shape(knobs);
        let cpus = knobs.number("cpus", 1..=4) as u32;
        let topology = draw_domains(knobs, ["machine_cache_cpus", "machine_node_caches"], 4, 40)
            .map(|(node_cpus, cache_cpus)| Topology { node_cpus, cache_cpus });
        let slice_us = knobs.number_with("slice_us", 5..=3_000, 3_000, |draw| draw.time_ns(5, 3_000));
        let workers = knobs.number("workers", 1..=6) as u32;
        let tokens = knobs.number("tokens", 1..=3) as u32;
        let urgent = knobs.chance("urgent", 30);
        let turns = knobs.number_with("turns", 1..=2_000, 1, |draw| draw.time_ns(8, 100));
        let costs = Costs { time_slice: Ps::from_ns(1000 * slice_us), ..server::costs() };
        let period = Ps::from_ns(1000 * knobs.number_with("clock_us", 4..=200, 200, |draw| draw.time_ns(4, 200)));
        let config = MachineConfig { cpus, memory_bytes: 4096, jitter_percent: 40, costs, topology, ..base };
        let mut machine = Machine::new(config);
        let clock = machine.add_model(|_| Box::new(Clock { cpus, period }));
        let stack = Arc::new(SchedulerStack {
            desk: Mutex::new(Desk::new(&shape)),
            seed,
            drawn: AtomicU32::new(0),
            left: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            posted: AtomicU32::new(0),
            workers: OnceLock::new(),
        });
        let entered = stack.clone();
        machine.set_interrupt_entry(move |vector| {
            if vector == VECTOR {
                entered.hand_on();
            }
            Regs::Lapic.write32(EOI, 0);
        });
        Self { machine, clock, cpus, workers, turns, tokens, urgent, stack }
    }

    /// Gives the workers so many turns, several under way at once.
    fn give(&mut self, turns: u64) {
        let (stack, tokens) = (self.stack.clone(), self.tokens);
        let begin = move || {
            stack.left.store(turns, Relaxed);
            (0..tokens).for_each(|token| stack.give_turn(token));
        };
        self.machine.run_boot(LIMIT, begin).expect("it only wakes threads");
    }
}

impl SchedulerStack {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the desk, and ends the history with what was found.
    fn judge(&self, work: impl FnOnce(&mut Desk) -> Finding) {
        let found = work(&mut self.desk());
        if let Err(text) = found {
            violate(CHECKER, text);
        }
    }

    fn draw(&self) -> SchedulerStep {
        let index = self.drawn.fetch_add(1, Relaxed);
        SchedulerStep::draw(&mut Draw::new(self.seed, "scheduler step", index))
    }

    fn workers(&self) -> &[Worker] {
        self.workers.get().map_or(&[], Vec::as_slice)
    }

    fn give_turn(&self, worker: u32) {
        let workers = self.workers();
        let worker = &workers[worker as usize % workers.len()];
        worker.given.fetch_add(1, Relaxed);
        SimHal.wake(worker.id);
    }

    /// Takes the turns that the worker is given, and hands each on.
    fn work(&self, me: u32) {
        while self.workers().is_empty() {
            SimHal.park();
        }
        let worker = &self.workers()[me as usize];
        loop {
            while worker.given.load(Relaxed) == 0 {
                SimHal.park();
            }
            let cpu = SimHal.cpu();
            if !worker.allowed.contains(cpu) {
                violate(CHECKER, format!("worker {me} runs on CPU {cpu}, and may on {} only", worker.allowed));
            }
            worker.given.fetch_sub(1, Relaxed);
            if self.left.load(Relaxed) > 0 {
                self.take_turn(me);
            }
        }
    }

    fn take_turn(&self, me: u32) {
        self.left.fetch_sub(1, Relaxed);
        let turn = self.turn.fetch_add(1, Relaxed);
        Mark::Submitted.of(turn);
        self.judge(|desk| (0..STEPS).try_for_each(|_| desk.apply(&self.draw())));
        let mut draw = Draw::new(self.seed, "turn", turn as u32);
        match draw.below(4) {
            0 => SimHal.yield_now(),
            1 => SimHal.delay_ns(draw.time_ns(20, 10_000)),
            _ => {}
        }
        Mark::Completed.of(turn);
        self.ended.fetch_add(1, Relaxed);
        match draw.below(4) {
            0 => _ = self.posted.fetch_add(1, Relaxed),
            1 => self.give_turn(draw.below(64) as u32),
            _ => self.give_turn(me + 1),
        }
    }

    /// In the clock's interrupt: hands on the turns that wait for it.
    fn hand_on(&self) {
        let turn = self.turn.load(Relaxed) as u32;
        (0..self.posted.swap(0, Relaxed)).for_each(|posted| self.give_turn(turn + posted));
    }
}

/// The CPUs of a worker: one, all, or some.
fn draw_allowed(draw: &mut Draw, cpus: u32) -> CpuSet {
    let mask = match draw.below(3) {
        0 => 1 << draw.below(cpus.into()),
        1 => u64::MAX,
        _ => draw.below(1 << cpus) | 1 << draw.below(cpus.into()),
    };
    (0..cpus).filter(|cpu| mask >> cpu & 1 != 0).map(CpuId).collect()
}

fn spawn_workers(stack: &Arc<SchedulerStack>, (workers, cpus, urgent): (u32, u32, bool)) {
    for cpu in 0..cpus {
        let affinity = Affinity::Cpu(CpuId(cpu));
        let spec = ThreadSpec { name: "switch on", affinity, urgent: true };
        SimHal.spawn(spec, Box::new(|| Regs::Lapic.write32(SPURIOUS, SWITCHED_ON))).expect("the CPU exists");
    }
    let spawn = |me: u32| {
        let mut draw = Draw::new(stack.seed, "worker", me);
        let allowed = draw_allowed(&mut draw, cpus);
        let affinity = if allowed.len() == cpus { Affinity::Any } else { Affinity::Set(allowed.clone()) };
        let spec = ThreadSpec { name: "worker", affinity, urgent: urgent && draw.percent(40) };
        let own = stack.clone();
        let id = SimHal.spawn(spec, Box::new(move || own.work(me))).expect("a CPU");
        Worker { id, allowed, given: AtomicU32::new(0) }
    };
    let all = (0..workers).map(spawn).collect();
    assert!(stack.workers.set(all).is_ok(), "once");
    stack.workers().iter().for_each(|worker| SimHal.wake(worker.id));
}

impl Rig for SchedulerRig {
    type Step = SchedulerStep;
    type Fault = NoFault;
    type Stack = SchedulerStack;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn bring_up(&mut self) {
        let (stack, shape) = (self.stack.clone(), (self.workers, self.cpus, self.urgent));
        self.machine.run_boot(LIMIT, move || spawn_workers(&stack, shape)).expect("it only starts threads");
        let now = self.machine.now();
        self.machine.poke(self.clock, now, BEGIN, 0);
    }

    fn stack(&self) -> Arc<SchedulerStack> {
        self.stack.clone()
    }

    fn start_load(&mut self) {
        self.give(self.turns);
    }

    fn apply(stack: &Arc<SchedulerStack>, step: &SchedulerStep) {
        stack.judge(|desk| desk.apply(step));
    }

    fn inject(&mut self, fault: &NoFault) {
        match *fault {}
    }

    fn heal(&mut self, fault: &NoFault) {
        match *fault {}
    }

    /// Every turn was taken and none is under way.
    fn is_done(&self) -> bool {
        let SchedulerStack { left, turn, ended, .. } = &*self.stack;
        let is_waiting = self.stack.workers().iter().all(|worker| worker.given.load(Relaxed) == 0);
        left.load(Relaxed) == 0 && turn.load(Relaxed) == ended.load(Relaxed) && is_waiting
    }

    fn prove(&mut self) {
        self.give(PROOF);
    }

    fn audit(&mut self) {
        let faults = self.machine.faults().0;
        assert!(faults.is_empty(), "the machine recorded faults: {faults:?}");
        let stack = self.stack.clone();
        self.machine.run_boot(LIMIT, move || stack.judge(Desk::drain)).expect("it does not wait");
    }

    fn cover(&mut self, coverage: &mut Coverage) {
        coverage.merge(&self.stack.desk().oracle.seen);
    }

    fn describe(&self) -> String {
        let desk = self.stack.desk();
        let expected: Vec<_> = (0..).zip(&desk.oracle.cpus).map(|(cpu, of)| format!("  CPU {cpu}: {of:?}\n")).collect();
        format!("{} steps; expected:\n{}", desk.steps, expected.concat())
    }
}

//! Puts the foreign stack under `check`, and shows what `check` finds.

use check::draw::Draw;
use check::history::Recipe;
use check::mark::Mark;
use check::run::{Run, Scenario};
use check::server::ringer::{Ringer, RingerPort};
use check::shrink::shrink;
use check::subject::{Build, Rig, Subject};
use check::verdict::Kind;
use example_foreign_stack::{Replay, Stack};
use hal::{Affinity, CpuId, Hal as _, Regs as _, ThreadSpec, Threads};
use machine::fabric::dispatch::Dispatch;
use machine::fabric::port::Credits;
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::time::Ps;
use machine::{Machine, MachineConfig, Regs, SimHal};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// Devices, each with a line.
const LINES: u32 = 2;

/// The stack, sound or with its bug.
struct Foreign(Replay);

static SOUND: Foreign = Foreign(Replay::Kept);
static BUGGY: Foreign = Foreign(Replay::Forgotten);

/// The managers' actions.
#[derive(Clone)]
enum Step {
    Ring { line: u32, count: u64, period_ns: u64 },
    Move { line: u32, cpu: u32 },
    Disable { line: u32, ns: u64 },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring { line, count, period_ns } => {
                write!(f, "device {line} rings {count} times, every {period_ns} ns")
            }
            Self::Move { line, cpu } => write!(f, "move line {line} to CPU {cpu}"),
            Self::Disable { line, ns } => write!(f, "disable line {line} for {ns} ns"),
        }
    }
}

/// A liveness obligation: after a device was programmed to ring, its handler must run.
#[derive(Default)]
struct Wishes {
    given: AtomicU64,
    waiting: Mutex<Vec<u64>>,
}

impl Wishes {
    fn make(&self, line: u32) {
        let number = u64::from(line) << 32 | self.given.fetch_add(1, Relaxed);
        Mark::Submitted.of(number);
        self.waiting.lock().expect("one host thread").push(number);
    }

    fn serve(&self) {
        let served = std::mem::take(&mut *self.waiting.lock().expect("one host thread"));
        served.into_iter().for_each(|number| Mark::Completed.of(number));
    }
}

/// State that the machine's threads share.
struct Shared {
    stack: Stack<SimHal>,
    wishes: Vec<Arc<Wishes>>,
    devices: Vec<Regs>,
    /// Disables of a line do not nest.
    disabled: Vec<AtomicBool>,
    cpus: u32,
}

impl Shared {
    fn ring(&self, line: usize, count: u64, period_ns: u64) {
        self.wishes[line].make(line as u32);
        RingerPort(self.devices[line]).ring(count, period_ns);
    }

    fn point(&self, line: usize, cpu: CpuId) {
        let (address, data) = self.stack.message(line, cpu);
        RingerPort(self.devices[line]).forge(address, data);
    }
}

struct ForeignRig {
    machine: Machine,
    shared: Arc<Shared>,
}

impl Subject for Foreign {
    type Step = Step;
    type Fault = String;
    type Rig = ForeignRig;

    fn name(&self) -> &'static str {
        "foreign"
    }

    fn about(&self) -> &'static str {
        "somebody else's stack"
    }

    fn draw_step(&self, draw: &mut Draw) -> Step {
        let line = draw.below(LINES.into()) as u32;
        match draw.below(3) {
            0 => Step::Ring { line, count: draw.within(1..=3), period_ns: draw.time_ns(300, 5_000) },
            1 => Step::Move { line, cpu: draw.below(64) as u32 },
            _ => Step::Disable { line, ns: draw.time_ns(1_000, 200_000) },
        }
    }

    fn draw_fault(&self, _kind: &'static str, _draw: &mut Draw) -> String {
        unreachable!("it has no kinds of fault")
    }

    fn build(&self, build: &mut Build<'_, String>) -> ForeignRig {
        let cpus = build.knobs.number("cpus", 1..=4) as u32;
        let mut machine = Machine::new(MachineConfig { cpus, memory_bytes: 4096, ..build.machine() });
        // A remapping unit that is off passes messages unchanged.
        let unit = VtdConfig {
            name: "dmar0".into(),
            posted_interrupts: false,
            extended_interrupt_mode: false,
            fault_records: 1,
            remap_time: Ps::from_ns(50),
            post_time: Ps::from_ns(100),
            command_time: Ps::from_ns(200),
            invalidation_time: Ps::from_ns(500),
            invalidation_fault: InvalidationFault::None,
        };
        let unit = VtdUnit::new(unit, Dispatch::new(Ps::from_ns(100)), Credits::default());
        let unit = machine.add_model(|_| Box::new(unit));
        let devices: Vec<Regs> = (0..LINES)
            .map(|line| {
                let model = machine.add_model(|_| Box::new(Ringer::new(unit, 0x100 + line as u16)));
                Regs::Model { model, region: 0 }
            })
            .collect();
        let wishes: Vec<Arc<Wishes>> = (0..LINES).map(|_| Arc::default()).collect();
        let handlers = wishes.iter().cloned().map(|wishes| Box::new(move || wishes.serve()) as Box<_>);
        let stack = Stack::new(SimHal, Regs::Lapic, self.0, handlers);
        let disabled = (0..LINES).map(|_| AtomicBool::new(false)).collect();
        let shared = Arc::new(Shared { stack, wishes, devices, disabled, cpus });
        let entry = shared.clone();
        // Reschedule IPIs and slice-end interrupts belong to the machine, and need only an EOI.
        machine.set_interrupt_entry(move |vector| match vector {
            0xec | 0xfd => Regs::Lapic.write32(0x80b, 0),
            vector => entry.stack.take(vector),
        });
        ForeignRig { machine, shared }
    }

    fn bound(&self) -> Ps {
        Ps::from_ns(1_000_000)
    }
}

impl Rig for ForeignRig {
    type Step = Step;
    type Fault = String;
    type Stack = Shared;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn bring_up(&mut self) {
        let shared = self.shared.clone();
        let boot = move || {
            for cpu in (0..shared.cpus).map(CpuId) {
                let (own, up) = (shared.clone(), Arc::new(OnceLock::new()));
                let told = up.clone();
                let body = move || {
                    own.stack.start_cpu();
                    assert!(told.set(()).is_ok(), "once");
                };
                let spec = ThreadSpec { name: "start", affinity: Affinity::Cpu(cpu), urgent: true };
                SimHal.spawn(spec, Box::new(body)).expect("the CPU exists");
                while up.get().is_none() {
                    SimHal.yield_now();
                    SimHal.delay_ns(1_000);
                }
            }
            (0..LINES as usize).for_each(|line| shared.point(line, CpuId(0)));
        };
        self.machine.run_boot(Ps::from_ns(10_000_000), boot).expect("it comes up");
    }

    fn stack(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    fn start_load(&mut self) {}

    fn apply(shared: &Arc<Shared>, step: &Step) {
        match *step {
            Step::Ring { line, count, period_ns } => shared.ring(line as usize, count, period_ns),
            Step::Move { line, cpu } => shared.point(line as usize, CpuId(cpu % shared.cpus)),
            Step::Disable { line, ns } => {
                if shared.disabled[line as usize].swap(true, Relaxed) {
                    return;
                }
                shared.stack.disable(line as usize);
                SimHal.delay_ns(ns);
                shared.stack.enable(line as usize);
                shared.disabled[line as usize].store(false, Relaxed);
            }
        }
    }

    fn inject(&mut self, _fault: &String) {}

    fn heal(&mut self, _fault: &String) {}

    fn is_done(&self) -> bool {
        self.shared.wishes.iter().all(|wishes| wishes.waiting.lock().expect("one host thread").is_empty())
    }

    fn prove(&mut self) {
        (0..LINES as usize).for_each(|line| self.shared.ring(line, 1, 1_000));
    }

    fn audit(&mut self) {}

    fn cover(&mut self, _coverage: &mut check::coverage::Coverage) {}

    fn describe(&self) -> String {
        String::new()
    }
}

fn run(scenario: &dyn Scenario, seed: u64) -> Run {
    scenario.run(&Recipe::of(seed)).expect("nothing is set")
}

#[test]
fn the_sound_stack_passes() {
    for seed in 1..=200 {
        let run = run(&SOUND, seed);
        if let Some(failure) = run.failure {
            panic!("{failure}\n{}\n{}", Recipe::of(seed), run.history);
        }
    }
}

#[test]
fn the_planted_bug_is_found_and_made_short() {
    let found = (1..=200).find_map(|seed| Some((seed, run(&BUGGY, seed).failure?)));
    let (seed, failure) = found.expect("some history of 200 shows it");
    assert_eq!((failure.kind, failure.checker), (Kind::Liveness, "load"), "{failure}");
    let shortest = shrink(&BUGGY, &Recipe::of(seed), &failure, &AtomicBool::new(false));
    let again = BUGGY.run(&shortest).expect("nothing is set wrongly");
    assert!(again.failure.is_some_and(|same| same.is_like(&failure)), "{shortest}");
    // One ring while the line is disabled is enough to show the bug.
    let text = again.history.to_string();
    assert!(again.history.events.len() <= 3, "{text}");
    assert!(text.contains("rings") && text.contains("disable line"), "{text}");
}

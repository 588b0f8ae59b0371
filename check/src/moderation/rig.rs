//! The machine, and the host's operations on it.

use super::board::Board;
use super::end::COMPLETE;
use super::manage;
use super::spare;
use super::stack::{BOARD_INTID, ModerationStack, NICS, Tick, Wanted};
use super::step::{ModerationFault, ModerationStep};
use super::tuning::{TABLES, Tuning, table};
use super::watch::Hang;
use crate::checkers::beliefs::Promises;
use crate::checkers::{self, Checker, acks};
use crate::coverage::Coverage;
use crate::draw::{Draw, Knobs};
use crate::gic::beliefs;
use crate::gic::bells::{BEGIN_TICKS, BellPort, Bells, Sound};
use crate::gic::harness::{self, Entry, Options, Version};
use crate::rest;
use crate::server;
use crate::setbacks::Setbacks;
use crate::subject::{Build, Rig};
use crate::verdict::violate;
use drivers::gic::EoiMode;
use hal::{Hal as _, Work};
use irq::moderation::AdaptiveConfig;
use irq::poll::PollConfig;
use machine::gic::{GicConfig, ItsConfig, PULSE, wire_arg};
use machine::model::ModelId;
use machine::rdma::{Config, ModerationAnswer, Nic, Wire};
use machine::time::Ps;
use machine::{Costs, Machine, MachineConfig, SimHal};
use std::sync::Arc;

/// Work on the boot thread ends within this time.
const LIMIT: Ps = Ps::from_ns(2_000_000_000);
/// The last load: commands of each consumer.
const PROOF: u64 = 24;
/// Commands of a consumer that may be left in the end: one by one, at a level of 256 µs, they complete within the
/// bound.
const LEFT_MAX: u64 = 1_000;
/// PPI of the driver's clock.
const TICK_PPI: u32 = 27;
/// The board and the NICs.
const DEVICES: u32 = 3;
/// How often to look whether tunings have come to rest, and the time between two looks.
const REST_MAX: u32 = 300;
const REST_LOOK: Ps = Ps::from_ns(100_000);

/// A machine with polled devices and two NICs.
pub struct ModerationRig {
    machine: Machine,
    entry: Entry,
    options: Options,
    mode: EoiMode,
    wanted: Wanted,
    clock: ModelId,
    board: ModelId,
    load: u64,
    stack: Option<Arc<ModerationStack>>,
}

/// A level that is wanted at rest is programmed before that many looks, so far apart: a wake that was lost never comes.
const WISH_LOOKS: u32 = 4000;
const WISH_LOOK_NS: u64 = 50_000;

/// When the threads that program levels start.
fn draw_late_us(draw: &mut Draw) -> u64 {
    if draw.percent(70) { 0 } else { draw.time_ns(5, 500) }
}

fn draw_tuning(knobs: &mut Knobs) -> Tuning {
    let table = table(knobs.choice("levels", TABLES));
    let ns = |knobs: &mut Knobs, name, least, most| 1000 * knobs.number(name, least..=most);
    let (search_ns_max, window_ns_min) = (ns(knobs, "search_us", 10, 100), ns(knobs, "window_us", 4, 60));
    let rest_ns_min = ns(knobs, "rest_us", 20, 200);
    let config = AdaptiveConfig {
        nr_events: knobs.number_with("nr_events", 1..=64, 1, |draw| draw.time_ns(1, 8)),
        search_ns_max,
        window_ns_min,
        window_ns_max: 2 * window_ns_min,
        program_ns_max: ns(knobs, "late_us", 20, 200),
        rest_ns_min,
        rest_ns_max: 4 * rest_ns_min,
        recheck_ns: 4 * rest_ns_min,
        events_per_s_min: 6_400,
    };
    Tuning { table, config }
}

/// The cost of completions: some machines are overwhelmed.
fn draw_costs(knobs: &mut Knobs) -> Costs {
    let entry_ps = 1000 * knobs.number_with("entry_ns", 10..=2_000, 10, |draw| draw.time_ns(10, 2_000));
    let mut costs = server::costs();
    for (work, ps) in [(Work::ReapEntry, entry_ps), (COMPLETE, entry_ps), (Work::SoftPass, 200_000)] {
        costs.work.set_ps(work, ps);
    }
    costs
}

impl ModerationRig {
    pub(super) fn build(build: &mut Build<'_, ModerationFault>) -> Self {
        let machine = build.machine();
        let setbacks = Setbacks::draw(build.knobs, build.may_be_set_back);
        let knobs = &mut *build.knobs;
        let cpus = knobs.number("cpus", 1..=4) as u32;
        let mode = [EoiMode::Together, EoiMode::Split][knobs.choice("eoimode", &["0", "1"])];
        let pairs = knobs.number("pairs", 0..=2) as u32;
        let queues = (knobs.number("queues", 0..=4) as u32).max(u32::from(pairs == 0));
        let force_threads = knobs.chance("threads", 15);
        let costs = draw_costs(knobs);
        let machine = MachineConfig { memory_bytes: 8 << 20, jitter_percent: 40, costs, ..machine };
        let gic = GicConfig { its: Some(ItsConfig::default()), ..GicConfig::default() };
        let options = Options { cpus, force_threads, gic, machine, setbacks, ..Options::default() };
        let entry = Entry::default();
        let mut machine = harness::build(Version::V3, &options, &entry);
        let gic = machine.gic().expect("it was asked for").model;
        let board = machine.add_model(|_| Box::new(Board::new(gic, BOARD_INTID, queues)));
        let tick = (Sound::Wire { intid: TICK_PPI, cpu: 0 }, true);
        let clock = machine.add_model(|_| Box::new(Bells::new(gic, 60, [tick].into_iter())));
        let wire = Wire::default();
        let nics = NICS.map(|requester| {
            let count = pairs.max(1) as u16;
            let config = Config {
                requester,
                queue_pairs: count + spare::PAIRS,
                completion_queues: count + spare::QUEUES,
                memory_regions: spare::REGIONS,
                event_queues: count,
                patience_10us: u8::MAX,
                ..Config::default()
            };
            machine.add_model(|id| Box::new(Nic::new(id, gic, &wire, config).expect("valid")))
        });
        // The levels to which devices round, with or without a fault.
        let rounds = knobs.number_with("rounds", 1..=8, 1, |draw| draw.time_ns(1, 8)) as u16;
        let budget = knobs.number_with("budget", 1..=256, 256, |draw| draw.time_ns(1, 256)) as u32;
        let time_ns_max = 1000 * knobs.number_with("pass_us", 5..=2_000, 2_000, |draw| draw.time_ns(5, 2_000));
        let wanted = Wanted {
            cpus,
            queues,
            pairs,
            depth: knobs.number_with("depth", 1..=64, 1, |draw| draw.time_ns(1, 64)),
            gap_ns: knobs.number_with("gap_ns", 0..=4_000, 0, |draw| draw.time_ns(1, 4_000)) as u32,
            poll: PollConfig { budget, time_ns_max },
            weight: knobs.number_with("weight", 1..=64, 64, |draw| draw.time_ns(1, 64)) as u32,
            crowded: knobs.chance("crowded", 40),
            untuned: knobs.number_with("untuned", 0..=255, 0, |draw| draw.below(256) & draw.below(256)),
            threaded: knobs.number_with("threaded", 0..=255, 0, |draw| draw.below(256) & draw.below(256)),
            algorithm: knobs.number("algorithm", 0..=7) as u32,
            tuning: draw_tuning(knobs),
            shared: knobs.chance("one_programmer", 25),
            urgent: knobs.chance("urgent", 50),
            late_ns: 1000 * knobs.number_with("late_us", 0..=500, 0, draw_late_us),
            board: machine.regs(board, 0),
            nics,
        };
        let load = knobs.number_with("load", 0..=40_000, 20, |draw| draw.time_ns(500, 16_000));
        let rounds = ModerationAnswer::Rounds { count: rounds, period_us: rounds };
        let mut rig = Self { machine, entry, options, mode, wanted, clock, board, load, stack: None };
        (0..DEVICES).for_each(|device| rig.answer(device, rounds));
        rig
    }

    fn up(&self) -> &Arc<ModerationStack> {
        self.stack.as_ref().expect("the stack is up")
    }

    /// Runs `body` on CPU 0 until it has ended.
    fn boot<R: Send + 'static>(&mut self, body: impl FnOnce(&Arc<ModerationStack>) -> R + Send + 'static) -> R {
        let stack = self.up().clone();
        match self.machine.run_boot(LIMIT, move || body(&stack)) {
            Ok(value) => value,
            Err(why) => panic!("{why}\n{}", self.describe()),
        }
    }

    /// Every tuning comes to rest: each wanted level is programmed, and each device has the level that its tuner
    /// believes.
    fn rest(&mut self) {
        let mut restless: Vec<_> = (0..self.up().consumers.len()).collect();
        let mut said = String::new();
        for _ in 0..REST_MAX {
            let later = self.machine.now() + REST_LOOK;
            self.machine.run_until(later);
            (restless, said) = self.boot(move |stack| {
                let unrest = |&index: &usize| {
                    stack.consumers[index].unrest(&stack.wanted.tuning.table).map(|text| (index, text))
                };
                restless.iter().filter_map(unrest).unzip()
            });
            if restless.is_empty() {
                return;
            }
        }
        self.boot(move |_| violate("tuning", format!("a tuning does not come to rest: {said}")));
    }

    /// The NICs give what is left of them, and no more.
    fn fill_nics(&mut self) {
        if self.up().devices.is_empty() {
            return;
        }
        let first: Vec<_> = self.boot(|stack| stack.spares().map(|spare| spare.begin()).collect());
        self.machine.set_memory_exhausted(true);
        let first = self.boot(move |stack| {
            stack.spares().zip(&first).for_each(|(spare, first)| spare.without_memory(first));
            first
        });
        self.machine.set_memory_exhausted(false);
        self.boot(move |stack| stack.spares().zip(&first).for_each(|(spare, first)| spare.take_all(first)));
    }

    /// A fault of a device; none: it is healed.
    fn answer_wrongly(&mut self, device: u32, answer: Option<ModerationAnswer>) {
        match device.checked_sub(1) {
            None => _ = self.machine.with_model(self.board, |board: &mut Board| board.set_fault(answer)),
            Some(nic) => {
                let nic = self.wanted.nics[nic as usize];
                self.machine.with_model(nic, |nic: &mut Nic| nic.set_moderation_fault(answer));
            }
        }
    }

    fn answer(&mut self, device: u32, answer: ModerationAnswer) {
        match device.checked_sub(1) {
            None => _ = self.machine.with_model(self.board, |board: &mut Board| board.set_answer(answer)),
            Some(nic) => {
                let nic = self.wanted.nics[nic as usize];
                self.machine.with_model(nic, |nic: &mut Nic| nic.set_moderation_answer(answer));
            }
        }
    }
}

impl Rig for ModerationRig {
    type Step = ModerationStep;
    type Fault = ModerationFault;
    type Stack = ModerationStack;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn bring_up(&mut self) {
        let windows = self.machine.gic().expect("it was asked for");
        let (options, entry, mode, wanted) = (self.options.clone(), self.entry.clone(), self.mode, self.wanted.clone());
        let port = BellPort { regs: self.machine.regs(self.clock, 0), index: 0 };
        let boot = move || {
            let system = harness::bring_up(windows, Version::V3, mode, &options, &entry);
            let stack = ModerationStack::bring_up(system, &wanted, &options.setbacks);
            let line = stack.system.private(TICK_PPI, Arc::new(Tick { port, stack: Arc::downgrade(&stack) }));
            stack.system.enable_everywhere(line);
            stack
        };
        self.stack = Some(self.machine.run_boot(LIMIT, boot).expect("the stack comes up"));
        let now = self.machine.now();
        self.machine.poke(self.clock, now, BEGIN_TICKS, 0);
    }

    fn stack(&self) -> Arc<ModerationStack> {
        self.up().clone()
    }

    fn checkers(&mut self) -> Vec<Box<dyn Checker>> {
        let budget = self.wanted.poll.budget;
        let acks = checkers::Acks::new(&self.up().system.core, self.up().lines.iter().copied());
        let mut all: Vec<Box<dyn Checker>> =
            vec![Box::new(checkers::Gic::default()), Box::new(checkers::Polls::new(budget)), Box::new(acks)];
        if self.wanted.shared {
            all.push(Box::new(checkers::Programs::default()));
        }
        all
    }

    fn start_load(&mut self) {
        let load = self.load;
        self.boot(move |stack| {
            let each = load / stack.consumers.len() as u64;
            stack.consumers.iter().for_each(|consumer| consumer.source.add(each));
            stack.load_begins();
        });
    }

    fn apply(stack: &Arc<ModerationStack>, step: &ModerationStep) {
        manage::apply(stack, step);
        beliefs::check_step(&stack.system, Promises::Kept);
    }

    fn inject(&mut self, fault: &ModerationFault) {
        match *fault {
            ModerationFault::Answers { device, answer } => self.answer_wrongly(device, Some(answer)),
            ModerationFault::Hangs { consumer, hang } => self.up().consumer(consumer).device.set(hang),
            ModerationFault::Spurious { queue } if self.wanted.queues > 0 => {
                let wire = wire_arg(BOARD_INTID + queue % self.wanted.queues, 0, true);
                let (gic, now) = (self.machine.gic().expect("it was asked for").model, self.machine.now());
                self.machine.poke(gic, now, PULSE, wire);
            }
            ModerationFault::Spurious { .. } => {}
        }
    }

    fn heal(&mut self, fault: &ModerationFault) {
        match *fault {
            ModerationFault::Answers { device, .. } => self.answer_wrongly(device, None),
            ModerationFault::Hangs { consumer, .. } => self.up().consumer(consumer).device.set(Hang::No),
            ModerationFault::Spurious { .. } => {}
        }
    }

    fn settle(&mut self) {
        self.boot(|stack| {
            for consumer in &stack.consumers {
                consumer.source.trim(LEFT_MAX);
                consumer.source.set_depth(stack.wanted.depth);
            }
        });
    }

    fn is_done(&self) -> bool {
        self.up().consumers.iter().all(|consumer| consumer.source.is_idle())
    }

    fn prove(&mut self) {
        self.boot(|stack| stack.consumers.iter().for_each(|consumer| consumer.source.add(PROOF)));
    }

    fn audit(&mut self) {
        let faults = self.machine.faults().0;
        assert!(faults.is_empty(), "the machine recorded faults: {faults:?}");
        self.rest();
        self.boot(|stack| {
            let strays = stack.system.arm.strays();
            assert_eq!(strays, 0, "interrupts without a line");
            rest::check(&stack.system.core);
            beliefs::check(&stack.system, Promises::Kept, true);
            stack.lines.iter().for_each(|&line| acks::claim(&stack.system.core, line));
            stack.consumers.iter().for_each(|consumer| consumer.source.fill());
            for consumer in &stack.consumers {
                let Some(tuned) = &consumer.tuned else { continue };
                let (told, done) = (tuned.watched.told(), consumer.source.completed());
                assert_eq!(told, done, "the completions reported to the tuning differ from the real ones");
                // The tick goes on, and a controller may want another level meanwhile.
                let is_served = || {
                    SimHal.delay_ns(WISH_LOOK_NS);
                    tuned.watched.view().wanted.is_none()
                };
                assert!(
                    (0..WISH_LOOKS).any(|_| is_served()),
                    "a level is wanted and never programmed\n{}",
                    tuned.watched.view()
                );
            }
        });
        self.fill_nics();
    }

    fn cover(&mut self, coverage: &mut Coverage) {
        let stack = self.up();
        coverage.merge(&stack.seen.lock().expect("one host thread"));
        for tuned in stack.consumers.iter().filter_map(|consumer| consumer.tuned.as_ref()) {
            let counts = tuned.watched.view().counts;
            coverage.add("tuning: a level was programmed", counts.changes);
            coverage.add("tuning: a level was refused", counts.failed);
            coverage.add("tuning: a level was rounded", counts.quantised);
            coverage.add("tuning: a step was late", counts.late);
            coverage.add("tuning: an answer without a step", counts.strays);
            coverage.add("tuning: search", counts.searches);
            coverage.add("tuning: window counted again", tuned.watched.windows());
        }
    }

    fn describe(&self) -> String {
        self.stack.as_ref().map(|stack| stack.describe()).unwrap_or_default()
    }
}

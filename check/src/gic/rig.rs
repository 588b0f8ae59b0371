//! The machine, and the host's operations on it.

use super::bells::{self, BEGIN_STORM, BEGIN_TICKS, BellPort, Bells, GLITCH, SETTLE, Sound};
use super::fault::GicFault;
use super::harness::{self, Entry, Options, V2M_BASE, Version};
use super::source::{Kind, Style};
use super::stack::{BLOCK, GicStack, Habits, STRAY};
use super::step::GicStep;
use super::{beliefs, bringup, counters, end, guards, manage, silence};
use crate::checkers::truth::marks::{self, Known};
use crate::checkers::{self, Checker};
use crate::coverage::Coverage;
use crate::deeds;
use crate::draw::Draw;
use crate::scheduler::draw_topology;
use crate::setbacks::Setbacks;
use crate::subject::{Build, Rig};
use drivers::gic::EoiMode;
use irq::{IrqChipState, StormConfig};
use machine::gic::{Gic, GicConfig, ItsConfig, V2mConfig};
use machine::model::ModelId;
use machine::time::Ps;
use machine::{Machine, MachineConfig};
use spec::gic::Priority;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Work on the boot thread ends within this time.
const LIMIT: Ps = Ps::from_ns(2_000_000_000);
/// The last load: events of each source.
const PROOF: u64 = 12;
/// Histories in a hundred whose ITS, if there is one, is silent in the end: the driver's looks cost the host much.
const SILENCE_PERCENT: u64 = 10;

/// The destination of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    None,
    Its,
    V2m,
    /// The distributor's own registers.
    Mbi,
}

/// A machine with a GIC and its sources.
pub struct GicRig {
    machine: Machine,
    entry: Entry,
    options: Options,
    version: Version,
    mode: EoiMode,
    bells: ModelId,
    kinds: Vec<(Kind, Style)>,
    load: u64,
    depth: u32,
    habits: Habits,
    faults: Vec<GicFault>,
    /// What is asked of the ITS in the end while it is silent, and for how long.
    silence: Option<silence::Silence>,
    /// An earlier kernel has left something in the hardware.
    leftovers: bool,
    stack: Option<Arc<GicStack>>,
}

/// Draws the sources: some of each kind.
fn draw_sources(build: &mut Build<'_, GicFault>, cpus: u32, nmis: bool, way: Way) -> Vec<(Kind, Style)> {
    let mut kinds = Vec::new();
    let mut add = |name, most, kind: &dyn Fn(u32) -> Kind| {
        for index in 0..build.knobs.number(name, 0..=most) as u32 {
            kinds.push(kind(index));
        }
    };
    add("edges", 3, &|index| Kind::Spi { intid: 40 + index, level: false });
    add("levels", 3, &|index| Kind::Spi { intid: 44 + index, level: true });
    add("sgis", 1, &|index| Kind::Sgi { intid: 3 + index });
    add("pins", bells::PINS.into(), &|pin| Kind::Pin { pin, level: pin == 1 });
    if way != Way::None {
        add("messages", 3, &|index| Kind::Message { maskable: way != Way::Its || index == 0 });
    }
    if nmis {
        add("nmis", 1, &|index| Kind::Nmi { intid: 50 + index });
        // Priorities of four interrupts share a register (IHI 0069H, "GICD_IPRIORITYR<n>"), and only pseudo-NMIs change theirs.
        add("nmis_beside", 1, &|index| Kind::Nmi { intid: 51 + index });
    }
    if build.knobs.chance("ppis", 60) {
        kinds.extend((0..cpus).map(|cpu| Kind::Ppi { intid: 25, cpu }));
    }
    if kinds.is_empty() {
        kinds.push(Kind::Spi { intid: 40, level: false });
    }
    let oneshot = build.knobs.number("oneshot", 0..=15);
    let style = |(index, kind): (usize, &Kind)| match kind {
        Kind::Spi { .. } | Kind::Pin { .. } | Kind::Message { .. } if oneshot >> (index % 4) & 1 != 0 => Style::Oneshot,
        _ => Style::Plain,
    };
    let styles: Vec<_> = kinds.iter().enumerate().map(style).collect();
    kinds.into_iter().zip(styles).collect()
}

impl GicRig {
    pub(super) fn build(version: Version, build: &mut Build<'_, GicFault>) -> Self {
        let cpus = build.knobs.number("cpus", 1..=4) as u32;
        let mode = [EoiMode::Together, EoiMode::Split][build.knobs.choice("eoimode", &["0", "1"])];
        let ways: &'static [&'static str] =
            if version == Version::V3 { &["none", "v2m", "its", "mbi"] } else { &["none", "v2m"] };
        let way = [Way::None, Way::V2m, Way::Its, Way::Mbi][build.knobs.choice("messages_by", ways)];
        let nmis = version == Version::V3 && build.knobs.chance("pseudo_nmi", 40);
        let kinds = draw_sources(build, cpus, nmis, way);
        let storm = StormConfig { burst: 40, burst_ns_min: 60_000, unhandled_max: 30, throttle_ns: 100_000 };
        let knobs = &mut *build.knobs;
        let storm = if knobs.chance("strict_storms", 30) { storm } else { StormConfig::default() };
        let force_threads = knobs.chance("threads", 25);
        let load = knobs.number_with("load", 0..=20_000, 20, |draw| draw.time_ns(100, 3_000));
        let depth = knobs.number("depth", 1..=4) as u32;
        let linger_ns = knobs
            .number_with("linger_ns", 0..=4_000, 0, |draw| if draw.percent(40) { 0 } else { draw.time_ns(200, 4_000) });
        let draw = |draw: &mut Draw| if draw.percent(50) { 0 } else { draw.within(1..=15) };
        let guarded = knobs.number_with("guarded", 0..=15, 0, draw);
        let managed = knobs.number_with("managed", 0..=15, 0, draw);
        let affinity_shift = if version == Version::V3 { knobs.number("affinity_shift", 0..=4) as u32 } else { 0 };
        let gic = GicConfig {
            affinity_shift,
            pseudo_nmi: nmis.then_some(Priority::DEFAULT.0),
            its: (way == Way::Its).then(ItsConfig::default),
            message_spis: way == Way::Mbi,
            v2m: (way == Way::V2m).then_some(V2mConfig { base: V2M_BASE, first: 64, count: harness::FRAME_SPIS }),
            ..GicConfig::default()
        };
        let topology = draw_topology(knobs);
        let machine = MachineConfig { memory_bytes: 4 << 20, jitter_percent: 40, topology, ..build.machine() };
        let setbacks = Setbacks::draw(build.knobs, build.may_be_set_back);
        let options = Options { cpus, force_threads, storm, gic, machine, setbacks };
        let entry = Entry::default();
        let mut machine = harness::build(version, &options, &entry);
        let gic = machine.gic().expect("it was asked for").model;
        let sound = |kind: Kind| match kind {
            Kind::Spi { intid, level } => (Sound::Wire { intid, cpu: 0 }, level),
            Kind::Nmi { intid } => (Sound::Wire { intid, cpu: 0 }, false),
            Kind::Ppi { intid, cpu } => (Sound::Wire { intid, cpu }, true),
            Kind::Pin { pin, level } => (Sound::Pin(pin), level),
            Kind::Message { .. } | Kind::Sgi { .. } => (Sound::Message, false),
        };
        let tick = (Sound::Wire { intid: 27, cpu: 0 }, true);
        let sounds = kinds.iter().map(|(kind, _)| sound(*kind));
        let sounds: Vec<_> = sounds.chain([(Sound::Wire { intid: STRAY, cpu: 0 }, true), tick]).collect();
        let bells = machine.add_model(|_| Box::new(Bells::new(gic, BLOCK, sounds.into_iter())));
        let faults = build.faults.clone();
        let habits = Habits { linger_ns, guarded, managed, deeds: (build.seed, deeds::draw_percent(build.knobs)) };
        let leftovers = build.knobs.chance("leftovers", 30);
        let silent = build.knobs.chance("its_silence", SILENCE_PERCENT) && way == Way::Its && cpus > 1;
        let silence = silent.then(|| silence::Silence::draw(&mut Draw::new(build.seed, "silence", 0)));
        let stack = None;
        Self {
            machine,
            entry,
            options,
            version,
            mode,
            bells,
            kinds,
            load,
            depth,
            habits,
            faults,
            silence,
            leftovers,
            stack,
        }
    }

    fn up(&self) -> &Arc<GicStack> {
        self.stack.as_ref().expect("the stack is up")
    }

    /// Runs `body` on CPU 0 until it has ended.
    fn boot<R: Send + 'static>(&mut self, body: impl FnOnce(&Arc<GicStack>) -> R + Send + 'static) -> R {
        let stack = self.up().clone();
        match self.machine.run_boot(LIMIT, move || body(&stack)) {
            Ok(value) => value,
            Err(why) => panic!("{why}\n{}", self.describe()),
        }
    }

    fn change(&mut self, source: u32, change: impl FnOnce(&mut bells::Faults)) {
        let index = source as usize % self.kinds.len();
        self.machine.with_model(self.bells, |bells: &mut Bells| change(bells.faults_mut(index))).expect("the board");
    }

    fn poke(&mut self, source: u32, code: u32) {
        let (now, index) = (self.machine.now(), u64::from(source) % self.kinds.len() as u64);
        self.machine.poke(self.bells, now, code, index);
    }
}

impl GicRig {
    /// All lines are freed. The ITS is silent while it is asked for something, if that was drawn.
    fn fall_silent(&mut self) {
        let drawn = self.silence.filter(|_| !self.up().faulty);
        let Some(silence::Silence { operation, ns, last_words }) = drawn else { return };
        let lines = self.boot(move |stack| silence::begin(stack, operation));
        let until = self.machine.now() + Ps::from_ns(ns);
        self.machine.set_its_silent(until, last_words);
        let lines = self.boot(move |stack| silence::ask(stack, operation, lines));
        self.boot(move |stack| silence::judge(stack, lines, until.as_ns()));
    }
}

/// The last stray and the table of all interrupts agree with the number of strays.
fn check_strays(stack: &GicStack) {
    let arm = &stack.system.arm;
    let strays = arm.strays();
    let last = arm.last_stray().map(|intid| intid.0);
    // A line that was freed under load may have left one.
    let is_known = stack.freed.load(Relaxed) > 0 || last.is_none_or(|intid| intid == STRAY);
    assert!(last.is_some() == (strays > 0) && is_known, "{strays} interrupts without a line, the last {last:?}");
    let table = arm.interrupts().to_string();
    let errors = table.lines().last().and_then(|row| row.split_whitespace().last()?.parse().ok());
    assert_eq!(errors, Some(strays), "the row of errors of\n{table}");
}

impl Rig for GicRig {
    type Step = GicStep;
    type Fault = GicFault;
    type Stack = GicStack;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn bring_up(&mut self) {
        if self.leftovers {
            let gic = self.machine.gic().expect("it was asked for").model;
            self.machine.with_model(gic, Gic::leave_priorities).expect("it is there");
        }
        let windows = self.machine.gic().expect("it was asked for");
        let regs = self.machine.regs(self.bells, 0);
        let (version, mode) = (self.version, self.mode);
        let (options, entry, kinds) = (self.options.clone(), self.entry.clone(), self.kinds.clone());
        let (clock, habits) = (kinds.len() as u32 + 1, self.habits);
        let faulty = self.faults.iter().any(GicFault::breaks_operations);
        let lossy = self.faults.iter().any(|fault| matches!(fault, GicFault::Dropped { .. }));
        let boot = move || {
            let system = harness::bring_up(windows, version, mode, &options, &entry);
            let stack = Arc::new(GicStack::new(system, regs, &kinds, habits, faulty));
            stack.bind_all(BellPort { regs, index: clock });
            manage::begin_deeds(&stack);
            if lossy {
                stack.start_clock();
            }
            stack
        };
        let stack = self.machine.run_boot(LIMIT, boot).expect("the stack comes up");
        let now = self.machine.now();
        self.machine.poke(self.bells, now, BEGIN_TICKS, clock.into());
        self.stack = Some(stack);
    }

    fn stack(&self) -> Arc<GicStack> {
        self.up().clone()
    }

    fn checkers(&mut self) -> Vec<Box<dyn Checker>> {
        let Options { storm, force_threads, .. } = self.options;
        let kind = (force_threads, !self.faults.is_empty());
        let (core, judged) = (&self.up().system.core, self.up().judged_lines());
        let mut all: Vec<Box<dyn Checker>> = vec![
            Box::new(checkers::Gic::default()),
            Box::new(checkers::Acks::new(core, self.up().lines())),
            Box::new(checkers::Truth::new(storm, kind, judged.filter_map(|line| Known::of(core, line)))),
        ];
        // One run of a thread may serve several interrupts.
        if !force_threads && storm != StormConfig::default() {
            all.push(Box::new(checkers::Containment::new(storm)));
        }
        all
    }

    fn start_load(&mut self) {
        let (each, depth) = (self.load / self.kinds.len() as u64, self.depth);
        self.boot(move |stack| stack.sources.iter().for_each(|source| source.carry(&stack.system, each, depth)));
    }

    fn apply(stack: &Arc<GicStack>, step: &GicStep) {
        manage::apply(stack, step);
        beliefs::check_step(&stack.system, stack.promises());
    }

    fn inject(&mut self, fault: &GicFault) {
        let source = fault.source();
        match *fault {
            GicFault::Stuck { .. } => {
                self.change(source, |faults| faults.stuck = true);
                self.poke(source, SETTLE);
            }
            GicFault::Glitch { ns, .. } => self.poke(source, GLITCH + ns),
            GicFault::Storm { period_ns, .. } => {
                self.change(source, |faults| faults.storm = Ps::from_ns(period_ns));
                self.poke(source, BEGIN_STORM);
            }
            GicFault::Dropped { count, .. } => self.change(source, |faults| faults.drop = count),
            GicFault::Doubled { count, .. } => self.change(source, |faults| faults.double = count),
            GicFault::Late { ns, .. } => self.change(source, |faults| faults.late = Ps::from_ns(ns)),
            GicFault::Sticks { ns, .. } => self.change(source, |faults| faults.sticks = Ps::from_ns(ns)),
            GicFault::Stalls => self.machine.set_its_refuses(true),
            GicFault::NoMemory => self.machine.set_memory_exhausted(true),
        }
    }

    fn heal(&mut self, fault: &GicFault) {
        match fault {
            GicFault::Stalls => return self.machine.set_its_refuses(false),
            GicFault::NoMemory => return self.machine.set_memory_exhausted(false),
            _ => {}
        }
        let source = fault.source();
        self.change(source, |faults| *faults = bells::Faults::default());
        self.poke(source, SETTLE);
    }

    fn is_done(&self) -> bool {
        self.up().is_done()
    }

    fn prove(&mut self) {
        self.boot(|stack| {
            stack.proving.store(true, Relaxed);
            marks::placed(&stack.system.core, stack.judged_lines());
            stack.sources.iter().for_each(|source| source.carry(&stack.system, PROOF, 2));
        });
    }

    fn audit(&mut self) {
        let mut faults = self.machine.faults().0;
        if self.up().freed.load(Relaxed) > 0 {
            // A message that was on its way when its line was freed.
            faults.retain(|fault| fault.kind != "message without a translation");
        }
        if self.faults.contains(&GicFault::Stalls) {
            // A command behind a refused one, such as the INV behind a MAPTI, names an event that is not mapped. No other
            // command is wrong.
            let is_unmapped = |text: &str| text.ends_with("is not mapped");
            faults.retain(|fault| fault.kind != "ITS command error" || !is_unmapped(&fault.text));
        }
        assert!(faults.is_empty(), "the machine recorded faults: {faults:?}");
        let asked = bringup::Asked {
            splits_ends: self.mode == EoiMode::Split,
            has_nmis: self.options.gic.pseudo_nmi.is_some(),
            has_its: self.options.gic.its.is_some(),
        };
        self.boot(move |stack| {
            check_strays(stack);
            let (strays, late) = (stack.system.arm.strays(), stack.system.arm.late_writes());
            // One may be on its way to a CPU when its line is freed.
            let explained = stack.strays.load(Relaxed) + stack.freed.load(Relaxed);
            assert!(strays <= explained, "{strays} interrupts without a line, and only {explained} are explained");
            assert_eq!(late, 0, "register writes that took too long");
            for source in &stack.sources {
                let Some(line) = source.line() else { continue };
                // A handler may go on after it has served its device.
                stack.system.core.synchronize(line).expect("from a thread");
                let view = stack.system.core.view(line).expect("it lives");
                let masked = view.masked && !source.is_private() && view.throttled_until_ns.is_none();
                assert!(!masked && !view.in_progress, "source {} is held back:\n{view}", source.number);
                let active = stack.system.core.irqchip_state(line, IrqChipState::Active);
                assert_ne!((source.is_private(), active), (false, Ok(true)), "source {} is active", source.number);
                source.check_thread(&stack.system);
            }
            bringup::check(&stack.system, asked);
            guards::check(stack);
            guards::refuse(stack);
            beliefs::check(&stack.system, stack.promises(), true);
            stack.claim();
        });
        let shared = self.boot(end::free);
        self.fall_silent();
        if self.options.gic.pseudo_nmi.is_some() {
            self.boot(|stack| counters::use_line(&stack.system));
        }
        self.boot(move |stack| end::bind(stack, &shared));
    }

    fn cover(&mut self, coverage: &mut Coverage) {
        let stack = self.up();
        coverage.merge(&stack.seen.lock().expect("one host thread"));
        let empty = stack.sources.iter().map(|source| source.empty.load(Relaxed)).sum();
        coverage.add("handler: no event", empty);
        let storms =
            stack.sources.iter().filter_map(|source| stack.system.core.view(source.line()?)).map(|view| view.storms);
        coverage.add("line: storm throttled", storms.map(u64::from).sum());
    }

    fn describe(&self) -> String {
        self.stack.as_ref().map(|stack| stack.describe()).unwrap_or_default()
    }
}

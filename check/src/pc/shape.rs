//! Draws a PC from knobs.

use super::accelerator;
use super::blocks::{EXTENT_BLOCKS, Mix};
use super::fault::PcFault;
use super::user::Habit;
use crate::deeds;
use crate::draw::{Draw, Knobs};
use crate::scheduler::draw_topology;
use crate::server::{Config, Path, costs};
use crate::setbacks::Setbacks;
use crate::subject::Build;
use irq::StormConfig;
use machine::nvme::HiddenCoalescing;
use machine::time::Ps;
use machine::{Costs, Interrupts, MachineConfig};

/// Entries of a drive's queue, in most histories.
const QUEUE_ENTRIES_MAX: u64 = 32;

/// How the drives are populated, and who loads them.
pub(super) struct Shape {
    pub(super) queues: u16,
    /// Entries of each queue of a drive.
    pub(super) entries: u16,
    pub(super) managed: bool,
    pub(super) users: u32,
    pub(super) habit: Habit,
    pub(super) mix: Mix,
    pub(super) carried: u64,
    pub(super) leaks: bool,
    pub(super) absent: u32,
    /// This drive is gone through the last load, counted from 1; 0: none is.
    pub(super) gone: u32,
    /// The last load begins with full queues.
    pub(super) full: bool,
    /// The lines of the core, if all are to be allocated in the end.
    pub(super) count_lines: Option<usize>,
    pub(super) storm: StormConfig,
    pub(super) forced: bool,
    pub(super) accelerator: Option<accelerator::Plan>,
    /// Timers of the HPET are used.
    pub(super) timers: bool,
    /// A function posts by itself.
    pub(super) poster: bool,
    /// The drives' queues report to a tuning.
    pub(super) tuned: bool,
    /// How long the handler of the ringing device goes on after it has begun.
    pub(super) linger_ns: u64,
    /// So many of a hundred of its handlers do something to a line.
    pub(super) deeds_percent: u64,
    /// Users call other CPUs, and completions those that submitted.
    pub(super) calls: bool,
    /// Firmware has left something in the hardware.
    pub(super) leftovers: bool,
}

/// Draws the machine.
pub(super) fn machine(delivery: Path, build: &mut Build<'_, PcFault>) -> (Config, Shape, u32) {
    let base = build.machine();
    let (seed, comparable, may_be_set_back) = (build.seed, build.comparable, build.may_be_set_back);
    let knobs = &mut *build.knobs;
    let cpus = knobs.number("cpus", 1..=8) as u32;
    let drives = knobs.number("drives", 1..=2) as u32;
    let queues = knobs.number("queues", 1..=3).min(cpus.into()) as u16;
    let managed = knobs.chance("managed", 25);
    let storm = draw_storm(knobs);
    let force_threads = knobs.chance("threads", 25);
    let hidden_coalescing = draw_coalescing(knobs);
    let drawn_limit_ns = if delivery == Path::Posted { draw_limit(knobs) } else { None };
    let leaks = knobs.chance("count_vectors", 3);
    let (absent, gone) = draw_missing(knobs, managed || force_threads);
    let (users, carried, habit) = draw_load(knobs, comparable.then_some(drives * u32::from(queues)));
    let full = knobs.chance("full", 30);
    let lines_max = if leaks { 2000 } else { 64 };
    let count_lines = (knobs.chance("count_numbers", 20) && !leaks).then_some(lines_max as usize);
    let accelerator = accelerator::Plan::draw(knobs, seed, !comparable);
    let [timers, poster, tuned, calls] = draw_users(knobs, delivery).map(|is_wanted| is_wanted && !comparable);
    let machine = draw_machine(knobs, base.clone());
    // A notification that ends early sends itself another one, which takes x2APIC mode.
    let notification_limit_ns = drawn_limit_ns.filter(|_| machine.interrupts != Interrupts::XApic);
    let config = Config {
        cpus,
        drives: 0,
        queues: queues.into(),
        delivery,
        managed,
        seed,
        storm,
        force_threads,
        notification_limit_ns,
        read_ns: 1000 * knobs.number("read_us", 2..=20),
        hidden_coalescing,
        devices_post: poster,
        cache_places: draw_places(knobs),
        old_ioapic: delivery == Path::Plain && knobs.chance("old_ioapic", 40),
        setbacks: Setbacks::draw(knobs, may_be_set_back),
        unrest: base.unrest,
        lines_max,
        machine,
        ..Config::default()
    };
    let shape = Shape {
        queues,
        entries: draw_entries(knobs),
        managed,
        users,
        habit,
        mix: draw_mix(knobs),
        carried,
        leaks,
        absent,
        gone,
        full,
        count_lines,
        storm,
        forced: force_threads,
        accelerator,
        timers,
        poster,
        tuned,
        leftovers: knobs.chance("leftovers", 30),
        linger_ns: draw_linger(knobs),
        deeds_percent: if comparable { 0 } else { deeds::draw_percent(knobs) },
        calls,
    };
    (config, shape, drives)
}

/// Timers of the HPET, a function that posts by itself, tunings, calls of CPUs.
fn draw_users(knobs: &mut Knobs, delivery: Path) -> [bool; 4] {
    let timers = knobs.chance("timers", 40);
    // Where a unit remaps, it blocks the messages that the function notifies with.
    let poster = delivery == Path::Plain && knobs.chance("poster", 30);
    [timers, poster, knobs.chance("tuned", 40), knobs.chance("calls", 30)]
}

/// In a few histories each queue comes to its end after a few commands, and one command may be all that it takes.
fn draw_entries(knobs: &mut Knobs) -> u16 {
    let draw = |draw: &mut Draw| if draw.percent(80) { QUEUE_ENTRIES_MAX } else { draw.within(2..=6) };
    knobs.number_with("entries", 2..=QUEUE_ENTRIES_MAX, QUEUE_ENTRIES_MAX, draw) as u16
}

/// A remapping unit may forget any entry at any time.
fn draw_places(knobs: &mut Knobs) -> usize {
    knobs.number_with("cache_places", 0..=4, 0, |draw| if draw.percent(70) { 0 } else { draw.within(1..=4) }) as usize
}

/// The rest of the machine.
fn draw_machine(knobs: &mut Knobs, base: MachineConfig) -> MachineConfig {
    let slice_us = knobs.number_with("slice_us", 10..=3_000, 3_000, |draw| draw.time_ns(10, 3_000));
    let topology = draw_topology(knobs);
    let apic_id_shift = knobs.number("apic_id_shift", 0..=2) as u32;
    let interrupts = if knobs.chance("xapic", 30) { Interrupts::XApic } else { Interrupts::X2Apic };
    MachineConfig {
        costs: Costs { time_slice: Ps::from_ns(1000 * slice_us), ..costs() },
        memory_bytes: accelerator::MEMORY_BYTES,
        jitter_percent: 40,
        topology,
        apic_id_shift,
        interrupts,
        ..base
    }
}

/// The users, the commands of those that are carried on from completions, and how a user submits. `queues`: those of a load
/// that is compared; each has a user of its own, whose batches follow each other.
fn draw_load(knobs: &mut Knobs, queues: Option<u32>) -> (u32, u64, Habit) {
    let drawn_users = knobs.number("users", 1..=4) as u32;
    let load = knobs.number_with("load", 0..=20_000, 20, |draw| draw.time_ns(100, 3_000));
    let carried = if knobs.chance("carried", 40) && queues.is_none() { load / 2 } else { 0 };
    let mut habit = Habit::draw(knobs, (load - carried) / u64::from(drawn_users));
    if queues.is_some() {
        (habit.own_queue, habit.depth) = (true, 1);
    }
    (queues.unwrap_or(drawn_users), carried, habit)
}

/// When a line storms.
fn draw_storm(knobs: &mut Knobs) -> StormConfig {
    let strict = StormConfig { burst: 40, burst_ns_min: 60_000, unhandled_max: 30, throttle_ns: 150_000 };
    if knobs.chance("strict_storms", 30) { strict } else { StormConfig::default() }
}

/// CPUs that are offline through the last load, and the drive that is gone. All of them stay if lines are managed or threaded: a
/// managed queue whose CPUs are absent has no interrupt, and the machine's scheduler leaves ready threads on a CPU that is offline.
fn draw_missing(knobs: &mut Knobs, all_stay: bool) -> (u32, u32) {
    let absent = knobs.number_with("absent", 0..=7, 0, |draw| if draw.percent(60) { 0 } else { draw.within(1..=7) });
    let gone = knobs.number_with("gone", 0..=2, 0, |draw| if draw.percent(80) { 0 } else { draw.within(1..=2) });
    (if all_stay { 0 } else { absent as u32 }, gone as u32)
}

/// Up to four pages of data, so that a command may need a PRP list.
fn draw_mix(knobs: &mut Knobs) -> Mix {
    let changes = |draw: &mut Draw| if draw.percent(50) { 0 } else { draw.within(10..=90) };
    let blocks = |draw: &mut Draw| if draw.percent(60) { 1 } else { draw.time_ns(2, 20) };
    Mix {
        changes_percent: knobs.number_with("changes_percent", 0..=100, 0, changes),
        blocks_max: knobs.number_with("blocks", 1..=EXTENT_BLOCKS.into(), 1, blocks) as u32,
    }
}

/// How long a handler goes on after it has looked.
fn draw_linger(knobs: &mut Knobs) -> u64 {
    knobs.number_with("linger_ns", 0..=4_000, 0, |draw| if draw.percent(40) { 0 } else { draw.time_ns(200, 4_000) })
}

/// How long a posted notification may begin handlers.
fn draw_limit(knobs: &mut Knobs) -> Option<u64> {
    let draw = |draw: &mut Draw| if draw.percent(60) { 0 } else { draw.time_ns(1, 4_000) };
    let ns = knobs.number_with("limit_ns", 0..=20_000, 0, draw);
    (ns > 0).then_some(ns)
}

fn draw_coalescing(knobs: &mut Knobs) -> Option<HiddenCoalescing> {
    let us =
        knobs.number_with("secret_us", 0..=300, 0, |draw| if draw.percent(80) { 0 } else { draw.within(20..=300) });
    let entries = knobs.number_with("secret_entries", 0..=8, 0, |draw| draw.below(9)) as u32;
    (us > 0).then(|| HiddenCoalescing { entries, time: Ps::from_ns(1000 * us) })
}

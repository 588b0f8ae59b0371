//! The workload of an experiment on moderation, and the keys that set it.

use crate::input::InputError;
use crate::platform::Unit;
use crate::scenario::key::{Key, Value};
use crate::setting::Setting;
use irq::moderation::{LevelTable, Setting as Level};
use machine::rdma::ModerationAnswer;
use spec::rdma::registers::MR_MAX;

/// The deepest load of a thread: the capacity of the modelled NIC's queues.
const DEPTH_MAX: f64 = 1024.0;

/// The initiator's workload, and the possible moderation of its completion queues.
#[derive(Clone, PartialEq, Debug)]
pub struct Rdma {
    /// CPUs of the initiator, each with a thread, a queue pair and a completion queue; the target has as many.
    pub initiators: u32,
    /// The number of I/Os that each thread keeps in flight, as steps in ascending time. The first step is at 0.
    pub load: Vec<LoadStep>,
    /// Bytes of a read.
    pub block_bytes: u32,
    /// The most reads that a thread takes off the completed ones at once, and submits in one call.
    pub batch: u32,
    /// The number of interrupts in one sample of a controller.
    pub nr_events: u16,
    /// The table of moderation levels, the same for every completion queue.
    pub levels: LevelTable,
    /// Mean time between thefts on each of the initiator's CPUs. Each theft takes 1 ms.
    pub theft_every_ns: Option<u64>,
    /// The percentage of its submissions after which a thread polls the completion queue itself.
    pub polled_percent: u32,
    /// The delay of the thread that programs a level, each time except the first.
    pub program_takes_ns: Option<u64>,
    /// The NICs' response when they are told a moderation.
    pub answer: ModerationAnswer,
    /// What a controller is told of the I/Os under way.
    pub tells: Tells,
    /// The hosts whose completion queues are moderated.
    pub moderated: Moderated,
}

/// What a controller is told of the I/Os under way, besides the completions that were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tells {
    /// Nothing.
    Nothing,
    /// The reads that were posted and whose completions the queue has not handed over: what a completion queue can know.
    /// The target's queues can know nothing: a capsule shows only when it completes.
    Posted,
    /// The reads that the application keeps under way, those included that it has yet to post. No completion queue can
    /// know that.
    All,
}

/// The hosts whose completion queues are moderated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moderated {
    /// The initiator's and the target's, each queue by a controller of its own.
    Both,
    /// The initiator's alone.
    Initiator,
}

/// A depth and the time from which it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadStep {
    /// Time since the start of the load, in ns.
    pub from_ns: u64,
    /// I/Os in flight per thread.
    pub depth: u32,
}

impl Rdma {
    /// The deepest load.
    pub fn depth_max(&self) -> u32 {
        self.load.iter().map(|step| step.depth).max().unwrap_or(1)
    }

    /// The depth at a time since the start of the load.
    pub fn depth_at(&self, since_ns: u64) -> u32 {
        self.load.iter().rev().find(|step| step.from_ns <= since_ns).map_or(1, |step| step.depth)
    }
}

/// The values without any key set. The published levels have no text form.
pub(super) fn blank() -> Rdma {
    Rdma {
        initiators: 0,
        load: Vec::new(),
        block_bytes: 0,
        batch: 0,
        nr_events: 0,
        levels: LevelTable::new(LevelTable::RDMA_DIM).expect("the published table is sorted"),
        theft_every_ns: None,
        polled_percent: 0,
        program_takes_ns: None,
        answer: ModerationAnswer::Exact,
        tells: Tells::Posted,
        moderated: Moderated::Both,
    }
}

/// Its keys. Their defaults are one initiator with 128 reads in flight.
pub(super) const KEYS: &[Key<Rdma>] = &[
    Key {
        name: "rdma.initiators",
        about: "CPUs of the initiator; the target has as many",
        default: Some("1"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: MR_MAX as f64,
            set: |rdma, cpus| rdma.initiators = cpus as u32,
        },
    },
    Key {
        name: "rdma.depth",
        about: "reads in flight of each thread, or steps of it",
        default: Some("128"),
        value: Value::Text(|rdma, setting| load(setting).map(|load| rdma.load = load)),
    },
    Key {
        name: "rdma.block",
        about: "of a read",
        default: Some("512 B"),
        value: Value::Text(|rdma, setting| block(setting).map(|bytes| rdma.block_bytes = bytes)),
    },
    Key {
        name: "rdma.batch",
        about: "reads that a thread takes off the completed ones at most at once, and submits in one call",
        default: Some("16"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: DEPTH_MAX,
            set: |rdma, reads| rdma.batch = reads as u32,
        },
    },
    Key {
        name: "rdma.nr_events",
        about: "interrupts that make a sample",
        default: Some("64"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: 65_535.0,
            set: |rdma, events| rdma.nr_events = events as u16,
        },
    },
    Key {
        name: "rdma.levels",
        about: "from the lowest latency up; without it, rdma_dim's nine",
        default: None,
        value: Value::Text(|rdma, setting| levels(setting).map(|levels| rdma.levels = levels)),
    },
    Key {
        name: "rdma.theft_every",
        about: "a CPU of the initiator is gone for 1 ms, on average so often; its time counts as interrupt",
        default: None,
        value: Value::Quantity {
            unit: Unit::Time,
            min: 2e6,
            max: 10e9,
            set: |rdma, ns| rdma.theft_every_ns = Some(ns as u64),
        },
    },
    Key {
        name: "rdma.polled",
        about: "after so many of its submissions a thread looks at the queue itself",
        default: Some("0 %"),
        value: Value::Quantity {
            unit: Unit::Percent,
            min: 0.0,
            max: 100.0,
            set: |rdma, percent| rdma.polled_percent = percent as u32,
        },
    },
    Key {
        name: "rdma.program_takes",
        about: "the thread that programs a level comes so late",
        default: None,
        value: Value::Quantity {
            unit: Unit::Time,
            min: 1e3,
            max: 10e9,
            set: |rdma, ns| rdma.program_takes_ns = Some(ns as u64),
        },
    },
    Key {
        name: "rdma.answer",
        about: "what the NIC does with a level: or \"rounds 50 us or 4\", or \"refuses\"",
        default: Some("exact"),
        value: Value::Text(|rdma, setting| answer(setting).map(|answer| rdma.answer = answer)),
    },
    Key {
        name: "rdma.tells",
        about: "what a controller is told of the reads under way: nothing, posted, all",
        default: Some("posted"),
        value: Value::Text(|rdma, setting| tells(setting).map(|tells| rdma.tells = tells)),
    },
    Key {
        name: "rdma.moderated",
        about: "hosts whose completion queues are moderated: both, initiator",
        default: Some("both"),
        value: Value::Text(|rdma, setting| moderated(setting).map(|moderated| rdma.moderated = moderated)),
    },
];

/// `128`, or steps: `1, 128 from 500 ms, 1 from 1 s`.
fn load(setting: &Setting) -> Result<Vec<LoadStep>, InputError> {
    let valid = "a depth, or steps: 1, 128 from 500 ms, 1 from 1 s";
    let mut steps: Vec<LoadStep> = Vec::new();
    for part in setting.text.split(',') {
        let (depth, from) = part.split_once(" from ").unwrap_or((part, "0 ns"));
        let part = |text: &str| Setting { text: text.trim().to_owned(), ..setting.clone() };
        let depth = Unit::Count.read(&part(depth), 1.0, DEPTH_MAX)? as u32;
        let from_ns = Unit::Time.read(&part(from), 0.0, 100e9)? as u64;
        let follows = steps.last().map_or(from_ns == 0, |last| from_ns > last.from_ns);
        if !follows {
            return Err(
                setting.wrong("is not in order: each step is later than the one before, the first from 0", valid)
            );
        }
        steps.push(LoadStep { from_ns, depth });
    }
    Ok(steps)
}

fn block(setting: &Setting) -> Result<u32, InputError> {
    let bytes = Unit::Size.read(setting, 8.0, 65_536.0)? as u32;
    if !bytes.is_multiple_of(8) {
        return Err(setting.wrong("is no multiple of 8", "8 B to 64 KiB"));
    }
    Ok(bytes)
}

/// `1 us or 1, 16 us or 8`.
fn levels(setting: &Setting) -> Result<LevelTable, InputError> {
    let valid = "levels from the lowest latency up: 1 us or 1, 16 us or 8";
    let level = |part: &str| {
        let (delay, count) = part.split_once(" or ").ok_or_else(|| setting.wrong("is no table of levels", valid))?;
        let part = |text: &str| Setting { text: text.trim().to_owned(), ..setting.clone() };
        let delay_ns = Unit::Time.read(&part(delay), 0.0, 32_767_000.0)? as u64;
        let completions = Unit::Count.read(&part(count), 0.0, 65_535.0)? as u32;
        Ok(Level::new((delay_ns / 1_000) as u32, completions))
    };
    let parts = setting.text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let levels = parts.map(level).collect::<Result<Vec<_>, InputError>>()?;
    LevelTable::new(levels).map_err(|error| setting.wrong(format!("is no table of levels: {error}"), valid))
}

fn tells(setting: &Setting) -> Result<Tells, InputError> {
    match setting.text.trim() {
        "nothing" => Ok(Tells::Nothing),
        "posted" => Ok(Tells::Posted),
        "all" => Ok(Tells::All),
        _ => Err(setting.wrong("cannot be told", "nothing, posted, all")),
    }
}

fn moderated(setting: &Setting) -> Result<Moderated, InputError> {
    match setting.text.trim() {
        "both" => Ok(Moderated::Both),
        "initiator" => Ok(Moderated::Initiator),
        _ => Err(setting.wrong("are no hosts", "both, initiator")),
    }
}

/// `exact`, `refuses`, or `rounds 50 us or 4`.
fn answer(setting: &Setting) -> Result<ModerationAnswer, InputError> {
    let valid = "exact, refuses, or rounds 50 us or 4";
    match setting.text.trim() {
        "exact" => Ok(ModerationAnswer::Exact),
        "refuses" => Ok(ModerationAnswer::Refuses),
        text => {
            let (period, count) = text
                .strip_prefix("rounds ")
                .and_then(|rest| rest.split_once(" or "))
                .ok_or_else(|| setting.wrong("is no answer", valid))?;
            let part = |text: &str| Setting { text: text.trim().to_owned(), ..setting.clone() };
            let period_us = Unit::Time.read(&part(period), 1e3, 32_767_000.0)? / 1e3;
            let count = Unit::Count.read(&part(count), 1.0, 65_535.0)?;
            Ok(ModerationAnswer::Rounds { count: count as u16, period_us: period_us as u16 })
        }
    }
}

//! An experiment on moderation: what can be set.

use super::Resolved;
use super::draft::{Asked, Draft};
use crate::input::{InputError, Problem};
use crate::plan::{Experiment, LoadStep, Moderation, Rdma, Variant};
use crate::platform::Unit;
use crate::setting::Setting;
use irq::moderation::{LevelTable, Setting as Level};
use machine::rdma::ModerationAnswer;
use spec::rdma::registers::MR_MAX;

/// Keys of this kind.
const KEYS: &[&str] = &[
    "rdma.initiators",
    "rdma.depth",
    "rdma.block",
    "rdma.nr_events",
    "rdma.levels",
    "rdma.theft_every",
    "rdma.polled",
    "rdma.program_takes",
    "rdma.answer",
];

/// Deepest load of a thread: what the queues of the modelled NIC hold.
const DEPTH_MAX: f64 = 1024.0;

/// The experiment while its settings come in.
pub(super) struct RdmaDraft(Rdma);

impl RdmaDraft {
    /// One initiator, 128 reads of 512 bytes in flight, the published levels.
    pub(super) fn new() -> Self {
        Self(Rdma {
            initiators: 1,
            load: vec![LoadStep { from_ns: 0, depth: 128 }],
            block_bytes: 512,
            nr_events: 64,
            levels: LevelTable::new(LevelTable::RDMA_DIM).expect("the published table is sorted"),
            theft_every_ns: None,
            polled_percent: 0,
            program_takes_ns: None,
            answer: ModerationAnswer::Exact,
        })
    }

    /// Every key.
    pub(super) fn keys() -> Vec<String> {
        KEYS.iter().map(ToString::to_string).collect()
    }

    /// Takes a setting if it is this kind's.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        let rdma = &mut self.0;
        match setting.key.as_str() {
            "rdma.initiators" => rdma.initiators = Unit::Count.read(setting, 1.0, f64::from(MR_MAX))? as u32,
            "rdma.depth" => rdma.load = load(setting)?,
            "rdma.block" => rdma.block_bytes = block(setting)?,
            "rdma.nr_events" => rdma.nr_events = Unit::Count.read(setting, 1.0, 65_535.0)? as u16,
            "rdma.levels" => rdma.levels = levels(setting)?,
            "rdma.theft_every" => rdma.theft_every_ns = Some(Unit::Time.read(setting, 2e6, 10e9)? as u64),
            "rdma.polled" => rdma.polled_percent = Unit::Percent.read(setting, 0.0, 100.0)? as u32,
            "rdma.program_takes" => rdma.program_takes_ns = Some(Unit::Time.read(setting, 1e3, 10e9)? as u64),
            "rdma.answer" => rdma.answer = answer(setting)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the settings make of it.
    pub(super) fn resolve(&self, draft: &Draft, asked: Option<Asked>) -> Result<Resolved, InputError> {
        let read = |name: &Setting| {
            Moderation::named(&name.text).map(Variant::Moderation).ok_or_else(|| {
                let known = Moderation::NAMED.map(|known| known.to_string()).join(", ");
                name.wrong("is no moderation", format!("{known}, level 0, level 1, …"))
            })
        };
        let variants = match asked {
            Some(asked) => asked.each(read)?,
            None => Moderation::NAMED.map(Variant::Moderation).into(),
        };
        let cpus = 2 * self.0.initiators;
        if draft.cpus_or(Some(cpus))? != cpus {
            let most = draft.platform.fabric.cpus.whole();
            return Err(InputError::new(
                &draft.platform.fabric.cpus.place,
                "rdma.initiators",
                Problem::Value {
                    value: self.0.initiators.to_string(),
                    why: format!("does not go with the CPUs: {cpus} are needed, two for each"),
                    valid: format!("1 to {}", most / 2),
                },
            ));
        }
        let experiment = Experiment::Rdma(self.0.clone());
        Ok(Resolved { cpus, experiment, variants, spans: draft.spans(u64::MAX), warnings: Vec::new() })
    }
}

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

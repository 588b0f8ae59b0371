//! Draws an accelerator and its configuration, and configurations that no driver may accept.

use crate::draw::{Draw, Knobs};
use drivers::dsa::{Config, DsaError, GroupConfig, QueueConfig};
use machine::dsa;
use machine::time::Ps;

/// A command takes at most some 8 µs here, and a close waits for the fills in flight.
pub(in crate::pc) const COMMAND_TIMEOUT_NS: u64 = 5_000_000;
/// What the model has: work queues, entries of all of them, groups, engines.
const QUEUES: u8 = 8;
pub(super) const ENTRIES: u16 = 128;
const GROUPS: u8 = 4;
const ENGINES: u8 = 4;
/// The most bytes of a transfer that the model takes.
const TRANSFER_BYTES_MAX: u64 = 1 << 31;
/// No configuration names this queue. Its portals are a stranger's.
pub(super) const STRANGER: u8 = 7;

/// An accelerator as it was drawn.
#[derive(Clone, Debug)]
pub(in crate::pc) struct Plan {
    pub(super) seed: u64,
    /// Fills of each queue's load.
    pub(super) fills: u64,
    pub(super) config: Config,
    pub(in crate::pc) model: dsa::Config,
}

impl Plan {
    /// Draws it; none without a queue. Each of its numbers has a stream of its own, so other draws stay as they are.
    pub(in crate::pc) fn draw(knobs: &mut Knobs, seed: u64, is_wanted: bool) -> Option<Self> {
        let queues = |draw: &mut Draw| if draw.percent(60) { 0 } else { draw.within(1..=3) };
        let queues = knobs.number_with("accelerator", 0..=3, 0, queues);
        let fills = knobs.number_with("fills", 0..=10_000, 0, |draw| draw.time_ns(8, 255));
        if queues == 0 || !is_wanted {
            return None;
        }
        let draw = &mut Draw::new(seed, "accelerator", 0);
        let timing = dsa::Timing {
            command: Ps::from_ns(draw.time_ns(200, 8_000)),
            service: Ps::from_ns(draw.within(60..=400)),
            latency: Ps::from_ns(if draw.percent(30) { 0 } else { draw.time_ns(100, 12_000) }),
            in_flight: draw.time_ns(1, 16) as u8,
        };
        let model = dsa::Config {
            requester: super::REQUESTER,
            timing,
            portal_write: Some(Ps::from_ns(60)),
            merges_causes: Draw::new(seed, "causes", 0).percent(50),
            ..Default::default()
        };
        let config = Config { groups: groups(draw, queues as usize), command_timeout_ns: COMMAND_TIMEOUT_NS };
        Some(Self { seed, fills, config, model })
    }
}

/// `count` of the numbers below `below`, in a random order.
fn some(draw: &mut Draw, below: u8, count: usize) -> Vec<u8> {
    let mut left: Vec<u8> = (0..below).collect();
    (0..count).map(|_| left.remove(draw.below(left.len() as u64) as usize)).collect()
}

fn groups(draw: &mut Draw, count: usize) -> Vec<GroupConfig> {
    let (indexes, entries) = (some(draw, STRANGER, count), some(draw, QUEUES, count));
    let mut queues: Vec<_> =
        indexes.into_iter().zip(entries).map(|(index, entry)| queue(draw, index, entry + 1)).collect();
    if draw.percent(10) {
        // All entries that there are.
        let others = queues[1..].iter().map(|queue| queue.entries).sum::<u16>();
        queues[0].entries = ENTRIES - others;
        queues[0].transfer_bytes_max = queues[0].transfer_bytes_max.min(256);
    }
    let mut engines = some(draw, ENGINES, draw_engines(count));
    let group = |queues: &[QueueConfig], engines: &[u8]| GroupConfig { queues: queues.into(), engines: engines.into() };
    if count == 1 || draw.percent(50) {
        return vec![group(&queues, &engines)];
    }
    let (last, first) = (queues.split_off(1), queues);
    let own = engines.split_off(1);
    vec![group(&first, &engines), group(&last, &own)]
}

/// At least one a group.
fn draw_engines(queues: usize) -> usize {
    queues.clamp(2, ENGINES.into())
}

fn queue(draw: &mut Draw, index: u8, entry: u8) -> QueueConfig {
    QueueConfig {
        index,
        entries: draw.time_ns(1, 16) as u16,
        interrupt: Some(entry.into()),
        priority: draw.within(1..=15) as u8,
        transfer_bytes_max: draw.time_ns(1, 4095) as u32,
    }
}

/// A change to `config` that its driver must refuse, and its answer.
pub(super) fn mistake(config: &Config, which: u32) -> (Config, DsaError) {
    let mut wrong = config.clone();
    let all = wrong.groups.iter().flat_map(|group| &group.queues).map(|queue| queue.entries).sum::<u16>();
    let queue = &mut wrong.groups[0].queues[0];
    let error = match which % 12 {
        0 => {
            queue.index = QUEUES;
            DsaError::TooMany("a queue's number", QUEUES.into(), u64::from(QUEUES) - 1)
        }
        1 => {
            queue.priority = 16;
            DsaError::TooMany("a queue's priority", 16, 15)
        }
        2 => {
            queue.priority = 0;
            DsaError::Zero("a queue's priority")
        }
        3 => {
            queue.entries = 0;
            DsaError::Zero("a queue's number of entries")
        }
        4 => {
            queue.entries += ENTRIES + 1 - all;
            DsaError::TooMany("the number of entries of all queues", u64::from(ENTRIES) + 1, ENTRIES.into())
        }
        5 => {
            queue.transfer_bytes_max = TRANSFER_BYTES_MAX as u32 + 1;
            DsaError::TooMany("a queue's longest transfer", TRANSFER_BYTES_MAX + 1, TRANSFER_BYTES_MAX)
        }
        6 => {
            queue.transfer_bytes_max = 0;
            DsaError::Zero("a queue's longest transfer")
        }
        7 => {
            wrong.groups[0].engines[0] = ENGINES;
            DsaError::TooMany("an engine's number", ENGINES.into(), u64::from(ENGINES) - 1)
        }
        8 => {
            let engine = wrong.groups[0].engines[0];
            wrong.groups[0].engines.push(engine);
            DsaError::Twice("engine", engine)
        }
        9 => {
            let twice = queue.clone();
            wrong.groups[0].queues.push(twice.clone());
            DsaError::Twice("work queue", twice.index)
        }
        10 => {
            wrong.groups[0].engines.clear();
            DsaError::EmptyGroup(0)
        }
        _ => {
            wrong.groups.resize(usize::from(GROUPS) + 1, wrong.groups[0].clone());
            DsaError::TooMany("the number of groups", u64::from(GROUPS) + 1, GROUPS.into())
        }
    };
    (wrong, error)
}

/// The table entries that this configuration stands for: offset in BAR 0 and value, 32 bits each (DSA, "Group Configuration
/// Table": queues in bytes 0 to 31, engines in 32 to 39, flags at 40; "Work Queue Configuration Table": size at 0, threshold
/// at 4, mode and priority at 8, the exponent of the longest transfer at 12). The tables begin at these offsets.
pub(super) fn words(config: &Config, [groups, queues]: [u32; 2]) -> Vec<(u32, u32)> {
    let mut words = Vec::new();
    for (group, entry) in config.groups.iter().zip((groups..).step_by(64)) {
        let bits = |numbers: &mut dyn Iterator<Item = u8>| numbers.fold(0, |bits, number| bits | 1 << number);
        words.push((entry, bits(&mut group.queues.iter().map(|queue| queue.index))));
        words.extend((1..8).map(|word| (entry + 4 * word, 0)));
        words.push((entry + 32, bits(&mut group.engines.iter().copied())));
        words.extend([(entry + 36, 0), (entry + 40, 0)]);
        for queue in &group.queues {
            let at = queues + 32 * u32::from(queue.index);
            let exponent = queue.transfer_bytes_max.next_power_of_two().trailing_zeros();
            let (size, mode) = (queue.entries.into(), 1 | u32::from(queue.priority) << 4);
            words.extend([(at, size), (at + 4, size), (at + 8, mode), (at + 12, exponent)]);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let queue = QueueConfig { index: 2, entries: 16, interrupt: Some(3), priority: 10, transfer_bytes_max: 4095 };
        Config { groups: vec![GroupConfig { queues: vec![queue], engines: vec![1, 3] }], command_timeout_ns: 1 }
    }

    #[test]
    fn tables_have_the_manuals_words() {
        let zeros = (0x404..0x420).step_by(4).map(|at| (at, 0));
        let group = [(0x400, 0b100)].into_iter().chain(zeros).chain([(0x420, 0b1010), (0x424, 0), (0x428, 0)]);
        let queue = [(0x840, 16), (0x844, 16), (0x848, 0xa1), (0x84c, 12)];
        assert_eq!(words(&config(), [0x400, 0x800]), group.chain(queue).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_drawn_fits_the_model_and_no_mistake_does() {
        for seed in 0..200 {
            let mut knobs = Knobs::new(seed, Default::default());
            let Some(plan) = Plan::draw(&mut knobs, seed, true) else { continue };
            let queues: Vec<_> = plan.config.groups.iter().flat_map(|group| &group.queues).collect();
            assert!(plan.config.groups.iter().all(|group| !group.engines.is_empty() && !group.queues.is_empty()));
            assert!(queues.iter().map(|queue| queue.entries).sum::<u16>() <= ENTRIES);
            assert!(queues.iter().all(|queue| queue.index < STRANGER && queue.interrupt < Some(plan.model.vectors)));
            assert!((0..12).all(|which| mistake(&plan.config, which).0 != plan.config));
        }
    }
}

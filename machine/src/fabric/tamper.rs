//! Disturbs messages on their way: a model between a device and the receiver of its requests.

use crate::model::{Model, ModelId, Upstream};
pub use crate::observe::Act;
use crate::observe::Fact;
use crate::random::Stream;
use crate::time::Ps;
use crate::world::World;
use std::collections::{BTreeMap, VecDeque};

#[cfg(test)]
mod tests;

/// Rate of each act, per 1,000 messages. The sum should be at most 1,000; beyond that the later acts never happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rates {
    /// [`Act::Drop`].
    pub drop: u32,
    /// [`Act::Delay`], by a time up to [`TamperConfig::longest`].
    pub delay: u32,
    /// [`Act::Double`], after a time up to [`TamperConfig::longest`].
    pub double: u32,
    /// [`Act::Swap`], waiting no longer than [`TamperConfig::longest`].
    pub swap: u32,
    /// [`Act::Redirect`].
    pub redirect: u32,
    /// [`Act::Storm`] of 1 to [`TamperConfig::storm_messages_max`] messages, up to [`TamperConfig::storm_gap_max`] apart.
    pub storm: u32,
}

/// Which messages of one device are disturbed, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TamperConfig {
    /// Name in traces.
    pub name: String,
    /// Seed of the tamper's own random stream, which is independent of all other streams.
    pub seed: u64,
    /// Before this time every message passes.
    pub from: Ps,
    /// From this time on every message passes again, and a storm ends. Held messages then arrive at their times.
    pub until: Ps,
    /// Planned acts, by message number counted from 1. They take precedence over the rates.
    pub plan: Vec<(u64, Act)>,
    /// Rates of random acts on the other messages.
    pub rates: Rates,
    /// The longest random time.
    pub longest: Ps,
    /// Most messages of a random storm.
    pub storm_messages_max: u32,
    /// The longest gap in a random storm.
    pub storm_gap_max: Ps,
}

impl Default for TamperConfig {
    /// Nothing is tampered with.
    fn default() -> Self {
        Self {
            name: "tamper".into(),
            seed: 1,
            from: Ps(0),
            until: Ps::MAX,
            plan: Vec::new(),
            rates: Rates::default(),
            longest: Ps::from_ns(20_000),
            storm_messages_max: 1_000,
            storm_gap_max: Ps::from_ns(500),
        }
    }
}

/// Number of different messages remembered for [`Act::Redirect`].
const REMEMBERED: usize = 16;

/// Events of a tamper; the argument is the number under which a message is held.
mod code {
    /// A held message is passed on.
    pub(super) const RELEASE: u32 = 0;
    /// A storm continues.
    pub(super) const REPEAT: u32 = 1;
}

/// A message without its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message {
    requester: u16,
    address: u64,
    data: u32,
}

/// A message to be passed on later.
#[derive(Clone, Copy)]
struct Held {
    message: Message,
    /// Remaining repetitions of a storm, and their gap.
    storm: Option<(u32, Ps)>,
}

/// Counts of messages, by act.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TamperCounts {
    /// Messages of the device.
    pub messages: u64,
    /// Of these: lost.
    pub dropped: u64,
    /// Of these: late.
    pub delayed: u64,
    /// Of these: twice.
    pub doubled: u64,
    /// Of these: behind the next.
    pub swapped: u64,
    /// Of these: replaced by a stale one.
    pub redirected: u64,
    /// Of these: began a storm.
    pub storms: u64,
    /// Repetitions in storms.
    pub repeated: u64,
}

/// Stands between a device and its root port. For a device inside the root complex: between the device and the IOMMU
/// or GIC. Must not stand above a port, because the port's credits would be lost.
///
/// The device is built with the tamper's number as its bus. Transfers pass unchanged. A message never arrives earlier
/// than the device sent it, so it overtakes no earlier DMA (PCI Express Base Specification, "Transaction Ordering
/// Rules"). Later DMA may overtake a held message. No act is recorded as a fault, because the harness causes it; the
/// observer gets [`Fact::Tampered`].
pub struct Tamper {
    to: ModelId,
    config: TamperConfig,
    random: Stream,
    counts: TamperCounts,
    remembered: VecDeque<Message>,
    held: BTreeMap<u64, Held>,
    next_number: u64,
    /// Swapped messages that wait for the device's next message.
    swapped: Vec<u64>,
}

impl Tamper {
    /// A tamper in front of `to`.
    pub fn new(to: ModelId, config: TamperConfig) -> Self {
        Self {
            to,
            random: Stream::new(config.seed, 0),
            config,
            counts: TamperCounts::default(),
            remembered: VecDeque::new(),
            held: BTreeMap::new(),
            next_number: 0,
            swapped: Vec::new(),
        }
    }

    /// Counts of messages so far.
    pub fn counts(&self) -> TamperCounts {
        self.counts
    }

    /// From `at` on every message passes.
    pub fn heal(&mut self, at: Ps) {
        self.config.until = self.config.until.min(at);
    }

    /// The configuration from now on. Seed and name must stay.
    pub fn config_mut(&mut self) -> &mut TamperConfig {
        &mut self.config
    }

    fn is_active(&self, now: Ps) -> bool {
        (self.config.from..self.config.until).contains(&now)
    }

    /// A random number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.random.next()) * u128::from(end)) >> 64) as u64
    }

    fn time(&mut self, longest: Ps) -> Ps {
        Ps(1 + self.below(longest.0))
    }

    /// The act for the message that was just counted.
    fn fate(&mut self, now: Ps) -> Option<Act> {
        if !self.is_active(now) {
            return None;
        }
        let number = self.counts.messages;
        if let Some(&(_, act)) = self.config.plan.iter().find(|(planned, _)| *planned == number) {
            return Some(act);
        }
        let Rates { drop, delay, double, swap, redirect, storm } = self.config.rates;
        if self.config.rates == Rates::default() {
            return None;
        }
        let mut drawn = self.below(1_000) as u32;
        let mut is_in = |rate: u32| {
            let hit = drawn < rate;
            drawn = drawn.wrapping_sub(rate);
            hit
        };
        let index = [drop, delay, double, swap, redirect, storm].into_iter().position(&mut is_in)?;
        let longest = self.config.longest;
        Some(match index {
            0 => Act::Drop,
            1 => Act::Delay(self.time(longest)),
            2 => Act::Double(self.time(longest)),
            3 => Act::Swap(longest),
            4 => Act::Redirect,
            _ => Act::Storm {
                count: 1 + self.below(self.config.storm_messages_max.into()) as u32,
                gap: self.time(self.config.storm_gap_max),
            },
        })
    }

    fn pass(&self, world: &mut World<'_>, Message { requester, address, data }: Message) {
        world.upstream(self.to, Upstream::Message { requester, address, data });
    }

    /// Holds a message, to be processed as event `code` after `time`. Returns its number.
    fn hold(&mut self, world: &mut World<'_>, held: Held, code: u32, time: Ps) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.held.insert(number, held);
        world.schedule(world.now() + time, code, number);
        number
    }

    /// A stale message in place of this one; None while the device has sent no other message.
    fn stale(&mut self, message: Message) -> Option<Message> {
        let others: Vec<_> = self.remembered.iter().filter(|&&other| other != message).copied().collect();
        (!others.is_empty()).then(|| others[self.below(others.len() as u64) as usize])
    }

    fn remember(&mut self, message: Message) {
        if !self.remembered.contains(&message) {
            if self.remembered.len() == REMEMBERED {
                self.remembered.pop_front();
            }
            self.remembered.push_back(message);
        }
    }

    fn tamper(&mut self, world: &mut World<'_>, message: Message, act: Act) {
        let once = Held { message, storm: None };
        match act {
            Act::Drop => self.counts.dropped += 1,
            Act::Delay(by) => {
                self.counts.delayed += 1;
                self.hold(world, once, code::RELEASE, by);
            }
            Act::Double(after) => {
                self.counts.doubled += 1;
                self.pass(world, message);
                self.hold(world, once, code::RELEASE, after);
            }
            Act::Swap(longest) => {
                self.counts.swapped += 1;
                let number = self.hold(world, once, code::RELEASE, longest);
                self.swapped.push(number);
            }
            Act::Redirect => match self.stale(message) {
                Some(stale) => {
                    self.counts.redirected += 1;
                    self.pass(world, stale);
                }
                None => return self.pass(world, message),
            },
            Act::Storm { count, gap } => {
                self.counts.storms += 1;
                self.pass(world, message);
                let gap = gap.max(Ps(1));
                self.hold(world, Held { message, storm: Some((count, gap)) }, code::REPEAT, gap);
            }
        }
        world.tell(|| Fact::Tampered { model: world.me(), requester: message.requester, act });
    }

    /// Continues a storm, unless it is over or the tamper is healed.
    fn repeat(&mut self, world: &mut World<'_>, number: u64) {
        let Some(Held { message, storm: Some((left, gap)) }) = self.held.remove(&number) else { return };
        if left == 0 || !self.is_active(world.now()) {
            return;
        }
        self.counts.repeated += 1;
        self.pass(world, message);
        self.hold(world, Held { message, storm: Some((left - 1, gap)) }, code::REPEAT, gap);
    }

    fn message(&mut self, world: &mut World<'_>, message: Message) {
        self.counts.messages += 1;
        let earlier = core::mem::take(&mut self.swapped);
        match self.fate(world.now()) {
            Some(act) => self.tamper(world, message, act),
            None => self.pass(world, message),
        }
        self.remember(message);
        for number in earlier {
            if let Some(held) = self.held.remove(&number) {
                self.pass(world, held.message);
            }
        }
    }
}

impl Model for Tamper {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, number: u64) {
        if code == code::REPEAT {
            return self.repeat(world, number);
        }
        // A swapped message may have been passed on behind the next message already.
        if let Some(held) = self.held.remove(&number) {
            self.pass(world, held.message);
        }
    }

    fn read(&mut self, world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8) -> u64 {
        world.fault("read of a tamper, which has no registers", offset.into(), format!("{width_bytes} bytes"));
        u64::MAX
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width_bytes: u8, value: u64) {
        world.fault("write to a tamper, which has no registers", offset.into(), format!("value {value:#x}"));
    }

    fn upstream(&mut self, world: &mut World<'_>, _from: ModelId, request: Upstream) {
        match request {
            Upstream::Message { requester, address, data } => {
                self.message(world, Message { requester, address, data });
            }
            transfer @ Upstream::Transfer { .. } => world.upstream(self.to, transfer),
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        vec![
            ("messages", counts.messages),
            ("dropped", counts.dropped),
            ("delayed", counts.delayed),
            ("doubled", counts.doubled),
            ("swapped", counts.swapped),
            ("redirected", counts.redirected),
            ("storms", counts.storms),
            ("repeated", counts.repeated),
        ]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

//! Lists of budgeted polling, against the rules of Linux's irq_poll: turns from the head, a full weight of work to the tail,
//! a budget of work and of time. Unlike there, a run has its first turn however late it is.

use crate::draw::Draw;
use crate::trials::same;
use irq::poll::{After, PollConfig, PollError, PollId, PollList, Scheduled, Turn};

/// An instance: its weight, where it is, whether it is disabled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Off,
    Listed,
    /// It has its turn; scheduled meanwhile.
    Polled(bool),
}

struct Model {
    weights: Vec<u32>,
    places: Vec<Place>,
    disabled: Vec<bool>,
    waiting: Vec<usize>,
    raised: bool,
    work_left: u64,
    ends_ns: u64,
    had_turn: bool,
    overruns: u64,
}

impl Model {
    fn schedule(&mut self, id: usize) -> Scheduled {
        if self.disabled[id] {
            return Scheduled::Disabled;
        }
        match self.places[id] {
            Place::Off => {
                self.places[id] = Place::Listed;
                self.waiting.push(id);
            }
            Place::Listed => {}
            Place::Polled(_) => self.places[id] = Place::Polled(true),
        }
        let queued = self.raised;
        self.raised = true;
        if queued { Scheduled::Queued } else { Scheduled::Raise }
    }

    fn next(&mut self, now_ns: u64) -> Turn {
        let polled = self.places.iter().position(|place| matches!(place, Place::Polled(_)));
        if let Some(id) = polled {
            return Turn::Poll(PollId(id as u32), self.weights[id]);
        }
        if self.waiting.is_empty() {
            self.raised = false;
            return Turn::Idle;
        }
        if self.work_left == 0 || now_ns >= self.ends_ns && self.had_turn {
            return Turn::Spent;
        }
        let id = self.waiting.remove(0);
        self.places[id] = Place::Polled(false);
        self.had_turn = true;
        Turn::Poll(PollId(id as u32), self.weights[id])
    }

    fn polled(&mut self, id: usize, work: u32) -> Result<After, PollError> {
        let Place::Polled(again) = self.places[id] else { return Err(PollError::NotPolled(PollId(id as u32))) };
        self.work_left -= self.work_left.min(work.into());
        self.overruns += u64::from(work > self.weights[id]);
        self.places[id] = Place::Off;
        if self.disabled[id] {
            return Ok(After::Disabled);
        }
        if again || work >= self.weights[id] {
            self.places[id] = Place::Listed;
            self.waiting.push(id);
            return Ok(After::Requeued);
        }
        Ok(After::Complete)
    }

    fn disable(&mut self, id: usize) -> bool {
        self.disabled[id] = true;
        if self.places[id] == Place::Listed {
            self.places[id] = Place::Off;
            self.waiting.retain(|&waiting| waiting != id);
        }
        self.places[id] == Place::Off
    }
}

fn says(error: PollError, part: &str) -> Result<(), String> {
    let text = error.to_string();
    if text.contains(part) { Ok(()) } else { Err(format!("{error:?} says only {text:?}")) }
}

pub(super) fn list(draw: &mut Draw) -> Result<(), String> {
    let budget = draw.within(1..=40) as u32;
    let time_ns_max = if draw.percent(5) { 0 } else { draw.time_ns(10, 5_000) };
    same("budget", &(256, 2_000_000), &(PollConfig::default().budget, PollConfig::default().time_ns_max))?;
    same("no budget", &Some(PollError::Budget), &PollList::new(PollConfig { budget: 0, time_ns_max }).err())?;
    let mut list = PollList::new(PollConfig { budget, time_ns_max }).map_err(|error| error.to_string())?;
    same("no weight", &Err(PollError::Weight), &list.add(0))?;
    let weights: Vec<_> = (0..draw.within(1..=5)).map(|_| draw.within(1..=16) as u32).collect();
    let count = weights.len();
    for (index, &weight) in weights.iter().enumerate() {
        same("instance", &Ok(PollId(index as u32)), &list.add(weight))?;
    }
    let (places, disabled) = (vec![Place::Off; count], vec![false; count]);
    let waiting = Vec::new();
    let (raised, had_turn) = (false, false);
    let mut model =
        Model { weights, places, disabled, waiting, raised, work_left: 0, ends_ns: 0, had_turn, overruns: 0 };
    let (mut now_ns, mut log) = (draw.below(1 << 30), String::new());
    let mut turn = None;
    for _ in 0..draw.within(10..=80) {
        now_ns += draw.below(time_ns_max / 4 + 2);
        let id = draw.below(count as u64) as usize;
        let at = PollId(id as u32);
        match draw.below(16) {
            0..4 => same(&format!("{log}schedule {id}"), &Ok(model.schedule(id)), &list.schedule(at))?,
            4 => {
                list.begin(now_ns);
                (model.work_left, model.ends_ns, model.raised) = (budget.into(), now_ns + time_ns_max, true);
                model.had_turn = false;
            }
            5..9 => {
                let now_ns = if draw.percent(10) { model.ends_ns - model.ends_ns.min(1) } else { now_ns };
                turn = Some(model.next(now_ns));
                same(&format!("{log}next"), &turn, &Some(list.next(now_ns)))?;
            }
            9..13 => {
                let id = match turn {
                    Some(Turn::Poll(PollId(id), _)) if draw.percent(90) => id as usize,
                    _ => id,
                };
                let weight = u64::from(model.weights[id]);
                let work = if draw.percent(40) { weight } else { draw.below(weight + 3) } as u32;
                let after = model.polled(id, work);
                same(&format!("{log}polled {id}, {work}"), &after, &list.polled(PollId(id as u32), work))?;
            }
            13 => same(&format!("{log}disable {id}"), &Ok(model.disable(id)), &list.disable(at))?,
            14 => {
                model.disabled[id] = false;
                same("enable", &Ok(()), &list.enable(at))?;
            }
            _ => {
                let none = PollId(count as u32 + draw.below(3) as u32);
                let error = PollError::NoInstance(none, count);
                let all = [list.schedule(none).err(), list.polled(none, 1).err(), list.disable(none).err()];
                same("no instance", &([Some(error); 3], Err(error)), &(all, list.enable(none)))?;
                says(error, &count.to_string())?;
                says(PollError::NotPolled(at), &id.to_string())?;
                says(PollError::Weight, "weight")?;
                says(PollError::Budget, "budget")?;
                says(PollError::NoCpu(hal::CpuId(7), 5), "7")?;
            }
        }
        same("overruns", &model.overruns, &list.overruns())?;
        log.clear();
    }
    Ok(())
}

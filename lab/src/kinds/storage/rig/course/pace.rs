//! How fast a job goes: rates, thinking, flows. By the rules of fio 3.33 (`rate_ddir`, `usec_for_io`, `handle_thinktime`,
//! `flow_threshold_exceeded`).

use super::random::{Random, Seeds, Use};
use super::run::Course;
use crate::kinds::storage::load::{DIRECTIONS, Load, Pace};
use hal::Hal as _;
use machine::SimHal;

/// fio's settling time before a minimal rate is checked.
const SETTLE_NS: u64 = 2_000_000_000;
/// Between two looks of a job that is ahead of its flow.
const FLOW_LOOK_NS: u64 = 1_000;

/// The state of a pace.
pub(super) struct Rates {
    /// Bytes a second by direction; 0: no rate.
    per_second: [u64; DIRECTIONS],
    /// Bytes that count for the rate.
    bytes: [u64; DIRECTIONS],
    /// When the next I/O is due, after the job's beginning.
    next_ns: [u64; DIRECTIONS],
    /// The same of the Poisson process.
    last_ns: [u64; DIRECTIONS],
    poisson: [Random; DIRECTIONS],
    /// The last check of a minimal rate: time, bytes and I/Os.
    checked: [Option<(u64, u64, u64)>; DIRECTIONS],
    /// Blocks and time at the beginning of the last pause.
    pub(super) thought: (u64, u64),
    /// I/Os that the job's flow has let through.
    flown: u64,
}

impl Rates {
    pub(super) fn new(load: &Load, seeds: &Seeds) -> Self {
        let per_second = std::array::from_fn(|direction| match load.pace.bytes[direction] {
            0 => load.pace.ios[direction].saturating_mul(load.sizes[direction].min),
            bytes => bytes,
        });
        let uses = [Use::PoissonRead, Use::PoissonWrite, Use::PoissonTrim];
        Self {
            per_second,
            bytes: [0; DIRECTIONS],
            next_ns: [0; DIRECTIONS],
            last_ns: [0; DIRECTIONS],
            poisson: uses.map(|of| seeds.stream(of, false)),
            checked: [None; DIRECTIONS],
            thought: (0, 0),
            flown: 0,
        }
    }

    /// True if some direction has a rate.
    pub(super) fn is_limited(&self) -> bool {
        self.per_second.iter().any(|&rate| rate > 0)
    }

    /// Counts an issued I/O, and sets the time of the next.
    pub(super) fn issued(&mut self, load: &Load, direction: usize, bytes: u64) {
        self.bytes[direction] += bytes;
        let rate = self.per_second[direction];
        if rate == 0 {
            return;
        }
        let smallest = load.sizes[direction].min.max(1);
        self.next_ns[direction] = if load.pace.poisson {
            // fio counts whole I/Os a second, and microseconds.
            let mean_us = 1_000_000 / (rate / smallest).max(1);
            let fraction = self.poisson[direction].fraction() + f64::EPSILON;
            self.last_ns[direction] += (mean_us as f64 * -fraction.ln()) as u64 * 1_000;
            self.last_ns[direction]
        } else {
            (u128::from(self.bytes[direction]) * 1_000_000_000 / u128::from(rate)) as u64
        };
    }

    /// The direction whose turn it is at `now_ns` after the beginning, and for how long it must wait.
    fn turn(&self, direction: usize, mixed: bool, now_ns: u64) -> (usize, u64) {
        let own_ns = self.next_ns[direction];
        if own_ns <= now_ns {
            return (direction, 0);
        }
        if mixed {
            let other = 1 - direction;
            let other_ns = self.next_ns[other];
            if other_ns <= now_ns {
                return (other, 0);
            }
            if other_ns < own_ns {
                return (other, other_ns - now_ns);
            }
        }
        (direction, own_ns - now_ns)
    }

    /// Starts anew, at the end of the ramp.
    pub(super) fn restart(&mut self) {
        (self.bytes, self.next_ns, self.last_ns) = ([0; DIRECTIONS], [0; DIRECTIONS], [0; DIRECTIONS]);
        self.checked = [None; DIRECTIONS];
        // The blocks of the last pause stay, as in fio: a job pauses again only when it has as many after its ramp.
    }

    /// I/Os that the job's flow has let through.
    pub(super) fn flown(&self) -> u64 {
        self.flown
    }

    /// A pause that `rate_ignore_thinktime` does not count against the rate.
    fn forgive(&mut self, load: &Load, direction: usize, paused_ns: u64) {
        let rate = self.per_second[direction];
        if rate == 0 {
            return;
        }
        let missed = (u128::from(rate) * u128::from(paused_ns) / 1_000_000_000) as u64;
        self.bytes[direction] += missed.saturating_sub(load.sizes[direction].min);
        self.last_ns[direction] += paused_ns;
    }

    /// True if a direction was slower than its minimum over the last cycle.
    pub(super) fn is_too_slow(&mut self, pace: &Pace, now_ns: u64, done: &[(u64, u64); DIRECTIONS]) -> bool {
        let mut slow = false;
        for (direction, &(bytes, ios)) in done.iter().enumerate() {
            let (bytes_min, ios_min) = (pace.bytes_min[direction], pace.ios_min[direction]);
            if (bytes_min == 0 && ios_min == 0) || now_ns < SETTLE_NS || bytes == 0 {
                continue;
            }
            if let Some((checked_ns, checked_bytes, checked_ios)) = self.checked[direction] {
                let spent_ns = now_ns - checked_ns;
                if spent_ns < pace.cycle_ns.max(1) {
                    continue;
                }
                let rate = |grown: u64| (u128::from(grown) * 1_000_000_000 / u128::from(spent_ns)) as u64;
                slow |= match bytes_min {
                    0 => rate(ios - checked_ios) < ios_min,
                    _ => rate(bytes - checked_bytes) < bytes_min,
                };
            }
            self.checked[direction] = Some((now_ns, bytes, ios));
        }
        slow
    }
}

impl Course {
    /// Waits until an I/O of `direction` is due, or of the other direction of a mix. None if the job ends meanwhile.
    pub(super) fn wait_for_turn(&mut self, direction: usize) -> Option<usize> {
        let (direction, wait_ns) = self.rates.turn(direction, self.walk.is_mixed(), self.since_epoch_ns());
        if wait_ns == 0 {
            return Some(direction);
        }
        if self.load.pace.offloads {
            self.wait_until(SimHal.now_ns().saturating_add(wait_ns));
        } else {
            self.quiesce();
            self.sleep(wait_ns);
        }
        (!self.is_over()).then_some(direction)
    }

    /// Pauses as `thinktime` says.
    pub(super) fn think(&mut self, direction: usize) {
        let pace = &self.load.pace;
        if pace.think_ns == 0 && pace.think_spin_ns == 0 {
            return;
        }
        let now_ns = SimHal.now_ns();
        let (last_blocks, last_ns) = self.rates.thought;
        let by_time = pace.think_every_ns > 0 && now_ns - last_ns >= pace.think_every_ns + pace.think_ns;
        let blocks: u64 = match pace.think_by_issue {
            true => self.walk.issues.iter().sum(),
            false => self.progress.blocks.iter().sum(),
        };
        let by_blocks = pace.think_blocks.is_some_and(|every| blocks >= last_blocks + u64::from(every));
        if !by_time && !by_blocks {
            return;
        }
        let (think_ns, spin_ns, ignores) = (pace.think_ns, pace.think_spin_ns, pace.ignore_think);
        self.quiesce();
        let begin_ns = SimHal.now_ns();
        let left_ns = self.left_ns();
        if spin_ns > 0 {
            SimHal.delay_ns(spin_ns.min(left_ns));
        }
        let spent_ns = SimHal.now_ns() - begin_ns;
        if think_ns > spent_ns {
            self.sleep(think_ns - spent_ns);
        }
        if ignores {
            self.rates.forgive(&self.load, direction, SimHal.now_ns() - begin_ns);
        }
        self.rates.thought = (blocks, now_ns);
    }

    /// Whether the job's flow lets its next I/O through; if not, time passes.
    pub(super) fn flows(&mut self) -> bool {
        let Some(flow) = self.load.pace.flow else { return true };
        if self.shared.take_flow(flow.id, flow.weight, self.rates.flown) {
            self.rates.flown += 1;
            return true;
        }
        self.quiesce();
        self.sleep(flow.sleep_ns.max(FLOW_LOOK_NS));
        false
    }

    /// Sleeps until `due_ns`, and takes what completes meanwhile.
    pub(super) fn wait_until(&mut self, due_ns: u64) {
        self.commit();
        let due_ns = due_ns.min(SimHal.now_ns().saturating_add(self.left_ns()));
        let (shared, index) = (self.shared.clone(), self.job.parts.index);
        let is_stopped = || shared.starter.as_ref().is_some_and(|starter| starter.is_stopped(index));
        while SimHal.now_ns() < due_ns && !is_stopped() {
            let mailbox = self.job.parts.mailbox.clone();
            if self.job.parts.polled && self.depth > 0 {
                // No interrupt announces what completes.
                self.job.poll_once();
                self.take_waiting();
                continue;
            }
            mailbox.call_at(1);
            shared.sleepers.sleep_until(due_ns, || is_stopped() || mailbox.len() > 0);
            mailbox.call_off();
            self.take_waiting();
        }
    }

    /// Sleeps, at most until the job's time is over.
    pub(super) fn sleep(&mut self, wait_ns: u64) {
        let due_ns = SimHal.now_ns().saturating_add(wait_ns.min(self.left_ns()));
        let shared = self.shared.clone();
        let index = self.job.parts.index;
        shared
            .sleepers
            .sleep_until(due_ns, || shared.starter.as_ref().is_some_and(|starter| starter.is_stopped(index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spaces_ios_evenly_and_a_mix_takes_turns() {
        let mut load = Load::of_block(4096);
        load.pace.ios = [1000, 500, 0];
        let mut rates = Rates::new(&load, &Seeds::of(1, 1));
        assert!(rates.is_limited());
        rates.issued(&load, 0, 4096);
        assert_eq!(rates.turn(0, false, 0), (0, 1_000_000));
        assert_eq!(rates.turn(0, true, 0), (1, 0), "the other direction is behind");
        rates.issued(&load, 1, 4096);
        assert_eq!(rates.turn(1, true, 500_000), (0, 500_000));
        assert_eq!(rates.turn(1, true, 2_000_000), (1, 0));
    }

    #[test]
    fn a_minimal_rate_is_checked_once_a_cycle_after_two_seconds() {
        let mut load = Load::of_block(4096);
        load.pace.ios_min[0] = 100;
        let mut rates = Rates::new(&load, &Seeds::of(1, 1));
        let done = |ios: u64| [(ios * 4096, ios), (0, 0), (0, 0)];
        assert!(!rates.is_too_slow(&load.pace, 1_000_000_000, &done(1)));
        assert!(!rates.is_too_slow(&load.pace, 2_000_000_000, &done(10)), "the first check has nothing to compare");
        assert!(!rates.is_too_slow(&load.pace, 2_500_000_000, &done(11)), "within the cycle");
        assert!(rates.is_too_slow(&load.pace, 3_000_000_000, &done(20)));
        assert!(!rates.is_too_slow(&load.pace, 4_000_000_000, &done(200)));
    }
}

//! What the checker counts of one line.

use super::marks::Claim;
use irq::StormConfig;
use machine::time::Ps;

/// The interrupts that the core counts before it looks at its clock.
#[derive(Clone, Copy, Default)]
struct Burst {
    rounds: u32,
    /// Of them, those in which no handler found something.
    unhandled: u32,
    /// Answers of threads that found nothing: the core may have counted them here or in the next burst.
    by_threads: u32,
    /// Its begin, at the earliest and at the latest, in ns. The first answer bounds it too.
    since_ns: (u64, u64),
}

/// Whether a burst was a storm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    No,
    /// The bounds do not tell.
    Perhaps,
    Storm,
}

/// A burst whose answers are all there.
#[derive(Clone, Copy)]
enum Ended {
    /// The core reads the time at this one, in ns, or later.
    Closing(u64),
    /// It has read it between the two.
    Judged(u64, u64, Verdict),
}

/// A line.
pub(super) struct Line {
    handlers: u32,
    /// It exists from the start.
    original: bool,
    /// Its chip keeps nothing that comes while it is masked: unmasked while its handler runs, it runs once more for what may have
    /// come, without an interrupt.
    forgets_masked: bool,
    /// Its interrupts are served by this CPU.
    place: Option<u32>,
    /// Handlers that were ever installed.
    installed: u32,
    /// Of the present round: answers, and whether one of them found something.
    answers: u32,
    handled: bool,
    rounds: u64,
    unhandled: u64,
    unexpected: u64,
    /// At least and at most.
    storms: (u64, u64),
    burst: Burst,
    carried: u32,
    ended: Option<Ended>,
}

impl Line {
    /// A line from the start, if it has handlers; else one that was just allocated.
    pub(super) fn new(handlers: u32) -> Self {
        Self {
            handlers,
            original: handlers > 0,
            forgets_masked: false,
            place: None,
            installed: handlers,
            answers: 0,
            handled: false,
            rounds: 0,
            unhandled: 0,
            unexpected: 0,
            storms: (0, 0),
            burst: Burst { since_ns: (0, u64::MAX), ..Burst::default() },
            carried: 0,
            ended: None,
        }
    }

    pub(super) fn forgets_masked(&mut self) {
        self.forgets_masked = true;
    }

    /// From now on it is served by this CPU, or by any.
    pub(super) fn place(&mut self, cpu: Option<u32>) {
        self.place = cpu;
    }

    /// The CPU that should serve it, if `cpu` may not.
    pub(super) fn astray(&self, cpu: u32) -> Option<u32> {
        self.place.filter(|&place| place != cpu)
    }

    /// The first handler begins the watch anew, and ends a throttle.
    pub(super) fn install(&mut self, at: Ps) {
        if self.handlers == 0 {
            self.burst = Burst { since_ns: (at.as_ns(), u64::MAX), ..Burst::default() };
            (self.ended, self.carried) = (None, 0);
        }
        self.handlers += 1;
        self.installed += 1;
    }

    pub(super) fn remove(&mut self) {
        self.handlers = self.handlers.saturating_sub(1);
        self.answers = 0;
    }

    pub(super) fn thread_answered(&mut self, handled: bool) {
        if !handled {
            self.unhandled += 1;
            self.burst.by_threads += 1;
        }
    }

    /// A handler answers. What is wrong about that it ran at all.
    pub(super) fn answered(&mut self, at: Ps, handled: bool, storm: &StormConfig) -> Option<String> {
        let wrong = self.begin_round(at, storm);
        self.answers += 1;
        self.handled |= handled;
        if self.answers < self.handlers {
            return wrong;
        }
        let unhandled = u32::from(!self.handled);
        (self.answers, self.handled) = (0, false);
        self.rounds += 1;
        self.unhandled += u64::from(unhandled);
        self.burst.rounds += 1;
        self.burst.unhandled += unhandled;
        if self.burst.rounds >= storm.burst {
            self.ended = Some(Ended::Closing(at.as_ns()));
        }
        wrong
    }

    /// The first answer since a burst ended shows whether the line was throttled.
    fn begin_round(&mut self, at: Ps, storm: &StormConfig) -> Option<String> {
        let at_ns = at.as_ns();
        self.burst.since_ns.1 = self.burst.since_ns.1.min(at_ns + 1);
        let Some(Ended::Judged(least_ns, most_ns, verdict)) = self.ended.take() else { return None };
        let paused = at_ns >= least_ns + storm.throttle_ns;
        self.burst.since_ns = match verdict {
            Verdict::No => (least_ns, most_ns),
            _ if !paused => (least_ns, most_ns),
            Verdict::Storm => (least_ns + storm.throttle_ns, at_ns + 1),
            Verdict::Perhaps => (least_ns, at_ns + 1),
        };
        if verdict == Verdict::Perhaps && !paused {
            self.storms.1 -= 1;
        }
        let wrong = verdict == Verdict::Storm && !paused;
        wrong.then(|| format!("stormed at {least_ns} ns and has an answer at {at_ns} ns: it was not throttled"))
    }

    /// True from the last answer of a burst until [`Line::close`].
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.ended, Some(Ended::Closing(_)))
    }

    /// The core has read its clock by now.
    pub(super) fn close(&mut self, at: Ps, storm: &StormConfig) {
        let Some(Ended::Closing(least_ns)) = self.ended else { return };
        let most_ns = at.as_ns().max(least_ns) + 1;
        let Burst { unhandled, by_threads, since_ns: (first, last), .. } = self.burst;
        let shortest_ns = least_ns.saturating_sub(last);
        let longest_ns = most_ns.saturating_sub(first);
        let most_unhandled = unhandled + by_threads + self.carried;
        let verdict = if longest_ns < storm.burst_ns_min || unhandled > storm.unhandled_max {
            Verdict::Storm
        } else if shortest_ns >= storm.burst_ns_min && most_unhandled <= storm.unhandled_max {
            Verdict::No
        } else {
            Verdict::Perhaps
        };
        self.storms.0 += u64::from(verdict == Verdict::Storm);
        self.storms.1 += u64::from(verdict != Verdict::No);
        self.carried = by_threads;
        // If it is throttled now, the next one begins with its end.
        self.burst = Burst { since_ns: (least_ns, u64::MAX), ..Burst::default() };
        self.ended = Some(Ended::Judged(least_ns, most_ns, verdict));
    }

    /// What is wrong about a claim. Interrupts may have been left pending `offline` times. With `exact`, nothing ever kept an
    /// interrupt from its handlers.
    pub(super) fn contradicts(&mut self, claim: Claim, value: u64, offline: u64, exact: bool) -> Option<String> {
        let (least, most) = self.storms;
        match claim {
            Claim::Unhandled if value != self.unhandled => Some(format!(
                "the core counts {value} interrupts that were not handled, and {} were not",
                self.unhandled
            )),
            Claim::Storms if !(least..=most).contains(&value) => {
                Some(format!("the core has throttled it {value} times, and it stormed {least} to {most} times"))
            }
            // A line that was allocated under load may get what its predecessor sent last.
            Claim::Unexpected if value > 0 && self.original && self.installed == self.handlers => {
                Some(format!("the core counts {value} interrupts without a handler, and it has had one all the time"))
            }
            Claim::Unexpected => {
                self.unexpected = value;
                None
            }
            Claim::Count => {
                let known = self.rounds + self.unexpected;
                let exact = exact && most == 0 && self.installed == self.handlers;
                let wrong = known > value + offline && !self.forgets_masked || exact && known != value;
                wrong.then(|| format!("the core counts {value} interrupts, and its handlers ran for {known}"))
            }
            _ => None,
        }
    }
}

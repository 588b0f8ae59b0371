//! Measurements of the load.

use core::fmt;

/// The result of one look at a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// Completions.
    pub completions: u32,
    /// Bytes that these completions moved. Only [`super::NetDim`] uses them; without them it changes no level.
    pub bytes: u64,
    /// I/Os that were under way at the look, including the found ones; none if the consumer does not know. A consumer
    /// that knows of I/Os that wait to be posted counts them too: when the CPU is the limit, a deeper load lengthens
    /// that queue, not the device's. Only [`super::Adaptive`] uses this.
    pub in_flight: Option<u32>,
}

impl Found {
    /// This many completions; nothing else about them is known.
    pub const fn completions(completions: u32) -> Self {
        Self { completions, bytes: 0, in_flight: None }
    }
}

/// The rates of a period of time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    /// Length of the period in nanoseconds, without recognised thefts of the CPU.
    pub elapsed_ns: u64,
    /// Completions per second, from interrupts and polls.
    pub completions_per_s: u64,
    /// Interrupts per second.
    pub events_per_s: u64,
    /// Completions per interrupt, in hundredths.
    pub completions_per_event_x100: u64,
    /// Average number of I/Os under way, in hundredths, if known.
    pub in_flight_x100: Option<u64>,
}

impl Sample {
    /// Number of interrupts, computed from the rate and the time.
    pub(super) fn events(&self) -> u64 {
        scale(self.events_per_s, self.elapsed_ns, 1_000_000_000)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completions_per_s, events_per_s, completions_per_event_x100: ratio, .. } = self;
        write!(f, "{completions_per_s} completions/s, {events_per_s} events/s, ")?;
        write!(f, "{}.{:02} completions an event", ratio / 100, ratio % 100)?;
        self.in_flight_x100.map_or(Ok(()), |x100| write!(f, ", {}.{:02} in flight", x100 / 100, x100 % 100))
    }
}

/// If a look comes this many times the usual gap after the last one, the CPU was away.
const THEFT_GAPS: u64 = 8;

/// Counts from one moment on. Counts saturate, and no divisor can be 0.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Meter {
    start_ns: u64,
    last_ns: u64,
    /// The usual gap between looks. 0: not known; then no gap counts as a theft.
    gap_ns: u64,
    stolen_ns: u64,
    /// Number of looks that were an interrupt, or that found something.
    looks: u64,
    events: u64,
    from_events: u64,
    completions: u64,
    in_flight: u64,
    in_flight_looks: u64,
}

impl Meter {
    pub(super) fn start(now_ns: u64) -> Self {
        Self { start_ns: now_ns, last_ns: now_ns, ..Self::default() }
    }

    /// Starts anew. A look after a much longer gap than usual will not count, nor the time before it.
    pub(super) fn restart_without_thefts(&mut self, now_ns: u64) {
        let gap_ns = self.elapsed_ns(now_ns).saturating_sub(self.stolen_ns) / self.looks.max(1);
        *self = Self { gap_ns, ..Self::start(now_ns) };
    }

    pub(super) fn interrupt(&mut self, now_ns: u64, found: Found) {
        if self.look(now_ns, found) {
            self.events = self.events.saturating_add(1);
            self.from_events = self.from_events.saturating_add(found.completions.into());
        }
    }

    pub(super) fn polled(&mut self, now_ns: u64, found: Found) {
        if found.completions > 0 {
            self.look(now_ns, found);
        }
    }

    /// Returns false when the look came after a theft.
    fn look(&mut self, now_ns: u64, found: Found) -> bool {
        let gap_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns.max(self.last_ns);
        if self.gap_ns != 0 && gap_ns / THEFT_GAPS > self.gap_ns {
            self.stolen_ns += gap_ns;
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        self.completions = self.completions.saturating_add(found.completions.into());
        self.in_flight = self.in_flight.saturating_add(found.in_flight.unwrap_or(0).into());
        self.in_flight_looks += u64::from(found.in_flight.is_some());
        true
    }

    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Time since the start, including thefts.
    pub(super) fn elapsed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns)
    }

    /// The sample collected until now.
    pub(super) fn sample(&self, now_ns: u64) -> Sample {
        let elapsed_ns = self.elapsed_ns(now_ns).saturating_sub(self.stolen_ns);
        Sample {
            elapsed_ns,
            completions_per_s: scale(self.completions, 1_000_000_000, elapsed_ns),
            events_per_s: scale(self.events, 1_000_000_000, elapsed_ns),
            completions_per_event_x100: scale(self.from_events, 100, self.events),
            in_flight_x100: (self.in_flight_looks > 0).then(|| scale(self.in_flight, 100, self.in_flight_looks)),
        }
    }
}

/// `value · factor / divisor` without overflow on the way; a divisor of 0 counts as 1.
pub(super) fn scale(value: u64, factor: u64, divisor: u64) -> u64 {
    let exact = u128::from(value) * u128::from(factor) / u128::from(divisor.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

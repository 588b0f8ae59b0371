//! The look at the completion queue after a batch of submissions, and the policy that decides when it pays.
//!
//! The look is one plain read of the phase at the head. Only if it sees a new entry, the submitter tries once for the
//! completion lock and then reaps on its own CPU. Nothing depends on success: an entry that it leaves is still
//! unacknowledged, so its interrupt comes. The interrupt of an entry that it took finds an empty queue and reports
//! "handled".

use super::QueuePair;
use hal::{CpuId, Hal, Word, Work};

/// When a queue pair looks for completions after a batch of submissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u64)]
pub enum CompletionLook {
    /// Looks while several CPUs submit here, or while the device appears to hold interrupts back without being told
    /// to. Never looks on a polled queue, whose user looks anyway.
    #[default]
    Auto = 0,
    /// Never.
    Off = 1,
    /// After every batch.
    On = 2,
}

impl CompletionLook {
    fn from_word(word: u64) -> Self {
        match word {
            1 => Self::Off,
            2 => Self::On,
            _ => Self::Auto,
        }
    }
}

/// State of the look that both sides of a queue pair share.
pub(super) struct LookState<W> {
    policy: W,
    /// 1 while the driver believes that the device holds interrupts back. The completion side sets it, the submission
    /// side clears it.
    coalesces: W,
}

impl<W: Word> LookState<W> {
    pub(super) fn new() -> Self {
        Self { policy: W::new(CompletionLook::Auto as u64), coalesces: W::new(0) }
    }

    pub(super) fn policy(&self) -> CompletionLook {
        CompletionLook::from_word(self.policy.get())
    }

    pub(super) fn set_policy(&self, policy: CompletionLook) {
        self.policy.set(policy as u64);
    }

    pub(super) fn coalesces(&self) -> bool {
        self.coalesces.get() != 0
    }

    pub(super) fn set_coalesces(&self, coalesces: bool) {
        self.coalesces.set(coalesces.into());
    }
}

/// Batches after which a queue that only one CPU has used belongs to that CPU.
const ALONE_AFTER: u32 = 64;

/// Whether several CPUs submit, as the submission side sees it.
pub(super) struct Sharing {
    last: Option<CpuId>,
    /// Batches since the CPU last changed, up to [`ALONE_AFTER`].
    batches: u32,
}

impl Sharing {
    pub(super) const NONE: Self = Self { last: None, batches: ALONE_AFTER };

    /// Records a batch. True while the queue is shared.
    pub(super) fn note(&mut self, cpu: CpuId) -> bool {
        if self.last.replace(cpu).is_some_and(|last| last != cpu) {
            self.batches = 0;
        } else {
            self.batches = (self.batches + 1).min(ALONE_AFTER);
        }
        self.batches < ALONE_AFTER
    }
}

/// Looks in one window, and how many of them must find an entry.
const YIELD_WINDOW: u32 = 64;
const YIELD_HITS_MIN: u32 = 8;

/// Whether looking still pays, as the submission side sees it.
#[derive(Default)]
pub(super) struct Yield {
    looks: u32,
    hits: u32,
}

impl Yield {
    /// Records a look. False at the end of a window in which too few looks found an entry.
    pub(super) fn note(&mut self, hit: bool) -> bool {
        self.looks += 1;
        self.hits += u32::from(hit);
        if self.looks < YIELD_WINDOW {
            return true;
        }
        let pays = self.hits >= YIELD_HITS_MIN;
        *self = Self::default();
        pays
    }
}

/// Interrupts in one window.
const OBSERVED_INTERRUPTS: u32 = 16;
/// A device that interrupts for each entry leaves several entries to one interrupt only when they come faster than a
/// CPU can take interrupts. Several entries at once *and* long pauses in between mean that the device waits.
const ENTRIES_MIN: u32 = 4;
const INTERVAL_NS_MIN: u64 = 20_000;

/// Watches interrupts for signs of coalescing. Reads the clock once in [`OBSERVED_INTERRUPTS`].
#[derive(Default)]
pub(super) struct Observer {
    interrupts: u32,
    entries: u64,
    since_ns: u64,
}

impl Observer {
    /// Records an interrupt that found `entries`. True when the window shows a device that holds interrupts back.
    #[inline]
    pub(super) fn note(&mut self, entries: usize, now_ns: impl FnOnce() -> u64) -> bool {
        self.interrupts += 1;
        self.entries += entries as u64;
        self.interrupts >= OBSERVED_INTERRUPTS && self.judge(now_ns())
    }

    #[cold]
    fn judge(&mut self, now_ns: u64) -> bool {
        // The first window has no beginning.
        let known = self.since_ns != 0;
        let interval_ns = now_ns.saturating_sub(self.since_ns) / u64::from(OBSERVED_INTERRUPTS);
        let several = self.entries >= u64::from(ENTRIES_MIN * OBSERVED_INTERRUPTS);
        *self = Self { since_ns: now_ns, ..Self::default() };
        known && several && interval_ns >= INTERVAL_NS_MIN
    }
}

impl<H: Hal> QueuePair<H> {
    /// Switches the look after submissions. It takes effect with the next batch.
    pub fn set_completion_look(&self, policy: CompletionLook) {
        self.look.set_policy(policy);
    }

    /// The policy that [`QueuePair::set_completion_look`] set last.
    pub fn completion_look(&self) -> CompletionLook {
        self.look.policy()
    }

    /// Whether the device was seen to hold interrupts back although coalescing is off.
    pub fn seen_to_coalesce(&self) -> bool {
        self.look.coalesces()
    }

    /// Tries once for the completion side and reaps its entries. If another CPU holds the completion side, it is
    /// already reaping. Out of line: most looks find nothing.
    #[inline(never)]
    pub(super) fn reap_after_submission(&self) {
        let Some(mut side) = self.completion.try_lock() else { return };
        let taken = self.reap(&mut side, usize::MAX);
        side.counters.count_look_reap(taken);
        side.taken_early |= taken > 0;
        self.tuning.found(taken, side.counters.completed, false);
    }

    /// True if a reap must follow the batch that `cpu` has just submitted: first the policy decides, then the look.
    ///
    /// Runs under the submission lock, so its counters are plain words.
    pub(super) fn look_after_submission(&self, side: &mut super::queue::LookSide, cpu: CpuId) -> bool {
        let shared = side.sharing.note(cpu);
        let coalesces = self.look.coalesces();
        let wanted = match self.look.policy() {
            CompletionLook::Auto => self.vector().is_some() && (shared || coalesces),
            CompletionLook::Off => false,
            CompletionLook::On => true,
        };
        if !wanted {
            return false;
        }
        self.hal.work(Work::CompletionLook, 1);
        let hit = self.completion_pending();
        side.looks += 1;
        side.hits += u64::from(hit);
        if coalesces && !side.pays.note(hit) {
            self.look.set_coalesces(false);
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_shared_while_its_cpus_take_turns() {
        let mut sharing = Sharing::NONE;
        assert!((0..100).all(|_| !sharing.note(CpuId(3))), "one CPU alone");
        assert!(sharing.note(CpuId(5)));
        let shared = (0..100).take_while(|_| sharing.note(CpuId(5))).count();
        assert_eq!(shared, 63, "until 64 batches later");
    }

    /// (entries per interrupt, ns between interrupts) of published drives, and of the drive that coalesces.
    #[test]
    fn a_device_that_waits_is_told_from_one_that_is_fast() {
        for (entries, interval_ns, waits) in [
            (8, 74_000, true),
            (64, 490_000, true),
            (4, 20_000, true),
            (3, 74_000, false),
            // Optane under one thread: five at once, for lack of CPU.
            (5, 1_400, false),
            (1, 1_000_000, false),
        ] {
            let mut observer = Observer::default();
            let mut now_ns = 1_000_000;
            let mut verdicts = alloc::vec::Vec::new();
            for _ in 0..32 {
                now_ns += interval_ns;
                verdicts.push(observer.note(entries, || now_ns));
            }
            assert!(!verdicts[..31].contains(&true), "{entries} every {interval_ns} ns: too early");
            assert_eq!(verdicts[31], waits, "{entries} every {interval_ns} ns");
        }
    }

    #[test]
    fn the_clock_is_read_once_a_window() {
        let mut observer = Observer::default();
        let mut reads = 0;
        for _ in 0..160 {
            observer.note(1, || {
                reads += 1;
                reads
            });
        }
        assert_eq!(reads, 10);
    }

    #[test]
    fn looking_stops_to_pay_after_a_window_of_misses() {
        let mut pays = Yield::default();
        assert!((0..640).all(|n| pays.note(n % 8 == 0)), "one in eight is enough");
        let misses = (0..100).take_while(|_| pays.note(false)).count();
        assert_eq!(misses, 63);
    }
}

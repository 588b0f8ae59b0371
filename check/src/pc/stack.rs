//! State that the machine's threads share: the host, its drives, its sources, and the transitions seen.

use super::accelerator::{self, Accelerator};
use super::drive::{Claim, Drive, Slot, claim};
use super::fault::PcFault;
use super::load::{Load, disrupt};
use super::poster::{self, Poster};
use super::sources::{Function, Rings};
use super::timers::{self, Timers};
use super::told::Tunings;
use super::user::{Habit, User};
use crate::coverage::Coverage;
use crate::mark::Mark;
use crate::server::{Host, Path};
use crate::verdict::violate;
use drivers::nvme::QueueState;
use hal::{Affinity, CpuId, ThreadSpec, Threads};
use irq::{Irq, IrqError};
use machine::SimHal;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Transitions that every PC can show.
pub(super) const COMMON: &[&str] = &[
    "accelerator: a fill went outside memory",
    "accelerator: an error without a record",
    "accelerator: filled",
    "accelerator: queue aborted",
    "accelerator: queue closed and opened",
    "accelerator: shut down and started",
    "CPU: offline through the last load",
    "CPU: went offline",
    "check: found",
    "check: looked in vain",
    "command: aborted",
    "command: ended with an error",
    "command: over before its Abort",
    "data: deallocated",
    "data: flushed",
    "data: read back",
    "data: written",
    "disable: something came meanwhile",
    "handler: did something to a line",
    "handler: replaced",
    "kick: sent and came",
    "line: as many threads as it may have",
    "line: freed under load",
    "line: storm throttled",
    "line: thread woken",
    "move: at once",
    "move: waits for an earlier one",
    "move: with a vector pending",
    "tick: none for a while",
    "drive: gone through the last load",
    "drive: pulled out and put in",
    "drive: reset",
    "drive: unbound and bound",
    "poster: line freed and given",
    "poster: raised",
    "queue: deleted and made",
    "queue: every id in use",
    "timer: deadline",
    "timer: line freed and given",
    "tuning: a drive's entries add up",
];
/// Further transitions with remapping.
pub(super) const REMAPPED: &[&str] = &[
    "entry: invalidated",
    "entry: used from the cache while it changed",
    "refused: compatibility format",
    "refused: entry not present",
    "refused: wrong requester",
];
/// Further transitions with posting.
pub(super) const POSTED: &[&str] = &[
    "CPU: went offline with a vector pending",
    "entry: posted to a guest and back",
    "entry: posted to remapped and back",
    "harvest: final pass found",
    "harvest: found",
    "notification: by the CPU itself",
    "notification: empty",
    "post: merged with the same vector",
    "post: notified",
    "post: silent",
    "retrigger: taken by its own vector",
];

/// If interrupts may be lost, the driver's own clock looks for commands older than this.
const TIMEOUT_NS: u64 = 400_000;

/// Promises of hardware that the faults of a history break.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promises {
    /// Interrupts or commands may be lost.
    pub(super) lossy: bool,
    /// Operations may fail.
    pub(super) faulty: bool,
    /// A device may take up register writes only later.
    pub(super) mute: bool,
    /// Old messages may come, and nothing keeps them from the CPU that they name: no CPU goes offline.
    pub(super) stale: bool,
    /// Commands may be in flight for longer than their driver waits for an Abort.
    pub(super) impatient: bool,
    /// A driver may be kept from undoing what it had begun.
    pub(super) stuck: bool,
}

impl Promises {
    pub(super) fn under(faults: &[PcFault], delivery: Path) -> Self {
        let any = |is: fn(&PcFault) -> bool| faults.iter().any(is);
        Self {
            lossy: any(PcFault::is_lossy),
            faulty: any(PcFault::breaks_operations),
            mute: any(PcFault::is_mute),
            stale: any(PcFault::is_stale) && delivery == Path::Plain,
            impatient: any(PcFault::outlasts_patience),
            stuck: any(PcFault::keeps_from_undoing),
        }
    }
}

/// Everything that runs on the machine.
pub struct PcStack {
    pub(super) host: Arc<Host>,
    pub(super) delivery: Path,
    pub(super) drives: Vec<Drive>,
    pub(super) slots: Vec<Slot>,
    pub(super) rings: Arc<Rings>,
    pub(super) ring_line: Irq,
    pub(super) functions: Vec<Arc<Function>>,
    pub(super) pin_line: Irq,
    /// Numbers of handlers.
    pub(super) numbers: AtomicU64,
    /// One manager at a time takes CPUs offline.
    pub(super) hotplug: AtomicBool,
    pub(super) promises: Promises,
    /// Lines were freed: counts of interrupts went with them.
    pub(super) lines_freed: AtomicBool,
    /// Users submit no further commands.
    pub(super) ending: AtomicBool,
    /// The driver's clock must not look any more.
    pub(super) proving: AtomicBool,
    pub(super) users_left: AtomicU32,
    /// CPUs that are offline through the last load.
    pub(super) absent: AtomicU32,
    /// The last load is over.
    pub(super) returning: AtomicBool,
    pub(super) accelerator: Option<Accelerator>,
    pub(super) timers: Option<Timers>,
    pub(super) poster: Option<Poster>,
    /// What the drives' tunings hear.
    pub(super) tunings: Mutex<Option<Tunings>>,
    pub(super) seen: Mutex<Coverage>,
}

impl PcStack {
    /// `transition` was seen.
    pub(super) fn saw(&self, transition: &'static str) {
        self.seen.lock().expect("one host thread").add(transition, 1);
    }

    pub(super) fn drive_of(&self, slot: &Slot) -> &Drive {
        &self.drives[slot.drive]
    }

    /// All lines that exist now: those of the ringing device and the pin, then the queues', the accelerator's, the timers',
    /// the posting function's.
    pub(super) fn line(&self, index: u32) -> Option<Irq> {
        match self.place_of(index) {
            0 => Some(self.ring_line),
            1 => Some(self.pin_line),
            number => match self.slots.get(number - 2) {
                Some(slot) => slot.bound().map(|bound| bound.line),
                None => self.line_beside(number - 2 - self.slots.len()),
            },
        }
    }

    fn accelerator_lines(&self) -> usize {
        self.accelerator.as_ref().map_or(0, Accelerator::lines)
    }

    fn timer_lines(&self) -> usize {
        self.timers.as_ref().map_or(0, Timers::lines)
    }

    fn line_beside(&self, number: usize) -> Option<Irq> {
        let Some(number) = number.checked_sub(self.accelerator_lines()) else {
            return self.accelerator.as_ref()?.line(number);
        };
        match number.checked_sub(self.timer_lines()) {
            None => self.timers.as_ref()?.line(number),
            Some(source) => self.poster.as_ref()?.line(source),
        }
    }

    /// Makes a line fire once more, by `fire`. Whose handler tells of each run must tell of one.
    pub(super) fn resend(&self, index: u32, fire: impl FnOnce() -> Result<(), IrqError>) -> Result<(), IrqError> {
        let number = self.place_of(index);
        let first = 2 + self.slots.len() + self.accelerator_lines() + self.timer_lines();
        match (number.checked_sub(first), &self.poster) {
            (Some(source), Some(poster)) => match self.claim_line(index) {
                Some(_claim) => poster.resend(source, fire),
                // Another manager frees it, and may take the interrupt with it.
                None => fire(),
            },
            _ if number == 0 => self.rings.resend(fire),
            _ => fire(),
        }
    }

    fn busy_beside(&self, number: usize) -> Option<&AtomicBool> {
        let Some(number) = number.checked_sub(self.accelerator_lines()) else {
            return Some(self.accelerator.as_ref()?.busy(number));
        };
        match number.checked_sub(self.timer_lines()) {
            None => Some(self.timers.as_ref()?.busy(number)),
            Some(source) => Some(self.poster.as_ref()?.busy(source)),
        }
    }

    fn place_of(&self, index: u32) -> usize {
        let beside = self.accelerator_lines() + self.timer_lines() + self.poster.as_ref().map_or(0, Poster::lines);
        index as usize % (self.slots.len() + 2 + beside)
    }

    /// The right to change the handler of a line: none if another manager has it; none is needed for lines that stay.
    pub(super) fn claim_line(&self, index: u32) -> Option<Option<Claim<'_>>> {
        let Some(number) = self.place_of(index).checked_sub(2) else { return Some(None) };
        let flag = match self.slots.get(number) {
            Some(slot) => Some(slot.busy()),
            None => self.busy_beside(number - self.slots.len()),
        };
        match flag {
            Some(flag) => claim(flag).map(Some),
            None => Some(None),
        }
    }

    pub(super) fn loads(&self) -> impl Iterator<Item = &Arc<Load>> {
        self.slots.iter().map(|slot| &slot.load)
    }

    /// Starts the application threads, and the driver's clock where interrupts may be lost.
    pub(super) fn start_users(self: &Arc<Self>, seed: u64, users: u32, habit: Habit) {
        self.users_left.store(users, Relaxed);
        (0..users).for_each(|number| User::start(self, seed, number, habit));
        if self.promises.lossy {
            self.start_clock();
        }
    }

    pub(super) fn user_ends(&self) {
        self.users_left.fetch_sub(1, Relaxed);
    }

    /// True if no part of the load is left.
    pub(super) fn is_done(&self) -> bool {
        let accelerator = accelerator::is_done(self);
        let sources = accelerator
            && timers::is_done(self)
            && poster::is_done(self)
            && self.rings.is_idle()
            && self.functions.iter().all(|function| function.is_idle());
        sources && self.users_left.load(Relaxed) == 0 && self.loads().all(|load| load.is_idle())
    }

    /// A thread that looks every few ticks for commands without an interrupt, as a kernel's timeout does.
    fn start_clock(self: &Arc<Self>) {
        let stack = self.clone();
        let body = move || {
            while !stack.proving.load(Relaxed) {
                stack.slots.iter().for_each(|slot| stack.look_for_lost(slot));
                SimHal.park();
            }
        };
        let spec = ThreadSpec { name: "timeouts", affinity: Affinity::Cpu(CpuId(0)), urgent: false };
        let thread = SimHal.spawn(spec, Box::new(body)).expect("CPU 0 exists");
        self.host.on_tick(move || SimHal.wake(thread));
    }

    fn look_for_lost(&self, slot: &Slot) {
        if slot.load.oldest_ns() < TIMEOUT_NS {
            return;
        }
        let Some(_claim) = slot.claim() else { return };
        let Some(bound) = slot.bound() else { return };
        let found = slot.poll(&bound);
        if found > 0 {
            Mark::TimedOut.of(found as u64);
            self.saw("timeout: a poll found commands");
        } else if slot.load.oldest_ns() > 4 * TIMEOUT_NS {
            let drive = self.drive_of(slot);
            if let Some(_whole) = claim(&drive.busy) {
                self.saw("timeout: a reset");
                self.reset(drive);
            }
        }
    }

    pub(super) fn slots_of(&self, drive: &Drive) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.drive == drive.index as usize)
    }

    pub(super) fn loads_of(&self, drive: &Drive) -> Vec<&Load> {
        self.slots_of(drive).map(|slot| &*slot.load).collect()
    }

    /// Resets a drive. Commands in flight may fail.
    pub(super) fn reset(&self, drive: &Drive) {
        let Some(controller) = drive.controller() else { return };
        let before = drive.settings();
        match disrupt(&self.loads_of(drive), || controller.reset()) {
            Ok(()) => {
                drive.broken.store(false, Relaxed);
                self.saw("drive: reset");
                if !self.promises.faulty
                    && before.is_some()
                    && drive.settings() == before
                    && let Some(tunings) = &*self.tunings.lock().expect("one host thread")
                {
                    tunings.check_level(&controller, drive.model);
                }
            }
            Err(error) => {
                self.check_stopped(drive);
                self.fails("reset", drive, &error);
            }
        }
    }

    /// A drive that did not come back has no queue that takes commands ([`drivers::nvme::Controller::reset`]).
    fn check_stopped(&self, drive: &Drive) {
        for bound in self.slots_of(drive).filter_map(Slot::bound) {
            let queue = bound.pair.snapshot();
            if queue.state != QueueState::Stopped {
                violate("operations", format!("a reset of drive {} failed, and a queue works\n{queue}", drive.index));
            }
        }
    }

    /// An operation of a drive's driver failed.
    pub(super) fn fails(&self, what: &str, drive: &Drive, error: &dyn std::fmt::Display) {
        if !self.promises.faulty {
            let text = format!("{what} of drive {}: {error}, and no fault explains it", drive.index);
            violate("operations", text);
        }
        drive.broken.store(true, Relaxed);
    }
}

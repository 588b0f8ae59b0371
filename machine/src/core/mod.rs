//! The actions of CPUs: they run the code of threads and interrupt handlers on top of the board.
//!
//! Each file covers one part: `points` lets time pass, `interrupts` takes interrupts, `access` reaches registers and
//! words, `scheduling` changes threads, `disturb` applies the disturbed schedule at each point of the seam, `history`
//! lets a harness add to the observed history. The files call each other (a point may take an interrupt, which may
//! reschedule, which waits at a point). They share this struct, and they use the board only through its interface.

mod access;
pub(crate) mod current;
mod disturb;
mod history;
mod inspect;
mod interrupts;
mod points;
mod scheduling;
mod setback;

pub use history::{begin_agent, declare_cpu, end_agent, mark, peek64, plug, stop_run};
pub use inspect::{affinity_of, inspect, peek_lapic, push_writes};
pub use setback::{begin_setback, end_setback};

use crate::board::controller::Controller;
use crate::board::{Board, BoardConfig};
use crate::clock::Clock;
use crate::config::MachineConfig;
use crate::cpu::{Account, Cpu, Exception};
use crate::memory::Memory;
use crate::threads::Threads;
use crate::time::Ps;
use crate::unrest;
use hal::{CpuId, ThreadId, Work};
use std::cell::{Cell, OnceCell};

/// Length of one machine run while the console waits for a word.
const CONSOLE_STEP: Ps = Ps(100_000);

/// The code that runs when a CPU takes an interrupt.
type Entry = Box<dyn Fn(Exception)>;

/// A board and the code that runs on it.
pub(crate) struct Core {
    board: Board,
    threads: Threads,
    /// The IDT, or the IRQ entry of the vector table.
    entry: OnceCell<Entry>,
    /// The machine is shutting down: no wait blocks any more.
    dead: Cell<bool>,
    /// A wait may end at once if nothing is due before its end.
    short_cuts: bool,
    /// Watchdog limit for one interrupt.
    interrupt_limit: Option<Ps>,
    /// An interrupt may be taken while interrupts are off.
    cuts_critical_sections: bool,
}

impl Core {
    pub(crate) fn new(config: MachineConfig, memory: Memory, controller: Box<dyn Controller>) -> Self {
        let time_slice = config.costs.time_slice;
        let cuts_critical_sections = controller.cuts_critical_sections();
        let board = BoardConfig {
            cpus: config.cpus,
            seed: config.seed,
            jitter_percent: config.jitter_percent,
            costs: config.costs,
            spans_max: config.trace_spans_max,
            still_steps_max: config.still_steps_max,
            unrest: config.unrest,
        };
        Self {
            board: Board::new(board, memory, controller),
            threads: Threads::new(config.cpus, time_slice, config.topology),
            entry: OnceCell::new(),
            dead: Cell::new(false),
            short_cuts: config.short_cuts,
            interrupt_limit: config.interrupt_limit,
            cuts_critical_sections,
        }
    }

    /// The hardware.
    #[inline]
    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    #[inline]
    fn clock(&self) -> &Clock {
        &self.board.clock
    }

    #[inline]
    fn now(&self) -> Ps {
        self.board.now()
    }

    /// The running CPU.
    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        self.board.cpu()
    }

    #[inline]
    fn on_console(&self) -> bool {
        self.board.cpus.on_console()
    }

    #[inline]
    fn unrest(&self) -> Option<&unrest::State> {
        self.board.unrest()
    }

    /// Sets the code that runs when a CPU takes an interrupt. False when it is set already.
    pub(crate) fn set_entry(&self, entry: impl Fn(Exception) + 'static) -> bool {
        self.entry.set(Box::new(entry)).is_ok()
    }

    /// The running thread of the running CPU.
    #[inline]
    pub(crate) fn current_thread(&self) -> Option<ThreadId> {
        self.threads.current(self.cpu().id)
    }

    /// Makes `cpu` check its run queue.
    pub(crate) fn kick(&self, cpu: CpuId) {
        self.board.send_ipi(cpu, self.board.controller().kick(self.cpu().id));
    }

    /// Marks the machine dead, so that no wait blocks any more, and unwinds every coroutine.
    pub(crate) fn shut_down(&self) {
        self.dead.set(true);
        self.threads.unwind();
    }

    /// Adds work of the running CPU to its debt.
    #[inline]
    pub(crate) fn work(&self, work: Work, count: u32) {
        let kind = self.board.costs.work.of(work);
        let cost = kind.ps * u64::from(count);
        let cpu = self.cpu();
        let account = match (cpu.depth(), kind.is_user) {
            (0, true) => Account::User,
            (0, false) => Account::System,
            _ => Account::Irq,
        };
        if self.board.witness.is_watched() {
            self.board.owe_watched(work, count, cost, account);
            return self.owed_point();
        }
        cpu.owe(cost, account);
    }
}

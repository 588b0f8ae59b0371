//! Budgeted polling at the end of interrupts: a kernel's softirq, and a thread that takes over what is left.

use super::{After, PollConfig, PollError, PollId, PollList, Scheduled, Turn};
use crate::moderation::{Found, Tuner};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Affinity, CpuId, Hal, IrqState, KernelThreads, Lock, SpawnError, ThreadId, ThreadSpec, Threads, Word, Work};

/// Passes at the end of one interrupt, before the thread takes over (Linux `MAX_SOFTIRQ_RESTART`).
const PASSES_MAX: u32 = 10;

/// A completion queue or device that is polled. Called with interrupts on.
pub trait Polled: Send + Sync {
    /// Completes at most `weight` and returns how many that were.
    fn poll(&self, weight: u32) -> u32;

    /// Called after a poll that found less than its weight. Re-enables the interrupt, then looks once more. Returns
    /// true when a completion came before the interrupt was on again and so raises none: the instance is then polled
    /// again.
    fn rearm(&self) -> bool;

    /// I/Os under way, those that wait to be submitted included, for the tuning; none when unknown.
    fn in_flight(&self) -> Option<u32> {
        None
    }
}

/// An instance and the CPU that polls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoftId {
    cpu: CpuId,
    id: PollId,
}

struct Instance<H: Hal> {
    polled: Arc<dyn Polled>,
    tuner: Option<Arc<Tuner<H>>>,
    /// 1 when an interrupt scheduled it and it has had no turn since.
    interrupted: H::Word,
}

struct Cpu<H: Hal> {
    list: Lock<H, PollList>,
    instances: Vec<Instance<H>>,
    /// 1 when a pass is wanted.
    raised: H::Word,
    /// 1 during a pass: interrupts on top of it begin none.
    busy: H::Word,
    /// 1 while an interrupt's handlers run on this CPU, which alone writes it.
    handling: H::Word,
    /// The CPU's thread plus one; 0 before there is one.
    thread: H::Word,
}

/// Every CPU's list of polled instances.
///
/// The kernel runs every interrupt by [`SoftPoll::interrupt`], and starts the threads with [`SoftPoll::start`]. A pass runs with interrupts on, on the stack of the interrupted code. A list that spends its
/// budget ten times in a row continues in its CPU's thread. That thread is urgent, so that no other thread preempts a
/// pass. A CPU with more completions than it can take runs nothing else. A kernel without threads does not call
/// `start`: such a list then continues at the CPU's next interrupt.
pub struct SoftPoll<H: Hal> {
    hal: H,
    cpus: Vec<Cpu<H>>,
    threads: KernelThreads<H>,
}

impl<H: Hal> SoftPoll<H> {
    /// Empty lists for CPUs 0 up to, not including, `cpus`.
    ///
    /// # Errors
    /// [`PollError::Budget`].
    pub fn new(hal: H, cpus: u32, config: PollConfig) -> Result<Self, PollError> {
        let cpu = |_| {
            Ok(Cpu {
                list: Lock::new(hal, PollList::new(config)?),
                instances: Vec::new(),
                raised: H::Word::new(0),
                busy: H::Word::new(0),
                handling: H::Word::new(0),
                thread: H::Word::new(0),
            })
        };
        Ok(Self { hal, cpus: (0..cpus).map(cpu).collect::<Result<_, _>>()?, threads: KernelThreads::new() })
    }

    /// Adds an instance to the list of `cpu`, with at most `weight` completions per turn. Its turns feed `tuner`: the
    /// first turn after an interrupt counts as that interrupt, others count as polls.
    ///
    /// # Errors
    /// [`PollError::Weight`], [`PollError::NoCpu`].
    pub fn add(
        &mut self,
        cpu: CpuId,
        weight: u32,
        polled: Arc<dyn Polled>,
        tuner: Option<Arc<Tuner<H>>>,
    ) -> Result<SoftId, PollError> {
        let count = self.cpus.len();
        let list = self.cpus.get_mut(cpu.index()).ok_or(PollError::NoCpu(cpu, count))?;
        let id = list.list.get_mut().add(weight)?;
        list.instances.push(Instance { polled, tuner, interrupted: H::Word::new(0) });
        Ok(SoftId { cpu, id })
    }

    /// Starts the thread of each CPU that has an instance.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(self: &Arc<Self>) -> Result<(), SpawnError>
    where
        H: Threads,
    {
        self.threads.know();
        for (index, cpu) in (0..).zip(&self.cpus).filter(|(_, cpu)| !cpu.instances.is_empty()) {
            let spec = ThreadSpec { name: "softpoll", affinity: Affinity::Cpu(CpuId(index)), urgent: true };
            let body = self.clone();
            let thread = self.hal.spawn(spec, Box::new(move || body.thread(index as usize)))?;
            cpu.thread.set(u64::from(thread.0) + 1);
        }
        Ok(())
    }

    /// An interrupt found work for `id` and has masked itself. Polls `id` when that interrupt ends. From another CPU, or
    /// outside an interrupt, it wakes the thread of the instance's CPU: a handler that runs in a thread has no end of an
    /// interrupt, with a lock held or without.
    pub fn schedule(&self, id: SoftId) {
        let Some(cpu) = self.cpus.get(id.cpu.index()) else { return };
        let Some(instance) = cpu.instances.get(id.id.0 as usize) else { return };
        instance.interrupted.set(1);
        // The instance exists, so the list cannot refuse.
        if cpu.list.lock().schedule(id.id) == Ok(Scheduled::Raise) {
            self.raise(id.cpu, cpu);
        }
    }

    fn raise(&self, number: CpuId, cpu: &Cpu<H>) {
        let off = self.hal.irq_save();
        cpu.raised.set(1);
        let ends_here = self.hal.cpu() == number && cpu.handling.get() != 0;
        self.hal.irq_restore(off);
        if !ends_here {
            self.wake(cpu);
        }
    }

    fn wake(&self, cpu: &Cpu<H>) {
        let thread = cpu.thread.get();
        if thread != 0 {
            self.threads.wake(self.hal, ThreadId((thread - 1) as u32));
        }
    }

    /// Runs `handle`, an interrupt of this CPU up to its end at the controller, with interrupts off. Then polls what was
    /// scheduled, with interrupts on. Where nothing is polled on this CPU, it is `handle` alone.
    pub fn interrupt(&self, handle: impl FnOnce()) {
        let Some(cpu) = self.cpus.get(self.hal.cpu().index()) else { return handle() };
        cpu.handling.set(1);
        handle();
        cpu.handling.set(0);
        if cpu.raised.get() == 0 || cpu.busy.get() != 0 {
            return;
        }
        for _ in 0..PASSES_MAX {
            self.pass(cpu);
            if cpu.raised.get() == 0 {
                return;
            }
        }
        self.wake(cpu);
    }

    /// One pass, until nothing waits or the budget is spent. Interrupts are off at the call and at the return.
    fn pass(&self, cpu: &Cpu<H>) {
        cpu.busy.set(1);
        cpu.raised.set(0);
        self.hal.work(Work::SoftPass, 1);
        cpu.list.lock().begin(self.hal.now_ns());
        self.hal.irq_restore(IrqState { were_on: true });
        let spent = loop {
            let turn = cpu.list.lock().next(self.hal.now_ns());
            match turn {
                Turn::Poll(id, weight) => self.turn(cpu, id, weight),
                Turn::Spent => break true,
                Turn::Idle => break false,
            }
        };
        let _ = self.hal.irq_save();
        if spent {
            cpu.raised.set(1);
        }
        cpu.busy.set(0);
    }

    fn turn(&self, cpu: &Cpu<H>, id: PollId, weight: u32) {
        let instance = &cpu.instances[id.0 as usize];
        let interrupted = instance.interrupted.get() == 1;
        instance.interrupted.set(0);
        // Read before the poll: until then, the completions that the poll finds are under way.
        let in_flight = instance.tuner.as_ref().and_then(|_| instance.polled.in_flight());
        let work = instance.polled.poll(weight);
        if let Some(tuner) = &instance.tuner {
            let found = Found { completions: work, bytes: 0, in_flight };
            if interrupted { tuner.interrupt(found) } else { tuner.polled(found) }
        }
        let after = cpu.list.lock().polled(id, work);
        if after == Ok(After::Complete) && instance.polled.rearm() {
            // The pass in progress will find it.
            let _ = cpu.list.lock().schedule(id);
        }
    }

    fn thread(&self, index: usize)
    where
        H: Threads,
    {
        let cpu = &self.cpus[index];
        loop {
            let state = self.hal.irq_save();
            let work = cpu.raised.get() != 0 && cpu.busy.get() == 0;
            if work {
                self.pass(cpu);
            }
            self.hal.irq_restore(state);
            if work { self.hal.yield_now() } else { self.hal.park() }
        }
    }
}

#[cfg(test)]
mod tests;

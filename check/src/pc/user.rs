//! Application threads: each submits batches to queues and sleeps until they are done.

use super::stack::PcStack;
use crate::draw::{Draw, Knobs};
use hal::{Affinity, CpuId, Hal as _, ThreadId, ThreadSpec, Threads};
use machine::SimHal;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// How a user works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habit {
    /// Commands that it submits in all.
    pub(super) commands: u64,
    /// Commands in a batch at most.
    pub(super) batch: u32,
    /// Commands in flight at most.
    pub(super) depth: u32,
    /// Between two batches at most, in ns.
    pub(super) think_ns: u64,
    /// It stays on its CPU.
    pub(super) pinned: bool,
    /// Its commands go to the queue of its own number.
    pub(super) own_queue: bool,
    /// Behind this many of a hundred batches it polls the queue for a few completions.
    pub(super) polls_percent: u64,
}

/// Most completions of a poll.
const POLLED_MAX: u64 = 4;

impl Habit {
    /// Users that submit this many commands each.
    pub(super) fn draw(knobs: &mut Knobs, commands: u64) -> Self {
        Self {
            commands,
            batch: knobs.number("batch", 1..=8) as u32,
            depth: knobs.number("depth", 1..=24) as u32,
            think_ns: knobs.number_with("think_ns", 0..=20_000, 0, |draw| {
                if draw.percent(40) { 0 } else { draw.time_ns(100, 8_000) }
            }),
            pinned: !knobs.chance("roaming", 50),
            own_queue: false,
            polls_percent: knobs
                .number_with("polls", 0..=100, 0, |draw| if draw.percent(75) { 0 } else { draw.within(3..=40) }),
        }
    }
}

/// One user.
pub(super) struct User {
    outstanding: AtomicU32,
    thread: OnceLock<ThreadId>,
}

impl User {
    /// Starts user `number` on the machine.
    pub(super) fn start(stack: &Arc<PcStack>, seed: u64, number: u32, habit: Habit) {
        let user = Arc::new(Self { outstanding: AtomicU32::new(0), thread: OnceLock::new() });
        let (stack, cpus) = (stack.clone(), stack.host.cpus());
        let affinity = if habit.pinned { Affinity::Cpu(CpuId(number % cpus)) } else { Affinity::Any };
        let body = move || {
            assert!(user.thread.set(SimHal.current_thread()).is_ok(), "a user has one thread");
            let own = habit.own_queue.then_some(number);
            user.work(&stack, own, &mut Draw::new(seed, "user", number), habit);
            stack.user_ends();
        };
        SimHal.spawn(ThreadSpec { name: "user", affinity, urgent: false }, Box::new(body)).expect("a CPU");
    }

    /// A command is about to be submitted.
    pub(super) fn begins(&self) {
        self.outstanding.fetch_add(1, Relaxed);
    }

    /// A command has ended, perhaps in an interrupt.
    pub(super) fn ends(&self) {
        self.outstanding.fetch_sub(1, Relaxed);
        if let Some(&thread) = self.thread.get() {
            SimHal.wake(thread);
        }
    }

    fn work(self: &Arc<Self>, stack: &PcStack, own: Option<u32>, draw: &mut Draw, habit: Habit) {
        let mut left = habit.commands;
        while left > 0 && !stack.ending.load(Relaxed) {
            let slot = match own {
                Some(number) => &stack.slots[number as usize % stack.slots.len()],
                None => draw.pick(&stack.slots),
            };
            let load = &slot.load;
            let wanted = draw.within(1..=habit.batch.into()).min(left) as u32;
            let accepted = load.submit(wanted, Some(self));
            left -= u64::from(accepted);
            if accepted == 0 {
                // The queue is full of other users' commands, stopped, or gone.
                left -= 1;
                SimHal.delay_ns(500);
            }
            if habit.polls_percent > 0 && draw.percent(habit.polls_percent) {
                slot.poll_few(draw.within(1..=POLLED_MAX) as usize);
            }
            if habit.think_ns > 0 {
                SimHal.delay_ns(draw.below(habit.think_ns));
            }
            self.wait(habit.depth);
        }
        self.wait(1);
    }

    /// Sleeps until fewer than `count` commands are outstanding.
    fn wait(&self, count: u32) {
        while self.outstanding.load(Relaxed) >= count {
            SimHal.park();
        }
    }
}

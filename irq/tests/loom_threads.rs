//! Every interleaving of a line's interrupts with the ends of its threads: each interrupt is ended once, never while a
//! thread works on it, and every wake is served.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p campanile-irq --test loom_threads --release`
//!
//! The model has the least that can go wrong: the line's lock, its in-progress mark, an end that may be left to the
//! threads, and the hand-over itself. The tests that should panic use the hand-over in a wrong order, to show that the
//! model finds it.
#![cfg(loom)]

mod loom_word;

use campanile_irq::handover::{Finished, Handover, Next};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;
use loom_word::LoomWord;

/// How the thread's end is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// As delivered: learnt and acted on under the line's lock.
    Locked,
    /// Wrong: learnt before the lock is taken.
    BeforeTheLock,
}

#[derive(Default)]
struct State {
    in_progress: bool,
    /// The end was left to the threads.
    active: bool,
    acks: u32,
    ends: u32,
}

struct Line {
    state: Mutex<State>,
    handover: Handover<LoomWord>,
    woken: [Notify; 2],
    /// What the primary handler has left for each thread to do.
    left: [AtomicU64; 2],
    end: End,
}

impl Line {
    fn new(end: End) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::default()),
            handover: Handover::new(),
            woken: [Notify::new(), Notify::new()],
            left: [AtomicU64::new(0), AtomicU64::new(0)],
            end,
        })
    }

    /// An interrupt whose primary handlers wake `threads`.
    fn interrupt(&self, threads: u16) {
        {
            let mut state = self.state.lock().unwrap();
            state.acks += 1;
            state.in_progress = true;
        }
        for thread in (0..2).filter(|thread| threads & 1 << thread != 0) {
            self.left[thread].fetch_add(1, Ordering::Relaxed);
            if self.handover.want(1 << thread, true) != 0 {
                self.woken[thread].notify();
            }
        }
        let mut state = self.state.lock().unwrap();
        state.in_progress = false;
        let owed = state.active;
        if self.handover.is_held() && !owed {
            state.active = true;
            return;
        }
        state.ends += 1;
        if owed && !self.handover.is_held() {
            release(&mut state);
        }
    }

    /// A thread, until it has been asked to leave.
    fn run(&self, thread: u8) {
        let index = usize::from(thread);
        loop {
            match self.handover.next(thread) {
                Next::Run => {
                    assert!(self.handover.is_held(), "the line was let go before its thread had run");
                    self.left[index].swap(0, Ordering::Relaxed);
                    self.finish(thread);
                }
                Next::Sleep => self.woken[index].wait(),
                Next::Leave => break,
            }
        }
        self.handover.leave(thread);
    }

    fn finish(&self, thread: u8) {
        let early = (self.end == End::BeforeTheLock).then(|| self.handover.finish(thread));
        let mut state = self.state.lock().unwrap();
        if early.unwrap_or_else(|| self.handover.finish(thread)) == Finished::Last && !state.in_progress {
            assert!(!self.handover.is_held(), "the line was let go while a thread held it");
            release(&mut state);
        }
    }
}

fn release(state: &mut State) {
    if core::mem::take(&mut state.active) {
        state.ends += 1;
    }
}

/// Interrupts that wake these threads one after the other, while the threads run: all interleavings with at most so
/// many preemptions, which keeps each test within seconds.
fn interrupts(end: End, preemptions: usize, threads: u8, wakes: &'static [u16]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let line = Line::new(end);
        let spawned: Vec<_> = (0..threads)
            .map(|index| {
                let line = line.clone();
                thread::spawn(move || line.run(index))
            })
            .collect();
        for &wake in wakes {
            line.interrupt(wake);
        }
        for (index, spawned) in spawned.into_iter().enumerate() {
            line.handover.dismiss(index as u8);
            line.woken[index].notify();
            spawned.join().unwrap();
            assert!(!line.handover.is_leaving(index as u8));
        }
        let state = line.state.lock().unwrap();
        assert!(!state.active && state.ends == state.acks, "{} ends for {} acks", state.ends, state.acks);
        assert!(line.left.iter().all(|left| left.load(Ordering::Relaxed) == 0), "a wake was lost");
        assert_eq!(line.handover.working(), 0);
    });
}

#[test]
fn every_interrupt_is_ended_once_and_every_wake_served() {
    interrupts(End::Locked, 4, 1, &[0b01]);
    interrupts(End::Locked, 2, 1, &[0b01, 0b01]);
}

#[test]
fn the_last_of_two_threads_ends_it() {
    interrupts(End::Locked, 1, 2, &[0b11]);
}

#[test]
#[should_panic(expected = "let go while a thread held it")]
fn an_end_learnt_before_the_lock_lets_the_line_go_too_early() {
    interrupts(End::BeforeTheLock, 2, 1, &[0b01, 0b01]);
}

//! All interleavings of posts with the notification handler: no vector is lost.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p campanile-irq --test loom_posted --release`
//!
//! The model is the smallest that can lose a vector: posters, one descriptor, and a LAPIC that holds one notification
//! (its IRR bit). The tests that should panic run the handler's steps in a wrong order, to show that the model finds it.
#![cfg(loom)]

mod loom_word;

use campanile_irq::Vector;
use campanile_irq::posted::{Deliverable, Descriptor, Notification};
use hal::Word;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use loom_word::LoomWord;

const NOTIFICATION: Vector = Vector(0xeb);
const DELIVERABLE: Deliverable = Deliverable::below(NOTIFICATION);

/// Which handler runs.
#[derive(Clone, Copy)]
enum Handler {
    /// The real handler, with this many passes.
    Delivered { passes: u32 },
    /// One pass that stops before its second vector, puts the rest back, and notifies its own CPU.
    Limited,
    /// Wrong: as above, but without the notification.
    LimitedInSilence,
    /// Sends each vector to its own CPU, which handles it in an interrupt of its own.
    Forwarded,
    /// Wrong: one pass, the final pass, and ON cleared only then.
    ClearAfterFinalPass,
    /// Wrong: one pass, ON cleared, no final pass.
    NoFinalPass,
}

struct Cpu {
    words: Vec<LoomWord>,
    /// The notification waits in the LAPIC.
    requested: AtomicU64,
    /// Bit i: the i-th vector of the scenario was handled.
    handled: AtomicU64,
    /// Bit i: the i-th vector waits in the LAPIC.
    forwarded: AtomicU64,
    /// The first vector of a limited handler's next run.
    resume: AtomicU64,
}

impl Cpu {
    fn new() -> Arc<Self> {
        let cpu = Self {
            words: (0..8).map(|_| LoomWord::new(0)).collect(),
            requested: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            resume: AtomicU64::new(0),
        };
        cpu.descriptor().initialise(Notification { vector: NOTIFICATION, destination: 0 });
        Arc::new(cpu)
    }

    fn descriptor(&self) -> Descriptor<'_, LoomWord> {
        Descriptor::new(&self.words)
    }

    fn post(&self, vector: u8) {
        if self.descriptor().post(Vector(vector), false).is_some() {
            self.requested.store(1, Ordering::Release);
        }
    }

    /// Takes the notification if one waits, else a vector that was forwarded.
    fn interrupt(&self, handler: Handler) -> bool {
        let forwarded = self.forwarded.swap(0, Ordering::Relaxed);
        self.handled.fetch_or(forwarded, Ordering::Relaxed);
        if self.requested.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        let descriptor = self.descriptor();
        let dispatch = |vector: Vector| _ = self.handled.fetch_or(1 << (vector.0 / 64), Ordering::Relaxed);
        let pass = || _ = descriptor.harvest(|| ()).dispatch(&DELIVERABLE, dispatch);
        match handler {
            Handler::Delivered { passes } => _ = descriptor.serve(passes, &DELIVERABLE, |_| (), dispatch),
            Handler::Limited | Handler::LimitedInSilence => {
                let from = Vector(self.resume.load(Ordering::Relaxed) as u8);
                let limited = descriptor.serve_until(1, &DELIVERABLE, from, || true, |_| (), dispatch);
                if let Some(vector) = limited.resume
                    && matches!(handler, Handler::Limited)
                {
                    self.resume.store(vector.0.into(), Ordering::Relaxed);
                    self.requested.store(1, Ordering::Release);
                }
            }
            Handler::Forwarded => {
                let send = |vector: Vector| _ = self.forwarded.fetch_or(1 << (vector.0 / 64), Ordering::Relaxed);
                _ = descriptor.serve(1, &DELIVERABLE, |_| (), send);
            }
            Handler::ClearAfterFinalPass => {
                pass();
                pass();
                descriptor.clear_outstanding();
            }
            Handler::NoFinalPass => {
                pass();
                descriptor.clear_outstanding();
            }
        }
        true
    }
}

/// One vector is posted and notified. While the handler runs, agents post `late` more, one each. Then the
/// CPU takes the remaining notifications, and every vector must have been handled.
fn posts_while_handling(handler: Handler, late: &'static [u8]) {
    loom::model(move || {
        let cpu = Cpu::new();
        cpu.post(0x30);
        let posters: Vec<_> = late
            .iter()
            .map(|&vector| {
                let cpu = cpu.clone();
                thread::spawn(move || cpu.post(vector))
            })
            .collect();
        cpu.interrupt(handler);
        for poster in posters {
            poster.join().unwrap();
        }
        while cpu.interrupt(handler) {}
        // The vectors that the last notification forwarded.
        cpu.interrupt(handler);
        let wanted = late.iter().fold(1, |bits, vector| bits | 1 << (vector / 64));
        assert_eq!(cpu.handled.load(Ordering::Relaxed), wanted, "a vector was lost");
    });
}

#[test]
fn a_post_while_handling_is_not_lost() {
    for passes in 0..=2 {
        posts_while_handling(Handler::Delivered { passes }, &[0x41]);
    }
}

#[test]
fn two_posts_while_handling_are_not_lost() {
    posts_while_handling(Handler::Delivered { passes: 0 }, &[0x41, 0x81]);
}

#[test]
fn what_a_limit_leaves_is_not_lost() {
    posts_while_handling(Handler::Limited, &[0x41]);
}

#[test]
fn what_is_forwarded_is_not_lost() {
    posts_while_handling(Handler::Forwarded, &[0x41]);
}

#[test]
#[should_panic(expected = "a vector was lost")]
fn stopping_at_a_limit_without_a_notification_loses_one() {
    posts_while_handling(Handler::LimitedInSilence, &[0x41]);
}

/// The late post hits the word that is being harvested. It must not vanish between the look and the swap.
#[test]
fn a_post_to_the_word_under_harvest_is_not_lost() {
    loom::model(|| {
        let cpu = Cpu::new();
        let count = Arc::new(AtomicU64::new(0));
        cpu.post(0x40);
        let poster = thread::spawn({
            let cpu = cpu.clone();
            move || cpu.post(0x41)
        });
        let handle = || {
            if cpu.requested.swap(0, Ordering::AcqRel) == 0 {
                return false;
            }
            let dispatch = |vector: Vector| _ = count.fetch_or(1 << (vector.0 % 64), Ordering::Relaxed);
            cpu.descriptor().serve(1, &DELIVERABLE, |_| (), dispatch);
            true
        };
        handle();
        poster.join().unwrap();
        while handle() {}
        assert_eq!(count.load(Ordering::Relaxed), 0b11, "a vector was lost");
    });
}

#[test]
#[should_panic(expected = "a vector was lost")]
fn clearing_on_after_the_final_pass_loses_one() {
    posts_while_handling(Handler::ClearAfterFinalPass, &[0x41]);
}

#[test]
#[should_panic(expected = "a vector was lost")]
fn leaving_out_the_final_pass_loses_one() {
    posts_while_handling(Handler::NoFinalPass, &[0x41]);
}

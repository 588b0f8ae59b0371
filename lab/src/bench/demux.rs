//! The handler of posted notifications on the host's own CPU, against the smallest loop that does the same work.
//!
//! Both serve the same descriptor, armed the same way by five plain stores inside the timed loop, and call the same
//! table of 256 functions, each of which counts its vector. The minimal loop does nothing else: four loads, a swap of
//! each word that is not zero, an indirect call per bit, the atomic clear of ON, the final look, the EOI. Our handler
//! is [`PostedMsi::handle`] with its default of two harvests before the clear. It finds its CPU, marks itself as
//! serving and keeps [`irq::posted::Statistics`]: notifications, empty ones, passes, vectors, strays. A descriptor
//! with more than the 203 vectors below the host's notification vector is a guest's; [`Descriptor::serve`] serves it
//! with [`Deliverable::ALL`] and no statistics.

use hal::AtomicWord;
use hal::host::{HostDma, HostHal};
use hal::{CpuId, Dma as _, Word as _};
use irq::Vector;
use irq::posted::{Deliverable, Descriptor, PostedConfig, PostedMsi};
use spec::vtd::posted::{CONTROL_WORD, Control, PIR_WORDS};
use std::hint::black_box;
use std::time::Instant;

/// The number of pending vectors in each case.
pub const PENDING: [u32; 5] = [1, 4, 16, 64, 224];

/// Vectors from 0x20 up to, not including, the host's notification vector 0xeb.
const HOST_VECTORS: u32 = 203;
/// Vectors that a device may have: 0x20 to 0xff.
const DEVICE_VECTORS: u32 = 224;
const OUTSTANDING: u64 = Control::new().with_outstanding(true).into_bits();
/// A timed loop calls about this many handlers, and serves no more than a fifth as many notifications.
const CALLS: u32 = 1_000_000;

/// Which loop serves the notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handler {
    /// The delivery core's.
    Core,
    /// The hand-written one.
    Minimal,
}

/// A CPU's descriptor, a vector table, and the requests that each notification finds.
pub struct Bench {
    posted: PostedMsi<HostHal>,
    descriptor: HostDma,
    table: [fn(&Self, u8); 256],
    counts: [AtomicWord; 256],
    end_of_interrupt: AtomicWord,
    requests: [u64; PIR_WORDS],
    /// The control word while a notification is outstanding.
    control: u64,
    pending: u32,
}

/// A vector's handler.
fn count(bench: &Bench, vector: u8) {
    let word = &bench.counts[usize::from(vector)];
    word.set(word.get() + 1);
}

impl Bench {
    /// `pending` vectors wait in each notification, spread evenly over those that it dispatches.
    ///
    /// # Panics
    /// When `pending` is 0 or more than 224.
    pub fn new(pending: u32) -> Self {
        assert!((1..=DEVICE_VECTORS).contains(&pending), "{pending} pending vectors; devices have 0x20 to 0xff");
        let range = if pending > HOST_VECTORS { DEVICE_VECTORS } else { HOST_VECTORS };
        let mut requests = [0; PIR_WORDS];
        for index in 0..pending {
            let vector = 0x20 + index * range / pending;
            requests[vector as usize / 64] |= 1 << (vector % 64);
        }
        let hal = HostHal::manual(1);
        let posted = PostedMsi::new(hal, PostedConfig::default(), &[0]).expect("a CPU, a vector, 64 bytes");
        let address = posted.descriptor_address(CpuId(0)).expect("CPU 0 has a descriptor");
        let descriptor = hal.dma_at(address).expect("it is alive");
        Self {
            control: descriptor.words()[CONTROL_WORD].get() | OUTSTANDING,
            posted,
            descriptor,
            table: [count; 256],
            counts: std::array::from_fn(|_| AtomicWord::new(0)),
            end_of_interrupt: AtomicWord::new(0),
            requests,
            pending,
        }
    }

    /// Host time of one notification in ns, over some thousands.
    pub fn timed(&self, handler: Handler) -> f64 {
        let rounds = (CALLS / self.pending).min(CALLS / 5);
        let start = Instant::now();
        match (handler, self.pending > HOST_VECTORS) {
            (Handler::Minimal, _) => self.repeat(rounds, Self::minimal),
            (Handler::Core, false) => self.repeat(rounds, Self::handle),
            (Handler::Core, true) => self.repeat(rounds, Self::serve),
        }
        start.elapsed().as_nanos() as f64 / f64::from(rounds)
    }

    /// Arms the descriptor and serves it, `rounds` times.
    #[inline]
    fn repeat(&self, rounds: u32, serve: impl Fn(&Self, &[AtomicWord])) {
        let words = self.descriptor.words();
        for _ in 0..rounds {
            for (word, &requests) in words.iter().zip(&self.requests) {
                word.set(requests);
            }
            words[CONTROL_WORD].set(self.control);
            serve(black_box(self), words);
        }
    }

    #[inline]
    fn dispatch(&self, vector: u8) {
        self.table[usize::from(vector)](self, vector);
    }

    #[inline]
    fn eoi(&self) {
        self.end_of_interrupt.set(0);
    }

    #[inline(never)]
    fn handle(&self, _words: &[AtomicWord]) {
        self.posted.handle(|Vector(vector)| self.dispatch(vector), || self.eoi());
    }

    #[inline(never)]
    fn serve(&self, words: &[AtomicWord]) {
        let passes = PostedConfig::default().passes;
        Descriptor::new(words).serve(passes, &Deliverable::ALL, |_| (), |Vector(vector)| self.dispatch(vector));
        self.eoi();
    }

    #[inline(never)]
    fn minimal(&self, words: &[AtomicWord]) {
        self.look(words);
        words[CONTROL_WORD].fetch_and(!OUTSTANDING);
        self.look(words);
        self.eoi();
    }

    #[inline]
    fn look(&self, words: &[AtomicWord]) {
        let seen = [words[0].get(), words[1].get(), words[2].get(), words[3].get()];
        if seen == [0; PIR_WORDS] {
            return;
        }
        for (index, seen) in seen.into_iter().enumerate() {
            let mut bits = if seen == 0 { 0 } else { words[index].swap(0) };
            while bits != 0 {
                self.dispatch((index as u32 * 64 + bits.trailing_zeros()) as u8);
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_call_every_pending_vector_once_and_clear_on() {
        for pending in PENDING {
            for handler in [Handler::Core, Handler::Minimal] {
                let bench = Bench::new(pending);
                bench.timed(handler);
                let rounds = u64::from((CALLS / pending).min(CALLS / 5));
                let called: Vec<u64> =
                    bench.counts.iter().map(|count| count.get()).filter(|&count| count > 0).collect();
                assert_eq!(called, vec![rounds; pending as usize], "{handler:?}, {pending} pending");
                let words: Vec<u64> = bench.descriptor.words()[..=CONTROL_WORD].iter().map(|word| word.get()).collect();
                assert_eq!(words, [0, 0, 0, 0, bench.control & !OUTSTANDING], "{handler:?}, {pending} pending");
            }
        }
    }
}

//! Words that CPUs and devices share, with their points of the seam.

use crate::core::Core;
use crate::current;
use crate::event::{Event, cpu_event};
use crate::time::Ps;
use crate::unrest::Kind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A word of simulated memory. One host thread runs a machine, so the host's own ordering plays no part.
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// A store that wakes nobody, for initialisation.
    pub(crate) fn set_quietly(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// A read-modify-write by a CPU: others act first, and the line must be free.
    #[inline]
    fn update(&self, change: impl FnOnce(u64) -> u64) -> u64 {
        current::with(|core| core.atomic_point(self));
        let old = self.0.load(Relaxed);
        hal::Word::set(self, change(old));
        old
    }
}

impl hal::Word for Word {
    #[inline]
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
        current::try_with(|core| core.word_written(self));
    }
    #[inline]
    fn load(&self) -> u64 {
        current::with(Core::settle);
        self.0.load(Relaxed)
    }
    #[inline]
    fn swap(&self, value: u64) -> u64 {
        self.update(|_| value)
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        current::with(|core| core.atomic_point(self));
        let old = self.0.load(Relaxed);
        if old != current {
            return Err(old);
        }
        hal::Word::set(self, new);
        Ok(old)
    }
    #[inline]
    fn fetch_or(&self, mask: u64) -> u64 {
        self.update(|old| old | mask)
    }
    #[inline]
    fn fetch_and(&self, mask: u64) -> u64 {
        self.update(|old| old & mask)
    }
    #[inline]
    fn fetch_add(&self, value: u64) -> u64 {
        self.update(|old| old.wrapping_add(value))
    }
}

/// What words are to the machine.
impl Core {
    /// A read-modify-write by the running CPU: everything due has happened, and a line that a device updates
    /// atomically is free.
    pub(crate) fn atomic_point(&self, word: &Word) {
        self.settle();
        let Some(line) = self.arena.line_of(word) else { return };
        let wait = {
            let mut lines = self.lines.borrow_mut();
            let Some(busy_until) = lines.busy_until(line) else { return };
            // In turn: devices that ask while the CPU waits come after it.
            let start = (*busy_until).max(self.now());
            *busy_until = start + self.config.costs.line_update + self.late(Kind::SlowLine);
            start - self.now()
        };
        if wait > Ps(0) {
            let cpu = self.cpu();
            cpu.owe(wait.0, self.kernel_account());
            self.settle();
        }
    }

    /// Somebody wrote a word: CPUs that relax on it go on.
    #[inline]
    pub(crate) fn word_written(&self, word: &Word) {
        if self.relaxing.get() != 0 {
            self.end_relaxing(word);
        }
    }

    #[cold]
    fn end_relaxing(&self, word: &Word) {
        let address = core::ptr::from_ref(word) as usize;
        for cpu in &self.cpus {
            if cpu.relaxes_on.get() == address {
                let generation = cpu.generation.get().into();
                self.push(self.now(), Event::for_cpu(cpu.id, cpu_event::RESUME, generation));
            }
        }
    }
}

/// `count` zero words, which the host commits only when they are touched.
#[allow(unsafe_code)]
pub(crate) fn zeroed(count: usize) -> Box<[Word]> {
    let plain = vec![0u64; count].into_boxed_slice();
    // SAFETY: `Word` is a transparent `AtomicU64`, which has the size, alignment and validity of `u64`.
    unsafe { Box::from_raw(Box::into_raw(plain) as *mut [Word]) }
}

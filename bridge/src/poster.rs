//! The poster: threads that raise interrupts as fast as they can, each after a count in the guest's memory, so that a lost
//! one is found ([`spec::posting::poster`]).

use crate::function::{Function, Served};
use crate::guest::Guest;
use machine::nvme::{MSIX_CAPABILITY_OFFSET, PBA_OFFSET};
use spec::msi::{MSIX_CAPABILITY_ID, MsixControl, MsixLocation, msix_capability};
use spec::posting::poster::{
    BURST, FINALS, MADE, PCI_CLASS, PCI_DEVICE, PCI_VENDOR, RAISES, SEED, SEQUENCE, SHAPE, STATUS, Shape, Status,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of BAR 0.
const BAR_BYTES: u64 = 0x2000;
/// Sources at most: what BAR 0 has finals for.
const SOURCES_MAX: u16 = 512;
const THREADS_MAX: u16 = 64;

/// A poster to be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poster {
    /// MSI-X vectors that it raises.
    pub sources: u16,
    /// Threads that do so at the same time.
    pub threads: u16,
    /// Slots of its posting block.
    pub slots: u16,
}

/// A number of a [`Poster`] that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PosterError {
    what: &'static str,
    value: u16,
    max: u16,
}

impl fmt::Display for PosterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a poster with {} {}; valid: 1 to {}", self.value, self.what, self.max)
    }
}

impl std::error::Error for PosterError {}

impl TryFrom<Poster> for Served {
    type Error = PosterError;

    fn try_from(poster: Poster) -> Result<Self, PosterError> {
        let Poster { sources, threads, slots } = poster;
        let slots_max = crate::posting::SLOTS_MAX;
        for (what, value, max) in
            [("sources", sources, SOURCES_MAX), ("threads", threads, THREADS_MAX), ("slots", slots, slots_max)]
        {
            if !(1..=max).contains(&value) {
                return Err(PosterError { what, value, max });
            }
        }
        Ok(Self::new(sources, slots, [BAR_BYTES, 0, 0, 0, 0, 0], move |guest| {
            let control = MsixControl::new().with_table_size_less_one(sources + slots - 1);
            let run = Run { finals: (0..sources).map(|_| AtomicU64::new(0)).collect(), ..Run::default() };
            let wanted = Wanted { burst: 1, ..Wanted::default() };
            Box::new(Running { guest: guest.clone(), poster, control, wanted, run: Arc::new(run), threads: Vec::new() })
        }))
    }
}

/// What the guest asks for.
#[derive(Clone, Copy, Default)]
struct Wanted {
    sequence: u64,
    raises: u64,
    seed: u64,
    burst: u32,
}

/// What the threads share.
#[derive(Default)]
struct Run {
    made: AtomicU64,
    /// By source.
    finals: Vec<AtomicU64>,
    /// Threads that are not done.
    left: AtomicU64,
    no_memory: AtomicBool,
    stop: AtomicBool,
}

impl Run {
    fn is_running(&self) -> bool {
        self.left.load(SeqCst) > 0
    }

    fn is_used(&self) -> bool {
        self.made.load(Relaxed) > 0 || self.no_memory.load(SeqCst)
    }

    /// One thread's part: `raises` of them.
    fn work(&self, guest: &Guest, wanted: Wanted, raises: u64, mut random: Random) {
        let mut left = raises;
        while left > 0 && !self.stop.load(Relaxed) {
            let burst = (1 + random.below(wanted.burst.max(1).into())).min(left);
            for _ in 0..burst {
                let source = random.below(self.finals.len() as u64);
                let word = wanted.sequence.wrapping_add(source * 8);
                let counted = guest.memory().with_word(word, |word| word.fetch_add(1, SeqCst));
                if counted.is_none() {
                    self.no_memory.store(true, SeqCst);
                    return;
                }
                guest.raise(source as u16);
                self.finals[source as usize].fetch_add(1, Relaxed);
            }
            self.made.fetch_add(burst, Relaxed);
            left -= burst;
            std::thread::yield_now();
        }
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % end
    }
}

/// The poster of one client.
struct Running {
    guest: Arc<Guest>,
    poster: Poster,
    control: MsixControl,
    wanted: Wanted,
    run: Arc<Run>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Waits for the threads of the last run, which are done or told to stop.
    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            thread.join().expect("raising does not panic");
        }
    }

    fn begin(&mut self) {
        if self.run.is_running() {
            return;
        }
        self.join();
        let (run, wanted) = (&self.run, self.wanted);
        run.made.store(0, Relaxed);
        run.finals.iter().for_each(|count| count.store(0, Relaxed));
        run.no_memory.store(false, SeqCst);
        let threads = u64::from(self.poster.threads);
        run.left.store(threads, SeqCst);
        self.threads = (0..threads)
            .map(|number| {
                let (run, guest) = (run.clone(), self.guest.clone());
                let raises = wanted.raises / threads + u64::from(number < wanted.raises % threads);
                let random = Random((wanted.seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
                std::thread::spawn(move || {
                    run.work(&guest, wanted, raises, random);
                    run.left.fetch_sub(1, SeqCst);
                })
            })
            .collect();
    }

    fn read64(&self, offset: u32) -> u64 {
        match offset {
            SHAPE => {
                let shape = Shape::new().with_sources(self.poster.sources).with_threads(self.poster.threads);
                let no_memory = self.run.no_memory.load(SeqCst);
                let status = Status::new().with_running(self.run.is_running()).with_no_memory(no_memory);
                u64::from(status.into_bits()) << 32 | u64::from(shape.into_bits())
            }
            SEQUENCE => self.wanted.sequence,
            RAISES => self.wanted.raises,
            SEED => self.wanted.seed,
            BURST => self.wanted.burst.into(),
            MADE => self.run.made.load(Relaxed),
            FINALS.. => self.run.finals.get(((offset - FINALS) / 8) as usize).map_or(0, |count| count.load(Relaxed)),
            _ => 0,
        }
    }

    fn write32(&mut self, offset: u32, value: u32) {
        let half = |old: u64, high: bool| {
            if high { old & 0xffff_ffff | u64::from(value) << 32 } else { old >> 32 << 32 | u64::from(value) }
        };
        let (wanted, high) = (&mut self.wanted, offset % 8 == 4);
        match offset & !7 {
            SHAPE if high && Status::from_bits(value).running() => self.begin(),
            SEQUENCE => wanted.sequence = half(wanted.sequence, high),
            RAISES => wanted.raises = half(wanted.raises, high),
            SEED => wanted.seed = half(wanted.seed, high),
            BURST if !high => wanted.burst = value,
            _ => {}
        }
    }
}

const _: () = assert!(SHAPE + 4 == STATUS && FINALS as u64 + SOURCES_MAX as u64 * 8 <= BAR_BYTES);

impl Drop for Running {
    fn drop(&mut self) {
        self.run.stop.store(true, Relaxed);
        self.join();
    }
}

impl Function for Running {
    fn config_read(&mut self, offset: u32) -> u32 {
        const TABLE: u32 = MSIX_CAPABILITY_OFFSET + msix_capability::TABLE;
        const PENDING: u32 = MSIX_CAPABILITY_OFFSET + msix_capability::PENDING;
        /// A 64-bit memory BAR.
        const BAR_64: u32 = 4;
        let location = |at: u32| MsixLocation::new().with_bar(crate::function::MSIX_BAR).with_offset_qwords(at / 8);
        match offset {
            0x00 | 0x2c => u32::from(PCI_DEVICE) << 16 | u32::from(PCI_VENDOR),
            // Memory space, bus master; capabilities list.
            0x04 => 0x0010_0006,
            0x08 => PCI_CLASS << 8,
            0x10 | 0x20 => BAR_64,
            0x34 => MSIX_CAPABILITY_OFFSET,
            MSIX_CAPABILITY_OFFSET => u32::from(self.control.into_bits()) << 16 | u32::from(MSIX_CAPABILITY_ID),
            TABLE => location(0).into_bits(),
            PENDING => location(PBA_OFFSET).into_bits(),
            _ => 0,
        }
    }

    fn config_write(&mut self, offset: u32, value: u32) {
        if offset == MSIX_CAPABILITY_OFFSET {
            let control = MsixControl::from_bits((value >> 16) as u16);
            self.control.set_enable(control.enable());
            self.control.set_function_mask(control.function_mask());
        }
    }

    fn read(&mut self, bar: u8, offset: u32, width_bytes: u8) -> u64 {
        match (bar, width_bytes, offset % 8) {
            (0, 4, 0) => self.read64(offset) & 0xffff_ffff,
            (0, 4, 4) => self.read64(offset & !7) >> 32,
            (0, 8, 0) => self.read64(offset),
            _ => 0,
        }
    }

    fn write(&mut self, _bar: u8, offset: u32, width_bytes: u8, value: u64) {
        match (width_bytes, offset % 8) {
            (4, 0 | 4) => self.write32(offset, value as u32),
            (8, 0) => {
                self.write32(offset, value as u32);
                self.write32(offset + 4, (value >> 32) as u32);
            }
            _ => {}
        }
    }

    /// The masks are kept with the vectors.
    fn set_mask(&mut self, _vector: u16, _masked: bool) {}

    fn catch_up(&mut self) -> Option<Duration> {
        None
    }

    fn tell_faults(&mut self, _tell: &dyn Fn(&str)) {}

    fn counts(&self) -> Option<String> {
        let memory = if self.run.no_memory.load(SeqCst) { ", ended: a sequence word is not in memory" } else { "" };
        self.run.is_used().then(|| format!("raises {}{memory}", self.run.made.load(Relaxed)))
    }
}

//! The poster: threads that raise interrupts as fast as they can. Before each interrupt the thread increments a count
//! in the guest's memory, so that the guest can detect a lost interrupt ([`spec::posting::poster`]).

use crate::function::{Function, MSIX_BAR, Served};
use crate::guest::Guest;
use machine::pci::{Bar, ConfigSpace, Identity, MSIX_BAR_BYTES, MsixPlace, PBA_OFFSET};
use spec::msi::MsixControl;
use spec::posting::poster::{self as reg, PCI_CLASS, PCI_DEVICE, PCI_VENDOR, SOURCES_MAX, Shape, Status};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::Duration;

// Register offsets, as constants for `match` patterns.
const SHAPE: u32 = reg::SHAPE.offset();
const SEQUENCE: u32 = reg::SEQUENCE.offset();
const RAISES: u32 = reg::RAISES.offset();
const SEED: u32 = reg::SEED.offset();
const BURST: u32 = reg::BURST.offset();
const MADE: u32 = reg::MADE.offset();
const FINALS: u32 = reg::FINALS.first();

/// Bytes of BAR 0.
const BAR_BYTES: u32 = 0x2000;
const THREADS_MAX: u16 = 64;

/// A poster to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poster {
    /// Number of MSI-X vectors that the poster raises.
    pub sources: u16,
    /// Number of threads that raise interrupts concurrently.
    pub threads: u16,
    /// Slots of the posting block.
    pub slots: u16,
}

/// A field of [`Poster`] is out of range.
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
            [("sources", sources, SOURCES_MAX as u16), ("threads", threads, THREADS_MAX), ("slots", slots, slots_max)]
        {
            if !(1..=max).contains(&value) {
                return Err(PosterError { what, value, max });
            }
        }
        Ok(Self::new(sources, slots, [BAR_BYTES.into(), 0, 0, 0, 0, 0], move |guest| {
            let control = MsixControl::new().with_table_size_less_one(sources + slots - 1);
            let run = Run { finals: (0..sources).map(|_| AtomicU64::new(0)).collect(), ..Run::default() };
            let wanted = Wanted { burst: 1, ..Wanted::default() };
            let (guest, config, run) = (guest.clone(), ConfigSpace::new(&identity()), Arc::new(run));
            Box::new(Running { guest, poster, config, control, wanted, run, threads: Vec::new() })
        }))
    }
}

fn identity() -> Identity {
    Identity {
        vendor: PCI_VENDOR,
        device: PCI_DEVICE,
        class: PCI_CLASS,
        bars: vec![Bar::new(0, BAR_BYTES), Bar::new(MSIX_BAR, MSIX_BAR_BYTES)],
        msix: MsixPlace { region: 1, table: 0, pending: PBA_OFFSET },
        capabilities: Vec::new(),
    }
}

/// The settings that the guest wrote.
#[derive(Clone, Copy, Default)]
struct Wanted {
    sequence: u64,
    raises: u64,
    seed: u64,
    burst: u32,
}

/// The state that the threads share.
#[derive(Default)]
struct Run {
    made: AtomicU64,
    /// Indexed by source.
    finals: Vec<AtomicU64>,
    /// Number of threads that still run.
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

    /// The loop of one thread: raises `raises` interrupts.
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
    config: ConfigSpace,
    control: MsixControl,
    wanted: Wanted,
    run: Arc<Run>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Joins the threads of the last run. They have finished, or they were told to stop.
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

const _: () = assert!(SHAPE + 4 == reg::STATUS.offset() && FINALS + SOURCES_MAX * 8 <= BAR_BYTES);

impl Drop for Running {
    fn drop(&mut self) {
        self.run.stop.store(true, Relaxed);
        self.join();
    }
}

impl Function for Running {
    fn config_read(&mut self, offset: u32) -> u32 {
        self.config.read(self.control, offset)
    }

    fn config_write(&mut self, offset: u32, value: u32) {
        self.control = ConfigSpace::written(self.control, offset, value);
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

    /// The vectors hold the mask bits.
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

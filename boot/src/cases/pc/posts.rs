//! The poster: a device whose threads post as fast as they can. Each thread writes a count to memory before each
//! request.

use super::Fixture;
use crate::arch::{self, Registers};
use crate::cases::pci::Bus;
use crate::cases::{Options, count, expect, wait};
use crate::kernel::Bare;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;
use drivers::message::MessageDomain;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::register::Typed as _;
use hal::{CpuId, CpuSet, Dma, Hal, Word};
use irq::{Action, AllocRequest, Irq, IrqReturn, RequestFlags};
use spec::posting::poster::{BURST, FINALS, MADE, PCI_CLASS, RAISES, SEED, SEQUENCE, SHAPE, STATUS, Shape, Status};

/// Interval between two checks whether the device is done. Each check is a round trip to the device.
const LOOK_NS: u64 = 20_000;
/// Without a raise for this long, the device counts as hung.
const STALL_NS: u64 = 30_000_000_000;

/// State that all handlers share.
struct Watch {
    /// The sequence words, by source.
    words: <Bare as Hal>::Dma,
    /// The highest value that a handler has read, by source. Only handlers write it.
    seen: Vec<AtomicU64>,
}

/// The handler of one source. Only the handler reads the source's sequence word.
struct Look {
    watch: Arc<Watch>,
    source: usize,
    taken: AtomicU64,
}

impl Action for Look {
    fn handle(&self, _line: Irq) -> IrqReturn {
        let value = self.watch.words.words()[self.source].load();
        self.watch.seen[self.source].fetch_max(value, SeqCst);
        self.taken.fetch_add(1, SeqCst);
        IrqReturn::Handled
    }
}

/// The device, and a line for each of its sources.
struct Poster {
    regs: Registers,
    watch: Arc<Watch>,
    lines: Vec<(Irq, Arc<Look>)>,
}

/// Raises in many rounds: half of them undisturbed, half while lines move from CPU to CPU. The next notification would
/// deliver a request that was forgotten in a descriptor, so a loss shows only at the end of a round. Options:
/// `raises`, `round` (raises of a round), `burst` (most raises of a thread before it lets others run), `seed` (each
/// round adds one).
pub(super) fn posts(system: &Arc<Fixture>, options: &Options) -> Result<(), String> {
    let (raises, round) = (options.number("raises", 100_000)?, options.number("round", 2_000)?.max(1));
    if system.platform.cpus() < 2 {
        return Err("one CPU: QEMU's CPUs are atomic towards other processes only where there are two".into());
    }
    let poster = Poster::new(system)?;
    poster.regs.write(BURST, options.number("burst", 64)? as u32);
    let (seed, shape) = (options.number("seed", 1)?, Shape::from_bits(poster.regs.read(SHAPE)));
    count("threads", shape.threads().into());
    count("sources", shape.sources().into());
    crate::println!("begin");
    let (rounds, mut moves) = (raises.div_ceil(round), 0);
    for number in 0..rounds {
        poster.regs.write(SEED, seed.wrapping_add(number));
        poster.run(round.min(raises - number * round), || {
            if number < rounds / 2 {
                return Ok(());
            }
            let (line, _) = &poster.lines[moves as usize % poster.lines.len()];
            let to = CpuId((moves / poster.lines.len() as u64 + 1) as u32 % system.platform.cpus());
            moves += 1;
            let moved = system.core.set_affinity(*line, &CpuSet::of(to));
            moved.map_err(|error| format!("line {line} to CPU {to}: {error}"))
        })?;
    }
    crate::println!("end");
    count("raises", raises);
    count("rounds", rounds);
    count("moves", moves);
    count("handlers_run", poster.lines.iter().map(|(_, look)| look.taken.load(SeqCst)).sum());
    count("strays", system.strays());
    poster.check_finals()?;
    system.check()?;
    expect("strays", system.strays(), 0)
}

impl Poster {
    /// Finds the device, and spreads its lines over the CPUs.
    fn new(system: &Arc<Fixture>) -> Result<Self, String> {
        let bridge = system.platform.pcie.as_ref().ok_or("firmware tells of no PCIe configuration space")?;
        let mut bus = Bus::new(bridge);
        let function = bus.find(PCI_CLASS).ok_or("no poster on bus 0")?;
        let regs = bus.region(&function, 0)?;
        let capability = MsixCapability::find(&function.config).map_err(|error| error.to_string())?;
        let table = bus.region(&function, capability.table_bar)?;
        let table = MsixTable::enable(function.config, table, capability);
        let domain = system.messages(&mut bus, &function)?;
        let messages = Arc::new(MessageDomain::new(Bare, table, domain).map_err(|error| error.to_string())?);
        system.start_messages(messages.source())?;

        let sources = usize::from(Shape::from_bits(regs.read(SHAPE)).sources());
        let words = Bare.dma_alloc(sources * 8, 4096).map_err(|error| format!("sequence words: {error}"))?;
        let seen = (0..sources).map(|_| AtomicU64::new(0)).collect();
        let watch = Arc::new(Watch { words, seen });
        let line = |source: usize| {
            let look = Arc::new(Look { watch: watch.clone(), source, taken: AtomicU64::new(0) });
            let request = AllocRequest::fixed(
                function.requester,
                source as u32,
                CpuSet::of(CpuId(source as u32 % system.platform.cpus())),
            );
            let flow = system.message_flow();
            let line = system.core.alloc_line(messages.clone(), &request, flow).map_err(|error| error.to_string())?;
            let requested = system.core.request(line, format!("source{source}"), RequestFlags::default(), look.clone());
            requested.map_err(|error| error.to_string())?;
            Ok((line, look))
        };
        let lines = (0..sources).map(line).collect::<Result<_, String>>()?;
        regs.write(SEQUENCE, watch.words.device_address().0);
        Ok(Self { regs, watch, lines })
    }

    /// Has the device raise `raises` times, and calls `meanwhile` again and again. At the end every source's handler
    /// must have read the final value. Only the notifications may have started the handlers.
    fn run(&self, raises: u64, mut meanwhile: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let words = self.watch.words.words();
        for (word, seen) in words.iter().zip(&self.watch.seen) {
            word.set(0);
            seen.store(0, SeqCst);
        }
        self.regs.write(RAISES, raises);
        self.regs.write(STATUS, Status::new().with_running(true).into_bits());
        let status = || Status::from_bits(self.regs.read(STATUS));
        let (mut made, mut since_ns) = (0, arch::CLOCK.now_ns());
        while status().running() {
            meanwhile()?;
            Bare.delay_ns(LOOK_NS);
            let (now, now_ns) = (self.sum(), arch::CLOCK.now_ns());
            if now != made {
                (made, since_ns) = (now, now_ns);
            } else if now_ns - since_ns > STALL_NS {
                return Err(format!("no raise for {} s after {made}", STALL_NS / 1_000_000_000));
            }
        }
        if status().no_memory() {
            return Err("the device does not reach the sequence words".into());
        }
        expect("raises made", self.sum(), raises)?;
        let finals = || words.iter().map(Word::load).zip(&self.watch.seen);
        let all_seen = || finals().all(|(last, seen)| seen.load(SeqCst) == last);
        wait("the last notification", all_seen).map_err(|late| {
            let missed = finals().enumerate().filter(|(_, (last, seen))| seen.load(SeqCst) != *last);
            let missed: Vec<String> = missed
                .map(|(source, (last, seen))| format!("source {source} saw {} of {last}", seen.load(SeqCst)))
                .collect();
            format!("{late}: {}", missed.join(", "))
        })
    }

    fn sum(&self) -> u64 {
        self.watch.words.words().iter().map(Word::load).sum()
    }

    /// The device's counters agree with the words.
    fn check_finals(&self) -> Result<(), String> {
        expect("raises of the last round", self.regs.read(MADE), self.sum())?;
        for (source, word) in (0..).zip(self.watch.words.words()) {
            expect("raises of a source", self.regs.read(FINALS.get(source)), word.load())?;
        }
        Ok(())
    }
}

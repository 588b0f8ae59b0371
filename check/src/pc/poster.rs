//! A function that posts its interrupts by itself (docs/software-posting.md), on PCs without a remapping unit.

use super::beliefs::apic_id;
use super::drive::{BindError, claim, free_line, install};
use super::guard::Guard;
use super::manage::wait_for;
use super::sources::Waiting;
use super::stack::PcStack;
use crate::checkers::beliefs::Comparison;
use crate::draw::Draw;
use crate::server::Host;
use crate::server::poster::{self, BLOCK_BYTES, REGION_BLOCK, REGION_CONFIG, REGION_OWN, SOURCES};
use crate::verdict::violate;
use drivers::message::MessageDomain;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::posting::{PostingBlock, PostingCapability, PostingCounts};
use hal::{CpuId, CpuSet, Hal as _};
use irq::{Action, AllocRequest, Belief, Flow, Irq, IrqError, IrqReturn, RequesterId};
use machine::model::ModelId;
use machine::{Regs, SimHal, inspect};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Its requester.
pub(super) const REQUESTER: u16 = 0x4400;
/// Raises have numbers of their own.
const RAISED: u64 = 1 << 56;
/// The vector of notifications.
const NOTIFICATION: u32 = 0xeb;

/// A step of a manager. Sources count modulo their number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PosterStep {
    /// A source interrupts so often.
    Raise { source: u32, count: u32, period_ns: u32 },
    /// A source interrupts once; waits for its handler, for a while.
    Fire { source: u32 },
    /// Frees a source's line, and gives it another one.
    Reline { source: u32, ns: u64 },
}

impl PosterStep {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let source = draw.below(64) as u32;
        match draw.below(10) {
            0..7 => {
                let (count, period_ns) = (draw.time_ns(1, 63) as u32, draw.time_ns(200, 8_000) as u32);
                Self::Raise { source, count, period_ns }
            }
            _ => Self::Reline { source, ns: draw.time_ns(50, 30_000) },
        }
    }
}

impl fmt::Display for PosterStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raise { source, count, period_ns } => {
                write!(f, "source {source} posts {count} times, every {period_ns} ns")
            }
            Self::Fire { source } => write!(f, "source {source} posts once, and waits for its handler"),
            Self::Reline { source, ns } => write!(f, "free the line of source {source}, give it another after {ns} ns"),
        }
    }
}

/// The handler: after a raise it must run at least once.
#[derive(Default)]
struct Served(Mutex<Waiting>);

impl Action for Served {
    fn handle(&self, _: Irq) -> IrqReturn {
        Waiting::serve(&self.0);
        IrqReturn::Handled
    }
}

struct Source {
    number: u32,
    served: Arc<Served>,
    bound: Mutex<Option<(Irq, Arc<Guard>)>>,
    busy: AtomicBool,
}

/// The function with its driver.
pub(super) struct Poster {
    model: ModelId,
    block: Arc<PostingBlock<SimHal>>,
    domain: Arc<MessageDomain<SimHal, MsixTable<Regs>>>,
    sources: Vec<Source>,
}

impl Poster {
    /// Brings it up with a line for each source; on the boot thread.
    pub(super) fn bring_up(host: &Arc<Host>, model: ModelId, numbers: &AtomicU64) -> Self {
        let region = |region| Regs::Model { model, region };
        let found = PostingCapability::find(&region(REGION_CONFIG));
        let there = PostingCapability { bar: 2, offset: 0, len_bytes: BLOCK_BYTES };
        if found != Ok(there) {
            violate("operations", format!("the function has {there:?}; its driver finds {found:?}"));
        }
        let block = host.pc.posting_block(region(REGION_BLOCK), there).expect("a valid block");
        let parent = Arc::new(host.pc.posting_domain(0, block.clone()).expect("descriptors"));
        let capability = MsixCapability::find(&region(REGION_CONFIG)).expect("MSI-X");
        let table = || MsixTable::enable(region(REGION_CONFIG), region(REGION_OWN), capability);
        let (first, own) = (table(), table());
        parent.start(host.cpus(), &first).expect("an entry a CPU");
        let domain = Arc::new(MessageDomain::new(SimHal, own, parent).expect("it may be posted"));
        let source =
            |number| Source { number, served: Arc::default(), bound: Mutex::default(), busy: AtomicBool::new(false) };
        let poster = Self { model, block, domain, sources: (0..SOURCES.into()).map(source).collect() };
        poster.start(host, numbers).expect("its lines come up");
        poster
    }

    fn start(&self, host: &Host, numbers: &AtomicU64) -> Result<(), BindError> {
        let free = |source: &&Source| source.bound.lock().expect("one host thread").is_none();
        self.sources.iter().filter(free).try_for_each(|source| self.connect(host, source, numbers))
    }

    fn connect(&self, host: &Host, source: &Source, numbers: &AtomicU64) -> Result<(), BindError> {
        let all = CpuSet::first(host.cpus());
        let request = AllocRequest::fixed(RequesterId(REQUESTER), source.number, all);
        let line = host.core().alloc_line(self.domain.clone(), &request, Flow::Edge)?;
        let guard = install(host, line, format!("poster{}", source.number), (source.served.clone(), None), numbers)?;
        *source.bound.lock().expect("one host thread") = Some((line, guard));
        Ok(())
    }

    /// How many lines it has at most.
    pub(super) fn lines(&self) -> usize {
        self.sources.len()
    }

    /// The line of a source, if it has one now.
    pub(super) fn line(&self, number: usize) -> Option<Irq> {
        self.sources[number].bound.lock().expect("one host thread").as_ref().map(|(line, _)| *line)
    }

    /// Makes the line of a source fire once more: then too its handler must run. The caller has claimed it.
    pub(super) fn resend(&self, number: usize, fire: impl FnOnce() -> Result<(), IrqError>) -> Result<(), IrqError> {
        Waiting::resend(&self.sources[number].served.0, RAISED | (number as u64) << 32, fire)
    }

    /// One manager at a time takes the handler of that line.
    pub(super) fn busy(&self, number: usize) -> &AtomicBool {
        &self.sources[number].busy
    }

    /// Lines that exist now.
    pub(super) fn lines_now(&self) -> usize {
        (0..self.lines()).filter(|&number| self.line(number).is_some()).count()
    }

    /// The line's source posts to the line's target, and obeys its mask.
    pub(super) fn compare_line(&self, belief: &Belief<'_>, now: &mut Comparison) {
        let Some(number) = (0..self.lines()).find(|&number| self.line(number) == Some(belief.irq)) else { return };
        now.arrived(self.model);
        let look = inspect(self.model, |poster: &poster::Poster, _| {
            (poster.source(number), poster.msix_entry(number as u16).is_some_and(|(_, _, masked)| masked))
        });
        let Some((held, masked)) = look else { return };
        now.same("mask of posting source", number as u64, belief.masked, masked);
        now.promised("mask of posting source", number as u64, masked || !belief.masked);
        if let Some((cpu, vector)) = belief.target.and_then(|target| Some((target.cpu, target.vector()?)))
            && !belief.shutdown
        {
            let wanted = 1 | u32::from(vector.0) << 8 | cpu.0 << 16;
            // docs/software-posting.md, "Changing it": the driver reads the source back.
            now.promised("route of posting source", number as u64, wanted == held);
            now.same("route of posting source", number as u64, wanted, held);
        }
    }

    /// Enable, slots, and the messages of notifications.
    pub(super) fn compare(&self, host: &Host, now: &mut Comparison) {
        let held = |cpu: usize| {
            inspect(self.model, |poster: &poster::Poster, _| {
                (poster.control(), poster.slot(cpu), poster.msix_entry(SOURCES + cpu as u16))
            })
        };
        for cpu in 0..host.cpus() {
            let Some((control, (descriptor, notification), entry)) = held(cpu as usize) else { return };
            let address = host.pc.posted().and_then(|posted| posted.descriptor_address(CpuId(cpu)));
            now.same("control of posting block", 0, 1_u8, control);
            now.same("slot of CPU", cpu.into(), address.map_or(0, |address| address.0 | 1), descriptor);
            now.same("notification of CPU", cpu.into(), u32::from(SOURCES) + cpu, notification);
            let message = (0xfee0_0000 | apic_id(CpuId(cpu)) << 12, NOTIFICATION, false);
            now.same("message of notification of CPU", cpu.into(), true, entry == Some(message));
        }
    }
}

/// Does one step; false on a PC without such a function.
pub(super) fn apply(stack: &PcStack, step: &PosterStep) -> bool {
    let Some(poster) = &stack.poster else { return false };
    let source = |number: u32| &poster.sources[number as usize % poster.sources.len()];
    match *step {
        PosterStep::Raise { source: number, count, period_ns } => {
            raise_alone(stack, poster, source(number), count, period_ns);
        }
        PosterStep::Fire { source: number } => {
            let source = source(number);
            raise_alone(stack, poster, source, 1, 500);
            wait_for(|| Waiting::is_empty(&source.served.0));
        }
        PosterStep::Reline { source: number, ns } => reline(stack, poster, source(number), ns),
    }
    true
}

fn raise_alone(stack: &PcStack, poster: &Poster, source: &Source, count: u32, period_ns: u32) {
    if let Some(_claim) = claim(&source.busy) {
        raise(poster, source, count, period_ns);
        stack.saw("poster: raised");
    }
}

fn raise(poster: &Poster, source: &Source, count: u32, period_ns: u32) {
    if source.bound.lock().expect("one host thread").is_some() {
        Waiting::ask(&source.served.0, RAISED | u64::from(source.number) << 32);
        poster::raise(poster.model, source.number, count, period_ns);
    }
}

fn reline(stack: &PcStack, poster: &Poster, source: &Source, ns: u64) {
    let Some(_claim) = claim(&source.busy) else { return };
    let Some((line, guard)) = source.bound.lock().expect("one host thread").take() else { return };
    stack.lines_freed.store(true, Relaxed);
    let freed = free_line(&stack.host, line, &guard).map_err(BindError::from);
    Waiting::serve(&source.served.0);
    if stack.promises.faulty {
        machine::push_writes(poster.model);
    }
    let number = source.number as usize;
    let held = inspect(poster.model, |poster: &poster::Poster, _| poster.source(number)).unwrap_or(0);
    if freed.is_ok() && held != 0 {
        violate("beliefs", format!("source {number} has no line, and posts: {held:#x}"));
    }
    SimHal.delay_ns(ns);
    match freed.and_then(|()| poster.connect(&stack.host, source, &stack.numbers)) {
        Ok(()) => stack.saw("poster: line freed and given"),
        Err(_) if stack.promises.faulty => {}
        Err(error) => violate("operations", format!("a source gets no other line: {error}, and no fault explains it")),
    }
}

/// Gives back what faults took.
pub(super) fn settle(stack: &PcStack) {
    let Some(poster) = &stack.poster else { return };
    if let Err(error) = poster.start(&stack.host, &stack.numbers) {
        violate("operations", format!("a source gets no line, healed: {error}"));
    }
}

/// True if no raise waits for its handler.
pub(super) fn is_done(stack: &PcStack) -> bool {
    let mut sources = stack.poster.iter().flat_map(|poster| &poster.sources);
    sources.all(|source| Waiting::is_empty(&source.served.0))
}

/// The last raises.
pub(super) fn prove(stack: &PcStack) {
    let Some(poster) = &stack.poster else { return };
    poster.sources.iter().for_each(|source| raise(poster, source, 3, 1_000));
}

/// The driver reports what the function did, and no fault.
pub(super) fn audit(stack: &PcStack) {
    let Some(poster) = &stack.poster else { return };
    let told = poster.block.counts();
    let [posts, notifications, direct, faults] =
        inspect(poster.model, |poster: &poster::Poster, _| poster.totals()).unwrap_or_default();
    let expected = PostingCounts { posts, notifications, direct, faults };
    let fault = poster.block.take_fault();
    if told != expected || faults > 0 || fault.is_some() {
        violate("operations", format!("the poster has {expected:?}; its driver tells {told:?}, {fault:?}"));
    }
}

//! Blocks of devices that post (docs/software-posting.md): which are taken, where slots and sources are, and what is written
//! there. The block is plain memory.

use super::described::wide;
use super::regs::Ram;
use crate::draw::Draw;
use crate::trials::{differs, same};
use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::message::MessageSource;
use drivers::posting::{PostingBlock, PostingCapability, PostingCounts, PostingDomain, PostingError, PostingFault};
use hal::host::HostHal;
use hal::{CpuId, CpuSet, DeviceAddress};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{AllocRequest, DeliveryKind, Irq, IrqDomain as _, IrqError, Level, MsiMessage, RequesterId, Target, Vector};
use spec::posting::FaultReason;
use std::sync::{Arc, Mutex};

/// CPUs at most.
const CPUS_MAX: u32 = 6;
/// "SwPI".
const SIGNATURE: u32 = 0x4950_7753;
const BLOCK_BYTES: u32 = 0x2000;

thread_local! {
    /// A host for all trials of this thread.
    static HOST: HostHal = HostHal::manual(CPUS_MAX);
}

/// A block, and why it is refused.
struct Block {
    ram: Arc<Ram>,
    place: PostingCapability,
    slots_at: u32,
    sources_at: u32,
    sources: u32,
    wrong: Option<PostingError>,
}

fn block(draw: &mut Draw, cpus: u32) -> Block {
    let offset = 0x1000 * draw.below(2) as u32;
    let (mut slots, sources) = (cpus + draw.below(3) as u32, draw.within(1..=16) as u32);
    let slots_at = 0x40 + 0x10 * draw.below(16) as u32;
    let sources_at = 0x1000 + 4 * draw.below(64) as u32;
    let (mut signature, mut version, mut len_bytes) = (SIGNATURE, 0x0001_0000 | draw.below(9) as u32, BLOCK_BYTES);
    let mut bytes = vec![0; (offset + BLOCK_BYTES) as usize];
    let end = (slots_at + 16 * slots).max(sources_at + 4 * sources);
    let mut wrong = None;
    match draw.below(12) {
        0 => {
            signature = *draw.pick(&[0, u32::MAX, SIGNATURE + 1]);
            wrong = Some(PostingError::Signature(signature));
        }
        1 => {
            version = *draw.pick(&[0x0002_0000, 0x0000_0001, 0x8001_0000]);
            wrong = Some(PostingError::Version(version));
        }
        2 => {
            slots = cpus - 1;
            wrong = Some(PostingError::Slots(slots as u16, cpus));
        }
        3 => {
            len_bytes = end - 1;
            wrong = Some(PostingError::Tables(len_bytes));
        }
        4 => len_bytes = end,
        5 => {
            // A slot that keeps nothing.
            let cpu = draw.below(cpus.into()) as u32;
            bytes.truncate((offset + slots_at + 16 * cpu) as usize);
            wrong = Some(PostingError::Slot(cpu));
        }
        _ => {}
    }
    let ram = Ram::new(bytes);
    let counts = sources | slots << 16;
    for (at, word) in [(0, signature), (4, version), (8, counts), (12, slots_at | sources_at << 16)] {
        ram.set(offset + at, 4, word.into());
    }
    let place = PostingCapability { bar: 2, offset, len_bytes };
    Block { ram, place, slots_at, sources_at, sources, wrong }
}

/// A message and whether it is masked, by entry.
struct Table(u32, Mutex<Vec<(u32, Option<MsiMessage>)>>);

impl MessageSource for Table {
    fn chip_name(&self) -> &'static str {
        "TABLE"
    }
    fn entries(&self) -> u32 {
        self.0
    }
    fn mask(&self, _: u32) {}
    fn unmask(&self, entry: u32) {
        self.1.lock().expect("one thread").push((entry, None));
    }
    fn write(&self, entry: u32, message: MsiMessage) {
        self.1.lock().expect("one thread").push((entry, Some(message)));
    }
}

pub(super) fn posting(draw: &mut Draw) -> Result<(), String> {
    let hal = HOST.with(|&host| host);
    let cpus = draw.within(1..=CPUS_MAX.into()) as u32;
    let ids: Vec<_> = (0..cpus).map(|cpu| ApicId(draw.below(0xf) as u32 * 16 + cpu)).collect();
    let destinations: Vec<_> = ids.iter().map(|id| id.0 << 8).collect();
    let posted =
        Arc::new(PostedMsi::new(hal, PostedConfig::default(), &destinations).map_err(|error| format!("{error:?}"))?);
    let Block { ram, place, slots_at, sources_at, sources, wrong } = block(draw, cpus);
    let found = PostingBlock::<HostHal>::new(ram.window(), place, posted.clone());
    let found = match (found, wrong) {
        (Ok(found), None) => Arc::new(found),
        (Err(error), Some(expected)) if error == expected => {
            let text = error.to_string();
            return if text.len() > 10 { Ok(()) } else { Err(format!("{error:?} says only {text:?}")) };
        }
        (found, wrong) => return Err(differs("block", &wrong, &found.err())),
    };
    let word = |at: u32, bytes: u32| ram.get(place.offset + at, bytes);
    for cpu in 0..cpus {
        let address = posted.descriptor_address(CpuId(cpu)).map_or(0, |DeviceAddress(address)| address);
        let slot = slots_at + 16 * cpu;
        let expected = (address | 1, u64::from(sources + cpu));
        same(&format!("slot {cpu}"), &expected, &(word(slot, 8), word(slot + 8, 4)))?;
        same("notification", &(sources + cpu), &found.notification_entry(CpuId(cpu)))?;
    }
    same("sources, enabled", &(sources, 0), &(found.sources(), word(0x10, 4)))?;
    let xapic = Ram::new(vec![0; 0x1000]);
    let lapic = Lapic::new(hal, xapic.window(), ApicMode::XApic, ids.clone()).map_err(|error| error.to_string())?;
    let lapic = Arc::new(lapic);
    let vectors = Arc::new(VectorDomain::new(hal, lapic.clone()));
    let notification = Vector(draw.within(0x20..=0xfe) as u8);
    let domain = PostingDomain::new(found.clone(), lapic, notification, vectors.clone());
    let facts = (domain.name(), domain.is_posted(), domain.parent().map(|parent| parent.name().to_owned()));
    same("domain", &("SW-POST", true, Some(vectors.name().to_owned())), &facts)?;
    start(draw, &found, &domain, (&ids, notification))?;
    same("enabled", &1, &word(0x10, 4))?;
    let message = MsiMessage { address: 0xfee0_0000 | u64::from(ids[0].0) << 12, data: notification.0.into() };
    let source = |index: u32| ram.get(place.offset + sources_at + 4 * index, 4);
    let lines = Lines { domain: &domain, vectors: &vectors, posted: &posted, xapic: &xapic, cpus, sources, message };
    lines.come_and_go(draw, &source)?;
    counters(draw, &found, &ram, place.offset)?;
    found.disable();
    same("disabled", &0, &word(0x10, 4))
}

/// Every CPU is notified by its entry of the function's table, and only then sources may post.
fn start(
    draw: &mut Draw,
    block: &PostingBlock<HostHal>,
    domain: &PostingDomain<HostHal>,
    (ids, notification): (&[ApicId], Vector),
) -> Result<(), String> {
    let (cpus, sources) = (ids.len() as u32, block.sources());
    if draw.percent(20) {
        let few = Table(sources + cpus - 1, Mutex::default());
        let error = IrqError::Exhausted("MSI-X entries for notifications", few.0);
        same("a table that is too small", &Err(error), &domain.start(cpus, &few))?;
    }
    let table = Table(sources + cpus, Mutex::default());
    same("start", &Ok(()), &domain.start(cpus, &table))?;
    let mut expected = Vec::new();
    for (entry, id) in (sources..).zip(ids) {
        let message = MsiMessage { address: 0xfee0_0000 | u64::from(id.0) << 12, data: notification.0.into() };
        expected.extend([(entry, Some(message)), (entry, None)]);
    }
    same("notifications", &expected, &*table.1.lock().expect("one thread"))
}

/// What lines are made of.
struct Lines<'d> {
    domain: &'d PostingDomain<HostHal>,
    vectors: &'d Arc<VectorDomain<HostHal>>,
    posted: &'d PostedMsi<HostHal>,
    xapic: &'d Ram,
    cpus: u32,
    sources: u32,
    /// What an MSI-X entry of a source holds: the notification of CPU 0.
    message: MsiMessage,
}

impl Lines<'_> {
    fn request(&self, index: u32, delivery: DeliveryKind) -> AllocRequest {
        let affinity = CpuSet::first(self.cpus);
        AllocRequest { requester: RequesterId(0x20), index, affinity, managed: false, delivery }
    }

    /// Lines are posted to where they are, and no more when they are freed.
    fn come_and_go(&self, draw: &mut Draw, source: &dyn Fn(u32) -> u64) -> Result<(), String> {
        let error = |index, delivery| self.domain.allocate(&self.request(index, delivery)).err();
        let many = Some(IrqError::Exhausted("sources of the posting block", self.sources));
        same("a source that is none", &many, &error(self.sources, DeliveryKind::Fixed))?;
        for delivery in [DeliveryKind::Nmi, DeliveryKind::Logical, DeliveryKind::PrivateStack] {
            let refused = matches!(error(0, delivery), Some(IrqError::Undeliverable(_)));
            same(&format!("{delivery:?} is refused"), &true, &refused)?;
        }
        for _ in 0..draw.within(1..=4) {
            let index = draw.below(self.sources.into()) as u32;
            let request = self.request(index, DeliveryKind::Fixed);
            let levels = [self.domain.allocate(&request), self.vectors.allocate(&request)];
            let [Ok(own), Ok(vector)] = levels else { return Err("a line is not allocated".into()) };
            let levels = vec![own, vector];
            let level = Level::new(Irq(0), &levels);
            let mut at = target(draw, self.cpus);
            same("activated", &Ok(()), &self.domain.activate(&level, at))?;
            for _ in 0..draw.below(3) {
                same(&format!("source {index}"), &entry(at), &source(index))?;
                at = target(draw, self.cpus);
                same("moved", &Ok(()), &level.chip().set_affinity(&level, at))?;
            }
            same(&format!("source {index}"), &entry(at), &source(index))?;
            let nowhere = Target::at(CpuId(self.cpus), Vector(0x41));
            let error = Err(IrqError::Target("SW-POST", nowhere));
            same("a CPU that is none", &error, &level.chip().set_affinity(&level, nowhere))?;
            let message = level.chip().compose_message(&level);
            same("its own message", &Ok(self.message), &message)?;
            // A CPU can read only its own requests.
            HOST.with(|&host| host).on_cpu(at.cpu, || self.post(&level, at))?;
            self.domain.release(level.hwirq());
            same("freed", &0, &source(index))?;
        }
        Ok(())
    }

    /// A vector that was posted is pending until it is served, and then nothing is ended; one that was taken directly is.
    fn post(&self, level: &Level<'_>, at: Target) -> Result<(), String> {
        same("not pending", &false, &level.chip().is_pending(level, at))?;
        let descriptor = self.posted.descriptor(at.cpu).ok_or("no descriptor")?;
        descriptor.post(at.vector().ok_or("no vector")?, false);
        same("pending", &true, &level.chip().is_pending(level, at))?;
        self.xapic.writes();
        self.posted.handle(|_| level.chip().ack(level), || ());
        same("under a notification nothing is ended", &Vec::new(), &self.xapic.writes())?;
        same("served", &false, &level.chip().is_pending(level, at))?;
        level.chip().ack(level);
        same("an interrupt is ended", &vec![(0xb0, 4, 0)], &self.xapic.writes())
    }
}

fn target(draw: &mut Draw, cpus: u32) -> Target {
    Target::at(CpuId(draw.below(cpus.into()) as u32), Vector(draw.within(0x20..=0xef) as u8))
}

/// Posted, its vector, its slot.
fn entry(target: Target) -> u64 {
    let vector = target.vector().map_or(0, |vector| vector.0);
    1 | u64::from(vector) << 8 | u64::from(target.cpu.0) << 16
}

/// Counters and the fault are those of the registers.
fn counters(draw: &mut Draw, block: &PostingBlock<HostHal>, ram: &Ram, offset: u32) -> Result<(), String> {
    let [posts, notifications, direct, faults] = [0x20, 0x28, 0x30, 0x38].map(|at| {
        let count = wide(draw, 50);
        ram.set(offset + at, 8, count);
        count
    });
    same("counts", &PostingCounts { posts, notifications, direct, faults }, &block.counts())?;
    let (reason, index, valid) = (draw.below(5) as u8, draw.below(1 << 16) as u16, draw.percent(50));
    ram.set(offset + 0x14, 4, u64::from(reason) | u64::from(index) << 8 | u64::from(valid) << 31);
    ram.writes();
    let expected = valid.then_some(PostingFault { reason: FaultReason(reason), index });
    same("fault", &expected, &block.take_fault())?;
    let cleared = if valid { vec![(offset + 0x14, 4, 1 << 31)] } else { Vec::new() };
    same("the fault is cleared", &cleared, &ram.writes())
}

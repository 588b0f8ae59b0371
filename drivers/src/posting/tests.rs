//! The driver on a block of words. Offsets and words are the manual's (SP), not those of `spec`.

use super::*;
use crate::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use crate::message::MessageSource;
use crate::testing::Script;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use hal::host::{HostHal, HostRegs};
use hal::{CpuId, CpuSet, DeviceAddress, Regs};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{
    AllocRequest, DeliveryKind, Irq, IrqDomain, IrqError, Level, LevelData, MsiMessage, RequesterId, Target, Vector,
};
use spec::posting::FaultReason;
use std::sync::Mutex;

/// A block of plain words at 1000h of its BAR: eight sources, four slots.
struct Words(Mutex<Vec<u32>>);

impl Words {
    fn new() -> (Arc<Self>, HostRegs) {
        let mut words = vec![0; 0x5000 / 4];
        words[0x400..0x404].copy_from_slice(&[0x4950_7753, 0x0001_0007, 0x0004_0008, 0x1000_0100]);
        let block = Arc::new(Self(Mutex::new(words)));
        (block.clone(), HostRegs::new(block))
    }

    fn set(&self, offset: usize, value: u32) {
        self.0.lock().unwrap()[(0x1000 + offset) / 4] = value;
    }

    fn get(&self, offset: usize) -> u32 {
        self.0.lock().unwrap()[(0x1000 + offset) / 4]
    }
}

impl Regs for Words {
    fn read32(&self, offset: u32) -> u32 {
        self.0.lock().unwrap()[offset as usize / 4]
    }
    fn write32(&self, offset: u32, value: u32) {
        self.0.lock().unwrap()[offset as usize / 4] = value;
    }
    fn read64(&self, offset: u32) -> u64 {
        u64::from(self.read32(offset + 4)) << 32 | u64::from(self.read32(offset))
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write32(offset, value as u32);
        self.write32(offset + 4, (value >> 32) as u32);
    }
}

const PLACE: PostingCapability = PostingCapability { bar: 2, offset: 0x1000, len_bytes: 0x4000 };
const A: Target = Target::at(CpuId(0), Vector(0x41));
const B: Target = Target::at(CpuId(1), Vector(0x52));

struct Setup {
    words: Arc<Words>,
    apic: Arc<Script>,
    posted: Arc<PostedMsi<HostHal>>,
    block: Arc<PostingBlock<HostHal>>,
    domain: PostingDomain<HostHal>,
    vectors: Arc<VectorDomain<HostHal>>,
}

fn setup() -> Setup {
    let hal = HostHal::manual(2);
    let (words, regs) = Words::new();
    let (apic, apic_regs) = Script::new();
    let lapic = Arc::new(Lapic::new(hal, apic_regs, ApicMode::XApic, vec![ApicId(3), ApicId(5)]).unwrap());
    let posted = Arc::new(PostedMsi::new(hal, PostedConfig::default(), &[0x300, 0x500]).unwrap());
    let vectors = Arc::new(VectorDomain::new(hal, lapic.clone()));
    let block = Arc::new(PostingBlock::new(regs, PLACE, posted.clone()).unwrap());
    let domain = PostingDomain::new(block.clone(), lapic, Vector(0xeb), vectors.clone());
    Setup { words, apic, posted, block, domain, vectors }
}

fn request(index: u32, delivery: DeliveryKind) -> AllocRequest {
    AllocRequest { requester: RequesterId(0x20), index, affinity: CpuSet::first(2), managed: false, delivery }
}

fn line(setup: &Setup, target: Target) -> Vec<LevelData> {
    let request = request(3, DeliveryKind::Fixed);
    let levels = vec![setup.domain.allocate(&request).unwrap(), setup.vectors.allocate(&request).unwrap()];
    setup.domain.activate(&Level::new(Irq(0), &levels), target).unwrap();
    levels
}

#[test]
fn the_capability_is_the_vendor_specific_one_with_the_signature() {
    let (config, regs) = Script::new();
    config.answer(0x04, &[0x0010_0006]);
    config.answer(0x34, &[0x40]);
    // MSI-X; another vendor's; too short; ours.
    config.answer(0x40, &[0x0007_6011]);
    config.answer(0x60, &[0x0010_7009]);
    config.answer(0x64, &[0x1234_5678]);
    config.answer(0x70, &[0x000c_8009]);
    config.answer(0x74, &[0x4950_7753]);
    config.answer(0x80, &[0x0210_0009]);
    config.answer(0x84, &[0x4950_7753]);
    config.answer(0x88, &[0x1000]);
    config.answer(0x8c, &[0x4000]);
    assert_eq!(PostingCapability::find(&regs), Ok(PLACE));
    config.answer(0x80, &[0x0210_4009]);
    config.answer(0x84, &[0]);
    assert_eq!(PostingCapability::find(&regs), Err(PostingError::Loop));
    config.answer(0x80, &[0x0210_0009]);
    assert_eq!(PostingCapability::find(&regs), Err(PostingError::Missing));
    config.answer(0x04, &[0x0000_0006]);
    assert_eq!(PostingCapability::find(&regs), Err(PostingError::Missing));
}

/// Configuration space of 256 bytes, with a vendor-specific capability at `at` that says it has all its bytes.
struct Configuration(u32);

impl Regs for Configuration {
    fn read32(&self, offset: u32) -> u32 {
        match offset {
            0x04 => 0x0010_0006,
            0x34 => self.0,
            _ if offset == self.0 => 0x0210_0009,
            _ if offset == self.0 + 4 => 0x4950_7753,
            _ => {
                assert!(offset <= 0xfc, "read of {offset:#x}");
                0
            }
        }
    }
    fn write32(&self, _: u32, _: u32) {}
    fn read64(&self, _: u32) -> u64 {
        0
    }
    fn write64(&self, _: u32, _: u64) {}
}

/// Defect: a capability that does not end in configuration space was read beyond it.
#[test]
fn a_capability_is_never_read_beyond_configuration_space() {
    let place = PostingCapability { bar: 2, offset: 0, len_bytes: 0 };
    assert_eq!(PostingCapability::find(&Configuration(0xf0)), Ok(place));
    for at in [0xf4, 0xf8, 0xfc] {
        assert_eq!(PostingCapability::find(&Configuration(at)), Err(PostingError::Cut(at)));
    }
}

/// Defect: a block was read wherever a function said that it is.
#[test]
fn a_block_is_never_read_beyond_its_bytes() {
    assert_eq!(PLACE.fits(0x5000), Ok(()));
    assert_eq!(PLACE.fits(0x4fff), Err(PostingError::Region(0x1000, 0x4000, 0x4fff)));
    let endless = PostingCapability { offset: 0xffff_f000, len_bytes: 0x1000, ..PLACE };
    assert_eq!(endless.fits(u32::MAX), Err(PostingError::Region(0xffff_f000, 0x1000, u32::MAX)));
    let hal = HostHal::manual(2);
    let refused = |offset, len_bytes| {
        let posted = Arc::new(PostedMsi::new(hal, PostedConfig::default(), &[0; 2]).unwrap());
        let place = PostingCapability { offset, len_bytes, ..PLACE };
        PostingBlock::<HostHal>::new(Words::new().1, place, posted).err()
    };
    assert_eq!(refused(0xffff_f000, 0x1000), Some(PostingError::Region(0xffff_f000, 0x1000, u32::MAX)));
    assert_eq!(refused(0x1004, 0x4000), Some(PostingError::Offset(0x1004)));
    assert_eq!(refused(0x5000, 0x3c), Some(PostingError::Short(0x3c)));
}

#[test]
fn every_cpu_gets_a_slot() {
    let setup = setup();
    for (cpu, slot) in [(0, 0x100), (1, 0x110)] {
        let DeviceAddress(address) = setup.posted.descriptor_address(CpuId(cpu)).unwrap();
        let words = [0, 4, 8, 12].map(|at| setup.words.get(slot + at));
        assert_eq!(words, [address as u32 | 1, (address >> 32) as u32, 8 + cpu, 0]);
    }
    assert_eq!((setup.words.get(0x120), setup.words.get(0x10)), (0, 0), "no third CPU; nothing is posted yet");
}

#[test]
fn what_is_no_block_is_refused() {
    let hal = HostHal::manual(5);
    let refused = |offset: usize, value: u32, cpus: usize| {
        let (words, regs) = Words::new();
        words.set(offset, value);
        let posted = Arc::new(PostedMsi::new(hal, PostedConfig::default(), &vec![0; cpus]).unwrap());
        PostingBlock::<HostHal>::new(regs, PLACE, posted).err()
    };
    assert_eq!(refused(0x0, 0xffff_ffff, 2), Some(PostingError::Signature(0xffff_ffff)));
    assert_eq!(refused(0x4, 0x0002_0000, 2), Some(PostingError::Version(0x0002_0000)));
    assert_eq!(refused(0x8, 0x0004_0008, 5), Some(PostingError::Slots(4, 5)));
    assert_eq!(refused(0x8, 0x0004_0c01, 2), Some(PostingError::Tables(0x4000)));
    assert_eq!(refused(0xc, 0x1000_3fd0, 2), Some(PostingError::Tables(0x4000)));
    assert_eq!(refused(0xc, 0x1000_0104, 2), Some(PostingError::Crooked(0x104)));
    assert_eq!(refused(0xc, 0x1002_0100, 2), Some(PostingError::Crooked(0x1002)));
    assert_eq!(refused(0x40, 0, 4), None);
}

#[test]
fn a_line_is_posted_to_its_cpu_and_moves_in_one_write() {
    let setup = setup();
    let levels = line(&setup, A);
    assert_eq!(setup.words.get(0x100c), 0x0000_4101);
    let level = Level::new(Irq(0), &levels);
    level.chip().set_affinity(&level, B).unwrap();
    assert_eq!(setup.words.get(0x100c), 0x0001_5201);
    let nowhere = Target::at(CpuId(2), Vector(0x41));
    assert_eq!(level.chip().set_affinity(&level, nowhere), Err(IrqError::Target("SW-POST", nowhere)));
    setup.domain.release(level.hwirq());
    assert_eq!(setup.words.get(0x100c), 0);
    let refused = |index, delivery| setup.domain.allocate(&request(index, delivery)).err();
    assert_eq!(refused(8, DeliveryKind::Fixed), Some(IrqError::Exhausted("sources of the posting block", 8)));
    assert!(
        [DeliveryKind::Nmi, DeliveryKind::Logical, DeliveryKind::PrivateStack]
            .into_iter()
            .all(|how| refused(3, how).is_some())
    );
}

#[test]
fn pending_is_what_waits_in_the_descriptor() {
    let setup = setup();
    let levels = line(&setup, A);
    let level = Level::new(Irq(0), &levels);
    assert!(!level.chip().is_pending(&level, A));
    setup.posted.descriptor(A.cpu).unwrap().post(A.vector().unwrap(), false);
    assert!(level.chip().is_pending(&level, A));
}

#[test]
fn only_a_vector_taken_directly_is_ended() {
    let setup = setup();
    let levels = line(&setup, A);
    let level = Level::new(Irq(0), &levels);
    setup.apic.writes();
    setup.posted.descriptor(A.cpu).unwrap().post(A.vector().unwrap(), false);
    setup.posted.handle(|_| level.chip().ack(&level), || ());
    assert!(setup.apic.writes().is_empty());
    level.chip().ack(&level);
    assert_eq!(setup.apic.writes(), [(0xb0, 32, 0)]);
}

/// A table that remembers.
struct Table(u32, Mutex<Vec<(u32, Option<MsiMessage>)>>);

impl MessageSource for Table {
    fn chip_name(&self) -> &'static str {
        "TABLE"
    }
    fn entries(&self) -> u32 {
        self.0
    }
    fn mask(&self, _entry: u32) {}
    fn unmask(&self, entry: u32) {
        self.1.lock().unwrap().push((entry, None));
    }
    fn write(&self, entry: u32, message: MsiMessage) {
        self.1.lock().unwrap().push((entry, Some(message)));
    }
}

#[test]
fn notifications_go_to_their_cpus_before_anything_is_posted() {
    let setup = setup();
    let table = Table(10, Mutex::default());
    setup.domain.start(2, &table).unwrap();
    let message = |address| Some(MsiMessage { address, data: 0xeb });
    let expected = [(8, message(0xfee0_3000)), (8, None), (9, message(0xfee0_5000)), (9, None)];
    assert_eq!(*table.1.lock().unwrap(), expected);
    assert_eq!(setup.words.get(0x10), 1);
    setup.block.disable();
    assert_eq!(setup.words.get(0x10), 0);
    let short = Table(9, Mutex::default());
    assert!(setup.domain.start(2, &short).is_err());
    assert_eq!(setup.words.get(0x10), 0);
}

#[test]
fn counts_and_faults_are_read() {
    let setup = setup();
    for (offset, value) in [(0x20, 7), (0x24, 1), (0x28, 5), (0x30, 3), (0x38, 2), (0x14, 0x8012_3403)] {
        setup.words.set(offset, value);
    }
    let counts = PostingCounts { posts: 0x1_0000_0007, notifications: 5, direct: 3, faults: 2 };
    assert_eq!(setup.block.counts(), counts);
    assert_eq!(setup.block.take_fault(), Some(PostingFault { reason: FaultReason::MEMORY, index: 0x1234 }));
    assert_eq!(setup.words.get(0x14), 0x8000_0000, "bit 31 clears it");
    setup.words.set(0x14, 0);
    assert_eq!(setup.block.take_fault(), None);
}

use super::*;
use crate::{Target, Vector};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use hal::host::HostHal;
use hal::{CpuId, Dma, Word, Work};
use proptest::prelude::*;
use std::sync::Mutex;

struct TestWord {
    value: AtomicU64,
    /// Plain looks.
    looks: AtomicU64,
    /// Exclusive accesses: swaps and other read-modify-writes.
    taken: AtomicU64,
}

impl TestWord {
    fn update(&self, new: impl Fn(u64) -> u64) -> u64 {
        self.taken.fetch_add(1, SeqCst);
        let old = self.value.load(SeqCst);
        self.value.store(new(old), SeqCst);
        old
    }
}

impl Word for TestWord {
    fn new(value: u64) -> Self {
        Self { value: AtomicU64::new(value), looks: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }
    fn get(&self) -> u64 {
        self.looks.fetch_add(1, SeqCst);
        self.value.load(SeqCst)
    }
    fn set(&self, value: u64) {
        self.value.store(value, SeqCst);
    }
    fn load(&self) -> u64 {
        self.get()
    }
    fn swap(&self, value: u64) -> u64 {
        self.update(|_| value)
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.update(|old| if old == current { new } else { old });
        if old == current { Ok(old) } else { Err(old) }
    }
    fn fetch_or(&self, mask: u64) -> u64 {
        self.update(|old| old | mask)
    }
    fn fetch_and(&self, mask: u64) -> u64 {
        self.update(|old| old & mask)
    }
    fn fetch_add(&self, value: u64) -> u64 {
        self.update(|old| old.wrapping_add(value))
    }
}

/// The handler's view of a word that other agents see as a [`TestWord`]. `before` runs just before each exclusive
/// access, with the word's index, and stands for those agents.
struct Watched<'a> {
    word: &'a TestWord,
    index: usize,
    before: &'a (dyn Fn(usize) + Sync),
}

impl<'a> Watched<'a> {
    fn view(words: &'a [TestWord], before: &'a (dyn Fn(usize) + Sync)) -> Vec<Self> {
        words.iter().zip(0..).map(|(word, index)| Self { word, index, before }).collect()
    }

    fn exclusively(&self) -> &TestWord {
        (self.before)(self.index);
        self.word
    }
}

impl Word for Watched<'_> {
    fn new(_: u64) -> Self {
        unreachable!("a view of words that are there")
    }
    fn get(&self) -> u64 {
        self.word.get()
    }
    fn set(&self, value: u64) {
        self.word.set(value);
    }
    fn load(&self) -> u64 {
        self.word.load()
    }
    fn swap(&self, value: u64) -> u64 {
        self.exclusively().swap(value)
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.exclusively().compare_exchange(current, new)
    }
    fn fetch_or(&self, mask: u64) -> u64 {
        self.exclusively().fetch_or(mask)
    }
    fn fetch_and(&self, mask: u64) -> u64 {
        self.exclusively().fetch_and(mask)
    }
    fn fetch_add(&self, value: u64) -> u64 {
        self.exclusively().fetch_add(value)
    }
}

const NV: Vector = Vector(0xeb);
const DEVICE: Deliverable = Deliverable::below(NV);

fn words() -> Vec<TestWord> {
    let words: Vec<_> = (0..8).map(|_| TestWord::new(0)).collect();
    Descriptor::new(&words).initialise(Notification { vector: NV, destination: 0x123 });
    words
}

fn accesses(words: &[TestWord]) -> Vec<u64> {
    words.iter().map(|word| word.taken.load(SeqCst)).collect()
}

#[test]
fn a_fresh_descriptor_is_the_manuals() {
    let values: Vec<_> = words().iter().map(|word| word.get()).collect();
    assert_eq!(values, [0, 0, 0, 0, 0x0000_0123_00eb_0000, 0, 0, 0]);
}

#[test]
fn a_burst_notifies_once() {
    let words = words();
    let descriptor = Descriptor::new(&words);
    let notification = Notification { vector: NV, destination: 0x123 };
    assert_eq!(descriptor.post(Vector(0x41), false), Some(notification));
    assert_eq!(descriptor.post(Vector(0x42), false), None);
    assert_eq!(descriptor.post(Vector(0xc3), true), None, "urgent, but one is outstanding");
    assert_eq!(words[1].get(), 0b110);
    assert_eq!(words[3].get(), 0b1000);
    assert_eq!(words[4].get(), 0x0000_0123_00eb_0001);
}

#[test]
fn suppression_silences_all_but_the_urgent() {
    let words = words();
    words[4].fetch_or(0b10);
    let descriptor = Descriptor::new(&words);
    assert_eq!(descriptor.post(Vector(0x41), false), None);
    assert!(!descriptor.is_outstanding() && descriptor.is_pending(Vector(0x41)));
    assert!(descriptor.post(Vector(0x42), true).is_some());
    assert_eq!(words[4].get(), 0x0000_0123_00eb_0003);
}

#[test]
fn a_harvest_takes_only_the_words_that_hold_something() {
    let words = words();
    words[2].set(0b101);
    let taken = Descriptor::new(&words).harvest(|| ());
    let mut vectors = Vec::new();
    taken.dispatch(&DEVICE, |vector| vectors.push(vector.0));
    assert_eq!(vectors, [0x80, 0x82]);
    assert!(words[..4].iter().all(|word| word.looks.load(SeqCst) == 1), "each dispatched word was read once");
    assert_eq!(accesses(&words), [0, 0, 1, 0, 0, 0, 0, 0], "each exclusive access is a cache line moved");
}

proptest! {
    #[test]
    fn a_harvest_is_empty_if_all_its_words_are(
        requests in proptest::array::uniform4(prop_oneof![Just(0_u64), Just(1 << 5), any::<u64>()]),
    ) {
        let words = words();
        requests.iter().zip(&words).for_each(|(&request, word)| word.set(request));
        prop_assert_eq!(Descriptor::new(&words).harvest(|| ()).is_empty(), requests == [0; 4]);
    }
}

#[test]
fn an_empty_notification_touches_nothing_but_on() {
    let words = words();
    words[4].fetch_or(1);
    let mut work = Vec::new();
    let served = Descriptor::new(&words).serve(2, &DEVICE, |named| work.push(named), |_| panic!("nothing was posted"));
    assert_eq!(served, Served::default());
    assert_eq!(work, [Work::PidClearOn]);
    assert_eq!(accesses(&words), [0, 0, 0, 0, 2, 0, 0, 0]);
}

/// Posts from within the handlers stand for posts that arrive while the notification handler runs.
#[test]
fn the_order_is_passes_then_clear_then_the_final_pass() {
    const PIR_0: &str = "swap of word 0";
    const CLEAR: &str = "clear of ON";
    let words = words();
    let descriptor = Descriptor::new(&words);
    descriptor.post(Vector(0x31), false);
    let accesses = Mutex::new(Vec::new());
    let before = |index| {
        let what = if index == 4 { CLEAR } else { PIR_0 };
        accesses.lock().unwrap().push((what, descriptor.is_outstanding()));
    };
    let mut work = Vec::new();
    let served = Descriptor::new(&Watched::view(&words, &before)).serve(
        2,
        &DEVICE,
        |named| work.push(named),
        |vector| {
            // Each vector's handler posts the next vector, without end.
            let notified = descriptor.post(Vector(vector.0 + 1), false).is_some();
            assert_eq!(notified, vector.0 == 0x33, "only the post after the clear notifies");
        },
    );
    let order = [(PIR_0, true), (PIR_0, true), (CLEAR, true), (PIR_0, false)];
    assert_eq!(*accesses.lock().unwrap(), order);
    assert_eq!(work, [Work::PirHarvest, Work::PirHarvest, Work::PidClearOn, Work::PirHarvest]);
    assert_eq!(served, Served { passes: 3, vectors: 3, stray: 0 });
    assert!(descriptor.is_pending(Vector(0x34)) && descriptor.is_outstanding());
}

#[test]
fn a_post_between_the_last_harvest_and_the_clear_is_found() {
    for passes in 0..4 {
        let words = words();
        let descriptor = Descriptor::new(&words);
        descriptor.post(Vector(0x31), false);
        let mut seen = Vec::new();
        let clears = AtomicU64::new(0);
        let late = |index| {
            if index == 4 {
                assert_eq!(descriptor.post(Vector(0x50), false), None);
                clears.fetch_add(1, SeqCst);
            }
        };
        let handlers = Watched::view(&words, &late);
        Descriptor::new(&handlers).serve(passes, &DEVICE, |_| (), |vector| seen.push(vector.0));
        assert_eq!(seen, [0x31, 0x50], "{passes} passes");
        assert_eq!(clears.into_inner(), 1);
        assert!(!descriptor.is_outstanding());
    }
}

/// The clear of ON is reported after it is done. So its cost delays no other agent, and the final pass follows at once.
#[test]
fn the_clear_is_named_after_it() {
    let words = words();
    words[4].fetch_or(1);
    let mut outstanding = Vec::new();
    let descriptor = Descriptor::new(&words);
    descriptor.serve(2, &DEVICE, |_| outstanding.push(descriptor.is_outstanding()), |_| ());
    assert_eq!(outstanding, [false]);
}

#[test]
fn vectors_no_device_may_have_are_cleared_and_counted() {
    let words = words();
    let descriptor = Descriptor::new(&words);
    for vector in [0x02, 0x1f, 0x20, 0xea, 0xeb, 0xff] {
        descriptor.post(Vector(vector), false);
    }
    let mut seen = Vec::new();
    let served = descriptor.serve(2, &DEVICE, |_| (), |vector| seen.push(vector.0));
    assert_eq!(seen, [0x20, 0xea]);
    assert_eq!(served, Served { passes: 1, vectors: 2, stray: 4 });
    assert!(words[..4].iter().all(|word| word.get() == 0));
}

#[test]
fn all_device_vectors_are_224() {
    let words = words();
    for word in &words[..4] {
        word.set(u64::MAX);
    }
    let served = Descriptor::new(&words).serve(1, &Deliverable::ALL, |_| (), |_| ());
    assert_eq!(served, Served { passes: 1, vectors: 224, stray: 32 });
}

const CONFIG: PostedConfig = PostedConfig { notification_vector: NV, passes: 2 };

/// Two CPUs in xAPIC mode, ids 4 and 5.
fn posted() -> (HostHal, PostedMsi<HostHal>) {
    let hal = HostHal::manual(2);
    (hal, PostedMsi::new(hal, CONFIG, &[0x400, 0x500]).unwrap())
}

#[test]
fn each_cpu_has_a_descriptor_of_its_own_line() {
    let (hal, posted) = posted();
    for (cpu, control) in [(0, 0x0000_0400_00eb_0000), (1, 0x0000_0500_00eb_0000)] {
        let address = posted.descriptor_address(CpuId(cpu)).unwrap();
        assert_eq!(address.0 % 64, 0);
        let memory = hal.dma_at(address).unwrap();
        assert_eq!((memory.len_bytes(), memory.words()[4].get()), (64, control));
    }
    assert!(posted.descriptor(CpuId(2)).is_none() && posted.descriptor_address(CpuId(2)).is_none());
    assert!(!posted.is_pending(Target::at(CpuId(2), Vector(0x41))));
}

#[test]
fn the_handler_ends_with_one_eoi_and_is_known_to_run_until_then() {
    let (hal, posted) = posted();
    for vector in [0x41, 0x42, 0x30] {
        posted.descriptor(CpuId(1)).unwrap().post(Vector(vector), false);
    }
    assert!(posted.is_pending(Target::at(CpuId(1), Vector(0x41))));
    assert!(!posted.is_pending(Target::at(CpuId(0), Vector(0x41))));
    let log = core::cell::RefCell::new(Vec::new());
    hal.interrupt(CpuId(1), || {
        let served = posted.handle(
            |vector| {
                assert!(posted.is_serving());
                log.borrow_mut().push(u32::from(vector.0));
            },
            || {
                assert!(posted.is_serving());
                log.borrow_mut().push(0xe01);
            },
        );
        assert_eq!(served, Served { passes: 1, vectors: 3, stray: 0 });
        assert!(!posted.is_serving());
    });
    assert_eq!(*log.borrow(), [0x30, 0x41, 0x42, 0xe01]);
}

#[test]
fn the_accounts_are_each_cpus_own() {
    let (hal, posted) = posted();
    let descriptor = posted.descriptor(CpuId(1)).unwrap();
    let notify = || hal.interrupt(CpuId(1), || _ = posted.handle(|_| (), || ()));
    descriptor.post(Vector(0x41), false);
    descriptor.post(Vector(0x52), false);
    notify();
    notify();
    descriptor.post(Vector(0xf0), false);
    notify();
    let wanted = Statistics { notifications: 3, empty_notifications: 2, passes: 2, vectors: 2, stray: 1, cut_short: 0 };
    assert_eq!(posted.statistics(CpuId(1)), wanted);
    assert_eq!(posted.statistics(CpuId(0)), Statistics::default());
}

#[test]
fn what_cannot_work_is_refused() {
    let hal = HostHal::manual(1);
    assert_eq!(PostedMsi::new(hal, CONFIG, &[]).err(), Some(PostedError::NoCpu));
    let low = PostedConfig { notification_vector: Vector(0x20), ..CONFIG };
    assert_eq!(PostedMsi::new(hal, low, &[0]).err(), Some(PostedError::NotificationVector(Vector(0x20))));
}

proptest! {
    /// Wherever posts fall between passes, each is dispatched once, ascending within a pass, and the descriptor is
    /// left either empty or with a notification on its way.
    #[test]
    fn every_post_is_dispatched_or_notified(
        first in prop::collection::btree_set(0x20u8..0xeb, 0..200),
        late in prop::collection::vec(0x20u8..0xeb, 0..8),
        passes in 0u32..5,
    ) {
        let words = words();
        let descriptor = Descriptor::new(&words);
        for &vector in &first {
            descriptor.post(Vector(vector), false);
        }
        let mut notified = false;
        let mut seen = Vec::new();
        let mut posted = first.len();
        let mut late = late.into_iter();
        descriptor.serve(passes, &DEVICE, |_| (), |vector| {
            seen.push(vector.0);
            if let Some(next) = late.next()
                && !descriptor.is_pending(Vector(next))
            {
                posted += 1;
                notified |= descriptor.post(Vector(next), false).is_some();
            }
        });
        prop_assert!(seen.starts_with(&first.iter().copied().collect::<Vec<_>>()));
        let left: u32 = words[..4].iter().map(|word| word.get().count_ones()).sum();
        prop_assert_eq!(seen.len() + left as usize, posted);
        prop_assert!(left == 0 || notified && descriptor.is_outstanding(), "{} left behind in silence", left);
    }
}

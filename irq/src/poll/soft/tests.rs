//! Polling at the end of interrupts. One host thread plays a CPU.

use crate::moderation::{Algorithm, LevelTable, Tuning};
use crate::poll::{PollConfig, PollError, Polled, SoftId, SoftPoll};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use hal::CpuId;
use hal::host::HostHal;
use std::sync::Arc;
use std::vec::Vec;

/// A device with this much work. `late` units arrive while its interrupt is enabled again.
#[derive(Default)]
struct Device {
    work: AtomicU32,
    late: AtomicU32,
    rearms: AtomicU32,
    weights: std::sync::Mutex<Vec<u32>>,
}

impl Polled for Device {
    fn poll(&self, weight: u32) -> u32 {
        self.weights.lock().expect("one thread").push(weight);
        let done = self.work.load(Relaxed).min(weight);
        self.work.fetch_sub(done, Relaxed);
        done
    }
    fn rearm(&self) -> bool {
        self.rearms.fetch_add(1, Relaxed);
        let late = self.late.swap(0, Relaxed);
        self.work.fetch_add(late, Relaxed);
        late > 0
    }
    fn in_flight(&self) -> Option<u32> {
        Some(self.work.load(Relaxed))
    }
}

fn with(work: u32, late: u32) -> Arc<Device> {
    Arc::new(Device { work: work.into(), late: late.into(), ..Device::default() })
}

/// Runs an interrupt that schedules these instances, up to its end.
fn interrupt(hal: HostHal, soft: &SoftPoll<HostHal>, ids: &[SoftId]) {
    hal.interrupt(CpuId(0), || {
        soft.interrupt(|| ids.iter().for_each(|&id| soft.schedule(id)));
    });
}

#[test]
fn the_end_of_an_interrupt_polls_until_nothing_is_left() {
    let hal = HostHal::manual(1);
    let mut soft = SoftPoll::new(hal, 1, PollConfig::default()).expect("a budget");
    let (a, b) = (with(40, 0), with(5, 0));
    let ids = [soft.add(CpuId(0), 16, a.clone(), None), soft.add(CpuId(0), 16, b.clone(), None)];
    interrupt(hal, &soft, &ids.map(|id| id.expect("a weight")));
    assert_eq!((a.work.load(Relaxed), b.work.load(Relaxed)), (0, 0));
    assert_eq!(a.weights.lock().expect("one thread").len(), 3, "16, 16 and 8");
    assert_eq!((a.rearms.load(Relaxed), b.rearms.load(Relaxed)), (1, 1));
}

#[test]
fn what_came_before_the_interrupt_was_on_again_is_polled_too() {
    let hal = HostHal::manual(1);
    let mut soft = SoftPoll::new(hal, 1, PollConfig::default()).expect("a budget");
    let device = with(3, 2);
    let id = soft.add(CpuId(0), 16, device.clone(), None).expect("a weight");
    interrupt(hal, &soft, &[id]);
    assert_eq!((device.work.load(Relaxed), device.rearms.load(Relaxed)), (0, 2));
}

#[test]
fn a_spent_budget_is_begun_anew_ten_times_at_most() {
    let hal = HostHal::manual(1);
    let mut soft = SoftPoll::new(hal, 1, PollConfig { budget: 32, ..PollConfig::default() }).expect("a budget");
    let device = with(1_000, 0);
    let id = soft.add(CpuId(0), 16, device.clone(), None).expect("a weight");
    interrupt(hal, &soft, &[id]);
    assert_eq!(device.work.load(Relaxed), 1_000 - 10 * 32, "the thread polls the rest");
    // Without a thread the next interrupt goes on.
    interrupt(hal, &soft, &[]);
    assert_eq!(device.work.load(Relaxed), 1_000 - 20 * 32);
}

#[test]
fn the_first_turn_feeds_the_tuner_as_an_interrupt_later_ones_as_polls() {
    let hal = HostHal::manual(1);
    let table = LevelTable::new(LevelTable::RDMA_DIM).expect("sorted");
    let tuner = Tuning { algorithm: Algorithm::Adaptive, table, nr_events: 1 }.tuner(hal).expect("events");
    let mut soft = SoftPoll::new(hal, 1, PollConfig::default()).expect("a budget");
    let device = with(0, 0);
    let id = soft.add(CpuId(0), 16, device.clone(), Some(tuner.clone())).expect("a weight");
    // Two windows of 100 ms that agree, then one to hold: 30 completions an interrupt, in two turns.
    for _ in 0..40 {
        hal.advance_ns(10_000_000);
        device.work.store(30, Relaxed);
        interrupt(hal, &soft, &[id]);
    }
    let sample = tuner.view().sample.expect("it has settled");
    assert!((2_900..=3_300).contains(&sample.completions_per_s), "{sample}");
    assert!((97..=110).contains(&sample.events_per_s), "{sample}");
    assert_eq!(sample.completions_per_event_x100, 1_600, "the first turn's");
    assert!(sample.in_flight_x100.is_some_and(|depth| (1_400..3_000).contains(&depth)), "{sample}");
}

#[test]
fn what_cannot_be_is_refused() {
    let hal = HostHal::manual(1);
    let mut soft = SoftPoll::new(hal, 1, PollConfig::default()).expect("a budget");
    assert_eq!(soft.add(CpuId(0), 0, with(0, 0), None).err(), Some(PollError::Weight));
    assert_eq!(soft.add(CpuId(3), 1, with(0, 0), None).err(), Some(PollError::NoCpu(CpuId(3), 1)));
    let none = SoftPoll::new(hal, 1, PollConfig { budget: 0, ..PollConfig::default() });
    assert_eq!(none.err(), Some(PollError::Budget));
}

/// A handler that was forced into a thread runs on the same CPU, but no end of an interrupt follows it.
#[test]
fn what_a_thread_found_is_polled_by_the_cpus_own() {
    polled_after(|soft, id| soft.schedule(id));
}

/// With a lock held interrupts are off, as they are in an interrupt.
#[test]
fn what_a_thread_found_under_a_lock_is_polled_too() {
    polled_after(|soft, id| {
        let lock = hal::Lock::new(HostHal::manual(1), ());
        let held = lock.lock();
        soft.schedule(id);
        drop(held);
    });
}

/// The CPU's thread polls what `found` has scheduled outside of an interrupt.
fn polled_after(found: impl FnOnce(&SoftPoll<HostHal>, SoftId)) {
    let hal = HostHal::manual(1);
    let mut soft = SoftPoll::new(hal, 1, PollConfig::default()).expect("a budget");
    let device = with(5, 0);
    let id = soft.add(CpuId(0), 16, device.clone(), None).expect("a weight");
    let soft = Arc::new(soft);
    soft.start().expect("a thread");
    found(&soft, id);
    let begin = std::time::Instant::now();
    while device.rearms.load(Relaxed) == 0 {
        assert!(begin.elapsed().as_secs() < 30, "nobody polled");
        std::thread::yield_now();
    }
    assert_eq!(device.work.load(Relaxed), 0);
}

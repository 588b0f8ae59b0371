use super::super::{Notification, PostedConfig, PostedMsi};
use super::*;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use hal::host::HostHal;
use hal::{CpuId, Hal};
use proptest::prelude::*;

type HostWord = <HostHal as Hal>::Word;

const NV: Vector = Vector(0xeb);
const DEVICE: Deliverable = Deliverable::below(NV);

fn words(posted: impl IntoIterator<Item = u8>) -> Vec<HostWord> {
    let words: Vec<_> = (0..8).map(|_| HostWord::new(0)).collect();
    Descriptor::new(&words).initialise(Notification { vector: NV, destination: 0 });
    for vector in posted {
        Descriptor::new(&words).post(Vector(vector), false);
    }
    words
}

/// The vectors of a notification whose time is over after `most` of them, and where the next one begins.
fn served(words: &[HostWord], from: u8, most: usize) -> (Vec<u8>, Option<Vector>) {
    let seen = RefCell::new(Vec::new());
    let is_late = || seen.borrow().len() >= most;
    let note = |vector: Vector| seen.borrow_mut().push(vector.0);
    let limited = Descriptor::new(words).serve_until(2, &DEVICE, Vector(from), is_late, |_| (), note);
    assert_eq!(limited.served.vectors as usize, seen.borrow().len());
    (seen.take(), limited.resume)
}

#[test]
fn what_is_left_when_it_is_late_waits_with_on_set_and_comes_next() {
    let words = words([0x31, 0x32, 0x80, 0xc0]);
    assert_eq!(served(&words, 0x20, 2), ([0x31, 0x32].to_vec(), Some(Vector(0x80))));
    let descriptor = Descriptor::new(&words);
    assert!(descriptor.is_pending(Vector(0x80)) && descriptor.is_pending(Vector(0xc0)));
    assert!(descriptor.is_outstanding(), "nobody else notifies");
    assert_eq!(descriptor.post(Vector(0x31), false), None);
    assert_eq!(served(&words, 0x80, 9), ([0x80, 0xc0, 0x31].to_vec(), None));
    assert!(!descriptor.is_outstanding());
}

#[test]
fn a_busy_vector_does_not_starve_the_others() {
    let words = words([0x31, 0x32, 0x80]);
    let mut from = 0;
    let mut seen = Vec::new();
    for _ in 0..5 {
        Descriptor::new(&words).post(Vector(0x31), false);
        let (one, resume) = served(&words, from, 0);
        seen.extend(one);
        from = resume.map_or(from, |vector| vector.0);
    }
    assert_eq!(seen, [0x31, 0x32, 0x80, 0x31, 0x31]);
}

#[test]
fn a_limit_reached_in_the_final_pass_sets_on_again() {
    let words = words([0x31]);
    let descriptor = Descriptor::new(&words);
    let post_before_the_clear = |work| {
        if work == Work::PidClearOn {
            descriptor.post(Vector(0x50), false);
        }
    };
    let only = |vector: Vector| assert_eq!(vector.0, 0x31);
    let limited = descriptor.serve_until(1, &DEVICE, Vector(0), || true, post_before_the_clear, only);
    assert_eq!(limited.resume, Some(Vector(0x50)));
    assert!(descriptor.is_outstanding() && descriptor.is_pending(Vector(0x50)));
}

#[test]
fn stray_requests_are_counted_once_and_not_put_back() {
    let words = words([0x10, 0x31, 0x32, 0xf0]);
    let limited = Descriptor::new(&words).serve_until(2, &DEVICE, Vector(0), || true, |_| (), |_| ());
    assert_eq!(limited.served, Served { passes: 1, vectors: 1, stray: 2 });
    let left: Vec<u64> = words[..4].iter().map(hal::Word::get).collect();
    assert_eq!(left, [1 << 0x32, 0, 0, 0]);
}

#[test]
fn the_handler_notifies_itself_before_its_eoi_and_goes_on_where_it_stopped() {
    let hal = HostHal::manual(1);
    let posted = PostedMsi::new(hal, PostedConfig::default(), &[0]).unwrap();
    for vector in [0x41, 0x42] {
        posted.descriptor(CpuId(0)).unwrap().post(Vector(vector), false);
    }
    let log = RefCell::new(Vec::new());
    for _ in 0..2 {
        hal.interrupt(CpuId(0), || {
            let note = |vector: Vector| log.borrow_mut().push(u32::from(vector.0));
            // With no time at all, each notification handles one vector.
            posted.handle_within(0, note, note, || log.borrow_mut().push(0xe01));
            assert!(!posted.is_serving());
        });
    }
    assert_eq!(*log.borrow(), [0x41, 0xeb, 0xe01, 0x42, 0xe01]);
    assert_eq!(posted.statistics(CpuId(0)).cut_short, 1);
}

proptest! {
    /// For all times of posts and of the limit: every vector was dispatched after its last post, or waits with ON set
    /// and a notification on its way.
    #[test]
    fn every_post_is_dispatched_or_notified(
        first in prop::collection::btree_set(0x20u8..0xeb, 1..100),
        late_posts in prop::collection::vec(0x20u8..0xeb, 0..8),
        from: u8,
        passes in 0u32..4,
        most in 0usize..120,
    ) {
        let words = words(first.iter().copied());
        let descriptor = Descriptor::new(&words);
        let (count, notified) = (Cell::new(0), Cell::new(false));
        let owed: RefCell<BTreeSet<u8>> = RefCell::new(first);
        let mut late_posts = late_posts.into_iter();
        let dispatch = |vector: Vector| {
            count.set(count.get() + 1);
            owed.borrow_mut().remove(&vector.0);
            if let Some(vector) = late_posts.next() {
                owed.borrow_mut().insert(vector);
                notified.set(notified.get() | descriptor.post(Vector(vector), false).is_some());
            }
        };
        let limited = descriptor.serve_until(passes, &DEVICE, Vector(from), || count.get() >= most, |_| (), dispatch);
        let waiting: BTreeSet<u8> = (0..=255).filter(|&vector| descriptor.is_pending(Vector(vector))).collect();
        // A vector that was posted again while it was harvested still waits, although its handler has run since.
        prop_assert!(owed.borrow().is_subset(&waiting), "{:?} of {:?} are lost", owed.borrow(), waiting);
        prop_assert!(count.get() >= 1 && count.get() <= most.max(1), "it makes progress, and stops in time");
        prop_assert!(waiting.is_empty() || descriptor.is_outstanding(), "left behind without ON");
        prop_assert!(waiting.is_empty() || notified.get() || limited.resume.is_some(), "nobody notifies");
        prop_assert_eq!(limited.resume.is_some_and(|vector| !waiting.contains(&vector.0)), false);
    }
}

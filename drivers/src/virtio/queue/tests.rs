//! Against a scripted device that knows nothing but offsets and words of the standard.

use super::*;
use hal::host::{HostDma, HostHal};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec;

/// A queue of 4 entries: the available ring has 6 + 2·4 = 14 bytes, the used ring 6 + 8·4 = 38.
struct Device {
    descriptors: HostDma,
    available: HostDma,
    used: HostDma,
    index: u16,
}

impl Device {
    /// Returns `head` as used with `len` bytes.
    fn use_head(&mut self, head: u32, len: u32) {
        let slot = usize::from(self.index % 4);
        self.used.write32(4 + 8 * slot, head);
        self.used.write32(8 + 8 * slot, len);
        self.index = self.index.wrapping_add(1);
        self.used.write16(2, self.index);
    }

    /// Both words of descriptor `index`.
    fn descriptor(&self, index: usize) -> (u64, u64) {
        (self.descriptors.words()[2 * index].get(), self.descriptors.words()[2 * index + 1].get())
    }

    fn available_entry(&self, slot: usize) -> u16 {
        self.available.read16(4 + 2 * slot)
    }
}

fn queue(event_index: bool, indirect: bool) -> (HostHal, Queue<HostHal>, Device) {
    let hal = HostHal::manual(1);
    let queue =
        Queue::new(hal, QueueConfig { number: 0, entries: 4, event_index, indirect, packed: false }).expect("a queue");
    let memory = queue.memory();
    let at = |address| hal.dma_at(address).expect("live memory");
    let device = Device {
        descriptors: at(memory.descriptors),
        available: at(memory.available),
        used: at(memory.used),
        index: 0,
    };
    (hal, queue, device)
}

const IN: Part = Part::write(DeviceAddress(0x1000), 0x200);
const OUT: Part = Part::read(DeviceAddress(0x2000), 0x10);

#[test]
fn a_chain_is_written_as_the_standard_lays_it_out() {
    let (_, mut queue, device) = queue(false, false);
    assert_eq!(queue.add(7, &[OUT, IN]), Ok(()));
    // VIRTQ_DESC_F_NEXT is 1, VIRTQ_DESC_F_WRITE 2; flags are bits 47:32, next is 63:48.
    assert_eq!(device.descriptor(0), (0x2000, 0x0001_0001_0000_0010));
    assert_eq!(device.descriptor(1), (0x1000, 0x0000_0002_0000_0200));
    assert_eq!(device.available.read16(2), 0, "not yet published");
    assert!(queue.publish());
    assert_eq!((device.available.read16(2), device.available_entry(0)), (1, 0));
    assert!(!queue.publish(), "nothing new");
    assert_eq!((queue.in_flight(), queue.free_descriptors()), (1, 2));
}

#[test]
fn an_indirect_chain_takes_one_descriptor() {
    let (hal, mut queue, device) = queue(false, true);
    assert_eq!(queue.add(7, &[OUT, IN]), Ok(()));
    let (table, tail) = device.descriptor(0);
    // VIRTQ_DESC_F_INDIRECT is 4; the table has 2 descriptors of 16 bytes.
    assert_eq!(tail, 0x0000_0004_0000_0020);
    let table = hal.dma_at(DeviceAddress(table)).expect("a table");
    assert_eq!((table.words()[0].get(), table.words()[1].get()), (0x2000, 0x0001_0001_0000_0010));
    assert_eq!((table.words()[2].get(), table.words()[3].get()), (0x1000, 0x0000_0002_0000_0200));
    assert_eq!(queue.free_descriptors(), 3);
}

/// VIRTIO 2.7.5.3.1: a chain is no longer than the queue, in a table either.
#[test]
fn a_table_is_no_longer_than_the_queue() {
    let (_, mut queue, _) = queue(false, true);
    assert_eq!(queue.add(7, &[IN; 5]), Err(Refusal::Parts(5, 4)));
    assert_eq!((queue.add(7, &[IN; 4]), queue.free_descriptors()), (Ok(()), 3));
}

/// A queue is reset, its buffers are taken back, and an interrupt comes late: the device's last word is no fault.
#[test]
fn what_was_used_before_a_reset_is_no_fault_after_it() {
    let (_, mut queue, mut device) = queue(false, false);
    assert_eq!(queue.add(10, &[IN]), Ok(()));
    let _ = queue.publish();
    device.use_head(0, 0x200);
    queue.stop();
    assert_eq!((queue.reclaim(), queue.reclaim()), (Some(10), None));
    assert_eq!((queue.take(), queue.fault()), (Ok(None), None));
    assert!(!queue.has_used() && !queue.enable_notifications(), "nobody looks for it for ever");
}

#[test]
fn used_buffers_come_back_in_the_devices_order() {
    let (_, mut queue, mut device) = queue(false, false);
    for tag in [10, 11, 12] {
        assert_eq!(queue.add(tag, &[IN]), Ok(()));
    }
    let _ = queue.publish();
    assert_eq!(queue.take(), Ok(None));
    device.use_head(2, 0x200);
    device.use_head(0, 0);
    assert!(queue.has_used());
    assert_eq!(queue.take(), Ok(Some(Used { tag: 12, written_bytes: 0x200 })));
    assert_eq!(queue.take(), Ok(Some(Used { tag: 10, written_bytes: 0 })));
    assert_eq!(queue.take(), Ok(None));
    assert_eq!(queue.in_flight(), 1);
    assert_eq!((queue.reclaim(), queue.reclaim()), (Some(11), None));
    assert_eq!(queue.add(1, &[IN]), Err(Refusal::Stopped));
}

#[test]
fn a_full_queue_and_wrong_buffers_are_refused() {
    let (_, mut queue, _) = queue(false, false);
    assert_eq!(queue.add(0, &[]), Err(Refusal::Parts(0, 16)));
    assert_eq!(queue.add(0, &[IN; 17]), Err(Refusal::Parts(17, 16)));
    assert_eq!(queue.add(0, &[IN; 5]), Err(Refusal::Parts(5, 4)));
    assert_eq!(queue.add(0, &[IN, OUT]), Err(Refusal::Order));
    assert_eq!(queue.add(0, &[Part { len_bytes: 0, ..IN }]), Err(Refusal::Empty));
    assert_eq!(queue.add(0, &[IN; 3]), Ok(()));
    assert_eq!(queue.add(0, &[IN; 2]), Err(Refusal::Full));
    assert_eq!(queue.add(0, &[IN]), Ok(()));
    assert_eq!(queue.counters().full, 1);
}

#[test]
fn flags_suppress_notifications_either_way() {
    let (_, mut queue, mut device) = queue(false, false);
    device.used.write16(0, 1);
    queue.add(0, &[IN]).expect("room");
    assert!(!queue.publish(), "VIRTQ_USED_F_NO_NOTIFY");
    queue.disable_notifications();
    assert_eq!(device.available.read16(0), 1, "VIRTQ_AVAIL_F_NO_INTERRUPT");
    assert!(!queue.enable_notifications());
    assert_eq!(device.available.read16(0), 0);
    assert_eq!((device.available.read16(2), device.available_entry(0)), (1, 0), "the index is as it was");
    queue.disable_notifications();
    device.use_head(0, 1);
    assert!(queue.enable_notifications(), "it came before the device could know");
    let counters = queue.counters();
    assert_eq!((counters.notifications, counters.suppressed), (0, 1));
}

/// used_event is at 4 + 2·4 = 12 of the available ring, avail_event at 4 + 8·4 = 36 of the used ring.
#[test]
fn the_event_index_suppresses_notifications_either_way() {
    let (_, mut queue, mut device) = queue(true, false);
    device.used.write16(36, 1);
    queue.add(0, &[IN]).expect("room");
    assert!(!queue.publish(), "wanted when entry 1 comes");
    queue.add(1, &[IN]).expect("room");
    assert!(queue.publish());
    queue.disable_notifications();
    assert_eq!(device.available.read16(12), 0xffff);
    assert!(!queue.enable_notifications());
    assert_eq!(device.available.read16(12), 0);
    device.use_head(1, 1);
    assert_eq!(queue.take().map(|used| used.map(|used| used.tag)), Ok(Some(1)));
    assert!(!queue.enable_notifications());
    assert_eq!(device.available.read16(12), 1);
    assert_eq!(device.available.read16(0), 0, "flags stay 0 with the event index (VIRTIO 2.7.7.1)");
}

#[test]
fn the_event_test_is_that_of_the_standard_for_every_wrap() {
    // vring_need_event(event, new, old): literal cases round the wrap.
    assert!(passes(0, 0, 1) && passes(0xffff, 0xffff, 0) && passes(2, 0, 3));
    assert!(!passes(3, 0, 3) && !passes(0xffff, 0, 1) && !passes(1, 2, 3));
}

/// Does `break_it` with one buffer of 0x200 bytes in flight at descriptor 0.
fn broken(break_it: impl FnOnce(&mut Device)) -> QueueFault {
    let (_, mut queue, mut device) = queue(true, false);
    queue.add(5, &[IN]).expect("room");
    let _ = queue.publish();
    break_it(&mut device);
    let fault = queue.take().expect_err("a fault");
    assert_eq!((queue.take(), queue.fault()), (Err(fault), Some(fault)), "for ever");
    assert_eq!(queue.add(6, &[IN]), Err(Refusal::Stopped));
    assert!(!queue.has_used() && !queue.enable_notifications() && !queue.publish(), "it goes silent");
    assert_eq!(queue.reclaim(), Some(5), "its buffers are not lost");
    fault
}

#[test]
fn hostile_devices_break_their_queue_and_no_more() {
    assert_eq!(broken(|device| device.used.write16(2, 2)), QueueFault::UsedIndex(0, 2, 1));
    assert_eq!(broken(|device| device.used.write16(2, 0x8000)), QueueFault::UsedIndex(0, 0x8000, 1));
    assert_eq!(broken(|device| device.used.write16(2, 0xffff)), QueueFault::UsedIndex(0, 0xffff, 1));
    assert_eq!(broken(|device| device.use_head(4, 0)), QueueFault::Id(4, 4));
    assert_eq!(broken(|device| device.use_head(0x1_0000, 0)), QueueFault::Id(0x1_0000, 4));
    assert_eq!(broken(|device| device.use_head(1, 0)), QueueFault::NotInFlight(1));
    assert_eq!(broken(|device| device.use_head(0, 0x201)), QueueFault::Length(0x201, 0x200));
}

#[test]
fn a_chain_that_the_device_bends_into_a_loop_is_not_followed() {
    let (_, mut queue, mut device) = queue(false, false);
    queue.add(5, &[OUT, IN]).expect("room");
    let _ = queue.publish();
    // Descriptor 1 now says that descriptor 0 follows.
    device.descriptors.words()[3].set(0x0000_0001_0000_0200);
    device.use_head(0, 1);
    assert_eq!(queue.take(), Ok(Some(Used { tag: 5, written_bytes: 1 })));
    assert_eq!(queue.free_descriptors(), 4);
}

#[test]
fn a_size_that_is_no_power_of_two_is_refused() {
    for entries in [0, 1, 3, 48, u16::MAX] {
        let config = QueueConfig { number: 0, entries, event_index: true, indirect: true, packed: false };
        let refused = Queue::new(HostHal::manual(1), config).err();
        assert_eq!(refused, Some(VirtioError::Entries(entries, 0x8000)));
    }
}

/// What driver and device do, on a queue of either format.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Add(usize),
    Publish,
    /// The n-th of those that the device has taken.
    Use(usize),
    Take,
    Enable,
    Disable,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..4).prop_map(Step::Add),
        2 => Just(Step::Publish),
        3 => (0_usize..4).prop_map(Step::Use),
        3 => Just(Step::Take),
        1 => Just(Step::Enable),
        1 => Just(Step::Disable),
    ]
}

proptest! {
    /// Over any number of turns and wraps, each tag comes back once, and an armed device that uses a buffer either
    /// raises an interrupt or is found by the look after arming.
    #[test]
    fn every_buffer_comes_back_once(
        steps in prop::collection::vec(step(), 1..400),
        event_index: bool,
        indirect: bool,
    ) {
        let (_, mut queue, mut device) = queue(event_index, indirect);
        let (mut tag, mut seen) = (0_u64, 0_u16);
        let mut visible = vec![];
        let mut out = BTreeSet::new();
        let mut waits = 0_usize;
        for step in steps {
            match step {
                Step::Add(parts) => {
                    let needed = if indirect { 1 } else { parts as u16 };
                    let fits = queue.free_descriptors() >= needed;
                    let added = queue.add(tag, &vec![IN; parts]);
                    prop_assert_eq!(added, if fits { Ok(()) } else { Err(Refusal::Full) });
                    if fits {
                        out.insert(tag);
                    }
                    tag += 1;
                }
                Step::Publish => {
                    let _ = queue.publish();
                    while seen != device.available.read16(2) {
                        visible.push(device.available_entry(usize::from(seen % 4)));
                        seen = seen.wrapping_add(1);
                    }
                }
                Step::Use(place) if !visible.is_empty() => {
                    let head = visible.swap_remove(place % visible.len());
                    device.use_head(head.into(), 1);
                    waits += 1;
                }
                Step::Use(_) => {}
                Step::Take => {
                    let taken = queue.take();
                    prop_assert_eq!(matches!(taken, Ok(Some(_))), waits > 0, "{:?}", taken);
                    if let Ok(Some(used)) = taken {
                        waits -= 1;
                        prop_assert!(out.remove(&used.tag), "tag {} twice", used.tag);
                    }
                }
                Step::Enable => prop_assert_eq!(queue.enable_notifications(), waits > 0),
                Step::Disable => queue.disable_notifications(),
            }
            prop_assert_eq!(usize::from(queue.in_flight()), out.len());
        }
    }

    /// Whatever a device writes into the rings: no panic, and no more buffers than were given.
    #[test]
    fn arbitrary_used_rings_never_panic(words in prop::collection::vec(any::<u64>(), 5), rounds in 1_usize..4) {
        let (_, mut queue, device) = queue(true, true);
        let mut given = 0;
        for round in 0..rounds {
            while queue.add(round as u64, &[OUT, IN]).is_ok() {
                given += 1;
            }
            let _ = queue.publish();
            for (word, value) in device.used.words().iter().zip(&words) {
                word.set(*value);
            }
            for word in device.descriptors.words() {
                word.set(words[0]);
            }
            let mut came = 0;
            while let Ok(Some(_)) = queue.take() {
                came += 1;
                prop_assert!(came <= given);
            }
        }
    }
}

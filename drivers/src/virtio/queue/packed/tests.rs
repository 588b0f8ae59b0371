//! Against a scripted device that knows nothing but offsets and words of the standard.

#[cfg(loom)]
mod loom_wish;

use super::super::tests::{Step, step};
use super::super::{Queue, QueueConfig};
use super::*;
use hal::DeviceAddress;
use hal::host::{HostDma, HostHal};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A device of a queue of 4 entries. le64 addr, le32 len, le16 id, le16 flags.
struct Device {
    ring: HostDma,
    driver: HostDma,
    device: HostDma,
    /// Position and wrap counter of the next descriptor to take, and of the next to use.
    next: (usize, bool),
    next_used: (usize, bool),
    /// Descriptors of each buffer taken, by id.
    lists: BTreeMap<u16, usize>,
}

fn after((slot, wrap): (usize, bool), count: usize) -> (usize, bool) {
    if slot + count >= 4 { (slot + count - 4, !wrap) } else { (slot + count, wrap) }
}

impl Device {
    /// addr, len, id, flags.
    fn descriptor(&self, slot: usize) -> (u64, u32, u16, u16) {
        let at = 16 * slot;
        (
            self.ring.words()[2 * slot].get(),
            self.ring.read32(at + 8),
            self.ring.read16(at + 12),
            self.ring.read16(at + 14),
        )
    }

    /// Takes the next buffer, if there is one: its id.
    fn take(&mut self) -> Option<u16> {
        let available = |flags: u16, wrap: bool| (flags & AVAIL != 0) == wrap && (flags & USED != 0) != wrap;
        if !available(self.descriptor(self.next.0).3, self.next.1) {
            return None;
        }
        for count in 1..=4 {
            let (_, _, id, flags) = self.descriptor(self.next.0);
            assert!(available(flags, self.next.1), "all of a list are available when its first is");
            self.next = after(self.next, 1);
            if flags & NEXT == 0 {
                assert_eq!(self.lists.insert(id, count), None, "id {id} is in use");
                return Some(id);
            }
        }
        panic!("a list longer than the ring");
    }

    /// Returns buffer `id` with `len` bytes written.
    fn use_buffer(&mut self, id: u16, len: u32) {
        let count = self.lists.remove(&id).unwrap_or(1);
        let flags = if self.next_used.1 { AVAIL | USED } else { 0 };
        self.write_used(id, len, flags | if len > 0 { WRITE } else { 0 });
        self.next_used = after(self.next_used, count);
    }

    fn write_used(&mut self, id: u16, len: u32, flags: u16) {
        let at = 16 * self.next_used.0;
        self.ring.write32(at + 8, len);
        self.ring.write16(at + 12, id);
        self.ring.write16(at + 14, flags);
    }
}

fn queue(event_index: bool, indirect: bool) -> (HostHal, Queue<HostHal>, Device) {
    let hal = HostHal::manual(1);
    let config = QueueConfig { number: 0, entries: 4, event_index, indirect, packed: true };
    let queue = Queue::new(hal, config).expect("a queue");
    let memory = queue.memory();
    let at = |address| hal.dma_at(address).expect("live memory");
    let device = Device {
        ring: at(memory.descriptors),
        driver: at(memory.available),
        device: at(memory.used),
        next: (0, true),
        next_used: (0, true),
        lists: BTreeMap::new(),
    };
    (hal, queue, device)
}

const IN: Part = Part::write(DeviceAddress(0x1000), 0x200);
const OUT: Part = Part::read(DeviceAddress(0x2000), 0x10);

/// VIRTIO 2.8.6: a list has one id, in its last descriptor, and its first is made available last.
#[test]
fn a_list_is_written_as_the_standard_lays_it_out() {
    let (_, mut queue, mut device) = queue(false, false);
    assert_eq!(queue.add(7, &[OUT, IN]), Ok(()));
    assert_eq!(device.descriptor(0).3, 0, "not yet published");
    assert_eq!(device.descriptor(1), (0x1000, 0x200, 0, AVAIL | WRITE));
    assert!(queue.publish());
    assert_eq!(device.descriptor(0), (0x2000, 0x10, 0, AVAIL | NEXT));
    assert!(!queue.publish(), "nothing new");
    assert_eq!((queue.in_flight(), queue.free_descriptors(), device.take()), (1, 2, Some(0)));
}

#[test]
fn an_indirect_list_takes_one_descriptor() {
    let (hal, mut queue, device) = queue(false, true);
    assert_eq!(queue.add(7, &[OUT, IN]), Ok(()));
    let _ = queue.publish();
    let (table, len, id, flags) = device.descriptor(0);
    assert_eq!((len, id, flags), (32, 0, AVAIL | INDIRECT));
    let table = hal.dma_at(DeviceAddress(table)).expect("a table");
    // VIRTIO 2.8.19: of the flags only VIRTQ_DESC_F_WRITE.
    assert_eq!((table.words()[0].get(), table.words()[1].get()), (0x2000, 0x0000_0000_0000_0010));
    assert_eq!((table.words()[2].get(), table.words()[3].get()), (0x1000, 0x0002_0000_0000_0200));
    assert_eq!(queue.free_descriptors(), 3);
}

/// VIRTIO 2.8.17: a list is no longer than the queue, in a table either.
#[test]
fn a_table_is_no_longer_than_the_queue() {
    let (_, mut queue, _) = queue(false, true);
    assert_eq!(queue.add(7, &[IN; 5]), Err(Refusal::Parts(5, 4)));
    assert_eq!((queue.add(7, &[IN; 4]), queue.free_descriptors()), (Ok(()), 3));
}

/// VIRTIO 2.8.1: both counters begin at 1 and change with the last descriptor of the ring.
#[test]
fn the_second_lap_inverts_the_flags() {
    let (_, mut queue, mut device) = queue(false, false);
    for tag in 0..3 {
        queue.add(tag, &[IN]).expect("room");
    }
    let _ = queue.publish();
    for id in 0..3 {
        assert_eq!(device.take(), Some(id));
        device.use_buffer(id, 1);
        assert_eq!(queue.take(), Ok(Some(Used { tag: id.into(), written_bytes: 1 })));
    }
    queue.add(3, &[OUT, IN]).expect("room");
    let _ = queue.publish();
    // The last descriptor of the first lap, the first of the second.
    assert_eq!((device.descriptor(3).3, device.descriptor(0).3), (AVAIL | NEXT, USED | WRITE));
    let id = device.take().expect("a list across the end");
    device.use_buffer(id, 0x200);
    assert_eq!(device.descriptor(3).3, AVAIL | USED | WRITE);
    assert_eq!(queue.take(), Ok(Some(Used { tag: 3, written_bytes: 0x200 })));
    queue.add(4, &[IN]).expect("room");
    let _ = queue.publish();
    assert_eq!((device.descriptor(1).3, device.take()), (USED | WRITE, Some(id)));
    device.use_buffer(id, 0);
    assert_eq!(device.descriptor(1).3, 0, "used in a lap with counter 0");
    assert_eq!(queue.take(), Ok(Some(Used { tag: 4, written_bytes: 0 })));
    assert_eq!((queue.take(), queue.free_descriptors()), (Ok(None), 4));
}

#[test]
fn used_buffers_come_back_in_the_devices_order() {
    let (_, mut queue, mut device) = queue(false, false);
    queue.add(10, &[OUT, IN]).expect("room");
    queue.add(11, &[IN]).expect("room");
    let _ = queue.publish();
    assert_eq!((device.take(), device.take(), device.take()), (Some(0), Some(1), None));
    device.use_buffer(1, 5);
    device.use_buffer(0, 6);
    assert!(queue.has_used());
    assert_eq!(queue.take(), Ok(Some(Used { tag: 11, written_bytes: 5 })));
    assert_eq!(queue.take(), Ok(Some(Used { tag: 10, written_bytes: 6 })));
    assert_eq!((queue.take(), queue.in_flight()), (Ok(None), 0));
}

#[test]
fn a_full_queue_and_a_stopped_one_refuse() {
    let (_, mut queue, mut device) = queue(false, false);
    assert_eq!(queue.add(0, &[IN; 5]), Err(Refusal::Parts(5, 4)));
    assert_eq!(queue.add(0, &[IN; 3]), Ok(()));
    assert_eq!(queue.add(1, &[IN; 2]), Err(Refusal::Full));
    let _ = queue.publish();
    let id = device.take().expect("a buffer");
    device.use_buffer(id, 1);
    queue.stop();
    assert_eq!(queue.add(1, &[IN]), Err(Refusal::Stopped));
    assert_eq!((queue.reclaim(), queue.reclaim(), queue.take()), (Some(0), None, Ok(None)));
    assert!(!queue.has_used() && !queue.enable_notifications(), "nobody looks for it for ever");
}

/// VIRTIO 2.8.10: RING_EVENT_FLAGS_ENABLE 0, RING_EVENT_FLAGS_DISABLE 1, in bytes 2 and 3.
#[test]
fn flags_suppress_notifications_either_way() {
    let (_, mut queue, mut device) = queue(false, false);
    device.device.write16(2, 1);
    queue.add(0, &[IN]).expect("room");
    assert!(!queue.publish());
    queue.disable_notifications();
    assert_eq!((device.driver.read16(0), device.driver.read16(2)), (0, 1));
    assert!(!queue.enable_notifications());
    assert_eq!((device.driver.read16(0), device.driver.read16(2)), (0, 0));
    queue.disable_notifications();
    let id = device.take().expect("a buffer");
    device.use_buffer(id, 1);
    assert!(queue.enable_notifications(), "it came before the device could know");
    let counters = queue.counters();
    assert_eq!((counters.notifications, counters.suppressed), (0, 1));
}

/// RING_EVENT_FLAGS_DESC is 2; bits 14:0 of bytes 0 and 1 are an offset, bit 15 its wrap counter.
#[test]
fn the_event_offset_suppresses_notifications_either_way() {
    let (_, mut queue, mut device) = queue(true, false);
    device.device.write32(0, 0x0002_8001);
    queue.add(0, &[IN]).expect("room");
    assert!(!queue.publish(), "wanted when descriptor 1 comes");
    queue.add(1, &[IN]).expect("room");
    assert!(queue.publish());
    assert!(!queue.enable_notifications());
    assert_eq!(device.driver.read32(0), 0x0002_8000);
    for id in 0..2 {
        assert_eq!(device.take(), Some(id));
        device.use_buffer(id, 1);
        assert!(queue.take().is_ok_and(|used| used.is_some()));
    }
    assert!(!queue.enable_notifications());
    assert_eq!(device.driver.read32(0), 0x0002_8002);
    // Descriptor 0 of the second lap.
    device.device.write32(0, 0x0002_0000);
    queue.add(2, &[IN; 2]).expect("room");
    assert!(!queue.publish());
    queue.add(3, &[IN]).expect("room");
    assert!(queue.publish());
    queue.disable_notifications();
    assert_eq!(device.driver.read32(0), 0x0001_0000);
}

/// Does `break_it` with one buffer of 0x200 bytes in flight, whose id is 0.
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
    assert_eq!(broken(|device| device.use_buffer(4, 0)), QueueFault::Id(4, 4));
    assert_eq!(broken(|device| device.use_buffer(0xffff, 0)), QueueFault::Id(0xffff, 4));
    assert_eq!(broken(|device| device.use_buffer(1, 0)), QueueFault::NotInFlight(1));
    assert_eq!(broken(|device| device.use_buffer(0, 0x201)), QueueFault::Length(0x201, 0x200));
}

/// VIRTIO 2.8.4: without VIRTQ_DESC_F_WRITE the length is reserved.
#[test]
fn a_length_that_is_reserved_is_ignored() {
    let (_, mut queue, mut device) = queue(false, false);
    queue.add(5, &[IN]).expect("room");
    let _ = queue.publish();
    device.write_used(0, 0xffff_ffff, AVAIL | USED);
    assert_eq!(queue.take(), Ok(Some(Used { tag: 5, written_bytes: 0 })));
}

proptest! {
    /// Over any number of laps, each tag comes back once, and an armed device that uses a buffer is found by the look
    /// after arming.
    #[test]
    fn every_buffer_comes_back_once(
        steps in prop::collection::vec(step(), 1..400),
        event_index: bool,
        indirect: bool,
    ) {
        let (_, mut queue, mut device) = queue(event_index, indirect);
        let (mut tag, mut waits) = (0_u64, 0_usize);
        let mut visible = vec![];
        let mut out = BTreeSet::new();
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
                    visible.extend(core::iter::from_fn(|| device.take()));
                }
                Step::Use(place) if !visible.is_empty() => {
                    let id = visible.swap_remove(place % visible.len());
                    device.use_buffer(id, 1);
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

    /// Whatever a device writes: no panic, and no more buffers than were given.
    #[test]
    fn arbitrary_rings_never_panic(words in prop::collection::vec(any::<u64>(), 8), wish: u32, rounds in 1_usize..4) {
        let (_, mut queue, device) = queue(true, true);
        let mut given = 0;
        for round in 0..rounds {
            device.device.write32(0, wish);
            while queue.add(round as u64, &[OUT, IN]).is_ok() {
                given += 1;
            }
            let _ = queue.publish();
            for (word, value) in device.ring.words().iter().zip(&words) {
                word.set(*value);
            }
            let mut came = 0;
            while let Ok(Some(_)) = queue.take() {
                came += 1;
                prop_assert!(came <= given);
            }
        }
    }
}

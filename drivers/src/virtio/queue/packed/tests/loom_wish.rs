//! Suppression of notifications, in every order: one side makes a descriptor and then reads the other's wish, the other
//! writes its wish and then looks for a descriptor. Never may both miss each other (VIRTIO 2.8.10, 2.8.21).
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p campanile-drivers --lib loom_wish`
//!
//! The queue is the driver's own. The device is that of the standard, with a full barrier between its two steps.

use super::super::{PackedQueue, Part};
use super::{AVAIL, QueueConfig, USED, WRITE};
use crate::loom_world::{LoomHal, Words};
use hal::{DeviceAddress, Dma, Word};
use loom::sync::atomic::{Ordering, fence};
use loom::thread;

const ENTRIES: u16 = 2;
/// Where a descriptor has its flags, in bytes 8 to 15.
const FLAGS_SHIFT: u32 = 48;
/// An event suppression structure: disabled; at descriptor 0 of the first lap.
const DISABLE: u64 = 0x0001_0000;
const AT_0: u64 = 0x0002_8000;
/// Enabled.
const ENABLE: u64 = 0;

/// A queue, and its memory as the device sees it: descriptors, driver area, device area.
fn queue(event_index: bool) -> (PackedQueue<LoomHal>, [Words; 3]) {
    let config = QueueConfig { number: 0, entries: ENTRIES, event_index, indirect: false, packed: true };
    let queue = PackedQueue::new(LoomHal, config).unwrap();
    let areas = [&queue.descriptors, &queue.driver_events, &queue.device_events].map(Words::clone);
    (queue, areas)
}

fn tail(words: &Words) -> &impl Word {
    &words.words()[1]
}

/// The device falls asleep while the driver adds a buffer.
fn kick(event_index: bool) {
    loom::model(move || {
        let (mut queue, [descriptors, _, device_events]) = queue(event_index);
        device_events.words()[0].set(DISABLE);
        let device = thread::spawn(move || {
            device_events.words()[0].set(if event_index { AT_0 } else { ENABLE });
            fence(Ordering::SeqCst);
            let flags = (tail(&descriptors).load() >> FLAGS_SHIFT) as u16;
            let sees = flags & (AVAIL | USED) == AVAIL;
            // What the flags cover is there.
            assert!(!sees || descriptors.words()[0].get() == 0x1000, "a descriptor before its address");
            sees
        });
        queue.add(0, &[Part::write(DeviceAddress(0x1000), 8)]).unwrap();
        let kicked = queue.publish();
        assert!(device.join().unwrap() || kicked, "the device sleeps and is not woken");
    });
}

/// The driver allows interrupts while the device uses a buffer.
fn interrupt(event_index: bool) {
    loom::model(move || {
        let (mut queue, [descriptors, driver_events, _]) = queue(event_index);
        queue.disable_notifications();
        queue.add(0, &[Part::write(DeviceAddress(0x1000), 8)]).unwrap();
        let _ = queue.publish();
        let device = thread::spawn(move || {
            tail(&descriptors).set(u64::from(AVAIL | USED | WRITE) << FLAGS_SHIFT | 1);
            fence(Ordering::SeqCst);
            // Either wish means this descriptor.
            driver_events.words()[0].get() != DISABLE
        });
        let found = queue.enable_notifications();
        assert!(device.join().unwrap() || found, "the driver sleeps and is not interrupted");
        assert!(queue.take().unwrap().is_some_and(|used| (used.tag, used.written_bytes) == (0, 1)));
    });
}

#[test]
fn a_device_that_falls_asleep_is_kicked_or_sees_the_buffer() {
    kick(false);
    kick(true);
}

#[test]
fn a_driver_that_falls_asleep_is_interrupted_or_sees_the_buffer() {
    interrupt(false);
    interrupt(true);
}

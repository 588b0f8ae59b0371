//! Packed virtqueues (VIRTIO 2.8): the driver's queue against the model's, with lists and tables of random shape, and literal
//! words of the standard in memory.

mod virtio_rig;

use drivers::virtio::{Part, Queue, QueueConfig, QueueFault, QueueMemory, Transport, Used};
use hal::{DeviceAddress, Dma as _, Hal as _, Word as _};
use machine::time::Ps;
use machine::unrest::{Chance, Kind, Unrest};
use machine::virtio::ring::Chain;
use machine::virtio::{self, Device, code, jump_arg};
use machine::{MachineConfig, SimHal};
use proptest::prelude::*;
use spec::virtio::feature::{Feature, Features};
use spec::virtio::{DeviceId, Status};
use std::collections::BTreeMap;
use std::sync::Arc;
use virtio_rig::{Bus, DmaBuffer, Host, Rig, bytes, memory, rig, rig_on};

/// Copies the bytes that it reads to the bytes that it writes. It takes all that is there, and gives back the n-th in turn.
struct Echo {
    entries: u16,
    order: usize,
}

impl Device for Echo {
    fn id(&self) -> DeviceId {
        DeviceId(42)
    }
    fn features(&self) -> Features {
        Features::of(&[Feature::RING_PACKED])
    }
    fn queue_entries(&self) -> Vec<u16> {
        vec![self.entries]
    }
    fn config(&self) -> Vec<u8> {
        Vec::new()
    }
    fn kicked(&mut self, bus: &mut virtio::Bus<'_, '_>, queue: u16) {
        bus.want_kicks(queue, false);
        loop {
            let mut taken = Vec::new();
            let mut chain = Chain::default();
            while bus.take(queue, &mut chain) {
                taken.push(std::mem::take(&mut chain));
            }
            while !taken.is_empty() {
                let chain = taken.swap_remove(self.order % taken.len());
                let mut read = vec![0; chain.readable_bytes() as usize];
                chain.read(bus.world(), 0, &mut read).expect("memory");
                let written = chain.write(bus.world(), 0, &read).expect("memory");
                bus.fill(queue, chain.head, written as u32);
                bus.publish(queue);
                bus.notify(queue);
            }
            if !bus.want_kicks(queue, true) {
                break;
            }
        }
    }
    fn event(&mut self, _: &mut virtio::Bus<'_, '_>, _: u32, _: u64) {}
}

/// A device that was brought up, and its queue.
struct Driven {
    transport: Arc<dyn Transport>,
    queue: Queue<SimHal>,
}

/// From reset to DRIVER_OK, with a queue in this memory.
fn bring_up(host: &Host, features: Features, memory: &QueueMemory) -> Arc<dyn Transport> {
    let transport = host.transport();
    let features = features.with(Feature::VERSION_1).with(Feature::RING_PACKED);
    assert_eq!(transport.features().and(features), features);
    let status = Status::new().with_acknowledge(true).with_driver(true);
    transport.set_status(status);
    transport.accept(features);
    let status = status.with_features_ok(true);
    transport.set_status(status);
    assert!(transport.status().features_ok());
    transport.start_queue(0, memory).expect("it starts");
    host.install(Vec::new());
    transport.set_status(status.with_driver_ok(true));
    transport
}

fn drive(host: &Host, entries: u16, event_index: bool, indirect: bool) -> Driven {
    let config = QueueConfig { number: 0, entries, event_index, indirect, packed: true };
    let queue = Queue::new(SimHal, config).expect("a queue");
    let mut features = Features::NONE;
    for (wanted, feature) in [(event_index, Feature::EVENT_IDX), (indirect, Feature::INDIRECT_DESC)] {
        features = if wanted { features.with(feature) } else { features };
    }
    Driven { transport: bring_up(host, features, &queue.memory()), queue }
}

/// A queue of 4 entries in memory of the test's own: descriptor ring, driver area, device area; and a page of data.
fn start(host: &Host, feature: Feature) -> (Arc<dyn Transport>, [DmaBuffer; 4]) {
    let areas = [64, 8, 8, 4096].map(memory);
    let layout = QueueMemory {
        entries: 4,
        descriptors: areas[0].device_address(),
        available: areas[1].device_address(),
        used: areas[2].device_address(),
    };
    (bring_up(host, Features::of(&[feature]), &layout), areas)
}

impl Driven {
    /// Publishes, kicks if the device wants that, and gives it time.
    fn go(&mut self) {
        if self.queue.publish() {
            self.transport.notify(0);
        }
        SimHal.delay_ns(10_000);
    }

    fn take(&mut self) -> Vec<(u64, u32)> {
        let taken = std::iter::from_fn(|| self.queue.take().expect("no fault"));
        taken.map(|Used { tag, written_bytes }| (tag, written_bytes)).collect()
    }
}

fn echo(entries: u16, order: usize) -> Rig {
    rig(Bus::edges(1), Echo { entries, order })
}

/// VIRTIO 2.8.1, 2.8.6, 2.8.13: the words that the model writes, into a ring of the test's own. VIRTQ_DESC_F_NEXT 1, WRITE 2,
/// AVAIL 80h, USED 8000h; RING_EVENT_FLAGS_DISABLE 1 and DESC 2 in the device area.
#[test]
fn ring_and_event_words_are_those_of_the_standard() {
    let mut rig = echo(4, 0);
    rig.boot(|host| {
        let (transport, memory) = start(host, Feature::EVENT_IDX);
        let (ring, events, data) = (&memory[0], &memory[2], &memory[3]);
        data.write32(0, 0x0403_0201);
        let write = |slot: usize, offset, tail: u64| {
            let words = &ring.words()[2 * slot..];
            words[0].set(data.device_address().offset(offset).0);
            words[1].set(tail);
        };
        // Two lists, ids 3 and 1, the second one across the end of the ring.
        write(1, 8, 0x0082_0003_0000_0004);
        write(0, 0, 0x0081_0000_0000_0004);
        transport.notify(0);
        SimHal.delay_ns(10_000);
        assert_eq!(ring.words()[1].get(), 0x8082_0003_0000_0004, "used: id 3, 4 bytes, where the list began");
        assert_eq!((ring.words()[3].get(), data.read32(8)), (0x0082_0003_0000_0004, 0x0403_0201));
        assert_eq!(events.read32(0), 0x0002_8002, "kick me of descriptor 2 of the first lap");
        write(0, 12, 0x8002_0001_0000_0004);
        write(3, 4, 0x0081_0000_0000_0002);
        write(2, 0, 0x0081_0000_0000_0002);
        transport.notify(0);
        SimHal.delay_ns(10_000);
        assert_eq!(ring.words()[5].get(), 0x8082_0001_0000_0004);
        assert_eq!(events.read32(0), 0x0002_0001, "descriptor 1 of the second lap");
        // In the second lap an available descriptor has USED, and a used one neither.
        write(1, 16, 0x8002_0002_0000_0004);
        transport.notify(0);
        SimHal.delay_ns(10_000);
        assert_eq!(ring.words()[3].get(), 0x0000_0002_0000_0000, "nothing to read, so nothing written");
    });
    assert_eq!(rig.faults(), Vec::<&str>::new());
}

/// VIRTIO 2.8.5: a used descriptor without WRITE has a length that is reserved. The driver takes it for none.
#[test]
fn a_length_that_is_reserved_is_no_length() {
    let chances = [Chance::default(); Kind::COUNT];
    let always = Chance { per_mille: 1_000, longest: Ps::from_ns(1) };
    let unrest = Unrest { chances, ..Unrest::new(1) }.with(Kind::ReservedField, always);
    let machine = MachineConfig { unrest: Some(unrest), ..MachineConfig::default() };
    let rig = || rig_on(machine.clone(), Bus::edges(1), Echo { entries: 4, order: 0 });
    let word = rig().boot(|host| {
        let (transport, memory) = start(host, Feature::EVENT_IDX);
        let (ring, data) = (&memory[0], &memory[3]);
        ring.words()[0].set(data.device_address().0);
        ring.words()[1].set(0x0080_0002_0000_0004);
        transport.notify(0);
        SimHal.delay_ns(10_000);
        ring.words()[1].get()
    });
    assert_eq!(word, 0x8080_0002_dead_beef);
    let taken = rig().boot(|host| {
        let (data, mut driven) = (memory(64), drive(host, 4, false, false));
        let read = Part { address: data.device_address(), len_bytes: 4, device_writes: false };
        driven.queue.add(7, &[read]).expect("room");
        driven.go();
        driven.take()
    });
    assert_eq!(taken, [(7, 0)]);
}

/// A device that uses what it was not given: id 4 of a queue of 4. The driver's queue breaks, and says how.
#[test]
fn a_hostile_id_is_a_recorded_fault() {
    let mut rig = echo(4, 0);
    let mut driven = rig.boot(|host| drive(host, 4, false, true));
    rig.poke(code::JUMP_USED, jump_arg(0, 1));
    let fault = rig.boot(move |_| (driven.queue.has_used(), driven.queue.take(), driven.queue.fault()));
    assert_eq!(fault, (true, Err(QueueFault::Id(4, 4)), Some(QueueFault::Id(4, 4))));
}

/// A driver that breaks the ring: the device records it and wants a reset (VIRTIO 2.1.2).
#[test]
fn a_hostile_driver_is_a_recorded_fault() {
    // Bytes 8 to 15 of descriptor 0, and what is wrong.
    let (plain, tables) = (Feature::VERSION_1, Feature::INDIRECT_DESC);
    let broken = [
        (plain, 0x0080_0004_0000_0008, "id 4 of a queue of 4"),
        (plain, 0x0081_0000_0000_0008, "a list whose second descriptor is not available"),
        (plain, 0x0084_0000_0000_0010, "a table that was not negotiated"),
        (tables, 0x0085_0000_0000_0010, "a table in a list"),
        (tables, 0x0084_0000_0000_0050, "a table longer than the queue"),
        (plain, 0x0082_0000_ffff_ffff, "a buffer beyond memory"),
    ];
    for (features, tail, what) in broken {
        let mut rig = echo(4, 0);
        let status = rig.boot(move |host| {
            let (transport, memory) = start(host, features);
            memory[0].words()[0].set(memory[3].device_address().0);
            memory[0].words()[1].set(tail);
            transport.notify(0);
            SimHal.delay_ns(10_000);
            transport.status()
        });
        assert!(status.needs_reset(), "{what}");
        assert_eq!(rig.faults(), ["virtio driver broke a queue"], "{what}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Lengths of the parts that the device reads, and of those that it writes.
    Add(Vec<u32>, Vec<u32>),
    Go,
    Take,
    Arm,
    Disarm,
}

fn step() -> impl Strategy<Value = Step> {
    let lengths = || prop::collection::vec(1_u32..20, 0..4);
    prop_oneof![
        5 => (lengths(), lengths()).prop_map(|(read, write)| Step::Add(read, write)),
        3 => Just(Step::Go),
        2 => Just(Step::Take),
        1 => Just(Step::Arm),
        1 => Just(Step::Disarm),
    ]
}

/// Buffers in flight: their memory, bytes to read and bytes to write.
type InFlight = BTreeMap<u64, (DmaBuffer, u32, u32)>;

fn add(driven: &mut Driven, tag: u64, read: &[u32], write: &[u32], out: &mut InFlight) {
    let buffer = memory(256);
    let mut at = 0;
    let mut parts = Vec::new();
    for (lengths, device_writes) in [(read, false), (write, true)] {
        for &len_bytes in lengths {
            parts.push(Part { address: buffer.device_address().offset(at), len_bytes, device_writes });
            at += u64::from(len_bytes);
        }
    }
    let (reads, writes): (u32, u32) = (read.iter().sum(), write.iter().sum());
    for byte in 0..reads {
        buffer.write8(byte as usize, (tag as u8).wrapping_mul(31).wrapping_add(byte as u8));
    }
    if driven.queue.add(tag, &parts).is_ok() {
        out.insert(tag, (buffer, reads, writes));
    }
}

fn check(taken: Vec<(u64, u32)>, out: &mut InFlight) {
    for (tag, written) in taken {
        let (buffer, reads, writes) = out.remove(&tag).expect("once, and only what was added");
        assert_eq!(written, reads.min(writes), "tag {tag}");
        let (sent, got) = (0..written as usize, reads as usize..(reads + written) as usize);
        assert_eq!(bytes(&buffer, got), bytes(&buffer, sent), "tag {tag}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Over many laps, with lists or tables, each buffer comes back once and with its bytes, in any order.
    #[test]
    fn every_buffer_comes_back_once_with_its_bytes(
        steps in prop::collection::vec(step(), 1..120),
        entries in prop::sample::select(vec![2_u16, 4, 8, 16]),
        order in 0_usize..5,
        event_index: bool,
        indirect: bool,
    ) {
        let mut rig = echo(entries, order);
        let left = rig.boot(move |host| {
            let mut driven = drive(host, entries, event_index, indirect);
            let mut out = InFlight::new();
            for (tag, step) in (0..).zip(steps) {
                match step {
                    Step::Add(read, write) => add(&mut driven, tag, &read, &write, &mut out),
                    Step::Go => driven.go(),
                    Step::Take => check(driven.take(), &mut out),
                    Step::Arm => _ = driven.queue.enable_notifications(),
                    Step::Disarm => driven.queue.disable_notifications(),
                }
                assert_eq!(usize::from(driven.queue.in_flight()), out.len());
            }
            driven.go();
            check(driven.take(), &mut out);
            (out.len(), driven.queue.free_descriptors())
        });
        prop_assert_eq!(left, (0, entries));
        prop_assert_eq!(rig.faults(), Vec::<&str>::new());
    }
}

/// A buffer outside memory is the device's to refuse.
#[test]
fn a_buffer_outside_memory_stops_the_device() {
    let mut rig = echo(4, 0);
    let status = rig.boot(|host| {
        let mut driven = drive(host, 4, false, true);
        driven.queue.add(1, &[Part::read(DeviceAddress(1 << 60), 8)]).expect("room");
        driven.go();
        driven.transport.status()
    });
    assert!(status.needs_reset());
    assert_eq!(rig.faults(), ["virtio driver broke a queue"]);
}

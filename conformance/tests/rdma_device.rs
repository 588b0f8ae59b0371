//! The NIC's model by literal offsets and words, among them those of a hostile host.

mod rdma_rig;

use hal::{Dma as _, Regs as _, Word as _};
use machine::Regs;
use machine::rdma::Config;
use rdma_rig::{DmaBuffer, Host, host, memory};

/// An end that uses only the layout: queue pair 0, completion queue 0, event queue 0, 16 entries each.
struct Raw {
    regs: Regs,
    bells: Regs,
    events: DmaBuffer,
    entries: DmaBuffer,
    record: DmaBuffer,
    sends: DmaBuffer,
    receives: DmaBuffer,
    data: DmaBuffer,
}

/// Doorbell pages: queue pairs from 0, completion queues from 40_0000h, event queues from 80_0000h.
const ARM: u32 = 0x40_0000;
const EVENTS: u32 = 0x80_0000;

impl Raw {
    fn up(host: &Host, side: usize) -> Self {
        let (regs, bells) = (host.sides[side].regs(), host.sides[side].doorbells());
        let [events, entries, record, sends, receives, data] = [128, 256, 8, 1024, 512, 8192].map(memory);
        let address = |memory: &DmaBuffer| memory.device_address().0;
        assert_eq!(regs.read32(0x00), 0x4352_4e01);
        regs.write32(0x10, 1);
        assert_eq!(regs.read32(0x14), 0b11, "ready, and the link is up");
        regs.write64(0x4000, address(&events));
        regs.write32(0x4008, 0x401);
        regs.write64(0x1_0000, address(&entries));
        regs.write64(0x1_0008, address(&record));
        regs.write32(0x1_0010, 0x401);
        regs.write64(0x4_0000, address(&sends));
        regs.write64(0x4_0008, address(&receives));
        regs.write64(0x4_0010, 0x0404_0000_0000);
        regs.write32(0x4_0018, 0);
        regs.write32(0x4_001c, 1);
        assert_eq!(regs.read32(0x4_001c), 1);
        Self { regs, bells, events, entries, record, sends, receives, data }
    }

    fn data(&self, offset: u64) -> u64 {
        self.data.device_address().0 + offset
    }

    fn write(memory: &DmaBuffer, at: usize, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            memory.words()[at / 8 + index].set(*word);
        }
    }

    /// Send request `n`: head, id, local, remote, key.
    fn request(&self, n: usize, words: [u64; 5]) {
        Self::write(&self.sends, n % 16 * 64, &words);
    }

    fn receive(&self, n: usize, bytes: u64) {
        Self::write(&self.receives, n % 16 * 32, &[100 + n as u64, self.data(4096), bytes]);
    }

    fn ring(&self, sends: u32) {
        self.bells.write32(0, sends);
    }

    fn ring_receives(&self, receives: u32) {
        self.bells.write32(4, receives);
    }

    /// Id and last word of completion `n`.
    fn entry(&self, n: usize) -> (u64, u64) {
        (self.entries.words()[n * 2].get(), self.entries.words()[n * 2 + 1].get())
    }
}

/// Head of a signalled send of so many bytes.
fn send(bytes: u64) -> u64 {
    bytes << 32 | 0x101
}

fn write(bytes: u64) -> u64 {
    bytes << 32 | 0x102
}

fn two(config: Config, body: impl FnOnce(&Host, Raw, Raw) + Send + 'static) -> rdma_rig::After<()> {
    host(config, move |host| body(host, Raw::up(host, 0), Raw::up(host, 1)))
}

#[test]
fn a_setback_refuses_a_nic_and_each_of_its_objects() {
    let after = host(Config::default(), |host| {
        let regs = host.sides[0].regs();
        // The NIC, then a memory region, an event queue, a completion queue and a queue pair, each with its enable.
        let asks = [(0x10, 1), (0x1010, 1), (0x4008, 0x401), (0x1_0010, 0x401), (0x4_001c, 1)];
        machine::begin_setback(machine::setback::Setback::Refusal, 1);
        let first = asks.map(|(register, value)| {
            regs.write32(register, value);
            regs.read32(register) & 1
        });
        let endured = machine::end_setback();
        assert_eq!((first, endured.acts), ([1, 0, 0, 0, 0], 5), "the NIC was spared");
        for (register, value) in asks {
            regs.write32(register, value);
            assert_eq!(regs.read32(register) & 1, 1, "{register:#x}");
        }
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn a_send_by_words() {
    let after = two(Config::default(), |host, a, b| {
        b.receive(0, 64);
        b.ring_receives(1);
        a.data.words()[0].set(0xabcd);
        a.request(0, [send(64), 7, a.data(0), 0, 0]);
        a.ring(1);
        host.wait_ns(8_000);
        assert_eq!(a.entry(0), (7, 0x8000_0100_0000_0000));
        assert_eq!(b.entry(0), (100, 0x8000_8000_0000_0040));
        assert_eq!(b.data.words()[512].get(), 0xabcd);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn the_phase_turns_with_each_pass() {
    let after = two(Config::default(), |host, a, b| {
        for n in 0..40u32 {
            b.receive(n as usize, 64);
            b.ring_receives(n + 1);
            a.request(n as usize, [send(8), n.into(), a.data(0), 0, 0]);
            a.ring(n + 1);
            host.wait_ns(8_000);
            let (id, tail) = a.entry(n as usize % 16);
            assert_eq!((id, tail >> 63), (n.into(), u64::from(n / 16 % 2 == 0)));
            a.record.words()[0].set(u64::from(n) + 1);
            b.record.words()[0].set(u64::from(n) + 1);
        }
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn an_armed_queue_tells_once() {
    let after = two(Config::default(), |host, a, b| {
        b.bells.write32(EVENTS, 0);
        b.bells.write32(ARM, 0);
        for n in 0..3 {
            b.receive(n, 64);
            a.request(n, [send(8), 0, a.data(0), 0, 0]);
        }
        b.ring_receives(3);
        a.ring(3);
        host.wait_ns(8_000);
        assert_eq!(b.events.words()[0].get(), 0x8000_0000_0001_0000);
        assert_eq!(b.events.words()[1].get(), 0);
        // Armed after one of three entries was taken: the event comes at once.
        b.bells.write32(ARM, 1);
        host.wait_ns(1_000);
        assert_eq!(b.events.words()[1].get(), 0x8000_0000_0001_0000);
    });
    assert_eq!(after.counter(1, "events"), 2);
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn a_write_needs_the_key_the_range_and_the_right() {
    // Region 0 of the other end: 4096 bytes, enabled, writable, generation 5: key 500h.
    let outcome = |key: u64, offset: u64, bytes: u64, control: u32| {
        let after = two(Config::default(), move |host, a, b| {
            b.regs.write64(0x1000, b.data(0));
            b.regs.write64(0x1008, 4096);
            b.regs.write32(0x1010, control);
            a.request(0, [write(bytes), 1, a.data(0), b.data(0).wrapping_add(offset), key]);
            a.ring(1);
            host.wait_ns(8_000);
            let status = a.entry(0).1 >> 48 & 0xff;
            assert_eq!(a.regs.read32(0x4_001c), if status == 0 { 1 } else { 3 });
            assert_eq!(
                status == 0,
                key == 0x500 && offset.saturating_add(bytes) <= 4096 && control == 0x503,
                "status {status}"
            );
            assert!(status == 0 || status == 4);
        });
        assert!(after.faults.is_empty(), "{:?}", after.faults);
    };
    outcome(0x500, 0, 4096, 0x503);
    outcome(0x500, 8, 4096, 0x503);
    outcome(0x400, 0, 8, 0x503);
    outcome(0x501, 0, 8, 0x503);
    outcome(0x5ff, 0, 8, 0x503);
    outcome(0x500, 0, 8, 0x501);
    outcome(0x500, 0, 8, 0x502);
    outcome(0x500, u64::MAX - 7, 8, 0x503);
}

#[test]
fn a_receiver_that_never_gets_ready_stops_both_ends_after_its_patience() {
    let after = two(Config { patience_10us: 2, ..Config::default() }, |host, a, b| {
        a.request(0, [send(8), 1, a.data(0), 0, 0]);
        a.request(1, [send(8), 2, a.data(0), 0, 0]);
        a.ring(2);
        host.wait_ns(15_000);
        assert_eq!(a.entry(0).1, 0);
        host.wait_ns(20_000);
        // Not ready (05h), and the one behind it flushed (06h).
        assert_eq!([a.entry(0), a.entry(1)].map(|(id, tail)| (id, tail >> 48 & 0xff)), [(1, 5), (2, 6)]);
        assert_eq!((a.regs.read32(0x4_001c), b.regs.read32(0x4_001c)), (3, 3));
        // QP_ERROR (03h) of queue pair 0.
        assert_eq!(a.events.words()[0].get(), 0x8000_0000_0003_0000);
    });
    assert_eq!((after.counter(0, "stopped"), after.counter(1, "stopped")), (1, 1));
}

#[test]
fn a_receive_in_time_saves_what_waits() {
    let after = two(Config::default(), |host, a, b| {
        for n in 0..3 {
            a.request(n, [send(8), n as u64, a.data(0), 0, 0]);
            b.receive(n, 8);
        }
        a.ring(3);
        for n in 0..3 {
            host.wait_ns(600_000);
            b.ring_receives(n + 1);
        }
        host.wait_ns(8_000);
        assert_eq!([0, 1, 2].map(|n| a.entry(n).1 >> 48), [0x8000; 3]);
    });
    assert_eq!(after.counter(1, "stopped"), 0);
}

#[test]
fn hostile_words_end_as_status_or_fault() {
    type Attack = fn(&Host, &Raw, &Raw);
    let attacks: [(&str, Attack); 12] = [
        ("send doorbell out of range", |_, a, _| a.ring(17)),
        ("receive doorbell out of range", |_, a, _| a.ring_receives(u32::MAX)),
        ("doorbell of a queue pair that is off", |_, a, _| a.bells.write32(0x1000, 1)),
        ("write beside the doorbells of an RDMA NIC", |_, a, _| a.bells.write32(0x8, 1)),
        ("access to a PCI function in a wrong width or alignment", |_, a, _| a.bells.write64(0, 1)),
        ("completion queue armed out of range", |_, a, _| a.bells.write32(ARM, 5)),
        ("event queue doorbell out of range", |_, a, _| a.bells.write32(EVENTS, 1)),
        ("send queue outside memory", |_, a, _| {
            a.regs.write32(0x4_001c, 0);
            a.regs.write64(0x4_0000, 0xdead_0000_0000);
            a.regs.write32(0x4_001c, 1);
            a.ring(1);
        }),
        ("receive queue outside memory", |_, a, b| {
            b.regs.write32(0x4_001c, 0);
            b.regs.write64(0x4_0008, 0xdead_0000_0000);
            b.regs.write32(0x4_001c, 1);
            b.ring_receives(1);
            a.request(0, [send(8), 1, a.data(0), 0, 0]);
            a.ring(1);
        }),
        ("completion queue outside memory", |_, a, _| {
            a.regs.write32(0x1_0010, 0);
            a.regs.write64(0x1_0000, 0xdead_0000_0000);
            a.regs.write32(0x1_0010, 0x401);
            a.request(0, [0xff, 1, 0, 0, 0]);
            a.ring(1);
        }),
        ("completion queue overrun", |host, a, _| {
            // Room for sixteen entries, which no software takes: 32 flushed requests.
            for n in 0..16 {
                a.request(n, [0x1ff, n as u64, 0, 0, 0]);
                a.receive(n, 8);
            }
            a.ring_receives(16);
            a.ring(16);
            host.wait_ns(8_000);
        }),
        ("completion queue overrun", |host, a, _| {
            // A consumer record that jumps makes no room.
            a.record.words()[0].set(0xffff_0000);
            for n in 0..16 {
                a.request(n, [0x1ff, n as u64, 0, 0, 0]);
                a.receive(n, 8);
            }
            a.ring_receives(16);
            a.ring(16);
            host.wait_ns(8_000);
        }),
    ];
    for (fault, attack) in attacks {
        let after = two(Config::default(), move |host, a, b| {
            attack(host, &a, &b);
            host.wait_ns(20_000);
        });
        assert!(after.faulted(fault), "{fault}: {:?}", after.faults);
    }
}

#[test]
fn memory_of_this_end_that_is_not_there_ends_the_request() {
    let statuses = |head: u64, local: u64| {
        let after = host(Config::default(), move |host| {
            let (a, b) = (Raw::up(host, 0), Raw::up(host, 1));
            b.receive(0, 8);
            b.ring_receives(1);
            a.request(0, [head, 1, if local == 0 { a.data(0) } else { local }, 0, 0]);
            a.ring(1);
            host.wait_ns(20_000);
            a.entry(0).1 >> 48 & 0xff
        });
        after.result
    };
    assert_eq!(statuses(send(8), 0), 0);
    assert_eq!(statuses(send(8), 0xdead_0000_0000), 3);
    assert_eq!(statuses(send(8), u64::MAX - 7), 3);
    assert_eq!(statuses(send(7), 0), 3);
    assert_eq!(statuses(send(16), 0), 1, "longer than the receive");
    assert_eq!(statuses(0x1_0000_0177, 0), 2, "no such operation");
}

#[test]
fn registers_of_objects_that_are_on_or_missing_ignore_writes() {
    let after = two(Config { queue_pairs: 2, ..Config::default() }, |_, a, _| {
        let before = a.regs.read64(0x1_0000);
        a.regs.write64(0x1_0000, 0x1234);
        assert_eq!(a.regs.read64(0x1_0000), before);
        a.regs.write64(0x4_0080, 0x1000);
        assert_eq!(a.regs.read64(0x4_0080), 0, "queue pair 2 of 2");
        assert_eq!(a.regs.read32(0xfff0), 0);
        // Queues longer than the device has, and event queues that it lacks, do not come on.
        a.regs.write32(0x1_0050, 0x1f01);
        assert_eq!(a.regs.read32(0x1_0050) & 1, 0);
        a.regs.write32(0x1_0050, 0x0200_0401);
        assert_eq!(a.regs.read32(0x1_0050) & 1, 0);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

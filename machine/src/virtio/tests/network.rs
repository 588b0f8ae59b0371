//! The network device: packets in and out, commands, coalescing, flows.

use super::super::net::{Coalescing, CoalescingSupport, Flows, HostConfig, Workers, code};
use super::*;

/// CTRL_VQ and MQ; both classes of coalescing.
const CONTROL: u64 = 1 << 17 | 1 << 22;
const COALESCING: u64 = 1 << 53 | 1 << 52;
/// Two pairs: receive 0, transmit 1, receive 2, transmit 3, control 4.
const CONTROL_QUEUE: u32 = 4;

fn config(coalescing: CoalescingSupport) -> NetConfig {
    NetConfig { pairs: 2, queue_entries: 8, coalescing, ..NetConfig::default() }
}

impl Rig {
    fn net<R>(&mut self, act: impl FnOnce(&mut Net) -> R) -> R {
        self.machine.with_model(self.device, |model: &mut VirtioMmio<Net>| act(model.device())).expect("a card")
    }

    fn inject(&mut self, pair: u16, packet: &[u8]) {
        self.net(|net| net.inject(pair, packet.to_vec()));
        let (device, now) = (self.device, self.machine.now());
        self.machine.poke(device, now, code::INJECTED, pair.into());
        // Less than any coalescing time here.
        self.machine.run_until(now + Ps::from_ns(5_000));
    }

    /// Makes eight receive buffers of 256 bytes available.
    fn fill_receive(&mut self, queue: u32) {
        for index in 0..8u16 {
            let at = self.place(queue).1 + (BUFFERS + 256 * usize::from(index)) as u64;
            self.descriptor(queue, index.into(), at, 256, 2, 0);
            self.offer(queue, index);
        }
        self.kick(queue);
    }

    /// Runs a control command; its ack byte.
    fn command(&mut self, bytes: &[u8]) -> u8 {
        let command = self.fill_buffer(CONTROL_QUEUE, 0, bytes);
        let ack = self.fill_buffer(CONTROL_QUEUE, 64, &[0xff]);
        self.descriptor(CONTROL_QUEUE, 0, command, bytes.len() as u32, 1, 1);
        self.descriptor(CONTROL_QUEUE, 1, ack, 1, 2, 0);
        self.offer(CONTROL_QUEUE, 0);
        self.kick(CONTROL_QUEUE);
        self.buffer(CONTROL_QUEUE, 64, 1)[0]
    }

    /// A card that is up: receive queues on vectors 0 and 2, the others without.
    fn start_net(&mut self, features: u64) {
        assert_eq!(self.negotiate(VERSION_1 | MULTI_IRQ | features), 11);
        for queue in 0..5 {
            self.start_queue(queue, if queue % 2 == 0 && queue < 4 { queue } else { 0xffff });
        }
        self.write(0x70, 15);
    }
}

#[test]
fn packets_go_in_and_out() {
    let mut rig = net(config(CoalescingSupport::Absent));
    rig.start_net(CONTROL);
    assert_eq!(rig.read(0x100), 0x1200_5452, "its address");
    rig.inject(0, b"early");
    assert_eq!((rig.used(0).0, rig.wires()), (0, vec![]), "no buffer yet");
    rig.fill_receive(0);
    assert_eq!((rig.used(0), rig.wires()), ((1, 0, 17), pulse(0)));
    assert_eq!(rig.buffer(0, 0, 17), b"\0\0\0\0\0\0\0\0\0\0\x01\0early");
    rig.inject(0, &[7; 300]);
    assert_eq!(rig.used(0), (2, 1, 0), "too long for its buffer");
    let packet = rig.fill_buffer(1, 0, b"\0\0\0\0\0\0\0\0\0\0\0\0out");
    rig.descriptor(1, 0, packet, 15, 0, 0);
    rig.offer(1, 0);
    rig.kick(1);
    assert_eq!(rig.used(1), (1, 0, 0));
    assert_eq!(rig.net(Net::take_received), [(0, b"out".to_vec())]);
    rig.descriptor(1, 0, packet, 11, 0, 0);
    rig.offer(1, 0);
    rig.kick(1);
    assert_eq!(rig.faults(), ["virtio-net packet without a header, or beyond all bounds"]);
}

/// VIRTIO 5.1.6.5.5: MQ.
#[test]
fn queue_pairs_are_set_within_bounds() {
    let mut rig = net(config(CoalescingSupport::Absent));
    rig.start_net(CONTROL);
    let set = |rig: &mut Rig, pairs: u8| rig.command(&[4, 0, pairs, 0]);
    assert_eq!([1, 2, 0, 3].map(|pairs| set(&mut rig, pairs)), [0, 0, 1, 1]);
    assert_eq!(rig.command(&[4, 0, 1]), 1, "half a number");
    assert_eq!(rig.command(&[6, 1, 1, 0, 0, 0, 1, 0, 0, 0]), 1, "coalescing is not offered");
    assert_eq!(rig.command(&[99, 0]), 1);
    assert!(rig.faults().is_empty());
}

/// VIRTIO 5.1.6.5.7: device-wide, and for one queue.
#[test]
fn coalescing_is_set_for_all_or_one_and_a_reset_forgets_it() {
    let mut rig = net(config(CoalescingSupport::Exact));
    rig.start_net(CONTROL | COALESCING);
    let (all, one) = ([6, 1, 3, 0, 0, 0, 50, 0, 0, 0], [6, 2, 2, 0, 0, 0, 9, 0, 0, 0, 70, 0, 0, 0]);
    assert_eq!((rig.command(&all), rig.command(&one)), (0, 0));
    let seen = rig.net(|net| [0, 1, 2, 3].map(|queue| net.coalescing(queue)));
    let setting = |max_packets, max_usecs| Some(Coalescing { max_packets, max_usecs });
    assert_eq!(seen, [setting(3, 50), setting(0, 0), setting(9, 70), setting(0, 0)]);
    for queue in [4, 5, 255] {
        assert_eq!(rig.command(&[6, 2, queue, 0, 0, 0, 9, 0, 0, 0, 70, 0, 0, 0]), 1, "no data queue: {queue}");
    }
    rig.write(0x70, 0);
    assert_eq!(rig.net(|net| net.coalescing(2)), setting(0, 0));
}

#[test]
fn packets_or_microseconds_whichever_comes_first() {
    let mut rig = net(config(CoalescingSupport::Exact));
    rig.start_net(CONTROL | COALESCING);
    rig.fill_receive(0);
    assert_eq!(rig.command(&[6, 1, 3, 0, 0, 0, 50, 0, 0, 0]), 0);
    for packet in 0..3u8 {
        assert_eq!(rig.wires(), [], "before packet {packet}");
        rig.inject(0, &[packet]);
    }
    assert_eq!((rig.used(0).0, rig.wires()), (3, pulse(0)));
    rig.inject(0, &[3]);
    assert_eq!((rig.used(0).0, rig.wires()), (4, vec![]), "seen by a driver that looks, but not told");
    rig.settle();
    assert_eq!(rig.wires(), pulse(0));
    // Suppression wins.
    rig.memory.write16(rig.place(0).0 + AVAILABLE, 1);
    rig.inject(0, &[4]);
    rig.settle();
    assert_eq!(rig.wires(), []);
}

#[test]
fn a_device_that_quantises_or_refuses_says_so() {
    let mut rig = net(config(CoalescingSupport::Quantised { unit_usecs: 50 }));
    rig.start_net(CONTROL | COALESCING);
    assert_eq!(rig.command(&[6, 2, 0, 0, 0, 0, 8, 0, 0, 0, 64, 0, 0, 0]), 0);
    // VQ_GET: queue and reserved word in, the ack, packets and microseconds out.
    let command = rig.fill_buffer(CONTROL_QUEUE, 0, &[6, 3, 0, 0, 0, 0]);
    let answer = rig.fill_buffer(CONTROL_QUEUE, 64, &[0xff; 9]);
    rig.descriptor(CONTROL_QUEUE, 0, command, 6, 1, 1);
    rig.descriptor(CONTROL_QUEUE, 1, answer, 9, 2, 0);
    rig.offer(CONTROL_QUEUE, 0);
    rig.kick(CONTROL_QUEUE);
    assert_eq!(rig.buffer(CONTROL_QUEUE, 64, 9), [0, 8, 0, 0, 0, 50, 0, 0, 0]);

    let mut rig = {
        drop(rig);
        net(config(CoalescingSupport::Refused))
    };
    rig.start_net(CONTROL | COALESCING);
    assert_eq!(rig.command(&[6, 1, 3, 0, 0, 0, 50, 0, 0, 0]), 1);
    assert!(rig.faults().is_empty());
}

/// A guest that takes nothing: backlogs fill and senders drop. All of a saturated host thread's time is packets.
#[test]
fn a_saturated_worker_shares_its_time_equally_and_the_rest_is_lost() {
    let flows = Flows { count: 2, sent: Ps::from_ns(1000), dropped: Ps::from_ns(400) };
    let host = HostConfig { workers: Workers::PerDevice, receive: Ps::from_ns(800), flows, ..HostConfig::default() };
    let mut rig = net(NetConfig { host, ..config(CoalescingSupport::Absent) });
    rig.start_net(CONTROL);
    assert_eq!(rig.command(&[4, 0, 2, 0]), 0);
    let (device, start) = (rig.device, rig.machine.now());
    rig.machine.poke(device, start, code::FLOWS, 1);
    // The guest gives every buffer back as soon as it is used, without looking at it.
    let end = start + Ps::from_ns(40_000_000);
    while rig.machine.now() < end {
        let now = rig.machine.now();
        rig.machine.run_until(now + Ps::from_ns(2_000));
        for queue in [0, 2] {
            let used = rig.used(queue).0;
            let available = rig.place(queue).0 + AVAILABLE;
            let had = rig.memory.read16(available + 2);
            (0..8).for_each(|slot| rig.memory.write16(available + 4 + 2 * slot, slot as u16));
            (0..8).for_each(|slot| {
                let at = rig.place(queue).1 + (BUFFERS + 256 * slot) as u64;
                rig.descriptor(queue, slot, at, 256, 2, 0);
            });
            rig.memory.write16(available + 2, used.wrapping_add(8));
            if had != used.wrapping_add(8) {
                rig.machine.regs(device, 0).write32(0x50, queue);
            }
        }
    }
    let counts = rig.net(|net| net.flows());
    let received: u64 = rig.machine.with_any_model(device, |model| {
        model.counters().into_iter().find(|(name, _)| *name == "received").expect("counted").1
    });
    // A queue of 8 is emptied, and told of, 8 packets at a time: 8 · 800 ns and 300 ns for the interrupt. 40 ms are 5,970
    // times that.
    assert!(received.abs_diff(8 * 5_970) < 32, "{received}");
    for flow in &counts {
        let passed = flow.sent - flow.dropped;
        assert!(passed.abs_diff(4 * 5_970 + 500) < 32, "{flow:?}");
        // A packet that passes takes 1,000 ns of the sender's, one that is dropped 400.
        let time = passed * 1000 + flow.dropped * 400;
        assert!(time.abs_diff(40_000_000) < 100_000, "{time}");
    }
    assert!(rig.faults().is_empty(), "{:?}", rig.machine.faults());
}

/// A flow that is stopped and started again before its next packet sends at its own rate, not at twice that.
#[test]
fn flows_that_start_again_do_not_double() {
    let flows = Flows { count: 1, sent: Ps::from_ns(1000), dropped: Ps::from_ns(1000) };
    let mut rig = net(NetConfig { host: HostConfig { flows, ..HostConfig::default() }, ..NetConfig::default() });
    let (device, start) = (rig.device, rig.machine.now());
    for run in [1, 0, 1] {
        rig.machine.poke(device, start, code::FLOWS, run);
    }
    rig.machine.run_until(start + Ps::from_ns(100_000));
    let sent = rig.net(|net| net.flows())[0].sent;
    assert!((99..=101).contains(&sent), "{sent}");
}

//! The network driver against the model: which vectors, what an interrupt costs, reflection, coalescing, resets.

mod virtio_rig;

use drivers::virtio::net::{CoalescedQueue, CoalescedReceive, Coalescing, NetConfig, TransmitPacket};
use drivers::virtio::{Rung, VectorPolicy, VirtioError};
use hal::{Dma as _, Hal as _};
use irq::moderation::{Moderated as _, Outcome, Setting};
use machine::SimHal;
use machine::time::Ps;
use machine::virtio::Trigger;
use machine::virtio::net::{self as model, CoalescingSupport};
use virtio_rig::net::{device, driven};
use virtio_rig::{Bus, memory};

const NONE: u32 = 0xffff;

fn pairs(pairs: u16) -> NetConfig {
    NetConfig { pairs, entries: 64, ..NetConfig::default() }
}

/// MULTI_IRQ 7: the ladder, seen in the device's own registers (ConfigVector 0d4h, QueueVector 0d8h).
#[test]
fn the_ladder_goes_down_as_vectors_get_fewer() {
    let mapped = |lines, policy| {
        let (mut rig, net, _) = driven(Bus::edges(lines), device(3), NetConfig { policy, ..pairs(3) });
        let registers = rig.boot(|host| (host.read(0xd4), host.queue_vectors(7)));
        (net.vectors().rung, registers.0, registers.1)
    };
    let n = NONE;
    assert_eq!(mapped(5, VectorPolicy::Ladder), (Rung::Each, 0, vec![1, n, 2, n, 3, n, n]));
    assert_eq!(mapped(4, VectorPolicy::Ladder), (Rung::Each, 0, vec![1, n, 2, n, 3, n, n]));
    assert_eq!(mapped(3, VectorPolicy::Ladder), (Rung::Shared, 0, vec![1, n, 2, n, 1, n, n]));
    assert_eq!(mapped(2, VectorPolicy::Ladder), (Rung::Shared, 0, vec![1, n, 1, n, 1, n, n]));
    assert_eq!(mapped(1, VectorPolicy::Ladder), (Rung::Single, n, vec![n; 7]));
    assert_eq!(mapped(3, VectorPolicy::Modulo), (Rung::Shared, 0, vec![0, n, 1, n, 2, n, n]));
    assert_eq!(mapped(2, VectorPolicy::Pairs), (Rung::Shared, 0, vec![0, 0, 1, 1, 0, 0, 1]));
    assert_eq!(mapped(5, VectorPolicy::Single), (Rung::Single, n, vec![n; 7]));
}

/// Every pair receives on its own vector; how many status reads and acknowledgements an interrupt took.
fn traffic(bus: Bus, policy: VectorPolicy) -> (Vec<u64>, u64, u64) {
    let on_mmio = matches!(bus, Bus::Mmio(..));
    let (mut rig, net, keeper) = driven(bus, device(3), NetConfig { policy, ..pairs(3) });
    rig.settle();
    let before = if on_mmio { (rig.counter("status_reads"), rig.counter("acknowledgements")) } else { (0, 0) };
    rig.taken();
    for round in 0..4_u8 {
        for pair in 0..3 {
            rig.receive(pair, &[2 * round, pair as u8, 7]);
        }
    }
    let mut packets = std::mem::take(&mut *keeper.packets.lock().expect("one host thread"));
    packets.sort();
    let expected = (0..3_u16).flat_map(|pair| (0..4_u8).map(move |round| (pair, vec![2 * round, pair as u8, 7])));
    assert_eq!(packets, expected.collect::<Vec<_>>());
    let counted: u64 = (0..3).filter_map(|pair| net.receive_counters(pair)).map(|counters| counters.interrupts).sum();
    assert_eq!((counted, rig.faults()), (12, vec![]));
    let received = net.receive_counters(0).expect("pair 0");
    assert_eq!((received.packets, received.bytes), (4, 12));
    let after = if on_mmio { (rig.counter("status_reads"), rig.counter("acknowledgements")) } else { (0, 0) };
    (rig.taken(), after.0 - before.0, after.1 - before.1)
}

/// MULTI_IRQ: only vectors below 32 may be levels.
#[test]
fn the_thirty_third_vector_is_an_edge() {
    let config = NetConfig { policy: VectorPolicy::Ladder, ..pairs(33) };
    let (mut rig, net, keeper) = driven(Bus::edges(34), device(33), config);
    assert_eq!(net.vectors().rung, Rung::Each);
    for pair in [30, 31, 32] {
        rig.receive(pair, &[2, pair as u8]);
    }
    let packets = keeper.packets.lock().expect("one host thread");
    assert_eq!(*packets, [30, 31, 32].map(|pair: u16| (pair, vec![2, pair as u8])));
    assert_eq!(rig.counter("acknowledgements"), 0);
}

/// VIRTIO 5.1.4: VIRTIO_NET_S_LINK_UP.
#[test]
fn the_device_says_whether_its_link_is_up() {
    for link_up in [true, false] {
        let (mut rig, net, _) = driven(Bus::edges(3), model::NetConfig { link_up, ..device(2) }, pairs(2));
        assert_eq!(rig.boot(move |_| net.link_up()), link_up);
    }
}

/// A poll takes several batches, up to its weight.
#[test]
fn a_poll_takes_what_its_weight_allows() {
    let (mut rig, net, keeper) = driven(Bus::edges(3), device(2), pairs(2));
    rig.send_to(0, 50);
    let taken = rig.boot(move |_| {
        let off = SimHal.irq_save();
        SimHal.delay_ns(500_000);
        let taken = [40, 64, 64].map(|weight| net.poll_receive(0, weight));
        SimHal.irq_restore(off);
        taken
    });
    assert_eq!((taken, keeper.packets.lock().expect("one host thread").len()), ([40, 10, 0], 50));
}

/// MULTI_IRQ 4.2, rule 1: neither status read nor acknowledgement. 12 packets, 12 interrupts.
#[test]
fn an_edge_of_a_queue_costs_no_access() {
    assert_eq!(traffic(Bus::edges(4), VectorPolicy::Ladder), (vec![0, 4, 4, 4], 0, 0));
    assert_eq!(traffic(Bus::edges(3), VectorPolicy::Ladder), (vec![0, 8, 4], 0, 0));
}

/// MULTI_IRQ 4.2, rule 2: one acknowledgement, no read.
#[test]
fn a_level_of_a_queue_costs_one_write() {
    let levels = Bus::Mmio(vec![Trigger::Level; 4], true);
    assert_eq!(traffic(levels, VectorPolicy::Ladder), (vec![0, 4, 4, 4], 0, 12));
}

/// VIRTIO 4.2.3.3: without the extension, both for each interrupt, by wire 0 whatever its trigger.
#[test]
fn the_single_interrupt_costs_a_read_and_a_write() {
    for trigger in [Trigger::Edge, Trigger::Level] {
        let old = Bus::Mmio(vec![trigger], false);
        assert_eq!(traffic(old, VectorPolicy::Ladder), (vec![12], 12, 12));
        let new = Bus::Mmio(vec![trigger; 4], true);
        assert_eq!(traffic(new, VectorPolicy::Single), (vec![12, 0, 0, 0], 12, 12));
    }
}

/// MULTI_IRQ 5.2: a vector that the configuration shares pays the read.
#[test]
fn a_vector_shared_with_the_configuration_costs_its_status_read() {
    assert_eq!(traffic(Bus::edges(3), VectorPolicy::Modulo), (vec![4, 4, 4], 4, 0));
}

#[test]
fn pci_with_message_interrupts_is_the_same() {
    assert_eq!(traffic(Bus::Pci(4), VectorPolicy::Ladder), (vec![0, 4, 4, 4], 0, 0));
    assert_eq!(traffic(Bus::Pci(2), VectorPolicy::Ladder), (vec![0, 12], 0, 0));
}

/// Pairs 2 and 3 serve reflection: packets of pair p go out on pair 2 + p.
#[test]
fn packets_are_sent_back_from_where_they_lie() {
    for packed in [false, true] {
        let device = model::NetConfig { packed, ..device(4) };
        let (mut rig, net, _) = driven(Bus::edges(3), device, NetConfig { reflect: true, ..pairs(2) });
        for round in 0..200_u8 {
            rig.receive(u16::from(round % 2), &[round | 1, 0x0f, round]);
            assert_eq!(rig.sent(), [(2 + u16::from(round % 2), vec![round | 1, 0xf0, round])]);
        }
        let counters = net.receive_counters(0).expect("pair 0");
        assert_eq!((counters.reflected, counters.reflect_drops, rig.faults()), (100, 0, vec![]));
    }
}

/// `check` found this: nobody sends through the receive queues of pairs for reflection, but the device has their rings.
#[test]
fn receive_queues_of_pairs_for_reflection_keep_their_rings() {
    let (rig, _net, _) = driven(Bus::edges(3), device(4), NetConfig { reflect: true, ..pairs(2) });
    let given_back = rig.given_back.addresses();
    assert!(given_back.is_empty(), "{given_back:x?}");
}

/// Sending back is slower than receiving. One buffer stays for receiving; otherwise no packet could come.
#[test]
fn sending_back_never_takes_the_last_receive_buffer() {
    let host = model::HostConfig { transmit: Ps::from_ns(5_000_000), ..model::HostConfig::default() };
    let few = NetConfig { reflect: true, entries: 4, ..pairs(1) };
    let (mut rig, net, _) = driven(Bus::edges(3), model::NetConfig { host, ..device(2) }, few);
    for round in 0..8_u8 {
        rig.receive(0, &[1, round]);
    }
    (0..100).for_each(|_| rig.settle());
    let counters = net.receive_counters(0).expect("pair 0");
    assert_eq!((counters.packets, counters.reflected + counters.reflect_drops), (8, 8));
    assert!(counters.reflected >= 3, "{counters:?}");
}

#[test]
fn reflection_without_pairs_for_it_is_refused() {
    let mut rig = virtio_rig::rig(Bus::edges(3), model::Net::new(device(3)));
    let refused = rig.boot(|host| virtio_rig::net::drive(host, &NetConfig { reflect: true, ..pairs(2) }).err());
    assert_eq!(refused, Some(VirtioError::TooMany("the number of queue pairs", 4, 3)));
}

#[test]
fn packets_leave_and_their_buffers_come_back() {
    let (mut rig, net, keeper) = driven(Bus::edges(3), device(2), pairs(2));
    let driver = net.clone();
    rig.boot(move |_| {
        let buffer = memory(4096);
        for packet in 0..2 {
            buffer.write32(packet * 64 + 12, 0x0403_0200 | packet as u32);
        }
        let packet =
            |at: u64| TransmitPacket { tag: 70 + at, address: buffer.device_address().offset(at * 64), len_bytes: 16 };
        let sent = driver.send(1, &[packet(0), packet(1)]);
        assert_eq!((sent.accepted, sent.refused), (2, None));
        SimHal.delay_ns(100_000);
        driver.poll_transmit(1);
    });
    assert_eq!(rig.sent(), [(1, vec![0, 2, 3, 4]), (1, vec![1, 2, 3, 4])]);
    assert_eq!(*keeper.sent.lock().expect("one host thread"), [(1, 70), (1, 71)]);
    assert_eq!(net.transmit_counters(1).map(|counters| (counters.packets, counters.full)), Some((2, 0)));
}

/// MULTI_IRQ 3.1, rule 1 and 4.2, rule 3: a reset removes the mapping; a later interrupt finds nothing.
#[test]
fn a_reset_clears_the_mapping() {
    let (mut rig, net, keeper) = driven(Bus::edges(3), device(2), pairs(2));
    let driver = net.clone();
    assert_eq!(rig.boot(move |_| driver.shut_down()), Ok(()));
    assert_eq!(rig.boot(|host| (host.read(0x70), host.read(0xd4), host.queue_vectors(5))), (0, NONE, vec![NONE; 5]));
    for vector in 0..3 {
        rig.raise(vector);
    }
    assert_eq!(keeper.packets.lock().expect("one host thread").len(), 0);
}

/// MULTI_IRQ 4.2, rule 3.
#[test]
fn interrupts_without_reason_find_nothing_and_harm_nothing() {
    let (mut rig, net, keeper) = driven(Bus::edges(4), device(2), pairs(2));
    for vector in [0, 1, 2, 3, 1] {
        rig.raise(vector);
    }
    rig.receive(0, &[2, 2]);
    assert_eq!(*keeper.packets.lock().expect("one host thread"), [(0, vec![2, 2])]);
    let counters = net.receive_counters(0).expect("pair 0");
    assert_eq!((counters.interrupts, counters.empty_interrupts, net.configuration_changes()), (1, 2, 0));
}

#[test]
fn a_used_index_that_jumps_silences_its_queue_alone() {
    let (mut rig, net, keeper) = driven(Bus::edges(4), device(2), pairs(2));
    // Moves the used index of receive queue 0 by 1,000 entries that were not filled.
    rig.poke(machine::virtio::code::JUMP_USED, machine::virtio::jump_arg(0, 1000));
    rig.receive(0, &[2]);
    rig.receive(1, &[4]);
    assert_eq!(*keeper.packets.lock().expect("one host thread"), [(1, vec![4])]);
    assert!(matches!(net.receive_fault(0), Some(drivers::virtio::QueueFault::UsedIndex(0, _, 64))));
    assert_eq!(net.receive_fault(1), None);
}

fn with_coalescing(coalescing: CoalescingSupport) -> model::NetConfig {
    model::NetConfig { coalescing, ..device(2) }
}

#[test]
fn coalescing_is_set_for_all_and_for_one() {
    let (mut rig, net, _) = driven(Bus::edges(3), with_coalescing(CoalescingSupport::Exact), pairs(2));
    let told = |max_packets, max_usecs| Coalescing { max_packets, max_usecs };
    let driver = net.clone();
    let got = rig.boot(move |_| {
        driver.coalesce_receive(told(8, 64)).expect("taken");
        driver.coalesce_transmit(told(16, 32)).expect("taken");
        driver.coalesce_queue(2, told(4, 100)).expect("taken");
        [0, 1, 2, 3].map(|queue| driver.coalescing_of(queue).expect("told"))
    });
    assert_eq!(got, [told(8, 64), told(16, 32), told(4, 100), told(16, 32)]);
    assert_eq!([0, 1, 2, 3].map(|queue| rig.coalescing(queue)), [(8, 64), (16, 32), (4, 100), (16, 32)].map(Some));
    let driver = net.clone();
    let refused = rig.boot(move |_| driver.coalesce_queue(4, told(1, 1)));
    assert_eq!(refused, Err(VirtioError::TooMany("the queue's number", 4, 3)));
}

#[test]
fn packets_wait_as_they_were_told() {
    let (mut rig, net, keeper) = driven(Bus::edges(3), with_coalescing(CoalescingSupport::Exact), pairs(1));
    rig.boot(move |_| net.coalesce_receive(Coalescing { max_packets: 3, max_usecs: 2_000 })).expect("taken");
    rig.taken();
    rig.receive(0, &[2]);
    rig.receive(0, &[4]);
    assert_eq!((keeper.packets.lock().expect("one host thread").len(), rig.taken()), (0, vec![0, 0, 0]));
    rig.receive(0, &[6]);
    assert_eq!((keeper.packets.lock().expect("one host thread").len(), rig.taken()), (3, vec![0, 1, 0]));
    rig.receive(0, &[8]);
    for _ in 0..4 {
        rig.settle();
    }
    assert_eq!((keeper.packets.lock().expect("one host thread").len(), rig.taken()), (4, vec![0, 1, 0]));
}

#[test]
fn what_a_controller_programs_is_what_the_device_made_of_it() {
    let outcome = |support, whole: bool| {
        let (mut rig, net, _) = driven(Bus::edges(3), with_coalescing(support), pairs(2));
        rig.boot(move |_| {
            let setting = Setting::new(64, 32);
            if whole { CoalescedReceive(net).program(setting) } else { CoalescedQueue::new(net, 1).program(setting) }
        })
    };
    let exact = Outcome::Done(Setting::new(64, 32));
    assert_eq!([outcome(CoalescingSupport::Exact, true), outcome(CoalescingSupport::Exact, false)], [exact; 2]);
    let quantised = CoalescingSupport::Quantised { unit_usecs: 50 };
    assert_eq!([outcome(quantised, true), outcome(quantised, false)], [Outcome::Done(Setting::new(50, 32)); 2]);
    assert_eq!(outcome(CoalescingSupport::Refused, false), Outcome::Failed);
    assert_eq!(outcome(CoalescingSupport::Absent, true), Outcome::Failed);
}

//! The accounts at the end: what the drivers say of their devices and of what they did is what the machine and the harness
//! know. All is at rest.

use super::changes::check_size;
use super::rig::VirtioRig;
use super::stack::{Bus, VirtioStack, Which};
use crate::trials::same;
use drivers::virtio::block::{BlockOp, BlockQueueCounters, BlockRequest};
use drivers::virtio::net::{CoalescedQueue, CoalescedReceive, Coalescing, TransmitPacket};
use drivers::virtio::{Refusal, Rung, VectorMap, VirtioError};
use hal::{Dma as _, Hal as _};
use irq::moderation::{Moderated as _, Outcome, Setting};
use machine::SimHal;
use machine::virtio::net::Net;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Sectors of the disk.
pub(super) const SECTORS: u64 = 256;
/// Virtio's header of a packet, in bytes (VIRTIO 1.3, 5.1.6).
const HEADER_BYTES: usize = 12;
/// Packets that each pair sends.
const PACKETS: u64 = 3;

/// What the machine was built with.
#[derive(Clone, Copy)]
pub(super) struct Built {
    pub(super) queues: u16,
    pub(super) pairs: u16,
    pub(super) read_only: bool,
    pub(super) buses: [Bus; 2],
}

/// Counters of each of the disk's queues, and changes of the configuration that each driver knows of, before the last load.
#[derive(Default)]
pub(super) struct Before {
    queues: Vec<BlockQueueCounters>,
    changes: [u64; 2],
}

/// What the drivers of the disk and the network know of changes of the configuration.
fn changes(stack: &VirtioStack) -> [u64; 2] {
    let disk = stack.load.disk().map_or(0, |disk| disk.configuration_changes());
    [disk, stack.reflector.net().map_or(0, |net| net.configuration_changes())]
}

pub(super) fn before(stack: &VirtioStack) -> Before {
    let Some(disk) = stack.load.disk() else { return Before::default() };
    let queues = (0..disk.queues()).filter_map(|queue| disk.counters(queue)).collect();
    Before { queues, changes: changes(stack) }
}

/// Runs on the machine, behind the last load of `proof` requests a queue.
fn disk(stack: &VirtioStack, built: Built, before: &Before, proof: u64) -> Result<(), String> {
    let disk = stack.load.disk().ok_or("the disk is not bound")?;
    let info = disk.info();
    same("read-only", &built.read_only, &info.read_only())?;
    check_size(info.sectors);
    // The machine's disk sets no limit: as many whole sectors as a length can say.
    same("longest transfer", &(u32::MAX / 512 * 512), &info.transfer_bytes_max)?;
    same("queues", &built.queues, &disk.queues())?;
    for (queue, before) in (0..).zip(&before.queues) {
        same("in flight", &0, &disk.in_flight(queue))?;
        same("fault", &None, &disk.fault(queue))?;
        let now = disk.counters(queue).ok_or("no counters")?;
        let grown = |now: u64, before: u64| now.wrapping_sub(before);
        let done = [
            grown(now.requests, before.requests),
            grown(now.completed, before.completed),
            grown(now.errors, before.errors),
        ];
        same(&format!("requests, completed, errors of queue {queue}"), &[proof, proof, 0], &done)?;
        same("none is left", &now.requests, &now.completed)?;
        let told = grown(now.notifications, before.notifications);
        if told > proof || now.notifications == 0 {
            return Err(format!("queue {queue} was notified {told} times for {proof} requests"));
        }
    }
    let (none, sectors) = (built.queues, info.sectors);
    same("no queue", &(0, None, None), &(disk.in_flight(none), disk.fault(none), disk.counters(none)))?;
    vectors(disk.vectors(), built.buses[0])?;
    let request = |op, sector, len_bytes| BlockRequest { tag: 0, op, sector, buffer: stack.load.page(), len_bytes };
    let read = |sector, bytes| request(BlockOp::Read, sector, bytes);
    let refused = [
        (none, read(0, 512), Refusal::NotSupported),
        (0, read(0, 0), Refusal::Length(0)),
        (0, read(0, 513), Refusal::Length(513)),
        (0, read(sectors, 512), Refusal::Range(sectors, sectors)),
        (0, read(sectors - 1, 1024), Refusal::Range(sectors - 1, sectors)),
        (0, read(u64::MAX, 512), Refusal::Range(u64::MAX, sectors)),
        (0, request(BlockOp::Write, 0, 512), Refusal::NotSupported),
    ];
    for (queue, request, why) in refused {
        // A disk that is not read-only takes the last.
        if request.op == BlockOp::Write && !built.read_only {
            continue;
        }
        let submitted = disk.submit(queue, &[request]);
        let found = (submitted.accepted, submitted.refused);
        same(
            &format!("{:?} of {} bytes at {}", request.op, request.len_bytes, request.sector),
            &(0, Some(why)),
            &found,
        )?;
    }
    Ok(())
}

/// Each vector is one that device and platform have.
fn vectors(map: &VectorMap, bus: Bus) -> Result<(), String> {
    let (Bus::Mmio { wires: most, .. } | Bus::Pci { vectors: most }) = bus;
    let used = map.vectors();
    let single = map.rung == Rung::Single;
    if used == 0 || used > most || single && used != 1 || most == 1 && !single {
        return Err(format!("{used} vectors of {most}: {map:?}"));
    }
    Ok(())
}

/// Runs on the machine: the network's own words, and coalescing as it is set and read.
fn network(stack: &Arc<VirtioStack>, built: Built) -> Result<(), String> {
    let net = stack.reflector.net().ok_or("the network is not bound")?;
    let info = net.info();
    let expected = (Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]), 2 * built.pairs, None, built.pairs, true);
    same("network", &expected, &(info.mac, info.pairs_max, info.mtu, net.pairs(), net.link_up()))?;
    vectors(net.vectors(), built.buses[1])?;
    let none = built.pairs;
    same("no pair", &(None, None), &(net.transmit_counters(none), net.transmit_fault(none)))?;
    same("no pair", &(None, None), &(net.receive_counters(none).map(|_| ()), net.receive_fault(none)))?;
    let last = 4 * u64::from(built.pairs) - 1;
    let many = VirtioError::TooMany("the queue's number", last + 1, last);
    same("no queue", &Err(many), &net.coalescing_of(last as u16 + 1))?;
    same("no queue", &Err(many), &net.coalesce_queue(last as u16 + 1, Coalescing::default()))?;
    same("the last queue", &true, &net.coalescing_of(last as u16).is_ok())?;
    let of = |max_packets, max_usecs| Coalescing { max_packets, max_usecs };
    same("transmit", &Ok(()), &net.coalesce_transmit(of(70, 7)))?;
    same("receive", &Ok(()), &net.coalesce_receive(of(80, 8)))?;
    for pair in 0..built.pairs {
        same("fault", &(None, None), &(net.receive_fault(pair), net.transmit_fault(pair)))?;
        let (receive, transmit) = (2 * pair, 2 * pair + 1);
        let found = (net.coalescing_of(receive), net.coalescing_of(transmit));
        same("coalescing of all", &(Ok(of(80, 8)), Ok(of(70, 7))), &found)?;
        same("one", &Ok(()), &net.coalesce_queue(transmit, of(90, 9)))?;
        let setting = Setting::new(30 + u32::from(pair), 40);
        same("level", &Outcome::Done(setting), &CoalescedQueue::new(net.clone(), pair).program(setting))?;
        let found = (net.coalescing_of(receive), net.coalescing_of(transmit));
        same("coalescing of one", &(Ok(of(40, 30 + u32::from(pair))), Ok(of(90, 9))), &found)?;
    }
    let setting = Setting::new(50, 60);
    same("level of all", &Outcome::Done(setting), &CoalescedReceive(net.clone()).program(setting))?;
    same("its last queue", &Ok(of(60, 50)), &net.coalescing_of(2 * built.pairs - 2))
}

/// The bytes of packet `number` of a pair, whose length differs from the others'.
fn packet(pair: u16, number: u64) -> Vec<u8> {
    vec![0xf0 | pair as u8; 60 + number as usize]
}

/// Runs on the machine: sends packets by each pair, and takes them back.
fn send(stack: &VirtioStack, built: Built) -> Result<(), String> {
    let net = stack.reflector.net().ok_or("the network is not bound")?;
    let buffer = SimHal.dma_alloc(4096, 4096).map_err(|error| format!("{error:?}"))?;
    let counters = |pair| net.transmit_counters(pair).ok_or("no counters");
    for pair in 0..built.pairs {
        let before = counters(pair)?;
        stack.reflector.transmitted.store(0, Relaxed);
        for number in 0..PACKETS {
            let bytes = packet(pair, number);
            let at = 1024 * number as usize;
            (0..HEADER_BYTES).for_each(|header| buffer.write8(at + header, 0));
            (0..).zip(&bytes).for_each(|(index, &byte)| buffer.write8(at + HEADER_BYTES + index, byte));
            let address = buffer.device_address().offset(at as u64);
            let tag = 1 << (8 * number);
            let sent =
                net.send(pair, &[TransmitPacket { tag, address, len_bytes: (HEADER_BYTES + bytes.len()) as u32 }]);
            same("sent", &(1, None), &(sent.accepted, sent.refused))?;
        }
        let tags = (0..PACKETS).map(|number| 1 << (8 * number)).sum();
        for _ in 0..200 {
            net.poll_transmit(pair);
            if stack.reflector.transmitted.load(Relaxed) == tags {
                break;
            }
            SimHal.delay_ns(10_000);
        }
        same("packets that came back", &tags, &stack.reflector.transmitted.load(Relaxed))?;
        let now = counters(pair)?;
        let told = now.notifications - before.notifications;
        same("packets, full", &(PACKETS, 0), &(now.packets - before.packets, now.full - before.full))?;
        if !(1..=PACKETS).contains(&told) {
            return Err(format!("{told} notifications of {PACKETS} packets"));
        }
    }
    let sent = net.send(built.pairs, &[]);
    same("no pair", &(0, Some(Refusal::NotSupported)), &(sent.accepted, sent.refused))
}

/// Judges all of it.
///
/// # Panics
/// If anything is not as it must be.
pub(super) fn judge(rig: &mut VirtioRig, built: Built, before: Before, proof: u64) {
    let told = rig.boot(move |stack| {
        for (now, before) in changes(stack).into_iter().zip(before.changes) {
            // One is announced in the last load, and earlier ones may come with it.
            if now <= before {
                return Err(format!(
                    "the driver knows of {now} changes of the configuration, and of {before} before the last"
                ));
            }
        }
        disk(stack, built, &before, proof).map_err(|wrong| format!("disk: {wrong}"))?;
        network(stack, built).map_err(|wrong| format!("network: {wrong}"))
    });
    told.unwrap_or_else(|wrong| panic!("{wrong}"));
    let (first, settings) = rig.with(Which::Network, |net: &mut Net| {
        net.take_received();
        let of = |queue| net.coalescing(queue).map(|it| (it.max_packets, it.max_usecs));
        (of(0), (0..2 * built.pairs).map(of).collect::<Vec<_>>())
    });
    let expected = |queue: usize| Some(if queue.is_multiple_of(2) { (60, 50) } else { (90, 9) });
    let expected: Vec<_> = (0..settings.len()).map(expected).collect();
    assert_eq!((first, settings), (Some((60, 50)), expected), "coalescing in the device");
    rig.boot(move |stack| send(stack, built)).unwrap_or_else(|wrong| panic!("network: {wrong}"));
    let received = rig.with(Which::Network, |net: &mut Net| net.take_received());
    for pair in 0..built.pairs {
        let own: Vec<_> = received.iter().filter(|(of, _)| *of == pair).map(|(_, bytes)| bytes.clone()).collect();
        let expected: Vec<_> = (0..PACKETS).map(|number| packet(pair, number)).collect();
        assert_eq!(own, expected, "packets of pair {pair} at the host");
    }
}

//! Two network devices on one hub. Each sends frames to the other, and the receiver checks every byte.

use super::{Connect, Found, connect_all, interrupts, text};
use crate::cases::{Fixture, Options, count, expect, settle, wait};
use crate::kernel::Bare;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use drivers::virtio::net::{Net, NetConfig, Packet, Receiver, TransmitPacket, Verdict};
use hal::{Affinity, CpuId, Dma, Hal, Lock, ThreadId, ThreadSpec, Threads};
use irq::Irq;
use spec::virtio::net::header;
use spin::Once;

/// Maximum of frames in flight: fewer than a device's receive buffers, so that it never has to drop one.
const WINDOW: u64 = 32;
/// Room for a frame with virtio's header.
const FRAME_BYTES: usize = 1536;
/// Ethernet's header: both addresses and the type.
const ETHERNET_BYTES: usize = 14;
/// The first type for local experiments (IEEE 802, "EtherType values").
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Maximum of packets for one poll.
const WEIGHT: u32 = 64;

/// Length of frame `number`. The lengths go from Ethernet's shortest to its longest.
fn frame_bytes(number: u64) -> usize {
    60 + (number as usize * 37) % (1514 - 60 + 1)
}

/// Byte `index` of frame `number`, after Ethernet's header.
fn byte(number: u64, index: usize) -> u8 {
    match index - ETHERNET_BYTES {
        at @ 0..8 => number.to_le_bytes()[at],
        at => (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at as u64 * 0x0101_0101_0101) >> 24) as u8,
    }
}

/// One device's receiving side: the next frame that it expects, and the thread that polls it.
#[derive(Default)]
struct Ear {
    poller: Once<ThreadId>,
    ready: AtomicBool,
    received: AtomicU64,
    /// Buffers of the sending side that the device has finished with.
    sent: AtomicU64,
    wrong: Once<String>,
}

impl Ear {
    fn check(&self, packet: &Packet<'_, <Bare as Hal>::Dma>) -> Result<(), String> {
        let number = self.received.load(SeqCst);
        let at = |index: usize| packet.memory.read8(packet.offset_bytes + index);
        if packet.len_bytes as usize != frame_bytes(number) {
            return Err(format!("frame {number} has {} bytes, not {}", packet.len_bytes, frame_bytes(number)));
        }
        if [at(12), at(13)] != ETHER_TYPE {
            return Err(format!("frame {number} is of type {:02x}{:02x}", at(12), at(13)));
        }
        let wrong = (ETHERNET_BYTES..packet.len_bytes as usize).find(|&index| at(index) != byte(number, index));
        wrong.map_or(Ok(()), |index| Err(format!("byte {index} of frame {number} is {:#x}", at(index))))
    }
}

impl Receiver<Bare> for Ear {
    fn ready(&self, _pair: u16) {
        self.ready.store(true, SeqCst);
        Bare.wake(*self.poller.get().expect("the thread starts before the device"));
    }

    fn received(&self, packet: Packet<'_, <Bare as Hal>::Dma>) -> Verdict {
        if let Err(why) = self.check(&packet) {
            self.wrong.call_once(|| why);
        }
        self.received.fetch_add(1, SeqCst);
        Verdict::Done
    }

    fn transmitted(&self, _pair: u16, _tag: u64) {
        self.sent.fetch_add(1, SeqCst);
    }
}

/// A device, its receiver and its line.
struct Card {
    net: Arc<Net<Bare>>,
    ear: Arc<Ear>,
    line: Irq,
    /// A buffer for each frame of the window.
    frames: Lock<Bare, <Bare as Hal>::Dma>,
}

impl Card {
    fn open(system: &Fixture, found: &Found, connect: Connect<'_>) -> Result<Self, String> {
        let ear = Arc::new(Ear::default());
        let net = Net::open(Bare, found.transport.clone(), &NetConfig::default(), ear.clone()).map_err(text)?;
        let lines = connect_all(system, found, net.vectors(), net.handlers(), connect)?;
        let (polled, heard) = (net.clone(), ear.clone());
        let body = move || {
            loop {
                if !heard.ready.swap(false, SeqCst) {
                    Bare.park();
                    continue;
                }
                while polled.poll_receive(0, WEIGHT) == WEIGHT || polled.rearm_receive(0) {}
            }
        };
        let spec = ThreadSpec { name: "receive", affinity: Affinity::Cpu(CpuId(0)), urgent: true };
        let thread = Bare.spawn(spec, Box::new(body)).map_err(text)?;
        ear.poller.call_once(|| thread);
        net.start().map_err(text)?;
        let frames = Bare.dma_alloc(WINDOW as usize * FRAME_BYTES, 64).map_err(text)?;
        Ok(Self { net, ear, line: lines[0], frames: Lock::new(Bare, frames) })
    }

    fn address(&self) -> Result<[u8; 6], String> {
        self.net.info().mac.ok_or("the device has no address".into())
    }

    /// Sends frame `number` from its buffer, which must be free.
    fn send(&self, number: u64, to: [u8; 6]) -> Result<(), String> {
        let (len, place) = (frame_bytes(number), (number % WINDOW) as usize * FRAME_BYTES);
        let frames = self.frames.lock();
        (0..header::BYTES).for_each(|index| frames.write8(place + index, 0));
        let ethernet = to.into_iter().chain(self.address()?).chain(ETHER_TYPE);
        let body = (ETHERNET_BYTES..len).map(|index| byte(number, index));
        let bytes = ethernet.chain(body);
        bytes.enumerate().for_each(|(index, byte)| frames.write8(place + header::BYTES + index, byte));
        let address = frames.device_address().offset(place as u64);
        let packet = TransmitPacket { tag: number, address, len_bytes: (header::BYTES + len) as u32 };
        let sent = self.net.send(0, &[packet]);
        if sent.accepted == 1 { Ok(()) } else { Err(format!("frame {number} was refused: {:?}", sent.refused)) }
    }
}

/// Sends `rounds` frames from the first device to the second and back, `window` in flight.
fn exchange(from: &Card, to: &Card, numbers: core::ops::Range<u64>, window: u64, cpus: u32) -> Result<(), String> {
    let address = to.address()?;
    for number in numbers.clone() {
        let room = || {
            from.net.poll_transmit(0);
            let settled = to.ear.received.load(SeqCst).min(from.ear.sent.load(SeqCst));
            number < settled + window
        };
        wait("room for a frame", room)?;
        from.send(number, address)?;
    }
    wait("the last frame", || to.ear.received.load(SeqCst) >= numbers.end)?;
    settle(cpus)?;
    to.ear.wrong.get().map_or(Ok(()), |why| Err(why.clone()))
}

/// Frames between two devices on one hub, both ways: first `rounds` one at a time, each of which must interrupt once,
/// then as many with a window of 32. Every frame must arrive once, in order, unchanged.
///
/// # Errors
/// The first failure.
pub(in crate::cases) fn net(
    system: &Fixture,
    found: &[Found],
    connect: Connect<'_>,
    options: &Options,
) -> Result<(), String> {
    let (rounds, cpus) = (options.number("rounds", 1000)?, system.platform.cpus());
    let [one, two] = found else { return Err(format!("{} network devices; two are wanted", found.len())) };
    let cards = [Card::open(system, one, connect)?, Card::open(system, two, connect)?];
    let ways = [(&cards[0], &cards[1]), (&cards[1], &cards[0])];
    crate::println!("begin");
    system.mark();
    let mut one_by_one = Vec::new();
    for (from, to) in ways {
        let before = interrupts(system, to.line);
        exchange(from, to, 0..rounds, 1, cpus)?;
        one_by_one.push(interrupts(system, to.line) - before);
    }
    for (from, to) in ways {
        exchange(from, to, rounds..2 * rounds, WINDOW, cpus)?;
    }
    system.mark();
    crate::println!("end");
    let received: u64 = cards.iter().map(|card| card.ear.received.load(SeqCst)).sum();
    count("frames", received);
    count("interrupts", cards.iter().map(|card| interrupts(system, card.line)).sum());
    count("interrupts_one_by_one", one_by_one.iter().sum());
    count("strays", system.strays());
    expect("frames", received, 4 * rounds)?;
    for (card, one_by_one) in cards.iter().zip(one_by_one.into_iter().rev()) {
        let counters = card.net.receive_counters(0).ok_or("a receive queue")?;
        expect("frames of the driver's count", counters.packets, 2 * rounds)?;
        expect("runts", counters.runts, 0)?;
        expect("interrupts of frames one by one", one_by_one, rounds)?;
    }
    expect("strays", system.strays(), 0)?;
    system.check()
}

//! A network driver that polls at the end of its interrupts and keeps, or sends back, what it receives.

use super::{Bus, Host, Rig, bytes, rig};
use drivers::virtio::VirtioError;
use drivers::virtio::net::{Net, NetConfig, Packet, ReceivePoll, Receiver, Verdict};
use hal::{CpuId, Dma as _};
use irq::moderation::Tuner;
use irq::poll::{PollConfig, SoftId, SoftPoll};
use machine::SimHal;
use machine::virtio::net as model;
use std::sync::{Arc, Mutex, OnceLock};

pub type NetDriver = Arc<Net<SimHal>>;

/// Keeps every packet. A packet whose first byte is odd is sent back with the bits of its second byte inverted.
#[derive(Default)]
pub struct Keeper {
    poll: OnceLock<(Arc<SoftPoll<SimHal>>, Vec<SoftId>)>,
    pub packets: Mutex<Vec<(u16, Vec<u8>)>>,
    pub sent: Mutex<Vec<(u16, u64)>>,
}

impl Receiver<SimHal> for Keeper {
    fn ready(&self, pair: u16) {
        let (poll, ids) = self.poll.get().expect("started");
        poll.schedule(ids[usize::from(pair)]);
    }

    fn received(&self, packet: Packet<'_, super::DmaBuffer>) -> Verdict {
        let range = packet.offset_bytes..packet.offset_bytes + packet.len_bytes as usize;
        let kept = bytes(packet.memory, range);
        let back = kept.first().is_some_and(|first| first % 2 == 1);
        if back && kept.len() > 1 {
            packet.memory.write8(packet.offset_bytes + 1, !kept[1]);
        }
        self.packets.lock().expect("one host thread").push((packet.pair, kept));
        if back { Verdict::Reflect } else { Verdict::Done }
    }

    fn transmitted(&self, pair: u16, tag: u64) {
        self.sent.lock().expect("one host thread").push((pair, tag));
    }
}

/// The device's model.
pub fn device(pairs: u16) -> model::NetConfig {
    model::NetConfig { pairs, queue_entries: 64, ..model::NetConfig::default() }
}

/// Brings the driver up to its start.
pub fn drive(host: &Host, config: &NetConfig) -> Result<(NetDriver, Arc<Keeper>), VirtioError> {
    drive_tuned(host, config, None)
}

/// The same, with the packets of pair 0 reported to a tuner.
pub fn drive_tuned(
    host: &Host,
    config: &NetConfig,
    tuner: Option<Arc<Tuner<SimHal>>>,
) -> Result<(NetDriver, Arc<Keeper>), VirtioError> {
    let keeper = Arc::new(Keeper::default());
    let net = Net::open(SimHal, host.transport(), config, keeper.clone())?;
    let mut poll = SoftPoll::new(SimHal, 1, PollConfig::default()).expect("a budget");
    let ids = (0..net.pairs())
        .map(|pair| {
            let tuner = tuner.clone().filter(|_| pair == 0);
            poll.add(CpuId(0), 64, Arc::new(ReceivePoll::new(net.clone(), pair)), tuner).expect("a weight")
        })
        .collect();
    let poll = Arc::new(poll);
    assert!(keeper.poll.set((poll.clone(), ids)).is_ok());
    host.install(net.handlers());
    host.poll_at_exit(poll);
    net.start()?;
    Ok((net, keeper))
}

/// A machine with a driven device.
pub fn driven(bus: Bus, device: model::NetConfig, config: NetConfig) -> (Rig, NetDriver, Arc<Keeper>) {
    let mut rig = rig(bus, model::Net::new(device));
    let (net, keeper) = rig.boot(move |host| drive(host, &config)).expect("a device");
    (rig, net, keeper)
}

impl Rig {
    fn net<R>(&mut self, look: impl FnOnce(&mut model::Net) -> R) -> R {
        let mut look = Some(look);
        let device = self.device;
        let on_mmio = self.machine.with_model(device, |mmio: &mut machine::virtio::VirtioMmio<model::Net>| {
            (look.take().expect("once"))(mmio.device())
        });
        on_mmio.unwrap_or_else(|| {
            let on_pci = self.machine.with_model(device, |pci: &mut machine::virtio::VirtioPci<model::Net>| {
                (look.take().expect("once"))(pci.device())
            });
            on_pci.expect("a network device")
        })
    }

    /// A packet arrives for `pair`, and the driver has all the time that it wants.
    pub fn receive(&mut self, pair: u16, packet: &[u8]) {
        let packet = packet.to_vec();
        self.net(|net| net.inject(pair, packet));
        self.poke(model::code::INJECTED, pair.into());
    }

    /// Packets that arrive for `pair` from now on, as soon as the machine runs.
    pub fn send_to(&mut self, pair: u16, packets: usize) {
        self.net(|net| (0..packets).for_each(|_| net.inject(pair, vec![2])));
        let now = self.machine.now();
        (0..packets).for_each(|_| self.machine.poke(self.device, now, model::code::INJECTED, pair.into()));
    }

    /// The results of each flow.
    pub fn flows(&mut self) -> Vec<model::FlowCounts> {
        self.net(|net| net.flows())
    }

    /// Packets that the guest has sent since the last call.
    pub fn sent(&mut self) -> Vec<(u16, Vec<u8>)> {
        self.net(model::Net::take_received)
    }

    /// The coalescing that the device applies to a queue: packets, microseconds.
    pub fn coalescing(&mut self, queue: u16) -> Option<(u32, u32)> {
        self.net(|net| net.coalescing(queue)).map(|coalescing| (coalescing.max_packets, coalescing.max_usecs))
    }
}

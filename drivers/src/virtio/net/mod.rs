//! A network device (VIRTIO 5.1): several receive and transmit queues, reflection in the receive poll, coalescing.
//!
//! Receive queues are polled with a budget: their interrupt turns itself off and reports to [`Receiver::ready`], whose
//! embedder schedules the [`ReceivePoll`] with [`irq::poll::SoftPoll`].
//!
//! **Reflection**, as XDP does it: the receiver looks at a packet where it lies and may send it back. It goes out, in its
//! receive buffer, on a transmit queue that belongs to this receive queue alone, under the lock that the poll holds
//! anyway: no other CPU ever touches it, and no lock is taken for it.

mod coalesce;
mod control;
mod receive;
mod transmit;

pub use coalesce::{CoalescedQueue, CoalescedReceive, Coalescing};
pub use receive::{Packet, ReceiveCounters, ReceivePoll, Receiver, Verdict};
pub use transmit::{Sent, TransmitCounters, TransmitPacket};

use super::session::{self, QueueWish, Served, Wants, read_config};
use super::transport::Transport;
use super::{Queue, VectorMap, VectorPolicy, VirtioError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use control::Control;
use hal::{Hal, Lock, Word};
use irq::Action;
use receive::ReceiveSide;
use spec::virtio::feature::Features;
use spec::virtio::{DeviceId, net};
use transmit::TransmitSide;

/// How a device is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetConfig {
    /// Queue pairs for ordinary traffic; above 1 needs VIRTIO_NET_F_MQ.
    pub pairs: u16,
    /// Whether each of them has one more transmit queue for reflection, out of as many further pairs.
    pub reflect: bool,
    /// Most entries of a queue; the device may have fewer.
    pub entries: u16,
    /// Bytes of a receive buffer, a multiple of 8: the header of 12, the link's of 14, and the device's MTU where it has one.
    pub buffer_bytes: u32,
    /// How vectors are shared out.
    pub policy: VectorPolicy,
}

impl Default for NetConfig {
    /// One pair of 256 entries, packets up to 1,524 bytes.
    fn default() -> Self {
        Self { pairs: 1, reflect: false, entries: 256, buffer_bytes: 1_536, policy: VectorPolicy::Ladder }
    }
}

/// Properties that a device reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetInfo {
    /// The negotiated features.
    pub features: Features,
    /// Its address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Most queue pairs.
    pub pairs_max: u16,
    /// Largest packet without the link's header, in bytes, if it says.
    pub mtu: Option<u16>,
}

/// A network device.
pub struct Net<H: Hal> {
    hal: H,
    transport: Arc<dyn Transport>,
    info: NetInfo,
    map: VectorMap,
    /// Pairs that the device must use, including those for reflection.
    pairs: u16,
    receive: Vec<Lock<H, ReceiveSide<H>>>,
    transmit: Vec<Lock<H, TransmitSide<H>>>,
    control: Option<Control<H>>,
    /// Receive queues of the pairs for reflection: without buffers, but started, so the device keeps their rings.
    _idle: Lock<H, Vec<Queue<H>>>,
    receiver: Arc<dyn Receiver<H>>,
    configuration_changes: H::Word,
}

const WANTED: Features =
    Features::of(&[net::MAC, net::MTU, net::STATUS, net::CTRL_VQ, net::MQ, net::NOTF_COAL, net::VQ_NOTF_COAL]);

/// Pairs that the device has, given these features.
fn pairs_max(transport: &dyn Transport, features: Features) -> Result<u16, VirtioError> {
    // Without a control queue only the first pair can be used (VIRTIO 5.1.6.5.5).
    if !features.has(net::MQ) || !features.has(net::CTRL_VQ) {
        return Ok(1);
    }
    let pairs = read_config(transport, || transport.config16(net::config::MAX_QUEUE_PAIRS))?;
    if (1..=net::QUEUE_PAIRS_MAX).contains(&pairs) {
        Ok(pairs)
    } else {
        Err(VirtioError::Config("max_virtqueue_pairs", pairs.into()))
    }
}

/// The header of an Ethernet frame, in bytes.
const LINK_HEADER_BYTES: u32 = 14;

impl NetConfig {
    /// A packet of the device's MTU fits into a buffer (VIRTIO 5.1.4.2).
    fn validate(&self, info: &NetInfo) -> Result<(), VirtioError> {
        let most = self.buffer_bytes.saturating_sub(net::header::BYTES as u32 + LINK_HEADER_BYTES);
        match info.mtu {
            Some(mtu) if u32::from(mtu) > most => {
                Err(VirtioError::TooMany("the device's MTU, for the length of these buffers,", mtu.into(), most.into()))
            }
            _ => Ok(()),
        }
    }

    fn all_pairs(&self) -> u32 {
        u32::from(self.pairs) * if self.reflect { 2 } else { 1 }
    }

    /// Receive and transmit queues of all pairs, the ordinary ones first, then the control queue.
    fn wishes(&self, transport: &dyn Transport, features: Features) -> Result<Vec<QueueWish>, VirtioError> {
        let most = pairs_max(transport, features)?;
        if self.all_pairs() > most.into() {
            return Err(VirtioError::TooMany("the number of queue pairs", self.all_pairs().into(), most.into()));
        }
        let wish = |queue, interrupts| QueueWish { queue, entries: self.entries, interrupts };
        let mut wishes = Vec::new();
        for pair in 0..self.all_pairs() as u16 {
            // Pairs start whole; receive queues beyond the ordinary ones stay without buffers.
            wishes.push(wish(net::receive_queue(pair), pair < self.pairs));
            wishes.push(wish(net::transmit_queue(pair), false));
        }
        if features.has(net::CTRL_VQ) {
            wishes.push(QueueWish { entries: control::ENTRIES, ..wish(net::control_queue(most), false) });
        }
        Ok(wishes)
    }
}

impl<H: Hal> Net<H> {
    /// Brings a device up to its DRIVER_OK, which [`Net::start`] sets once the [handlers](Net::handlers) are in place.
    ///
    /// # Errors
    /// [`VirtioError`]; the device is then marked as failed.
    pub fn open(
        hal: H,
        transport: Arc<dyn Transport>,
        config: &NetConfig,
        receiver: Arc<dyn Receiver<H>>,
    ) -> Result<Arc<Self>, VirtioError> {
        if config.pairs == 0 {
            return Err(VirtioError::Config("pairs", 0));
        }
        let queues = |transport: &dyn Transport, features| config.wishes(transport, features);
        let wants = Wants { device: DeviceId::NET, features: WANTED, policy: config.policy, queues: &queues };
        session::open(hal, &*transport, &wants, |session| {
            let info = read_info(&*transport, session.features)?;
            config.validate(&info)?;
            let sides = Sides::new(hal, session.queues, config, &info)?;
            Ok(Arc::new(Self {
                hal,
                transport: transport.clone(),
                info,
                map: session.map,
                pairs: config.all_pairs() as u16,
                receive: sides.receive,
                transmit: sides.transmit,
                control: sides.control,
                _idle: Lock::new(hal, sides.idle),
                receiver,
                configuration_changes: H::Word::new(0),
            }))
        })
    }

    /// A handler for each vector, by its number; one for the single interrupt. The caller requests the lines with them
    /// before [`Net::start`].
    pub fn handlers(self: &Arc<Self>) -> Vec<Arc<dyn Action>> {
        session::handlers(self.hal, &self.transport, &self.map, self)
    }

    /// Starts the device, fills the receive queues, and makes it use all pairs.
    ///
    /// # Errors
    /// When the device refuses the number of pairs. It has started, and uses its buffers: [`Net::shut_down`] is left.
    pub fn start(&self) -> Result<(), VirtioError> {
        session::start(&*self.transport);
        for side in &self.receive {
            let mut side = side.lock();
            side.fill();
            side.publish(&*self.transport);
        }
        if self.pairs > 1 { self.set_pairs(self.pairs) } else { Ok(()) }
    }

    /// Properties that the device reports.
    pub fn info(&self) -> NetInfo {
        self.info
    }

    /// How its vectors are mapped.
    pub fn vectors(&self) -> &VectorMap {
        &self.map
    }

    /// Ordinary queue pairs.
    pub fn pairs(&self) -> u16 {
        self.receive.len() as u16
    }

    /// Configuration changes that were announced.
    pub fn configuration_changes(&self) -> u64 {
        self.configuration_changes.get()
    }

    /// True if the link is up. A device that does not report its link counts as up.
    pub fn link_up(&self) -> bool {
        !self.info.features.has(net::STATUS)
            || net::LinkStatus::from_bits(self.transport.config16(net::config::STATUS)).link_up()
    }

    /// Resets the device: it uses no buffer any more. Packets that were being sent come back by
    /// [`Receiver::transmitted`].
    ///
    /// # Errors
    /// [`VirtioError::ResetTimeout`]; the buffers then stay the device's.
    pub fn shut_down(&self) -> Result<(), VirtioError> {
        for side in &self.receive {
            side.lock().stop();
        }
        for side in &self.transmit {
            side.lock().stop();
        }
        session::reset(self.hal, &*self.transport)?;
        for (pair, side) in (0..).zip(&self.transmit) {
            let mut side = side.lock();
            while let Some(tag) = side.reclaim() {
                self.receiver.transmitted(pair, tag);
            }
        }
        Ok(())
    }
}

/// The session's queues, each in its place.
struct Sides<H: Hal> {
    receive: Vec<Lock<H, ReceiveSide<H>>>,
    transmit: Vec<Lock<H, TransmitSide<H>>>,
    control: Option<Control<H>>,
    idle: Vec<Queue<H>>,
}

impl<H: Hal> Sides<H> {
    fn new(hal: H, queues: Vec<Queue<H>>, config: &NetConfig, info: &NetInfo) -> Result<Self, VirtioError> {
        let mut sides = Self { receive: Vec::new(), transmit: Vec::new(), control: None, idle: Vec::new() };
        let (mut receive, mut reflect) = (Vec::new(), Vec::new());
        let control = info.features.has(net::CTRL_VQ).then(|| net::control_queue(info.pairs_max));
        for queue in queues {
            let (pair, is_transmit) = (queue.number() / 2, queue.number() % 2 == 1);
            if Some(queue.number()) == control {
                sides.control = Some(Control::new(hal, queue)?);
            } else if pair >= config.pairs {
                if is_transmit { &mut reflect } else { &mut sides.idle }.push(queue);
            } else if is_transmit {
                sides.transmit.push(Lock::new(hal, TransmitSide::new(queue)));
            } else {
                receive.push(queue);
            }
        }
        let mut reflect = reflect.into_iter();
        for queue in receive {
            let side = ReceiveSide::new(hal, queue, reflect.next(), config.buffer_bytes)?;
            sides.receive.push(Lock::new(hal, side));
        }
        Ok(sides)
    }
}

fn read_info(transport: &dyn Transport, features: Features) -> Result<NetInfo, VirtioError> {
    let pairs_max = pairs_max(transport, features)?;
    let (mac, mtu) = read_config(transport, || {
        let mac = features
            .has(net::MAC)
            .then(|| core::array::from_fn(|index| transport.config8(net::config::MAC + index as u32)));
        (mac, features.has(net::MTU).then(|| transport.config16(net::config::MTU)))
    })?;
    Ok(NetInfo { features, mac, pairs_max, mtu })
}

impl<H: Hal> Served for Net<H> {
    fn queue_interrupt(&self, queue: u16) {
        if queue.is_multiple_of(2)
            && let Some(side) = self.receive.get(usize::from(queue / 2))
        {
            // Another CPU holds the lock and polls, and may have made its last look already. Ask it to look again.
            if side.try_lock().is_none_or(|mut side| side.interrupted()) {
                self.receiver.ready(queue / 2);
            }
        }
    }

    fn configuration_changed(&self) {
        self.configuration_changes.fetch_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::tests::{EIGHT, mmio};

    /// VIRTIO 5.1.4.2: 12 bytes of the header and 14 of Ethernet's beside the MTU.
    #[test]
    fn a_buffer_has_room_for_the_devices_mtu() {
        let info = |mtu| NetInfo { features: Features::NONE, mac: None, pairs_max: 1, mtu };
        let config = NetConfig::default();
        assert_eq!([None, Some(68), Some(1_510)].map(|mtu| config.validate(&info(mtu))), [Ok(()); 3]);
        let error = config.validate(&info(Some(9_000))).unwrap_err();
        assert!(matches!(error, VirtioError::TooMany(_, 9_000, 1_510)), "{error}");
        assert_eq!(NetConfig { buffer_bytes: 9_032, ..config }.validate(&info(Some(9_000))), Ok(()));
    }

    /// VIRTIO 5.1.3.1: VIRTIO_NET_F_MQ requires VIRTIO_NET_F_CTRL_VQ. Only a command makes the device use further pairs
    /// (5.1.6.5.5), and without both the control queue follows the first pair (5.1.2).
    #[test]
    fn a_device_without_a_control_queue_has_one_pair() {
        let (script, transport) = mmio(0, 0, 0, EIGHT);
        // max_virtqueue_pairs stands behind the address (6 bytes) and the status (2).
        script.answer(0x108, &[4]);
        let wishes = |pairs, features| {
            let wishes = NetConfig { pairs, ..NetConfig::default() }.wishes(&transport, Features::of(features))?;
            Ok(wishes.iter().map(|wish| wish.queue).collect::<Vec<_>>())
        };
        assert_eq!(wishes(2, &[net::CTRL_VQ, net::MQ]), Ok(Vec::from([0, 1, 2, 3, 8])));
        for (features, queues) in [(&[net::MQ][..], &[0, 1][..]), (&[net::CTRL_VQ], &[0, 1, 2]), (&[], &[0, 1])] {
            assert_eq!(wishes(1, features), Ok(queues.to_vec()), "{features:?}");
            assert_eq!(
                wishes(2, features),
                Err(VirtioError::TooMany("the number of queue pairs", 2, 1)),
                "{features:?}"
            );
        }
    }
}

//! The control queue (VIRTIO 5.1.6.5): queue pairs, and both classes of coalescing.

use super::coalescing::Coalescing;
use super::{Net, transmit_or_receive};
use crate::virtio::Bus;
use crate::virtio::ring::Chain;
use spec::virtio::net::{
    Ack, Class, MQ_VQ_PAIRS_SET, NOTF_COAL, NOTF_COAL_RX_SET, NOTF_COAL_TX_SET, NOTF_COAL_VQ_GET, NOTF_COAL_VQ_SET,
    VQ_NOTF_COAL, coalescing, coalescing_queue,
};

/// Class, command and the longest data of a command that is known here.
const COMMAND_BYTES: usize = 2 + coalescing_queue::BYTES;

fn field16(data: &[u8], offset: usize) -> Option<u16> {
    let bytes = data.get(offset..offset + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().expect("2 bytes")))
}

fn field32(data: &[u8], offset: usize) -> Option<u32> {
    let bytes = data.get(offset..offset + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
}

fn setting(data: &[u8], offset: usize) -> Option<Coalescing> {
    Some(Coalescing {
        max_packets: field32(data, offset + coalescing::MAX_PACKETS)?,
        max_usecs: field32(data, offset + coalescing::MAX_USECS)?,
    })
}

impl Net {
    /// Serves every command that waits, and asks for a kick for the next one.
    pub(super) fn serve_control(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        self.serve_commands(bus, queue);
        while bus.want_kicks(queue, true) {
            self.serve_commands(bus, queue);
        }
    }

    fn serve_commands(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        let mut chain = Chain::default();
        while bus.take(queue, &mut chain) {
            let mut bytes = [0; COMMAND_BYTES];
            let read = chain.read(bus.world(), 0, &mut bytes).unwrap_or(0);
            let room = chain.writable_bytes();
            if read < 2 || room == 0 {
                let text = format!("{} bytes to read, {room} to write", chain.readable_bytes());
                return bus.fail("virtio-net control command without room for command or answer", text);
            }
            let result = self.command(bus, (bytes[0], bytes[1]), &bytes[2..read]);
            // Writes the ack, and behind it the result (VIRTIO 5.1.6.5). A missing buffer for either is an error of
            // the driver.
            let answer = match result {
                Some(result) if (result.len() as u64) < room => [&[Ack::OK.0][..], &result].concat(),
                _ => vec![Ack::ERR.0],
            };
            // Checked when the chain was taken: it is memory.
            let _ = chain.write(bus.world(), 0, &answer);
            self.counters.commands += 1;
            bus.fill(queue, chain.head, answer.len() as u32);
            bus.publish(queue);
            bus.notify(queue);
        }
    }

    /// Runs one command; its result, or none for an error.
    fn command(&mut self, bus: &mut Bus<'_, '_>, (class, command): (u8, u8), data: &[u8]) -> Option<Vec<u8>> {
        match (Class(class), command) {
            (Class::MQ, MQ_VQ_PAIRS_SET) => {
                let pairs = field16(data, 0)?;
                if pairs == 0 || pairs > self.config.pairs {
                    return None;
                }
                self.active_pairs = pairs;
                Some(Vec::new())
            }
            (Class::NOTF_COAL, NOTF_COAL_RX_SET | NOTF_COAL_TX_SET) if bus.has(NOTF_COAL) => {
                let applied = self.config.coalescing.apply(setting(data, 0)?)?;
                let odd = usize::from(command == NOTF_COAL_TX_SET);
                (odd..self.coalescers.len()).step_by(2).for_each(|queue| self.coalesce(bus, queue as u16, applied));
                Some(Vec::new())
            }
            (Class::NOTF_COAL, NOTF_COAL_VQ_SET) if bus.has(VQ_NOTF_COAL) => {
                let queue = self.ready_queue(bus, data)?;
                let applied = self.config.coalescing.apply(setting(data, coalescing_queue::COALESCING)?)?;
                self.coalesce(bus, queue, applied);
                Some(Vec::new())
            }
            (Class::NOTF_COAL, NOTF_COAL_VQ_GET) if bus.has(VQ_NOTF_COAL) => {
                let queue = self.ready_queue(bus, data)?;
                let Coalescing { max_packets, max_usecs } = self.coalescers[usize::from(queue)].setting;
                Some([max_packets.to_le_bytes(), max_usecs.to_le_bytes()].concat())
            }
            _ => None,
        }
    }

    /// The queue that a command names: a transmit or receive queue that is ready (VIRTIO 5.1.6.5.7.1).
    fn ready_queue(&self, bus: &Bus<'_, '_>, data: &[u8]) -> Option<u16> {
        let queue = field16(data, coalescing_queue::QUEUE)?;
        (transmit_or_receive(queue, self.config.pairs) && bus.is_ready(queue)).then_some(queue)
    }

    fn coalesce(&mut self, bus: &mut Bus<'_, '_>, queue: u16, setting: Coalescing) {
        if self.coalescers[usize::from(queue)].set(setting) {
            bus.notify(queue);
        }
    }
}

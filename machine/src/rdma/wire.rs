//! The wire between two NICs.

use super::ConfigError;
use crate::model::ModelId;
use spec::rdma::{Send, Status};
use std::cell::RefCell;
use std::rc::Rc;

/// The packets in flight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    /// A request of the sender's queue pair `from`, the `sequence`th.
    Request { from: u16, to: u16, sequence: u32, send: Send },
    /// The answer to it.
    Answer { to: u16, sequence: u32, status: Status },
}

#[derive(Default)]
struct State {
    ends: Vec<ModelId>,
    packets: Vec<Option<Packet>>,
    free: Vec<usize>,
}

/// A cable. Clones are the same cable; each NIC that is built with it takes one of its two ends.
#[derive(Clone, Default)]
pub struct Wire(Rc<RefCell<State>>);

impl Wire {
    pub(super) fn attach(&self, nic: ModelId) -> Result<(), ConfigError> {
        let ends = &mut self.0.borrow_mut().ends;
        if ends.len() == 2 {
            return Err(ConfigError { field: "ends of the wire taken", value: 2, valid: (0, 1) });
        }
        ends.push(nic);
        Ok(())
    }

    /// The device at the other end.
    pub(super) fn peer(&self, nic: ModelId) -> Option<ModelId> {
        self.0.borrow().ends.iter().copied().find(|&end| end != nic)
    }

    /// Whether both ends are taken.
    pub(super) fn is_whole(&self) -> bool {
        self.0.borrow().ends.len() == 2
    }

    /// Puts a packet on the wire; its ticket fetches it.
    pub(super) fn put(&self, packet: Packet) -> u64 {
        let mut state = self.0.borrow_mut();
        let slot = state.free.pop().unwrap_or_else(|| {
            state.packets.push(None);
            state.packets.len() - 1
        });
        state.packets[slot] = Some(packet);
        slot as u64
    }

    pub(super) fn take(&self, ticket: u64) -> Option<Packet> {
        let mut state = self.0.borrow_mut();
        let slot = usize::try_from(ticket).ok()?;
        let packet = state.packets.get_mut(slot)?.take()?;
        state.free.push(slot);
        Some(packet)
    }
}

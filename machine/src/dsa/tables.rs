//! The group and work queue tables, as software writes them (DSA, "Group Configuration Table", "Work Queue
//! Configuration Table").

use super::Dsa;
use crate::time::Ps;
use crate::world::World;
use spec::dsa::registers::DeviceState;
use spec::dsa::{
    Descriptor, GRPCFG_BYTES, GRPCFG_ENGINES, GRPCFG_FLAGS, QueueState, WQCFG_BYTES_MIN, WqLimits, WqMode, WqSize,
    WqStatus, wqcfg,
};
use spec::register::{ReadWrite, Register};
use std::collections::VecDeque;

/// A group's entry and its round-robin position.
#[derive(Clone, Default)]
pub(super) struct Group {
    words: [u32; GRPCFG_FLAGS.offset() as usize / 4 + 1],
    /// The queue from which a descriptor was taken last.
    pub(super) last: usize,
}

impl Group {
    /// The group's queues, one bit each. No device here has more than 64.
    pub(super) fn queues(&self) -> u64 {
        u64::from(self.words[0]) | u64::from(self.words[1]) << 32
    }

    /// The group's engines, one bit each.
    pub(super) fn engines(&self) -> u64 {
        let at = GRPCFG_ENGINES.offset() as usize / 4;
        u64::from(self.words[at]) | u64::from(self.words[at + 1]) << 32
    }

    /// Queues that do not exist on any device here.
    pub(super) fn names_more_queues(&self) -> bool {
        self.words[2..GRPCFG_ENGINES.offset() as usize / 4].iter().any(|&word| word != 0)
    }
}

/// A queue's entry and its waiting descriptors.
#[derive(Default)]
pub(super) struct Queue {
    words: [u32; WQCFG_BYTES_MIN as usize / 4],
    pub(super) state: Option<Running>,
    /// Each descriptor with its arrival time.
    pub(super) waiting: VecDeque<(Descriptor, Ps)>,
    /// Number of descriptors of this queue that engines process.
    pub(super) served: u32,
    /// The quadwords that each portal has gathered so far.
    pub(super) gathered: [u64; 8],
}

/// True unless the queue is disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Running {
    Enabled,
    /// The queue will be disabled once it is empty.
    Closing,
}

impl Queue {
    fn word(&self, register: Register<u32, ReadWrite>) -> u32 {
        self.words[register.offset() as usize / 4]
    }

    pub(super) fn size(&self) -> u16 {
        WqSize::from_bits(self.word(wqcfg::SIZE)).size()
    }

    pub(super) fn mode(&self) -> WqMode {
        WqMode::from_bits(self.word(wqcfg::MODE))
    }

    pub(super) fn limits(&self) -> WqLimits {
        WqLimits::from_bits(self.word(wqcfg::LIMITS))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.served == 0
    }

    fn status(&self) -> WqStatus {
        let state = match self.state {
            None => QueueState::DISABLED,
            Some(Running::Enabled) => QueueState::ENABLED,
            Some(Running::Closing) => QueueState::BUSY,
        };
        WqStatus::new().with_occupancy(self.waiting.len() as u16).with_state(state.0)
    }

    /// Returns to the state after a reset.
    pub(super) fn reset(&mut self) {
        self.words = [0; WQCFG_BYTES_MIN as usize / 4];
        self.state = None;
        self.gathered = [0; 8];
    }
}

impl Dsa {
    pub(super) fn group_read(&self, offset: u32) -> u32 {
        let Some(group) = self.groups.get((offset / GRPCFG_BYTES) as usize) else { return 0 };
        group.words.get((offset % GRPCFG_BYTES / 4) as usize).copied().unwrap_or(0)
    }

    /// Groups can change only while the device is disabled (DSA, "Group Configuration Table").
    pub(super) fn group_write(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        if self.state != DeviceState::DISABLED {
            let text = format!("group {}, value {value:#x}", offset / GRPCFG_BYTES);
            return world.fault("DSA group written while the device is enabled", self.config.requester.into(), text);
        }
        let Some(group) = self.groups.get_mut((offset / GRPCFG_BYTES) as usize) else { return };
        if let Some(word) = group.words.get_mut((offset % GRPCFG_BYTES / 4) as usize) {
            *word = value;
        }
    }

    pub(super) fn queue_read(&self, offset: u32) -> u32 {
        let Some(queue) = self.queues.get((offset / WQCFG_BYTES_MIN) as usize) else { return 0 };
        let within = offset % WQCFG_BYTES_MIN;
        if within == wqcfg::STATUS.offset() { queue.status().into_bits() } else { queue.words[within as usize / 4] }
    }

    /// A queue can change only while it is disabled (DSA, "Work Queue Configuration Table"). Its size can change only
    /// while the device is disabled.
    pub(super) fn queue_write(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        let within = offset % WQCFG_BYTES_MIN;
        let device_disabled = self.state == DeviceState::DISABLED;
        let Some(queue) = self.queues.get_mut((offset / WQCFG_BYTES_MIN) as usize) else { return };
        if queue.state.is_some() || (within == wqcfg::SIZE.offset() && !device_disabled) {
            let text = format!("queue {}, byte {within}, value {value:#x}", offset / WQCFG_BYTES_MIN);
            return world.fault("DSA queue configured while it is enabled", self.config.requester.into(), text);
        }
        queue.words[within as usize / 4] = value;
    }
}

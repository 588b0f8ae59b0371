//! The caller's configuration, checked against the device's capabilities.

use super::{Capabilities, DsaError};
use alloc::vec::Vec;

/// A dedicated work queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Number of the queue.
    pub index: u8,
    /// Number of entries: the maximum of descriptors in flight.
    pub entries: u16,
    /// The MSI-X entry for completions of this queue; `None` for a polled queue. Entry 0 is for errors.
    pub interrupt: Option<u16>,
    /// Priority, 1 to 15.
    pub priority: u8,
    /// The longest transfer in bytes. The device rounds this limit up to a power of two; the driver does not.
    pub transfer_bytes_max: u32,
}

/// Queues and the engines that serve them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// At least one.
    pub queues: Vec<QueueConfig>,
    /// Numbers of the engines, at least one.
    pub engines: Vec<u8>,
}

/// A device's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Groups, from number 0 on.
    pub groups: Vec<GroupConfig>,
    /// How long a command may take, in nanoseconds.
    pub command_timeout_ns: u64,
}

/// The highest priority of a queue.
const PRIORITY_MAX: u8 = 15;

impl QueueConfig {
    /// The smallest `n` for which `2^n` is at least the longest transfer.
    pub(super) fn transfer_shift(&self) -> u8 {
        (u32::BITS - self.transfer_bytes_max.saturating_sub(1).leading_zeros()) as u8
    }

    fn validate(&self, capabilities: &Capabilities) -> Result<(), DsaError> {
        at_most("a queue's number", self.index, capabilities.queues.saturating_sub(1))?;
        at_most("a queue's priority", self.priority, PRIORITY_MAX)?;
        for (what, value) in [
            ("a queue's number of entries", u32::from(self.entries)),
            ("a queue's priority", self.priority.into()),
            ("a queue's longest transfer", self.transfer_bytes_max),
        ] {
            if value == 0 {
                return Err(DsaError::Zero(what));
            }
        }
        let most = 1u64 << capabilities.transfer_shift_max;
        at_most("a queue's longest transfer", self.transfer_bytes_max, most)
    }
}

fn at_most(what: &'static str, value: impl Into<u64>, most: impl Into<u64>) -> Result<(), DsaError> {
    let (value, most) = (value.into(), most.into());
    if value > most { Err(DsaError::TooMany(what, value, most)) } else { Ok(()) }
}

/// Sets bit `number`; an error when the bit is already set.
fn claim(bits: &mut [u64; 4], what: &'static str, number: u8) -> Result<(), DsaError> {
    let word = &mut bits[usize::from(number / 64)];
    let bit = 1 << (number % 64);
    if *word & bit != 0 {
        return Err(DsaError::Twice(what, number));
    }
    *word |= bit;
    Ok(())
}

impl Config {
    /// Every queue of every group.
    pub(super) fn queues(&self) -> impl Iterator<Item = &QueueConfig> {
        self.groups.iter().flat_map(|group| &group.queues)
    }

    pub(super) fn validate(&self, capabilities: &Capabilities) -> Result<(), DsaError> {
        at_most("the number of groups", self.groups.len() as u64, capabilities.groups)?;
        let (mut queues, mut engines) = ([0; 4], [0; 4]);
        for (number, group) in (0..).zip(&self.groups) {
            if group.queues.is_empty() || group.engines.is_empty() {
                return Err(DsaError::EmptyGroup(number));
            }
            for queue in &group.queues {
                queue.validate(capabilities)?;
                claim(&mut queues, "work queue", queue.index)?;
            }
            for &engine in &group.engines {
                // The table has room for 64 engines.
                at_most("an engine's number", engine, capabilities.engines.min(64).saturating_sub(1))?;
                claim(&mut engines, "engine", engine)?;
            }
        }
        let entries = self.queues().map(|queue| u64::from(queue.entries)).sum::<u64>();
        at_most("the number of entries of all queues", entries, capabilities.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_holds_the_longest_transfer() {
        let shift = |bytes| {
            let queue = QueueConfig { index: 0, entries: 1, interrupt: None, priority: 1, transfer_bytes_max: bytes };
            queue.transfer_shift()
        };
        let cases = [(1, 0), (2, 1), (3, 2), (512, 9), (513, 10), (1 << 31, 31), (u32::MAX, 32)];
        for (bytes, expected) in cases {
            assert_eq!(shift(bytes), expected, "{bytes} bytes");
        }
    }
}

//! How to make a controller and its queues, and how they look to people.

use crate::nvme::QueueSnapshot;
use alloc::vec::Vec;
use core::fmt;
use spec::nvme::registers::{Cap, Csts};

/// How to bring a controller up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The namespace that I/O goes to.
    pub nsid: u32,
    /// I/O queue pairs to ask for, 1 or more; the controller may grant fewer.
    pub queue_pairs: u16,
    /// Entries of the admin queues, 2 to 4,096.
    pub admin_entries: u16,
    /// How long an admin command may take.
    pub admin_timeout_ns: u64,
}

impl Default for Config {
    /// Namespace 1, a pair for each of 64 CPUs, and Linux's 32 entries and 60 seconds for the admin queue.
    fn default() -> Self {
        Self { nsid: 1, queue_pairs: 64, admin_entries: 32, admin_timeout_ns: 60_000_000_000 }
    }
}

/// How to make an I/O queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Entries of each ring, 2 to what [`super::Controller::queue_entries_max`] says; one less can be in flight.
    pub entries: u16,
    /// The interrupt vector (MSI-X table entry) of its completions; none makes it a polled queue. Vector 0 serves the
    /// admin queue too (Base 3.3.1): a queue on it sees empty interrupts.
    pub vector: Option<u16>,
    /// The longest transfer of one request in bytes. The queue allocates PRP lists of this size for every command. The
    /// controller's own limit lowers it.
    pub transfer_bytes_max: u32,
}

/// A controller at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerSnapshot {
    /// CAP.
    pub cap: Cap,
    /// CSTS; none when the device has left the bus.
    pub csts: Option<Csts>,
    /// The admin queue, then the I/O queues in ascending order.
    pub queues: Vec<QueueSnapshot>,
}

impl fmt::Display for ControllerSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.csts {
            Some(csts) => write!(f, "CSTS {:#x} (ready {}, fatal {})", csts.into_bits(), csts.rdy(), csts.cfs())?,
            None => write!(f, "off the bus")?,
        }
        self.queues.iter().try_for_each(|queue| write!(f, "\n{queue}"))
    }
}

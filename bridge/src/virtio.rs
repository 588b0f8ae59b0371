//! A served virtio block device over MMIO. Its registers are in BAR 0 of a PCI function, and each of its interrupts is
//! an MSI-X vector ([`machine::virtio::wired`]).

use crate::function::Served;
use crate::lent::LentModel;
use machine::lent::Lent;
use machine::model::{Model, ModelId};
use machine::time::Ps;
use machine::virtio::block::{Block, BlockConfig};
use machine::virtio::{VirtioWired, WiredConfig};
use spec::virtio::block::SECTOR_BYTES;
use spec::virtio::mmio::VECTORS_MAX;
use spec::virtio::wired;
use std::fmt;

/// Maximum number of entries of a queue.
const QUEUE_ENTRIES: u16 = 256;

/// A block device to serve. The server's own memory holds the sectors; each client, and each reset, finds them zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtioDisk {
    /// Size in bytes, a multiple of 512.
    pub bytes: u64,
    /// Number of queues, at least 1.
    pub queues: u16,
    /// Number of interrupts. With one interrupt the device does not offer the multi-interrupt extension.
    pub interrupts: u16,
    /// Time from a request's notification to its completion.
    pub latency: Ps,
}

/// A field of [`VirtioDisk`] is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtioDiskError {
    what: &'static str,
    value: u64,
    valid: &'static str,
}

impl fmt::Display for VirtioDiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a virtio disk with {} {}; valid: {}", self.value, self.what, self.valid)
    }
}

impl std::error::Error for VirtioDiskError {}

impl VirtioDisk {
    fn validate(self) -> Result<Self, VirtioDiskError> {
        let refuse = |what, value, valid| Err(VirtioDiskError { what, value, valid });
        if self.bytes == 0 || !self.bytes.is_multiple_of(SECTOR_BYTES.into()) {
            return refuse("bytes", self.bytes, "a multiple of 512, 512 at least");
        }
        if self.queues == 0 {
            return refuse("queues", 0, "1 to 65535");
        }
        if !(1..=VECTORS_MAX).contains(&self.interrupts.into()) {
            return refuse("interrupts", self.interrupts.into(), "1 to 2048");
        }
        Ok(self)
    }

    fn build(self, port: ModelId) -> Box<dyn Model> {
        let block = BlockConfig {
            sectors: self.bytes / u64::from(SECTOR_BYTES),
            queues: self.queues,
            queue_entries: QUEUE_ENTRIES,
            latency: self.latency,
            ..BlockConfig::default()
        };
        let function = WiredConfig {
            name: "served".into(),
            me: Lent::MODEL,
            upstream: port,
            requester: 0,
            vectors: self.interrupts,
        };
        Box::new(VirtioWired::new(function, Block::new(block)).expect("validated when it was to be served"))
    }
}

impl TryFrom<VirtioDisk> for Served {
    type Error = VirtioDiskError;

    fn try_from(disk: VirtioDisk) -> Result<Self, VirtioDiskError> {
        let disk = disk.validate()?;
        let bars = [wired::BAR_BYTES.into(), 0, 0, 0, 0, 0];
        Ok(Self::new(disk.interrupts, 0, bars, move |guest| {
            Box::new(LentModel::new(guest, disk.interrupts, |port| disk.build(port)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_said() {
        let disk = VirtioDisk { bytes: 1 << 20, queues: 4, interrupts: 5, latency: Ps(0) };
        assert!(Served::try_from(disk).is_ok_and(|served| served.vectors() == 5));
        for (wrong, text) in [
            (VirtioDisk { bytes: 700, ..disk }, "700 bytes"),
            (VirtioDisk { bytes: 0, ..disk }, "0 bytes"),
            (VirtioDisk { queues: 0, ..disk }, "0 queues"),
            (VirtioDisk { interrupts: 0, ..disk }, "0 interrupts"),
            (VirtioDisk { interrupts: 2049, ..disk }, "2049 interrupts"),
        ] {
            assert!(Served::try_from(wrong).is_err_and(|error| error.to_string().contains(text)), "{text}");
        }
    }
}

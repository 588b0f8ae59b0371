//! Virtio devices, down to their registers: OASIS Virtual I/O Device (VIRTIO) version 1.3, and several interrupts over
//! MMIO (MULTI_IRQ, `docs/virtio-mmio-multi-irq.md`).
//!
//! A [`Device`] (network, block) knows nothing of its transport, [`VirtioMmio`] or [`VirtioPci`], and a transport nothing
//! of its device. Between them stands the [`Bus`]: split or packed virtqueues in the guest's memory, read with every check that a
//! hostile guest calls for, and interrupts.
//!
//! A driver that breaks a queue (an index that jumps, a chain that loops or points outside memory) is recorded as a
//! fault, and the device wants a reset; a register access of a wrong width, place or time is recorded and ignored.
//! No action of a guest causes a panic.
//!
//! Absent: legacy devices, notification data, in-order use, and translation of the device's accesses.

pub mod block;
mod common;
mod device;
mod either;
mod lines;
mod memory;
mod mmio;
pub mod net;
mod packed;
pub mod pci;
pub mod ring;
mod signal;
#[cfg(test)]
mod tests;
pub mod wired;

pub use device::{Bus, Device};
pub use mmio::{MmioConfig, MmioConfigError, VirtioMmio, resample_event};
pub use pci::{PciConfig, VirtioPci};
pub use signal::{Exits, Irqfd, Line, Trigger};
pub use wired::{VirtioWired, WiredConfig};

use crate::observe::Fact;
use crate::world::World;
use common::Common;
use spec::virtio::feature::{Feature, Features};

/// Events of a transport. Events of a device are below.
pub mod code {
    const TRANSPORT: u32 = 1 << 20;
    /// A wire's assertion arrives. Argument: the vector.
    pub(super) const ASSERT: u32 = TRANSPORT;
    /// The guest has ended an interrupt that a resampler watches. Argument: the vector.
    pub(super) const RESAMPLE: u32 = TRANSPORT + 1;
    /// A message is due. Argument: the vector.
    pub(super) const MESSAGE: u32 = TRANSPORT + 2;
    /// Misbehaves, for tests of drivers: raises the vector that the argument names, mapped or not.
    pub const RAISE: u32 = TRANSPORT + 3;
    /// Misbehaves, for tests of drivers: see [`super::jump_arg`].
    pub const JUMP_USED: u32 = TRANSPORT + 4;
    /// The configuration changes, to what it was. A device that its driver has started tells it so.
    pub const ANNOUNCE: u32 = TRANSPORT + 5;
    /// A reset is over. Argument: 0, the device's; else 1 + the queue's number.
    pub(super) const RESET: u32 = TRANSPORT + 6;
}

/// The argument of [`code::JUMP_USED`]: the used index of `queue` goes ahead by `by` entries that were never filled; a
/// packed queue uses as many buffers that no driver made available.
pub const fn jump_arg(queue: u16, by: u16) -> u64 {
    (queue as u64) << 16 | by as u64
}

/// The requester in faults of devices on the MMIO transport, which has no requester ids.
const REQUESTER_MMIO: u64 = 0;

/// Features that every device here offers.
fn ring_features() -> Features {
    Features::of(&[Feature::VERSION_1, Feature::EVENT_IDX, Feature::INDIRECT_DESC, Feature::RING_RESET])
}

/// A notification arrives for `queue`.
fn kicked(device: &mut impl Device, mut bus: Bus<'_, '_>, queue: u32) {
    match u16::try_from(queue).ok().filter(|&queue| bus.is_ready(queue)) {
        Some(queue) if bus.is_running() => {
            let device_id = bus.world.me();
            bus.world.tell(|| Fact::Doorbell { device: device_id, queue, value: queue.into(), is_completion: false });
            device.kicked(&mut bus, queue);
        }
        // VIRTIO 3.1.1: no notifications before DRIVER_OK. A device that needs a reset ignores them.
        Some(_) if bus.common.status.needs_reset() => {}
        _ => bus.common.fault(bus.world, "virtio notification that no queue awaits", format!("queue {queue}")),
    }
}

/// A read of the device's configuration, in the width of a field (VIRTIO 4.2.2.2, 4.1.3.1).
fn read_config(world: &mut World<'_>, common: &Common, device: &impl Device, offset: u32, width_bytes: u8) -> u64 {
    let config = device.config();
    let end = offset as usize + usize::from(width_bytes);
    if width_bytes > 4 || !offset.is_multiple_of(width_bytes.into()) || end > config.len() {
        let text = format!("{width_bytes} bytes at {offset:#x}");
        common.fault(world, "virtio configuration read beside a field", text);
        return 0;
    }
    let mut bytes = [0; 8];
    bytes[..width_bytes.into()].copy_from_slice(&config[offset as usize..end]);
    u64::from_le_bytes(bytes)
}

fn jump_used(world: &mut World<'_>, common: &mut Common, arg: u64) {
    if let Some(ring) = common.queues.get_mut((arg >> 16) as usize).and_then(|queue| queue.ring.as_mut()) {
        world.tell(|| Fact::Struck { source: world.me(), fault: "used index" });
        // The rings were all there when the queue started.
        let _ = ring.jump(world, arg as u16);
    }
}

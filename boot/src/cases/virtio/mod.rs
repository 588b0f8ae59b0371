//! Virtio devices over MMIO: found where the platform describes them, driven through the lines that it gives them.

mod block;
mod board;
#[cfg(target_arch = "aarch64")]
mod net;

pub(super) use block::block;
pub(super) use board::described_block;
#[cfg(target_arch = "aarch64")]
pub(super) use net::net;

use super::Fixture;
use crate::arch;
use crate::kernel::Bare;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::virtio::discovery::{Line, MmioDevice};
use drivers::virtio::{Mmio, MmioConfig, RegisterWrites, Rung, Transport, VectorMap};
use hal::CpuId;
use irq::{Action, Irq};
use spec::virtio::DeviceId;

/// Makes an interrupt of the platform a line with this handler, on this CPU.
type Connect<'a> = &'a dyn Fn(&Line, CpuId, Arc<dyn Action>) -> Result<Irq, String>;

/// A device and its platform description.
pub(super) struct Found {
    transport: Arc<dyn Transport>,
    lines: Vec<Line>,
}

/// The devices of `kind` in the platform's description.
///
/// # Errors
/// A described device does not answer as virtio over MMIO.
pub(super) fn find(described: &[MmioDevice], kind: DeviceId, writes: RegisterWrites) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    for device in described {
        let regs = arch::window(device.base as usize, device.size_bytes as u32);
        let config = MmioConfig { writes, ..device.config() };
        let transport =
            Mmio::<Bare>::new(Bare, regs, config).map_err(|error| format!("{:#x}: {error}", device.base))?;
        if transport.device_id() == kind {
            found.push(Found { transport: Arc::new(transport), lines: device.lines.clone() });
        }
    }
    Ok(found)
}

/// Connects a device's handlers to its lines, vector v to the v-th line. The line of queue q goes to CPU q modulo
/// CPUs.
fn connect_all(
    system: &Fixture,
    found: &Found,
    vectors: &VectorMap,
    handlers: Vec<Arc<dyn Action>>,
    connect: Connect<'_>,
) -> Result<Vec<Irq>, String> {
    if handlers.len() > found.lines.len() {
        return Err(format!("{} vectors on {} lines", handlers.len(), found.lines.len()));
    }
    let connected = (0..).zip(handlers.into_iter().zip(&found.lines));
    connected.map(|(vector, (handler, line))| connect(line, cpu_of(system, vectors, vector), handler)).collect()
}

/// The CPU of a vector: that of its first queue.
fn cpu_of(system: &Fixture, vectors: &VectorMap, vector: u16) -> CpuId {
    let queue = if vectors.rung == Rung::Single { None } else { vectors.queues_of(vector).next() };
    CpuId(u32::from(queue.unwrap_or(0)) % system.platform.cpus())
}

/// Interrupts of a line, summed over all CPUs.
fn interrupts(system: &Fixture, line: Irq) -> u64 {
    (0..system.platform.cpus()).map(|cpu| system.core.count(line, CpuId(cpu))).sum()
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

//! A virtio disk over MMIO with an interrupt for each of its queues. A kernel keeps its own interrupts, and takes
//! discovery, transport and driver.
//!
//! ```text
//! command line ─► Disk::found ─► lines(): request them ─► start ─► submit
//! interrupt of line v ─► Disk::interrupt(v) ─► Requests::ended
//! ```
#![no_std]
extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::virtio::block::{BatchDone, Block, BlockConfig, BlockRequest, Completed, Submitted};
use drivers::virtio::discovery::{DiscoveryError, Line, from_command_line};
use drivers::virtio::{Mmio, VirtioError};
use hal::Hal;
use irq::{Action, Irq, IrqReturn};

/// Receives the kernel's completed requests.
pub trait Requests: Send + Sync {
    /// A request has ended. Called in the interrupt.
    fn ended(&self, tag: u64, ok: bool);
}

struct Ending<R>(R);

impl<R: Requests> BatchDone for Ending<R> {
    fn batch_done(&self, _queue: u16, batch: &[Completed]) {
        for done in batch {
            self.0.ended(done.tag, done.result.is_ok());
        }
    }
}

/// Why there is no disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// The command line names no disk, or describes it wrongly.
    Description(Option<DiscoveryError>),
    /// The driver does not support the device.
    Device(VirtioError),
}

/// A disk.
pub struct Disk<H: Hal> {
    block: Arc<Block<H>>,
    handlers: Vec<Arc<dyn Action>>,
    lines: Vec<Line>,
}

impl<H: Hal> Disk<H> {
    /// Sets up the first device that `command_line` names (`virtio_mmio.device=<size>@<base>:<irq>[-<last>]`), but
    /// does not start it. `map` maps the registers at an address, with the given number of bytes.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn found(
        hal: H,
        command_line: &str,
        map: impl FnOnce(u64, u64) -> H::Regs,
        queues: u16,
        requests: impl Requests + 'static,
    ) -> Result<Self, DiskError> {
        let devices = from_command_line(command_line).map_err(|error| DiskError::Description(Some(error)))?;
        let device = devices.into_iter().next().ok_or(DiskError::Description(None))?;
        let regs = map(device.base, device.size_bytes);
        let transport = Mmio::new(hal, regs, device.config()).map_err(DiskError::Device)?;
        let config = BlockConfig { queues, ..BlockConfig::default() };
        let block = Block::open(hal, Arc::new(transport), &config, Arc::new(Ending(requests)));
        let block = block.map_err(DiskError::Device)?;
        let handlers = block.handlers();
        // Without a handler a line stays unused: the device has no vector for it.
        let lines = device.lines.into_iter().take(handlers.len()).collect();
        Ok(Self { block, handlers, lines })
    }

    /// The lines to request, by vector. Point each at the CPU that submits to its queue.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Starts the device. All lines must be requested before.
    pub fn start(&self) {
        self.block.start();
    }

    /// Handles the interrupt of vector `vector`. Returns false when it came from another device on a shared line.
    pub fn interrupt(&self, vector: usize) -> bool {
        let line = self.lines.get(vector).map_or(0, |line| line.number);
        self.handlers.get(vector).is_some_and(|handler| handler.handle(Irq(line)) != IrqReturn::None)
    }

    /// Submits to a queue.
    pub fn submit(&self, queue: u16, requests: &[BlockRequest]) -> Submitted {
        self.block.submit(queue, requests)
    }

    /// How many queues there are.
    pub fn queues(&self) -> u16 {
        self.block.queues()
    }
}

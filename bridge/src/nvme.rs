//! The NVMe drive as it is served: its configuration, and the PCI regions of the protocol.

use machine::model::{Model, ModelId};
use machine::nvme::{Blocks, Config, ConfigError, Nvme};
use spec::nvme::registers::DOORBELLS;
use std::sync::Arc;

/// log2 of a block's bytes.
const BLOCK_SHIFT: u8 = 9;

/// A drive to be served: each client, and each reset, gets one built from this.
#[derive(Clone)]
pub struct Drive {
    config: Config,
    blocks: Arc<dyn Blocks>,
}

impl Drive {
    /// A drive of `bytes` in `blocks`. The rest is as `config` says, but for the vectors: one a queue pair, and one for
    /// the admin queue.
    ///
    /// # Errors
    /// [`ConfigError`] for a size below one block, or a field of `config` beyond the model's.
    pub fn new(blocks: Arc<dyn Blocks>, bytes: u64, config: Config) -> Result<Self, ConfigError> {
        let config = Config {
            name: "served".into(),
            blocks: bytes >> BLOCK_SHIFT,
            block_shift: BLOCK_SHIFT,
            vectors: config.io_queues_max.saturating_add(1),
            ..config
        };
        config.validate()?;
        Ok(Self { config, blocks })
    }

    /// MSI-X vectors.
    pub fn vectors(&self) -> u16 {
        self.config.vectors
    }

    /// Bytes of BAR 0: registers and doorbells; 16 KiB at least.
    pub(crate) fn bar_bytes(&self) -> u64 {
        let doorbells = (u64::from(self.config.io_queues_max) + 1) * 2 * (4 << self.config.doorbell_stride);
        (u64::from(DOORBELLS) + doorbells).next_power_of_two().max(0x4000)
    }

    /// The model behind `port`.
    pub(crate) fn build(&self, port: ModelId) -> Box<dyn Model> {
        let model = Nvme::new(port, self.config.clone()).expect("validated when the drive was made");
        Box::new(model.with_blocks(self.blocks.clone()))
    }
}

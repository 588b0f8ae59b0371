//! The served NVMe drive.

use crate::function::Served;
use crate::lent::LentModel;
use crate::posting::SLOTS_MAX;
use machine::nvme::{Blocks, Config, ConfigError, Nvme};
use std::sync::Arc;

/// log2 of a block's bytes.
const BLOCK_SHIFT: u8 = 9;

/// A drive to serve. Each client, and each reset, gets a drive built from this description.
#[derive(Clone)]
pub struct Drive {
    config: Config,
    blocks: Arc<dyn Blocks>,
}

impl Drive {
    /// A drive of `bytes` in `blocks`. All other settings come from `config`, except the number of vectors: one per
    /// queue pair, and one for the admin queue.
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

    /// The drive as a function with a posting block of `slots` slots; 0 slots means no posting block. Each slot has
    /// its own MSI-X vector, after the vectors of the queues.
    ///
    /// # Errors
    /// [`ConfigError`] for more than 64 slots, or when that makes more vectors than MSI-X has.
    pub fn with_posting(self, slots: u16) -> Result<Served, ConfigError> {
        if slots > SLOTS_MAX {
            return Err(ConfigError { field: "posting slots", value: slots.into(), valid: "0 to 64" });
        }
        let bars = [self.config.bar_bytes().into(), 0, 0, 0, 0, 0];
        let Self { mut config, blocks } = self;
        let sources = config.vectors;
        config.vectors = sources.saturating_add(slots);
        config.validate()?;
        Ok(Served::new(sources, slots, bars, move |guest| {
            let build = |port| -> Box<dyn machine::model::Model> {
                let model = Nvme::new(port, config.clone()).expect("validated when the drive was made");
                Box::new(model.with_blocks(blocks.clone()))
            };
            Box::new(LentModel::new(guest, config.vectors, build))
        }))
    }
}

impl From<Drive> for Served {
    fn from(drive: Drive) -> Self {
        drive.with_posting(0).expect("validated when it was made")
    }
}

//! What keeps a device from being bound.

use drivers::virtio::VirtioError;
use irq::IrqError;

/// Why a device could not be bound.
#[derive(Debug)]
pub(super) enum BindError {
    Virtio(VirtioError),
    Irq(IrqError),
}

impl BindError {
    /// There may have been no memory.
    pub(super) fn is_of_memory(&self) -> bool {
        matches!(self, Self::Virtio(VirtioError::Dma(_)) | Self::Irq(IrqError::Hardware(..)))
    }
}

impl From<VirtioError> for BindError {
    fn from(error: VirtioError) -> Self {
        Self::Virtio(error)
    }
}

impl From<IrqError> for BindError {
    fn from(error: IrqError) -> Self {
        Self::Irq(error)
    }
}

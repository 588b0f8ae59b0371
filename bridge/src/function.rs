//! A PCI function of any kind that the bridge can serve.

use crate::guest::Guest;
use std::sync::Arc;
use std::time::Duration;

/// Base address registers of a function.
pub(crate) const BARS: usize = 6;
/// The BAR that holds the MSI-X table and the pending bits.
pub(crate) const MSIX_BAR: u8 = 4;
/// Size of that BAR in bytes.
pub(crate) const MSIX_BAR_BYTES: u64 = machine::pci::MSIX_BAR_BYTES as u64;

/// The part that differs between kinds of functions; it runs on the device's thread. The MSI-X capability is at
/// [`machine::pci::MSIX_CAPABILITY_OFFSET`] and is the last one.
pub(crate) trait Function {
    /// Reads a 32-bit register of configuration space.
    fn config_read(&mut self, offset: u32) -> u32;
    /// Writes a 32-bit register of configuration space.
    fn config_write(&mut self, offset: u32, value: u32);
    /// Reads a register of a BAR.
    fn read(&mut self, bar: u8, offset: u32, width_bytes: u8) -> u64;
    /// Writes a register of a BAR.
    fn write(&mut self, bar: u8, offset: u32, width_bytes: u8, value: u64);
    /// Masks or unmasks an MSI-X vector. Unmasking sends a pending interrupt.
    fn set_mask(&mut self, vector: u16, masked: bool);
    /// Runs due events. Returns the time until the next event; None if the function only waits for requests.
    fn catch_up(&mut self) -> Option<Duration>;
    /// Reports faults that were not reported before, one line each.
    fn tell_faults(&mut self, tell: &dyn Fn(&str));
    /// The function's activity since the last reset; None if nobody used the function.
    fn counts(&self) -> Option<String>;
}

type Make = dyn Fn(&Arc<Guest>) -> Box<dyn Function> + Send + Sync;

/// A function to serve. Each client, and each reset, gets a new instance.
#[derive(Clone)]
pub struct Served {
    /// Number of MSI-X vectors that the function raises.
    pub(crate) sources: u16,
    /// Slots of the function's posting block; 0 if the function has none.
    pub(crate) posting_slots: u16,
    /// Bytes of the function's own BARs.
    pub(crate) bars: [u64; BARS],
    pub(crate) make: Arc<Make>,
}

impl Served {
    /// A function with its BARs and MSI-X vectors. `make` builds an instance and receives the total number of vectors.
    pub(crate) fn new(
        sources: u16,
        posting_slots: u16,
        mut bars: [u64; BARS],
        make: impl Fn(&Arc<Guest>) -> Box<dyn Function> + Send + Sync + 'static,
    ) -> Self {
        bars[usize::from(MSIX_BAR)] = MSIX_BAR_BYTES;
        if posting_slots > 0 {
            bars[usize::from(crate::posting::BAR)] = crate::posting::BAR_BYTES;
        }
        Self { sources, posting_slots, bars, make: Arc::new(make) }
    }

    /// All MSI-X vectors: the function's own, and one per slot for notifications.
    pub fn vectors(&self) -> u16 {
        self.sources + self.posting_slots
    }
}

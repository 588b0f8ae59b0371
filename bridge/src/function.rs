//! What can be served: a PCI function, of any kind.

use crate::guest::Guest;
use std::sync::Arc;
use std::time::Duration;

/// Base address registers of a function.
pub(crate) const BARS: usize = 6;
/// The BAR of MSI-X table and pending bits.
pub(crate) const MSIX_BAR: u8 = 4;
/// Bytes of it.
pub(crate) const MSIX_BAR_BYTES: u64 = 0x1_0000;

/// What is particular to a kind of function, on the device's thread. The MSI-X capability stands at
/// [`machine::nvme::MSIX_CAPABILITY_OFFSET`] and is the last.
pub(crate) trait Function {
    /// A 32-bit register of configuration space.
    fn config_read(&mut self, offset: u32) -> u32;
    /// Writes one.
    fn config_write(&mut self, offset: u32, value: u32);
    /// Reads a register of a BAR.
    fn read(&mut self, bar: u8, offset: u32, width_bytes: u8) -> u64;
    /// Writes one.
    fn write(&mut self, bar: u8, offset: u32, width_bytes: u8, value: u64);
    /// Masks an MSI-X vector, or unmasks it; what is pending is then sent.
    fn set_mask(&mut self, vector: u16, masked: bool);
    /// Lets happen what is due. Returns how long until something else is: nothing if it waits to be asked.
    fn catch_up(&mut self) -> Option<Duration>;
    /// Tells faults that were not told yet, a line each.
    fn tell_faults(&mut self, tell: &dyn Fn(&str));
    /// What it has done since the last reset; nothing if it was not used.
    fn counts(&self) -> Option<String>;
}

type Make = dyn Fn(&Arc<Guest>) -> Box<dyn Function> + Send + Sync;

/// A function to be served: each client, and each reset, gets a new one.
#[derive(Clone)]
pub struct Served {
    /// MSI-X vectors that it raises.
    pub(crate) sources: u16,
    /// Slots of its posting block; 0: it has none.
    pub(crate) posting_slots: u16,
    /// Bytes of its own BARs.
    pub(crate) bars: [u64; BARS],
    pub(crate) make: Arc<Make>,
}

impl Served {
    /// A function with its BARs and MSI-X vectors, made by `make`, which is told how many vectors there are altogether.
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

    /// All MSI-X vectors: its own, and one a slot for notifications.
    pub fn vectors(&self) -> u16 {
        self.sources + self.posting_slots
    }
}

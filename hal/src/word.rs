/// A 64-bit word that several agents (CPUs, devices, the IOMMU) read and write.
///
/// Protocols are generic over this trait alone, so that the same code runs on hardware, on the machine and under the
/// model checker. All operations are single-copy atomic. Operations that read and write (`swap`, `compare_exchange` that
/// stores, `fetch_*`) are full barriers: a plain load after one is not done before its store is seen, as a driver needs that
/// publishes and then looks at what the device wants.
pub trait Word: Send + Sync {
    /// A word of ordinary memory.
    fn new(value: u64) -> Self;

    /// A plain load, relaxed. Free: on the machine it sees the present without letting time pass.
    fn get(&self) -> u64;

    /// A plain store with release order. Free.
    fn set(&self, value: u64);

    /// A load with acquire order. A point of the seam.
    fn load(&self) -> u64;

    /// Stores `value`, returns the old one; acquire and release. A point of the seam.
    fn swap(&self, value: u64) -> u64;

    /// Stores `new` if the word equals `current`; acquire and release. A point of the seam.
    ///
    /// # Errors
    /// The value read, when it is not `current`.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;

    /// Sets the bits of `mask`, returns the old value; acquire and release. A point of the seam.
    fn fetch_or(&self, mask: u64) -> u64;

    /// Keeps only the bits of `mask`, returns the old value; acquire and release. A point of the seam.
    fn fetch_and(&self, mask: u64) -> u64;

    /// Adds, wrapping, and returns the old value; acquire and release. A point of the seam.
    fn fetch_add(&self, value: u64) -> u64;
}

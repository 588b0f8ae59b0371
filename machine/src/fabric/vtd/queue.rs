//! Queued invalidation: its registers and descriptors (VT-d, "Queued Invalidation Interface").

use super::cache::EntryCache;
use crate::observe::Fact;
use crate::world::World;
use spec::vtd::invalidation::{DescriptorType, Header, InterruptEntryCache, SIZE, Wait};
use spec::vtd::registers::{QueueAddress, QueueErrorInfo, QueuePointer};

/// Invalidations of address-translation caches. This unit has no such caches, so they do nothing.
const CONTEXT_CACHE: u8 = 1;
const IOTLB: u8 = 2;
/// Bits of a wait descriptor's status address that select a byte of the 32-bit status.
const STATUS_ALIGNMENT: u32 = 2;

/// IQA, IQH, IQT.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) address: u64,
    head: u16,
    tail: u64,
    /// A descriptor is being executed.
    pub(super) busy: bool,
    /// Counts how often the queue was switched, so that the end of an earlier execution is recognised as stale.
    pub(super) epoch: u64,
}

/// The result of executing a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Executed {
    /// The descriptor is completely done.
    Done,
    /// It invalidated entries: requests that used them must first arrive (VT-d, "Interrupt Draining").
    Drain,
    /// The descriptor is done, and asks for the invalidation completion event.
    Event,
}

impl Queue {
    pub(super) fn head(&self) -> u64 {
        QueuePointer::new().with_index(self.head).into_bits()
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    pub(super) fn set_tail(&mut self, value: u64) {
        self.tail = value & 0x7_fff0;
    }

    /// The queue is switched on or off: the head is 0 (VT-d, "Invalidation Queue Head Register").
    pub(super) fn reset(&mut self) {
        self.head = 0;
        self.busy = false;
        self.epoch += 1;
    }

    /// Number of descriptors: 2^(8+QS), each of 128 bits.
    fn entries(&self) -> u32 {
        256 << QueueAddress::from_bits(self.address).size()
    }

    fn tail_index(&self) -> u16 {
        QueuePointer::from_bits(self.tail).index()
    }

    /// True if descriptors wait and the tail lies in the queue.
    pub(super) fn pending(&self) -> Result<bool, QueueErrorInfo> {
        if QueueAddress::from_bits(self.address).wide() {
            return Err(QueueErrorInfo::WIDTH);
        }
        if u32::from(self.tail_index()) >= self.entries() {
            return Err(QueueErrorInfo::TAIL);
        }
        Ok(self.head != self.tail_index())
    }

    /// Moves the head past the executed descriptor.
    pub(super) fn advance(&mut self) {
        self.head = ((u32::from(self.head) + 1) % self.entries()) as u16;
    }

    /// Fetches the descriptor at the head and executes it.
    pub(super) fn execute(&self, world: &mut World<'_>, cache: &mut EntryCache) -> Result<Executed, QueueErrorInfo> {
        let base = QueueAddress::from_bits(self.address).page() << 12;
        let at = base.wrapping_add(u64::from(self.head) * SIZE as u64);
        let (low, high) = (world.read64(at), world.read64(at + 8));
        let (Ok(low), Ok(high)) = (low, high) else { return Err(QueueErrorInfo::FETCH) };
        let bits = u128::from(high) << 64 | u128::from(low);
        let header = Header::from_bits(bits);
        match DescriptorType(header.kind_high() << 4 | header.kind_low()) {
            DescriptorType(CONTEXT_CACHE | IOTLB) => Ok(Executed::Done),
            DescriptorType::INTERRUPT_ENTRY_CACHE => invalidate(bits, world, cache),
            DescriptorType::WAIT => wait(bits, world),
            _ => Err(QueueErrorInfo::TYPE),
        }
    }
}

fn invalidate(bits: u128, world: &World<'_>, cache: &mut EntryCache) -> Result<Executed, QueueErrorInfo> {
    if bits & InterruptEntryCache::RESERVED != 0 {
        return Err(QueueErrorInfo::RESERVED);
    }
    let descriptor = InterruptEntryCache::from_bits(bits);
    let (index, mask) =
        if descriptor.selective() { (descriptor.index(), descriptor.index_mask().min(16)) } else { (0, 16) };
    cache.invalidate(index, mask);
    let count = 1 << mask;
    world.tell(|| Fact::Invalidated { first: index & !((count - 1) as u16), count });
    Ok(Executed::Drain)
}

fn wait(bits: u128, world: &mut World<'_>) -> Result<Executed, QueueErrorInfo> {
    if bits & Wait::RESERVED != 0 {
        return Err(QueueErrorInfo::RESERVED);
    }
    let descriptor = Wait::from_bits(bits);
    if descriptor.status_write() {
        let address = descriptor.status_address_dwords() << STATUS_ALIGNMENT;
        if world.write32(address, descriptor.status_data()).is_err() {
            let text = format!("status address {address:#x} of an invalidation wait");
            world.fault("write to where no memory is", address, text);
        }
    }
    Ok(if descriptor.interrupt() { Executed::Event } else { Executed::Done })
}

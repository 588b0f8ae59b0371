//! Software posting. The guest programs a register block with the addresses of its posted descriptors; this module
//! posts to them.
//!
//! docs/software-posting.md is the manual. A post takes read locks on the tables and the memory; a register write or
//! an unmap takes write locks. So when a write has returned, no post uses the old settings any more.

#[cfg(test)]
mod tests;

use crate::client_memory::ClientMemory;
use crate::guest::Guest;
use machine::pci::MSIX_CAPABILITY_OFFSET;
use spec::posting::{
    CAPABILITY_ID, CapabilityHead, Control, Counts, Fault, FaultReason, SIGNATURE, SlotDescriptor, Source, Tables,
    VERSION, capability, header, slot,
};
use spec::vtd::posted;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, RwLock};

/// Register offsets in the block's header and in a slot, as constants for `match` patterns.
mod at {
    use spec::posting::{header, slot};
    pub(super) const SIGNATURE: u32 = header::SIGNATURE.offset();
    pub(super) const COUNTS: u32 = header::COUNTS.offset();
    pub(super) const CONTROL: u32 = header::CONTROL.offset();
    pub(super) const FAULT: u32 = header::FAULT.offset();
    pub(super) const POSTS: u32 = header::POSTS.offset();
    pub(super) const DESCRIPTOR: u32 = slot::DESCRIPTOR.offset();
    pub(super) const NOTIFICATION: u32 = slot::NOTIFICATION.offset();
}

/// The BAR that holds only the block.
pub(crate) const BAR: u8 = 2;
/// Size of that BAR in bytes.
pub(crate) const BAR_BYTES: u64 = 0x4000;
/// Maximum number of slots of a block.
pub(crate) const SLOTS_MAX: u16 = 64;
/// Offset of the tables.
const SLOTS: u32 = 0x100;
const SOURCES: u32 = 0x1000;
/// Offset of the posting capability, which follows the MSI-X capability.
const CAPABILITY: u32 = 0x60;

const _: () = {
    assert!(SLOTS + SLOTS_MAX as u32 * slot::SIZE <= SOURCES);
    assert!(SOURCES as u64 + 2048 * 4 <= BAR_BYTES, "MSI-X has 2,048 vectors at most");
};

/// The value of a configuration-space register of a function with a posting block. `own` is the function's own value.
pub(crate) fn with_capability(own: u32, at: u32) -> u32 {
    const SIGNATURE_AT: u32 = CAPABILITY + capability::SIGNATURE;
    const OFFSET_AT: u32 = CAPABILITY + capability::OFFSET;
    const LENGTH_AT: u32 = CAPABILITY + capability::LENGTH;
    match at {
        MSIX_CAPABILITY_OFFSET => own | CAPABILITY << 8,
        CAPABILITY => {
            CapabilityHead::new().with_id(CAPABILITY_ID).with_length_bytes(capability::BYTES).with_bar(BAR).into_bits()
        }
        SIGNATURE_AT => SIGNATURE,
        OFFSET_AT => 0,
        LENGTH_AT => BAR_BYTES as u32,
        _ => own,
    }
}

#[derive(Clone, Copy, Default)]
struct Slot {
    descriptor: SlotDescriptor,
    notification: u16,
}

struct Routes {
    control: Control,
    slots: Box<[Slot]>,
    sources: Box<[Source]>,
}

impl Routes {
    fn new(sources: u16, slots: u16) -> Self {
        Self {
            control: Control::new(),
            slots: vec![Slot::default(); slots.into()].into(),
            sources: vec![Source::new(); sources.into()].into(),
        }
    }
}

#[derive(Default)]
struct Counters {
    posts: AtomicU64,
    notifications: AtomicU64,
    direct: AtomicU64,
    faults: AtomicU64,
}

impl Counters {
    fn all(&self) -> [&AtomicU64; 4] {
        [&self.posts, &self.notifications, &self.direct, &self.faults]
    }
}

/// The block.
pub(crate) struct Block {
    /// Number of MSI-X vectors of the function.
    vectors: u16,
    routes: RwLock<Routes>,
    counters: Counters,
    fault: Mutex<Fault>,
}

const NO_PANIC: &str = "nothing panics while it is held";

impl Block {
    /// A block for `sources` sources out of `vectors` MSI-X vectors.
    pub(crate) fn new(sources: u16, vectors: u16, slots: u16) -> Self {
        Self {
            vectors,
            routes: RwLock::new(Routes::new(sources, slots)),
            counters: Counters::default(),
            fault: Mutex::default(),
        }
    }

    /// Returns to the power-up state. The caller has already ended every thread that might post.
    pub(crate) fn reset(&self) {
        let mut routes = self.routes.write().expect(NO_PANIC);
        *routes = Routes::new(routes.sources.len() as u16, routes.slots.len() as u16);
        self.counters.all().into_iter().for_each(|counter| counter.store(0, Relaxed));
        *self.fault.lock().expect(NO_PANIC) = Fault::new();
    }

    /// A summary for human readers.
    pub(crate) fn counts(&self) -> String {
        let [posts, notifications, direct, faults] = self.counters.all().map(|counter| counter.load(Relaxed));
        format!("posts {posts}, notifications {notifications}, direct {direct}, posting faults {faults}")
    }

    /// Delivers the interrupt of MSI-X vector `source`.
    pub(crate) fn raise(&self, source: u16, guest: &Guest) {
        let routes = self.routes.read().expect(NO_PANIC);
        let entry = routes.sources.get(usize::from(source)).copied().unwrap_or_default();
        if !routes.control.enable() || !entry.posted() {
            self.counters.direct.fetch_add(1, Relaxed);
            return guest.interrupts().send(source);
        }
        let slot = routes.slots.get(usize::from(entry.slot())).filter(|slot| slot.descriptor.valid());
        let Some(slot) = slot else { return self.fault(FaultReason::SLOT, source) };
        match post(&guest.memory(), slot.descriptor.address_high() << 6, entry.vector(), entry.urgent()) {
            Some(notify) => {
                self.counters.posts.fetch_add(1, Relaxed);
                if notify {
                    self.counters.notifications.fetch_add(1, Relaxed);
                    guest.interrupts().send(slot.notification);
                }
            }
            None => self.fault(FaultReason::MEMORY, source),
        }
    }

    fn fault(&self, reason: FaultReason, index: u16) {
        self.counters.faults.fetch_add(1, Relaxed);
        let mut first = self.fault.lock().expect(NO_PANIC);
        if !first.valid() {
            *first = Fault::new().with_reason(reason.0).with_index(index).with_valid(true);
        }
    }

    /// Reads 4 or 8 bytes at a naturally aligned offset. Any other read returns 0.
    pub(crate) fn read(&self, offset: u32, width_bytes: u8) -> u64 {
        match (width_bytes, offset % 8) {
            (4, 0) => self.read64(offset) & 0xffff_ffff,
            (4, 4) => self.read64(offset & !7) >> 32,
            (8, 0) => self.read64(offset),
            _ => 0,
        }
    }

    fn read64(&self, offset: u32) -> u64 {
        let routes = self.routes.read().expect(NO_PANIC);
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        match offset {
            at::SIGNATURE => pair(SIGNATURE, VERSION),
            at::COUNTS => {
                let counts = Counts::new().with_sources(routes.sources.len() as u16);
                let tables = Tables::new().with_slots(SLOTS as u16).with_sources(SOURCES as u16);
                pair(counts.with_slots(routes.slots.len() as u16).into_bits(), tables.into_bits())
            }
            at::CONTROL => pair(routes.control.into_bits(), self.fault.lock().expect(NO_PANIC).into_bits()),
            at::POSTS..header::BYTES => self.counters.all()[((offset - at::POSTS) / 8) as usize].load(Relaxed),
            SLOTS..SOURCES => {
                let slot = routes.slots.get(((offset - SLOTS) / slot::SIZE) as usize).copied().unwrap_or_default();
                if offset.is_multiple_of(slot::SIZE) { slot.descriptor.into_bits() } else { slot.notification.into() }
            }
            SOURCES.. => {
                let first = ((offset - SOURCES) / 4) as usize;
                let source = |index| routes.sources.get(index).map_or(0, |source: &Source| source.into_bits());
                pair(source(first), source(first + 1))
            }
            _ => 0,
        }
    }

    /// Writes 4 or 8 bytes at a naturally aligned offset; 8 bytes take effect in one step. Any other write is refused,
    /// and so is a write that the manual forbids.
    pub(crate) fn write(&self, offset: u32, width_bytes: u8, value: u64) {
        let mut routes = self.routes.write().expect(NO_PANIC);
        let done = match (width_bytes, offset % 8) {
            (8, 0) if (SLOTS..SOURCES).contains(&offset) && offset % slot::SIZE == at::DESCRIPTOR => {
                self.write_descriptor(&mut routes, offset, value)
            }
            (8, 0) => {
                self.write32(&mut routes, offset, value as u32)
                    && self.write32(&mut routes, offset + 4, (value >> 32) as u32)
            }
            (4, 0 | 4) => self.write32(&mut routes, offset, value as u32),
            _ => false,
        };
        if !done {
            self.fault(FaultReason::REFUSED, offset as u16);
        }
    }

    /// Returns false when the manual forbids the write.
    fn write32(&self, routes: &mut Routes, offset: u32, value: u32) -> bool {
        match offset {
            at::CONTROL => {
                let allowed = value & !Control::new().with_enable(true).into_bits() == 0;
                if allowed {
                    routes.control = Control::from_bits(value);
                }
                allowed
            }
            at::FAULT => {
                let mut fault = self.fault.lock().expect(NO_PANIC);
                if Fault::from_bits(value).valid() {
                    *fault = Fault::new();
                }
                true
            }
            SLOTS..SOURCES => self.write_slot(routes, offset, value),
            SOURCES.. => {
                let slots = routes.slots.len();
                let Some(entry) = routes.sources.get_mut(((offset - SOURCES) / 4) as usize) else { return false };
                let source = Source::from_bits(value);
                let all = Source::new().with_posted(true).with_urgent(true).with_vector(0xff).with_slot(0xffff);
                let allowed = value & !all.into_bits() == 0 && usize::from(source.slot()) < slots;
                if allowed {
                    *entry = source;
                }
                allowed
            }
            _ => false,
        }
    }

    fn write_slot(&self, routes: &mut Routes, offset: u32, value: u32) -> bool {
        let index = ((offset - SLOTS) / slot::SIZE) as usize;
        let Some(own) = routes.slots.get_mut(index) else { return false };
        let before = own.descriptor.into_bits();
        match offset % slot::SIZE {
            at::NOTIFICATION if value < u32::from(self.vectors) => own.notification = value as u16,
            at::NOTIFICATION => return false,
            byte if byte < at::NOTIFICATION => {
                let shift = byte * 8;
                let merged = before & !(0xffff_ffff << shift) | u64::from(value) << shift;
                return self.write_descriptor(routes, offset & !7, merged);
            }
            _ => return value == 0,
        }
        true
    }

    fn write_descriptor(&self, routes: &mut Routes, offset: u32, value: u64) -> bool {
        let Some(own) = routes.slots.get_mut(((offset - SLOTS) / slot::SIZE) as usize) else { return false };
        let all = SlotDescriptor::new().with_valid(true).with_address_high(u64::MAX >> 6);
        let allowed = value & !all.into_bits() == 0;
        if allowed {
            own.descriptor = SlotDescriptor::from_bits(value);
        }
        allowed
    }
}

/// Requests `vector` in the descriptor at `address`. Returns whether a notification is due; None when no memory is
/// there.
///
/// A remapping unit updates the whole descriptor in one access. Two accesses work as well (SP, "Posting"). The second
/// is a read-modify-write even when it changes nothing. So it comes either before the handler clears ON, and then the
/// handler's final look sees the request; or after that, and then it notifies.
fn post(memory: &ClientMemory, address: u64, vector: u8, urgent: bool) -> Option<bool> {
    let word = |index: usize| address.wrapping_add(index as u64 * 8);
    memory.with_word(word(usize::from(vector / 64)), |requests| requests.fetch_or(1 << (vector % 64), SeqCst))?;
    memory.with_word(word(posted::CONTROL_WORD), |control| {
        let mut seen = control.load(Relaxed);
        loop {
            let now = posted::Control::from_bits(seen);
            let notify = !now.outstanding() && (urgent || !now.suppress());
            let new = now.with_outstanding(now.outstanding() || notify).into_bits();
            match control.compare_exchange_weak(seen, new, SeqCst, Relaxed) {
                Ok(_) => return notify,
                Err(now) => seen = now,
            }
        }
    })
}

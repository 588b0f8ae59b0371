//! A served function's access to its client, from any of its threads: memory, interrupts, posted descriptors.

use crate::client_memory::ClientMemory;
use crate::function::Served;
use crate::interrupts::Interrupts;
use crate::posting::Block;
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Memory and interrupts of a client.
pub(crate) struct Guest {
    memory: RwLock<ClientMemory>,
    interrupts: Mutex<Interrupts>,
    posting: Option<Block>,
}

const NO_PANIC: &str = "nothing panics while it is held";

impl Guest {
    pub(crate) fn new(served: &Served) -> Self {
        let posting =
            (served.posting_slots > 0).then(|| Block::new(served.sources, served.vectors(), served.posting_slots));
        Self { memory: RwLock::default(), interrupts: Mutex::new(Interrupts::new(served.vectors())), posting }
    }

    /// The guest memory for reading and writing. It stays mapped until the guard is dropped.
    pub(crate) fn memory(&self) -> RwLockReadGuard<'_, ClientMemory> {
        self.memory.read().expect(NO_PANIC)
    }

    /// The guest memory for mapping and unmapping. Waits until all accesses to it have ended.
    pub(crate) fn memory_mut(&self) -> RwLockWriteGuard<'_, ClientMemory> {
        self.memory.write().expect(NO_PANIC)
    }

    pub(crate) fn interrupts(&self) -> MutexGuard<'_, Interrupts> {
        self.interrupts.lock().expect(NO_PANIC)
    }

    pub(crate) fn posting(&self) -> Option<&Block> {
        self.posting.as_ref()
    }

    /// Delivers the interrupt of MSI-X vector `source`: as an MSI-X message, or by posting.
    pub(crate) fn raise(&self, source: u16) {
        match &self.posting {
            Some(block) => block.raise(source, self),
            None => self.interrupts().send(source),
        }
    }
}

//! The device of one client on its own thread: the function, and the state that every function has.

use crate::config_space;
use crate::function::{Function, MSIX_BAR, Served};
use crate::guest::Guest;
use crate::posting;
use crate::server::Report;
use machine::pci::{MSIX_CAPABILITY_OFFSET, PBA_OFFSET};
use spec::msi::{MsixControl, MsixVectorControl, msix_entry};
use std::fs::File;
use std::io::Error;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// A job for the device thread.
pub(crate) type Job = Box<dyn FnOnce(&mut Device) + Send>;

/// The device.
pub(crate) struct Device {
    served: Served,
    guest: Arc<Guest>,
    function: Box<dyn Function>,
    report: Report,
}

impl Device {
    pub(crate) fn new(served: Served, report: Report) -> Self {
        let guest = Arc::new(Guest::new(&served));
        let function = (served.make)(&guest);
        Self { served, guest, function, report }
    }

    /// Runs jobs and due events until the client is gone. Then reports the function's activity.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let wait = self.function.catch_up();
            self.tell_faults();
            let job = match wait {
                Some(wait) => jobs.recv_timeout(wait),
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) => {
                    self.function.catch_up();
                    job(&mut self);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.tell_faults();
        self.tell_counts();
    }

    fn tell_faults(&mut self) {
        self.function.tell_faults(&*self.report);
    }

    fn tell_counts(&self) {
        let posted = self.guest.posting().map_or(String::new(), |block| format!(", {}", block.counts()));
        let lost = self.guest.interrupts().lost;
        if let Some(counts) = self.function.counts() {
            (self.report)(&format!("since the last reset: {counts}{posted}; messages without an eventfd {lost}"));
        }
    }

    /// Reads a register.
    pub(crate) fn bar_read(&mut self, bar: u8, offset: u32, width_bytes: u8) -> u64 {
        match self.guest.posting() {
            Some(block) if bar == posting::BAR => return block.read(offset, width_bytes),
            _ => {}
        }
        let own = self.function.read(bar, offset, width_bytes);
        if bar != MSIX_BAR || offset < PBA_OFFSET {
            return own;
        }
        let pending = self.guest.interrupts().pending((offset - PBA_OFFSET) as usize * 8);
        own | if width_bytes < 8 { pending & ((1 << (8 * width_bytes)) - 1) } else { pending }
    }

    /// Writes a register. In the MSI-X table only the mask bits change, because the VMM owns the table's addresses.
    pub(crate) fn bar_write(&mut self, bar: u8, offset: u32, width_bytes: u8, value: u64) {
        match self.guest.posting() {
            Some(block) if bar == posting::BAR => return block.write(offset, width_bytes, value),
            _ => {}
        }
        if bar != MSIX_BAR {
            return self.function.write(bar, offset, width_bytes, value);
        }
        for (at, dword) in [(offset, value as u32), (offset.wrapping_add(4), (value >> 32) as u32)] {
            let wanted = at == offset || width_bytes == 8;
            if wanted && at < PBA_OFFSET && at % msix_entry::SIZE == msix_entry::CONTROL {
                self.set_mask((at / msix_entry::SIZE) as usize, MsixVectorControl::from_bits(dword).masked());
            }
        }
    }

    /// A register of configuration space. The function's capability list includes the posting capability.
    fn config_register(&mut self, at: u32) -> u32 {
        let own = self.function.config_read(at);
        if self.served.posting_slots > 0 { posting::with_capability(own, at) } else { own }
    }

    pub(crate) fn config_read(&mut self, offset: u32, to: &mut [u8]) {
        config_space::read(offset, to, |at| self.config_register(at));
    }

    pub(crate) fn config_write(&mut self, offset: u32, from: &[u8]) {
        for (at, value) in config_space::merged(offset, from, |at| self.config_register(at)) {
            if at == MSIX_CAPABILITY_OFFSET {
                let control = MsixControl::from_bits((value >> 16) as u16);
                self.guest.interrupts().hold(!control.enable() || control.function_mask());
            }
            self.function.config_write(at, value);
        }
    }

    pub(crate) fn map(&mut self, address: u64, offset: u64, bytes: u64, file: File) -> Result<(), Error> {
        self.guest.memory_mut().map(address, offset, bytes, file)
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) {
        self.guest.memory_mut().unmap(address, bytes);
    }

    pub(crate) fn unmap_all(&mut self) {
        self.guest.memory_mut().clear();
    }

    /// Assigns eventfds to the vectors from `start` on, or removes them. A vector with an eventfd is unmasked.
    pub(crate) fn set_eventfds(&mut self, start: usize, eventfds: Vec<Option<File>>) -> Result<(), Error> {
        for (vector, eventfd) in (start..).zip(eventfds) {
            let masked = eventfd.is_none();
            self.guest.interrupts().set(vector, eventfd)?;
            self.set_mask(vector, masked);
        }
        Ok(())
    }

    /// Masks or unmasks a vector. Unmasking sends a pending interrupt.
    pub(crate) fn set_mask(&mut self, vector: usize, masked: bool) {
        self.guest.interrupts().set_mask(vector, masked);
        if vector < self.vectors() {
            self.function.set_mask(vector as u16, masked);
        }
    }

    /// MSI-X vectors.
    pub(crate) fn vectors(&self) -> usize {
        self.served.vectors().into()
    }

    /// Sends the vectors' interrupts, as the function would.
    pub(crate) fn trigger(&mut self, start: usize, count: usize) {
        let mut interrupts = self.guest.interrupts();
        (start..).take(count).for_each(|vector| interrupts.signal(vector));
    }

    /// Function-level reset: creates a new function, which posts nothing. Memory and eventfds belong to the client and
    /// stay.
    pub(crate) fn reset(&mut self) {
        self.tell_faults();
        self.tell_counts();
        // First ends every thread that might post.
        self.function = (self.served.make)(&self.guest);
        if let Some(block) = self.guest.posting() {
            block.reset();
        }
        self.guest.interrupts().reset();
        for vector in 0..self.vectors() {
            let set = self.guest.interrupts().is_set(vector);
            self.set_mask(vector, !set);
        }
    }
}

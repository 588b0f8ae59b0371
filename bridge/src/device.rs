//! The device of one client, on a thread of its own: the lent model, the client's memory and interrupts, and the clock.

use crate::client_memory::ClientMemory;
use crate::config_space;
use crate::interrupts::Interrupts;
use crate::nvme::Drive;
use crate::server::Report;
use machine::lent::{Host, Lent};
use machine::nvme::{MSIX_CAPABILITY_OFFSET, REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::time::Ps;
use spec::msi::msix_entry;
use std::cell::RefCell;
use std::fs::File;
use std::io::Error;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Something for the device to do.
pub(crate) type Job = Box<dyn FnOnce(&mut Device) + Send>;

/// The model's time that passes at most before the client is heard again, should the host be slower than the model.
const SLICE: Ps = Ps::from_ns(1_000_000);
/// The address that the model's MSI-X table holds: which vector it is, the data says. The guest's own addresses stay with
/// its VMM, as for every VFIO device.
const MESSAGE_ADDRESS: u32 = 0xfee0_0000;

/// What the model reaches: shared by the model's events and the client's requests, on one thread.
struct Client {
    memory: RefCell<ClientMemory>,
    interrupts: RefCell<Interrupts>,
}

struct ClientHost(Rc<Client>);

impl Host for ClientHost {
    fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        self.0.memory.borrow().read(address, bytes)
    }

    fn write(&self, address: u64, bytes: u32, value: u64) -> bool {
        self.0.memory.borrow().write(address, bytes, value)
    }

    fn message(&self, _address: u64, data: u32) {
        self.0.interrupts.borrow_mut().signal(data);
    }
}

/// The device.
pub(crate) struct Device {
    drive: Drive,
    client: Rc<Client>,
    lent: Lent,
    /// When the model's time was 0.
    start: Instant,
    report: Report,
    /// Kinds of faults that were reported.
    faults_told: usize,
}

impl Device {
    pub(crate) fn new(drive: Drive, report: Report) -> Self {
        let client =
            Rc::new(Client { memory: RefCell::default(), interrupts: RefCell::new(Interrupts::new(drive.vectors())) });
        let lent = lend(&drive, &client);
        Self { drive, client, lent, start: Instant::now(), report, faults_told: 0 }
    }

    /// Does jobs and lets events happen until the client is gone; then says what the drive has done.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let behind = self.catch_up();
            self.tell_faults();
            let job = match (behind, self.lent.next_event()) {
                (true, _) => jobs.try_recv().map_err(|error| match error {
                    std::sync::mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
                    std::sync::mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                }),
                (false, Some(at)) => jobs.recv_timeout(self.until(at)),
                (false, None) => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) => {
                    self.catch_up();
                    job(&mut self);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.tell_faults();
        self.tell_counts();
    }

    /// The model's time on the wall's clock.
    fn wall(&self) -> Ps {
        Ps::from_ns(self.start.elapsed().as_nanos() as u64)
    }

    fn until(&self, at: Ps) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.wall()).0.div_ceil(1000))
    }

    /// Lets what is due happen, a slice at most. True when more is due.
    fn catch_up(&mut self) -> bool {
        let wall = self.wall();
        self.lent.run_until(wall.min(self.lent.now() + SLICE));
        if self.lent.next_event().is_none_or(|at| at > wall) {
            self.lent.run_until(wall);
            return false;
        }
        true
    }

    fn tell_faults(&mut self) {
        let kinds = self.lent.fault_kinds();
        if kinds > self.faults_told {
            for fault in &self.lent.faults().0[self.faults_told..] {
                (self.report)(&format!("the drive: {}: {}", fault.kind, fault.text));
            }
            self.faults_told = kinds;
        }
    }

    fn tell_counts(&self) {
        let wanted = ["reads", "writes", "completions", "errors", "msis", "coalesced", "doorbell_errors"];
        let counters = self.lent.counters();
        let shown: Vec<_> = counters
            .iter()
            .filter(|(name, _)| wanted.contains(name))
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let lost = self.client.interrupts.borrow().lost;
        (self.report)(&format!("since the last reset: {}; messages without an eventfd {lost}", shown.join(", ")));
    }

    /// Reads a register of BAR 0 or 4.
    pub(crate) fn bar_read(&mut self, region: u8, offset: u32, width_bytes: u8) -> u64 {
        self.lent.read(region, offset, width_bytes)
    }

    /// Writes a register of BAR 0, or a mask of the MSI-X table; the table's addresses are the VMM's.
    pub(crate) fn bar_write(&mut self, region: u8, offset: u32, width_bytes: u8, value: u64) {
        if region == REGION_CONTROLLER {
            return self.lent.write(region, offset, width_bytes, value);
        }
        for (at, dword) in [(offset, value as u32), (offset.wrapping_add(4), (value >> 32) as u32)] {
            let wanted = at == offset || width_bytes == 8;
            if wanted && at % msix_entry::SIZE == msix_entry::CONTROL {
                self.lent.write(REGION_MSIX, at, 4, dword.into());
            }
        }
    }

    pub(crate) fn config_read(&mut self, offset: u32, to: &mut [u8]) {
        config_space::read(offset, to, |at| self.lent.read(REGION_CONFIG, at, 4) as u32);
    }

    pub(crate) fn config_write(&mut self, offset: u32, from: &[u8]) {
        for (at, value) in config_space::merged(offset, from, |at| self.lent.read(REGION_CONFIG, at, 4) as u32) {
            self.lent.write(REGION_CONFIG, at, 4, value.into());
        }
    }

    pub(crate) fn map(&mut self, address: u64, offset: u64, bytes: u64, file: File) -> Result<(), Error> {
        self.client.memory.borrow_mut().map(address, offset, bytes, file)
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) {
        self.client.memory.borrow_mut().unmap(address, bytes);
    }

    pub(crate) fn unmap_all(&mut self) {
        self.client.memory.borrow_mut().clear();
    }

    /// Gives vectors from `start` on their eventfds, or takes them away. A vector with one is unmasked.
    pub(crate) fn set_eventfds(&mut self, start: usize, eventfds: Vec<Option<File>>) -> Result<(), Error> {
        for (vector, eventfd) in (start..).zip(eventfds) {
            let masked = eventfd.is_none();
            self.client.interrupts.borrow_mut().set(vector, eventfd)?;
            self.set_mask(vector, masked);
        }
        Ok(())
    }

    /// Masks a vector, or unmasks it; what is pending is then sent.
    pub(crate) fn set_mask(&mut self, vector: usize, masked: bool) {
        let entry = vector as u32 * msix_entry::SIZE;
        self.lent.write(REGION_MSIX, entry + msix_entry::CONTROL, 4, masked.into());
    }

    /// MSI-X vectors.
    pub(crate) fn vectors(&self) -> usize {
        self.client.interrupts.borrow().count()
    }

    /// Sends vectors' interrupts as the drive would.
    pub(crate) fn trigger(&mut self, start: usize, count: usize) {
        for vector in (start..).take(count) {
            self.client.interrupts.borrow_mut().signal(vector as u32);
        }
    }

    /// A function-level reset: a new drive on the same blocks. Memory and eventfds are the client's and stay.
    pub(crate) fn reset(&mut self) {
        self.tell_faults();
        self.lent = lend(&self.drive, &self.client);
        (self.start, self.faults_told) = (Instant::now(), 0);
        for vector in 0..self.vectors() {
            let set = self.client.interrupts.borrow().is_set(vector);
            self.set_mask(vector, !set);
        }
    }
}

/// A new drive, whose messages name their vector.
fn lend(drive: &Drive, client: &Rc<Client>) -> Lent {
    let host = Box::new(ClientHost(client.clone()));
    let mut lent = Lent::new(host, 1, 0, |port| drive.build(port));
    debug_assert!(lent.read(REGION_CONFIG, MSIX_CAPABILITY_OFFSET, 4) != 0);
    for vector in 0..drive.vectors() {
        let entry = u32::from(vector) * msix_entry::SIZE;
        lent.write(REGION_MSIX, entry + msix_entry::ADDRESS_LOW, 4, MESSAGE_ADDRESS.into());
        lent.write(REGION_MSIX, entry + msix_entry::DATA, 4, vector.into());
    }
    lent
}

//! Posted MSI alone: a kernel keeps its own interrupt descriptors, vectors and drivers, and takes only the delivery.
//!
//! The kernel needs three things: descriptors ([`PostedMsi::new`]), their addresses for its own IOMMU driver, and one
//! more gate in its IDT. Every other interrupt stays as it is.
//!
//! ```text
//! IRTE of a device:  format posted, descriptor address, vector    (kernel's own IOMMU driver)
//! IDT gate 0xeb  ──► PostedInterrupts::notification()  ──► PostedMsi::handle ──► the kernel's table, vector by vector
//! ```
//!
//! The kernel's own code must then observe one rule. A vector that came by notification was never in the LAPIC, so its
//! handler must not write the EOI register. [`PostedInterrupts::came_posted`] tells the handler.
#![no_std]
extern crate alloc;

use alloc::boxed::Box;
use hal::{CpuId, DeviceAddress, Hal};
use irq::Vector;
use irq::posted::{PostedConfig, PostedError, PostedMsi, Served};

/// A handler of the kernel's own table.
pub type Handler = Box<dyn Fn(Vector) + Send + Sync>;

/// The kernel's interrupt table, with posted delivery added to it.
pub struct PostedInterrupts<H: Hal> {
    posted: PostedMsi<H>,
    handlers: [Option<Handler>; 256],
    /// Writes the EOI register: WRMSR in x2APIC mode, or the xAPIC's register.
    eoi: Box<dyn Fn() + Send + Sync>,
}

impl<H: Hal> PostedInterrupts<H> {
    /// The gate of notifications.
    pub const NOTIFICATION: Vector = Vector(0xeb);

    /// Descriptors for CPUs from 0 on, whose APIC ids are `apic_ids`.
    ///
    /// # Errors
    /// [`PostedError`] without a CPU or memory.
    pub fn new(hal: H, apic_ids: &[u32], eoi: Box<dyn Fn() + Send + Sync>) -> Result<Self, PostedError> {
        let config = PostedConfig { notification_vector: Self::NOTIFICATION, ..PostedConfig::default() };
        let posted = PostedMsi::new(hal, config, apic_ids)?;
        Ok(Self { posted, handlers: [const { None }; 256], eoi })
    }

    /// The descriptor for `cpu`. The kernel's IOMMU driver writes it into the remapping entry of a device.
    pub fn descriptor_address(&self, cpu: CpuId) -> Option<DeviceAddress> {
        self.posted.descriptor_address(cpu)
    }

    /// Puts a device's handler into the table. `vector` stays silent until the device is programmed with it.
    pub fn set_handler(&mut self, vector: Vector, handler: Handler) {
        self.handlers[usize::from(vector.0)] = Some(handler);
    }

    /// Handles IDT gate [`Self::NOTIFICATION`], with interrupts off.
    pub fn notification(&self) -> Served {
        self.posted.handle(|vector| self.run(vector), || (self.eoi)())
    }

    /// Handles every other gate of the IDT, for devices whose messages are not posted, with interrupts off.
    pub fn vector(&self, vector: Vector) {
        self.run(vector);
        (self.eoi)();
    }

    /// True if the running handler was called for a posted vector.
    pub fn came_posted(&self) -> bool {
        self.posted.is_serving()
    }

    /// The protocol and its counters, for the parts left to the kernel: `/proc/interrupts`, a CPU that goes offline.
    pub fn posted(&self) -> &PostedMsi<H> {
        &self.posted
    }

    fn run(&self, vector: Vector) {
        if let Some(handler) = &self.handlers[usize::from(vector.0)] {
            handler(vector);
        }
    }
}

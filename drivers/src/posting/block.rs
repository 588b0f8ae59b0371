//! The block's registers.

use super::PostingError;
use crate::pci::list::{self, Unfound};
use crate::register::{Typed as _, Width};
use alloc::sync::Arc;
use hal::{CpuId, DeviceAddress, Hal, Regs};
use irq::posted::PostedMsi;
use irq::{IrqError, Target};
use spec::posting::{
    BLOCK_ALIGN, CAPABILITY_ID, CapabilityHead, Control, Counts, Fault, FaultReason, SIGNATURE, SlotDescriptor, Source,
    Tables, VERSION, capability, header, slot,
};
use spec::register::{ReadOnly, ReadWrite, Readable, Register, Writable};

/// The place of a function's block (SP, "Finding it").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostingCapability {
    /// Its base address register.
    pub bar: u8,
    /// Its offset in that region, in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub len_bytes: u32,
}

impl PostingCapability {
    /// Looks for it in a function's configuration space.
    ///
    /// # Errors
    /// [`PostingError::Missing`] when there is none, [`PostingError::Loop`] or [`PostingError::Cut`] when the list of
    /// capabilities is broken.
    pub fn find(config: &impl Regs) -> Result<Self, PostingError> {
        let ours = |at: u32, head: u32| {
            let head = CapabilityHead::from_bits(head);
            if head.id() != CAPABILITY_ID || head.length_bytes() < capability::BYTES {
                return None;
            }
            if !list::is_whole(at, capability::BYTES.into()) {
                return Some(Err(PostingError::Cut(at)));
            }
            let word = |field: u32| config.read32(at + field);
            (word(capability::SIGNATURE) == SIGNATURE).then(|| {
                let (offset, len_bytes) = (word(capability::OFFSET), word(capability::LENGTH));
                Ok(Self { bar: head.bar(), offset, len_bytes })
            })
        };
        list::find(config, ours).unwrap_or_else(|unfound| match unfound {
            Unfound::Missing => Err(PostingError::Missing),
            Unfound::Loop => Err(PostingError::Loop),
        })
    }

    /// Checks that the block lies within its region of `bar_len_bytes`. Check this before [`PostingBlock::new`] reads at an
    /// offset that the device reported.
    ///
    /// # Errors
    /// [`PostingError::Region`] when it does not.
    pub fn fits(&self, bar_len_bytes: u32) -> Result<(), PostingError> {
        match self.offset.checked_add(self.len_bytes).is_some_and(|end| end <= bar_len_bytes) {
            true => Ok(()),
            false => Err(PostingError::Region(self.offset, self.len_bytes, bar_len_bytes)),
        }
    }

    /// Checks that a block of this place and length has a header whose registers can be accessed (SP, "The block").
    fn check(&self) -> Result<(), PostingError> {
        self.fits(u32::MAX)?;
        if !self.offset.is_multiple_of(BLOCK_ALIGN) {
            return Err(PostingError::Offset(self.offset));
        }
        if self.len_bytes < header::BYTES { Err(PostingError::Short(self.len_bytes)) } else { Ok(()) }
    }
}

/// The device's counters since its reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PostingCounts {
    /// Requests posted.
    pub posts: u64,
    /// Notifications sent.
    pub notifications: u64,
    /// Interrupts sent as messages of their own.
    pub direct: u64,
    /// Faults.
    pub faults: u64,
}

/// The first fault since the last was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostingFault {
    /// Why.
    pub reason: FaultReason,
    /// The source, or for a refused write the register's offset.
    pub index: u16,
}

/// A function's block, with a slot for each CPU that has a posted descriptor: slot *n* for CPU *n*.
pub struct PostingBlock<H: Hal> {
    bar: H::Regs,
    offset: u32,
    counts: Counts,
    tables: Tables,
    posted: Arc<PostedMsi<H>>,
}

impl<H: Hal> PostingBlock<H> {
    /// The block that `capability` describes, in the region `bar`. Gives each CPU's descriptor its slot; MSI-X vector
    /// [`PostingBlock::notification_entry`] notifies that CPU. Nothing is posted yet. Accesses stay within the bytes that
    /// `capability` names; [`PostingCapability::fits`] tells if those lie within the region.
    ///
    /// # Errors
    /// [`PostingError`] when the block is invalid or has too few slots.
    pub fn new(bar: H::Regs, capability: PostingCapability, posted: Arc<PostedMsi<H>>) -> Result<Self, PostingError> {
        capability.check()?;
        let PostingCapability { offset, len_bytes, .. } = capability;
        let word = |register: Register<u32, ReadOnly>| bar.read(register.behind(offset));
        let (signature, version) = (word(header::SIGNATURE), word(header::VERSION));
        if signature != SIGNATURE {
            return Err(PostingError::Signature(signature));
        }
        if version >> 16 != VERSION >> 16 {
            return Err(PostingError::Version(version));
        }
        let (counts, tables) = (Counts::from_bits(word(header::COUNTS)), Tables::from_bits(word(header::TABLES)));
        let ends = [
            u32::from(tables.slots()) + u32::from(counts.slots()) * slot::SIZE,
            u32::from(tables.sources()) + u32::from(counts.sources()) * 4,
        ];
        if ends.iter().any(|&end| end > len_bytes) {
            return Err(PostingError::Tables(len_bytes));
        }
        if !tables.slots().is_multiple_of(8) {
            return Err(PostingError::Crooked(tables.slots().into()));
        }
        if !tables.sources().is_multiple_of(4) {
            return Err(PostingError::Crooked(tables.sources().into()));
        }
        let block = Self { bar, offset, counts, tables, posted };
        block.set_slots()?;
        Ok(block)
    }

    fn set_slots(&self) -> Result<(), PostingError> {
        let cpus = (0..).take_while(|&cpu| self.posted.descriptor_address(CpuId(cpu)).is_some()).count() as u32;
        if cpus > u32::from(self.counts.slots()) {
            return Err(PostingError::Slots(self.counts.slots(), cpus));
        }
        for cpu in 0..cpus {
            let at = u32::from(self.tables.slots()) + cpu * slot::SIZE;
            let DeviceAddress(address) = self.posted.descriptor_address(CpuId(cpu)).expect("counted above");
            let descriptor = SlotDescriptor::new().with_valid(true).with_address_high(address >> 6);
            self.write(slot::NOTIFICATION.behind(at), self.notification_entry(CpuId(cpu)));
            self.write(slot::DESCRIPTOR.behind(at), descriptor.into_bits());
            if self.read(slot::DESCRIPTOR.behind(at)) != descriptor.into_bits() {
                return Err(PostingError::Slot(cpu));
            }
        }
        Ok(())
    }

    fn write<T: Width, A: Writable>(&self, register: Register<T, A>, value: T) {
        self.bar.write(register.behind(self.offset), value);
    }

    fn read<T: Width, A: Readable>(&self, register: Register<T, A>) -> T {
        self.bar.read(register.behind(self.offset))
    }

    /// Sources: the first so many of the function's MSI-X vectors.
    pub fn sources(&self) -> u32 {
        self.counts.sources().into()
    }

    /// The MSI-X vector that notifies `cpu`: behind those of the sources.
    pub fn notification_entry(&self, cpu: CpuId) -> u32 {
        self.sources() + cpu.0
    }

    /// The descriptors that it posts to.
    pub fn posted(&self) -> &Arc<PostedMsi<H>> {
        &self.posted
    }

    /// Sources that are routed post from now on.
    pub fn enable(&self) {
        self.write(header::CONTROL, Control::new().with_enable(true).into_bits());
        // The write takes effect before any later request to the device.
        self.read(header::CONTROL);
    }

    /// Makes every source send its own message. Once this returns, the device posts nothing.
    pub fn disable(&self) {
        self.write(header::CONTROL, Control::new().into_bits());
        self.read(header::CONTROL);
    }

    /// Posts `source` to `target`'s descriptor; without a target the source is no longer posted. Once this returns,
    /// nothing reaches the old descriptor (SP, "Changing it").
    ///
    /// # Errors
    /// [`IrqError::Target`] for a target without descriptor or vector, [`IrqError::Hardware`] when the block refuses
    /// the change.
    pub(super) fn route(&self, source: u32, target: Option<Target>) -> Result<(), IrqError> {
        let entry = match target {
            None => Source::new(),
            Some(target) => {
                let nowhere = IrqError::Target(super::domain::NAME, target);
                self.posted.descriptor_address(target.cpu).ok_or(nowhere)?;
                let vector = target.vector().ok_or(nowhere)?;
                Source::new().with_posted(true).with_vector(vector.0).with_slot(target.cpu.0 as u16)
            }
        };
        let register: Register<u32, ReadWrite> = Register::at(u32::from(self.tables.sources()) + source * 4);
        self.write(register, entry.into_bits());
        if self.read(register) != entry.into_bits() {
            return Err(IrqError::Hardware(
                super::domain::NAME,
                "a source does not keep the value that was written to it",
            ));
        }
        Ok(())
    }

    /// The device's counters.
    pub fn counts(&self) -> PostingCounts {
        PostingCounts {
            posts: self.read(header::POSTS),
            notifications: self.read(header::NOTIFICATIONS),
            direct: self.read(header::DIRECT),
            faults: self.read(header::FAULTS),
        }
    }

    /// Takes the recorded fault, if any.
    pub fn take_fault(&self) -> Option<PostingFault> {
        let fault = Fault::from_bits(self.read(header::FAULT));
        if !fault.valid() {
            return None;
        }
        let register = header::FAULT.behind(self.offset);
        self.bar.strobe(register, Fault::new().with_valid(true).into_bits());
        Some(PostingFault { reason: FaultReason(fault.reason()), index: fault.index() })
    }
}

//! How CPUs reach a GIC's registers, and what they may not do there.

use crate::core::Core;
use crate::event::Event;
use crate::model::ModelId;
use crate::world::World;

/// A region of the GIC's registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GicRegion {
    /// The distributor.
    Distributor,
    /// GICv2's CPU interface.
    CpuInterface,
    /// GICv3's CPU interface: system registers.
    System,
    /// GICv3's redistributors.
    Redistributors,
    /// The ITS.
    Its,
    /// The v2m frame.
    V2m,
}

impl GicRegion {
    /// How many there are.
    pub(super) const COUNT: usize = Self::ALL.len();

    const ALL: [Self; 6] =
        [Self::Distributor, Self::CpuInterface, Self::System, Self::Redistributors, Self::Its, Self::V2m];

    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether each CPU sees registers of its own, or of its own too, at the same address.
    pub(super) fn is_banked(self) -> bool {
        matches!(self, Self::Distributor | Self::CpuInterface | Self::System)
    }
}

/// Offsets of a banked region end here; the CPU's number is above.
const BANK_BITS: u32 = 16;

/// No region reaches further.
const REGION_BYTES: u32 = 1 << 26;

/// Splits what the machine told the model: the CPU, and the offset of its register.
pub(super) fn split(region: GicRegion, offset: u32) -> (u32, u32) {
    if region.is_banked() { (offset >> BANK_BITS, offset & ((1 << BANK_BITS) - 1)) } else { (0, offset) }
}

/// Why an access was not served. Reads give 0, writes are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// No register there.
    Reserved,
    /// The register has another width, or the offset is not aligned to it.
    Width,
    /// A write to a register that is only read.
    ReadOnly,
    /// A read of a register that is only written.
    WriteOnly,
    /// The register may not be written in the state that the GIC is in.
    Busy,
}

impl Refusal {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Reserved => "GIC access to no register",
            Self::Width => "GIC access of a wrong width",
            Self::ReadOnly => "GIC write to a read-only register",
            Self::WriteOnly => "GIC read of a write-only register",
            Self::Busy => "GIC write to a register while it is in use",
        }
    }
}

/// What an access comes to.
pub(super) type Outcome<T> = Result<T, Refusal>;

impl Core {
    /// The offset as the model sees it: with the running CPU's number where registers are banked. The console looks
    /// through CPU 0's eyes. `None` when the offset lies outside of the bank.
    fn gic_offset(&self, region: GicRegion, offset: u32) -> Option<u32> {
        if !region.is_banked() {
            return (offset < REGION_BYTES).then_some(offset);
        }
        let cpu = if self.on_console() { 0 } else { self.cpu().id.0 };
        (offset >> BANK_BITS == 0).then_some(cpu << BANK_BITS | offset)
    }

    /// A thread that was preempted meanwhile may have moved to another CPU, and sees its bank.
    fn rebanked(&self, region: GicRegion, offset: u32) -> u32 {
        self.gic_offset(region, split(region, offset).1).unwrap_or(offset)
    }

    /// A read by the running CPU: everything due has happened before.
    pub(crate) fn gic_read(&self, model: ModelId, region: GicRegion, offset: u32, width_bytes: u8) -> u64 {
        let Some(offset) = self.gic_offset(region, offset) else {
            self.cpu_fault(Refusal::Reserved.kind(), format!("{region:?}, offset {offset:#x}"));
            return 0;
        };
        let costs = self.model(model).borrow().access_costs(region as u8, offset);
        self.cpu().owe(costs.map_or(0, |costs| costs.read.0), self.kernel_account());
        self.settle();
        let offset = self.rebanked(region, offset);
        let mut target = self.model(model).borrow_mut();
        target.read(&mut World::new(self, model), region as u8, offset, width_bytes)
    }

    /// A write by the running CPU: it has arrived when this returns.
    pub(crate) fn gic_write(&self, model: ModelId, region: GicRegion, offset: u32, width_bytes: u8, value: u64) {
        let Some(offset) = self.gic_offset(region, offset) else {
            return self.cpu_fault(Refusal::Reserved.kind(), format!("{region:?}, offset {offset:#x}"));
        };
        let costs = self.model(model).borrow().access_costs(region as u8, offset);
        self.cpu().owe(costs.map_or(0, |costs| costs.write.0), self.kernel_account());
        self.settle();
        let offset = self.rebanked(region, offset);
        self.note(self.now(), Event::write(model, region as u8, offset, width_bytes, value));
        let mut target = self.model(model).borrow_mut();
        target.write(&mut World::new(self, model), region as u8, offset, width_bytes, value);
    }
}

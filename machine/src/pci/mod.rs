//! The shell of a PCI function: everything that every function has.
//!
//! A device implements [`Function`]: the registers of its base address registers (BARs), its events and its counters. The
//! shell does the rest: configuration space, MSI-X (table, pending bits, masks, messages), the checks of every access, and
//! the counts of messages. [`Model`] follows.
//!
//! | access | what the shell does with it |
//! |---|---|
//! | to configuration space | reads the header and the capabilities; writes MSI-X enable and function mask |
//! | to the MSI-X table or the pending bits | serves it; an unmasked vector sends what is pending |
//! | outside every BAR, or beyond the end of one | Unsupported Request: reads all ones, ignores a write, records a fault |
//! | in a width that the registers do not take | reads zero, ignores a write, records a fault |
//! | to any other place | hands it to the device |
//!
//! Regions are numbered in the order of [`Identity::bars`]; the next number is configuration space.

mod identity;
mod msix;
mod shell;
#[cfg(test)]
mod tests;

pub use identity::{Bar, Capability, ConfigSpace, Identity, MSIX_CAPABILITY_OFFSET, MsixPlace, Widths};
pub use msix::{MSIX_BAR_BYTES, PBA_OFFSET};
pub use shell::{MessageCounts, Place, Shell};

pub(crate) use shell::all_ones;

use crate::model::{AccessCosts, Model};
use crate::world::World;
use core::ops::Range;
use shell::Served;

/// A PCI device: the registers of its BARs, and its behaviour.
pub trait Function: 'static {
    /// The part that it shares with every function.
    fn shell(&self) -> &Shell;

    /// The same, to change.
    fn shell_mut(&mut self) -> &mut Shell;

    /// An event that this device scheduled, or that a bus scheduled for it. `code` and `arg` are its own.
    fn on_event(&mut self, world: &mut World<'_>, code: u32, arg: u64);

    /// Reads `width_bytes` of the BAR that is `region`. The access lies in the BAR and has a width that the BAR takes
    /// ([`Widths`]).
    fn read_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64;

    /// Writes `width_bytes` of the BAR that is `region`, under the same conditions. `value` is zero-extended.
    fn write_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64);

    /// As [`Model::write_order`].
    fn write_order(&self, _region: u8, _offset: u32) -> u32 {
        0
    }

    /// As [`Model::access_costs`].
    fn access_costs(&self, _region: u8, _offset: u32) -> Option<AccessCosts> {
        None
    }

    /// As [`Model::uses`].
    fn uses(&self, _range: &Range<u64>) -> Option<u64> {
        None
    }

    /// As [`Model::given_back`].
    fn given_back(&mut self, range: &Range<u64>) -> Option<u64> {
        self.uses(range)
    }

    /// As [`Model::counters`].
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Reads 32 bits at a multiple of 4 in a BAR or in configuration space.
fn read32<F: Function>(function: &mut F, world: &mut World<'_>, region: u8, offset: u32) -> u32 {
    match function.shell().read32(region, offset) {
        Some(value) => value,
        None => function.read_bar(world, region, offset, 4) as u32,
    }
}

/// Writes 32 bits at a multiple of 4 in a BAR or in configuration space.
fn write32<F: Function>(function: &mut F, world: &mut World<'_>, region: u8, offset: u32, value: u32) {
    if !function.shell_mut().write32(world, region, offset, value) {
        function.write_bar(world, region, offset, 4, value.into());
    }
}

impl<F: Function> Model for F {
    fn name(&self) -> &str {
        self.shell().name()
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        self.on_event(world, code, arg);
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        match self.shell().serves_read(region, offset, width_bytes) {
            Ok(Served::Whole) => self.read_bar(world, region, offset, width_bytes),
            Ok(Served::Dword) => read32(self, world, region, offset).into(),
            Ok(Served::Dwords) => {
                let low = read32(self, world, region, offset);
                u64::from(low) | u64::from(read32(self, world, region, offset + 4)) << 32
            }
            Err(refusal) => self.shell().refuse_read(world, refusal, (region, offset, width_bytes)),
        }
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        match self.shell().serves_write(region, offset, width_bytes) {
            Ok(Served::Whole) => self.write_bar(world, region, offset, width_bytes, value),
            Ok(Served::Dword) => write32(self, world, region, offset, value as u32),
            Ok(Served::Dwords) => {
                write32(self, world, region, offset, value as u32);
                write32(self, world, region, offset + 4, (value >> 32) as u32);
            }
            Err(refusal) => self.shell().refuse_write(world, refusal, (region, offset, width_bytes), value),
        }
    }

    fn write_order(&self, region: u8, offset: u32) -> u32 {
        Function::write_order(self, region, offset)
    }

    fn is_far(&self) -> bool {
        true
    }

    fn access_costs(&self, region: u8, offset: u32) -> Option<AccessCosts> {
        Function::access_costs(self, region, offset)
    }

    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        Function::uses(self, range)
    }

    fn given_back(&mut self, range: &Range<u64>) -> Option<u64> {
        Function::given_back(self, range)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Function::counters(self)
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

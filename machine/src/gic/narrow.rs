//! Accesses of 8 and 16 bits to registers that support them. Priorities, targets and the senders of SGIs have byte
//! accesses, message registers half-word accesses (IHI 0048B, "Register access"; IHI 0069H, "GICD_SETSPI_NSR").

use super::Gic;
use super::access::{GicRegion, Outcome, Refusal, split};
use super::interrupt::Field;
use crate::world::World;
use spec::gic::{gicd, gicr, msi};

/// The part of a register that a narrow access affects.
enum Part {
    /// A byte of a word; the other bytes keep their values.
    Byte,
    /// A byte of a word; only one bits have an effect.
    Strobe,
    /// The lower half of a word; the upper half is unused.
    Half,
}

fn part(region: GicRegion, offset: u32, width: u8) -> Outcome<Part> {
    let (_, offset) = split(region, offset);
    let in_frame = match region {
        GicRegion::Distributor => Some(offset),
        GicRegion::Redistributors => (offset % gicr::STRIDE_BYTES).checked_sub(gicr::SGI_FRAME),
        GicRegion::V2m if width == 2 && offset == msi::SETSPI_NS.offset() => return Ok(Part::Half),
        _ => None,
    };
    let word = in_frame.ok_or(Refusal::Width)? & !3;
    let is_message = word == gicd::SETSPI_NSR.offset() || word == gicd::CLRSPI_NSR.offset();
    match Field::at(word) {
        Some((Field::Priority | Field::Targets, _)) if width == 1 => Ok(Part::Byte),
        None if width == 1 && super::distributor::sgi_pending(word).is_some() => Ok(Part::Strobe),
        None if width == 2 && is_message && region == GicRegion::Distributor && offset == word => Ok(Part::Half),
        _ => Err(Refusal::Width),
    }
}

impl Gic {
    pub(super) fn narrow_read(
        &mut self,
        world: &mut World<'_>,
        region: GicRegion,
        offset: u32,
        width: u8,
    ) -> Outcome<u64> {
        part(region, offset, width)?;
        let word = self.read_register(world, region as u8, offset & !3, 4)?;
        Ok(word >> (offset % 4 * 8) & (u64::MAX >> (64 - u32::from(width) * 8)))
    }

    pub(super) fn narrow_write(
        &mut self,
        world: &mut World<'_>,
        region: GicRegion,
        offset: u32,
        width: u8,
        value: u64,
    ) -> Outcome<()> {
        let shift = offset % 4 * 8;
        let word = match part(region, offset, width)? {
            Part::Byte => {
                let word = self.read_register(world, region as u8, offset & !3, 4)?;
                crate::memory::with_field(word, shift, 8, value)
            }
            Part::Strobe => value << shift,
            Part::Half => value,
        };
        self.write_register(world, region as u8, offset & !3, 4, word)
    }
}

//! The registers of a local APIC in xAPIC mode: a page of 4 KiB, a register every 16 bytes (Intel SDM, volume 3, "Local APIC
//! Register Address Map"). A command takes two writes, and the APIC may take a while over it.

use super::{Lapic, msr};
use crate::board::controller::{Effect, Fault};
use spec::apic::{InterruptCommand, xapic};
use std::cell::Cell;

const ID: u32 = xapic::ID.offset();
const LDR: u32 = xapic::LDR.offset();
const DFR: u32 = xapic::DFR.offset();
const EOI: u32 = xapic::EOI.offset();
const ESR: u32 = xapic::ESR.offset();
const ICR_LOW: u32 = xapic::ICR_LOW.offset();
const ICR_HIGH: u32 = xapic::ICR_HIGH.offset();

/// What the page has and the model-specific registers have not.
pub(super) struct Page {
    logical: u32,
    format: u32,
    low: u32,
    high: u32,
    commands: u32,
    /// Reads of the command register that still find the last command pending.
    pending: Cell<u32>,
}

impl Page {
    /// After reset ("Local APIC State After Power-Up or Reset").
    pub(super) fn new() -> Self {
        Self { logical: 0, format: u32::MAX, low: 0, high: 0, commands: 0, pending: Cell::new(0) }
    }

    /// "Interrupt Command Register", delivery status: a command is idle, or pending until its target has accepted it.
    fn command(&self) -> u32 {
        let left = self.pending.get();
        self.pending.set(left.saturating_sub(1));
        InterruptCommand::from_bits(self.low.into()).with_delivery_pending(left > 0).into_bits() as u32
    }
}

/// The model-specific register that is the same as the one at `offset` ("x2APIC Register Address Space"). Those that only x2APIC
/// mode has, and what is not aligned, fault here; hardware leaves it undefined.
fn same_msr(offset: u32) -> Result<u32, Fault> {
    let register = 0x800 + offset / 16;
    let is_there = offset.is_multiple_of(16) && register < msr::SELF_IPI;
    if is_there { Ok(register) } else { Err(Fault::Access) }
}

/// A 32-bit read of the page.
pub(super) fn read(lapic: &Lapic, page: &Page, offset: u32) -> Result<u64, Fault> {
    Ok(match offset {
        ID => u64::from(lapic.id()) << 24,
        LDR => page.logical.into(),
        DFR => page.format.into(),
        ICR_LOW => page.command().into(),
        ICR_HIGH => page.high.into(),
        _ => return lapic.read_msr(same_msr(offset)?),
    })
}

/// A 32-bit write of the page. Which value goes to EOI or ESR does not matter ("Signaling Interrupt Servicing Completion", "Error
/// Handling").
pub(super) fn write(lapic: &mut Lapic, page: &mut Page, offset: u32, value: u32) -> Effect {
    match offset {
        EOI => return lapic.end_of_interrupt(),
        ESR => {}
        LDR => page.logical = value & 0xff00_0000,
        DFR => page.format = value | 0x0fff_ffff,
        ICR_HIGH => page.high = value & 0xff00_0000,
        ICR_LOW if page.pending.get() > 0 => return Effect::Fault(Fault::CommandPending),
        ICR_LOW => {
            page.low = value;
            page.pending.set(page.commands % 3);
            page.commands = page.commands.wrapping_add(1);
            return lapic.command(u64::from(page.high >> 24) << 32 | u64::from(value));
        }
        _ => {
            return match same_msr(offset) {
                Ok(register) => lapic.write_msr(register, value.into()),
                Err(fault) => Effect::Fault(fault),
            };
        }
    }
    Effect::None
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Lapic};
    use super::*;
    use hal::CpuId;

    fn enabled() -> Lapic {
        let mut lapic = Lapic::new(3, 1, Access::Page);
        assert_eq!(lapic.write(0x0f0, 0x1ff), Effect::None);
        lapic
    }

    #[test]
    fn ids_are_in_the_highest_byte() {
        assert_eq!(enabled().read(0x020), Ok(6 << 24));
    }

    #[test]
    fn an_ipi_takes_two_writes_and_is_pending_for_a_while() {
        let mut lapic = enabled();
        for command in 0..3 {
            assert_eq!(lapic.write(0x310, 4 << 24), Effect::None);
            assert_eq!(lapic.write(0x300, 0x4041), Effect::Ipi { to: CpuId(2), vector: 0x41 });
            (0..command).for_each(|_| assert_eq!(lapic.read(0x300), Ok(0x5041), "pending"));
            assert_eq!(lapic.read(0x300), Ok(0x4041), "idle");
            assert_eq!(lapic.read(0x310), Ok(4 << 24));
        }
        lapic.write(0x300, 0x4041);
        lapic.write(0x300, 0x4041);
        assert_eq!(lapic.write(0x300, 0x4041), Effect::Fault(Fault::CommandPending));
    }

    #[test]
    fn the_page_holds_what_the_registers_hold() {
        let mut lapic = enabled();
        lapic.raise(0x61, false);
        assert_eq!(lapic.read(0x230), Ok(2), "IRR bank 3, 16 bytes from bank 2");
        assert_eq!(lapic.accept(), Some(0x61));
        assert_eq!((lapic.read(0x0a0), lapic.read(0x130)), (Ok(0x60), Ok(2)));
        assert_eq!(lapic.write(0x0b0, 7), Effect::Ended { vector: 0x61, broadcast: false });
        assert_eq!(lapic.write(0x0b0, 0), Effect::IdleEoi);
        assert_eq!((lapic.write(0x280, 7), lapic.read(0x280)), (Effect::None, Ok(0)));
        assert_eq!((lapic.write(0x0d0, u32::MAX.into()), lapic.read(0x0d0)), (Effect::None, Ok(0xff00_0000)));
        assert_eq!((lapic.write(0x0e0, 0), lapic.read(0x0e0)), (Effect::None, Ok(0x0fff_ffff)));
    }

    #[test]
    fn what_is_not_in_the_page_faults() {
        let mut lapic = enabled();
        assert_eq!(lapic.read(0x80f), Err(Fault::Access), "a model-specific register");
        assert_eq!(lapic.read(0x0f4), Err(Fault::Access), "not aligned");
        assert_eq!(lapic.write(0x3f0, 0x41), Effect::Fault(Fault::Access), "the self IPI of x2APIC mode");
    }
}

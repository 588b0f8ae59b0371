//! BAR 0: capabilities, general registers, errors, and where tables and MSI-X lie.

use super::Dsa;
use crate::msix::PBA_OFFSET;
use crate::pci::{BAR_64, Function};
use crate::world::World;
use spec::dsa::registers::{
    self as reg, EngCap, GenCap, GenCtrl, GenSts, GrpCap, IntCause, Offsets, SwError, TABLE_UNIT_BYTES, WqCap,
};
use spec::dsa::{Descriptor, Opcode};

/// Group configuration table: 16 entries of 64 bytes at most.
const GRPCFG: u32 = 0x400;
/// Work queue configuration table: 64 entries of 32 bytes at most.
const WQCFG: u32 = 0x800;
/// MSI-X permissions, which read zero: no PASID is needed.
const PERMISSIONS: u32 = 0x1000;
/// MSI-X table, where Sapphire Rapids has it.
const MSIX_TABLE: u32 = 0x2000;
/// MSI-X pending bits.
const MSIX_PENDING: u32 = 0x3000;
/// The end of the region that registers occupy.
const END: u32 = 0x4000;
const OPCAP_END: u32 = reg::OPCAP + 32;
const SWERROR_END: u32 = reg::SWERROR + 32;

/// Intel's DSA of Sapphire Rapids; system peripheral, other (class 08_80h).
pub(super) const FUNCTION: Function = Function {
    vendor: 0x8086,
    device: 0x0b25,
    class: 0x08_80_00,
    bars: [BAR_64, 0, BAR_64, 0, 0, 0],
    msix_bar: 0,
    table_offset: MSIX_TABLE,
    pending_offset: MSIX_PENDING,
};

/// The writable registers.
#[derive(Default)]
pub(super) struct Registers {
    gencfg: u32,
    genctrl: GenCtrl,
    cause: IntCause,
    /// SWERROR as words of 64 bits.
    error: [u64; 4],
}

/// Half of a 64-bit register: the low one at its offset, the high one four bytes on.
fn half(value: u64, offset: u32) -> u32 {
    (value >> (offset % 8 * 8)) as u32
}

impl Dsa {
    fn capability(&self, offset: u32) -> u64 {
        let config = &self.config;
        match offset & !7 {
            reg::VERSION => reg::VERSION_1.into(),
            reg::GENCAP => GenCap::new()
                .with_transfer_shift_max(config.transfer_shift_max)
                .with_configurable(true)
                .with_descriptors_per_engine(config.timing.in_flight)
                .into_bits(),
            reg::WQCAP => WqCap::new()
                .with_total_size(config.entries)
                .with_queues(config.queues)
                .with_dedicated(true)
                .with_occupancy(true)
                .into_bits(),
            reg::GRPCAP => GrpCap::new().with_groups(config.groups).into_bits(),
            reg::ENGCAP => EngCap::new().with_engines(config.engines).into_bits(),
            reg::OPCAP => 1 << Opcode::NOOP.0 | 1 << Opcode::FILL.0,
            reg::OFFSETS => Offsets::new()
                .with_grpcfg((GRPCFG / TABLE_UNIT_BYTES) as u16)
                .with_wqcfg((WQCFG / TABLE_UNIT_BYTES) as u16)
                .with_msix_permissions((PERMISSIONS / TABLE_UNIT_BYTES) as u16)
                .into_bits(),
            _ => 0,
        }
    }

    /// Reads 32 bits of BAR 0; zero where nothing is.
    pub(super) fn register_read(&self, offset: u32) -> u32 {
        match offset {
            0..reg::OPCAP | reg::OPCAP..OPCAP_END | reg::OFFSETS..reg::GENCFG => half(self.capability(offset), offset),
            reg::GENCFG => self.registers.gencfg,
            reg::GENCTRL => self.registers.genctrl.into_bits(),
            reg::GENSTS => GenSts::new().with_state(self.state.0).into_bits(),
            reg::INTCAUSE => self.registers.cause.into_bits(),
            reg::CMDSTATUS => self.commands.status.into_bits(),
            reg::SWERROR..SWERROR_END => half(self.registers.error[((offset - reg::SWERROR) / 8) as usize], offset),
            GRPCFG..WQCFG => self.group_read(offset - GRPCFG),
            WQCFG..PERMISSIONS => self.queue_read(offset - WQCFG),
            MSIX_TABLE..MSIX_PENDING => self.msix.read(offset - MSIX_TABLE),
            // The shared MSI-X block knows its pending bits at an offset of its own.
            MSIX_PENDING..END => self.msix.read(offset - MSIX_PENDING + PBA_OFFSET),
            _ => 0,
        }
    }

    /// Writes 32 bits of BAR 0. Read-only and reserved offsets ignore it.
    pub(super) fn register_write(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        let registers = &mut self.registers;
        match offset {
            reg::GENCFG => registers.gencfg = value,
            reg::GENCTRL => registers.genctrl = GenCtrl::from_bits(value & 0b11),
            reg::INTCAUSE => registers.cause = IntCause::from_bits(registers.cause.into_bits() & !value),
            reg::CMD => self.command(world, reg::Cmd::from_bits(value)),
            // Valid and overflow are write 1 to clear; with valid the rest of the register is free for the next error.
            reg::SWERROR => registers.error[0] &= !u64::from(value & 0b11),
            GRPCFG..WQCFG => self.group_write(world, offset - GRPCFG, value),
            WQCFG..PERMISSIONS => self.queue_write(world, offset - WQCFG, value),
            MSIX_TABLE..MSIX_PENDING => self.msix.write(offset - MSIX_TABLE, value),
            _ => {}
        }
    }

    /// Sets a cause and interrupts through MSI-X entry 0 (DSA, "Interrupts").
    pub(super) fn interrupt(&mut self, world: &mut World<'_>, cause: IntCause) {
        let before = self.registers.cause.into_bits();
        self.registers.cause = IntCause::from_bits(before | cause.into_bits());
        self.signal(world, 0);
    }

    /// Records an error that no completion record tells: the first until software clears it (DSA, "SWERROR").
    pub(super) fn software_error(&mut self, world: &mut World<'_>, queue: u8, error: u8, descriptor: &Descriptor) {
        let control = descriptor.control;
        let first = SwError::from_bits(self.registers.error[0]);
        if first.valid() {
            self.registers.error[0] = first.with_overflow(true).into_bits();
            return;
        }
        let head = SwError::new()
            .with_valid(true)
            .with_descriptor_valid(true)
            .with_queue_valid(true)
            .with_privileged(control.privileged())
            .with_error(error)
            .with_queue(queue)
            .with_opcode(control.opcode())
            .with_pasid(control.pasid());
        self.registers.error = [head.into_bits(), 0, descriptor.record, 0];
        if self.registers.genctrl.software_error_interrupt() {
            self.interrupt(world, IntCause::new().with_software_error(true));
        }
    }

    /// What a reset leaves of the registers: nothing.
    pub(super) fn reset_registers(&mut self) {
        self.registers = Registers::default();
        self.msix.forget_pending();
    }
}

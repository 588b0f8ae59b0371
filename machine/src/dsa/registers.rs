//! BAR 0: capabilities, general registers and errors. Also the locations of the tables and of MSI-X.

use super::{Dsa, REGION_REGISTERS};
use crate::pci::{Bar, Identity, MsixPlace, Widths};
use crate::world::World;
use spec::dsa::registers::{
    self as reg, EngCap, GenCap, GenCtrl, GenSts, GrpCap, IntCause, Offsets, SwError, TABLE_UNIT_BYTES, WqCap,
};
use spec::dsa::{Descriptor, Opcode, PORTAL_BYTES, PORTALS_PER_QUEUE};

// Offsets, as constants for `match` patterns.
const VERSION: u32 = reg::VERSION.offset();
const GENCAP: u32 = reg::GENCAP.offset();
const WQCAP: u32 = reg::WQCAP.offset();
const GRPCAP: u32 = reg::GRPCAP.offset();
const ENGCAP: u32 = reg::ENGCAP.offset();
const GENCFG: u32 = reg::GENCFG.offset();
const GENCTRL: u32 = reg::GENCTRL.offset();
const GENSTS: u32 = reg::GENSTS.offset();
const INTCAUSE: u32 = reg::INTCAUSE.offset();
const CMD: u32 = reg::CMD.offset();
const CMDSTATUS: u32 = reg::CMDSTATUS.offset();
const OPCAP: u32 = reg::OPCAP.first();
const OFFSETS: u32 = reg::OFFSETS.first();
const SWERROR: u32 = reg::SWERROR.first();

/// Group configuration table: 16 entries of 64 bytes at most.
const GRPCFG: u32 = 0x400;
/// Work queue configuration table: 64 entries of 32 bytes at most.
const WQCFG: u32 = 0x800;
/// MSI-X permissions. They read as zero: no PASID is needed.
const PERMISSIONS: u32 = 0x1000;
/// MSI-X table, where Sapphire Rapids has it.
const MSIX_TABLE: u32 = 0x2000;
/// MSI-X pending bits.
const MSIX_PENDING: u32 = 0x3000;
/// Bytes of BAR 0.
const BAR_BYTES: u32 = 0x1_0000;
/// Bytes of BAR 2: the portals of the maximum number of queues in the table.
const PORTALS_BYTES: u32 = QUEUES_MAX * PORTALS_PER_QUEUE * PORTAL_BYTES;
/// Maximum number of entries of the work queue configuration table.
const QUEUES_MAX: u32 = 64;
const OPCAP_END: u32 = OPCAP + 32;
const SWERROR_END: u32 = SWERROR + 32;

/// Intel's DSA of Sapphire Rapids; system peripheral, other (class 08_80h).
pub(super) fn identity() -> Identity {
    Identity {
        vendor: 0x8086,
        device: 0x0b25,
        class: 0x08_80_00,
        // The hardware takes a descriptor as one write of 64 bytes; here it is eight quadwords.
        bars: vec![Bar::new(0, BAR_BYTES), Bar { writes: Widths::Qword, ..Bar::new(2, PORTALS_BYTES) }],
        msix: MsixPlace { region: REGION_REGISTERS, table: MSIX_TABLE, pending: MSIX_PENDING },
        capabilities: Vec::new(),
    }
}

/// The writable registers.
#[derive(Default)]
pub(super) struct Registers {
    gencfg: u32,
    genctrl: GenCtrl,
    cause: IntCause,
    /// SWERROR as words of 64 bits.
    error: [u64; 4],
    /// Errors recorded there, and how often the overflow bit was set.
    reported: (u64, u64),
}

/// Half of a 64-bit register. The low half is at its offset, the high half four bytes later.
fn half(value: u64, offset: u32) -> u32 {
    (value >> (offset % 8 * 8)) as u32
}

impl Dsa {
    fn capability(&self, offset: u32) -> u64 {
        let config = &self.config;
        match offset & !7 {
            VERSION => reg::VERSION_1.into(),
            GENCAP => GenCap::new()
                .with_transfer_shift_max(config.transfer_shift_max)
                .with_configurable(true)
                .with_descriptors_per_engine(config.timing.in_flight)
                .into_bits(),
            WQCAP => WqCap::new()
                .with_total_size(config.entries)
                .with_queues(config.queues)
                .with_dedicated(true)
                .with_occupancy(true)
                .into_bits(),
            GRPCAP => GrpCap::new().with_groups(config.groups).into_bits(),
            ENGCAP => EngCap::new().with_engines(config.engines).into_bits(),
            OPCAP => 1 << Opcode::NOOP.0 | 1 << Opcode::FILL.0,
            OFFSETS => Offsets::new()
                .with_grpcfg((GRPCFG / TABLE_UNIT_BYTES) as u16)
                .with_wqcfg((WQCFG / TABLE_UNIT_BYTES) as u16)
                .with_msix_permissions((PERMISSIONS / TABLE_UNIT_BYTES) as u16)
                .into_bits(),
            _ => 0,
        }
    }

    /// Reads 32 bits of BAR 0; zero where no register is.
    pub(super) fn register_read(&self, offset: u32) -> u32 {
        match offset {
            0..OPCAP | OPCAP..OPCAP_END | OFFSETS..GENCFG => half(self.capability(offset), offset),
            GENCFG => self.registers.gencfg,
            GENCTRL => self.registers.genctrl.into_bits(),
            GENSTS => GenSts::new().with_state(self.state.0).into_bits(),
            INTCAUSE => self.registers.cause.into_bits(),
            CMDSTATUS => self.commands.status.into_bits(),
            SWERROR..SWERROR_END => half(self.registers.error[((offset - SWERROR) / 8) as usize], offset),
            GRPCFG..WQCFG => self.group_read(offset - GRPCFG),
            WQCFG..PERMISSIONS => self.queue_read(offset - WQCFG),
            _ => 0,
        }
    }

    /// Writes 32 bits of BAR 0. Read-only and reserved offsets ignore it.
    pub(super) fn register_write(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        let registers = &mut self.registers;
        match offset {
            GENCFG => registers.gencfg = value,
            GENCTRL => registers.genctrl = GenCtrl::from_bits(value & 0b11),
            INTCAUSE => registers.cause = IntCause::from_bits(registers.cause.into_bits() & !value),
            CMD => self.command(world, reg::Cmd::from_bits(value)),
            // Valid and overflow are write 1 to clear. Clearing valid frees the rest of the register for the next
            // error.
            SWERROR => registers.error[0] &= !u64::from(value & 0b11),
            GRPCFG..WQCFG => self.group_write(world, offset - GRPCFG, value),
            WQCFG..PERMISSIONS => self.queue_write(world, offset - WQCFG, value),
            _ => {}
        }
    }

    /// Sets a cause and interrupts through MSI-X entry 0 (DSA, "Interrupts").
    pub(super) fn interrupt(&mut self, world: &mut World<'_>, cause: IntCause) {
        let before = self.registers.cause.into_bits();
        self.registers.cause = IntCause::from_bits(before | cause.into_bits());
        if before & cause.into_bits() == 0 || !self.config.merges_causes {
            self.pci.signal(world, 0);
        }
    }

    /// Records an error that no completion record can report: the first one, until software clears it (DSA,
    /// "SWERROR").
    pub(super) fn software_error(&mut self, world: &mut World<'_>, queue: u8, error: u8, descriptor: &Descriptor) {
        let control = descriptor.control;
        let first = SwError::from_bits(self.registers.error[0]);
        if first.valid() {
            self.registers.reported.1 += u64::from(!first.overflow());
            self.registers.error[0] = first.with_overflow(true).into_bits();
            return;
        }
        self.registers.reported.0 += 1;
        let head = SwError::new()
            .with_valid(true)
            .with_overflow(first.overflow())
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

    /// Errors that SWERROR recorded since the last reset, and how often it told of more.
    pub fn reported(&self) -> (u64, u64) {
        self.registers.reported
    }

    /// The registers after a reset: all cleared.
    pub(super) fn reset_registers(&mut self) {
        self.registers = Registers::default();
        self.pci.forget_pending();
    }
}

//! The device's registers: capabilities, commands and tables. Every poll has a deadline.

use super::{Capabilities, Config, DsaError};
use hal::{Hal, Regs};
use spec::dsa::registers::{
    self as reg, Cmd, CmdStatus, Command, CommandError, EngCap, GenCap, GrpCap, Offsets, QueueMask, TABLE_UNIT_BYTES,
    WqCap,
};
use spec::dsa::{
    GRPCFG_BYTES, GRPCFG_ENGINES, GRPCFG_FLAGS, GroupFlags, Opcode, WQCFG_BYTES_MIN, WqLimits, WqMode, WqSize,
    WqThreshold, wqcfg,
};

/// Between two looks at CMDSTATUS.
const STATUS_POLL_NS: u64 = 1_000;

/// BAR 0 of a device that this driver can drive.
pub(super) struct Port<H: Hal> {
    hal: H,
    pub(super) regs: H::Regs,
    pub(super) capabilities: Capabilities,
    offsets: Offsets,
    /// Bytes of an entry of the work queue table.
    wqcfg_bytes: u32,
    command_timeout_ns: u64,
}

impl<H: Hal> Port<H> {
    /// Reads the capabilities and refuses what this driver cannot serve.
    pub(super) fn new(hal: H, regs: H::Regs, command_timeout_ns: u64) -> Result<Self, DsaError> {
        let version = regs.read32(reg::VERSION);
        if version == u32::MAX {
            return Err(DsaError::Gone);
        }
        if version >> 8 != 1 {
            return Err(DsaError::Version(version));
        }
        let general = GenCap::from_bits(regs.read64(reg::GENCAP));
        let queues = WqCap::from_bits(regs.read64(reg::WQCAP));
        let handles = general.command_capabilities() && regs.read32(reg::CMDCAP) >> REQUEST_INTERRUPT_HANDLE & 1 == 1;
        for (has, what) in [
            (general.configurable(), "a configuration that can be written (GENCAP bit 31)"),
            (queues.dedicated(), "dedicated work queues (WQCAP bit 49)"),
            (regs.read64(reg::OPCAP) >> Opcode::FILL.0 & 1 == 1, "memory fill (OPCAP bit 4)"),
            (!handles, "interrupts without requested handles (CMDCAP bit 13)"),
        ] {
            if !has {
                return Err(DsaError::Lacks(what));
            }
        }
        let capabilities = Capabilities {
            queues: queues.queues(),
            entries: queues.total_size(),
            groups: GrpCap::from_bits(regs.read64(reg::GRPCAP)).groups(),
            engines: EngCap::from_bits(regs.read64(reg::ENGCAP)).engines(),
            transfer_shift_max: general.transfer_shift_max(),
        };
        let offsets = Offsets::from_bits(regs.read64(reg::OFFSETS));
        let wqcfg_bytes = WQCFG_BYTES_MIN << queues.config_shift();
        Ok(Self { hal, regs, capabilities, offsets, wqcfg_bytes, command_timeout_ns })
    }

    /// Writes the tables of a disabled device (DSA, "Group Configuration Table", "Work Queue Configuration Table").
    pub(super) fn configure(&self, config: &Config) {
        for (number, group) in (0..).zip(&config.groups) {
            let entry = u32::from(self.offsets.grpcfg()) * TABLE_UNIT_BYTES + number * GRPCFG_BYTES;
            for word in 0..4u8 {
                let own = group.queues.iter().filter(|queue| queue.index / 64 == word);
                let bits = own.fold(0, |bits, queue| bits | 1 << (queue.index % 64));
                self.regs.write64(entry + 8 * u32::from(word), bits);
            }
            let engines = group.engines.iter().fold(0, |bits, engine| bits | 1 << engine);
            self.regs.write64(entry + GRPCFG_ENGINES, engines);
            self.regs.write32(entry + GRPCFG_FLAGS, GroupFlags::new().into_bits());
        }
        for queue in config.queues() {
            let table = u32::from(self.offsets.wqcfg()) * TABLE_UNIT_BYTES;
            let entry = table + u32::from(queue.index) * self.wqcfg_bytes;
            let mode = WqMode::new().with_dedicated(true).with_priority(queue.priority);
            let limits = WqLimits::new().with_transfer_shift_max(queue.transfer_shift());
            self.regs.write32(entry + wqcfg::SIZE, WqSize::new().with_size(queue.entries).into_bits());
            self.regs.write32(entry + wqcfg::THRESHOLD, WqThreshold::new().with_threshold(queue.entries).into_bits());
            self.regs.write32(entry + wqcfg::MODE, mode.into_bits());
            self.regs.write32(entry + wqcfg::LIMITS, limits.into_bits());
        }
    }

    /// Runs a command that concerns the whole device.
    pub(super) fn command(&self, command: Command) -> Result<(), DsaError> {
        self.run(command, 0)
    }

    /// Runs a command that concerns one queue (DSA, "CMD": Enable WQ takes a number, the others a mask).
    pub(super) fn queue_command(&self, command: Command, queue: u8) -> Result<(), DsaError> {
        let mask = QueueMask::new().with_queues(1 << (queue % 16)).with_group(queue / 16);
        self.run(command, if command == Command::ENABLE_WQ { queue.into() } else { mask.into_bits() })
    }

    fn run(&self, command: Command, operand: u32) -> Result<(), DsaError> {
        // A command that timed out may still be under way: the next must wait for it (DSA, "CMD").
        self.wait(command)?;
        let word = Cmd::new().with_command(command.0).with_operand(operand);
        self.regs.write32(reg::CMD, word.into_bits());
        match CommandError(self.wait(command)?.error()) {
            CommandError::NONE => Ok(()),
            error => Err(DsaError::Command(command, error)),
        }
    }

    /// CMDSTATUS of the last command when it is over.
    fn wait(&self, command: Command) -> Result<CmdStatus, DsaError> {
        let deadline_ns = self.hal.now_ns().saturating_add(self.command_timeout_ns);
        loop {
            // The time first: a last look follows however long the one before it took.
            let late = self.hal.now_ns() >= deadline_ns;
            let status = self.regs.read32(reg::CMDSTATUS);
            if status == u32::MAX {
                return Err(DsaError::Gone);
            }
            let status = CmdStatus::from_bits(status);
            if !status.active() {
                return Ok(status);
            }
            if late {
                return Err(DsaError::Timeout(command, self.command_timeout_ns));
            }
            self.hal.delay_ns(STATUS_POLL_NS);
        }
    }
}

/// The bit of Request Interrupt Handle in CMDCAP.
const REQUEST_INTERRUPT_HANDLE: u32 = 13;

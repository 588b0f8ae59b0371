//! The device's registers: capabilities, commands and tables. Every poll has a deadline.

use super::{Capabilities, Config, DsaError};
use crate::register::Typed as _;
use hal::Hal;
use spec::dsa::registers::{
    self as reg, Cmd, CmdStatus, Command, CommandError, EngCap, GenCap, GrpCap, Offsets, QueueMask, TABLE_UNIT_BYTES,
    WqCap,
};
use spec::dsa::{
    GRPCFG_BYTES, GRPCFG_ENGINES, GRPCFG_FLAGS, GRPCFG_QUEUES, GroupFlags, Opcode, WQCFG_BYTES_MIN, WqLimits, WqMode,
    WqSize, WqThreshold, wqcfg,
};

/// Interval between two reads of CMDSTATUS.
const STATUS_POLL_NS: u64 = 1_000;

/// BAR 0 of a device that this driver supports.
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
    /// Reads the capabilities and rejects a device that this driver does not support.
    pub(super) fn new(hal: H, regs: H::Regs, command_timeout_ns: u64) -> Result<Self, DsaError> {
        let version = regs.read(reg::VERSION);
        if version == u32::MAX {
            return Err(DsaError::Gone);
        }
        if version >> 8 != 1 {
            return Err(DsaError::Version(version));
        }
        let general = GenCap::from_bits(regs.read(reg::GENCAP));
        let queues = WqCap::from_bits(regs.read(reg::WQCAP));
        let handles = general.command_capabilities() && regs.read(reg::CMDCAP) >> REQUEST_INTERRUPT_HANDLE & 1 == 1;
        for (has, what) in [
            (general.configurable(), "a configuration that can be written (GENCAP bit 31)"),
            (queues.dedicated(), "dedicated work queues (WQCAP bit 49)"),
            (regs.read(reg::OPCAP.get(0)) >> Opcode::FILL.0 & 1 == 1, "memory fill (OPCAP bit 4)"),
            (!handles, "interrupts without requested handles (CMDCAP bit 13)"),
        ] {
            if !has {
                return Err(DsaError::Lacks(what));
            }
        }
        let capabilities = Capabilities {
            queues: queues.queues(),
            entries: queues.total_size(),
            groups: GrpCap::from_bits(regs.read(reg::GRPCAP)).groups(),
            engines: EngCap::from_bits(regs.read(reg::ENGCAP)).engines(),
            transfer_shift_max: general.transfer_shift_max(),
        };
        let offsets = Offsets::from_bits(regs.read(reg::OFFSETS.get(0)));
        let wqcfg_bytes = WQCFG_BYTES_MIN << queues.config_shift();
        Ok(Self { hal, regs, capabilities, offsets, wqcfg_bytes, command_timeout_ns })
    }

    /// Writes the tables of a disabled device (DSA, "Group Configuration Table", "Work Queue Configuration Table").
    pub(super) fn configure(&self, config: &Config) {
        for (number, group) in (0..).zip(&config.groups) {
            let entry = u32::from(self.offsets.grpcfg()) * TABLE_UNIT_BYTES + number * GRPCFG_BYTES;
            for word in 0..GRPCFG_QUEUES.count() {
                let own = group.queues.iter().filter(|queue| u32::from(queue.index) / 64 == word);
                let bits = own.fold(0, |bits, queue| bits | 1 << (queue.index % 64));
                self.regs.write(GRPCFG_QUEUES.get(word).behind(entry), bits);
            }
            let engines = group.engines.iter().fold(0, |bits, engine| bits | 1 << engine);
            self.regs.write(GRPCFG_ENGINES.behind(entry), engines);
            self.regs.write(GRPCFG_FLAGS.behind(entry), GroupFlags::new().into_bits());
        }
        for queue in config.queues() {
            let table = u32::from(self.offsets.wqcfg()) * TABLE_UNIT_BYTES;
            let entry = table + u32::from(queue.index) * self.wqcfg_bytes;
            let mode = WqMode::new().with_dedicated(true).with_priority(queue.priority);
            let limits = WqLimits::new().with_transfer_shift_max(queue.transfer_shift());
            self.regs.write(wqcfg::SIZE.behind(entry), WqSize::new().with_size(queue.entries).into_bits());
            self.regs
                .write(wqcfg::THRESHOLD.behind(entry), WqThreshold::new().with_threshold(queue.entries).into_bits());
            self.regs.write(wqcfg::MODE.behind(entry), mode.into_bits());
            self.regs.write(wqcfg::LIMITS.behind(entry), limits.into_bits());
        }
    }

    /// Runs a command for the whole device.
    pub(super) fn command(&self, command: Command) -> Result<(), DsaError> {
        self.run(command, 0)
    }

    /// Runs a command for one queue (DSA, "CMD": Enable WQ takes a number, the others a mask).
    pub(super) fn queue_command(&self, command: Command, queue: u8) -> Result<(), DsaError> {
        let mask = QueueMask::new().with_queues(1 << (queue % 16)).with_group(queue / 16);
        self.run(command, if command == Command::ENABLE_WQ { queue.into() } else { mask.into_bits() })
    }

    fn run(&self, command: Command, operand: u32) -> Result<(), DsaError> {
        // A command that timed out may still be running. The next command must wait for its end (DSA, "CMD").
        self.wait(command)?;
        let word = Cmd::new().with_command(command.0).with_operand(operand);
        self.regs.write(reg::CMD, word.into_bits());
        match CommandError(self.wait(command)?.error()) {
            CommandError::NONE => Ok(()),
            // An earlier command did it, later than anybody waited for it.
            CommandError::QUEUE_ENABLED if command == Command::ENABLE_WQ => Ok(()),
            error => Err(DsaError::Command(command, error)),
        }
    }

    /// CMDSTATUS of the last command, once the command has ended.
    fn wait(&self, command: Command) -> Result<CmdStatus, DsaError> {
        let deadline_ns = self.hal.now_ns().saturating_add(self.command_timeout_ns);
        loop {
            // Reads the time first, so that one look at the device always follows the deadline.
            let late = self.hal.now_ns() >= deadline_ns;
            let status = self.regs.read(reg::CMDSTATUS);
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

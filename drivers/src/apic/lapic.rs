//! The registers of the local APIC, in both modes.

use crate::register::Typed as _;
use alloc::vec::Vec;
use core::fmt;
use hal::{CpuId, Hal};
use irq::{MsiMessage, Vector};
use spec::apic::{ApicBase, InterruptCommand, LvtTimer, Spurious, TimerDivide, TimerMode, x2apic, xapic};
use spec::msi::{ADDRESS_PREFIX, PlainAddress, PlainData};
use spec::register::{ReadOnly, Readable, Register, Registers, Writable};

/// How long an IPI may wait until the APIC has accepted the previous one (xAPIC only). The bus takes microseconds.
const COMMAND_TIMEOUT_NS: u64 = 1_000_000;
const COMMAND_POLL_NS: u64 = 100;

/// The MSR of an xAPIC register: 0x800 + offset / 16 ("x2APIC Register Address Space").
const fn msr<A>(register: Register<u32, A>) -> Register<u64, A> {
    Register::at(0x800 + register.offset() / 16)
}

/// A local APIC's id. Messages and commands use it as their destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ApicId(pub u32);

/// How software accesses the local APICs. The platform selects one mode for all of its CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApicMode {
    /// A page of memory-mapped registers, ids of 8 bits.
    XApic,
    /// Model-specific registers, ids of 32 bits.
    X2Apic,
}

impl ApicMode {
    /// Encodes `id` as the destination of remapping entries and posted descriptors. x2APIC mode uses the id unchanged;
    /// xAPIC mode puts it into bits 15:8 (VT-d, "Interrupt Remapping Table Entry (IRTE) for Remapped Interrupts", DST;
    /// "Posted Interrupt Descriptor (PID)", NDST).
    pub fn destination_field(self, id: ApicId) -> u32 {
        match self {
            Self::XApic => (id.0 & 0xff) << 8,
            Self::X2Apic => id.0,
        }
    }
}

/// Errors of a local APIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApicError {
    /// An APIC id that xAPIC mode cannot address (0xff is the broadcast).
    Id(CpuId, ApicId),
    /// A CPU that the constructor did not receive.
    Cpu(CpuId),
    /// The APIC did not accept a command within this many nanoseconds.
    CommandTimeout(u64),
}

impl fmt::Display for ApicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(cpu, id) => {
                write!(f, "CPU {cpu} has APIC id {:#x}; xAPIC mode can address 0 to 0xfe", id.0)
            }
            Self::Cpu(cpu) => write!(f, "CPU {cpu} has no APIC id in the table"),
            Self::CommandTimeout(ns) => write!(f, "the local APIC did not send the last IPI within {ns} ns"),
        }
    }
}

impl core::error::Error for ApicError {}

/// The local APICs of all CPUs. Each CPU reaches its own APIC through the same window.
pub struct Lapic<H: Hal> {
    hal: H,
    regs: H::Regs,
    mode: ApicMode,
    ids: Vec<ApicId>,
}

impl<H: Hal> Lapic<H> {
    /// The local APICs behind `regs`: the page of memory-mapped registers, or a window of model-specific registers
    /// (offset = MSR number, 64-bit accesses). `ids` lists the APIC ids of CPUs 0, 1, ….
    ///
    /// # Errors
    /// [`ApicError::Id`] for an id that `mode` cannot address.
    pub fn new(hal: H, regs: H::Regs, mode: ApicMode, ids: Vec<ApicId>) -> Result<Self, ApicError> {
        let limit = if mode == ApicMode::XApic { 0xff } else { u32::MAX };
        match ids.iter().position(|id| id.0 >= limit) {
            Some(cpu) => Err(ApicError::Id(CpuId(cpu as u32), ids[cpu])),
            None => Ok(Self { hal, regs, mode, ids }),
        }
    }

    /// Reads a register. The xAPIC offset names the register in both modes.
    fn read<A: Readable>(&self, register: Register<u32, A>) -> u32 {
        match self.mode {
            ApicMode::XApic => self.regs.read(register),
            ApicMode::X2Apic => self.regs.read(msr(register)) as u32,
        }
    }

    #[inline]
    fn write<A: Writable>(&self, register: Register<u32, A>, value: u32) {
        match self.mode {
            ApicMode::XApic => self.regs.write(register, value),
            ApicMode::X2Apic => self.regs.write(msr(register), u64::from(value)),
        }
    }

    /// The mode given at construction.
    pub fn mode(&self) -> ApicMode {
        self.mode
    }

    /// Switches this CPU's APIC on, and to x2APIC mode if firmware left it in xAPIC mode ("x2APIC States"). Needs a
    /// window that shows IA32_APIC_BASE (MSR 0x1b).
    pub fn switch_to_x2apic(&self) {
        let base = ApicBase::from_bits(self.regs.read(x2apic::APIC_BASE));
        if !base.x2apic() {
            // The APIC cannot go from disabled to x2APIC mode directly; xAPIC mode comes in between.
            self.regs.write(x2apic::APIC_BASE, base.with_enable(true).into_bits());
            self.regs.write(x2apic::APIC_BASE, base.with_enable(true).with_x2apic(true).into_bits());
        }
    }

    /// Software-enables this CPU's APIC, accepts every priority, and sets the vector of spurious interrupts
    /// ("Spurious-Interrupt Vector Register"). That vector's handler must not send an EOI.
    pub fn enable(&self, spurious: Vector) {
        self.write(xapic::TPR, 0);
        self.write(xapic::SVR, Spurious::new().with_vector(spurious.0).with_enable(true).into_bits());
    }

    /// This CPU's APIC id, read from its register.
    pub fn read_id(&self) -> ApicId {
        let id = self.read(xapic::ID);
        ApicId(if self.mode == ApicMode::XApic { id >> 24 } else { id })
    }

    /// The id of `cpu`.
    ///
    /// # Errors
    /// [`ApicError::Cpu`] when the constructor did not receive this CPU.
    pub fn id(&self, cpu: CpuId) -> Result<ApicId, ApicError> {
        self.ids.get(cpu.index()).copied().ok_or(ApicError::Cpu(cpu))
    }

    /// Ends this CPU's interrupt of highest priority in service ("Signaling Interrupt Servicing Completion").
    #[inline]
    pub fn eoi(&self) {
        self.write(xapic::EOI, 0);
    }

    /// True when `vector` is pending in this CPU's IRR.
    pub fn is_requested(&self, vector: Vector) -> bool {
        self.bank_bit(xapic::IRR, vector)
    }

    /// True when `vector` is in service on this CPU.
    pub fn is_in_service(&self, vector: Vector) -> bool {
        self.bank_bit(xapic::ISR, vector)
    }

    /// True when the interrupt that this CPU last accepted for `vector` was level-triggered. Its EOI then goes to the
    /// I/O APICs too ("Interrupt Acceptance for Fixed Interrupts", TMR).
    pub fn is_level(&self, vector: Vector) -> bool {
        self.bank_bit(xapic::TMR, vector)
    }

    fn bank_bit(&self, banks: Registers<u32, ReadOnly>, vector: Vector) -> bool {
        self.read(banks.get(u32::from(vector.0 / 32))) & (1 << (vector.0 % 32)) != 0
    }

    /// Sends `vector` to `cpu`, which may be this one ("Issuing Interprocessor Interrupts").
    ///
    /// # Errors
    /// [`ApicError::Cpu`] for a CPU without an id, [`ApicError::CommandTimeout`] when the APIC is stuck.
    pub fn send(&self, cpu: CpuId, vector: Vector) -> Result<(), ApicError> {
        let ApicId(id) = self.id(cpu)?;
        let command = InterruptCommand::new().with_vector(vector.0).with_assert(true);
        match self.mode {
            ApicMode::X2Apic => self.regs.write(x2apic::ICR, command.with_destination(id).into_bits()),
            ApicMode::XApic => return self.send_in_halves(command.with_destination(id << 24)),
        }
        Ok(())
    }

    /// Sends `vector` to this CPU.
    ///
    /// # Errors
    /// As [`Lapic::send`].
    pub fn send_self(&self, vector: Vector) -> Result<(), ApicError> {
        match self.mode {
            ApicMode::X2Apic => self.regs.write(x2apic::SELF_IPI, u64::from(vector.0)),
            ApicMode::XApic => return self.send(self.hal.cpu(), vector),
        }
        Ok(())
    }

    /// xAPIC: software writes the high half first, because the low half sends. Software must write neither half while
    /// the previous command is pending, so interrupts stay off here.
    fn send_in_halves(&self, command: InterruptCommand) -> Result<(), ApicError> {
        let interrupts = self.hal.irq_save();
        let idle = self.wait_command_idle();
        if idle.is_ok() {
            self.regs.write(xapic::ICR_HIGH, (command.into_bits() >> 32) as u32);
            self.regs.write(xapic::ICR_LOW, command.into_bits() as u32);
        }
        self.hal.irq_restore(interrupts);
        idle
    }

    fn wait_command_idle(&self) -> Result<(), ApicError> {
        let deadline_ns = self.hal.now_ns().saturating_add(COMMAND_TIMEOUT_NS);
        while InterruptCommand::from_bits(u64::from(self.regs.read(xapic::ICR_LOW))).delivery_pending() {
            if self.hal.now_ns() >= deadline_ns {
                return Err(ApicError::CommandTimeout(COMMAND_TIMEOUT_NS));
            }
            self.hal.delay_ns(COMMAND_POLL_NS);
        }
        Ok(())
    }

    /// Fires `vector` on this CPU once, after `ticks` of the timer's clock divided by `divide` ("APIC Timer").
    pub fn start_timer(&self, vector: Vector, divide: TimerDivide, ticks: u32) {
        self.write(xapic::TIMER_DIVIDE, divide.0);
        let entry = LvtTimer::new().with_vector(vector.0).with_mode(TimerMode::ONE_SHOT.0);
        self.write(xapic::LVT_TIMER, entry.into_bits());
        self.write(xapic::TIMER_INITIAL, ticks);
    }

    /// Stops this CPU's timer.
    pub fn stop_timer(&self) {
        self.write(xapic::LVT_TIMER, LvtTimer::new().with_masked(true).into_bits());
        self.write(xapic::TIMER_INITIAL, 0);
    }

    /// The message with which a remapping unit raises its own interrupt, `vector` on `cpu`. This message is never
    /// remapped, and its id is wider than a device's (VT-d, "Fault Event Upper Address Register").
    ///
    /// # Errors
    /// [`ApicError::Cpu`] for a CPU without an id.
    pub fn event_message(&self, cpu: CpuId, vector: Vector) -> Result<MsiMessage, ApicError> {
        let ApicId(id) = self.id(cpu)?;
        let address = PlainAddress::new()
            .with_prefix(ADDRESS_PREFIX)
            .with_destination_low(id as u8)
            .with_destination_high(id >> 8);
        Ok(MsiMessage { address: address.into_bits(), data: PlainData::new().with_vector(vector.0).into_bits() })
    }
}

//! PCI functions, found through PCIe's memory-mapped configuration space.
//!
//! Source: PCI Local Bus Specification 3.0 ("PCI"), 6.1 and 6.2.5; PCI Express Base Specification, "PCI Express Enhanced
//! Configuration Access Mechanism (ECAM)".

use crate::arch::Registers;
use hal::Regs;
use irq::RequesterId;
use spec::msi::configuration::COMMAND_STATUS;

/// Class code in 31:8.
const CLASS: u32 = 0x08;
/// Base address register 0.
const BAR0: u32 = 0x10;
/// Answers to memory accesses, and makes its own.
const MEMORY_AND_MASTER: u32 = 0b110;
/// A function's configuration space.
const FUNCTION_BYTES: usize = 4096;
/// The longest BAR that is of use here.
const BAR_BYTES_MAX: u64 = 1 << 20;

/// A PCI function on bus 0.
#[derive(Clone, Copy)]
pub(super) struct Function {
    /// Its requester id: bus, device, function.
    pub(super) requester: RequesterId,
    /// Its configuration space.
    pub(super) config: Registers,
}

/// The first function of `class` (24 bits: class, subclass, interface) on bus 0, behind the ECAM at `ecam`.
pub(super) fn find(ecam: usize, class: u32) -> Option<Function> {
    let function = |requester: u16| Function {
        requester: RequesterId(requester),
        config: Registers::new(ecam + usize::from(requester) * FUNCTION_BYTES, FUNCTION_BYTES as u32),
    };
    // An absent function reads as all ones.
    (0..256).map(function).find(|function| function.config.read32(CLASS) >> 8 == class)
}

impl Function {
    /// The region of BAR 0, which is 64 bits wide and which firmware has placed; the function answers there and may
    /// master the bus from then on.
    pub(super) fn enable(&self) -> Registers {
        let command = self.config.read32(COMMAND_STATUS) & 0xffff;
        self.config.write32(COMMAND_STATUS, command & !MEMORY_AND_MASTER);
        let (low, high) = (self.config.read32(BAR0), self.config.read32(BAR0 + 4));
        // All ones: the bits that stay 0 tell the size (PCI 6.2.5.1).
        self.config.write32(BAR0, u32::MAX);
        self.config.write32(BAR0 + 4, u32::MAX);
        let mask = u64::from(self.config.read32(BAR0 + 4)) << 32 | u64::from(self.config.read32(BAR0) & !0xf);
        let base = u64::from(high) << 32 | u64::from(low & !0xf);
        self.config.write32(BAR0, low);
        self.config.write32(BAR0 + 4, high);
        self.config.write32(COMMAND_STATUS, command | MEMORY_AND_MASTER);
        Registers::new(base as usize, mask.wrapping_neg().min(BAR_BYTES_MAX) as u32)
    }
}

//! PCI functions, found through PCIe's memory-mapped configuration space.
//!
//! Source: PCI Local Bus Specification 3.0 ("PCI"), 6.1 and 6.2.5; PCI Express Base Specification, "PCI Express Enhanced
//! Configuration Access Mechanism (ECAM)".

use crate::arch::{self, Registers};
use crate::kernel::Pcie;
use alloc::format;
use alloc::string::String;
use core::ops::Range;
use hal::Regs;
use irq::RequesterId;
use spec::msi::configuration::COMMAND_STATUS;

/// Class code in 31:8.
const CLASS: u32 = 0x08;
/// Base address register 0.
const BAR0: u32 = 0x10;
/// In a base address register: I/O space; 64 bits wide (PCI 6.2.5.1).
const IO: u32 = 1;
const WIDE: u32 = 0b100;
/// The function answers memory accesses, and makes its own.
const MEMORY_AND_MASTER: u32 = 0b110;
/// A function's configuration space.
const FUNCTION_BYTES: usize = 4096;
/// The longest BAR that this kernel maps.
const BAR_BYTES_MAX: u64 = 1 << 20;

/// Bus 0.
pub(super) struct Bus {
    ecam: usize,
    /// Bus memory for BARs to which firmware has given no address.
    free: Range<u64>,
}

/// A PCI function on bus 0.
#[derive(Clone, Copy)]
pub(super) struct Function {
    /// Its requester id: bus, device, function.
    pub(super) requester: RequesterId,
    /// Its configuration space.
    pub(super) config: Registers,
}

impl Bus {
    /// The bus behind this bridge.
    pub(super) fn new(bridge: &Pcie) -> Self {
        Self { ecam: bridge.ecam, free: bridge.free.clone() }
    }

    /// The first function of `class` (24 bits: class, subclass, interface).
    pub(super) fn find(&self, class: u32) -> Option<Function> {
        self.functions(class).next()
    }

    /// All functions of `class`.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn all(&self, class: u32) -> alloc::vec::Vec<Function> {
        self.functions(class).collect()
    }

    fn functions(&self, class: u32) -> impl Iterator<Item = Function> + '_ {
        let function = |requester: u16| Function {
            requester: RequesterId(requester),
            config: arch::window(self.ecam + usize::from(requester) * FUNCTION_BYTES, FUNCTION_BYTES as u32),
        };
        // An absent function reads as all ones.
        (0..256).map(function).filter(move |function| function.config.read32(CLASS) >> 8 == class)
    }

    /// The region of a BAR. Gives the BAR an address if it has none. From then on the function answers there and may
    /// master the bus.
    ///
    /// # Errors
    /// The BAR is not memory, or the bus has no room for it.
    pub(super) fn region(&mut self, function: &Function, bar: u8) -> Result<Registers, String> {
        let found = Bar::find(function, bar)?;
        let base = if found.base == 0 { self.place(found.len_bytes)? } else { found.base };
        Ok(found.place(base))
    }

    /// As above, but moves the BAR to `base` in any case.
    ///
    /// # Errors
    /// The BAR is not memory, or `base` is not a multiple of its size.
    pub(super) fn region_at(&self, function: &Function, bar: u8, base: u64) -> Result<Registers, String> {
        let found = Bar::find(function, bar)?;
        if !base.is_multiple_of(found.len_bytes) {
            return Err(format!("BAR {bar} of {:#x} bytes cannot lie at {base:#x}", found.len_bytes));
        }
        Ok(found.place(base))
    }

    /// The lowest free address for a BAR of this size. A BAR's alignment is its size.
    fn place(&mut self, len_bytes: u64) -> Result<u64, String> {
        let base = self.free.start.next_multiple_of(len_bytes);
        if base + len_bytes > self.free.end {
            return Err(format!("no place for a BAR of {len_bytes:#x} bytes in {:#x?}", self.free));
        }
        self.free.start = base + len_bytes;
        Ok(base)
    }
}

/// A base address register.
struct Bar {
    config: Registers,
    register: u32,
    /// Its address; 0 if it has none.
    base: u64,
    len_bytes: u64,
    command: u32,
}

impl Bar {
    /// Determines the BAR's size. The function answers no access during that time.
    fn find(function: &Function, bar: u8) -> Result<Self, String> {
        let config = function.config;
        let command = config.read32(COMMAND_STATUS) & 0xffff;
        config.write32(COMMAND_STATUS, command & !MEMORY_AND_MASTER);
        let register = BAR0 + 4 * u32::from(bar);
        let kind = config.read32(register);
        if kind & IO != 0 {
            return Err(format!("BAR {bar} is {kind:#x}, which is no memory"));
        }
        let base = read_bar(&config, register);
        // Writes all ones: the bits that stay 0 encode the size (PCI 6.2.5.1).
        write_bar(&config, register, u64::MAX);
        let len_bytes = match read_bar(&config, register) {
            0 => return Err(format!("BAR {bar} is not there")),
            mask if kind & WIDE != 0 => mask.wrapping_neg(),
            mask => (mask as u32).wrapping_neg().into(),
        };
        Ok(Self { config, register, base, len_bytes, command })
    }

    fn place(self, base: u64) -> Registers {
        write_bar(&self.config, self.register, base);
        self.config.write32(COMMAND_STATUS, self.command | MEMORY_AND_MASTER);
        arch::window(base as usize, self.len_bytes.min(BAR_BYTES_MAX) as u32)
    }
}

fn read_bar(config: &Registers, register: u32) -> u64 {
    let low = config.read32(register);
    let high = if low & WIDE != 0 { config.read32(register + 4) } else { 0 };
    u64::from(high) << 32 | u64::from(low & !0xf)
}

fn write_bar(config: &Registers, register: u32, value: u64) {
    let wide = config.read32(register) & WIDE != 0;
    config.write32(register, value as u32);
    if wide {
        config.write32(register + 4, (value >> 32) as u32);
    }
}

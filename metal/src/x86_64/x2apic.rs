//! The local APIC in x2APIC mode.

use core::arch::asm;
use hal::Regs;

/// The registers of the local APIC in x2APIC mode, of the CPU that accesses them. Offsets are MSR numbers (SDM
/// 11.12.1.2), and that of IA32_APIC_BASE, which turns the mode on.
///
/// Every register is read and written whole: ICR and IA32_APIC_BASE with 64 bits, the others with 32. An access is
/// privileged, and faults if the mode is off; IA32_APIC_BASE is there in every mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X2Apic;

/// The first MSR, and the one after the last.
const FIRST: u32 = 0x800;
const END: u32 = 0x900;
/// IA32_APIC_BASE (SDM 11.4.4).
const APIC_BASE: u32 = 0x1b;

#[inline]
fn read(msr: u32) -> u64 {
    check(msr);
    let (low, high): (u32, u32);
    // SAFETY: a register of the local APIC; reading it changes no memory of Rust's.
    unsafe { asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nostack)) };
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn write(msr: u32, value: u64) {
    check(msr);
    // SAFETY: a register of the local APIC accesses no memory of Rust's. WRMSR to it is not serializing: the fences
    // make earlier stores visible before the interrupt that it sends (SDM 11.12.3).
    unsafe {
        asm!("mfence", "lfence", "wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack));
    }
}

#[inline]
fn check(msr: u32) {
    if !((FIRST..END).contains(&msr) || msr == APIC_BASE) {
        outside(msr);
    }
}

#[cold]
fn outside(msr: u32) -> ! {
    panic!("MSR {msr:#x} is no register of an x2APIC, which has {FIRST:#x} to {:#x} and {APIC_BASE:#x}", END - 1)
}

impl Regs for X2Apic {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        read(offset) as u32
    }
    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        write(offset, value.into());
    }
    #[inline]
    fn read64(&self, offset: u32) -> u64 {
        read(offset)
    }
    #[inline]
    fn write64(&self, offset: u32, value: u64) {
        write(offset, value);
    }
}

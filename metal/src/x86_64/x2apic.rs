//! The local APIC in x2APIC mode.

use core::arch::asm;
use hal::Regs;

/// The registers of the local APIC in x2APIC mode, of the CPU that accesses them. Offsets are MSR numbers (SDM
/// 11.12.1.2).
///
/// Every register is read and written whole: ICR with 64 bits, the others with 32. An access is privileged, and faults
/// if the mode is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X2Apic;

/// The first MSR, and the one after the last.
const FIRST: u32 = 0x800;
const END: u32 = 0x900;

fn read(msr: u32) -> u64 {
    check(msr);
    let (low, high): (u32, u32);
    // SAFETY: a register of the local APIC; reading it changes no memory of Rust's.
    unsafe { asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nostack)) };
    u64::from(low) | u64::from(high) << 32
}

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
    assert!((FIRST..END).contains(&msr), "MSR {msr:#x} is no register of an x2APIC, which has {FIRST:#x} to {END:#x}");
}

impl Regs for X2Apic {
    fn read32(&self, offset: u32) -> u32 {
        read(offset) as u32
    }
    fn write32(&self, offset: u32, value: u32) {
        write(offset, value.into());
    }
    fn read64(&self, offset: u32) -> u64 {
        read(offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        write(offset, value);
    }
}

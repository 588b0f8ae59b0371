//! Register windows: memory-mapped, and the GIC's CPU interface in system registers.
#![allow(unsafe_code)]

use crate::kernel::mmio::Mmio;
use core::arch::asm;
use hal::Regs;

/// A window of registers.
#[derive(Clone, Copy)]
pub(crate) enum Registers {
    /// Memory-mapped.
    Mmio(Mmio),
    /// ICC_*_EL1, by their encoding: op0 in 15:14, op1 in 13:11, CRn in 10:7, CRm in 6:3, op2 in 2:0.
    System,
}

impl Registers {
    /// The window of `len_bytes` at `base`.
    pub(crate) const fn new(base: usize, len_bytes: u32) -> Self {
        Self::Mmio(Mmio::new(base, len_bytes))
    }
}

/// op0 3, op1 0.
const fn encoding(crn: u32, crm: u32, op2: u32) -> u32 {
    3 << 14 | crn << 7 | crm << 3 | op2
}

/// One arm a register: an MRS or MSR names its register in the instruction itself.
macro_rules! system_registers {
    ($(($crn:literal, $crm:literal, $op2:literal, $name:literal)),+ $(,)?) => {
        fn read_system(register: u32) -> u64 {
            let value: u64;
            // SAFETY: registers of the interrupt controller's CPU interface: they hold no memory of Rust's. What an
            // acknowledge lets in must not be seen before it (DSB, IHI 0069 4.1.1).
            unsafe {
                $(if register == encoding($crn, $crm, $op2) {
                    asm!(concat!("mrs {}, ", $name), "dsb sy", out(reg) value, options(nostack));
                    return value;
                })+
            }
            panic!("no system register {register:#x} in this window");
        }

        fn write_system(register: u32, value: u64) {
            // SAFETY: as above. Stores before an SGI or an end must be seen before it takes effect, and a change of the
            // priority mask before what follows (IHI 0069 4.1.1, 12.1).
            unsafe {
                $(if register == encoding($crn, $crm, $op2) {
                    asm!("dsb ishst", concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack));
                    return;
                })+
            }
            panic!("no system register {register:#x} in this window");
        }
    };
}

system_registers! {
    (4, 6, 0, "S3_0_C4_C6_0"),     // ICC_PMR_EL1
    (12, 8, 0, "S3_0_C12_C8_0"),   // ICC_IAR0_EL1
    (12, 8, 1, "S3_0_C12_C8_1"),   // ICC_EOIR0_EL1
    (12, 8, 3, "S3_0_C12_C8_3"),   // ICC_BPR0_EL1
    (12, 8, 4, "S3_0_C12_C8_4"),   // ICC_AP0R0_EL1
    (12, 9, 0, "S3_0_C12_C9_0"),   // ICC_AP1R0_EL1
    (12, 9, 1, "S3_0_C12_C9_1"),   // ICC_AP1R1_EL1
    (12, 9, 2, "S3_0_C12_C9_2"),   // ICC_AP1R2_EL1
    (12, 9, 3, "S3_0_C12_C9_3"),   // ICC_AP1R3_EL1
    (12, 11, 1, "S3_0_C12_C11_1"), // ICC_DIR_EL1
    (12, 11, 3, "S3_0_C12_C11_3"), // ICC_RPR_EL1
    (12, 11, 5, "S3_0_C12_C11_5"), // ICC_SGI1R_EL1
    (12, 12, 0, "S3_0_C12_C12_0"), // ICC_IAR1_EL1
    (12, 12, 1, "S3_0_C12_C12_1"), // ICC_EOIR1_EL1
    (12, 12, 2, "S3_0_C12_C12_2"), // ICC_HPPIR1_EL1
    (12, 12, 3, "S3_0_C12_C12_3"), // ICC_BPR1_EL1
    (12, 12, 4, "S3_0_C12_C12_4"), // ICC_CTLR_EL1
    (12, 12, 5, "S3_0_C12_C12_5"), // ICC_SRE_EL1
    (12, 12, 6, "S3_0_C12_C12_6"), // ICC_IGRPEN0_EL1
    (12, 12, 7, "S3_0_C12_C12_7"), // ICC_IGRPEN1_EL1
}

impl Regs for Registers {
    fn read32(&self, offset: u32) -> u32 {
        match self {
            Self::Mmio(mmio) => mmio.read(offset),
            Self::System => read_system(offset) as u32,
        }
    }
    fn write32(&self, offset: u32, value: u32) {
        match self {
            Self::Mmio(mmio) => mmio.write(offset, value),
            Self::System => write_system(offset, value.into()),
        }
    }
    fn read64(&self, offset: u32) -> u64 {
        match self {
            Self::Mmio(mmio) => mmio.read(offset),
            Self::System => read_system(offset),
        }
    }
    fn write64(&self, offset: u32, value: u64) {
        match self {
            Self::Mmio(mmio) => mmio.write(offset, value),
            Self::System => write_system(offset, value),
        }
    }
    fn read8(&self, offset: u32) -> u8 {
        match self {
            Self::Mmio(mmio) => mmio.read(offset),
            Self::System => panic!("8-bit read of system register {offset:#x}"),
        }
    }
    fn write8(&self, offset: u32, value: u8) {
        match self {
            Self::Mmio(mmio) => mmio.write(offset, value),
            Self::System => panic!("8-bit write of {value:#x} to system register {offset:#x}"),
        }
    }
    fn read16(&self, offset: u32) -> u16 {
        match self {
            Self::Mmio(mmio) => mmio.read(offset),
            Self::System => panic!("16-bit read of system register {offset:#x}"),
        }
    }
    fn write16(&self, offset: u32, value: u16) {
        match self {
            Self::Mmio(mmio) => mmio.write(offset, value),
            Self::System => panic!("16-bit write of {value:#x} to system register {offset:#x}"),
        }
    }
}

//! The GIC's CPU interface and the generic timer in system registers.

use core::arch::asm;
use hal::Regs;

/// The registers of a GICv3's CPU interface, ICC_*_EL1, and of the generic timer, CNT*_EL0. They are those of the CPU
/// that accesses them. An offset is the register's encoding: op0 in 15:14, op1 in 13:11, CRn in 10:7, CRm in 6:3, op2
/// in 2:0.
///
/// Accesses have 32 or 64 bits. They need EL1 or above, and ICC_SRE_EL1 must enable them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GicCpuInterface;

/// op0 3.
const fn encoding(op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    3 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2
}

/// One match arm per register: an MRS or MSR instruction contains the register's name.
macro_rules! system_registers {
    ($(($op1:literal, $crn:literal, $crm:literal, $op2:literal, $name:literal)),+ $(,)?) => {
        fn read_system(register: u32) -> u64 {
            let value: u64;
            // SAFETY: registers of the interrupt controller and the timer hold no memory of Rust's. Accesses that an
            // acknowledge permits must not come before it (DSB, IHI 0069 4.1.1).
            unsafe {
                $(if register == encoding($op1, $crn, $crm, $op2) {
                    asm!(concat!("mrs {}, ", $name), "dsb sy", out(reg) value, options(nostack));
                    return value;
                })+
            }
            panic!("no system register {register:#x} in this window");
        }

        fn write_system(register: u32, value: u64) {
            // SAFETY: as above. Stores before an SGI or an end of interrupt must be visible before it takes effect. A
            // change of the priority mask must take effect before later code (IHI 0069 4.1.1, 12.1).
            unsafe {
                $(if register == encoding($op1, $crn, $crm, $op2) {
                    asm!("dsb ishst", concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack));
                    return;
                })+
            }
            panic!("no system register {register:#x} in this window");
        }
    };
}

system_registers! {
    (0, 4, 6, 0, "S3_0_C4_C6_0"),     // ICC_PMR_EL1
    (0, 12, 8, 0, "S3_0_C12_C8_0"),   // ICC_IAR0_EL1
    (0, 12, 8, 1, "S3_0_C12_C8_1"),   // ICC_EOIR0_EL1
    (0, 12, 8, 3, "S3_0_C12_C8_3"),   // ICC_BPR0_EL1
    (0, 12, 8, 4, "S3_0_C12_C8_4"),   // ICC_AP0R0_EL1
    (0, 12, 9, 0, "S3_0_C12_C9_0"),   // ICC_AP1R0_EL1
    (0, 12, 9, 1, "S3_0_C12_C9_1"),   // ICC_AP1R1_EL1
    (0, 12, 9, 2, "S3_0_C12_C9_2"),   // ICC_AP1R2_EL1
    (0, 12, 9, 3, "S3_0_C12_C9_3"),   // ICC_AP1R3_EL1
    (0, 12, 11, 1, "S3_0_C12_C11_1"), // ICC_DIR_EL1
    (0, 12, 11, 3, "S3_0_C12_C11_3"), // ICC_RPR_EL1
    (0, 12, 11, 5, "S3_0_C12_C11_5"), // ICC_SGI1R_EL1
    (0, 12, 12, 0, "S3_0_C12_C12_0"), // ICC_IAR1_EL1
    (0, 12, 12, 1, "S3_0_C12_C12_1"), // ICC_EOIR1_EL1
    (0, 12, 12, 2, "S3_0_C12_C12_2"), // ICC_HPPIR1_EL1
    (0, 12, 12, 3, "S3_0_C12_C12_3"), // ICC_BPR1_EL1
    (0, 12, 12, 4, "S3_0_C12_C12_4"), // ICC_CTLR_EL1
    (0, 12, 12, 5, "S3_0_C12_C12_5"), // ICC_SRE_EL1
    (0, 12, 12, 6, "S3_0_C12_C12_6"), // ICC_IGRPEN0_EL1
    (0, 12, 12, 7, "S3_0_C12_C12_7"), // ICC_IGRPEN1_EL1
    (3, 14, 0, 0, "S3_3_C14_C0_0"),   // CNTFRQ_EL0
    (3, 14, 0, 1, "S3_3_C14_C0_1"),   // CNTPCT_EL0
    (3, 14, 0, 2, "S3_3_C14_C0_2"),   // CNTVCT_EL0
    (3, 14, 2, 1, "S3_3_C14_C2_1"),   // CNTP_CTL_EL0
    (3, 14, 2, 2, "S3_3_C14_C2_2"),   // CNTP_CVAL_EL0
    (3, 14, 3, 1, "S3_3_C14_C3_1"),   // CNTV_CTL_EL0
    (3, 14, 3, 2, "S3_3_C14_C3_2"),   // CNTV_CVAL_EL0
}

impl Regs for GicCpuInterface {
    fn read32(&self, offset: u32) -> u32 {
        read_system(offset) as u32
    }
    fn write32(&self, offset: u32, value: u32) {
        write_system(offset, value.into());
    }
    fn read64(&self, offset: u32) -> u64 {
        read_system(offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        write_system(offset, value);
    }
}

//! The generic timer of an Arm CPU, in system registers (Arm DDI 0487, "The Generic Timer in AArch64 state" and
//! "Generic Timer registers"). Every CPU has its own timers; the count is the same for all. Accesses are 64 bits wide.
//!
//! A timer's interrupt is level-triggered: it stays raised as long as the timer is enabled, not masked, and the count has
//! reached its compare value. Offsets are encodings, as those of [`crate::gic::icc`].
//!
//! Left out: the timers of EL2 and EL3, the self-hosted virtual offset, event streams.

use crate::gic::icc::encoding;
use crate::gic::{ReadOnly, ReadWrite, Register};
use bitfield_struct::bitfield;

/// CNTFRQ_EL0: ticks of the count in a second, in bits 31:0. Firmware writes it, on each CPU.
pub const FREQUENCY: Register<u64, ReadOnly> = Register::at(encoding(3, 3, 14, 0, 0));

/// The PPI of the virtual timer, as Arm DEN 0029 ("Server Base System Architecture") has it.
pub const VIRTUAL_PPI: u32 = 27;
/// The PPI of the physical timer of EL1, as Arm DEN 0029 has it.
pub const PHYSICAL_PPI: u32 = 30;

/// One timer of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// CNTVCT_EL0, CNTPCT_EL0: the count that the timer compares with.
    pub count: Register<u64, ReadOnly>,
    /// CNTV_TVAL_EL0, CNTP_TVAL_EL0: the compare value less the count, signed, in bits 31:0.
    pub value: Register<u64, ReadWrite>,
    /// CNTV_CTL_EL0, CNTP_CTL_EL0: a [`Control`].
    pub control: Register<u64, ReadWrite>,
    /// CNTV_CVAL_EL0, CNTP_CVAL_EL0: the compare value.
    pub compare: Register<u64, ReadWrite>,
}

/// The virtual timer.
pub const VIRTUAL: Timer = Timer {
    count: Register::at(encoding(3, 3, 14, 0, 2)),
    value: Register::at(encoding(3, 3, 14, 3, 0)),
    control: Register::at(encoding(3, 3, 14, 3, 1)),
    compare: Register::at(encoding(3, 3, 14, 3, 2)),
};

/// The physical timer of EL1.
pub const PHYSICAL: Timer = Timer {
    count: Register::at(encoding(3, 3, 14, 0, 1)),
    value: Register::at(encoding(3, 3, 14, 2, 0)),
    control: Register::at(encoding(3, 3, 14, 2, 1)),
    compare: Register::at(encoding(3, 3, 14, 2, 2)),
};

/// Control (DDI 0487, "CNTV_CTL_EL0, Counter-timer Virtual Timer Control register").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// ENABLE: the timer runs.
    pub enable: bool,
    /// IMASK: its interrupt is not raised.
    pub masked: bool,
    /// ISTATUS: the count has reached the compare value. Read-only; unknown while the timer does not run.
    pub met: bool,
    #[bits(61)]
    __: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_the_manuals() {
        assert_eq!(FREQUENCY.offset(), 0xdf00);
        assert_eq!([PHYSICAL.count.offset(), VIRTUAL.count.offset()], [0xdf01, 0xdf02]);
        let of = |timer: Timer| [timer.value.offset(), timer.control.offset(), timer.compare.offset()];
        assert_eq!(of(PHYSICAL), [0xdf10, 0xdf11, 0xdf12]);
        assert_eq!(of(VIRTUAL), [0xdf18, 0xdf19, 0xdf1a]);
    }

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        let control = Control::from_bits(0b101);
        assert!(control.enable() && !control.masked() && control.met());
    }
}

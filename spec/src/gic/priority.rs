//! Priorities (IHI 0069H, "Interrupt prioritization").

/// A priority: the lower the number, the more urgent. Implementations have the upper 4 to 8 bits only, the others read
/// as zero; so these differ in the upper four.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority(pub u8);

impl Priority {
    /// The most urgent priority. As a mask it blocks all interrupts. As a running priority it cannot be preempted.
    pub const HIGHEST: Self = Self(0x00);
    /// Priority of a pseudo-NMI, which is taken even while ordinary interrupts are masked by priority.
    pub const PSEUDO_NMI: Self = Self(0x80);
    /// Priority of ordinary interrupts. As a mask it admits only more urgent ones: pseudo-NMIs.
    pub const DEFAULT: Self = Self(0xc0);
    /// The mask that admits all priorities above.
    pub const UNMASKED: Self = Self(0xf0);
    /// The running priority while no interrupt is active (IHI 0069H, "ICC_RPR_EL1").
    pub const IDLE: Self = Self(0xff);

    /// True if an interrupt of this priority passes `mask`, so if it is strictly more urgent.
    pub const fn passes(self, mask: Self) -> bool {
        self.0 < mask.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pseudo_nmi_passes_the_mask_that_holds_ordinary_interrupts() {
        assert!(Priority::DEFAULT.passes(Priority::UNMASKED));
        assert!(!Priority::DEFAULT.passes(Priority::DEFAULT));
        assert!(Priority::PSEUDO_NMI.passes(Priority::DEFAULT));
        assert!(!Priority::PSEUDO_NMI.passes(Priority::HIGHEST));
        assert_eq!(Priority::DEFAULT.0 & !0x40, Priority::PSEUDO_NMI.0);
    }
}

//! Interrupt coalescing (features 08h and 09h, Base 5.27.1.6 and 5.27.1.7) in units that cannot be confused.

use core::fmt;
use spec::nvme::InterruptCoalescing;

/// A value that a feature cannot express.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureValueError {
    /// A time in µs that is no multiple of 100 up to 25,500.
    TimeUs(u32),
    /// A number of entries that is not 1 to 256.
    Entries(u16),
}

impl fmt::Display for FeatureValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeUs(us) => write!(f, "a coalescing time of {us} µs; multiples of 100 from 0 to 25500 are valid"),
            Self::Entries(entries) => write!(f, "a coalescing threshold of {entries} entries; 1 to 256 are valid"),
        }
    }
}

impl core::error::Error for FeatureValueError {}

/// The longest time that a device may hold an interrupt back, in steps of 100 µs. 0 turns coalescing off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CoalescingTime(u8);

impl CoalescingTime {
    /// Microseconds of a step.
    pub const STEP_US: u32 = 100;

    /// So many steps of 100 µs.
    pub const fn steps(steps: u8) -> Self {
        Self(steps)
    }

    /// So many microseconds.
    ///
    /// # Errors
    /// [`FeatureValueError::TimeUs`] when it is no multiple of a step, or more than 255 of them.
    pub fn from_us(us: u32) -> Result<Self, FeatureValueError> {
        let steps = u8::try_from(us / Self::STEP_US).map_err(|_| FeatureValueError::TimeUs(us))?;
        if us.is_multiple_of(Self::STEP_US) { Ok(Self(steps)) } else { Err(FeatureValueError::TimeUs(us)) }
    }

    /// In microseconds.
    pub const fn us(self) -> u32 {
        self.0 as u32 * Self::STEP_US
    }
}

/// How many completion entries a device gathers before it interrupts: 1 to 256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CoalescingThreshold(u8);

impl CoalescingThreshold {
    /// So many entries.
    ///
    /// # Errors
    /// [`FeatureValueError::Entries`] when that is not 1 to 256.
    pub fn entries(entries: u16) -> Result<Self, FeatureValueError> {
        let zero_based = entries.checked_sub(1).and_then(|value| u8::try_from(value).ok());
        zero_based.map(Self).ok_or(FeatureValueError::Entries(entries))
    }

    /// In entries.
    pub const fn get(self) -> u16 {
        self.0 as u16 + 1
    }
}

/// Feature 08h: for all I/O completion queues of the controller together, a recommendation to it. The default is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalescing {
    /// The longest delay.
    pub time: CoalescingTime,
    /// The entries gathered.
    pub threshold: CoalescingThreshold,
}

impl Coalescing {
    /// Every entry interrupts at once.
    pub const OFF: Self = Self { time: CoalescingTime(0), threshold: CoalescingThreshold(0) };

    /// Whether the device may hold interrupts back: not when the time is 0, nor with a threshold of one entry.
    pub fn is_on(self) -> bool {
        self.time.0 != 0 && self.threshold.0 != 0
    }

    pub(super) fn to_dw11(self) -> u32 {
        InterruptCoalescing::new().with_thr(self.threshold.0).with_time(self.time.0).into_bits()
    }

    pub(super) fn from_dw0(dw0: u32) -> Self {
        let field = InterruptCoalescing::from_bits(dw0);
        Self { time: CoalescingTime(field.time()), threshold: CoalescingThreshold(field.thr()) }
    }
}

impl fmt::Display for Coalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_on() {
            write!(f, "{} entries or {} µs", self.threshold.get(), self.time.us())
        } else {
            write!(f, "off")
        }
    }
}

/// Feature 09h: whether one vector takes part in [`Coalescing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VectorCoalescing {
    /// It does; the default.
    Coalesced,
    /// Its interrupts are never held back.
    Immediate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_dwords_of_the_manual() {
        let coalescing = Coalescing {
            time: CoalescingTime::from_us(300).unwrap(),
            threshold: CoalescingThreshold::entries(8).unwrap(),
        };
        assert_eq!(coalescing.to_dw11(), 0x0000_0307);
        assert_eq!(Coalescing::from_dw0(0x0000_0307), coalescing);
        assert_eq!(coalescing.to_string(), "8 entries or 300 µs");
        assert_eq!(Coalescing::from_dw0(0x0000_ffff).threshold.get(), 256);
        assert_eq!(Coalescing::OFF.to_dw11(), 0);
    }

    #[test]
    fn either_zero_is_off() {
        assert!(!Coalescing::from_dw0(0x0700).is_on());
        assert!(!Coalescing::from_dw0(0x0007).is_on());
        assert!(Coalescing::from_dw0(0x0101).is_on());
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        assert_eq!(CoalescingTime::from_us(250), Err(FeatureValueError::TimeUs(250)));
        assert_eq!(CoalescingTime::from_us(25_600), Err(FeatureValueError::TimeUs(25_600)));
        assert_eq!(CoalescingTime::from_us(25_500).unwrap().us(), 25_500);
        assert_eq!(CoalescingThreshold::entries(0), Err(FeatureValueError::Entries(0)));
        assert_eq!(CoalescingThreshold::entries(257), Err(FeatureValueError::Entries(257)));
    }
}

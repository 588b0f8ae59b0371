//! One calibrated constant, and the groups of constants that a platform has.

use super::Unit;
use crate::input::Place;

/// A hardware constant: a value with its unit and the reason for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    /// In the unit of its [`Spec`]: nanoseconds, bytes a second, or a plain number.
    pub value: f64,
    /// Why this value.
    pub reason: String,
    /// Free: `campanile calibrate` may vary it. It holds all other constants fixed.
    pub fit: bool,
    /// How far a fit leaves it open to either side, as a share of its value; none if the file does not say.
    pub uncertainty: Option<f64>,
    /// Factors on its value at points that measurements leave open, the same number for each constant that has them.
    pub region: Vec<f64>,
    /// The place that set it last.
    pub place: Place,
}

/// The reason text of an optional constant that the platform does not give.
const ABSENT: &str = "not given: nothing on this platform needs it";

impl Constant {
    /// The placeholder for a constant that the platform does not need.
    pub(super) fn absent(spec: &Spec, place: &Place) -> Self {
        Self {
            value: spec.min,
            reason: ABSENT.into(),
            fit: false,
            uncertainty: None,
            region: Vec::new(),
            place: place.clone(),
        }
    }

    /// Whether the platform gives it.
    pub(super) fn is_given(&self) -> bool {
        self.reason != ABSENT
    }

    /// The reason text of a constant that a setting at `place` changed.
    pub(super) fn reason_to_set(place: &Place) -> String {
        format!("set by {place}")
    }

    /// Whether a setting changed it after its file was read.
    pub(super) fn is_set_again(&self) -> bool {
        self.reason == Self::reason_to_set(&self.place)
    }

    /// A time in whole picoseconds, the machine's unit.
    pub fn ps(&self) -> u64 {
        (self.value * 1000.0).round() as u64
    }

    /// A time in whole nanoseconds.
    pub fn ns(&self) -> u64 {
        self.value.round() as u64
    }

    /// A count, a percentage or a rate as a whole number.
    pub fn whole(&self) -> u64 {
        self.value.round() as u64
    }

    /// A flag.
    pub fn is_set(&self) -> bool {
        self.value != 0.0
    }
}

/// Name, unit and bounds of a constant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spec {
    /// Its name in its group.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Smallest value, in the base of the unit.
    pub min: f64,
    /// Largest value, in the base of the unit.
    pub max: f64,
    /// The platforms that must give it.
    pub needed: Needed,
    /// Its meaning.
    pub about: &'static str,
}

/// The platforms that must give a constant. On other platforms it is [`Constant::absent`] unless they give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needed {
    /// Every platform.
    Always,
    /// Platforms with PCI devices, whose interrupts are MSIs: drives, an accelerator.
    Pci,
    /// Platforms with drives.
    Drives,
    /// Platforms whose interrupts may have threads: drives, a GIC.
    Threads,
    /// Platforms with any device: all except those with a GIC alone.
    Devices,
}

/// Declares a group of constants: the fields, their units, their bounds, and after `for` which platforms must give them
/// if not all; and access by name.
macro_rules! constants {
    (@needed) => { $crate::platform::Needed::Always };
    (@needed $needed:ident) => { $crate::platform::Needed::$needed };
    ($(#[$doc:meta])* $group:ident { $($(#[doc = $field_doc:literal])* $field:ident: $unit:ident $min:literal $max:literal $(for $needed:ident)?,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct $group {
            $($(#[doc = $field_doc])* pub $field: Constant,)*
        }

        impl $group {
            /// The valid values of this group's constants, in their order.
            pub const SPECS: &[Spec] = &[
                $(Spec {
                    name: stringify!($field),
                    unit: Unit::$unit,
                    min: $min,
                    max: $max,
                    needed: constants!(@needed $($needed)?),
                    about: concat!($($field_doc),*),
                },)*
            ];

            /// Builds the group from a source of constants, asked once a field in the order of [`Self::SPECS`].
            ///
            /// # Errors
            /// The first that the source gives.
            pub fn build<E>(mut source: impl FnMut(&'static Spec) -> Result<Constant, E>) -> Result<Self, E> {
                let mut specs = Self::SPECS.iter();
                $(let $field = source(specs.next().expect("a spec a field"))?;)*
                Ok(Self { $($field,)* })
            }

            /// Every constant with its spec, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static Spec, &Constant)> {
                Self::SPECS.iter().zip([$(&self.$field,)*])
            }

            /// The constant of that name, to change.
            pub fn get_mut(&mut self, name: &str) -> Option<(&'static Spec, &mut Constant)> {
                Self::SPECS.iter().zip([$(&mut self.$field,)*]).find(|(spec, _)| spec.name == name)
            }
        }
    };
}
pub(super) use constants;

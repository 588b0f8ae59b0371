//! Platforms: calibrated hardware constants, each with its unit and its reason.

mod constant;
mod groups;
mod unit;

pub use constant::{Constant, Spec};
pub use groups::{Cpu, Drive, Fabric};
pub use unit::Unit;

/// A server's constants.
#[derive(Clone, PartialEq, Debug)]
pub struct Platform {
    /// Its name: `emr`.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// Costs of a CPU.
    pub cpu: Cpu,
    /// Between drives and CPUs.
    pub fabric: Fabric,
    /// Kinds of drive by name, in the file's order.
    pub drives: Vec<(String, Drive)>,
}

impl Platform {
    /// The kind of drive of that name.
    pub fn drive(&self, kind: &str) -> Option<&Drive> {
        self.drives.iter().find(|(name, _)| name == kind).map(|(_, drive)| drive)
    }
}

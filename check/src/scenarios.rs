//! All scenarios.

use crate::run::Scenario;
use crate::{gic, pc};

/// Those that `campanile check` runs.
pub fn all() -> &'static [&'static dyn Scenario] {
    static ALL: [&dyn Scenario; 5] = [&pc::PLAIN, &pc::REMAPPED, &pc::POSTED, &gic::V2, &gic::V3];
    &ALL
}

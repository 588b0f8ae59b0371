//! All scenarios.

use crate::pc;
use crate::run::Scenario;

/// Those that `campanile check` runs.
pub fn all() -> &'static [&'static dyn Scenario] {
    static ALL: [&dyn Scenario; 3] = [&pc::PLAIN, &pc::REMAPPED, &pc::POSTED];
    &ALL
}

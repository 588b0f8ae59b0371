//! All scenarios.

use crate::run::Scenario;
use crate::{firmware, gic, moderation, parts, pc, virtio};

/// The scenarios that `campanile check` runs.
pub fn all() -> &'static [&'static dyn Scenario] {
    static ALL: [&dyn Scenario; 9] = [
        &pc::PLAIN,
        &pc::REMAPPED,
        &pc::POSTED,
        &gic::V2,
        &gic::V3,
        &virtio::DEVICES,
        &moderation::CONSUMERS,
        &firmware::FIRMWARE,
        &parts::PARTS,
    ];
    &ALL
}

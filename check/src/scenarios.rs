//! All scenarios.

use crate::run::Scenario;
use crate::{firmware, gic, moderation, parts, pc, scheduler, virtio};

/// The scenarios that `campanile check` runs.
pub fn all() -> &'static [&'static dyn Scenario] {
    static ALL: [&dyn Scenario; 10] = [
        &pc::PLAIN,
        &pc::REMAPPED,
        &pc::POSTED,
        &gic::V2,
        &gic::V3,
        &virtio::DEVICES,
        &moderation::CONSUMERS,
        &scheduler::THREADS,
        &firmware::FIRMWARE,
        &parts::PARTS,
    ];
    &ALL
}

//! All scenarios.

use crate::run::Scenario;
use crate::{gic, moderation, pc, scheduler, virtio};

/// The scenarios that `campanile check` runs.
pub fn all() -> &'static [&'static dyn Scenario] {
    static ALL: [&dyn Scenario; 8] = [
        &pc::PLAIN,
        &pc::REMAPPED,
        &pc::POSTED,
        &gic::V2,
        &gic::V3,
        &virtio::DEVICES,
        &moderation::CONSUMERS,
        &scheduler::THREADS,
    ];
    &ALL
}

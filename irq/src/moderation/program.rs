//! A level on its way to the device.

use super::Setting;

/// A level to program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The id to answer with.
    pub id: u32,
    /// The level's index in the table.
    pub level: usize,
    /// The setting to program.
    pub setting: Setting,
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The device took the step and now has this setting: the requested one, or the nearest that it can do.
    Done(Setting),
    /// The device refused, and keeps its former setting.
    Failed,
}

/// The one step under way, for controllers that wait for its answer without a limit.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Deferred {
    id: u32,
    waits: bool,
}

impl Deferred {
    pub(super) fn request(&mut self) {
        *self = Self { id: self.id.wrapping_add(1), waits: true };
    }

    pub(super) fn step(&self, level: usize, setting: Setting) -> Option<Step> {
        self.waits.then_some(Step { id: self.id, level, setting })
    }

    /// True when `id` is the step under way.
    pub(super) fn answer(&mut self, id: u32) -> bool {
        let ours = self.waits && self.id == id;
        self.waits &= !ours;
        ours
    }
}

//! The machine of a kind, as the course of a run sees it.

use super::span::Span;
use crate::kinds::Section;
use crate::outcome::{Interrupts, Server};
use crate::report::trace::Track;
use hal::CpuSet;
use machine::Machine;
use machine::model::ModelId;

/// A machine that is up and loaded, as the course of a run sees it.
pub trait Rig {
    /// The measurements that only this kind has.
    type Outcome: Into<Section>;

    /// The machine.
    fn machine(&mut self) -> &mut Machine;

    /// The CPUs whose time is reported.
    fn cpus(&self) -> CpuSet;

    /// Counts so far that the timeline shows, by name.
    fn activity(&mut self) -> Vec<(&'static str, u64)>;

    /// Called at the end of the ramp: counting begins here.
    fn begin(&mut self);

    /// Called when counting ends.
    fn end(&mut self);

    /// The counts between the beginning and the end, without those that the course of the run itself keeps.
    fn outcome(&self, span: &Span) -> Counted<Self::Outcome>;

    /// How the system delivers messages, and the reason where it cannot deliver them as wished. None for a system
    /// without such a choice.
    fn policy(&self) -> Option<String> {
        None
    }

    /// The track of a model in a trace.
    fn track(&self, model: ModelId) -> Option<Track>;

    /// Every interrupt line.
    fn lines(&self) -> Vec<irq::LineView>;
}

/// The counts of a rig.
pub struct Counted<O> {
    /// Counts of the delivery path. The machine adds the longest interrupt.
    pub interrupts: Interrupts,
    /// The shared servers of the MSI path.
    pub servers: Vec<Server>,
    /// The kernel's interrupt accounting, in the format of `/proc/interrupts`.
    pub interrupt_table: String,
    /// The measurements that only this kind has.
    pub own: O,
}

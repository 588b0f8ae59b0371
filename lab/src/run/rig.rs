//! The machine of a kind, as the course of a run sees it.

use super::RunError;
use super::span::Span;
use crate::interrupt::StopFlag;
use crate::kinds::Section;
use crate::outcome::{Interrupts, Server, Timeline};
use crate::report::trace::{TraceRecord, Track};
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

    /// Runs an experiment that has phases from beginning to end, each phase over its own span; the last stage is the whole.
    /// None for one that has none: its span is set from outside.
    ///
    /// # Errors
    /// The machine stops making progress, or a phase cannot begin.
    fn run_stages(&mut self, _stop: &StopFlag) -> Result<Option<Vec<Stage<Self::Outcome>>>, RunError> {
        Ok(None)
    }

    /// The track of a model in a trace.
    fn track(&self, model: ModelId) -> Option<Track>;

    /// Every interrupt line.
    fn lines(&self) -> Vec<irq::LineView>;
}

/// A part of a run that is measured over a span of its own.
pub struct Stage<O> {
    /// The jobs that ran in it.
    pub name: String,
    /// From the first job's beginning to the last one's end.
    pub span: Span,
    /// Its I/Os over time; empty for the whole run.
    pub timeline: Timeline,
    /// The counts of the span.
    pub counted: Counted<O>,
}

impl<O> Stage<O> {
    /// The stage in a trace.
    pub(super) fn record(&self) -> TraceRecord {
        TraceRecord {
            start_ps: self.span.start().0,
            duration_ps: self.span.ps(),
            track: Track::Phases,
            name: self.name.clone().into(),
            argument: 0,
            flows: Vec::new(),
            ends: Vec::new(),
        }
    }
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

//! Spans of activity, for a trace viewer.

use crate::event::ModelId;
use crate::time::Ps;

/// The owner of a span's track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Track {
    /// A CPU.
    Cpu(u32),
    /// A model.
    Model(ModelId),
}

/// Something that lasted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where.
    pub track: Track,
    /// The activity.
    pub name: &'static str,
    /// From when.
    pub start: Ps,
    /// How long.
    pub duration: Ps,
    /// The argument: a vector, a command, a count.
    pub argument: u64,
}

/// Placeholder start of a delayed span; sorts last.
pub(crate) const NOT_YET: Ps = Ps(1 << 62);

//! Spans of what ran when, for a trace viewer.

use crate::core::Core;
use crate::model::ModelId;
use crate::time::Ps;
use hal::Work;

/// Whose track a span is on.
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
    /// What.
    pub name: &'static str,
    /// From when.
    pub start: Ps,
    /// How long.
    pub duration: Ps,
    /// Of what: a vector, a command, a count.
    pub argument: u64,
}

/// When spans happen that an interrupt keeps waiting, until it ends: after every trace.
pub(crate) const NOT_YET: Ps = Ps(1 << 62);

impl Core {
    /// Turns tracing on or off.
    pub(crate) fn set_tracing(&self, on: bool) {
        self.tracing.set(on);
        self.watched.set(on || self.observer.get().is_some() || self.unrest.is_some());
    }

    /// Places of the running CPU's spans that end after `at`: they were noted when they were owed. None untraced.
    pub(crate) fn spans_after(&self, at: Ps) -> Vec<usize> {
        if !self.tracing.get() {
            return Vec::new();
        }
        let (spans, mine) = (self.spans.borrow(), Track::Cpu(self.cpu().id.0));
        let own = spans.iter().enumerate().rev().filter(|(_, span)| span.track == mine);
        own.take_while(|(_, span)| span.start + span.duration > at).map(|(place, _)| place).collect()
    }

    /// What was owed beyond `cut` happens from `resumed` on, so that spans nest.
    pub(crate) fn split_spans(&self, owed: &mut [usize], cut: Ps, resumed: Ps) {
        let (mut spans, mine) = (self.spans.borrow_mut(), Track::Cpu(self.cpu().id.0));
        for place in owed {
            let Some(span) = spans.get_mut(*place).filter(|span| span.track == mine) else { continue };
            let end = span.start + span.duration;
            if span.start >= cut {
                span.start = resumed + (span.start - cut);
            } else if end > cut {
                let rest = Span { start: resumed, duration: end - cut, ..*span };
                span.duration = cut - span.start;
                *place = spans.len();
                spans.push(rest);
            }
        }
    }
}

pub(crate) fn work_name(work: Work) -> &'static str {
    match work {
        Work::IrqEntry => "irq entry",
        Work::IrqExit => "irq exit",
        Work::IrqHandler => "irq handler",
        Work::ReapEntry => "reap",
        Work::PirHarvest => "PIR harvest",
        Work::PidClearOn => "clear ON",
        Work::UserAio | Work::UserUring | Work::UserPolled => "user",
        Work::SubmitAio | Work::SubmitUring | Work::SubmitPolled => "submit",
        Work::CompleteAio | Work::CompleteUring | Work::CompletePolled => "complete",
        Work::PollLook => "poll",
        Work::CheckLook => "check",
        Work::RemoteCompletion => "remote completion",
        Work::ContextSwitch => "context switch",
        Work::StreamEntry => "stream",
        Work::SoftPass => "poll pass",
        Work::FabricSubmit => "submit",
        Work::FabricComplete => "complete",
        Work::FabricServe => "serve",
        Work::ThreadWake => "wake thread",
        Work::Raise => "raise",
    }
}

//! Moderation and budgeted polling. Several devices on a CPU are polled at the end of interrupts. Completion queues of
//! connected RDMA NICs are polled there too, or in threads. Controllers tune their levels, or managers set them, under
//! load.

mod bench;
mod board;
mod end;
mod manage;
mod queue;
mod rig;
mod spare;
mod stack;
mod step;
mod tuning;
pub(crate) mod turns;
mod watch;
mod work;

pub use rig::ModerationRig;

use crate::draw::Draw;
use crate::subject::{Bench, Build, Single, Subject};
use machine::time::Ps;
use step::{ModerationFault, ModerationStep};

/// The stack.
pub struct Moderation;

/// Moderated and polled consumers.
pub static CONSUMERS: Moderation = Moderation;

impl Subject for Moderation {
    type Step = ModerationStep;
    type Fault = ModerationFault;
    type Rig = ModerationRig;

    fn name(&self) -> &'static str {
        "moderation"
    }

    fn about(&self) -> &'static str {
        "budgeted polling and adaptive moderation: polled devices and RDMA completion queues"
    }

    fn transitions(&self) -> &'static [&'static str] {
        &[
            "CPU: went offline",
            "poll: a pass spent its budget",
            "poll: an empty turn",
            "poll: another turn at the tail",
            "poll: something came before the re-arm",
            "polled: completions found without an interrupt",
            "tuning: a level was programmed",
            "tuning: a level was refused",
            "tuning: a level was rounded",
            "tuning: a level was set by hand",
            "tuning: a step was late",
            "tuning: an answer without a step",
            "tuning: another controller took over",
            "tuning: search",
            "tuning: window counted again",
        ]
    }

    fn fault_kinds(&self) -> &'static [&'static str] {
        step::KINDS
    }

    fn draw_step(&self, draw: &mut Draw) -> ModerationStep {
        ModerationStep::draw(draw)
    }

    /// The load of a consumer is cut at the end, and bursts make it longer.
    fn is_comparable(&self, step: &ModerationStep) -> bool {
        !matches!(step, ModerationStep::Burst { .. })
    }

    fn draw_fault(&self, kind: &'static str, draw: &mut Draw) -> ModerationFault {
        ModerationFault::draw(kind, draw)
    }

    /// Some hundred commands, one after the other, at a level of 256 µs.
    fn bound(&self) -> Ps {
        Ps::from_ns(400_000_000)
    }

    fn benches(&self) -> Vec<Bench<ModerationStep>> {
        bench::benches()
    }

    fn singles(&self) -> Vec<Single<ModerationFault>> {
        step::singles()
    }

    fn build(&self, build: &mut Build<'_, ModerationFault>) -> ModerationRig {
        ModerationRig::build(build)
    }
}

//! Our own stack on a machine with a GIC: wired lines of both triggers, private lines, software-generated interrupts, a
//! controller behind a line, threads, pseudo-NMIs and messages.

mod adopt;
pub(crate) mod beliefs;
pub(crate) mod bells;
mod bench;
mod bringup;
mod counters;
mod dropped;
mod end;
mod fault;
mod guards;
pub mod harness;
mod lodgers;
mod manage;
mod misuse;
mod pending;
mod rig;
mod silence;
pub(crate) mod source;
mod stack;
mod step;
mod wires;

pub use rig::GicRig;

use crate::draw::Draw;
use crate::subject::{Bench, Build, Single, Subject};
use fault::GicFault;
use harness::Version;
use step::GicStep;

/// The stack on one version.
pub struct GicSubject {
    name: &'static str,
    about: &'static str,
    version: Version,
}

/// A GICv2, with a v2m frame.
pub static V2: GicSubject = GicSubject {
    name: "gicv2",
    about: "wires, threads and messages on a GICv2, EOImode 0 and 1",
    version: Version::V2,
};
/// A GICv3, with a v2m frame or an ITS.
pub static V3: GicSubject = GicSubject {
    name: "gicv3",
    about: "the same on a GICv3, with LPIs through an ITS and pseudo-NMIs",
    version: Version::V3,
};

/// Transitions that both versions can show.
const COMMON: &[&str] = &[
    "CPU: went offline",
    "adopted: a wire that rings",
    "disable: one within another",
    "disable: something came meanwhile",
    "gic: ONESHOT thread done",
    "gic: PPI acknowledged",
    "gic: SGI acknowledged",
    "gic: SPI acknowledged",
    "gic: deactivated by another CPU",
    "gic: no interrupt to acknowledge",
    "guard: disabled and enabled",
    "guard: dropped where nothing can be removed",
    "guard: of a line dropped before its handler's",
    "handler: did something to a line",
    "handler: no event",
    "handler: replaced",
    "kick: sent and came",
    "line: freed under load",
    "line: storm throttled",
    "line: trigger changed",
    "move: of an active line",
    "pending: set and cleared by software",
    "refused: wrong operations",
    "tick: asked for and came",
    "stray: found, ended, disabled",
    // Further transitions of version 3.
    "ITS: silent for longer than its driver waits",
    "gic: LPI acknowledged",
    "gic: acknowledged inside another",
    "gic: pseudo-NMI",
];

impl Subject for GicSubject {
    type Step = GicStep;
    type Fault = GicFault;
    type Rig = GicRig;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn transitions(&self) -> &'static [&'static str] {
        match self.version {
            Version::V2 => &COMMON[..COMMON.len() - 4],
            Version::V3 => COMMON,
        }
    }

    fn fault_kinds(&self) -> &'static [&'static str] {
        fault::kinds(self.version)
    }

    fn is_rare(&self, kind: &str) -> bool {
        kind == "no-memory"
    }

    fn draw_step(&self, draw: &mut Draw) -> GicStep {
        GicStep::draw(draw)
    }

    fn draw_fault(&self, kind: &'static str, draw: &mut Draw) -> GicFault {
        GicFault::draw(kind, draw)
    }

    fn benches(&self) -> Vec<Bench<GicStep>> {
        bench::benches(self.version)
    }

    fn singles(&self) -> Vec<Single<GicFault>> {
        fault::singles()
    }

    fn build(&self, build: &mut Build<'_, GicFault>) -> GicRig {
        GicRig::build(self.version, build)
    }
}

//! Our own stack on a PC: core, local APICs, remapping, posted delivery, NVMe drives with their queues, an I/O APIC's
//! level line, a ringing device, an accelerator, timers and a function that posts by itself, under load, managers and faults.

mod absent;
mod accelerator;
mod accounts;
mod audit;
mod beliefs;
mod bench;
mod blocks;
mod bringup;
mod drive;
mod fault;
mod guard;
mod intruder;
mod load;
mod manage;
mod models;
mod poster;
mod removal;
mod rig;
mod shape;
mod sources;
mod stack;
mod step;
mod strike;
mod threads;
mod timers;
mod told;
mod user;

pub use rig::PcRig;

use crate::draw::Draw;
use crate::server::Path;
use crate::subject::{Bench, Build, Single, Subject};
use fault::PcFault;
use machine::time::Ps;
use step::PcStep;

/// The stack with one way of delivery.
pub struct Pc {
    name: &'static str,
    about: &'static str,
    delivery: Path,
}

/// Messages straight to the LAPICs.
pub static PLAIN: Pc =
    Pc { name: "pc-plain", about: "NVMe drives on a PC, messages straight to the LAPICs", delivery: Path::Plain };
/// Messages through the remapping table.
pub static REMAPPED: Pc =
    Pc { name: "pc-remapped", about: "the same through interrupt remapping", delivery: Path::Remapped };
/// Messages through posted descriptors.
pub static POSTED: Pc = Pc { name: "pc-posted", about: "the same through posted descriptors", delivery: Path::Posted };

impl Subject for Pc {
    type Step = PcStep;
    type Fault = PcFault;
    type Rig = PcRig;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn transitions(&self) -> &'static [&'static str] {
        match self.delivery {
            Path::Plain => stack::COMMON,
            Path::Remapped => stack::REMAPPED,
            Path::Posted => stack::POSTED,
        }
    }

    fn fault_kinds(&self) -> &'static [&'static str] {
        fault::kinds(self.delivery)
    }

    fn is_rare(&self, kind: &str) -> bool {
        ["register-refused", "admin-fails", "no-memory", "accelerator-fails", "accelerator-late", "answer-wrong"]
            .contains(&kind)
    }

    fn draw_step(&self, draw: &mut Draw) -> PcStep {
        PcStep::draw(draw)
    }

    fn draw_removal(&self, draw: &mut Draw) -> Option<PcStep> {
        Some(PcStep::draw_removal(draw))
    }

    fn draw_beside(&self, draw: &mut Draw) -> Option<PcStep> {
        Some(PcStep::draw_beside(draw))
    }

    fn draw_fault(&self, kind: &'static str, draw: &mut Draw) -> PcFault {
        PcFault::draw(kind, draw)
    }

    fn is_comparable(&self, step: &PcStep) -> bool {
        use PcStep::{Abort, Accelerator, Burst, Chase, Poster, Rebind, Recreate, Remove, Reset, Timer};
        let ends =
            |step: &_| matches!(step, Abort { .. } | Rebind { .. } | Recreate { .. } | Remove { .. } | Reset { .. });
        !ends(step) && !matches!(step, Accelerator(_) | Burst { .. } | Chase { .. } | Poster(_) | Timer(_))
    }

    /// A drive may fail again while its driver waits for the end of its reset. The driver then waits for CAP.TO, 500
    /// ms, as often as a history has faults.
    fn step_bound(&self) -> Ps {
        self.bound() + Ps::from_ns(4 * 500_000_000)
    }

    fn benches(&self) -> Vec<Bench<PcStep>> {
        bench::benches(self.delivery)
    }

    fn singles(&self) -> Vec<Single<PcFault>> {
        fault::singles(self.delivery)
    }

    fn build(&self, build: &mut Build<'_, PcFault>) -> PcRig {
        PcRig::build(self.delivery, build)
    }
}

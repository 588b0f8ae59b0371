//! Virtio: a disk and a network on a machine with a GIC, over MMIO with one or several wires of either trigger, and over
//! PCI with messages through an ITS.

mod ask;
mod bench;
mod bind_error;
mod buffers;
mod changes;
mod end;
mod load;
mod manage;
mod network;
mod platform;
mod rig;
mod stack;
mod step;

pub use rig::VirtioRig;

use crate::draw::Draw;
use crate::subject::{Bench, Build, Single, Subject};
use machine::time::Ps;
use step::{VirtioFault, VirtioStep};

/// The stack.
pub struct Virtio;

/// A disk and a network.
pub static DEVICES: Virtio = Virtio;

impl Subject for Virtio {
    type Step = VirtioStep;
    type Fault = VirtioFault;
    type Rig = VirtioRig;

    fn name(&self) -> &'static str {
        "virtio"
    }

    fn about(&self) -> &'static str {
        "a virtio disk and a network, over MMIO with one or several interrupts and over PCI"
    }

    fn transitions(&self) -> &'static [&'static str] {
        &[
            "CPU: went offline",
            "command: ended with an error",
            "disk: a broken queue was reset",
            "disk: a poll found requests",
            "disk: queue reset under load",
            "disk: unbound in flight and bound",
            "network: a command found another under way",
            "network: a command was refused",
            "network: an empty interrupt",
            "network: coalescing changed",
            "network: packets came before the re-arm",
            "network: unbound in flight and bound",
        ]
    }

    fn fault_kinds(&self) -> &'static [&'static str] {
        step::KINDS
    }

    fn is_rare(&self, kind: &str) -> bool {
        kind == "no-memory"
    }

    fn draw_step(&self, draw: &mut Draw) -> VirtioStep {
        VirtioStep::draw(draw)
    }

    fn draw_beside(&self, draw: &mut Draw) -> Option<VirtioStep> {
        Some(VirtioStep::draw_beside(draw))
    }

    fn draw_fault(&self, kind: &'static str, draw: &mut Draw) -> VirtioFault {
        VirtioFault::draw(kind, draw)
    }

    fn is_comparable(&self, step: &VirtioStep) -> bool {
        !matches!(step, VirtioStep::Recover { .. } | VirtioStep::Rebind { .. })
    }

    /// Some thousand requests of 20 µs each, one after the other, are 60 ms.
    fn bound(&self) -> Ps {
        Ps::from_ns(200_000_000)
    }

    fn benches(&self) -> Vec<Bench<VirtioStep>> {
        bench::benches()
    }

    fn singles(&self) -> Vec<Single<VirtioFault>> {
        step::singles()
    }

    fn build(&self, build: &mut Build<'_, VirtioFault>) -> VirtioRig {
        VirtioRig::build(build)
    }
}

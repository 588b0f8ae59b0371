//! Changes of the devices' configuration. Some only announce one, to what it was. The disk also changes its size, so that a driver
//! that reads the two halves of it meets both sizes; it must report one of them (VIRTIO 1.3, 2.5 and 2.5.1).

use super::end::SECTORS;
use super::rig::VirtioRig;
use super::stack::Which;
use crate::draw::Knobs;
use crate::verdict::violate;
use machine::time::Ps;
use machine::virtio::{block, code};

/// The disk's other size: both halves differ from those of [`SECTORS`].
const OTHER_SECTORS: u64 = 0x3_0000_0500;
const _: () = assert!(OTHER_SECTORS >> 32 != SECTORS >> 32 && OTHER_SECTORS as u32 != SECTORS as u32);

/// How many changes there are, and the time between them.
#[derive(Clone, Copy)]
pub(super) struct Changes {
    announcements: (u64, Ps),
    resizes: (u64, Ps),
}

impl Changes {
    pub(super) fn draw(knobs: &mut Knobs) -> Self {
        let count = knobs.number_with("announcements", 0..=100, 0, |draw| draw.time_ns(1, 100) - 1);
        let announcements = (count, Ps::from_ns(knobs.number("announce_ns", 500..=20_000)));
        let draw_count = |draw: &mut crate::draw::Draw| if draw.percent(50) { 0 } else { draw.within(1..=200) };
        let count = knobs.number_with("resizes", 0..=200, 0, draw_count);
        let resizes = (count, Ps::from_ns(knobs.number("resize_ns", 1_000..=3_000)));
        Self { announcements, resizes }
    }

    /// The disk begins to change its size, before its driver comes.
    pub(super) fn resize(self, rig: &mut VirtioRig) {
        let (count, gap) = self.resizes;
        for number in 1..=count {
            let sectors = if number % 2 == 1 { OTHER_SECTORS } else { SECTORS };
            rig.poke_at(Which::Disk, Ps(gap.0 * number), block::code::RESIZE, sectors);
        }
        rig.changes_until(Ps(gap.0 * count));
    }

    /// Each device begins to announce changes.
    pub(super) fn announce(self, rig: &mut VirtioRig) {
        let (count, gap) = self.announcements;
        (1..=count).for_each(|number| announce(rig, Ps(gap.0 * number)));
        rig.changes_until(Ps(gap.0 * count));
    }
}

/// Each device announces a change.
pub(super) fn announce(rig: &mut VirtioRig, after: Ps) {
    [Which::Disk, Which::Network].into_iter().for_each(|which| rig.poke_at(which, after, code::ANNOUNCE, 0));
}

/// The disk was of one of its sizes when its driver came.
pub(super) fn check_size(sectors: u64) {
    if ![SECTORS, OTHER_SECTORS].contains(&sectors) {
        violate(
            "configuration",
            format!("the disk has {SECTORS:#x} or {OTHER_SECTORS:#x} sectors, and its driver says {sectors:#x}"),
        );
    }
}

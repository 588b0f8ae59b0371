//! How the driver comes to know of the devices on MMIO: a kernel finds them in what its firmware says.

use super::stack::{Bus, Place};
use super::step::VirtioFault;
use crate::draw::Draw;
use crate::firmware::platform::{FORMS, Wired, find};
use crate::subject::Build;
use drivers::virtio::discovery::MmioDevice;

/// Bytes of a device's registers.
const REGISTERS_BYTES: u64 = 0x200;

/// Describes the devices on MMIO in a form that the history draws, and finds them. Functions on PCI find themselves.
///
/// # Panics
/// If anything else was found.
pub(super) fn discover(build: &mut Build<'_, VirtioFault>, places: &[Place; 2]) -> [Option<MmioDevice>; 2] {
    let form = build.knobs.choice("firmware", &FORMS);
    let mut draw = Draw::new(build.seed, "firmware", 0);
    let base = 0x0a00_0000 + (draw.below(1 << 8) << 12);
    let wired = |(index, place): (u64, &Place)| match place.bus {
        Bus::Pci { .. } => None,
        Bus::Mmio { wires, level } => Some(Wired {
            base: base + REGISTERS_BYTES * (7 * index + 1),
            size_bytes: REGISTERS_BYTES,
            first: place.intid,
            count: wires.into(),
            edge: !level,
        }),
    };
    let wired: Vec<_> = (0..).zip(places).map(wired).collect();
    let present: Vec<_> = wired.iter().flatten().copied().collect();
    let found = find(&mut draw, form, &present);
    let mut found = found.unwrap_or_else(|wrong| panic!("discovery: {wrong}")).into_iter();
    [0, 1].map(|index: usize| wired[index].and_then(|_| found.next()))
}

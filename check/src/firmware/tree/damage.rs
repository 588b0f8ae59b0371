//! Device trees of which one thing is wrong.

use super::{Bus, Controller, DEPTH_MAX, Writer, text};
use crate::draw::Draw;
use crate::firmware::described::{REGISTERS_BYTES, VECTORS_MAX, Wrong, plausible};
use crate::firmware::fdt::in_cells;
use drivers::virtio::discovery::{DiscoveryError, from_device_tree};

/// What is wrong with one device of a damaged tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    NoInterrupt,
    ManyInterrupts,
    SmallWindow,
    NoRegisters,
    CutRegisters,
    OutsideOfBus,
    WrongSpecifier,
    CutSpecifier,
    OddInterrupts,
    NoParent,
    UnknownParent,
}

pub(super) const DAMAGES: [Damage; 11] = [
    Damage::NoInterrupt,
    Damage::ManyInterrupts,
    Damage::SmallWindow,
    Damage::NoRegisters,
    Damage::CutRegisters,
    Damage::OutsideOfBus,
    Damage::WrongSpecifier,
    Damage::CutSpecifier,
    Damage::OddInterrupts,
    Damage::NoParent,
    Damage::UnknownParent,
];

impl Writer<'_> {
    /// Writes a device of which one thing is wrong.
    pub(super) fn damaged(&mut self, bus: &Bus) {
        let mut damage = self.damage.take().expect("it is to be damaged");
        let (mut address, base, mut size_bytes) = self.place(bus);
        let controller = *self.draw.pick(&self.controllers);
        if damage == Damage::WrongSpecifier && controller.cells < 3 {
            damage = Damage::CutSpecifier;
        }
        if damage == Damage::CutSpecifier && controller.cells < 2 || damage == Damage::NoParent && bus.parent.is_some()
        {
            damage = Damage::UnknownParent;
        }
        if damage == Damage::OutsideOfBus && !bus.is_windowed {
            damage = Damage::CutRegisters;
        }
        self.begin("virtio_mmio");
        self.fdt.texts("compatible", &["virtio,mmio"]);
        let lines = Wrong::Tree("interrupts");
        let wrong = match damage {
            Damage::NoInterrupt => Wrong::Just(DiscoveryError::NoInterrupt(base)),
            Damage::ManyInterrupts => Wrong::Just(DiscoveryError::Interrupts(VECTORS_MAX as usize + 1)),
            Damage::SmallWindow => {
                size_bytes = if self.draw.percent(50) { REGISTERS_BYTES - 1 } else { self.draw.below(REGISTERS_BYTES) };
                Wrong::Just(DiscoveryError::Window(base, size_bytes))
            }
            Damage::OutsideOfBus => {
                let region = bus.regions[0];
                let before = self.draw.percent(50) && region.child >= 0x100;
                address = if before { region.child - 0x100 } else { region.child + region.bytes - 0xff };
                size_bytes = 0x100 + u64::from(before) * 0x1000;
                Wrong::Tree("reg")
            }
            Damage::NoRegisters | Damage::CutRegisters => Wrong::Tree("reg"),
            _ => lines,
        };
        match damage {
            Damage::NoRegisters => {}
            Damage::CutRegisters => self.fdt.cells("reg", &in_cells(address, bus.address_cells)),
            _ => self.registers(bus, address, size_bytes),
        }
        self.damaged_interrupts(damage, controller);
        self.fdt.end();
        self.wrong = Some(wrong);
    }

    fn damaged_interrupts(&mut self, damage: Damage, controller: Controller) {
        if !matches!(damage, Damage::NoParent | Damage::UnknownParent) {
            self.fdt.cells("interrupt-parent", &[controller.phandle]);
        }
        let (mut cells, _) = self.specifier(controller);
        match damage {
            Damage::NoInterrupt => return,
            Damage::ManyInterrupts => {
                let one = cells.clone();
                (0..VECTORS_MAX).for_each(|_| cells.extend(&one));
            }
            Damage::WrongSpecifier => {
                let wrong = [[0, 988], [1, 16], [2, 5], [0, u32::MAX], [1, u32::MAX], [0, 1024]];
                let wrong: [u32; 2] = *self.draw.pick(&wrong);
                cells[..2].copy_from_slice(&wrong);
            }
            Damage::CutSpecifier => {
                let (good, _) = self.specifier(controller);
                cells.truncate(self.draw.within(1..=u64::from(controller.cells) - 1) as usize);
                if self.draw.percent(30) {
                    cells.insert(0, controller.phandle);
                    return self.fdt.cells("interrupts-extended", &cells);
                }
                cells = [good, cells].concat();
            }
            Damage::OddInterrupts => {
                let bytes = vec![0; 4 * cells.len() + self.draw.within(1..=3) as usize];
                return self.fdt.bytes("interrupts", &bytes);
            }
            Damage::UnknownParent => {
                let bad = *self.draw.pick(&[0, 5, u32::MAX]);
                self.fdt.cells("interrupt-parent", &[7]);
                if self.draw.percent(50) {
                    self.fdt.cells("interrupts", &cells);
                    return self.controller(Controller { phandle: 7, cells: bad });
                }
            }
            _ => {}
        }
        self.fdt.cells("interrupts", &cells);
    }
}

pub(in crate::firmware) fn damaged(draw: &mut Draw) -> Result<(), String> {
    let kind = draw.below(10);
    if kind == 0 {
        let depth = draw.within(DEPTH_MAX + 1..=DEPTH_MAX + 3);
        let (blob, ..) = Writer::new(draw).tree(depth);
        return Wrong::Tree("deep").came(&|| text(&blob), &from_device_tree(&blob));
    }
    if kind < 7 {
        let damage = *draw.pick(&DAMAGES);
        let mut writer = Writer::new(draw);
        writer.damage = Some(damage);
        let (blob, _, wrong) = writer.tree(0);
        return wrong.expect("it was damaged").came(&|| text(&blob), &from_device_tree(&blob));
    }
    let (mut blob, ..) = Writer::new(draw).tree(0);
    if kind == 7 {
        blob.truncate(draw.below(blob.len() as u64) as usize);
        return Wrong::Tree("not valid").came(&|| text(&blob), &from_device_tree(&blob));
    }
    for _ in 0..draw.within(1..=4) {
        let at = draw.below(blob.len() as u64) as usize;
        blob[at] = draw.below(256) as u8;
    }
    plausible(&from_device_tree(&blob))
}

//! Device trees: buses within buses, interrupt controllers of each kind, devices of each kind.

mod damage;

pub(super) use damage::damaged;

use super::described::{Described, REGISTERS_BYTES, VECTORS_MAX, Wrong, found_all, wide};
use super::fdt::{Fdt, in_cells};
use crate::draw::Draw;
use damage::Damage;
use drivers::virtio::discovery::from_device_tree;

/// Nodes below the root, for a device as deep as one may be.
const DEPTH_MAX: u64 = 16;

/// An interrupt controller.
#[derive(Clone, Copy)]
struct Controller {
    phandle: u32,
    cells: u32,
}

/// Addresses of a bus that the CPU reaches, and where.
#[derive(Clone, Copy)]
struct Region {
    child: u64,
    cpu: u64,
    bytes: u64,
}

/// A bus as its children see it.
#[derive(Clone)]
struct Bus {
    address_cells: usize,
    size_cells: usize,
    regions: Vec<Region>,
    /// The interrupt parent that children inherit.
    parent: Option<Controller>,
    /// Addresses outside of its regions reach nothing.
    is_windowed: bool,
}

struct Writer<'d> {
    draw: &'d mut Draw,
    fdt: Fdt,
    controllers: Vec<Controller>,
    devices: Vec<Described>,
    nodes: u32,
    /// The damage of the next device; and the error, once it is done.
    damage: Option<Damage>,
    wrong: Option<Wrong>,
}

impl<'d> Writer<'d> {
    fn new(draw: &'d mut Draw) -> Self {
        let controllers = (0..draw.within(1..=4)).map(|index| {
            let phandle = (wide(draw, 28) as u32) << 3 | index as u32;
            Controller { phandle, cells: draw.within(1..=4) as u32 }
        });
        let controllers = controllers.collect();
        Self { draw, fdt: Fdt::default(), controllers, devices: Vec::new(), nodes: 0, damage: None, wrong: None }
    }

    fn begin(&mut self, name: &str) {
        self.nodes += 1;
        self.fdt.begin(&format!("{name}@{:x}", self.nodes));
        if self.draw.percent(10) {
            self.fdt.nop();
        }
    }

    fn controller(&mut self, controller: Controller) {
        self.begin("interrupt-controller");
        self.fdt.cells("#interrupt-cells", &[controller.cells]);
        self.fdt.cells("phandle", &[controller.phandle]);
        self.fdt.bytes("interrupt-controller", &[]);
        self.fdt.end();
    }

    /// One interrupt of a controller: the specifier, and number and trigger.
    fn specifier(&mut self, controller: Controller) -> (Vec<u32>, (u32, Option<bool>)) {
        let flags = [(0, None), (1, Some(true)), (2, Some(true)), (3, Some(true)), (4, Some(false)), (8, Some(false))];
        let (flags, edge) = *self.draw.pick(&flags);
        let number = wide(self.draw, 12) as u32;
        let (spi, ppi) = (self.draw.below(988) as u32, self.draw.below(16) as u32);
        let (spi, ppi) = if self.draw.percent(10) { (987, 15) } else { (spi, ppi) };
        let private = self.draw.percent(25);
        let (mut cells, number) = match (controller.cells, private) {
            (1, _) => return (vec![number], (number, None)),
            (2, _) => (vec![number, flags], number),
            // Of a PPI, bits 15:8 of the flags are a mask of CPUs.
            (_, true) => (vec![1, ppi, flags | 0xf00], 16 + ppi),
            (_, false) => (vec![0, spi, flags], 32 + spi),
        };
        cells.resize(controller.cells as usize, 0);
        (cells, (number, edge))
    }

    fn count(&mut self) -> u64 {
        match self.draw.below(60) {
            0 => VECTORS_MAX.into(),
            1..40 => 1,
            _ => self.draw.within(1..=8),
        }
    }

    /// Writes the interrupts, in one of the ways.
    fn interrupts(&mut self, bus: &Bus) -> Vec<(u32, Option<bool>)> {
        let own = *self.draw.pick(&self.controllers);
        let parent =
            if bus.regions.is_empty() || self.draw.percent(40) || bus.parent.is_none() { Some(own) } else { None };
        let count = self.count();
        let extended = self.draw.percent(40);
        let mut lines = Vec::new();
        let mut cells = Vec::new();
        for _ in 0..count {
            let one = *self.draw.pick(&self.controllers);
            let controller = if extended { one } else { parent.or(bus.parent).expect("one of them") };
            let (specifier, line) = self.specifier(controller);
            cells.extend(extended.then_some(controller.phandle));
            cells.extend(specifier);
            lines.push(line);
        }
        if let Some(own) = parent {
            self.fdt.cells("interrupt-parent", &[own.phandle]);
        }
        // With both, the extended ones are valid (2.4.1.1).
        let both = extended && self.draw.percent(30);
        if both && self.draw.percent(50) {
            self.fdt.cells("interrupts", &[7, 7, 7]);
        }
        self.fdt.cells(if extended { "interrupts-extended" } else { "interrupts" }, &cells);
        lines
    }

    /// A place within what the CPU reaches: the bus's address, the CPU's, bytes.
    fn place(&mut self, bus: &Bus) -> (u64, u64, u64) {
        let region = *self.draw.pick(&bus.regions);
        let least = REGISTERS_BYTES;
        let bytes = if self.draw.percent(30) { least } else { self.draw.within(least..=0x2000) };
        let last = region.bytes - bytes;
        let offset = if self.draw.percent(20) { last } else { self.draw.below(last / 0x200 + 1) * 0x200 };
        (region.child + offset, region.cpu + offset, bytes)
    }

    fn registers(&mut self, bus: &Bus, address: u64, bytes: u64) {
        let mut cells = in_cells(address, bus.address_cells);
        cells.extend(in_cells(bytes, bus.size_cells));
        if self.draw.percent(20) {
            // A second window is none of the transport's.
            cells.extend(in_cells(address + 0x10_0000, bus.address_cells));
            cells.extend(in_cells(0x100, bus.size_cells));
        }
        self.fdt.cells("reg", &cells);
    }

    /// A device that is to be found; or one that is disabled, or of another kind.
    fn device(&mut self, bus: &Bus) {
        let (address, base, size_bytes) = self.place(bus);
        let is_virtio = self.draw.percent(80);
        let status = *self.draw.pick(&["", "", "", "okay", "ok", "disabled", "fail", "reserved"]);
        self.begin(if is_virtio { "virtio_mmio" } else { "serial" });
        match (is_virtio, self.draw.percent(70)) {
            (true, true) => self.fdt.texts("compatible", &["virtio,mmio"]),
            (true, false) => self.fdt.texts("compatible", &["campanile,device", "virtio,mmio"]),
            (false, true) => self.fdt.texts("compatible", &["virtio,mmio2", "virtio,pci"]),
            (false, false) => {}
        }
        if !status.is_empty() {
            self.fdt.texts("status", &[status]);
        }
        let counts = is_virtio && matches!(status, "" | "okay" | "ok");
        if !counts && self.draw.percent(50) {
            // Whatever it says does not matter.
            self.fdt.cells("interrupts", &[1, 2, 3, 4, 5]);
        } else {
            self.registers(bus, address, size_bytes);
            let lines = self.interrupts(bus);
            if counts {
                self.devices.push(Described { base, size_bytes, lines, id: None });
            }
        }
        self.fdt.end();
    }

    /// A bus whose children's addresses are the same, others, or none of the CPU's; its view of them.
    fn bus(&mut self, outer: &Bus) -> Bus {
        self.begin("bus");
        let wide = |draw: &mut Draw| if draw.percent(50) { 2 } else { 1 };
        let mut bus = outer.clone();
        if self.draw.percent(30) {
            let parent = *self.draw.pick(&self.controllers);
            self.fdt.cells("interrupt-parent", &[parent.phandle]);
            bus.parent = Some(parent);
        }
        if self.draw.percent(35) {
            self.fdt.cells("#address-cells", &[outer.address_cells as u32]);
            self.fdt.cells("#size-cells", &[outer.size_cells as u32]);
            self.fdt.bytes("ranges", &[]);
            return bus;
        }
        (bus.address_cells, bus.size_cells) = (wide(self.draw), wide(self.draw));
        self.fdt.cells("#address-cells", &[bus.address_cells as u32]);
        self.fdt.cells("#size-cells", &[bus.size_cells as u32]);
        let mut cells = Vec::new();
        bus.regions.clear();
        for index in 0..self.draw.within(1..=3) {
            let region = *self.draw.pick(&outer.regions);
            let bytes = region.bytes / 4;
            let offset = self.draw.below(0x300) * (bytes / 0x100);
            let high = if bus.address_cells == 2 { self.draw.below(16) << 32 } else { 0 };
            let child = high + (index << 28) + self.draw.below(0x100) * 0x1000;
            cells.extend(in_cells(child, bus.address_cells));
            cells.extend(in_cells(region.child + offset, outer.address_cells));
            cells.extend(in_cells(bytes, bus.size_cells));
            bus.regions.push(Region { child, cpu: region.cpu + offset, bytes });
        }
        bus.is_windowed = true;
        self.fdt.cells("ranges", &cells);
        bus
    }

    /// Nodes through which nothing is reached: a bus without `ranges`, one with wider addresses, a disabled one.
    fn closed(&mut self, outer: &Bus) {
        self.begin("closed");
        match self.draw.below(3) {
            0 => {
                self.fdt.cells("#address-cells", &[1]);
                self.fdt.cells("#size-cells", &[0]);
                self.fdt.begin("sensor@7");
                self.fdt.cells("reg", &[7]);
                self.fdt.texts("compatible", &["virtio,mmio"]);
                self.fdt.texts("status", &["disabled"]);
                self.fdt.end();
            }
            1 => {
                self.fdt.cells("#address-cells", &[3]);
                self.fdt.cells("#size-cells", &[2]);
                let mut cells = vec![0x0200_0000, 0, 0x4000_0000];
                cells.extend(in_cells(outer.regions[0].child, outer.address_cells));
                cells.extend([0, 0x1000_0000]);
                self.fdt.cells("ranges", &cells);
            }
            _ => {
                self.fdt.texts("status", &["disabled"]);
                self.fdt.cells("#address-cells", &[outer.address_cells as u32]);
                self.fdt.cells("#size-cells", &[outer.size_cells as u32]);
                self.fdt.bytes("ranges", &[]);
                self.fdt.begin("virtio_mmio@7");
                self.registers(outer, outer.regions[0].child, 0x200);
                self.fdt.texts("compatible", &["virtio,mmio"]);
                self.interrupts(outer);
                self.fdt.end();
            }
        }
        self.fdt.end();
    }

    /// Devices, buses and others on a bus.
    fn fill(&mut self, bus: &Bus, deeper: u32) {
        for _ in 0..self.draw.within(1..=3) {
            match self.draw.below(8) {
                0..4 => self.device(bus),
                4 => self.closed(bus),
                _ if deeper > 0 => {
                    let inner = self.bus(bus);
                    self.fill(&inner, deeper - 1);
                    self.fdt.end();
                }
                _ => {}
            }
            if self.draw.percent(40) && self.damage.is_some() {
                self.damaged(bus);
            }
        }
    }

    /// The whole tree; its controllers come first or last.
    fn tree(mut self, depth: u64) -> (Vec<u8>, Vec<Described>, Option<Wrong>) {
        self.fdt.begin("");
        let mut cells = [1, 2].map(|_| self.draw.within(1..=2) as usize);
        if self.draw.percent(20) {
            // Without the properties (2.3.5).
            cells = [2, 1];
        } else {
            self.fdt.cells("#address-cells", &[cells[0] as u32]);
            self.fdt.cells("#size-cells", &[cells[1] as u32]);
        }
        let high = if cells[0] == 2 { self.draw.below(1 << 8) << 32 } else { 0 };
        let low = high + self.draw.below(0xd000) * 0x1_0000;
        let regions = vec![Region { child: low, cpu: low, bytes: 0x1000_0000 }];
        let [address_cells, size_cells] = cells;
        let parent = self.draw.percent(50).then(|| *self.draw.pick(&self.controllers));
        let mut bus = Bus { address_cells, size_cells, regions, parent, is_windowed: false };
        if let Some(parent) = parent {
            self.fdt.cells("interrupt-parent", &[parent.phandle]);
        }
        let (first, last) = self.controllers.split_at(self.draw.below(3) as usize % self.controllers.len());
        let (first, last) = (first.to_vec(), last.to_vec());
        first.into_iter().for_each(|controller| self.controller(controller));
        if depth == 0 {
            self.fill(&bus, 3);
            if self.damage.is_some() {
                self.damaged(&bus);
            }
        } else {
            self.chain(&mut bus, depth);
        }
        last.into_iter().for_each(|controller| self.controller(controller));
        self.fdt.end();
        (self.fdt.finish(), self.devices, self.wrong)
    }

    /// A device so many nodes below the root, and a controller beside it.
    fn chain(&mut self, bus: &mut Bus, depth: u64) {
        for _ in 1..depth {
            self.begin("bus");
            self.fdt.cells("#address-cells", &[bus.address_cells as u32]);
            self.fdt.cells("#size-cells", &[bus.size_cells as u32]);
            self.fdt.bytes("ranges", &[]);
        }
        let deep = Controller { phandle: 6, cells: 2 };
        self.controller(deep);
        bus.parent = Some(deep);
        let (address, base, size_bytes) = self.place(bus);
        self.begin("virtio_mmio");
        self.fdt.texts("compatible", &["virtio,mmio"]);
        self.registers(bus, address, size_bytes);
        self.fdt.cells("interrupts-extended", &[6, 5, 4]);
        self.devices.push(Described { base, size_bytes, lines: vec![(5, Some(false))], id: None });
        (0..depth).for_each(|_| self.fdt.end());
    }
}

/// A tree with a GIC and these devices, each an SPI's, beside others and on a bus.
pub(super) fn platform(draw: &mut Draw, devices: &[Described]) -> Vec<u8> {
    let gic = Controller { phandle: 1 + 8 * draw.below(100) as u32, cells: draw.within(3..=4) as u32 };
    let mut writer = Writer::new(draw);
    writer.controllers = vec![gic];
    writer.fdt.begin("");
    writer.fdt.cells("#address-cells", &[2]);
    writer.fdt.cells("#size-cells", &[2]);
    writer.fdt.cells("interrupt-parent", &[gic.phandle]);
    let child = writer.draw.below(64) * 0x1000;
    let cpu = devices.iter().map(|device| device.base).min().unwrap_or(0) & !0xfff;
    let region = Region { child: cpu, cpu, bytes: 0x100_0000 };
    let root = Bus { address_cells: 2, size_cells: 2, regions: vec![region], parent: Some(gic), is_windowed: false };
    writer.closed(&root);
    writer.begin("soc");
    let bus = Bus { address_cells: 1, size_cells: 1, regions: vec![Region { child, ..region }], ..root };
    writer.fdt.cells("#address-cells", &[1]);
    writer.fdt.cells("#size-cells", &[1]);
    writer.fdt.cells("ranges", &[child as u32, (cpu >> 32) as u32, cpu as u32, region.bytes as u32]);
    for device in devices {
        writer.begin("virtio_mmio");
        writer.fdt.texts("compatible", &["virtio,mmio"]);
        writer.registers(&bus, device.base - cpu + child, device.size_bytes);
        let flags = |edge: Option<bool>| if edge == Some(true) { 1 } else { 4 };
        let specifier = |&(intid, edge): &(u32, Option<bool>)| {
            let mut cells = vec![0, intid - 32, flags(edge)];
            cells.resize(gic.cells as usize, 0);
            cells
        };
        let cells: Vec<u32> = device.lines.iter().flat_map(specifier).collect();
        writer.fdt.cells("interrupts", &cells);
        writer.fdt.end();
    }
    writer.fdt.end();
    writer.controller(gic);
    writer.fdt.end();
    writer.fdt.finish()
}

pub(super) fn text(blob: &[u8]) -> String {
    let bytes: Vec<_> = blob.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("device tree {}", bytes.concat())
}

pub(super) fn whole(draw: &mut Draw) -> Result<(), String> {
    let depth = if draw.percent(10) { draw.within(DEPTH_MAX - 1..=DEPTH_MAX) } else { 0 };
    let (blob, devices, _) = Writer::new(draw).tree(depth);
    found_all(&|| text(&blob), &devices, &from_device_tree(&blob))
}

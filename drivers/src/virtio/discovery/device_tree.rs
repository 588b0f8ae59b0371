//! Nodes compatible with "virtio,mmio" of a flattened device tree (Devicetree Specification 0.4; Linux
//! Documentation/devicetree/bindings/virtio/mmio.yaml).

use super::{DiscoveryError, Line, MmioDevice, Trigger};
use alloc::vec::Vec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

/// Deeper trees are refused: this code is recursive.
const DEPTH_MAX: usize = 16;

/// The values that a node's children inherit.
#[derive(Clone, Copy)]
struct Inherited<'a> {
    fdt: Fdt<'a>,
    depth: usize,
    interrupt_parent: Option<u32>,
}

/// The devices of a device tree that are not disabled, in its order.
///
/// # Errors
/// [`DiscoveryError::DeviceTree`] when it is not valid or a device is described in a way that is not understood.
pub fn from_device_tree(blob: &[u8]) -> Result<Vec<MmioDevice>, DiscoveryError> {
    let fdt = Fdt::new(blob).map_err(|_| DiscoveryError::DeviceTree("it is not valid"))?;
    let mut devices = Vec::new();
    walk(fdt.root(), Inherited { fdt, depth: 0, interrupt_parent: None }, &|address, _| Some(address), &mut devices)?;
    Ok(devices)
}

/// Translates an address of a bus, behind which so many bytes are wanted, to one of the CPU.
type Translate<'t> = &'t dyn Fn(u64, u64) -> Option<u64>;

fn walk(
    node: FdtNode<'_>,
    mut inherited: Inherited<'_>,
    translate: Translate<'_>,
    devices: &mut Vec<MmioDevice>,
) -> Result<(), DiscoveryError> {
    if inherited.depth > DEPTH_MAX {
        return Err(DiscoveryError::DeviceTree("nodes are nested too deeply"));
    }
    // What is behind a disabled bus cannot be reached either.
    if !is_enabled(&node) {
        return Ok(());
    }
    inherited.interrupt_parent = cell(&node, "interrupt-parent").or(inherited.interrupt_parent);
    if node.compatible().is_some_and(|mut names| names.any(|name| name == "virtio,mmio")) {
        devices.push(device(&node, inherited, translate)?);
    }
    let children = Inherited { depth: inherited.depth + 1, ..inherited };
    let ranges = ranges(&node)?;
    let outer = |address: u64, bytes: u64| match &ranges {
        // Without the property, children have no address in the parent's space; the root's children have the CPU's.
        None => (inherited.depth == 0).then_some(address),
        Some(ranges) if ranges.is_empty() => translate(address, bytes),
        Some(ranges) => {
            ranges.iter().find_map(|range| range.translate(address, bytes)).and_then(|at| translate(at, bytes))
        }
    };
    for child in node.children() {
        walk(child, children, &outer, devices)?;
    }
    Ok(())
}

/// One entry of `ranges`.
struct Window {
    child: u64,
    parent: u64,
    bytes: u64,
}

impl Window {
    fn translate(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(self.child)?;
        let inside = offset.checked_add(bytes)? <= self.bytes;
        self.parent.checked_add(offset).filter(|_| inside)
    }
}

fn ranges(node: &FdtNode<'_>) -> Result<Option<Vec<Window>>, DiscoveryError> {
    let wrong = DiscoveryError::DeviceTree("`ranges` is not valid");
    let Some(ranges) = node.ranges().map_err(|_| wrong.clone())? else { return Ok(None) };
    // Buses with wider addresses (PCI) are passed over: no virtio-mmio device is behind them.
    let window = |range: dtoolkit::standard::Range<'_>| {
        Some(Window {
            child: range.child_bus_address().ok()?,
            parent: range.parent_bus_address().ok()?,
            bytes: range.length().ok()?,
        })
    };
    Ok(Some(ranges.filter_map(window).collect()))
}

fn is_enabled(node: &FdtNode<'_>) -> bool {
    node.property("status").is_none_or(|status| matches!(status.value(), b"okay\0" | b"ok\0"))
}

fn cell(node: &FdtNode<'_>, name: &str) -> Option<u32> {
    let property = node.property(name)?;
    Some(u32::from_be_bytes(property.value().try_into().ok()?))
}

fn device(
    node: &FdtNode<'_>,
    inherited: Inherited<'_>,
    translate: Translate<'_>,
) -> Result<MmioDevice, DiscoveryError> {
    let wrong = DiscoveryError::DeviceTree("`reg` of a virtio,mmio node is not valid");
    let reg = node.reg().map_err(|_| wrong.clone())?.and_then(|mut reg| reg.next()).ok_or(wrong.clone())?;
    let address: u64 = reg.address().map_err(|_| wrong.clone())?;
    let size_bytes: u64 = reg.size().map_err(|_| wrong.clone())?;
    let base = translate(address, size_bytes).ok_or(wrong)?;
    MmioDevice { base, size_bytes, lines: lines(node, inherited)?, id: None }.checked()
}

/// `interrupts-extended` goes before `interrupts` (Devicetree Specification 2.4.1.1).
fn lines(node: &FdtNode<'_>, inherited: Inherited<'_>) -> Result<Vec<Line>, DiscoveryError> {
    let wrong = DiscoveryError::DeviceTree("the interrupts of a virtio,mmio node are not valid");
    let cells = |name| {
        let Some(property) = node.property(name) else { return Ok(None) };
        let (cells, rest) = property.value().as_chunks::<4>();
        let cells: Vec<u32> = cells.iter().map(|cell| u32::from_be_bytes(*cell)).collect();
        if rest.is_empty() { Ok(Some(cells)) } else { Err(wrong.clone()) }
    };
    let mut lines = Vec::new();
    if let Some(cells) = cells("interrupts-extended")? {
        let mut rest = &cells[..];
        while let Some((&phandle, after)) = rest.split_first() {
            let count = interrupt_cells(inherited.fdt, phandle).ok_or(wrong.clone())?;
            let (specifier, after) = after.split_at_checked(count).ok_or(wrong.clone())?;
            lines.push(line(specifier).ok_or(wrong.clone())?);
            rest = after;
        }
    } else if let Some(cells) = cells("interrupts")? {
        let parent = inherited.interrupt_parent.ok_or(wrong.clone())?;
        let count = interrupt_cells(inherited.fdt, parent).ok_or(wrong.clone())?;
        // A rest could be read as a specifier of fewer cells.
        let specifiers = cells.chunks_exact(count);
        if !specifiers.remainder().is_empty() {
            return Err(wrong);
        }
        for specifier in specifiers {
            lines.push(line(specifier).ok_or(wrong.clone())?);
        }
    }
    Ok(lines)
}

/// `#interrupt-cells` of the controller with this phandle, if it is one that is understood: 1, 2, or the GIC's 3 or 4.
fn interrupt_cells(fdt: Fdt<'_>, phandle: u32) -> Option<usize> {
    let controller = find(fdt.root(), phandle, 0)?;
    let count = cell(&controller, "#interrupt-cells")? as usize;
    (1..=4).contains(&count).then_some(count)
}

fn find(node: FdtNode<'_>, phandle: u32, depth: usize) -> Option<FdtNode<'_>> {
    if cell(&node, "phandle") == Some(phandle) {
        return Some(node);
    }
    if depth == DEPTH_MAX {
        return None;
    }
    node.children().find_map(|child| find(child, phandle, depth + 1))
}

/// One specifier: number; number and flags; or the GIC's type, number, flags (Linux bindings
/// interrupt-controller/interrupts.txt and arm,gic.yaml).
fn line(specifier: &[u32]) -> Option<Line> {
    let trigger = |flags: u32| match flags & 0xf {
        1..=3 => Some(Trigger::Edge),
        4 | 8 => Some(Trigger::Level),
        _ => None,
    };
    match *specifier {
        [number] => Some(Line { number, trigger: None }),
        [number, flags] => Some(Line { number, trigger: trigger(flags) }),
        [0, spi, flags] | [0, spi, flags, _] => {
            Some(Line { number: spi.checked_add(32).filter(|&intid| intid < 1020)?, trigger: trigger(flags) })
        }
        [1, ppi, flags] | [1, ppi, flags, _] => {
            Some(Line { number: ppi.checked_add(16).filter(|&intid| intid < 32)?, trigger: trigger(flags) })
        }
        _ => None,
    }
}

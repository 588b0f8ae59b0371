//! The machine's hardware, read from its device tree.
#![allow(unsafe_code)]

use crate::kernel::{EarlyPlatform, Pcie};
use alloc::string::String;
use alloc::vec::Vec;
use fdt::Fdt;
use fdt::node::FdtNode;

/// QEMU puts the tree at the start of RAM for an image that is no Linux kernel.
const TREE: usize = 0x4000_0000;

/// A window of registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) base: usize,
    pub(crate) len_bytes: u32,
}

/// The machine.
pub(crate) struct Platform {
    /// The exception level in which the first CPU started.
    pub(crate) exception_level: u8,
    /// `/chosen/bootargs`.
    pub(crate) command_line: String,
    /// MPIDR_EL1 of each CPU.
    pub(crate) affinities: Vec<u64>,
    /// True if the kernel calls PSCI by SMC; otherwise by HVC.
    pub(crate) psci_smc: bool,
    pub(crate) gic_version: u8,
    pub(crate) distributor: Window,
    /// GICv2: the CPU interface; GICv3: the redistributors.
    pub(crate) cpu_part: Window,
    /// The GICv3's ITS; the GICv2's v2m frame.
    pub(crate) messages: Option<Window>,
    pub(crate) pcie: Option<Pcie>,
    /// QEMU's firmware configuration device, which has the ACPI tables.
    pub(crate) firmware: Option<Window>,
    /// The tree itself.
    pub(crate) device_tree: &'static [u8],
}

impl Platform {
    /// Number of CPUs.
    pub(crate) fn cpus(&self) -> u32 {
        self.affinities.len() as u32
    }
}

fn windows(node: &FdtNode<'_, '_>) -> Vec<Window> {
    let regions = node.reg().into_iter().flatten();
    regions
        .map(|region| Window { base: region.starting_address.addr(), len_bytes: region.size.unwrap_or(0) as u32 })
        .collect()
}

/// A property's 32-bit cells, which are big-endian.
fn cells(node: &FdtNode<'_, '_>, property: &str) -> Vec<u32> {
    let value = node.property(property).map_or(&[][..], |property| property.value);
    value.chunks_exact(4).map(|cell| u32::from_be_bytes(cell.try_into().expect("four bytes"))).collect()
}

/// The host bridge (Open Firmware's PCI bus binding): a range has three cells of bus address, two of the CPU's, two of
/// size; in 25:24 of the first, 2 is the memory below 4 GiB.
fn pcie(node: &FdtNode<'_, '_>) -> Option<Pcie> {
    const MEMORY_32: u32 = 2;
    // A device writes its requester id with its messages. The map covers all ids, from 0 to 0.
    let map = cells(node, "msi-map");
    assert!(map.len() == 4 && map[0] == 0 && map[2] == 0, "msi-map {map:x?} changes requester ids");
    let ranges = cells(node, "ranges");
    let memory = ranges.chunks_exact(7).find(|range| range[0] >> 24 & 3 == MEMORY_32)?;
    let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let (bus, cpu) = (wide(memory[1], memory[2]), wide(memory[3], memory[4]));
    assert_eq!(bus, cpu, "the bus sees another address than the CPU");
    Some(Pcie { ecam: windows(node).first()?.base, free: cpu..cpu + wide(memory[5], memory[6]) })
}

/// Data that is available from the tree before there is a heap.
pub(super) struct Early {
    tree: Fdt<'static>,
    exception_level: u8,
}

/// Reads the tree where QEMU left it.
pub(super) fn read(exception_level: u8) -> Early {
    // SAFETY: the tree lies in RAM that nothing else uses, below the image.
    let tree = unsafe { Fdt::from_ptr(TREE as *const u8) }.expect("a device tree at the start of RAM");
    Early { tree, exception_level }
}

impl EarlyPlatform for Early {
    fn memory_end(&self) -> usize {
        let memory = self.tree.memory();
        let region = memory.regions().next().expect("RAM");
        region.starting_address.addr() + region.size.unwrap_or(0)
    }

    fn platform(&self) -> Platform {
        let find = |compatible: &str| self.tree.find_compatible(&[compatible]);
        let (gic_version, gic) = match (find("arm,gic-v3"), find("arm,cortex-a15-gic")) {
            (Some(gic), _) => (3, windows(&gic)),
            (None, Some(gic)) => (2, windows(&gic)),
            (None, None) => panic!("no GIC in the device tree"),
        };
        let psci = find("arm,psci-1.0").or_else(|| find("arm,psci")).and_then(|node| node.property("method"));
        let messages = if gic_version == 3 { "arm,gic-v3-its" } else { "arm,gic-v2m-frame" };
        Platform {
            exception_level: self.exception_level,
            command_line: self.tree.chosen().bootargs().unwrap_or("").into(),
            affinities: self.tree.cpus().map(|cpu| cpu.ids().first() as u64).collect(),
            psci_smc: psci.and_then(|method| method.as_str()) == Some("smc"),
            gic_version,
            distributor: gic[0],
            cpu_part: gic[1],
            messages: find(messages).and_then(|node| windows(&node).first().copied()),
            pcie: find("pci-host-ecam-generic").and_then(|node| pcie(&node)),
            firmware: find("qemu,fw-cfg-mmio").and_then(|node| windows(&node).first().copied()),
            // SAFETY: as in `read`; the tree tells its length.
            device_tree: unsafe { core::slice::from_raw_parts(TREE as *const u8, self.tree.total_size()) },
        }
    }
}

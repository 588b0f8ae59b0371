//! What the machine is made of, from its device tree.
#![allow(unsafe_code)]

use crate::kernel::EarlyPlatform;
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
    /// PSCI is reached by SMC, else by HVC.
    pub(crate) psci_smc: bool,
    pub(crate) gic_version: u8,
    pub(crate) distributor: Window,
    /// GICv2: the CPU interface; GICv3: the redistributors.
    pub(crate) cpu_part: Window,
}

impl Platform {
    /// How many CPUs it has.
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

/// What only needs the tree and no heap.
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
        Platform {
            exception_level: self.exception_level,
            command_line: self.tree.chosen().bootargs().unwrap_or("").into(),
            affinities: self.tree.cpus().map(|cpu| cpu.ids().first() as u64).collect(),
            psci_smc: psci.and_then(|method| method.as_str()) == Some("smc"),
            gic_version,
            distributor: gic[0],
            cpu_part: gic[1],
        }
    }
}

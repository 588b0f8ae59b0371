//! The PCI function by which a virtual machine monitor shows a device on the MMIO transport to a guest that takes its
//! own board's description from a command line: the registers lie in BAR 0, and MSI-X vector v stands for the v-th wired
//! interrupt (`docs/virtio-mmio-multi-irq.md`). The function is not a virtio device on PCI.

/// PCI vendor: an id that is assigned to nobody.
pub const PCI_VENDOR: u16 = 0xfffe;
/// PCI device.
pub const PCI_DEVICE: u16 = 0x564d;
/// Class code: unassigned (PCI Code and ID Assignment Specification, class FFh).
pub const PCI_CLASS: u32 = 0xff_0001;
/// Bytes of BAR 0, of which the registers are the first.
pub const BAR_BYTES: u32 = 0x4000;

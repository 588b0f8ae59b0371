//! Message-signalled interrupts: what a device writes, and the PCI structures that hold it.
//!
//! Sources: Intel SDM vol. 3, "Message Signalled Interrupts" (plain form); VT-d specification, "Interrupt Requests in
//! Remappable Format"; PCI Express Base Specification, "MSI-X Capability and Table Structures".

use bitfield_struct::bitfield;

/// Bits 31:20 of every x86 interrupt message's address.
pub const ADDRESS_PREFIX: u16 = 0xfee;

/// Address of a plain message (SDM vol. 3, "Message Address Register Format"). Bits 63:40 hold the upper 24 bits of a
/// 32-bit destination only where the sender is allowed to use them: the event registers of a remapping unit
/// (VT-d, "Fault Event Upper Address Register").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct PlainAddress {
    #[bits(2)]
    __: u8,
    /// DM: the destination is logical.
    pub logical: bool,
    /// RH: redirection hint, lowest priority among the destinations.
    pub redirection_hint: bool,
    #[bits(8)]
    __: u8,
    /// Destination's APIC id, bits 7:0.
    pub destination_low: u8,
    /// [`ADDRESS_PREFIX`].
    #[bits(12)]
    pub prefix: u16,
    __: u8,
    /// Destination's APIC id, bits 31:8 (x2APIC, event registers of a remapping unit only).
    #[bits(24)]
    pub destination_high: u32,
}

/// Data of a plain message (SDM vol. 3, "Message Data Register Format").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PlainData {
    /// Vector.
    pub vector: u8,
    /// Delivery mode, a [`crate::apic::DeliveryMode`].
    #[bits(3)]
    pub delivery_mode: u8,
    #[bits(3)]
    __: u8,
    /// Level: assert.
    pub assert: bool,
    /// Trigger mode: level.
    pub level: bool,
    __: u16,
}

/// Address of a message in remappable format (VT-d, "Interrupt Requests in Remappable Format").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct RemappableAddress {
    #[bits(2)]
    __: u8,
    /// Bit 15 of the handle.
    pub handle_high: bool,
    /// SHV: the sub-handle in the data is added to the handle.
    pub sub_handle_valid: bool,
    /// Interrupt format; 1 for remappable.
    pub remappable: bool,
    /// Bits 14:0 of the handle.
    #[bits(15)]
    pub handle_low: u16,
    /// [`ADDRESS_PREFIX`].
    #[bits(12)]
    pub prefix: u16,
}

/// Data of a message in remappable format.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct RemappableData {
    /// Sub-handle, when the address says that it is valid.
    pub sub_handle: u16,
    __: u16,
}

/// Offsets in a PCI function's configuration space, in bytes (PCI Local Bus Specification, "Configuration Space
/// Organization", "Capabilities List").
pub mod configuration {
    /// Command (15:0) and a [`super::Status`] (31:16).
    pub const COMMAND_STATUS: u32 = 0x04;
    /// Pointer to the first capability, in bits 7:0; the lowest two are reserved.
    pub const CAPABILITIES: u32 = 0x34;
}

/// Status register of a PCI function, as far as capabilities go.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct Status {
    #[bits(4)]
    __: u8,
    /// There is a list of capabilities.
    pub has_capabilities: bool,
    #[bits(11)]
    __: u16,
}

/// First 32 bits of every capability; the upper half is the capability's own.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CapabilityHeader {
    /// Which capability.
    pub id: u8,
    /// Offset of the next one, 0 for the last.
    pub next: u8,
    /// For MSI-X, a [`MsixControl`].
    pub control: u16,
}

/// Capability id of MSI-X (PCI Code and ID Assignment Specification).
pub const MSIX_CAPABILITY_ID: u8 = 0x11;

/// Offsets inside the MSI-X capability, in bytes (PCIe Base, "MSI-X Capability Structure").
pub mod msix_capability {
    /// Capability id (7:0), next pointer (15:8), then [`super::MsixControl`] (31:16).
    pub const HEADER: u32 = 0x0;
    /// Message control, a [`super::MsixControl`].
    pub const CONTROL: u32 = 0x2;
    /// Table location, a [`super::MsixLocation`].
    pub const TABLE: u32 = 0x4;
    /// Pending-bit array's location, a [`super::MsixLocation`].
    pub const PENDING: u32 = 0x8;
}

/// Message control of the MSI-X capability.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct MsixControl {
    /// Number of table entries, less one. Read-only.
    #[bits(11)]
    pub table_size_less_one: u16,
    #[bits(3)]
    __: u8,
    /// Function mask: every vector is masked.
    pub function_mask: bool,
    /// MSI-X enable.
    pub enable: bool,
}

/// Place of the MSI-X table or of its pending-bit array.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct MsixLocation {
    /// BIR: which base address register.
    #[bits(3)]
    pub bar: u8,
    /// Offset in that region, in units of 8 bytes.
    #[bits(29)]
    pub offset_qwords: u32,
}

/// Offsets inside one entry of the MSI-X table, in bytes (PCIe Base, "MSI-X Table Structure").
pub mod msix_entry {
    /// Bytes of one entry.
    pub const SIZE: u32 = 16;
    /// Message address, bits 31:0.
    pub const ADDRESS_LOW: u32 = 0x0;
    /// Message address, bits 63:32.
    pub const ADDRESS_HIGH: u32 = 0x4;
    /// Message data.
    pub const DATA: u32 = 0x8;
    /// Vector control, a [`super::MsixVectorControl`].
    pub const CONTROL: u32 = 0xc;
}

/// Vector control of one entry.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct MsixVectorControl {
    /// The entry may not send; its pending bit records that it would have. 1 at reset.
    pub masked: bool,
    #[bits(31)]
    __: u32,
}

const _: () = {
    assert!(size_of::<PlainAddress>() == 8);
    assert!(size_of::<RemappableAddress>() == 4);
    assert!(msix_entry::CONTROL + 4 == msix_entry::SIZE);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_message_of_apic_id_4_vector_0x31() {
        let address = PlainAddress::new().with_prefix(ADDRESS_PREFIX).with_destination_low(4);
        assert_eq!(address.into_bits(), 0xfee0_4000);
        assert_eq!(PlainData::new().with_vector(0x31).into_bits(), 0x31);
    }

    #[test]
    fn event_message_of_a_wide_apic_id() {
        let address =
            PlainAddress::new().with_prefix(ADDRESS_PREFIX).with_destination_low(0x23).with_destination_high(1);
        assert_eq!(address.into_bits(), 0x0000_0100_fee2_3000, "id 0x123: upper address register 0x100");
    }

    #[test]
    fn remappable_message_of_handle_0x8005() {
        let address = RemappableAddress::new()
            .with_prefix(ADDRESS_PREFIX)
            .with_handle_low(5)
            .with_remappable(true)
            .with_sub_handle_valid(true)
            .with_handle_high(true);
        assert_eq!(address.into_bits(), 0xfee0_00bc);
    }

    #[test]
    fn msix_control_of_64_entries() {
        let control = MsixControl::from_bits(0xc03f);
        assert_eq!(control.table_size_less_one(), 63);
        assert!(control.function_mask() && control.enable());
        assert_eq!(MsixLocation::from_bits(0x2000).offset_qwords() * 8, 0x2000);
    }
}

//! MSI-X (PCI Express Base Specification, "MSI-X Capability and Table Structures").

use super::list::{self, CAPABILITIES_MAX, CONFIGURATION_BYTES, Unfound};
use crate::message::MessageSource;
use core::fmt;
use hal::Regs;
use irq::MsiMessage;
use spec::msi::{
    CapabilityHeader, MSIX_CAPABILITY_ID, MsixControl, MsixLocation, MsixVectorControl, msix_capability, msix_entry,
};

/// Bytes of the MSI-X capability.
const CAPABILITY_BYTES: u32 = 12;

/// Why a function's MSI-X cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MsixError {
    /// The function has no MSI-X capability.
    Missing,
    /// Its list of capabilities does not end.
    Loop,
    /// The capability at this offset reaches beyond the 256 bytes of configuration space.
    Cut(u32),
    /// So many entries at this offset do not fit into the region of so many bytes.
    Table(u32, u32, u32),
}

impl fmt::Display for MsixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "the PCI function has no MSI-X capability"),
            Self::Loop => write!(f, "the PCI function's capabilities do not end after {CAPABILITIES_MAX}"),
            Self::Cut(offset) => {
                write!(f, "the MSI-X capability at {offset:#x} does not end in {CONFIGURATION_BYTES} bytes")
            }
            Self::Table(entries, offset, bytes) => {
                write!(
                    f,
                    "{entries} MSI-X entries at {offset:#x} of a region; valid is an end within its {bytes:#x} bytes"
                )
            }
        }
    }
}

impl core::error::Error for MsixError {}

/// The MSI-X capability of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsixCapability {
    /// Where the capability lies in configuration space, in bytes.
    pub offset: u32,
    /// Entries of the table.
    pub entries: u32,
    /// Base address register of the table.
    pub table_bar: u8,
    /// Offset of the table in that region, in bytes.
    pub table_offset: u32,
}

impl MsixCapability {
    /// Looks for MSI-X in a function's configuration space.
    ///
    /// # Errors
    /// [`MsixError`] when there is none, or the list of capabilities is broken.
    pub fn find(config: &impl Regs) -> Result<Self, MsixError> {
        let found = list::find(config, |offset, head| {
            let header = CapabilityHeader::from_bits(head);
            (header.id() == MSIX_CAPABILITY_ID).then_some((offset, header))
        });
        match found {
            Ok((offset, header)) if list::is_whole(offset, CAPABILITY_BYTES) => Ok(Self::read(config, offset, header)),
            Ok((offset, _)) => Err(MsixError::Cut(offset)),
            Err(Unfound::Missing) => Err(MsixError::Missing),
            Err(Unfound::Loop) => Err(MsixError::Loop),
        }
    }

    /// Checks that the table lies within its region of `bar_len_bytes`. Check this before [`MsixTable::enable`] writes
    /// to an offset that the device reported.
    ///
    /// # Errors
    /// [`MsixError::Table`] when it does not.
    pub fn fits(&self, bar_len_bytes: u32) -> Result<(), MsixError> {
        let end = self.table_offset.checked_add(self.entries * msix_entry::SIZE);
        match end.is_some_and(|end| end <= bar_len_bytes) {
            true => Ok(()),
            false => Err(MsixError::Table(self.entries, self.table_offset, bar_len_bytes)),
        }
    }

    fn read(config: &impl Regs, offset: u32, header: CapabilityHeader) -> Self {
        let table = MsixLocation::from_bits(config.read32(offset + msix_capability::TABLE));
        Self {
            offset,
            entries: u32::from(MsixControl::from_bits(header.control()).table_size_less_one()) + 1,
            table_bar: table.bar(),
            table_offset: table.offset_qwords() * 8,
        }
    }
}

/// The MSI-X table of one function.
pub struct MsixTable<R> {
    config: R,
    capability: MsixCapability,
    /// The region of [`MsixCapability::table_bar`].
    bar: R,
}

impl<R: Regs> MsixTable<R> {
    /// The table in the region `bar`, whose number the capability gives. Masks every entry, then enables MSI-X. The
    /// whole function is masked in between, so it sends nothing during the setup.
    pub fn enable(config: R, bar: R, capability: MsixCapability) -> Self {
        let table = Self { config, capability, bar };
        table.control(|control| control.with_enable(true).with_function_mask(true));
        for entry in 0..capability.entries {
            table.set_vector_control(entry, MsixVectorControl::new().with_masked(true));
        }
        table.control(|control| control.with_function_mask(false));
        table
    }

    /// Turns MSI-X off. The function then sends nothing until it is enabled again.
    pub fn disable(&self) {
        self.control(|control| control.with_enable(false));
    }

    /// Masks the whole function. Its pending-bit array keeps messages that it would send.
    pub fn mask_all(&self) {
        self.control(|control| control.with_function_mask(true));
    }

    /// Undoes [`MsixTable::mask_all`]; entries that are masked themselves stay so.
    pub fn unmask_all(&self) {
        self.control(|control| control.with_function_mask(false));
    }

    fn control(&self, change: impl FnOnce(MsixControl) -> MsixControl) {
        let header = CapabilityHeader::from_bits(self.config.read32(self.capability.offset));
        let control = change(MsixControl::from_bits(header.control()));
        self.config.write32(self.capability.offset, header.with_control(control.into_bits()).into_bits());
    }

    fn field(&self, entry: u32, field: u32) -> u32 {
        self.capability.table_offset + entry * msix_entry::SIZE + field
    }

    fn vector_control(&self, entry: u32) -> MsixVectorControl {
        MsixVectorControl::from_bits(self.bar.read32(self.field(entry, msix_entry::CONTROL)))
    }

    fn set_vector_control(&self, entry: u32, control: MsixVectorControl) {
        self.bar.write32(self.field(entry, msix_entry::CONTROL), control.into_bits());
    }
}

impl<R: Regs> MessageSource for MsixTable<R> {
    fn chip_name(&self) -> &'static str {
        "PCI-MSIX"
    }

    fn entries(&self) -> u32 {
        self.capability.entries
    }

    fn may_be_posted(&self) -> bool {
        true
    }

    fn mask(&self, entry: u32) {
        self.set_vector_control(entry, self.vector_control(entry).with_masked(true));
        // The read waits for the write, and its answer follows every message sent before.
        self.vector_control(entry);
    }

    fn unmask(&self, entry: u32) {
        self.set_vector_control(entry, self.vector_control(entry).with_masked(false));
    }

    /// Masks the entry during the change, because the device could otherwise combine the old address with the new data
    /// ("Software must not modify the Address, Data, or Steering Tag fields of an entry while it is unmasked").
    fn write(&self, entry: u32, message: MsiMessage) {
        let before = self.vector_control(entry);
        if !before.masked() {
            self.mask(entry);
        }
        self.bar.write32(self.field(entry, msix_entry::ADDRESS_LOW), message.address as u32);
        self.bar.write32(self.field(entry, msix_entry::ADDRESS_HIGH), (message.address >> 32) as u32);
        self.bar.write32(self.field(entry, msix_entry::DATA), message.data);
        if !before.masked() {
            self.set_vector_control(entry, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Script;
    use hal::host::HostRegs;

    const CAPABILITY: MsixCapability = MsixCapability { offset: 0xb0, entries: 3, table_bar: 0, table_offset: 0x2000 };

    fn table() -> (alloc::sync::Arc<Script>, alloc::sync::Arc<Script>, MsixTable<HostRegs>) {
        let (config, config_regs) = Script::new();
        let (bar, bar_regs) = Script::new();
        config.answer(0xb0, &[0x0002_0011]);
        let table = MsixTable::enable(config_regs, bar_regs, CAPABILITY);
        (config, bar, table)
    }

    #[test]
    fn the_capability_is_found_at_the_end_of_the_list() {
        let (config, regs) = Script::new();
        config.answer(0x04, &[0x0010_0006]);
        config.answer(0x34, &[0x40]);
        config.answer(0x40, &[0x0003_b001]);
        config.answer(0xb0, &[0x0002_0011]);
        config.answer(0xb4, &[0x0000_2000]);
        assert_eq!(MsixCapability::find(&regs), Ok(CAPABILITY));
        config.answer(0x40, &[0x0003_4001]);
        assert_eq!(MsixCapability::find(&regs), Err(MsixError::Loop));
        config.answer(0x40, &[0x0003_0001]);
        assert_eq!(MsixCapability::find(&regs), Err(MsixError::Missing));
        config.answer(0x04, &[0x0000_0006]);
        assert_eq!(MsixCapability::find(&regs), Err(MsixError::Missing));
    }

    #[test]
    fn what_reaches_out_of_configuration_space_or_region_is_refused() {
        let (config, regs) = Script::new();
        config.answer(0x04, &[0x0010_0006]);
        config.answer(0x34, &[0xf8]);
        config.answer(0xf8, &[0x0002_0011]);
        assert_eq!(MsixCapability::find(&regs), Err(MsixError::Cut(0xf8)));
        assert_eq!(CAPABILITY.fits(0x2030), Ok(()));
        assert_eq!(CAPABILITY.fits(0x202f), Err(MsixError::Table(3, 0x2000, 0x202f)));
        let endless = MsixCapability { table_offset: 0xffff_fff8, entries: 2048, ..CAPABILITY };
        assert_eq!(endless.fits(u32::MAX), Err(MsixError::Table(2048, 0xffff_fff8, u32::MAX)));
    }

    #[test]
    fn enabling_masks_the_function_until_every_entry_is_masked() {
        let (config, bar, table) = table();
        assert_eq!(config.writes(), [(0xb0, 32, 0xc002_0011), (0xb0, 32, 0x0002_0011)]);
        assert_eq!(bar.writes(), [(0x200c, 32, 1), (0x201c, 32, 1), (0x202c, 32, 1)]);
        config.answer(0xb0, &[0x8002_0011]);
        table.mask_all();
        table.disable();
        assert_eq!(config.writes(), [(0xb0, 32, 0xc002_0011), (0xb0, 32, 0x0002_0011)]);
    }

    #[test]
    fn a_message_changes_under_the_mask() {
        let (_, bar, table) = table();
        bar.writes();
        let message = MsiMessage { address: 0xfee0_0010, data: 7 };
        table.write(1, message);
        let body = [(0x2010, 32, 0xfee0_0010), (0x2014, 32, 0), (0x2018, 32, 7)];
        assert_eq!(bar.writes(), [&[(0x201c, 32, 1)], &body[..], &[(0x201c, 32, 0)]].concat());
        bar.answer(0x201c, &[1]);
        table.write(1, message);
        assert_eq!(bar.writes(), body, "masked before, masked after");
    }
}

//! The identification of the controller and its namespace (Base 5.17, NVM 4.1.5.1).

use crate::nvme::NvmeError;
use crate::nvme::prp::PAGE_BYTES;
use alloc::string::String;
use core::ops::Range;
use hal::{Dma, Word};
use spec::nvme::identify::{Cns, EntrySizes, Flbas, LbaFormat, controller, namespace};
use spec::nvme::registers::Version;

pub(super) const CONTROLLER: Cns = Cns::CONTROLLER;
pub(super) const NAMESPACE: Cns = Cns::NAMESPACE;

/// LBADS that this driver takes: 512 bytes to 64 KiB.
const LBADS: core::ops::RangeInclusive<u8> = 9..=16;

/// The fields of Identify Controller that the driver uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerInfo {
    /// SN, without padding.
    pub serial: String,
    /// MN, without padding.
    pub model: String,
    /// FR, without padding.
    pub firmware: String,
    /// VER.
    pub version: Version,
    /// NN: the largest namespace id.
    pub namespaces_max: u32,
    /// MDTS in bytes; `u32::MAX` for no limit.
    pub transfer_bytes_max: u32,
    /// RTD3E: the longest shutdown in µs; 0 when not reported.
    pub rtd3e_us: u32,
    /// VWC: writes need a flush to be durable.
    pub volatile_write_cache: bool,
    /// ONCS bit 2: Dataset Management, which deallocates blocks.
    pub deallocates: bool,
}

impl ControllerInfo {
    pub(super) fn read<D: Dma>(data: &D) -> Result<Self, NvmeError> {
        let sizes = (data.read8(controller::SQES), data.read8(controller::CQES));
        let fits = |bits: u8, log2: u8| {
            (EntrySizes::from_bits(bits).min()..=EntrySizes::from_bits(bits).max()).contains(&log2)
        };
        if !fits(sizes.0, 6) || !fits(sizes.1, 4) {
            return Err(NvmeError::EntrySize(sizes.0, sizes.1));
        }
        Ok(Self {
            serial: text(data, controller::SN),
            model: text(data, controller::MN),
            firmware: text(data, controller::FR),
            version: Version::from_bits(data.read32(controller::VER)),
            namespaces_max: data.read32(controller::NN),
            transfer_bytes_max: transfer_bytes(data.read8(controller::MDTS)),
            rtd3e_us: data.read32(controller::RTD3E),
            volatile_write_cache: data.read8(controller::VWC) & 1 != 0,
            deallocates: data.read8(controller::ONCS) & 1 << 2 != 0,
        })
    }
}

/// `2^MDTS` smallest pages, which are 4 KiB; 0 is no limit.
fn transfer_bytes(mdts: u8) -> u32 {
    match mdts {
        0 => u32::MAX,
        log2 => 1_u64
            .checked_shl(log2.into())
            .map_or(u32::MAX, |pages| u32::try_from(pages.saturating_mul(PAGE_BYTES)).unwrap_or(u32::MAX)),
    }
}

fn text<D: Dma>(data: &D, bytes: Range<usize>) -> String {
    let text: String = bytes.map(|offset| char::from(data.read8(offset))).collect();
    text.trim_matches(|c| c == ' ' || c == '\0').into()
}

/// A namespace: the limits of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its id.
    pub nsid: u32,
    /// NSZE: its size in blocks.
    pub blocks: u64,
    /// A block has `2^block_shift` bytes.
    pub block_shift: u8,
}

impl Namespace {
    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }

    /// An inactive id's data is all zeroes (NVM 4.1.5.1).
    pub(super) fn read<D: Dma>(data: &D, nsid: u32, nn: u32) -> Result<Self, NvmeError> {
        let blocks = data.words()[namespace::NSZE / 8].get();
        if blocks == 0 {
            return Err(NvmeError::NoNamespace(nsid, nn));
        }
        let index = usize::from(Flbas::from_bits(data.read8(namespace::FLBAS)).index());
        let format = LbaFormat::from_bits(data.read32(namespace::LBAF + index * namespace::LBAF_STRIDE));
        if format.ms() != 0 || !LBADS.contains(&format.lbads()) {
            return Err(NvmeError::Format(format.lbads(), format.ms()));
        }
        Ok(Self { nsid, blocks, block_shift: format.lbads() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mdts_is_a_power_of_two_of_pages() {
        assert_eq!(transfer_bytes(0), u32::MAX);
        assert_eq!(transfer_bytes(5), 128 << 10);
        assert_eq!(transfer_bytes(255), u32::MAX);
    }
}

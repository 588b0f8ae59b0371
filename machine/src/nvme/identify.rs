//! Identify data (Base 5.17).

use super::config::Config;
use super::controller::VERSION;
use super::{async_event, pci};
use spec::nvme::identify::{BYTES, Cns, EntrySizes, LbaFormat, controller, namespace};
use spec::nvme::{NSID_ALL, Status};

/// The only namespace.
pub(super) const NSID: u32 = 1;
/// OUI of the drive's EUI64: locally administered.
const EUI64: u64 = 0x0200_0000_0000_0000;
/// Bits of ONCS (Base 5.17.2.1): Dataset Management; Select in Get Features and Save in Set Features.
const ONCS_DATASET: u8 = 1 << 2;
const ONCS_SELECT: u8 = 1 << 4;

/// The bytes of one structure.
pub(super) type Page = [u8; BYTES];

/// The structure that `cns` names.
pub(super) fn page(config: &Config, cns: Cns, nsid: u32, csi: u8) -> Result<Page, Status> {
    let mut page = [0; BYTES];
    match cns {
        Cns::CONTROLLER => fill_controller(&mut page, config),
        Cns::NAMESPACE => match nsid {
            // The capabilities that all namespaces share are none (Base 5.17.2.1, OACS bit 3 is 0).
            0 | NSID_ALL => return Err(Status::INVALID_NAMESPACE),
            NSID => fill_namespace(&mut page, config),
            // An inactive namespace reads as zeros (Base 5.17).
            _ => {}
        },
        Cns::ACTIVE_NAMESPACES if nsid >= 0xffff_fffe => return Err(Status::INVALID_NAMESPACE),
        Cns::ACTIVE_NAMESPACES if nsid < NSID => page[..4].copy_from_slice(&NSID.to_le_bytes()),
        Cns::ACTIVE_NAMESPACES => {}
        // Namespace Identification Descriptor list: one EUI64 (type 01h, 8 bytes).
        Cns(0x03) if nsid == NSID => {
            page[..2].copy_from_slice(&[0x01, 8]);
            page[4..12].copy_from_slice(&(EUI64 | u64::from(config.requester)).to_be_bytes());
        }
        Cns(0x03) => return Err(Status::INVALID_NAMESPACE),
        // I/O command set specific structures; those of the NVM command set (0) have nothing to add.
        Cns(0x05) if csi == 0 && nsid == NSID => {}
        Cns(0x06) if csi == 0 => {}
        _ => return Err(Status::INVALID_FIELD),
    }
    Ok(page)
}

fn put(page: &mut Page, at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// ASCII, padded with spaces, cut to fit.
fn put_text(page: &mut Page, at: core::ops::Range<usize>, text: &str) {
    page[at.clone()].fill(b' ');
    for (to, from) in page[at].iter_mut().zip(text.bytes().filter(u8::is_ascii_graphic)) {
        *to = from;
    }
}

fn fill_controller(page: &mut Page, config: &Config) {
    put(page, controller::VID, &pci::VENDOR.to_le_bytes());
    put(page, controller::SSVID, &pci::VENDOR.to_le_bytes());
    put_text(page, controller::SN, &format!("{:04X}", config.requester));
    put_text(page, controller::MN, &format!("Campanile:{}", config.name));
    put_text(page, controller::FR, "1.0");
    page[controller::MDTS] = config.transfer_shift_max;
    put(page, controller::CNTLID, &1u16.to_le_bytes());
    put(page, controller::VER, &VERSION.into_bits().to_le_bytes());
    put(page, controller::RTD3E, &((config.timing.shutdown.as_ns() / 1000).min(u32::MAX.into()) as u32).to_le_bytes());
    page[controller::AERL] = async_event::AERL;
    page[controller::SQES] = EntrySizes::new().with_min(6).with_max(6).into_bits();
    page[controller::CQES] = EntrySizes::new().with_min(4).with_max(4).into_bits();
    put(page, controller::NN, &NSID.to_le_bytes());
    page[controller::ONCS] = ONCS_DATASET | ONCS_SELECT;
    page[controller::VWC] = config.has_volatile_cache().into();
}

fn fill_namespace(page: &mut Page, config: &Config) {
    for at in [namespace::NSZE, namespace::NCAP, namespace::NUSE] {
        put(page, at, &config.blocks.to_le_bytes());
    }
    let format = LbaFormat::new().with_lbads(config.block_shift);
    put(page, namespace::LBAF, &format.into_bits().to_le_bytes());
}

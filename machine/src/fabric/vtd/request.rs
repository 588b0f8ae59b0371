//! Decides where an interrupt request goes: the checks of VT-d, "Interrupt-Remapping Hardware Operation", in their
//! order.

use spec::apic::DeliveryMode;
use spec::msi::{PlainAddress, PlainData, RemappableAddress, RemappableData};
use spec::vtd::irte::{Common, Posted, Remapped, SourceQualifier, SourceValidation};
use spec::vtd::registers::FaultReason;

/// A requester's write into the interrupt address range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// PCI requester id.
    pub(super) requester: u16,
    /// Bits 31:0 of the address; the upper bits are 0.
    pub(super) address: u32,
    pub(super) data: u32,
}

/// The setup of the unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode {
    /// GSTS.IRES.
    pub(super) remapping: bool,
    /// GSTS.CFIS.
    pub(super) compatibility: bool,
    /// IRTA.EIME.
    pub(super) extended: bool,
    /// CAP.PI.
    pub(super) posting: bool,
    /// Entries of the table.
    pub(super) entries: u32,
}

/// An interrupt for LAPICs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LapicMessage {
    pub(super) destination: u32,
    pub(super) vector: u8,
    pub(super) level: bool,
    pub(super) logical: bool,
    pub(super) mode: DeliveryMode,
}

impl LapicMessage {
    /// A plain message. The upper address bits hold a wide destination in a unit's own events, and are 0 elsewhere.
    pub(super) fn plain(address: u64, data: u32) -> Self {
        let (address, data) = (PlainAddress::from_bits(address), PlainData::from_bits(data));
        Self {
            destination: u32::from(address.destination_low()) | address.destination_high() << 8,
            vector: data.vector(),
            level: data.level(),
            logical: address.logical(),
            mode: DeliveryMode(data.delivery_mode()),
        }
    }

    /// Packs the delivery into an event argument.
    pub(super) fn pack(self) -> u64 {
        u64::from(self.destination) << 32
            | u64::from(self.mode.0) << 10
            | u64::from(self.logical) << 9
            | u64::from(self.level) << 8
            | u64::from(self.vector)
    }

    /// Unpacks a delivery from an event argument.
    pub(super) fn unpack(arg: u64) -> Self {
        Self {
            destination: (arg >> 32) as u32,
            vector: arg as u8,
            level: arg >> 8 & 1 != 0,
            logical: arg >> 9 & 1 != 0,
            mode: DeliveryMode((arg >> 10 & 7) as u8),
        }
    }
}

/// A post to a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Post {
    /// Address of the descriptor.
    pub(super) descriptor: u64,
    pub(super) vector: u8,
    pub(super) urgent: bool,
    /// The entry's FPD bit: its faults are not recorded.
    pub(super) fault_disable: bool,
    /// Index of the entry.
    pub(super) index: u16,
}

/// The route of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// The message is delivered unchanged.
    Plain(LapicMessage),
    /// The message is delivered as the entry of this index says.
    Remapped(LapicMessage, u16),
    /// The request is posted to a descriptor.
    Posted(Post),
}

/// A refused request and its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) reason: FaultReason,
    /// The interrupt index, if there is one.
    pub(super) index: u16,
    /// The entry's FPD forbids recording it.
    pub(super) silent: bool,
}

impl Refusal {
    /// A fault that no entry can suppress.
    fn unqualified(reason: FaultReason, index: u16) -> Self {
        Self { reason, index, silent: false }
    }
}

/// A remapping entry, and whether it was already checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) bits: u128,
    /// True if the entry is known to be present and [`well_formed`], as every cached entry is.
    pub(super) checked: bool,
}

/// Decides on `request`. `entry` reads the table through the cache. It fails when no memory is there.
pub(super) fn route(
    request: Request,
    mode: Mode,
    entry: impl FnOnce(u16) -> Result<Entry, ()>,
) -> Result<Route, Refusal> {
    let plain = || Ok(Route::Plain(LapicMessage::plain(request.address.into(), request.data)));
    if !mode.remapping {
        return plain();
    }
    if !is_remappable(request) {
        // VT-d, "Interrupt Requests in Compatibility Format": never in extended mode.
        let passes = mode.compatibility && !mode.extended;
        let refused = || Err(Refusal::unqualified(FaultReason::COMPATIBILITY_BLOCKED, 0));
        return if passes { plain() } else { refused() };
    }
    let index = index(request, mode)?;
    let Entry { bits, checked } = entry(index).map_err(|()| Refusal::unqualified(FaultReason::TABLE_ACCESS, index))?;
    let common = Common::from_bits(bits);
    let refuse = |reason| Err(Refusal { reason, index, silent: common.fault_disable() });
    if !common.present() {
        return refuse(FaultReason::NOT_PRESENT);
    }
    if !checked && !well_formed(bits, mode) {
        return refuse(FaultReason::IRTE_RESERVED);
    }
    if !source_allowed(common, request.requester) {
        return refuse(FaultReason::SOURCE);
    }
    Ok(if common.posted() { posted(bits, index) } else { Route::Remapped(remapped(bits, mode), index) })
}

/// The format bit.
pub(super) fn is_remappable(request: Request) -> bool {
    RemappableAddress::from_bits(request.address).remappable()
}

/// The interrupt index (VT-d, "Interrupt Requests in Remappable Format"): the handle, plus the sub-handle if that is
/// valid. If it is, bits 31:16 of the data must be 0; otherwise the data is ignored.
pub(super) fn index(request: Request, mode: Mode) -> Result<u16, Refusal> {
    let address = RemappableAddress::from_bits(request.address);
    let handle = u32::from(address.handle_low()) | u32::from(address.handle_high()) << 15;
    if !address.sub_handle_valid() {
        return within(handle, mode.entries);
    }
    let index = handle + u32::from(RemappableData::from_bits(request.data).sub_handle());
    if request.data >> 16 != 0 {
        return Err(Refusal::unqualified(FaultReason::REQUEST_RESERVED, index as u16));
    }
    within(index, mode.entries)
}

fn within(index: u32, entries: u32) -> Result<u16, Refusal> {
    if index < entries { Ok(index as u16) } else { Err(Refusal::unqualified(FaultReason::INDEX, index as u16)) }
}

/// True if no reserved bit or code is set. Without the posting capability, IM itself is reserved. A destination in
/// xAPIC form has 8 bits, at 15:8.
pub(super) fn well_formed(bits: u128, mode: Mode) -> bool {
    let common = Common::from_bits(bits);
    if common.validation() > SourceValidation::BUS.0 {
        return false;
    }
    if common.posted() {
        return mode.posting && bits & Posted::RESERVED == 0;
    }
    let entry = Remapped::from_bits(bits);
    let codes = [
        DeliveryMode::FIXED,
        DeliveryMode::LOWEST_PRIORITY,
        DeliveryMode::SMI,
        DeliveryMode::NMI,
        DeliveryMode::INIT,
        DeliveryMode::EXT_INT,
    ];
    bits & Remapped::RESERVED == 0
        && codes.contains(&DeliveryMode(entry.delivery_mode()))
        && (mode.extended || entry.destination() & !0xff00 == 0)
}

/// SVT, SQ and SID (VT-d, "Interrupt Remapping Table Entry").
fn source_allowed(entry: Common, requester: u16) -> bool {
    let bus = requester >> 8;
    match SourceValidation(entry.validation()) {
        SourceValidation::REQUESTER => {
            let ignored = match SourceQualifier(entry.qualifier()) {
                SourceQualifier::ALL_16 => 0b000,
                SourceQualifier::IGNORE_BIT_2 => 0b100,
                SourceQualifier::IGNORE_BITS_2_1 => 0b110,
                _ => 0b111,
            };
            (entry.source() ^ requester) & !ignored == 0
        }
        SourceValidation::BUS => (entry.source() >> 8..=entry.source() & 0xff).contains(&bus),
        _ => true,
    }
}

fn remapped(bits: u128, mode: Mode) -> LapicMessage {
    let entry = Remapped::from_bits(bits);
    let destination = if mode.extended { entry.destination() } else { entry.destination() >> 8 };
    LapicMessage {
        destination,
        vector: entry.vector(),
        level: entry.level(),
        logical: entry.logical(),
        mode: DeliveryMode(entry.delivery_mode()),
    }
}

fn posted(bits: u128, index: u16) -> Route {
    let entry = Posted::from_bits(bits);
    Route::Posted(Post {
        descriptor: u64::from(entry.descriptor_high()) << 32 | u64::from(entry.descriptor_low()) << 6,
        vector: entry.vector(),
        urgent: entry.urgent(),
        fault_disable: entry.fault_disable(),
        index,
    })
}

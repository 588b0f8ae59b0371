//! The common part of every PCI function: identification, configuration space, MSI-X, and access checks.

use super::identity::{Bar, ConfigSpace, Identity, MsixPlace, Widths};
use super::msix::Msix;
use crate::model::{ModelId, Upstream};
use crate::observe::Fact;
use crate::world::World;

/// Bytes of a PCI Express function's configuration space.
const CONFIG_BYTES: u32 = 4096;

/// The identification of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Shown in traces and faults.
    pub name: String,
    /// PCI requester id: bus 15:8, device 7:3, function 2:0.
    pub requester: u16,
    /// The bus above it, which takes its [`Upstream`] requests.
    pub port: ModelId,
}

/// Messages so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Sent.
    pub sent: u64,
    /// Turned into a pending bit because the vector was masked.
    pub pended: u64,
    /// Lost: MSI-X was off, or the function has no such vector.
    pub lost: u64,
}

/// How an access is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// The device serves it unchanged.
    Whole,
    /// It becomes one access of 32 bits.
    Dword,
    /// It becomes two accesses of 32 bits.
    Dwords,
}

/// Why an access is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// No BAR holds it (PCI Express, "Unsupported Request").
    Outside,
    /// The registers do not support this width, or not at this offset.
    Width,
}

/// The common part of every function.
pub struct Shell {
    place: Place,
    bars: Box<[Bar]>,
    msix_place: MsixPlace,
    config: ConfigSpace,
    msix: Msix,
    counts: MessageCounts,
    /// Messages sent, by vector.
    sent: Box<[u64]>,
}

impl Shell {
    /// A function with `vectors` MSI-X vectors, as after power-up.
    ///
    /// # Panics
    /// When `vectors` is 0, or `identity` contradicts itself ([`ConfigSpace::new`]).
    pub fn new(place: Place, identity: &Identity, vectors: u16) -> Self {
        Self {
            place,
            bars: identity.bars.clone().into(),
            msix_place: identity.msix,
            config: ConfigSpace::new(identity),
            msix: Msix::new(vectors),
            counts: MessageCounts::default(),
            sent: vec![0; vectors.into()].into(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.place.name
    }

    /// PCI requester id.
    pub fn requester(&self) -> u16 {
        self.place.requester
    }

    /// The bus above the function.
    pub fn port(&self) -> ModelId {
        self.place.port
    }

    /// Records a fault of this function.
    pub fn fault(&self, world: &mut World<'_>, kind: &'static str, text: String) {
        world.fault(kind, self.place.requester.into(), text);
    }

    /// Messages so far.
    pub fn message_counts(&self) -> MessageCounts {
        self.counts
    }

    /// Messages sent, by vector.
    pub fn sent_by_vector(&self) -> &[u64] {
        &self.sent
    }

    /// MSI-X vectors.
    pub fn vectors(&self) -> u16 {
        self.sent.len() as u16
    }

    /// True if MSI-X is on.
    pub fn is_enabled(&self) -> bool {
        self.msix.is_enabled()
    }

    /// Address and data that software gave a vector; none of a vector that the function lacks.
    pub fn message(&self, vector: u16) -> Option<(u64, u32)> {
        (vector < self.vectors()).then(|| self.msix.message(vector))
    }

    /// Address, data and mask of a vector's table entry; none of a vector that the function lacks.
    pub fn entry(&self, vector: u16) -> Option<(u64, u32, bool)> {
        let (address, data) = self.message(vector)?;
        Some((address, data, self.msix.is_entry_masked(vector)))
    }

    /// A vector's message is due: sends it, or makes it pending while the vector is masked (PCI, "Per-vector Masking and
    /// Function Masking"). It is lost while MSI-X is off.
    pub fn signal(&mut self, world: &mut World<'_>, vector: u16) {
        if !self.msix.is_enabled() || vector >= self.vectors() {
            self.lose();
        } else if self.msix.is_masked(vector) {
            self.counts.pended += 1;
            self.pend(vector);
        } else {
            self.send(world, vector);
        }
    }

    /// Counts a message that is not sent.
    pub fn lose(&mut self) {
        self.counts.lost += 1;
    }

    /// Makes a vector pending. The message follows when MSI-X is on and the vector unmasked.
    ///
    /// # Panics
    /// When the function has no such vector.
    pub fn pend(&mut self, vector: u16) {
        self.msix.set_pending(vector);
    }

    /// The condition behind a vector's pending message is gone.
    pub fn clear_pending(&mut self, vector: u16) {
        self.msix.clear_pending(vector);
    }

    /// Clears all pending bits: the device was reset.
    pub fn forget_pending(&mut self) {
        self.msix.forget_pending();
    }

    /// MSI-X is off again, and every entry masked and empty.
    pub fn lose_power(&mut self) {
        self.msix = Msix::new(self.vectors());
    }

    fn send(&mut self, world: &mut World<'_>, vector: u16) {
        self.counts.sent += 1;
        self.sent[usize::from(vector)] += 1;
        let (address, data) = self.msix.message(vector);
        let Place { requester, port, .. } = self.place;
        let device = world.me();
        world.tell(|| Fact::Signalled { device, vector });
        world.upstream(port, Upstream::Message { requester, address, data });
    }

    fn is_config(&self, region: u8) -> bool {
        usize::from(region) == self.bars.len()
    }

    /// How a read is served.
    #[inline]
    pub(super) fn serves_read(&self, region: u8, offset: u32, width_bytes: u8) -> Result<Served, Refusal> {
        match self.bars.get(usize::from(region)) {
            Some(bar) => serves(bar.reads, bar.bytes, offset, width_bytes),
            None if self.is_config(region) => serves(Widths::Dwords, CONFIG_BYTES, offset, width_bytes),
            None => Err(Refusal::Outside),
        }
    }

    /// How a write is served.
    #[inline]
    pub(super) fn serves_write(&self, region: u8, offset: u32, width_bytes: u8) -> Result<Served, Refusal> {
        match self.bars.get(usize::from(region)) {
            Some(bar) => serves(bar.writes, bar.bytes, offset, width_bytes),
            None if self.is_config(region) => serves(Widths::Dwords, CONFIG_BYTES, offset, width_bytes),
            None => Err(Refusal::Outside),
        }
    }

    /// Records the fault of a refused read. Returns the read's value: all ones for an Unsupported Request.
    #[cold]
    pub(super) fn refuse_read(&self, world: &mut World<'_>, refusal: Refusal, access: (u8, u32, u8)) -> u64 {
        let (region, offset, width_bytes) = access;
        let text = format!("read of {width_bytes} bytes at {offset:#x} of region {region}");
        self.fault(world, refusal.kind(), text);
        if refusal == Refusal::Outside { all_ones(width_bytes) } else { 0 }
    }

    /// Records the fault of a refused write.
    #[cold]
    pub(super) fn refuse_write(&self, world: &mut World<'_>, refusal: Refusal, access: (u8, u32, u8), value: u64) {
        let (region, offset, width_bytes) = access;
        let text = format!("write of {value:#x} in {width_bytes} bytes to {offset:#x} of region {region}");
        self.fault(world, refusal.kind(), text);
    }

    /// 32 bits of configuration space or MSI-X; none of the device's own registers.
    #[inline]
    pub(super) fn read32(&self, region: u8, offset: u32) -> Option<u32> {
        if region == self.msix_place.region {
            return self.msix.read(self.msix_place, offset);
        }
        self.is_config(region).then(|| self.config.read(self.msix.control, offset))
    }

    /// Writes 32 bits of configuration space or MSI-X, and sends unmasked messages. False for the device's registers.
    #[inline]
    pub(super) fn write32(&mut self, world: &mut World<'_>, region: u8, offset: u32, value: u32) -> bool {
        if self.is_config(region) {
            self.msix.control = ConfigSpace::written(self.msix.control, offset, value);
        } else if region != self.msix_place.region || !self.msix.write(self.msix_place, offset, value) {
            return false;
        }
        while let Some(vector) = self.msix.take_unmasked_pending() {
            self.send(world, vector);
        }
        true
    }
}

#[inline]
fn serves(widths: Widths, bytes: u32, offset: u32, width_bytes: u8) -> Result<Served, Refusal> {
    if u64::from(offset) + u64::from(width_bytes) > u64::from(bytes) {
        return Err(Refusal::Outside);
    }
    match (widths, width_bytes) {
        (Widths::Dwords | Widths::Dword, 4) if offset.is_multiple_of(4) => Ok(Served::Dword),
        (Widths::Dwords, 8) if offset.is_multiple_of(4) => Ok(Served::Dwords),
        (Widths::Qword, 8) if offset.is_multiple_of(8) => Ok(Served::Whole),
        (Widths::Any, _) => Ok(Served::Whole),
        _ => Err(Refusal::Width),
    }
}

impl Refusal {
    fn kind(self) -> &'static str {
        match self {
            Self::Outside => "access outside the BARs of a PCI function",
            Self::Width => "access to a PCI function in a wrong width or alignment",
        }
    }
}

/// The value of a refused read of `width_bytes`.
pub(crate) fn all_ones(width_bytes: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width_bytes.clamp(1, 8)))
}

//! A function with one MSI that sends a programmed number of messages.

use drivers::message::MessageSource;
use hal::Regs as _;
use irq::MsiMessage;
use machine::Regs;
use machine::model::{Model, ModelId, Upstream};
use machine::time::Ps;
use machine::world::World;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ADDRESS: u32 = 0x00;
const DATA: u32 = 0x08;
const MASK: u32 = 0x0c;
/// Between two messages, in ns; 0 stops.
const PERIOD: u32 = 0x10;
/// Messages still to send.
const COUNT: u32 = 0x18;

/// The device.
pub struct Ringer {
    iommu: ModelId,
    requester: u16,
    address: u64,
    data: u32,
    masked: bool,
    period: Ps,
    count: u64,
    /// Counts programs, so that an event of an old program has no effect.
    program: u64,
    sent: Arc<AtomicU64>,
}

impl Ringer {
    /// A silent one.
    pub fn new(iommu: ModelId, requester: u16) -> Self {
        Self {
            iommu,
            requester,
            address: 0,
            data: 0,
            masked: true,
            period: Ps(0),
            count: 0,
            program: 0,
            sent: Arc::default(),
        }
    }

    /// Counts the messages that it sends.
    pub fn sent(&self) -> Arc<AtomicU64> {
        self.sent.clone()
    }
}

impl Model for Ringer {
    fn name(&self) -> &str {
        "ringer"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, program: u64) {
        if program != self.program || self.count == 0 || self.period == Ps(0) {
            return;
        }
        if !self.masked {
            self.count -= 1;
            self.sent.fetch_add(1, Relaxed);
            let (requester, address, data) = (self.requester, self.address, self.data);
            world.upstream(self.iommu, Upstream::Message { requester, address, data });
        }
        world.schedule(world.now() + self.period, 0, program);
    }
    fn read(&mut self, _: &mut World<'_>, _region: u8, offset: u32, _width: u8) -> u64 {
        match offset {
            MASK => self.masked.into(),
            _ => self.sent.load(Relaxed),
        }
    }
    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width: u8, value: u64) {
        match offset {
            ADDRESS => self.address = value,
            DATA => self.data = value as u32,
            MASK => self.masked = value != 0,
            COUNT => self.count = value,
            _ => {
                self.period = Ps::from_ns(value);
                self.program += 1;
                world.schedule(world.now(), 0, self.program);
            }
        }
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("sent", self.sent.load(Relaxed))]
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// Its driver.
#[derive(Clone, Copy)]
pub struct RingerPort(pub Regs);

impl RingerPort {
    /// Sends `count` messages, one every `period_ns`.
    pub fn ring(&self, count: u64, period_ns: u64) {
        self.0.write64(COUNT, count);
        self.0.write64(PERIOD, period_ns);
    }

    /// Programs any message, unmasked, as a hostile device would.
    pub fn forge(&self, address: u64, data: u32) {
        self.0.write64(ADDRESS, address);
        self.0.write32(DATA, data);
        self.0.write32(MASK, 0);
    }
}

impl MessageSource for RingerPort {
    fn chip_name(&self) -> &'static str {
        "RINGER-MSI"
    }
    fn entries(&self) -> u32 {
        1
    }
    fn may_be_posted(&self) -> bool {
        true
    }
    fn mask(&self, _entry: u32) {
        self.0.write32(MASK, 1);
        self.0.read32(MASK);
    }
    fn unmask(&self, _entry: u32) {
        self.0.write32(MASK, 0);
    }
    /// Masked meanwhile: a message sent between the two writes would be neither the old nor the new one.
    fn write(&self, entry: u32, message: MsiMessage) {
        let masked = self.0.read32(MASK);
        self.mask(entry);
        self.0.write64(ADDRESS, message.address);
        self.0.write32(DATA, message.data);
        self.0.write32(MASK, masked);
    }
}

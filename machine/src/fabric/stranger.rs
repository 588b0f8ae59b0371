//! A requester that sends messages which belong to another device.

use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;

/// Repeatedly sends another device's message under its own requester id.
///
/// Source validation (VT-d, "Interrupt Remapping Table Entry", SVT and SID) exists to refuse this. The stranger has no
/// port: its messages wait at the IOMMU like all others, and each takes a lookup.
#[derive(Debug)]
pub struct Stranger {
    iommu: ModelId,
    requester: u16,
    interval: Ps,
    message: Option<(u64, u32)>,
    sent: u64,
}

impl Stranger {
    /// A stranger in front of `iommu`, silent until [`Self::imitate`]. The link reports it as `requester`. Its
    /// messages are `interval` apart on average, uniformly between zero and twice that.
    pub fn new(iommu: ModelId, requester: u16, interval: Ps) -> Self {
        Self { iommu, requester, interval, message: None, sent: 0 }
    }

    /// Sets the message to send: another device's address (0xFEEx_xxxx) and payload. Sending begins with the
    /// stranger's next event, of any code: [`crate::Machine::poke`].
    pub fn imitate(&mut self, address: u64, data: u32) {
        self.message = Some((address, data));
    }
}

impl Model for Stranger {
    fn name(&self) -> &str {
        "stranger"
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, _arg: u64) {
        let Some((address, data)) = self.message else { return };
        self.sent += 1;
        world.trace("foreign message", world.now(), Ps::default(), self.sent);
        world.upstream(self.iommu, Upstream::Message { requester: self.requester, address, data });
        // Never two messages at one instant, however short the interval.
        let wait = Ps(1 + world.random() % (2 * self.interval.0.max(1)));
        world.schedule(world.now() + wait, code, 0);
    }

    fn read(&mut self, world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8) -> u64 {
        world.fault("read of a stranger, which has no registers", offset.into(), format!("{width_bytes} bytes"));
        u64::MAX
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width_bytes: u8, value: u64) {
        world.fault("write to a stranger, which has no registers", offset.into(), format!("value {value:#x}"));
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("sent", self.sent)]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

//! The way of a root-complex integrated endpoint to the IOMMU: no link, no root port, an order of its own.

use super::outbox::{Credits, Message, Outbox, Rate};
use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;

/// The constants of an endpoint's way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntegratedConfig {
    /// Name in traces and faults.
    pub name: String,
    /// Bytes that the endpoint writes to memory a second.
    pub bytes_per_second: u64,
    /// Maximum number of its messages at the IOMMU. One more waits in the endpoint.
    pub waiting_messages_max: u32,
}

/// The way of one endpoint inside the root complex.
///
/// Transfers follow each other at the endpoint's rate. The endpoint itself keeps the order that it promises: a message
/// follows the data and the completion record of its own descriptor, because the endpoint sends it after them (Intel
/// Data Streaming Accelerator Architecture Specification, "Ordering and Fencing"; descriptors are not ordered among
/// each other). Nothing else is ordered: a message that waits for a place at the IOMMU keeps no data back, and data keep
/// no message back. The ordering rules between a root port's posted requests do not apply, since no port lies on the way.
pub struct IntegratedPath {
    config: IntegratedConfig,
    rate: Rate,
    outbox: Outbox,
    free: Ps,
    bytes: u64,
    busy: Ps,
}

impl IntegratedPath {
    /// A way with the number `id` to `iommu`. It uses `credits`.
    pub fn new(id: ModelId, iommu: ModelId, config: IntegratedConfig, credits: &Credits) -> Self {
        let outbox = Outbox::new(id, iommu, config.waiting_messages_max, credits);
        let rate = Rate::new(config.bytes_per_second);
        Self { config, rate, outbox, free: Ps::default(), bytes: 0, busy: Ps::default() }
    }
}

impl Model for IntegratedPath {
    fn name(&self) -> &str {
        &self.config.name
    }

    /// A place is free again.
    fn event(&mut self, world: &mut World<'_>, _code: u32, _arg: u64) {
        while self.outbox.pass_first(world) {}
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8) -> u64 {
        world.fault("read of an endpoint's way, which has no registers", region.into(), format!("offset {offset:#x}"));
        u64::MAX
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8, _value: u64) {
        world.fault("write to an endpoint's way, which has no registers", region.into(), format!("offset {offset:#x}"));
    }

    fn upstream(&mut self, world: &mut World<'_>, _from: ModelId, request: Upstream) {
        match request {
            Upstream::Transfer { model, bytes, code, arg, .. } => {
                let time = self.rate.time(bytes);
                self.free = self.free.max(world.now()) + time;
                self.bytes += u64::from(bytes);
                self.busy += time;
                world.schedule_for(model, self.free, code, arg);
            }
            Upstream::Message { requester, address, data } => {
                self.outbox.put(world, Message { requester, address, data });
                while self.outbox.pass_first(world) {}
            }
        }
    }

    /// As a root port's. `order_ps` is always 0.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("bytes", self.bytes),
            ("messages", self.outbox.passed),
            ("link_ps", self.busy.0),
            ("order_ps", 0),
            ("blocked_ps", self.outbox.blocked.0),
            ("merged", self.outbox.merged),
            ("waiting", self.outbox.len() as u64),
        ]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

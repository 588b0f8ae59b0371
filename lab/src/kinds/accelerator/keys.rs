//! The workload of an accelerator experiment, and the keys that set it.

use super::plan::TRANSFER_BYTES_MAX;
use crate::platform::Unit;
use crate::scenario::key::{Key, Value};
use hal::CpuId;

/// Devices with one work queue each. Each interrupt refills its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accelerator {
    /// Devices, each with one work queue and one stream.
    pub devices: u32,
    /// Descriptors of a stream in flight.
    pub depth: u32,
    /// Bytes that a descriptor fills.
    pub bytes: u32,
    /// The CPU that takes the interrupts of all queues.
    pub cpu: CpuId,
    /// The mean time between two expiries of that CPU's local timer, whose delay is measured. None: no timer.
    pub timer_ns: Option<u64>,
}

/// The values without any key set.
pub(super) const BLANK: Accelerator = Accelerator { devices: 0, depth: 0, bytes: 0, cpu: CpuId(0), timer_ns: None };

/// Its keys. Their defaults are the published experiment.
pub(super) const KEYS: &[Key<Accelerator>] = &[
    Key {
        name: "stream.devices",
        about: "each with one work queue and one stream",
        default: Some("2"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: 64.0,
            set: |accelerator, devices| accelerator.devices = devices as u32,
        },
    },
    Key {
        name: "stream.depth",
        about: "descriptors of a stream in flight",
        default: Some("8"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: 128.0,
            set: |accelerator, depth| accelerator.depth = depth as u32,
        },
    },
    Key {
        name: "stream.bytes",
        about: "of a descriptor",
        default: Some("512 B"),
        value: Value::Quantity {
            unit: Unit::Size,
            min: 1.0,
            max: TRANSFER_BYTES_MAX as f64,
            set: |accelerator, bytes| accelerator.bytes = bytes as u32,
        },
    },
    Key {
        name: "stream.cpu",
        about: "takes the interrupts of all queues",
        default: Some("0"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 0.0,
            max: 1023.0,
            set: |accelerator, cpu| accelerator.cpu = CpuId(cpu as u32),
        },
    },
    Key {
        name: "stream.timer",
        about: "between two expiries of that CPU's local timer, whose waiting is measured; \"off\"",
        default: Some("1 ms"),
        value: Value::Text(|accelerator, setting| {
            let is_off = setting.text.trim() == "off";
            accelerator.timer_ns = if is_off { None } else { Some(Unit::Time.read(setting, 1e3, 1e9)? as u64) };
            Ok(())
        }),
    },
];

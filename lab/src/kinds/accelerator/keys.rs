//! The workload of an accelerator experiment, and the keys that set it.

use super::plan::TRANSFER_BYTES_MAX;
use crate::input::InputError;
use crate::platform::Unit;
use crate::scenario::key::{Key, Value};
use crate::setting::Setting;
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
    /// Who answers a completion with the next descriptor.
    pub submitter: Submitter,
    /// The mean time between two expiries of that CPU's local timer, whose delay is measured. None: no timer.
    pub timer_ns: Option<u64>,
}

/// Who answers a completion with the next descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submitter {
    /// The handler that finds the completion, on the interrupts' CPU.
    Handler,
    /// A thread of each stream, which waits on a CPU of its own. These CPUs follow the interrupts' CPU.
    Thread,
}

impl Accelerator {
    /// The CPUs from the interrupts' one up that it needs.
    pub(super) fn cpus(&self) -> u32 {
        match self.submitter {
            Submitter::Handler => 1,
            Submitter::Thread => 1 + self.devices,
        }
    }
}

/// The values without any key set.
pub(super) const BLANK: Accelerator =
    Accelerator { devices: 0, depth: 0, bytes: 0, cpu: CpuId(0), submitter: Submitter::Handler, timer_ns: None };

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
        name: "stream.submitter",
        about: "answers a completion: its handler, or a thread on a CPU of its own",
        default: Some("handler"),
        value: Value::Text(|accelerator, setting| submitter(setting).map(|who| accelerator.submitter = who)),
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

fn submitter(setting: &Setting) -> Result<Submitter, InputError> {
    match setting.text.trim() {
        "handler" => Ok(Submitter::Handler),
        "thread" => Ok(Submitter::Thread),
        _ => Err(setting.wrong("is no submitter", "handler, thread")),
    }
}

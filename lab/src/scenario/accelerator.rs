//! An accelerator experiment: what `[stream]` of a scenario says.

use super::Resolved;
use super::draft::{Asked, Draft};
use crate::input::InputError;
use crate::plan::accelerator::TRANSFER_BYTES_MAX;
use crate::plan::{Accelerator, Experiment, StreamVariant, Variant};
use crate::platform::Unit;
use crate::setting::Setting;
use hal::CpuId;

/// Its keys.
const KEYS: &[&str] = &["stream.devices", "stream.depth", "stream.bytes", "stream.cpu", "stream.timer"];

/// An accelerator experiment while its settings come in.
pub(super) struct AcceleratorDraft {
    accelerator: Accelerator,
}

impl AcceleratorDraft {
    /// The published one: two devices, 8 descriptors of 512 bytes in flight, and a timer tick each millisecond.
    pub(super) fn new() -> Self {
        let accelerator = Accelerator { devices: 2, depth: 8, bytes: 512, cpu: CpuId(0), timer_ns: Some(1_000_000) };
        Self { accelerator }
    }

    /// Every key.
    pub(super) fn keys() -> Vec<String> {
        KEYS.iter().map(ToString::to_string).collect()
    }

    /// Takes a setting if it is this kind's.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        let quantity = |unit: Unit, min: f64, max: f64| unit.read(setting, min, max);
        let plan = &mut self.accelerator;
        match setting.key.as_str() {
            "stream.devices" => plan.devices = quantity(Unit::Count, 1.0, 64.0)? as u32,
            "stream.depth" => plan.depth = quantity(Unit::Count, 1.0, 128.0)? as u32,
            "stream.bytes" => plan.bytes = quantity(Unit::Size, 1.0, TRANSFER_BYTES_MAX.into())? as u32,
            "stream.cpu" => plan.cpu = CpuId(quantity(Unit::Count, 0.0, 1023.0)? as u32),
            "stream.timer" if setting.text.trim() == "off" => plan.timer_ns = None,
            "stream.timer" => plan.timer_ns = Some(quantity(Unit::Time, 1e3, 1e9)? as u64),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the settings make of it.
    pub(super) fn resolve(&self, draft: &Draft, asked: Option<Asked>) -> Result<Resolved, InputError> {
        let variants = match asked {
            Some(asked) => asked.each(variant)?,
            None => vec![StreamVariant::Remapped, StreamVariant::Posted],
        };
        Ok(Resolved {
            cpus: draft.cpus_or(Some(self.accelerator.cpu.0 + 1))?,
            experiment: Experiment::Accelerator(self.accelerator.clone()),
            variants: variants.into_iter().map(Variant::Stream).collect(),
            spans: draft.spans(u64::MAX),
            warnings: Vec::new(),
        })
    }
}

/// A variant by its name.
fn variant(setting: &Setting) -> Result<StreamVariant, InputError> {
    let text = setting.text.trim();
    let value = |text: &str| Setting { text: text.trim().into(), ..setting.clone() };
    match text.split_once(' ').map(|(posted, rest)| (posted, rest.trim())) {
        None if text == "remapped" => Ok(StreamVariant::Remapped),
        None if text == "posted" => Ok(StreamVariant::Posted),
        Some(("posted", "self-ipi")) => Ok(StreamVariant::SelfIpi),
        Some(("posted", rest)) => match rest.split_once('=') {
            Some(("passes", passes)) => Ok(StreamVariant::Passes(Unit::Count.read(&value(passes), 0.0, 64.0)? as u32)),
            Some(("budget", budget)) => Ok(StreamVariant::Budget(Unit::Time.read(&value(budget), 0.0, 1e9)? as u64)),
            _ => Err(setting.wrong("is no variant", StreamVariant::VALID)),
        },
        _ => Err(setting.wrong("is no variant", StreamVariant::VALID)),
    }
}

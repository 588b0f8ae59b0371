//! A network experiment: what `[network]` of a scenario says.

use super::Resolved;
use super::draft::{Asked, Draft};
use crate::input::InputError;
use crate::plan::network::{FLOWS_MAX, IRQS_MAX, Mapping, Trigger, Workers};
use crate::plan::{Experiment, Network, NetworkVariant, Variant};
use crate::platform::Unit;
use crate::setting::Setting;

/// Its keys.
const KEYS: &[&str] = &["network.flows", "network.trigger", "network.resampler", "network.workers", "network.weight"];

/// A network experiment while its settings come in.
pub(super) struct NetworkDraft {
    network: Network,
}

/// One of several words.
fn word<T: Copy>(setting: &Setting, words: &[(&str, T)]) -> Result<T, InputError> {
    let text = setting.text.trim();
    let found = words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value);
    let valid: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
    found.ok_or_else(|| setting.wrong("is none of the words", valid.join(", ")))
}

impl NetworkDraft {
    /// The published one: eight flows, lines that are edges, a host thread a queue pair, Linux's weight.
    pub(super) fn new() -> Self {
        let (trigger, workers) = (Trigger::Edge, Workers::Pair);
        Self { network: Network { flows: 8, trigger, resampler: false, workers, weight: 64 } }
    }

    /// Every key.
    pub(super) fn keys() -> Vec<String> {
        KEYS.iter().map(ToString::to_string).collect()
    }

    /// Takes a setting if it is this kind's.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        let quantity = |unit: Unit, min: f64, max: f64| unit.read(setting, min, max);
        let plan = &mut self.network;
        match setting.key.as_str() {
            "network.flows" => plan.flows = quantity(Unit::Count, 1.0, FLOWS_MAX.into())? as u32,
            "network.trigger" => plan.trigger = word(setting, &[("edge", Trigger::Edge), ("level", Trigger::Level)])?,
            "network.resampler" => plan.resampler = quantity(Unit::Flag, 0.0, 1.0)? != 0.0,
            "network.workers" => plan.workers = word(setting, &[("pair", Workers::Pair), ("device", Workers::Device)])?,
            "network.weight" => plan.weight = quantity(Unit::Count, 1.0, 65_536.0)? as u32,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the settings make of it.
    pub(super) fn resolve(&self, draft: &Draft, asked: Option<Asked>) -> Result<Resolved, InputError> {
        let variants = match asked {
            Some(asked) => asked.each(variant)?,
            None => {
                let spread = |irqs| NetworkVariant::Mmio { irqs, mapping: Mapping::Spread };
                vec![spread(1), spread(self.network.flows as u16), NetworkVariant::Pci]
            }
        };
        Ok(Resolved {
            cpus: draft.cpus_or(Some(self.network.flows))?,
            experiment: Experiment::Network(self.network.clone()),
            variants: variants.into_iter().map(Variant::Network).collect(),
            spans: draft.spans(u64::MAX),
            warnings: Vec::new(),
        })
    }
}

/// A variant by its name: `8 IRQs mapping=fixed`.
fn variant(setting: &Setting) -> Result<NetworkVariant, InputError> {
    let wrong = || setting.wrong("is no variant", NetworkVariant::VALID);
    let mut words = setting.text.split_whitespace();
    let (Some(irqs), Some(noun)) = (words.next(), words.next()) else {
        return if setting.text.trim() == "virtio-pci" { Ok(NetworkVariant::Pci) } else { Err(wrong()) };
    };
    let mapping = match words.next().map(|word| word.split_once('=')) {
        None => Mapping::Spread,
        Some(Some(("mapping", name))) => {
            Mapping::ALL.into_iter().find(|mapping| mapping.name() == name).ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    if !matches!(noun, "IRQ" | "IRQs") || words.next().is_some() {
        return Err(wrong());
    }
    let irqs = Setting { text: irqs.into(), ..setting.clone() };
    let irqs = Unit::Count.read(&irqs, 1.0, IRQS_MAX.into())? as u16;
    Ok(NetworkVariant::Mmio { irqs, mapping })
}

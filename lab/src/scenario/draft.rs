//! What can be set: in a scenario's tables and with `--set`, by the same keys.

use super::accelerator::AcceleratorDraft;
use super::network::NetworkDraft;
use super::rdma::RdmaDraft;
use super::storage::StorageDraft;
use super::threaded::ThreadedDraft;
use super::{DURATION_NS, RAMP_NS};
use crate::input::{InputError, Place};
use crate::plan::{Options, Spans};
use crate::platform::{Platform, Unit};
use crate::setting::Setting;

/// Longest ramp or duration: a run of a second of a busy server already takes minutes.
const SPAN_MAX_NS: f64 = 10e9;

/// Keys of every experiment.
const KEYS: &[&str] = &["cpus", "ramp", "duration", "options.harvest_passes", "options.interrupt_limit"];

/// An experiment while its settings come in; later ones stand over earlier ones.
pub(super) struct Draft {
    pub(super) platform: Platform,
    pub(super) options: Options,
    pub(super) kind: Kind,
    cpus: Option<(u32, Setting)>,
    ramp_ns: Option<u64>,
    duration_ns: Option<u64>,
}

/// The part of a draft that depends on what runs.
pub(super) enum Kind {
    Storage(StorageDraft),
    Accelerator(AcceleratorDraft),
    Rdma(RdmaDraft),
    Network(NetworkDraft),
    Threaded(ThreadedDraft),
}

impl Kind {
    /// Takes a setting if it is this kind's.
    fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        match self {
            Self::Storage(draft) => draft.apply(setting),
            Self::Accelerator(draft) => draft.apply(setting),
            Self::Rdma(draft) => draft.apply(setting),
            Self::Network(draft) => draft.apply(setting),
            Self::Threaded(draft) => draft.apply(setting),
        }
    }

    /// Every key of this kind.
    fn keys(&self) -> Vec<String> {
        match self {
            Self::Storage(_) => StorageDraft::keys(),
            Self::Accelerator(_) => AcceleratorDraft::keys(),
            Self::Rdma(_) => RdmaDraft::keys(),
            Self::Network(_) => NetworkDraft::keys(),
            Self::Threaded(_) => ThreadedDraft::keys(),
        }
    }
}

/// The variants that are asked for, by their names.
pub(super) struct Asked {
    pub(super) place: Place,
    pub(super) names: Vec<Setting>,
}

impl Asked {
    /// Reads each name; the first that is none is an error, and one that stands twice.
    pub(super) fn each<T: PartialEq>(
        &self,
        read: impl Fn(&Setting) -> Result<T, InputError>,
    ) -> Result<Vec<T>, InputError> {
        let mut variants = Vec::new();
        for name in &self.names {
            let variant = read(name)?;
            if variants.contains(&variant) {
                return Err(name.wrong("stands twice", "each delivery once"));
            }
            variants.push(variant);
        }
        Ok(variants)
    }
}

impl Draft {
    pub(super) fn new(platform: Platform, kind: Kind) -> Self {
        Self { platform, options: Options::default(), kind, cpus: None, ramp_ns: None, duration_ns: None }
    }

    /// Takes one setting.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<(), InputError> {
        let quantity = |unit: Unit, min: f64, max: f64| unit.read(setting, min, max);
        match setting.key.as_str() {
            "cpus" => self.cpus = Some((quantity(Unit::Count, 1.0, 1024.0)? as u32, setting.clone())),
            "ramp" => self.ramp_ns = Some(quantity(Unit::Time, 0.0, SPAN_MAX_NS)? as u64),
            "duration" => self.duration_ns = Some(quantity(Unit::Time, 1e3, SPAN_MAX_NS)? as u64),
            "options.harvest_passes" => self.options.harvest_passes = quantity(Unit::Count, 0.0, 64.0)? as u32,
            "options.interrupt_limit" => {
                self.options.interrupt_limit_ns = Some(quantity(Unit::Time, 100.0, SPAN_MAX_NS)? as u64);
            }
            key if Platform::has_group_of(key) => self.platform.set(setting)?,
            _ if self.kind.apply(setting)? => {}
            _ => return Err(self.unknown(setting)),
        }
        Ok(())
    }

    /// The error that nothing has this key.
    fn unknown(&self, setting: &Setting) -> InputError {
        let (constants, kind) = (self.platform.constants(), self.kind.keys());
        let keys = KEYS.iter().copied().chain(constants.iter().map(|(key, ..)| key.as_str()));
        setting.unknown(keys.chain(kind.iter().map(String::as_str)))
    }

    /// The CPUs of the machine: those that are asked for, else `wanted` by the workload, else the platform's.
    pub(super) fn cpus_or(&self, wanted: Option<u32>) -> Result<u32, InputError> {
        let most = self.platform.fabric.cpus.whole() as u32;
        match &self.cpus {
            Some((cpus, setting)) if *cpus > most => {
                let why = format!("is more than platform {} has", self.platform.name);
                Err(setting.wrong(why, format!("a whole number from 1 to {most}")))
            }
            Some((cpus, _)) => Ok(*cpus),
            None => Ok(wanted.unwrap_or(most).min(most)),
        }
    }

    /// What is simulated; unless it is set, no longer than `shortest_ns`.
    pub(super) fn spans(&self, shortest_ns: u64) -> Spans {
        Spans {
            ramp_ns: self.ramp_ns.unwrap_or(RAMP_NS),
            measured_ns: self.duration_ns.unwrap_or(DURATION_NS.min(shortest_ns)),
            asked_ramp_ns: 0,
            asked_runtime_ns: None,
        }
    }
}

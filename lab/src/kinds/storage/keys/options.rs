//! fio's options as keys: `job.iodepth`.

use crate::fio::kind::ValueKind;
use crate::fio::options::{self, Meaning};
use crate::scenario::key::Described;

/// Every option that jobs of a modelled engine have.
pub(super) fn in_full() -> impl Iterator<Item = Described> {
    options::all().iter().filter_map(|option| {
        let about = match &option.meaning {
            Meaning::Modelled(how) => (*how).to_owned(),
            Meaning::NoEffect(why) => format!("without effect: {why}"),
            Meaning::Ignored { consequence, .. } => format!("not modelled: {consequence}"),
            Meaning::Refused { why, .. } => format!("refused: {why}"),
            Meaning::Foreign => return None,
        };
        let (key, valid) = (format!("job.{}", option.name), valid(&option.kind));
        Some(Described { key, about, default: None, valid, unit: None, min: None, max: None })
    })
}

/// What a type of value takes.
fn valid(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Store | ValueKind::Text => "a text as fio has it".into(),
        ValueKind::Values(words) => words.join(", "),
        ValueKind::Multi(words) => format!("some of {}", words.join(", ")),
        ValueKind::Numbers { min: 0, max: 0, .. } => "a number".into(),
        ValueKind::Numbers { min, max: 0, .. } => format!("a number, from {min}"),
        ValueKind::Numbers { min, max, .. } => format!("a number, from {min} to {max}"),
        ValueKind::Size => "bytes, a percentage or zones".into(),
        ValueKind::Range => "a range of numbers: 4k-16k".into(),
        ValueKind::Floats { .. } => "numbers separated by colons".into(),
        ValueKind::Bool => "0 or 1".into(),
        ValueKind::Set => "nothing, or 0 or 1".into(),
        ValueKind::Deprecated(_) => "nothing: removed from fio".into(),
    }
}

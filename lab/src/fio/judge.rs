//! What each option of a job file is here: honoured, without effect, told, or refused. All findings, not the first only.

use super::lines::is_blank;
use super::options::{self, FioOption, Meaning};
use super::{Entry, Section};
use crate::input::{InputError, Problem, Warning};

/// fio's engine of a job that names none, on Linux.
pub const ENGINE_DEFAULT: &str = "psync";

/// The engines that are modelled.
pub const ENGINES: [&str; 11] = [
    "libaio",
    "io_uring",
    "io_uring_cmd",
    "sync",
    "psync",
    "vsync",
    "pvsync",
    "pvsync2",
    "posixaio",
    "windowsaio",
    "null",
];

/// Those of them that are taken as another, with a warning: not to be recommended.
const TAKEN_AS_OTHERS: [&str; 2] = ["io_uring_cmd", "windowsaio"];

/// The engines that a job may have, for a message.
pub fn valid_engines() -> String {
    ENGINES.into_iter().filter(|engine| !TAKEN_AS_OTHERS.contains(engine)).collect::<Vec<_>>().join(", ")
}

/// Why a job cannot have the engine that an entry names, if it is not one of [`ENGINES`].
pub fn refused_engine(entry: &Entry) -> Option<InputError> {
    let is_known = ENGINES.contains(&engine_name(&entry.setting.text));
    (!is_known).then(|| entry.wrong("is an engine that is not modelled", valid_engines()))
}

/// What was found about one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// How the option is taken: `modelled`, `without effect`, `not modelled`, `refused`, `unknown`.
    pub taken: &'static str,
    /// Why, or what it does.
    pub reason: String,
    /// What a reader of the result must know.
    pub warnings: Vec<Warning>,
    /// Why the file cannot run.
    pub error: Option<InputError>,
}

/// Judges every entry of `sections`, in order, and then `overrides`.
pub fn judge(sections: &[Section], overrides: &[Entry]) -> Vec<Judgement> {
    let (mut judgements, mut unknown) = (Vec::new(), 0);
    let mut global = Context { engine: ENGINE_DEFAULT, kb_base: 1024, names_none: false };
    let asked = Context { engine: "", kb_base: 1024, names_none: false }.with(overrides);
    for section in sections {
        let own = global.with(&section.entries);
        if section.is_global() {
            global = own;
        }
        let engine = if asked.engine.is_empty() { own.engine } else { asked.engine };
        for entry in &section.entries {
            let judgement = judge_entry(entry, Context { engine, names_none: unknown > NAMED_MAX, ..own });
            unknown += usize::from(judgement.taken == "unknown");
            judgements.push(judgement);
        }
    }
    // An option of the command line is for every job, of whatever engine.
    judgements.extend(overrides.iter().map(|entry| judge_entry(entry, asked)));
    judgements
}

/// What the meaning of an entry depends on.
#[derive(Clone, Copy, Default)]
struct Context<'a> {
    /// The section's engine; empty: any.
    engine: &'a str,
    kb_base: u64,
    /// An unknown option gets no names that resemble it.
    names_none: bool,
}

/// Unknown options that get the names that resemble them. A file of another kind may have a million; the search takes some
/// 40 us.
const NAMED_MAX: usize = 1000;

impl<'a> Context<'a> {
    fn with(self, entries: &'a [Entry]) -> Self {
        let mut context = self;
        for Entry { setting, .. } in entries {
            match setting.key.strip_prefix("job.").unwrap_or(&setting.key) {
                "ioengine" => context.engine = engine_name(&setting.text),
                "kb_base" if setting.text == "1000" => context.kb_base = 1000,
                "kb_base" => context.kb_base = 1024,
                _ => {}
            }
        }
        context
    }
}

/// The engine that a value of `ioengine` names.
pub fn engine_name(text: &str) -> &str {
    match text.split(':').next().unwrap_or_default().trim_matches(is_blank) {
        name if name.starts_with("linuxaio") || name.starts_with("aio") => "libaio",
        name => name,
    }
}

fn judge_entry(entry: &Entry, context: Context<'_>) -> Judgement {
    let name = entry.setting.key.strip_prefix("job.").unwrap_or(&entry.setting.key);
    let Some(option) = options::find(name) else { return unknown(entry, name, context.names_none) };
    if !context.engine.is_empty() && !option.is_of(context.engine) {
        return not_of_engine(entry, option, context.engine);
    }
    let value = (!entry.bare).then_some(entry.setting.text.as_str());
    match option.kind.check(option.name, value, context.kb_base.max(1000)) {
        Err((why, valid)) => refused(entry, why, valid),
        Ok(odd) => {
            let mut judgement = by_meaning(entry, option);
            let place = &entry.setting.place;
            let is_old_weight = option.name == "flow" && entry.is_old_weight();
            let old_weight =
                is_old_weight.then(|| "is below 0: fio 3.33 passes over it, and the job has no flow".into());
            let odd = odd.into_iter().chain(old_weight).map(|meaning| Warning {
                place: place.clone(),
                key: name.to_owned(),
                meaning,
            });
            judgement.warnings.extend(odd);
            judgement
        }
    }
}

fn by_meaning(entry: &Entry, option: &FioOption) -> Judgement {
    let taken = |taken, reason: &str| Judgement { taken, reason: reason.into(), warnings: Vec::new(), error: None };
    let text = if entry.bare { "1" } else { entry.setting.text.as_str() };
    let changes_nothing = |unless: &[&str]| unless.contains(&text);
    match &option.meaning {
        // A job may have another engine than `[global]` names: it is refused where it is a job's.
        Meaning::Modelled(_) if option.name == "ioengine" && refused_engine(entry).is_some() => {
            taken("not modelled", "a job with it is refused")
        }
        Meaning::Modelled(how) => taken("modelled", how),
        Meaning::NoEffect(why) => taken("without effect", why),
        Meaning::Ignored { unless, .. } | Meaning::Refused { unless, .. } if changes_nothing(unless) => {
            taken("without effect", "this value changes nothing")
        }
        Meaning::Ignored { consequence, .. } => {
            let name = entry.setting.key.strip_prefix("job.").unwrap_or(&entry.setting.key).to_owned();
            let meaning = format!("not modelled: {consequence}");
            let warning = Warning { place: entry.setting.place.clone(), key: name, meaning };
            Judgement { warnings: vec![warning], ..taken("not modelled", consequence) }
        }
        Meaning::Refused { why, valid, .. } => refused(entry, *why, *valid),
        // The job's engine, which has it, is refused in one sentence for all of its options.
        Meaning::Foreign => taken("without effect", "only of an engine that is not modelled"),
    }
}

fn refused(entry: &Entry, why: impl Into<String>, valid: impl Into<String>) -> Judgement {
    let error = entry.wrong(why, valid);
    Judgement { taken: "refused", reason: reason(&error), warnings: Vec::new(), error: Some(error) }
}

fn unknown(entry: &Entry, name: &str, names_none: bool) -> Judgement {
    if options::is_newer_aside(name) {
        let reason = "an option of a newer fio than 3.33, which changes no I/O here".to_owned();
        let meaning = format!("not modelled: {reason}");
        let warning = Warning { place: entry.setting.place.clone(), key: name.to_owned(), meaning };
        return Judgement { taken: "not modelled", reason, warnings: vec![warning], error: None };
    }
    if options::is_newer(name) {
        return refused(entry, "is for an option of a newer fio than 3.33", "an option of fio 3.33");
    }
    let error = match names_none {
        false => entry.setting.unknown(options::names()),
        true => entry.wrong("is for a name that is unknown", "an option of fio 3.33"),
    };
    Judgement {
        taken: "unknown",
        reason: "fio 3.33 has no such option".into(),
        warnings: Vec::new(),
        error: Some(error),
    }
}

fn not_of_engine(entry: &Entry, option: &FioOption, engine: &str) -> Judgement {
    let is_known = |engine: &&str| ENGINES.contains(engine) && !TAKEN_AS_OTHERS.contains(engine);
    let known: Vec<&str> = option.engines.iter().copied().filter(is_known).collect();
    let engines = if known.is_empty() { &option.engines } else { &known };
    let valid = format!("{} with ioengine={}", option.name, engines.join(" or "));
    refused(entry, format!("is not for ioengine={engine}"), valid)
}

/// The part of an error that says why.
fn reason(error: &InputError) -> String {
    match &*error.problem {
        Problem::Value { why, .. } => why.clone(),
        _ => error.to_string(),
    }
}

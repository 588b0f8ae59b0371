//! `campanile lint`: everything that a job file would be warned of or refused for, and how each of its options is taken.

use crate::fio::judge::{Judgement, judge, refused_engine};
use crate::fio::{self, Section, Variables};
use crate::house;
use crate::input::{InputError, Place, Problem, UNKNOWN_NAME, Warning};
use crate::platform::Platform;
use crate::report::figure::counted;
use crate::scenario::files::Files;
use crate::scenario::{PLATFORM_DEFAULT, Request, is_scenario};
use crate::setting::Setting;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write as _;

/// One finding about a job file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Finding {
    /// `refused` or `warning`.
    pub level: &'static str,
    /// The file: the job file, one that it includes, or an option of the command line.
    pub file: String,
    /// From 1.
    pub line: Option<u32>,
    /// From 1.
    pub column: Option<u32>,
    /// The option; empty if it is about a line or the whole file.
    pub option: String,
    /// The finding.
    pub text: String,
}

/// How one option is taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Taken {
    /// The file.
    pub file: String,
    /// From 1.
    pub line: Option<u32>,
    /// From 1.
    pub column: Option<u32>,
    /// The section's name.
    pub section: String,
    /// The option as written.
    pub option: String,
    /// Its value; none for a bare name.
    pub value: Option<String>,
    /// `modelled`, `without effect`, `not modelled`, `refused` or `unknown`.
    pub taken: &'static str,
    /// How, or why.
    pub reason: String,
}

/// What is known about one job file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lint {
    /// The file.
    pub file: String,
    /// True if `campanile run` would run it.
    pub runs: bool,
    /// All findings, in the order of the lines.
    pub findings: Vec<Finding>,
    /// All options, in the order of the file.
    pub options: Vec<Taken>,
}

impl Finding {
    fn refused(error: &InputError) -> Self {
        let text = match &*error.problem {
            Problem::Io(text) | Problem::Syntax(text) => text.clone(),
            Problem::UnknownKey { valid } => format!("{UNKNOWN_NAME}; valid: {}", valid.join(", ")),
            Problem::Missing { valid } => format!("must be given; valid: {valid}"),
            Problem::Value { value, why, valid } => format!("`{value}` {why}; valid: {valid}"),
        };
        Self::at("refused", &error.place, &error.key, text)
    }

    fn warning(warning: &Warning) -> Self {
        Self::at("warning", &warning.place, &warning.key, warning.meaning.clone())
    }

    fn at(level: &'static str, place: &Place, option: &str, text: String) -> Self {
        Self { level, file: place.file.clone(), line: place.line, column: place.column, option: option.into(), text }
    }
}

/// Reads and judges the job file that `request` names, to the end.
pub fn lint(request: &Request) -> Lint {
    let mut lint = Lint { file: request.input.clone(), runs: false, findings: Vec::new(), options: Vec::new() };
    // It is read once: a pipe has it once.
    let judged = Files::Disk.input(&request.input).and_then(|bytes| lint.judge(request, &bytes).map(|()| bytes));
    match judged {
        Ok(bytes) => lint.plan(request, bytes),
        Err(error) => lint.findings.push(Finding::refused(&error)),
    }
    lint.runs = lint.findings.iter().all(|finding| finding.level != "refused");
    let place = |finding: &Finding| (finding.file != request.input, finding.line, finding.column);
    lint.findings.sort_by_key(place);
    let mut told = HashSet::new();
    lint.findings.retain(|finding| told.insert(finding.clone()));
    lint
}

impl Lint {
    fn judge(&mut self, request: &Request, bytes: &[u8]) -> Result<(), InputError> {
        let is_scenario = is_scenario(&request.input, bytes);
        if let Some(error) = is_scenario.then(|| house::in_place_of_a_job_file(&request.input, bytes)).flatten() {
            return Err(error);
        }
        let (mut sections, errors) = fio::read(&request.input, bytes, &|name, from| Files::Disk.included(name, from));
        let name = request.platform.as_deref().unwrap_or(PLATFORM_DEFAULT);
        let platform = Platform::load(&Setting::new(Place::option("--platform"), "", name))?;
        let cpus = platform.fabric.cpus.whole() as u32;
        let variables = Variables { cpus, ..Variables::of(&request.defines)? };
        let (told, unset) = variables.expand(&mut sections);
        // The value of an option with such a variable is unknown, so it is not judged.
        let places: HashSet<Place> = unset.iter().map(|error| error.place.clone()).collect();
        let is_unset = |place: &Place| places.contains(place);
        let (judgements, mut refused) = (judge(&sections, &[]), Vec::new());
        let entries = sections.iter().flat_map(|section| section.entries.iter().map(move |entry| (section, entry)));
        for ((section, entry), judgement) in entries.zip(&judgements) {
            let place = &entry.setting.place;
            let Judgement { warnings, error, .. } = judgement;
            let (taken, reason) = match is_unset(place) {
                true => ("refused", "has a variable that is not set"),
                false => (judgement.taken, judgement.reason.as_str()),
            };
            self.options.push(Taken {
                file: place.file.clone(),
                line: place.line,
                column: place.column,
                section: section.name.clone(),
                option: entry.setting.key.clone(),
                value: (!entry.bare).then(|| entry.setting.text.clone()),
                taken,
                reason: reason.to_owned(),
            });
            if !is_unset(place) {
                self.findings.extend(warnings.iter().map(Finding::warning));
                refused.extend(error.clone());
            }
        }
        let mut errors: Vec<InputError> = errors.into_iter().chain(unset).chain(refused).collect();
        match errors.is_empty() {
            true => errors.extend(of_each_job(&request.input, &sections)),
            // What is behind these errors is not known, but the jobs' engines are.
            false => errors.extend(engines(&sections).into_iter().filter(|error| !is_unset(&error.place))),
        }
        self.findings.extend(told.iter().map(Finding::warning));
        self.findings.extend(errors.iter().map(Finding::refused));
        Ok(())
    }

    /// What only the whole plan can tell: jobs that do not fit the platform or each other.
    fn plan(&mut self, request: &Request, bytes: Vec<u8>) {
        if self.findings.iter().any(|finding| finding.level == "refused") {
            return;
        }
        match request.plan_from(Files::Disk, request.input.clone(), bytes) {
            Ok(plan) => self.findings.extend(plan.warnings.iter().map(Finding::warning)),
            Err(error) => self.findings.push(Finding::refused(&error)),
        }
    }

    /// As text: every option, then every finding, then the verdict.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let place = |file: &str, line: Option<u32>, column: Option<u32>| {
            let number = |number: Option<u32>| number.map_or(String::new(), |number| format!(":{number}"));
            format!("{file}{}{}", number(line), number(column))
        };
        for option in &self.options {
            let value = option.value.as_ref().map_or(String::new(), |value| format!("={value}"));
            let place = place(&option.file, option.line, option.column);
            let _ = writeln!(text, "{place}: {}{value}: {}: {}", option.option, option.taken, option.reason);
        }
        for finding in &self.findings {
            let place = place(&finding.file, finding.line, finding.column);
            let key = if finding.option.is_empty() { String::new() } else { format!("{}: ", finding.option) };
            let _ = writeln!(text, "{place}: {}: {key}{}", finding.level, finding.text);
        }
        let count = |level: &str| self.findings.iter().filter(|finding| finding.level == level).count();
        let verdict = if self.runs { "it runs" } else { "it does not run" };
        let (warnings, refused) = (counted(count("warning"), "warning"), count("refused"));
        let _ = writeln!(text, "{}: {verdict}; {warnings}, {refused} refused", self.file);
        text
    }
}

/// The engines of jobs that are not modelled.
fn engines(sections: &[Section]) -> Vec<InputError> {
    let mut global = None;
    let mut errors = Vec::new();
    for section in sections {
        let named = section.entries.iter().rfind(|entry| entry.setting.key == "ioengine").or(global);
        match section.is_global() {
            true => global = named,
            false => errors.extend(named.and_then(refused_engine)),
        }
    }
    errors.dedup();
    errors
}

/// The error of each job that cannot be read, where a run would only tell the first.
fn of_each_job(file: &str, sections: &[Section]) -> Vec<InputError> {
    if fio::jobs(file, sections, &[]).is_ok() {
        return Vec::new();
    }
    let mut globals: Vec<Section> = Vec::new();
    let mut errors: Vec<InputError> = Vec::new();
    for section in sections {
        globals.push(section.clone());
        if !section.is_global() {
            errors.extend(fio::jobs(file, &globals, &[]).err());
            globals.pop();
        }
    }
    if errors.is_empty() {
        errors.extend(fio::jobs(file, sections, &[]).err());
    }
    errors.dedup();
    errors
}

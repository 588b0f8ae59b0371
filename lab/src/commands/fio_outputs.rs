//! The outputs of a run in fio's own form: its JSON and its logs.

use crate::atomic_file::{AtomicFile, say};
use crate::cli::{self, Failure, RunArgs};
use crate::fio::{json, logs};
use crate::input::{InputError, Place, Problem};
use crate::kinds::storage::{Detail, Storage};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::report::RunReport;
use std::path::{Path, PathBuf};

/// Stands for the delivery in the name of an output.
const DELIVERY: &str = "{delivery}";

/// The outputs that were asked for. All files were opened: one that cannot be written is refused before the run.
#[derive(Default)]
pub(super) struct FioOutputs {
    to_standard_output: bool,
    /// A file for each delivery.
    json: Vec<(String, AtomicFile)>,
    /// For each delivery the files of its logs, by name.
    logs: Vec<(String, Vec<(String, AtomicFile)>)>,
    /// True if some deliveries have no file.
    is_partial: bool,
}

impl FioOutputs {
    /// Opens the outputs, and lets the run keep what they need.
    ///
    /// # Errors
    /// An output cannot be written, or the experiment has no jobs.
    pub(super) fn prepare(args: &RunArgs, plan: &mut Plan) -> Result<Self, InputError> {
        let mut outputs = Self::default();
        let names = plan.work.names();
        let source = plan.source.clone();
        let asked = [("--fio-json", &args.fio_json), ("--fio-logs", &args.fio_logs)];
        let first_asked = asked.into_iter().find_map(|(option, path)| Some((option, path.as_ref()?)));
        let wants_figures = args.json.is_some() || args.html.is_some() || first_asked.is_some() || args.per_job;
        let Some(comparison) = plan.work.of_mut::<Storage>() else {
            let why = format!("is for jobs on drives, which {} does not have", source.file);
            return match first_asked {
                Some((option, path)) => {
                    Err(InputError::value(&Place::option(option), "", path.display(), why, "--json"))
                }
                None if args.per_job => {
                    let why = Problem::Syntax(format!("{why}; valid: --json"));
                    Err(InputError::new(&Place::option("--per-job"), "", why))
                }
                None => Ok(outputs),
            };
        };
        let storage = &mut comparison.experiment;
        let wanted = match (&args.fio_logs, wants_figures) {
            (Some(_), _) => Detail::Logs,
            (None, true) => Detail::Figures,
            (None, false) => Detail::None,
        };
        storage.detail = storage.detail.max(wanted);
        if let Some(path) = &args.fio_json {
            outputs.to_standard_output = path == Path::new("-");
            if !outputs.to_standard_output {
                for (delivery, path) in paths(path, &names) {
                    outputs.json.push((delivery, AtomicFile::prepare("--fio-json", &path)?));
                }
            }
            outputs.is_partial = outputs.json.len() < names.len();
        }
        if let Some(path) = &args.fio_logs {
            let files = logs::names(storage.reporting.iter().map(|reporting| &**reporting));
            if files.is_empty() {
                let valid = "a job with write_bw_log, write_lat_log, write_iops_log, write_hist_log or write_iolog";
                return Err(InputError::value(
                    &Place::option("--fio-logs"),
                    "",
                    path.display(),
                    "would stay empty: no job asks for a log",
                    valid,
                ));
            }
            for (delivery, folder) in paths(path, &names) {
                outputs.logs.push((delivery, open_logs(&folder, &files)?));
            }
            outputs.is_partial |= outputs.logs.len() < names.len();
        }
        Ok(outputs)
    }

    /// Says on standard error which delivery the outputs show, if there are others, and which logs are not written.
    pub(super) fn announce(&self, plan: &Plan) {
        let (names, Some(storage)) = (plan.work.names(), plan.storage()) else { return };
        if self.is_partial
            && names.len() > 1
            && let Some(first) = names.first()
        {
            say(format_args!(
                "fio's form: of {first} alone; {DELIVERY} in the name writes all of {}",
                names.join(", ")
            ));
        }
        let Some(reporting) = storage.reporting.iter().find(|reporting| reporting.logs.any()) else { return };
        if self.logs.is_empty() {
            say(format_args!(
                "warning: [{}] asks for logs, which are not written; --fio-logs DIR writes them",
                reporting.name
            ));
            return;
        }
        let (span, logs) = (plan.spans.of_logs(), &reporting.logs);
        let asked_ms = if logs.average_ms > 0 { logs.average_ms } else { logs.hist_ms };
        let window_ms = span.window_ms(asked_ms);
        if window_ms != asked_ms {
            say(format_args!(
                "warning: [{}] averages its logs over {asked_ms} ms, longer than a tenth of the simulated span; \
                 here it is {window_ms} ms",
                reporting.name
            ));
        }
    }

    /// True if the JSON goes where the table would.
    pub(super) fn takes_standard_output(&self) -> bool {
        self.to_standard_output
    }

    /// Writes everything. After an interruption a delivery may have no run; its old files then stay.
    ///
    /// # Errors
    /// A file or standard output cannot be written.
    pub(super) fn write(self, plan: &Plan, report: &RunReport) -> Result<(), Failure> {
        if self.to_standard_output
            && let Some(text) = report.outcomes.first().and_then(|first| document(plan, report, &first.delivery))
        {
            cli::print(&text)?;
        }
        for (delivery, file) in self.json {
            if let Some(text) = document(plan, report, &delivery) {
                file.commit(text.as_bytes())?;
            }
        }
        for (delivery, files) in self.logs {
            if let Some(outcome) = report.first_outcome(&delivery) {
                write_logs(plan, outcome, files)?;
            }
        }
        Ok(())
    }
}

/// fio's JSON of a delivery; none if it has no run.
pub(super) fn document(plan: &Plan, report: &RunReport, delivery: &str) -> Option<String> {
    json::document(plan, report.first_outcome(delivery)?, report.manifest.as_ref())
}

/// The first delivery with the path; with `{delivery}` in it, each delivery with a path of its own.
fn paths(path: &Path, deliveries: &[String]) -> Vec<(String, PathBuf)> {
    let text = path.to_string_lossy();
    let count = if text.contains(DELIVERY) { deliveries.len() } else { 1 };
    let own =
        |delivery: &String| (delivery.clone(), PathBuf::from(text.replace(DELIVERY, &delivery.replace(' ', "-"))));
    deliveries.iter().take(count).map(own).collect()
}

fn open_logs(folder: &Path, names: &[String]) -> Result<Vec<(String, AtomicFile)>, InputError> {
    if !folder.exists()
        && let Err(error) = std::fs::create_dir(folder)
    {
        let why = format!("cannot be made ({})", error.kind());
        let place = Place::option("--fio-logs");
        return Err(InputError::value(&place, "", folder.display(), why, "a folder in a folder that is there"));
    }
    names.iter().map(|name| Ok((name.clone(), AtomicFile::prepare("--fio-logs", &folder.join(name))?))).collect()
}

fn write_logs(plan: &Plan, outcome: &Outcome, files: Vec<(String, AtomicFile)>) -> Result<(), Failure> {
    let (Some(storage), Some(own)) = (plan.storage(), outcome.storage()) else { return Ok(()) };
    let Some(details) = own.details.as_deref() else { return Ok(()) };
    let drives: Vec<&str> = storage.drives.iter().map(|drive| drive.name.as_str()).collect();
    let threads = storage.reporting.iter().map(|reporting| &**reporting);
    let left_out: u64 = details.threads.iter().map(|thread| thread.left_out).sum();
    if left_out > 0 {
        say(format_args!("warning: the logs are full; {left_out} later I/Os are not in them"));
    }
    let mut texts = logs::write(threads, details, &drives, plan.spans.of_logs());
    for (name, file) in files {
        file.commit(texts.remove(&name).unwrap_or_default().as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_the_first_delivery_and_a_placeholder_is_each() {
        let deliveries = ["remapped".to_owned(), "posted ours".to_owned()];
        let names = |path: &str| paths(Path::new(path), &deliveries);
        assert_eq!(names("a.json"), [("remapped".into(), PathBuf::from("a.json"))]);
        let each =
            [("remapped".into(), PathBuf::from("remapped.json")), ("posted ours".into(), "posted-ours.json".into())];
        assert_eq!(names("{delivery}.json"), each);
    }
}

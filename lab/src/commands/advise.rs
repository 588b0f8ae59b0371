//! `campanile advise`.

use super::{ended, output, stop_flag, table, takes_standard_output, write, write_table};
use crate::advise::needs::{self, Stated};
use crate::advise::{self, Advice, AdviseError, Budget, Question};
use crate::atomic_file::say;
use crate::cli::{self, AdviseArgs, Failure};
use crate::input::{InputError, Place};
use crate::inputs::{self, Given};
use crate::interrupt::StopFlag;
use crate::manifest::Manifest;
use crate::report::{html, narrow};
use crate::scenario::Request;

pub(super) fn advise(args: &AdviseArgs, arguments: &[String]) -> Result<(), Failure> {
    let question = question(args)?;
    let json = output("--json", args.json.as_deref())?;
    let html = output("--html", args.html.as_deref())?;
    let stop = stop_flag()?;
    let (advice, manifest) = carry_out(&question, arguments, &stop)?;
    for warning in &advice.warnings {
        say(format_args!("warning: {warning}"));
    }
    let columns = args.columns.unwrap_or_else(narrow::width);
    if !takes_standard_output(json.as_ref()) {
        cli::print(&advise::text(&advice, columns))?;
    }
    write(html, || html::with_manifest(&advise::page(&advice), &manifest))?;
    write_table(json, manifest, &advice)?;
    ended(&stop)
}

/// The JSON of the advice. Writes the page if one is asked for, and prints nothing.
///
/// # Errors
/// As [`advise`].
pub(super) fn answer(args: &AdviseArgs, arguments: &[String], stop: &StopFlag) -> Result<String, Failure> {
    let question = question(args)?;
    let html = output("--html", args.html.as_deref())?;
    let (advice, manifest) = carry_out(&question, arguments, stop)?;
    ended(stop)?;
    write(html, || html::with_manifest(&advise::page(&advice), &manifest))?;
    Ok(table(manifest, &advice))
}

fn carry_out(question: &Question, arguments: &[String], stop: &StopFlag) -> Result<(Advice, Manifest), Failure> {
    let (advice, read) = inputs::noted(Given::default(), || advise::advise(question, stop));
    let advice = advice.map_err(|error| match error {
        // The only option of advise that names a delivery.
        AdviseError::Input(error) if error.place == Place::option("--delivery") => {
            Failure::Input(InputError { place: Place::option("--today"), ..error })
        }
        AdviseError::Input(error) => Failure::Input(error),
        AdviseError::Stopped => Failure::Interrupted,
        error => Failure::Run(error.into()),
    })?;
    let Question { among, cpu_budget, by, points, .. } = question;
    let manifest = Manifest::new(arguments, &read)
        .with_plan(&advice.plan)
        .with("advise.among", among.clone())
        .with("advise.by", format!("{by:?}").to_lowercase())
        .with("advise.cpu_budget", cpu_budget.map(|budget| budget.to_string()))
        .with("advise.device", question.stated.device)
        .with("advise.kernel", question.stated.kernel.map(|(major, minor)| format!("{major}.{minor}")))
        .with("advise.points", *points);
    Ok((advice, manifest))
}

fn question(args: &AdviseArgs) -> Result<Question, Failure> {
    let request = Request {
        input: args.input.clone(),
        platform: args.platform.clone(),
        deliveries: args.today.clone().map(|today| vec![today]),
        seeds: Some(args.seeds),
        sets: args.sets.clone(),
        defines: args.defines.clone(),
    };
    Ok(Question {
        request,
        among: args.among.iter().map(|id| id.trim().to_owned()).collect(),
        stated: Stated {
            kernel: args.kernel.as_deref().map(needs::release).transpose()?,
            device: args.device.as_deref().map(|device| device == "yes"),
        },
        cpu_budget: args.cpu_budget.as_deref().map(Budget::read).transpose()?,
        by: args.by,
        points: args.points,
    })
}

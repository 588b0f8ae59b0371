//! `campanile check`: the search itself is in the room `check`.

use super::answer::{other, parse};
use super::{ended, output};
use crate::cli::{Command, Failure};
use crate::inputs::Read;
use crate::interrupt::StopFlag;
use crate::manifest::Manifest;
use ::check::campaign::{self, Campaign, Length, Part, Summary};
pub use ::check::cli::Answer;
use ::check::cli::{self, CheckArgs, execute_with};
use ::check::scenarios;
use std::path::Path;

pub(super) fn check(args: &CheckArgs, arguments: &[String]) -> Result<(), Failure> {
    refuse_outputs(args)?;
    let origin = |first_seed| origin(arguments, first_seed);
    match execute_with(args, scenarios::all(), origin).map_err(Failure::Check)? {
        0 => Ok(()),
        code => Err(Failure::Found(code)),
    }
}

/// Refuses outputs that cannot be written before the search, which writes them at its end.
fn refuse_outputs(args: &CheckArgs) -> Result<(), Failure> {
    output("--json", args.json.as_deref())?;
    // The default is written for a failure alone, and no reason to refuse a search in a folder that is read-only.
    let trace = Some(args.trace.as_path()).filter(|path| *path != Path::new(cli::TRACE));
    output("--trace", trace)?;
    Ok(())
}

fn origin(arguments: &[String], first_seed: u64) -> Option<serde_json::Value> {
    let manifest = Manifest::new(arguments, &Read::default()).with("first_seed", format!("{first_seed:#x}"));
    serde_json::to_value(manifest).ok()
}

/// A search for a program: all of it, or parts of it that run anywhere.
#[derive(Clone)]
pub struct Search {
    args: CheckArgs,
    arguments: Vec<String>,
    campaign: Campaign,
}

impl Search {
    /// The search of a command line, without the word `campanile`.
    ///
    /// # Errors
    /// Wrong input.
    pub fn read(arguments: &[String]) -> Result<Self, Failure> {
        let Command::Check(args) = parse(arguments)? else { return Err(other(arguments, "check")) };
        let campaign = cli::campaign(&args, scenarios::all()).map_err(Failure::Check)?;
        Ok(Self { args: *args, arguments: arguments.to_vec(), campaign })
    }

    /// Seed of the first round of histories.
    pub fn first_seed(&self) -> u64 {
        self.campaign.first_seed
    }

    /// Its histories; none: as many as fit into a time.
    pub fn histories(&self) -> Option<u64> {
        self.campaign.histories()
    }

    /// Searches on this machine.
    ///
    /// # Errors
    /// The trace cannot be written, or `stop` was set.
    pub fn run(&self, stop: &StopFlag) -> Result<Answer, Failure> {
        let campaign = Campaign { stop: stop.shared(), ..self.campaign.clone() };
        let summary = campaign::run(&campaign);
        self.answer(&campaign, &summary, stop)
    }

    /// Searches `count` histories from number `from` on one thread. Returns the [`Part`] as JSON.
    ///
    /// # Errors
    /// `stop` was set.
    pub fn part(&self, from: u64, count: u64, stop: &StopFlag) -> Result<String, Failure> {
        let length = Length::Part { from, count };
        let campaign = Campaign { length, jobs: 1, stop: stop.shared(), ..self.campaign.clone() };
        let part = campaign::run(&campaign).part();
        ended(stop)?;
        Ok(serde_json::to_string(&part).expect("plain data"))
    }

    /// Puts parts together, in the order of their histories, the last of which may have a failure. That history runs again
    /// here, and is shortened.
    ///
    /// # Errors
    /// A part makes no sense, its failure does not show here, or `stop` was set.
    pub fn merge(&self, parts: &[String], seconds: f64, jobs: usize, stop: &StopFlag) -> Result<Answer, Failure> {
        let campaign = Campaign { stop: stop.shared(), ..self.campaign.clone() };
        let mut summary = Summary::default();
        for text in parts {
            let part: Part = serde_json::from_str(text).map_err(|error| Failure::Run(error.into()))?;
            summary.add_part(&part);
            if let Some((index, hangs)) = part.failed {
                let found = if hangs { Some(campaign.hang(index)) } else { campaign.failure(index) };
                let why = || format!("history {index} failed elsewhere and not here: not the same program");
                summary.failures.push(found.ok_or_else(|| Failure::Run(why().into()))?);
                break;
            }
        }
        summary.measured_over(seconds, jobs);
        self.answer(&campaign, &summary, stop)
    }

    fn answer(&self, campaign: &Campaign, summary: &Summary, stop: &StopFlag) -> Result<Answer, Failure> {
        let manifest = origin(&self.arguments, campaign.first_seed);
        let answer = cli::answer(&self.args, campaign, summary, manifest).map_err(Failure::Check)?;
        ended(stop)?;
        Ok(answer)
    }
}

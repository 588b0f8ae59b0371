//! The arguments of `campanile advise`.

use crate::advise::Criterion;
use clap::Args;
use std::path::PathBuf;

/// `campanile advise`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct AdviseArgs {
    /// A job.fio, a scenario.toml, or the name of a built-in scenario (emr-4-drives).
    pub input: String,
    /// The platform: emr, spr, optane, … or the path of a platform file of your own. The default for a job file is emr.
    #[arg(long, value_name = "P")]
    pub platform: Option<String>,
    /// How interrupts are delivered today. The default is the scenario's first delivery; for a job file remapped.
    #[arg(long, value_name = "DELIVERY")]
    pub today: Option<String>,
    /// Set a constant or an option, as for `campanile run`. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Set a variable of job files, `${VAR}`, over the environment. May be given several times.
    #[arg(long = "define", value_name = "VAR=VALUE")]
    pub defines: Vec<String>,
    /// The remedies to try, separated by commas: posted, coalescing, check, polled, … The default is all.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub among: Vec<String>,
    /// The CPUs that the job may keep busy: 4, or 50%. Remedies above it are shown apart.
    #[arg(long, value_name = "CPUS")]
    pub cpu_budget: Option<String>,
    /// The server's kernel, as uname -r prints it. Without it, the release that a remedy needs is stated.
    #[arg(long, value_name = "RELEASE")]
    pub kernel: Option<String>,
    /// Whether the devices have what only they can say, such as NVMe feature 08h. Without it, such remedies are ranked
    /// with their condition.
    #[arg(long, value_name = "yes|no", value_parser = ["yes", "no"])]
    pub device: Option<String>,
    /// What places follow.
    #[arg(long, value_enum, default_value = "throughput")]
    pub by: Criterion,
    /// Seeds of today's server and of each remedy.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = super::seeds)]
    pub seeds: u32,
    /// Points at which the platform's fitted constants are moved. The default is all points of an imported platform's
    /// region, or else 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub points: Option<u32>,
    /// Columns of the terminal's tables. The default is the terminal's width, COLUMNS of the environment, or else 100.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(20..=1000))]
    pub columns: Option<u16>,
    /// Write the advice as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one self-contained page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

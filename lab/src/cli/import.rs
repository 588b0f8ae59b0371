//! The arguments of `campanile import`.

use clap::Args;
use std::path::PathBuf;

/// `campanile import`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ImportArgs {
    /// An archive of scripts/measure-server, or its folder.
    #[arg(conflicts_with_all = ["fio_json", "job", "interrupts", "stat", "lscpu"])]
    pub archive: Option<PathBuf>,
    /// What `fio --output-format=json` printed. May be given several times, for runs of one job.
    #[arg(long, value_name = "FILE")]
    pub fio_json: Vec<PathBuf>,
    /// The job file of those runs. Without it, the options that fio printed.
    #[arg(long, value_name = "FILE", requires = "fio_json")]
    pub job: Option<PathBuf>,
    /// /proc/interrupts before and after a run.
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 2, requires = "fio_json")]
    pub interrupts: Vec<PathBuf>,
    /// /proc/stat before and after a run.
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 2, requires = "fio_json")]
    pub stat: Vec<PathBuf>,
    /// What lscpu printed.
    #[arg(long, value_name = "FILE", requires = "fio_json")]
    pub lscpu: Option<PathBuf>,
    /// The host whose jobs are meant, in what a client of fio's printed of several.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// The platform that lends the constants that the data do not decide.
    #[arg(long, value_name = "P", default_value = "emr")]
    pub base: String,
    /// The folder to write. Its name becomes the platform's.
    #[arg(long, value_name = "DIR", default_value = "my-server")]
    pub out: PathBuf,
    /// Write what was fitted, stated and borrowed as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

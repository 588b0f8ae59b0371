//! Arguments of sweeps, and of what tells about the command line itself.

use crate::sweep::Shard;
use clap::{Args, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;

/// `campanile sweep`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct SweepArgs {
    /// The sweep.toml (docs/sweep.md), or - for standard input.
    pub file: String,
    /// Folder for finished runs and results. The default is the file's name with -results. A sweep goes on where this
    /// folder has it.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run only this part of the sweep: 1/4 to 4/4. `campanile merge` puts the parts together.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Number of worker threads. The default is one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// `campanile merge`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct MergeArgs {
    /// Files shard-i-of-n.runs of one sweep, or folders with them.
    #[arg(required = true, value_name = "SHARD")]
    pub shards: Vec<PathBuf>,
    /// Folder for the results. The default is the folder of the first shard.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What `campanile list` lists.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// The scenarios that the program carries.
    Scenarios,
    /// The platforms that the program carries.
    Platforms,
    /// Every key of --set, with its unit, its bounds and its meaning.
    Keys,
}

/// `campanile list`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ListArgs {
    /// What to list. The default is all.
    pub what: Option<Listed>,
    /// The platform whose constants are listed.
    #[arg(long, value_name = "P", default_value = "emr")]
    pub platform: String,
    /// Print one JSON table.
    #[arg(long)]
    pub json: bool,
}

/// `campanile completions`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// `campanile man`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ManArgs {
    /// The folder to write: a page for each command.
    pub folder: PathBuf,
}

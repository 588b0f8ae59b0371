//! `campanile bench`.

use super::{ended, output, stop_flag, write};
use crate::bench::{self, Effort};
use crate::cli::{self, BenchArgs, Failure};

pub(super) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let json = output("--json", args.json.as_deref())?;
    let stop = stop_flag()?;
    let figures = bench::measure(Effort::FULL, &stop).map_err(|error| Failure::Run(error.into()))?;
    cli::print(&bench::table(&figures))?;
    write(json, || serde_json::to_string_pretty(&figures).expect("figures are plain data") + "\n")?;
    ended(&stop)
}

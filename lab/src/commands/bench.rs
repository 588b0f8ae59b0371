//! `campanile bench`.

use super::{ended, output_of_list, stop_flag, takes_standard_output, write_list};
use crate::bench::{self, Effort};
use crate::cli::{self, BenchArgs, Failure};
use crate::inputs::Read;
use crate::manifest::Manifest;

pub(super) fn bench(args: &BenchArgs, arguments: &[String]) -> Result<(), Failure> {
    let json = output_of_list(args.json.as_deref())?;
    let stop = stop_flag()?;
    let figures = bench::measure(Effort::FULL, &stop).map_err(|error| Failure::Run(error.into()))?;
    if !takes_standard_output(json.as_ref()) {
        cli::print_wide(&bench::table(&figures))?;
    }
    let manifest = Manifest::new(arguments, &Read::default());
    write_list(json, &manifest, || serde_json::to_string_pretty(&figures).expect("figures are plain data") + "\n")?;
    ended(&stop)
}

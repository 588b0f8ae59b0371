//! `campanile reproduce`.

use super::{ended, failed, output, stop_flag, write};
use crate::cli::{self, Failure, ReproduceArgs};
use crate::{published, report, reproduce as rows_of};

pub(super) fn reproduce(args: &ReproduceArgs) -> Result<(), Failure> {
    let rows = published::select(&args.ids)?;
    let json = output("--json", args.json.as_deref())?;
    let html = output("--html", args.html.as_deref())?;
    let needed = published::with_sources(&rows)?;
    let plans = rows_of::plans(&needed)?;
    let stop = stop_flag()?;
    let outcomes = rows_of::run_plans(&plans, &needed, &stop).map_err(failed)?;
    let mut compared = rows_of::compare(&needed, &outcomes);
    compared.retain(|found| rows.iter().any(|row| row.id == found.id));
    let free = rows_of::free_constants(&plans)?;
    cli::print(&report::table::reproduce(&compared, &free))?;
    write(json, || report::json::reproduce(&compared).expect("rows are plain data"))?;
    write(html, || report::rows_page(&compared, &free))?;
    ended(&stop)
}

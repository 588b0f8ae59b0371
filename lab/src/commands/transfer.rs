//! `campanile transfer`.

use super::{ended, stop_flag};
use crate::cli::{self, Failure, TransferArgs};
use crate::input::Place;
use crate::platform::Platform;
use crate::setting::Setting;
use crate::transfer::{self, Fit, TransferError};
use std::fmt::Write as _;

pub(super) fn transfer(args: &TransferArgs) -> Result<(), Failure> {
    let load = |name: &String| Platform::load(&Setting::new(Place::option("transfer"), "", name));
    let platforms = args.platforms.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let stop = stop_flag()?;
    match transfer::transfer(&platforms, &args.sets, &stop) {
        Ok(fits) => cli::print_wide(&text(&fits))?,
        Err(TransferError::Input(error)) => return Err(Failure::Input(error)),
        Err(TransferError::Run(error)) => return Err(Failure::Run(error.into())),
        Err(TransferError::Stopped) => {}
        Err(error) => return Err(Failure::Run(error.into())),
    }
    ended(&stop)
}

/// For each fit, the rows of all platforms.
fn text(fits: &[Fit]) -> String {
    let mut text = String::new();
    for fit in fits {
        let Fit { platform, row, key, value, .. } = fit;
        writeln!(text, "{key} = {value}, fitted to {row} of {platform}").expect("a String takes all");
        let heads = ["row", "platform", "published", "same time", "same cycles"];
        let [row, platform, published, same, scaled] = heads;
        writeln!(text, "  {row:8} {platform:12} {published:>12} {same:>18} {scaled:>18}").expect("a String takes all");
        for given in &fit.given {
            let beside = |value: f64| format!("{value:.1} ({:+.1})", value - given.published);
            let what = if given.row == fit.row { "  fitted" } else { "" };
            let published = format!("{} {}", given.published, given.unit);
            let (same, scaled) = (beside(given.same), beside(given.scaled));
            let line = format!("  {:8} {:12} {published:>12} {same:>18} {scaled:>18}{what}", given.row, given.platform);
            writeln!(text, "{line}").expect("a String takes all");
        }
        text.push('\n');
    }
    text + "In brackets: the difference from the published value. \"same cycles\": the constant times the ratio of cpu.scale.\n"
}

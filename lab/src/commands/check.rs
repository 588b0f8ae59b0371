//! `campanile check`: the search itself is in the room `check`.

use crate::cli::Failure;
use crate::inputs::Read;
use crate::manifest::Manifest;
use ::check::cli::{CheckArgs, execute_with};

pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let origin = |first_seed: u64| {
        let manifest = Manifest::of_process(&Read::default()).with("first_seed", format!("{first_seed:#x}"));
        serde_json::to_value(manifest).ok()
    };
    match execute_with(args, ::check::scenarios::all(), origin).map_err(Failure::Check)? {
        0 => Ok(()),
        code => Err(Failure::Found(code)),
    }
}

//! `campanile check`: the search itself is in the room `check`.

use crate::cli::Failure;
use ::check::cli::{CheckArgs, execute};

pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    match execute(args, ::check::scenarios::all()).map_err(Failure::Check)? {
        0 => Ok(()),
        code => Err(Failure::Found(code)),
    }
}

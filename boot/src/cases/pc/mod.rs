//! Cases on local APICs, with and without a remapping unit.

mod system;

use super::Options;
use crate::arch::Platform;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
pub(super) use system::System;

/// Runs `case`.
///
/// # Errors
/// What went wrong, or that there is no such case.
pub(super) fn run(case: &str, options: &Options, platform: &'static Platform) -> Result<(), String> {
    let system = Arc::new(System::new(platform)?);
    super::count("cpus", platform.cpus().into());
    super::count("remapping", system.unit.is_some().into());
    match case {
        "nvme" => super::nvme::nvme(&system, options),
        _ => Err(format!("no case {case:?}; there is nvme")),
    }
}

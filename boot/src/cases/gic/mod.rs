//! Cases on a GIC: what is asked for is an EOImode, and the counts of register accesses come from QEMU's own trace.

mod messages;
mod system;
mod wired;

use super::Options;
use crate::arch::Platform;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
pub(super) use system::System;

/// Runs `case` on the GIC that the machine has.
///
/// # Errors
/// What went wrong, or that there is no such case.
pub(super) fn run(case: &str, options: &Options, platform: &'static Platform) -> Result<(), String> {
    let system = Arc::new(System::new(platform, options)?);
    super::count("cpus", platform.cpus().into());
    super::count("exception_level", platform.exception_level.into());
    super::count("gic_version", platform.gic_version.into());
    match case {
        "raise" => wired::raise(&system, options),
        "serial" => wired::serial(&system, options),
        "private" => wired::private(&system, options),
        "nvme" => super::nvme::nvme(&system, options),
        _ => Err(format!("no case {case:?}; there are raise, serial, private, nvme")),
    }
}

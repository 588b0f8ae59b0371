//! Cases on local APICs, with and without a remapping unit.

mod bursts;
mod path;
mod pins;
mod posts;
mod stranger;
mod system;

use super::Options;
use crate::arch::Platform;
use crate::println;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use system::PcFixture;
pub(super) use system::PcFixture as Fixture;

/// Runs `case`.
///
/// # Errors
/// The failure of the case, or an unknown case.
pub(super) fn run(case: &str, options: &Options, platform: &'static Platform) -> Result<(), String> {
    let posting = options.number("posting", 0)?;
    let x2apic = options.number("x2apic", 0)?;
    let system = Arc::new(PcFixture::new(platform, posting != 0, x2apic != 0)?);
    println!("policy {}", system.pc);
    super::count("cpus", platform.cpus().into());
    super::count("remapping", system.unit().is_some().into());
    super::count("posting", posting);
    super::count("x2apic", x2apic);
    match case {
        "nvme" => super::nvme::nvme(&system, options),
        "posts" => posts::posts(&system, options),
        "virtio-blk" => pins::virtio_block(&system, options),
        "virtio-irqs" => super::virtio::described_block(&system, options),
        "path" => path::path(&system, options),
        "bursts" => bursts::bursts(&system, options),
        "stranger" => stranger::stranger(&system, options),
        _ => Err(format!("no case {case:?}; there are bursts, nvme, path, posts, stranger, virtio-blk, virtio-irqs")),
    }
}

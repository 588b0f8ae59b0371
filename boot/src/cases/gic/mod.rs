//! Cases on a GIC. An option selects the EOImode; the counts of register accesses come from QEMU's own trace.

mod nmi;
mod system;
mod wired;

use super::Options;
use crate::arch::{self, Platform};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use drivers::virtio::RegisterWrites;
use drivers::virtio::discovery::{Line, from_acpi, from_device_tree};
use spec::virtio::DeviceId;
pub(super) use system::GicFixture as Fixture;

/// Runs `case` on the machine's GIC.
///
/// # Errors
/// The failure of the case, or an unknown case.
pub(super) fn run(case: &str, options: &Options, platform: &'static Platform) -> Result<(), String> {
    let system = Arc::new(Fixture::new(platform, options, case == "nmi")?);
    super::count("cpus", platform.cpus().into());
    super::count("exception_level", platform.exception_level.into());
    super::count("gic_version", platform.gic_version.into());
    match case {
        "raise" => wired::raise(&system, options),
        "serial" => wired::serial(&system, options),
        "private" => wired::private(&system, options),
        "nmi" => nmi::nmi(&system, options),
        "nvme" => super::nvme::nvme(&system, options),
        "virtio-irqs" => super::virtio::described_block(&system, options),
        "virtio-blk" | "virtio-net" => virtio(&system, case, options),
        _ => Err(format!(
            "no case {case:?}; there are raise, serial, private, nmi, nvme, virtio-irqs, virtio-blk, virtio-net"
        )),
    }
}

/// Finds the machine's own virtio devices in its device tree, or with the option `acpi=1` in its DSDT, and drives them.
fn virtio(system: &Fixture, case: &str, options: &Options) -> Result<(), String> {
    let described = if options.number("acpi", 0)? == 0 {
        from_device_tree(system.platform.device_tree)
    } else {
        let place = system.platform.firmware.ok_or("the device tree names no qemu,fw-cfg-mmio")?;
        from_acpi(&arch::dsdt(place)?)
    };
    let described = described.map_err(|error| format!("{error}"))?;
    let connect = |line: &Line, cpu, handler| system.wire(line, cpu, handler);
    // QEMU emulates their registers.
    let find = |kind| super::virtio::find(&described, kind, RegisterWrites::AtOnce);
    if case == "virtio-net" {
        return super::virtio::net(system, &find(DeviceId::NET)?, &connect, options);
    }
    let found = find(DeviceId::BLOCK)?;
    super::virtio::block(system, found.first().ok_or("no virtio block device")?, &connect, options)
}

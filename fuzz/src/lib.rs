//! Fuzz targets: registers, queues, drivers against hostile devices, and parsers.
//!
//! A target is an ordinary function of bytes: [`TARGETS`] lists them all. The binaries of cargo-fuzz (`fuzz_targets/`,
//! feature `libfuzzer`) and the tests (`tests/short.rs`) call the same functions. A target panics if its subject
//! panics, or breaks a promise. `docs/fuzzing.md` says how to run them and what each requires.

mod bridge;
mod drivers;
mod input;
mod models;
mod parsers;

/// The fuzz targets.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also the name of the binary and of its folder in `corpus/`.
    pub name: &'static str,
    /// Runs it once.
    pub run: fn(&[u8]),
    /// The greatest length of an input, in bytes. Longer ones are not tried.
    pub input_bytes_max: usize,
    /// The files and folders that it is about, for reports of coverage, separated by spaces.
    pub subject: &'static str,
}

macro_rules! targets {
    ($($module:ident :: $name:ident, $input_bytes_max:literal, $subject:literal;)*) => {
        /// Every target.
        pub const TARGETS: &[Target] =
            &[$(Target {
                name: stringify!($name),
                run: $module::$name,
                input_bytes_max: $input_bytes_max,
                subject: $subject,
            }),*];
    };
}

targets! {
    models::nvme, 2048, "machine/src/nvme";
    models::vtd, 2048, "machine/src/fabric/vtd";
    models::interrupt_controllers, 2048, "machine/src/lapic.rs machine/src/fabric/ioapic.rs machine/src/fabric/hpet.rs";
    models::gicv2, 2048, "machine/src/gic";
    models::gicv3, 2048, "machine/src/gic";
    models::dsa, 2048, "machine/src/dsa";
    models::rdma, 2048, "machine/src/rdma";
    models::virtio_mmio, 2048, "machine/src/virtio";
    models::virtio_pci, 2048, "machine/src/virtio";
    models::virtio_net, 2048, "machine/src/virtio";
    bridge::served, 2048, "bridge/src";
    drivers::driver_nvme, 2048, "drivers/src/nvme";
    drivers::driver_virtio_block, 2048, "drivers/src/virtio";
    drivers::driver_virtio_net, 2048, "drivers/src/virtio";
    drivers::driver_dsa, 2048, "drivers/src/dsa";
    drivers::driver_rdma, 2048, "drivers/src/rdma";
    drivers::driver_vtd, 2048, "drivers/src/vtd";
    drivers::driver_gicv2, 1024, "drivers/src/gic";
    drivers::driver_gicv3, 1024, "drivers/src/gic";
    parsers::fio, 2048, "lab/src/fio";
    parsers::scenario, 2048, "lab/src/scenario";
    parsers::platform, 8192, "lab/src/platform";
    parsers::sweep, 2048, "lab/src/sweep";
    parsers::import_fio_json, 4096, "import/src/fio_json.rs import/src/fio_results.rs import/src/fio_terse.rs import/src/fio_text.rs import/src/json.rs import/src/json_text.rs import/src/python.rs";
    parsers::import_interrupts, 2048, "import/src/interrupts.rs";
    parsers::import_cpu_time, 512, "import/src/cpu_time.rs import/src/lscpu.rs";
    parsers::import_archive, 8192, "import/src/archive.rs import/src/links.rs import/src/tarred.rs import/src/zipped.rs lab/src/server/gather.rs";
    parsers::command_line, 512, "drivers/src/virtio/discovery";
    parsers::device_tree, 4096, "drivers/src/virtio/discovery";
    parsers::acpi, 2048, "drivers/src/virtio/discovery";
    parsers::pci, 1024, "drivers/src/pci drivers/src/virtio/pci.rs";
}

/// The target of that name.
///
/// # Panics
/// When there is none.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("there is no target {name}"))
}

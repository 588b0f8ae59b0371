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
}

macro_rules! targets {
    ($($module:ident :: $name:ident, $input_bytes_max:literal;)*) => {
        /// Every target.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $module::$name, input_bytes_max: $input_bytes_max }),*];
    };
}

targets! {
    models::nvme, 2048;
    models::vtd, 2048;
    models::interrupt_controllers, 2048;
    models::gicv2, 2048;
    models::gicv3, 2048;
    models::dsa, 2048;
    models::rdma, 2048;
    models::virtio_mmio, 2048;
    models::virtio_pci, 2048;
    models::virtio_net, 2048;
    bridge::served, 2048;
    drivers::driver_nvme, 2048;
    drivers::driver_virtio_block, 2048;
    drivers::driver_virtio_net, 2048;
    drivers::driver_dsa, 2048;
    drivers::driver_rdma, 2048;
    drivers::driver_vtd, 2048;
    drivers::driver_gicv2, 1024;
    drivers::driver_gicv3, 1024;
    parsers::fio, 2048;
    parsers::scenario, 2048;
    parsers::platform, 8192;
    parsers::sweep, 2048;
    parsers::import_fio_json, 4096;
    parsers::import_interrupts, 2048;
    parsers::import_cpu_time, 512;
    parsers::import_archive, 8192;
    parsers::command_line, 512;
    parsers::device_tree, 4096;
    parsers::acpi, 2048;
    parsers::pci, 1024;
}

/// The target of that name.
///
/// # Panics
/// When there is none.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("there is no target {name}"))
}

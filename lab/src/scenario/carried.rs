//! The scenarios and job files that the program carries, so that it needs no files beside it.

macro_rules! carried {
    ($($path:literal)*) => {
        /// Path in the project and text.
        const CARRIED: &[(&str, &str)] = &[$((concat!("scenarios/", $path), include_str!(concat!("../../../scenarios/", $path)))),*];
    };
}

carried! {
    "emr-4-drives.toml" "emr-8k.toml" "emr-16k.toml" "emr-32k.toml" "emr-128k.toml"
    "emr-low-qd1.toml" "emr-low-qd2.toml" "emr-low-qd4.toml" "emr-low-qd8.toml"
    "emr-uring.toml" "emr-polled.toml" "emr-dear-posting.toml" "emr-mixed.toml" "emr-after-doorbell.toml"
    "emr-threaded.toml" "emr-compile.toml" "emr-copy.toml"
    "spr-2-drives.toml" "spr-4-drives.toml" "spr-8-drives.toml"
    "dsa-loops.toml" "dsa-headline.toml" "dsa-remedies.toml"
    "virtio-irqs.toml" "virtio-mapping.toml" "virtio-level.toml" "virtio-effects.toml" "virtio-low.toml"
    "gic-emag.toml" "gic-altra.toml" "gic-juno.toml" "gic-emag-since.toml" "gic-altra-since.toml"
    "optane-4-drives.toml" "optane-5-drives.toml"
    "azure-one-job.toml" "azure-one-job-check.toml" "azure-80-cpus.toml" "emr-96-cpus.toml"
    "rdma-vm.toml" "rdma-deep.toml" "rdma-qd1.toml" "rdma-host.toml" "rdma-nine-levels.toml" "rdma-steps.toml" "rdma-thefts.toml"
    "rdma-mixed.toml"
    "jobs/two-drives.fio" "jobs/four-drives.fio" "jobs/eight-drives.fio"
    "jobs/four-drives-uring.fio" "jobs/four-drives-polled.fio" "jobs/one-job-batched.fio" "jobs/azure-ten.fio"
    "jobs/optane-four.fio" "jobs/optane-five.fio" "jobs/compile-like.fio" "jobs/copy-like.fio"
}

/// The names of the scenarios, each of which `campanile run` takes in place of a path.
pub fn names() -> impl Iterator<Item = &'static str> {
    CARRIED.iter().filter_map(|(path, _)| path.strip_prefix("scenarios/")?.strip_suffix(".toml"))
}

/// The file at `path` in the project.
pub(super) fn text(path: &str) -> Option<&'static str> {
    CARRIED.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

/// The scenario of that name.
pub fn of_name(name: &str) -> Option<&'static str> {
    text(&format!("scenarios/{name}.toml"))
}

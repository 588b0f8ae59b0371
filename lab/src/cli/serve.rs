//! Arguments of `campanile serve`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The devices that can be lent.
#[derive(Subcommand, Clone, PartialEq, Eq, Debug)]
pub enum ServeCommand {
    /// An NVMe drive over vfio-user, for QEMU's `-device vfio-user-pci`. It serves one client at a time.
    Nvme(ServeNvmeArgs),
    /// A device that only raises interrupts, from several threads at once, to try software posting.
    Poster(ServePosterArgs),
    /// A virtio block device over MMIO in a BAR. Each of its interrupts is an MSI-X vector (docs/bridge.md).
    Virtio(ServeVirtioArgs),
}

/// `campanile serve nvme`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ServeNvmeArgs {
    /// Path of the socket to create. No file may exist there.
    #[arg(long, value_name = "S")]
    pub socket: PathBuf,
    /// Keep the blocks in this file. The drive is as large as the file.
    #[arg(long, value_name = "FILE", conflicts_with = "memory")]
    pub storage: Option<PathBuf>,
    /// Keep this many bytes of blocks in memory: 64MiB. The data are lost when the server ends.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub memory: String,
    /// Number of I/O queue pairs. Each has a vector of its own, and so has the admin queue.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub queues: u16,
    /// Time of a read or write on the media.
    #[arg(long, value_name = "TIME", default_value = "60us")]
    pub latency: String,
    /// Number of commands that the drive works on at once.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    pub slots: u16,
    /// Coalesce although feature 08h reads 0: send a message after N entries, or TIME after the first one: 8,100us.
    #[arg(long, alias = "secret-coalescing", value_name = "N,TIME")]
    pub hidden_coalescing: Option<String>,
    /// Offer software posting (docs/software-posting.md) to this many posted descriptors.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub posting_slots: u16,
}

/// `campanile serve poster`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ServePosterArgs {
    /// Path of the socket to create. No file may exist there.
    #[arg(long, value_name = "S")]
    pub socket: PathBuf,
    /// Number of MSI-X vectors that the device raises.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub sources: u16,
    /// Number of threads that raise them at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Number of posted descriptors that the device can post to.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub posting_slots: u16,
}

/// `campanile serve virtio`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ServeVirtioArgs {
    /// Path of the socket to create. No file may exist there.
    #[arg(long, value_name = "S")]
    pub socket: PathBuf,
    /// Size of the disk, a multiple of 512 bytes. Each client finds it filled with zeros.
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub memory: String,
    /// Number of queues.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub queues: u16,
    /// Number of interrupts. The default is 1 + queues: one per queue and one for the configuration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub interrupts: Option<u16>,
    /// Time from a request's notification to its end.
    #[arg(long, value_name = "TIME", default_value = "60us")]
    pub latency: String,
}

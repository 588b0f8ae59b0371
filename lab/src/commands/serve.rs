//! `campanile serve`: a device lent to a VMM.

use crate::atomic_file::say;
use crate::cli::{Failure, ServeNvmeArgs, ServePosterArgs, ServeVirtioArgs};
use crate::input::{InputError, Place};
use crate::platform::Unit;
use crate::setting::Setting;
use bridge::{Drive, FileBlocks, MemoryBlocks, Poster, Served, Server, VirtioDisk};
use machine::nvme::{Blocks, Config, HiddenCoalescing, Latency, Timing};
use machine::time::Ps;
use std::path::Path;
use std::sync::Arc;

/// The largest drive in memory: many times the need of the tests' guests.
const MEMORY_BYTES_MAX: f64 = (64u64 << 30) as f64;

pub(super) fn nvme(args: &ServeNvmeArgs) -> Result<(), Failure> {
    let (blocks, bytes) = storage(args)?;
    let latency = Latency::of(latency(&args.latency)?);
    let config = Config {
        io_queues_max: args.queues,
        hidden_coalescing: args.hidden_coalescing.as_deref().map(hidden_coalescing).transpose()?,
        timing: Timing { slots: args.slots, read: latency, write: latency, ..Timing::default() },
        ..Config::default()
    };
    let drive = Drive::new(blocks, bytes, config).map_err(failed)?;
    serve(
        &args.socket,
        drive.with_posting(args.posting_slots).map_err(failed)?,
        &format!("an NVMe drive of {bytes} bytes"),
    )
}

pub(super) fn poster(args: &ServePosterArgs) -> Result<(), Failure> {
    let poster = Poster { sources: args.sources, threads: args.threads, slots: args.posting_slots };
    serve(&args.socket, poster.try_into().map_err(failed)?, "a poster")
}

pub(super) fn virtio(args: &ServeVirtioArgs) -> Result<(), Failure> {
    let setting = Setting::new(Place::option("--memory"), "", &args.memory);
    let bytes = Unit::Size.read(&setting, 512.0, MEMORY_BYTES_MAX)? as u64;
    let interrupts = args.interrupts.unwrap_or(1 + args.queues);
    let disk = VirtioDisk { bytes, queues: args.queues, interrupts, latency: latency(&args.latency)? };
    let what = format!("a virtio disk of {bytes} bytes with {interrupts} interrupts");
    serve(&args.socket, disk.try_into().map_err(failed)?, &what)
}

fn latency(text: &str) -> Result<Ps, InputError> {
    let latency = Setting::new(Place::option("--latency"), "", text);
    Ok(Ps((Unit::Time.read(&latency, 1.0, 1e9)? * 1000.0) as u64))
}

/// Serves until it is interrupted.
fn serve(socket: &Path, served: Served, what: &str) -> Result<(), Failure> {
    let report = Arc::new(|line: &str| say(format_args!("campanile: {line}")));
    let server = Server::bind(socket, served, report).map_err(failed)?;
    let bound = socket.to_owned();
    let end = move || {
        // Another process may have removed it already.
        _ = std::fs::remove_file(&bound);
        std::process::exit(Failure::Interrupted.exit_code().into());
    };
    ctrlc::set_handler(end).map_err(failed)?;
    say(format_args!("campanile: serving {what} at {}", socket.display()));
    loop {
        server.serve_one().map_err(failed)?;
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Run(error.into())
}

fn storage(args: &ServeNvmeArgs) -> Result<(Arc<dyn Blocks>, u64), InputError> {
    let Some(path) = &args.storage else {
        let setting = Setting::new(Place::option("--memory"), "", &args.memory);
        let bytes = Unit::Size.read(&setting, 4096.0, MEMORY_BYTES_MAX)? as usize;
        return Ok((Arc::new(MemoryBlocks::new(bytes)), bytes as u64));
    };
    let (blocks, bytes) = FileBlocks::open(path).map_err(|error| {
        let why = format!("cannot be opened: {error}");
        InputError::value(&Place::option("--storage"), "", path.display(), &why, "a file of the drive's size")
    })?;
    Ok((Arc::new(blocks), bytes))
}

/// Reads `8,100us`: entries, and the time from the first one.
fn hidden_coalescing(text: &str) -> Result<HiddenCoalescing, InputError> {
    let place = Place::option("--hidden-coalescing");
    let valid = "a number of entries and a time: 8,100us";
    let (entries, time) =
        text.split_once(',').ok_or_else(|| InputError::value(&place, "", text, "has no comma", valid))?;
    let entries = Unit::Count.read(&Setting::new(place.clone(), "entries", entries), 0.0, f64::from(u32::MAX))?;
    let time_ns = Unit::Time.read(&Setting::new(place, "time", time), 1.0, 1e9)?;
    Ok(HiddenCoalescing { entries: entries as u32, time: Ps((time_ns * 1000.0) as u64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_coalescing_is_entries_and_time() {
        let read = |text| hidden_coalescing(text).map_err(|error| error.to_string());
        assert_eq!(read("8,100us"), Ok(HiddenCoalescing { entries: 8, time: Ps(100_000_000) }));
        for wrong in ["8", "8,100", "-1,1us", "8,0ns", "8,2h"] {
            let error = read(wrong).unwrap_err();
            assert!(error.starts_with("--hidden-coalescing: ") && error.contains("valid: "), "{error}");
        }
    }
}

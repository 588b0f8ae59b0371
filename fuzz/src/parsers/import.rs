//! What servers say of themselves: fio's JSON, `/proc/interrupts`, `/proc/stat`, archives. Any text is read without a
//! panic, and what was read makes sense.

use import::archive::{self, Limits};
use import::cpu_time::{CpuTicks, uptime_s};
use import::fio_json::FioOutput;
use import::interrupts::Interrupts;
use lab::server::gather::Server;

/// Two documents, separated by a NUL byte: before and after.
fn pair(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

/// fio's JSON.
pub(crate) fn import_fio_json(data: &[u8]) {
    match FioOutput::parse(data) {
        Ok(output) => {
            for job in &output.jobs {
                for direction in &job.directions {
                    let ascends = direction.percentiles_ns.windows(2).all(|pair| pair[0].0 <= pair[1].0);
                    assert!(ascends, "{:?}", direction.percentiles_ns);
                }
            }
            assert!(!output.iops().is_nan() && !output.bandwidth_bps().is_nan());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Two readings of `/proc/interrupts`.
pub(crate) fn import_interrupts(data: &[u8]) {
    let (before, after) = pair(data);
    let (before, after) = (Interrupts::parse(before), Interrupts::parse(after));
    for reading in [&before, &after] {
        for line in &reading.lines {
            assert!(!line.counts.is_empty() && line.counts.len() <= reading.cpus.len());
            line.actions().into_iter().for_each(|action| assert!(line.text.contains(action)));
        }
    }
    let differences = before.until(&after);
    assert_eq!(differences.len(), after.lines.len());
    differences.iter().for_each(|difference| _ = difference.total());
}

/// What lscpu prints.
fn lscpu(data: &[u8]) {
    for name in ["CPU(s)", "Socket(s)"] {
        assert!(import::lscpu::field(data, &[name]).is_none_or(|value| value.len() <= data.len() * 3));
    }
    assert!(import::lscpu::cpus(data).is_none_or(|cpus| cpus > 0));
    let _ = import::lscpu::sockets(data);
}

/// Two readings of `/proc/stat`, `/proc/uptime`, and lscpu's lines or JSON.
pub(crate) fn import_cpu_time(data: &[u8]) {
    let (before, after) = pair(data);
    if let (Some(before), Some(after)) = (CpuTicks::parse(before), CpuTicks::parse(after))
        && let Some(shares) = before.shares_until(&after)
    {
        let stolen = before.stolen_until(&after).expect("time passed");
        let sum = shares.iter().sum::<f64>() + stolen;
        assert!(
            shares.iter().chain([&stolen]).all(|share| (0.0..=100.0 + 1e-9).contains(share))
                && (sum - 100.0).abs() < 1e-6,
            "{shares:?}, stolen {stolen}"
        );
    }
    assert!(uptime_s(data).is_none_or(|seconds| seconds >= 0.0));
    lscpu(data);
}

/// An archive, within limits; what it holds is gathered as a server.
pub(crate) fn import_archive(data: &[u8]) {
    const LIMITS: Limits = Limits { file_bytes: 4096, total_bytes: 16_384, files: 32, depth: 4 };
    match archive::of_bytes(data, &LIMITS) {
        Ok(contents) => {
            assert!(contents.files.len() <= LIMITS.files);
            assert!(contents.files.values().map(Vec::len).sum::<usize>() as u64 <= LIMITS.total_bytes);
            assert!(
                contents.files.keys().all(|path| !path.starts_with('/') && !path.split('/').any(|part| part == ".."))
            );
            let _ = Server::of_archive(&contents);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

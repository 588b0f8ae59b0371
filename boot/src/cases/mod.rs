//! The cases, by name.

#[cfg(target_arch = "aarch64")]
mod gic;
mod nvme;
#[cfg(target_arch = "x86_64")]
mod pc;
mod pci;
mod reads;
mod virtio;

use crate::arch::Platform;
use crate::kernel::Bare;
use crate::patience::Patience;
use crate::println;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use hal::{Affinity, CpuId, Hal, ThreadSpec, Threads};

#[cfg(target_arch = "aarch64")]
use gic::Fixture;
#[cfg(target_arch = "x86_64")]
use pc::Fixture;

/// The parsed command line: a case and its options, `serial eoimode=1 rounds=100`.
pub(crate) struct Options {
    words: Vec<String>,
}

impl Options {
    fn new(line: &str) -> Self {
        Self { words: line.split_whitespace().map(String::from).collect() }
    }

    /// The case.
    fn case(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The number of the option `name=`, or `default` without that option.
    ///
    /// # Errors
    /// The option's value is not a number.
    pub(crate) fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        let value = self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        match value {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| format!("{name}={value} is not a number")),
        }
    }
}

/// Prints a result of the case.
pub(crate) fn count(name: &str, value: u64) {
    println!("count {name} {value}");
}

/// Runs the case that the command line names.
///
/// # Errors
/// The failure of the case, or an unknown case.
pub(crate) fn run(platform: &'static Platform) -> Result<(), String> {
    let options = Options::new(&platform.command_line);
    #[cfg(target_arch = "aarch64")]
    return gic::run(options.case(), &options, platform);
    #[cfg(target_arch = "x86_64")]
    return pc::run(options.case(), &options, platform);
}

/// Time limit of every wait.
const LIMIT_NS: u64 = 60_000_000_000;

/// Lets other threads run until `done` is true.
///
/// # Errors
/// `done` was still false after a minute.
pub(crate) fn wait(what: &str, done: impl Fn() -> bool) -> Result<(), String> {
    let mut patience = Patience::new(LIMIT_NS, crate::arch::CLOCK.now_ns());
    while !done() {
        if patience.is_over(crate::arch::CLOCK.now_ns()) {
            return Err(format!("{what} did not happen within {} s", LIMIT_NS / 1_000_000_000));
        }
        Bare.yield_now();
    }
    Ok(())
}

/// Longest delay between a device's completion and its interrupt.
const LATE_NS: u64 = 10_000_000;

/// Waits until every CPU has taken the interrupts of earlier completions: a thread has run on each, with interrupts
/// on.
///
/// # Errors
/// A CPU runs nothing.
pub(crate) fn settle(cpus: u32) -> Result<(), String> {
    Bare.delay_ns(LATE_NS);
    for cpu in 0..cpus {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        let spec = ThreadSpec { name: "settle", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
        let body = Box::new(move || runs.store(true, Ordering::SeqCst));
        Bare.spawn(spec, body).map_err(|error| format!("a thread on CPU {cpu}: {error}"))?;
        wait("a thread's run", || ran.load(Ordering::SeqCst))?;
    }
    Ok(())
}

/// Checks that a result has its only valid value.
///
/// # Errors
/// The value differs.
pub(crate) fn expect(what: &str, is: u64, expected: u64) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{is} {what}, expected {expected}")) }
}

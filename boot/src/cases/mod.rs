//! The cases, by name.

#[cfg(target_arch = "aarch64")]
mod gic;

use crate::arch::Platform;
use crate::println;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What the command line says: a case and its options, `serial eoimode=1 rounds=100`.
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

    /// The number that `name=` says, else `default`.
    ///
    /// # Errors
    /// It is no number.
    pub(crate) fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        let value = self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        match value {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| format!("{name}={value} is no number")),
        }
    }
}

/// Prints a figure of the case.
pub(crate) fn count(name: &str, value: u64) {
    println!("count {name} {value}");
}

/// Runs the case that the command line names.
///
/// # Errors
/// What went wrong, or that there is no such case.
pub(crate) fn run(platform: &'static Platform) -> Result<(), String> {
    let options = Options::new(&platform.command_line);
    #[cfg(target_arch = "aarch64")]
    return gic::run(options.case(), &options, platform);
}

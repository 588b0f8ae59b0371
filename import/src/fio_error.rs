//! Why a text of fio's is not read.

use crate::fio_json::BYTES_MAX;
use std::fmt;

/// Why a text is not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FioJsonError {
    /// It has no JSON object.
    NoJson,
    /// It has no results, but a message of fio's.
    Said(String),
    /// The JSON ends or breaks: the parser's words.
    Broken(String),
    /// The JSON has no jobs.
    NoJobs,
    /// It has more than [`BYTES_MAX`] bytes.
    TooLong,
    /// It has more of something than a limit: what, and the limit.
    TooMany(&'static str, usize),
}

impl fmt::Display for FioJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJson => {
                f.write_str("holds no JSON; valid: what `fio --output-format=json` prints, or fio's whole text")
            }
            Self::Said(what) => write!(f, "has no results; fio says {what:?}"),
            Self::Broken(why) => write!(f, "holds broken JSON ({why}); it may be cut off"),
            Self::NoJobs => f.write_str("holds JSON without `jobs` or `client_stats`; valid: what fio prints"),
            Self::TooLong => write!(f, "has more than {BYTES_MAX} bytes"),
            Self::TooMany(what, most) => write!(f, "holds more than {most} {what}"),
        }
    }
}

impl std::error::Error for FioJsonError {}

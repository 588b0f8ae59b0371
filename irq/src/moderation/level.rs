//! The consumer's own table of levels.

use alloc::vec::Vec;
use core::fmt;

/// One level. The device interrupts when this many completions wait, or when the first has waited this long, whichever
/// comes first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Setting {
    /// How long the first completion may wait, in microseconds. 0: not at all.
    pub delay_us: u32,
    /// How many completions end the wait. 0 or 1: every completion interrupts.
    pub completions: u32,
}

impl Setting {
    /// An interrupt for every completion.
    pub const OFF: Self = Self::new(0, 1);

    /// `delay_us` or `completions`, whichever comes first.
    pub const fn new(delay_us: u32, completions: u32) -> Self {
        Self { delay_us, completions }
    }

    /// True if this level goes at least as far as `other` in both respects, and further in one.
    fn is_above(self, other: Self) -> bool {
        self != other && self.delay_us >= other.delay_us && self.completions >= other.completions
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} µs or {}", self.delay_us, self.completions)
    }
}

/// Why a table of levels, or a parameter given with it, was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelError {
    /// The table has no level.
    Empty,
    /// The table has more than [`LevelTable::LEVELS_MAX`] levels: this many.
    TooMany(usize),
    /// A level does not go further than the one below it.
    Unsorted {
        /// The level's index.
        index: usize,
        /// The level's setting.
        level: Setting,
        /// The setting of the level below.
        below: Setting,
    },
    /// A sample of no events was asked for.
    Events,
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the table of levels is empty; it needs at least 1"),
            Self::TooMany(count) => {
                write!(f, "the table has {count} levels; 1 to {} are possible", LevelTable::LEVELS_MAX)
            }
            Self::Unsorted { index, level, below } => write!(
                f,
                "level {index} ({level}) must exceed the one below it ({below}) in delay or count, and neither may fall"
            ),
            Self::Events => write!(f, "a sample of 0 events; at least 1 is needed"),
        }
    }
}

impl core::error::Error for LevelError {}

/// Levels sorted from the lowest latency to the highest throughput.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelTable(Vec<Setting>);

impl LevelTable {
    /// The most levels a table can have.
    pub const LEVELS_MAX: usize = 64;

    /// The levels of rdma_dim (include/linux/dim.h, `rdma_dim_prof`).
    pub const RDMA_DIM: [Setting; 9] = [
        Setting::new(1, 1),
        Setting::new(1, 4),
        Setting::new(2, 4),
        Setting::new(2, 8),
        Setting::new(4, 8),
        Setting::new(16, 8),
        Setting::new(16, 16),
        Setting::new(32, 16),
        Setting::new(32, 32),
    ];

    /// The levels of net_dim for receive queues whose period starts with an event (lib/dim/net_dim.c).
    pub const NET_DIM_RX: [Setting; 5] = [
        Setting::new(1, 256),
        Setting::new(8, 256),
        Setting::new(64, 256),
        Setting::new(128, 256),
        Setting::new(256, 256),
    ];

    /// A table of these levels.
    ///
    /// # Errors
    /// [`LevelError`] when there are none or too many, or they are not sorted.
    pub fn new(levels: impl Into<Vec<Setting>>) -> Result<Self, LevelError> {
        let levels = levels.into();
        if levels.is_empty() {
            return Err(LevelError::Empty);
        }
        if levels.len() > Self::LEVELS_MAX {
            return Err(LevelError::TooMany(levels.len()));
        }
        if let Some(below) = levels.windows(2).position(|pair| !pair[1].is_above(pair[0])) {
            return Err(LevelError::Unsorted { index: below + 1, level: levels[below + 1], below: levels[below] });
        }
        Ok(Self(levels))
    }

    /// The highest index.
    pub fn last(&self) -> usize {
        self.0.len() - 1
    }

    /// The setting of a level.
    ///
    /// # Panics
    /// When `level` is above [`LevelTable::last`].
    pub fn setting(&self, level: usize) -> Setting {
        self.0[level]
    }
}

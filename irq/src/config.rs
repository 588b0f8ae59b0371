//! What a core is built for.

use crate::{IrqError, Vector};

/// The size and the bounds of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreConfig {
    /// CPUs, online or not.
    pub cpus: u32,
    /// CPUs online from the start: 0 up to, not including, this.
    pub cpus_online: u32,
    /// Lines that can exist at a time.
    pub lines_max: u32,
    /// The first vector that devices may have.
    pub device_first: Vector,
    /// The last one.
    pub device_last: Vector,
    /// The longest that an interrupt message is under way after its sender was told otherwise, in nanoseconds. An
    /// abandoned vector is not given away before, and a CPU that goes offline waits for as long.
    pub flight_ns: u64,
    /// Every handler that can runs in a thread (Linux's `threadirqs`).
    pub force_threads: bool,
    /// When a line is a storm.
    pub storm: StormConfig,
}

/// When a line storms, and for how long it is then masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StormConfig {
    /// Interrupts after which the line is looked at.
    pub burst: u32,
    /// A burst that took less is a storm, in nanoseconds.
    pub burst_ns_min: u64,
    /// A burst of which more were not handled is a storm too.
    pub unhandled_max: u32,
    /// How long the line stays masked, in nanoseconds.
    pub throttle_ns: u64,
}

impl Default for StormConfig {
    /// Two million interrupts a second on one line, or 99.9 % unhandled (Linux's bound); masked for 10 ms.
    fn default() -> Self {
        Self { burst: 100_000, burst_ns_min: 50_000_000, unhandled_max: 99_900, throttle_ns: 10_000_000 }
    }
}

impl CoreConfig {
    /// The x86 layout for `cpus` CPUs: device vectors 0x20 to 0xea, below posted delivery's 0xeb; 1 ms of flight.
    pub fn x86(cpus: u32, lines_max: u32) -> Self {
        Self {
            cpus,
            cpus_online: cpus,
            lines_max,
            device_first: Vector(0x20),
            device_last: Vector(0xea),
            flight_ns: 1_000_000,
            force_threads: false,
            storm: StormConfig::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), IrqError> {
        if self.cpus_online == 0 || self.cpus_online > self.cpus {
            return Err(IrqError::Config("at least 1 and at most all CPUs must be online"));
        }
        if self.device_first.0 < 0x20 || self.device_first > self.device_last {
            return Err(IrqError::Config("device vectors must be an ascending range from 0x20 up"));
        }
        if self.storm.burst == 0 {
            return Err(IrqError::Config("a storm's burst is at least 1 interrupt"));
        }
        Ok(())
    }
}

//! The parameters of a core.

use crate::{Identity, IrqError};

/// More identities than any controller gives a CPU. It bounds tables that have one entry per identity.
const IDENTITIES_MAX: u32 = 1 << 20;

/// The size and the limits of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreConfig {
    /// Number of CPUs, online or not.
    pub cpus: u32,
    /// The first CPU of this core. Those before it belong to another system, and are never online here. All others are online
    /// from the start, unless [`IrqCore::set_online`](crate::IrqCore::set_online) says which are.
    pub first_cpu: u32,
    /// Most lines that can exist at the same time.
    pub lines_max: u32,
    /// The identities of each CPU's controller. None if no line needs an identity
    /// ([`crate::IrqDomain::needs_identity`]).
    pub identities: Option<IdentitySpace>,
    /// The longest time that an interrupt message stays under way after its sender was redirected, in nanoseconds. An
    /// abandoned vector is not reused earlier, and a CPU that goes offline waits as long.
    pub flight_ns: u64,
    /// When the core treats a line as storming.
    pub storm: StormConfig,
}

/// The interrupt identities of a CPU's controller, and the range that devices may use. The system uses the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentitySpace {
    /// The first identity that is an interrupt. Lower ones are exceptions, or do not exist.
    pub first: Identity,
    /// The last identity.
    pub last: Identity,
    /// The first identity that devices may use.
    pub device_first: Identity,
    /// The last identity that devices may use.
    pub device_last: Identity,
}

impl IdentitySpace {
    /// Number of entries of a table with one entry per identity.
    pub(crate) fn entries(&self) -> u32 {
        self.last.0.saturating_add(1)
    }

    /// True if `identity` may be a system vector.
    pub(crate) fn is_system(&self, identity: Identity) -> bool {
        (self.first..=self.last).contains(&identity) && !(self.device_first..=self.device_last).contains(&identity)
    }
}

/// When a line is a storm, and how long the core then masks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StormConfig {
    /// Number of interrupts in a burst. The core checks the line after each burst.
    pub burst: u32,
    /// A burst that took less time than this is a storm, in nanoseconds.
    pub burst_ns_min: u64,
    /// A burst with more unhandled interrupts than this is a storm too.
    pub unhandled_max: u32,
    /// How long the line stays masked, in nanoseconds. While nobody handles it, each storm that begins when the line was let go
    /// doubles the time, up to 64 times this.
    pub throttle_ns: u64,
}

impl Default for StormConfig {
    /// A storm is two million interrupts a second on one line, or 99.9 % unhandled (Linux's bound). The mask lasts 10
    /// ms, and up to 640 ms where nobody handles the line.
    fn default() -> Self {
        Self { burst: 100_000, burst_ns_min: 50_000_000, unhandled_max: 99_900, throttle_ns: 10_000_000 }
    }
}

impl CoreConfig {
    /// All `cpus` CPUs are online, there are no identities, messages take at most 1 ms, and no handler is forced into
    /// a thread. This suits a controller that names its lines, such as a GIC.
    pub fn new(cpus: u32, lines_max: u32) -> Self {
        Self { cpus, first_cpu: 0, lines_max, identities: None, flight_ns: 1_000_000, storm: StormConfig::default() }
    }

    pub(crate) fn validate(&self) -> Result<(), IrqError> {
        if self.first_cpu >= self.cpus {
            return Err(IrqError::Config("no CPU belongs to this system"));
        }
        if let Some(IdentitySpace { first, last, device_first, device_last }) = self.identities
            && !(first <= device_first && device_first <= device_last && device_last <= last && last.0 < IDENTITIES_MAX)
        {
            return Err(IrqError::Config(
                "device identities must be an ascending range inside the controller's, below 2^20",
            ));
        }
        if self.storm.burst == 0 {
            return Err(IrqError::Config("a storm's burst is at least 1 interrupt"));
        }
        Ok(())
    }
}

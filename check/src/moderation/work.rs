//! What both kinds of consumer are to the load and to managers.

use irq::moderation::Setting;

/// A consumer with a load that it carries on by itself.
pub(super) trait Source: Send + Sync {
    /// So many commands more.
    fn add(&self, count: u64);
    /// At most so many more.
    fn trim(&self, most: u64);
    /// So many under way from now on; 0: it stops.
    fn set_depth(&self, depth: u64);
    /// All has completed.
    fn is_idle(&self) -> bool;
    /// Completions so far.
    fn completed(&self) -> u64;
    /// Looks without an interrupt; the tuning learns of it.
    fn poll_direct(&self, most: u32) -> u32;
    /// What its device gathers now.
    fn setting(&self) -> Setting;
    /// Its state, for people.
    fn describe(&self) -> String;
}

//! The interface of both kinds of consumer for the load and for managers.

use irq::moderation::Setting;

/// A consumer with a load that it carries on by itself.
pub(super) trait Source: Send + Sync {
    /// Adds this many commands.
    fn add(&self, count: u64);
    /// Adds at most this many commands.
    fn trim(&self, most: u64);
    /// Sets the number of commands under way; 0 stops the load.
    fn set_depth(&self, depth: u64);
    /// True if all commands have completed.
    fn is_idle(&self) -> bool;
    /// Completions so far.
    fn completed(&self) -> u64;
    /// Looks for completions without an interrupt; reports them to the tuning.
    fn poll_direct(&self, most: u32) -> u32;
    /// The moderation that its device has now.
    fn setting(&self) -> Setting;
    /// At rest and for good: whatever it can give to its device is refused once the device has as much as it can take.
    fn fill(&self) {}
    /// Its state, for people.
    fn describe(&self) -> String;
}

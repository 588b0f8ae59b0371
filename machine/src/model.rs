//! What a device or controller model is, and what it may do.

use crate::time::Ps;
use crate::world::World;

/// The number under which a model stands in its machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModelId(pub u32);

/// Width of a register access in bytes: 4 or 8 (smaller ones do not occur on the regions that exist).
pub type WidthBytes = u8;

/// A device or controller: registers on one side, events on the other.
///
/// Models are called by the machine, one at a time, and never call coroutine code: what they cause happens through
/// [`World`], as an event at a later time or at this one with a later sequence number.
pub trait Model {
    /// Shown in traces and faults.
    fn name(&self) -> &str;
    /// An event that this model scheduled, or that a bus completed for it: `code` and `arg` are its own.
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64);
    /// A CPU reads a register of `region` (0, 1, …: the model's own numbering).
    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width: WidthBytes) -> u64;
    /// A CPU's write arrives.
    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width: WidthBytes, value: u64);
    /// Busy time so far, of whatever part of the model is its own bottleneck.
    fn busy(&self) -> Ps {
        Ps(0)
    }
}

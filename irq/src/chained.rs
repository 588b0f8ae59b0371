//! Chained controllers: the handler of a line asks a second controller which of its own lines is raised.
//!
//! One example is a GPIO block behind one line of the GIC. The lines of the block live in a root domain of their own,
//! without vectors. [`IrqCore::handle_irq`] delivers them, inside the flow of the parent line. That flow, of whichever
//! kind, does what begins and ends the parent line: ack and eoi once each in strict flow, mask and unmask in level
//! flow. The demultiplexer cannot forget any of these calls.

use crate::delivery::IrqCore;
use crate::{Action, Irq, IrqError, IrqReturn, RequestFlags};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use hal::Hal;

/// Asks a controller which of its lines are raised and calls [`IrqCore::handle_irq`] for each. Returns true if any
/// line was raised.
pub type Demultiplexer<H> = Arc<dyn Fn(&IrqCore<H>) -> IrqReturn + Send + Sync>;

struct Chained<H: Hal> {
    core: Weak<IrqCore<H>>,
    demultiplexer: Demultiplexer<H>,
}

impl<H: Hal> Action for Chained<H> {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.core.upgrade().map_or(IrqReturn::None, |core| (self.demultiplexer)(&core))
    }
}

impl<H: Hal> IrqCore<H> {
    /// Makes `irq` the parent line of a second controller, and starts it. Such a line is never shared and its handler
    /// is never forced into a thread. Pass the returned handler to [`IrqCore::free`] to undo this.
    ///
    /// # Errors
    /// [`IrqError::NotShared`] when the line has a handler.
    pub fn request_chained(
        self: &Arc<Self>,
        irq: Irq,
        name: impl Into<String>,
        demultiplexer: Demultiplexer<H>,
    ) -> Result<Arc<dyn Action>, IrqError> {
        let chained: Arc<dyn Action> = Arc::new(Chained { core: Arc::downgrade(self), demultiplexer });
        let flags = RequestFlags { no_thread: true, ..RequestFlags::default() };
        self.request(irq, name, flags, chained.clone())?;
        Ok(chained)
    }
}

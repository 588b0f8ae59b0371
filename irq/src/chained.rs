//! Chained controllers: a line whose handler asks a further controller which of that one's lines it is.
//!
//! A GPIO block behind one line of the GIC, for example. Its lines live in a root domain of its own, without vectors,
//! and are delivered by [`IrqCore::handle_irq`], inside the flow of the line that they are chained to. What enters and
//! leaves that line is its own flow, whichever it is: ack and eoi, each once, in strict flow; mask and unmask in level
//! flow. The demultiplexer cannot forget one.

use crate::delivery::IrqCore;
use crate::{Action, Irq, IrqError, IrqReturn, RequestFlags};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use hal::Hal;

/// Asks a controller which of its lines are raised and calls [`IrqCore::handle_irq`] for each; says whether there was
/// one.
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
    /// Gives `irq` to a further controller, and starts it. Never shared, never forced into a thread. The handler that
    /// is returned takes it back ([`IrqCore::free`]).
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

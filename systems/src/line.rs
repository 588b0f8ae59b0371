//! Lines and handlers as guards.
//!
//! A [`Handler`] keeps its [`Line`] alive. The line is freed once its guard and the guards of all its handlers are
//! gone, in whichever order they are dropped. The wrong order cannot happen.
//!
//! Removing a handler waits until it no longer runs anywhere. With interrupts off, that wait could be for code that
//! itself waits for this CPU. A handler cannot wait for itself either. So there is one rule: drop guards with
//! interrupts on, and not in a handler or thread of their line. [`Handler::free`] and [`Line::free`] refuse otherwise
//! and give the guard back. A drop cannot refuse: it disables the line and leaves handler and line in the core for
//! ever. Then nothing is freed that may still run, and nothing hangs.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use hal::{CpuId, CpuSet, Hal, Threads, Word};
use irq::{Action, AllocRequest, Flow, Irq, IrqCore, IrqDomain, IrqError, RequestFlags};

/// A line of the core. It is freed when the last reference is dropped.
struct Owned<H: Hal> {
    core: Arc<IrqCore<H>>,
    irq: Irq,
    /// 1 if the drop must not free the line: it was freed already, or it lives as long as the core.
    done: H::Word,
}

impl<H: Hal> Drop for Owned<H> {
    fn drop(&mut self) {
        if self.done.get() == 0 {
            // Refused only if handlers without a guard are installed, or while a CPU has a per-CPU line enabled. The core
            // then keeps the line.
            _ = self.core.free_line(self.irq);
        }
    }
}

/// The guard of a line.
pub struct Line<H: Hal> {
    owned: Arc<Owned<H>>,
}

impl<H: Hal> Line<H> {
    /// Allocates a line: see [`IrqCore::alloc_line`].
    ///
    /// # Errors
    /// The error of the core, a domain or a chip.
    pub fn alloc(
        core: &Arc<IrqCore<H>>,
        domain: Arc<dyn IrqDomain>,
        request: &AllocRequest,
        flow: Flow,
    ) -> Result<Self, IrqError> {
        let irq = core.alloc_line(domain, request, flow)?;
        Ok(Self { owned: Arc::new(Owned { core: core.clone(), irq, done: H::Word::new(0) }) })
    }

    /// The line's number in the core.
    pub fn irq(&self) -> Irq {
        self.owned.irq
    }

    /// The core of the line.
    pub fn core(&self) -> &Arc<IrqCore<H>> {
        &self.owned.core
    }

    /// Installs a handler. It is removed when the returned guard is dropped: see [`IrqCore::request`].
    ///
    /// # Errors
    /// The error of the core.
    pub fn request(
        &self,
        name: impl Into<String>,
        flags: RequestFlags,
        action: Arc<dyn Action>,
    ) -> Result<Handler<H>, IrqError> {
        self.core().request(self.irq(), name, flags, action.clone())?;
        Ok(self.handler(action))
    }

    /// Installs a handler with a thread: see [`IrqCore::request_threaded`].
    ///
    /// # Errors
    /// The error of the core.
    pub fn request_threaded(
        &self,
        name: impl Into<String>,
        flags: RequestFlags,
        primary: Option<Arc<dyn Action>>,
        thread: Arc<dyn Action>,
    ) -> Result<Handler<H>, IrqError>
    where
        H: Threads,
    {
        let known_by = primary.clone().unwrap_or_else(|| thread.clone());
        self.core().request_threaded(self.irq(), name, flags, primary, thread)?;
        Ok(self.handler(known_by))
    }

    /// Makes the line a pseudo-NMI and installs its handler: see [`IrqCore::request_nmi`].
    ///
    /// # Errors
    /// The error of the core or a chip.
    pub fn request_nmi(&self, name: impl Into<String>, action: Arc<dyn Action>) -> Result<Handler<H>, IrqError> {
        self.core().request_nmi(self.irq(), name, action.clone())?;
        Ok(self.handler(action))
    }

    fn handler(&self, action: Arc<dyn Action>) -> Handler<H> {
        Handler { line: self.owned.clone(), action, live: true }
    }

    /// Sets the CPUs on which the line may be delivered, and moves it there: see [`IrqCore::set_affinity`].
    ///
    /// # Errors
    /// The error of the core or a chip; the line then stays where it was.
    pub fn set_affinity(&self, cpus: &CpuSet) -> Result<(), IrqError> {
        self.core().set_affinity(self.irq(), cpus)
    }

    /// Disables the line, and waits until its handlers have ended. The line stays disabled until the returned guard is
    /// dropped.
    ///
    /// # Errors
    /// [`IrqError::InHandler`] from a handler of the line, [`IrqError::PerCpu`].
    pub fn disable(&self) -> Result<Disabled<'_, H>, IrqError> {
        self.core().disable(self.irq())?;
        Ok(Disabled { line: self })
    }

    /// How many interrupts of the line came on `cpu`.
    pub fn count(&self, cpu: CpuId) -> u64 {
        self.core().count(self.irq(), cpu)
    }

    /// Gives the guard up: the line lives as long as the core.
    pub fn keep(self) -> Irq {
        self.owned.done.set(1);
        self.irq()
    }

    /// Frees the line now.
    ///
    /// # Errors
    /// The guard, with [`IrqError::InUse`] while the line has handlers, [`IrqError::EnabledOn`] while a CPU has a per-CPU
    /// line enabled, or [`IrqError::InHandler`].
    pub fn free(self) -> Result<(), (Self, IrqError)> {
        let irq = self.irq();
        let owned = Arc::try_unwrap(self.owned).map_err(|owned| (Self { owned }, IrqError::InUse(irq)))?;
        match owned.core.free_line(irq) {
            Ok(()) => owned.done.set(1),
            Err(error) => return Err((Self { owned: Arc::new(owned) }, error)),
        }
        Ok(())
    }
}

impl<H: Hal> fmt::Debug for Line<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({})", self.irq())
    }
}

/// The guard of a handler, which keeps its line alive.
pub struct Handler<H: Hal> {
    line: Arc<Owned<H>>,
    /// The handler by which the core knows the entry.
    action: Arc<dyn Action>,
    /// False once [`Handler::free`] has removed the handler.
    live: bool,
}

impl<H: Hal> Handler<H> {
    /// The number of its line.
    pub fn irq(&self) -> Irq {
        self.line.irq
    }

    /// Gives the guard up: the handler, and with it the line, lives as long as the core.
    pub fn keep(mut self) -> Irq {
        self.live = false;
        self.line.done.set(1);
        self.irq()
    }

    /// Removes the handler. Returns once it no longer runs anywhere and its thread has ended: see [`IrqCore::free`].
    ///
    /// # Errors
    /// The guard, with [`IrqError::InHandler`] with interrupts off, or in a handler or thread of the line;
    /// [`IrqError::EnabledOn`] while a CPU has a per-CPU line enabled.
    pub fn free(mut self) -> Result<(), (Self, IrqError)> {
        match self.remove() {
            Ok(()) => {
                self.live = false;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    fn remove(&self) -> Result<(), IrqError> {
        let Owned { core, irq, .. } = &*self.line;
        let hal = core.hal();
        let before = hal.irq_save();
        hal.irq_restore(before);
        if !before.were_on {
            return Err(IrqError::InHandler(*irq));
        }
        core.free(*irq, &self.action)
    }
}

impl<H: Hal> Drop for Handler<H> {
    fn drop(&mut self) {
        if self.live && self.remove().is_err() {
            // Disabling does not wait. A per-CPU line refuses it: each CPU that enabled the line keeps it enabled.
            _ = self.line.core.disable_nosync(self.line.irq);
            self.line.done.set(1);
        }
    }
}

impl<H: Hal> fmt::Debug for Handler<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handler({})", self.irq())
    }
}

/// A line is disabled while this lives.
#[must_use = "the line is enabled again when this is dropped"]
pub struct Disabled<'a, H: Hal> {
    line: &'a Line<H>,
}

impl<H: Hal> Drop for Disabled<'_, H> {
    fn drop(&mut self) {
        // Refused only when someone undid more disables than there were: the line is then enabled already.
        _ = self.line.core().enable(self.line.irq());
    }
}

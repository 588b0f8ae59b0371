//! Handlers come and go; lines are disabled and enabled.

use crate::delivery::IrqCore;
use crate::hardware::Hardware;
use crate::line::{Entry, Installed, Line, LineState};
use crate::thread::{self, Both, DefaultPrimary, IrqThread};
use crate::{Action, Flow, Irq, IrqError};
use alloc::string::String;
use alloc::sync::Arc;
use hal::{Affinity, Hal, ThreadOps, Threads, Word};

/// How long a wait that no word announces sleeps between looks.
pub(crate) const RELAX_NS: u64 = 1_000;

/// How a handler is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestFlags {
    /// Others may have a handler on the line too, if they all say so.
    pub shared: bool,
    /// The line starts disabled, to be enabled with [`IrqCore::enable`]. Only for the first handler.
    pub start_disabled: bool,
    /// The line does not interrupt again before the handler's thread is done (ONESHOT). All handlers of a line must
    /// agree. Without effect where no line needs it ([`crate::ChipBehaviour::oneshot_safe`]).
    pub oneshot: bool,
    /// The handler stays in the interrupt although all that can are forced into threads
    /// ([`IrqCore::force_threads`]).
    pub no_thread: bool,
}

/// The handler to install.
pub(crate) struct Wanted {
    shared: bool,
    oneshot: bool,
    action: Arc<dyn Action>,
    primary: Arc<dyn Action>,
    thread: Option<Arc<dyn Action>>,
}

impl Wanted {
    /// A handler that stays in the interrupt and shares its line with none.
    pub(crate) fn plain(action: Arc<dyn Action>) -> Self {
        Self { shared: false, oneshot: false, primary: action.clone(), action, thread: None }
    }

    fn new(
        flags: RequestFlags,
        primary: Option<Arc<dyn Action>>,
        thread: Option<Arc<dyn Action>>,
        forced: bool,
    ) -> Option<Self> {
        let action = primary.clone().or_else(|| thread.clone())?;
        let wanted = |oneshot, primary, thread| Self { shared: flags.shared, oneshot, action, primary, thread };
        Some(match (primary, thread) {
            (Some(primary), Some(thread)) if forced => {
                wanted(true, Arc::new(DefaultPrimary), Some(Arc::new(Both { primary, thread })))
            }
            (Some(primary), None) if forced => wanted(true, Arc::new(DefaultPrimary), Some(primary)),
            (Some(primary), thread) => wanted(flags.oneshot, primary, thread),
            (None, thread) => wanted(flags.oneshot, Arc::new(DefaultPrimary), thread),
        })
    }
}

impl<H: Hal> IrqCore<H> {
    /// Installs a handler; the first one starts the line, except a per-CPU line, which each CPU starts for itself
    /// ([`IrqCore::enable_percpu`]).
    ///
    /// # Errors
    /// [`IrqError::NotShared`] when the line has a handler and not both share, or not both are ONESHOT; what
    /// [`IrqCore::request_threaded`] says, where the handler is forced into a thread.
    pub fn request(
        &self,
        irq: Irq,
        name: impl Into<String>,
        flags: RequestFlags,
        action: Arc<dyn Action>,
    ) -> Result<(), IrqError> {
        self.install(irq, name.into(), flags, [Some(action), None], self.forced)
    }

    /// Installs a handler with a thread: `primary` runs in the interrupt and wakes the thread by
    /// [`crate::IrqReturn::WakeThread`]; without it, every interrupt does. `thread` is then run in the thread, with
    /// interrupts on, on the CPU to which the line is delivered. Not to be called from an interrupt.
    ///
    /// # Errors
    /// As [`IrqCore::request`]; [`IrqError::NeedsOneshot`] without a primary handler, without ONESHOT, and with a chip
    /// that is not [`crate::ChipBehaviour::oneshot_safe`]; [`IrqError::Flow`] for a per-CPU line, or for ONESHOT when the
    /// line cannot be held back; [`IrqError::NoThread`], and [`IrqError::Exhausted`] above
    /// [`crate::handover::THREADS_MAX`] threads.
    pub fn request_threaded(
        &self,
        irq: Irq,
        name: impl Into<String>,
        flags: RequestFlags,
        primary: Option<Arc<dyn Action>>,
        thread: Arc<dyn Action>,
    ) -> Result<(), IrqError>
    where
        H: Threads,
    {
        self.install(irq, name.into(), flags, [primary, Some(thread)], Some(self.threads.know()))
    }

    fn install(
        &self,
        irq: Irq,
        name: String,
        flags: RequestFlags,
        [primary, thread]: [Option<Arc<dyn Action>>; 2],
        threads: Option<&'static ThreadOps<H>>,
    ) -> Result<(), IrqError> {
        let line = self.line(irq)?;
        let mut state = line.state.lock();
        let hardware = state.live(irq)?;
        let forced = self.forced.is_some() && !(flags.no_thread || flags.oneshot || state.flow == Flow::PerCpu);
        let wanted = Wanted::new(flags, primary, thread, forced);
        let Some(mut wanted) = wanted else { return Err(IrqError::NoAction(irq)) };
        wanted.oneshot &= wanted.thread.is_some() && !hardware.ops.oneshot_safe;
        admit(&state, &hardware, &wanted)?;
        let (Some(function), Some(threads)) = (wanted.thread.clone(), threads) else {
            self.add(line, &mut state, &hardware, name, flags, wanted, None);
            return Ok(());
        };
        let number = thread::number(&mut state)?;
        let affinity = state.target().map_or(Affinity::Any, |target| Affinity::Cpu(target.cpu));
        drop(state);
        let started = self.start_thread(threads, irq, number, affinity, function);
        let mut state = line.state.lock();
        let id = started.inspect_err(|_| state.thread_numbers &= !(1 << number))?;
        let thread = IrqThread { number, id, oneshot: wanted.oneshot };
        // Another may have come first, or the line may have gone.
        let admitted = state.live(irq).and_then(|hardware| admit(&state, &hardware, &wanted).map(|()| hardware));
        match admitted {
            Ok(hardware) => self.add(line, &mut state, &hardware, name, flags, wanted, Some(thread)),
            Err(error) => {
                drop(state);
                self.stop_thread(line, thread);
                return Err(error);
            }
        }
        self.follow(&state);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the halves of a request meet here")]
    pub(crate) fn add(
        &self,
        line: &Line<H>,
        state: &mut LineState,
        hardware: &Arc<Hardware>,
        name: String,
        flags: RequestFlags,
        wanted: Wanted,
        thread: Option<IrqThread>,
    ) {
        if state.entries.is_empty() {
            state.depth = u32::from(flags.start_disabled);
            state.storm.restart(self.hal.now_ns());
            state.is_deaf = false;
        }
        state.thread_ids.extend(thread.map(|thread| thread.id));
        let Wanted { shared, oneshot, action, primary, .. } = wanted;
        state.entries.push(Entry { name, shared, oneshot, action, installed: Installed { primary, thread } });
        state.refresh_actions();
        if state.is_unlocked() {
            line.publish(state, hardware);
        }
        if state.flow != Flow::PerCpu {
            self.unmask(state);
        }
    }

    /// Removes a handler, named by itself or by its thread function, and waits until it runs no more and its thread
    /// has ended; the last one stops the line. Not to be called by a handler of a per-CPU line, which cannot be told
    /// apart and would wait for itself, and, when the handler has a thread, not from an interrupt.
    ///
    /// # Errors
    /// [`IrqError::NoAction`] when it is not installed, [`IrqError::InHandler`] from a handler or thread of the line,
    /// [`IrqError::EnabledOn`] while a CPU has a per-CPU line enabled.
    pub fn free(&self, irq: Irq, action: &Arc<dyn Action>) -> Result<(), IrqError> {
        self.check_not_in_handler(irq)?;
        let line = self.line(irq)?;
        let removed = {
            let mut state = line.state.lock();
            state.live(irq)?;
            let is_it = |entry: &Entry| core::ptr::addr_eq(Arc::as_ptr(&entry.action), Arc::as_ptr(action));
            let index = state.entries.iter().position(is_it).ok_or(IrqError::NoAction(irq))?;
            if let Some(cpu) = state.percpu_enabled.iter().next() {
                return Err(IrqError::EnabledOn(irq, cpu));
            }
            let removed = state.entries.remove(index);
            state.refresh_actions();
            if state.entries.is_empty() {
                state.mask();
                state.pending = false;
            }
            removed
        };
        line.withdraw();
        line.end_nmi();
        self.wait_for_handlers(line);
        if let Some(thread) = removed.installed.thread {
            self.stop_thread(line, thread);
        }
        // The last reference may be this one: a handler's drop runs without the lock.
        drop(removed);
        Ok(())
    }

    /// Waits until no handler of the line runs that ran when this was called, and no thread of it, and until the
    /// controller has been told of their end. Per-CPU lines and NMIs keep no such state: of those only
    /// [`IrqCore::free`] waits.
    ///
    /// # Errors
    /// [`IrqError::InHandler`] from a handler or thread of the line, which would wait for itself.
    pub fn synchronize(&self, irq: Irq) -> Result<(), IrqError> {
        self.check_not_in_handler(irq)?;
        let line = self.line(irq)?;
        self.wait_for_handlers(line);
        self.wait_for_threads(line, |line| line.handover.working() == 0);
        // The last of them ends the interrupt and unmasks the line before it lets the lock go.
        drop(line.state.lock());
        Ok(())
    }

    fn wait_for_handlers(&self, line: &Line<H>) {
        loop {
            match line.running.load() {
                0 => return,
                running => self.hal.relax_on(&line.running, running, u64::MAX),
            }
        }
    }

    /// Handlers run with interrupts off. So code that runs on the handler's CPU was called by the handler.
    fn check_not_in_handler(&self, irq: Irq) -> Result<(), IrqError> {
        let line = self.line(irq)?;
        let state = line.state.lock();
        let mine = line.running.get() == u64::from(self.hal.cpu().0) + 1;
        let me = self.threads.get().map(|threads| (threads.current_thread)(self.hal));
        // Also while another CPU frees its handler and waits for it.
        let thread = me.is_some_and(|me| state.thread_ids.contains(&me));
        if mine || thread { Err(IrqError::InHandler(irq)) } else { Ok(()) }
    }

    /// Disables the line, and waits until its handlers and threads run no more. Nests.
    ///
    /// # Errors
    /// [`IrqError::InHandler`] from a handler or thread of the line: use [`IrqCore::disable_nosync`] there;
    /// [`IrqError::PerCpu`].
    pub fn disable(&self, irq: Irq) -> Result<(), IrqError> {
        self.check_not_in_handler(irq)?;
        self.disable_nosync(irq)?;
        self.synchronize(irq)
    }

    /// Disables the line without waiting. Interrupts that come meanwhile stay pending until [`IrqCore::enable`].
    ///
    /// # Errors
    /// [`IrqError::NoLine`], [`IrqError::PerCpu`].
    pub fn disable_nosync(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        state.live(irq)?;
        if state.flow == Flow::PerCpu {
            return Err(IrqError::PerCpu(irq));
        }
        state.depth += 1;
        state.mask();
        Ok(())
    }

    /// Undoes one disable; the last one lets interrupts come again.
    ///
    /// # Errors
    /// [`IrqError::NotDisabled`] without a disable to undo.
    pub fn enable(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        state.live(irq)?;
        state.depth = state.depth.checked_sub(1).ok_or(IrqError::NotDisabled(irq))?;
        self.unmask(&mut state);
        Ok(())
    }
}

/// Checks that the line can take this handler beside its present ones.
fn admit(state: &LineState, hardware: &Hardware, wanted: &Wanted) -> Result<(), IrqError> {
    let irq = hardware.irq;
    let agree = |other: &Entry| other.shared && wanted.shared && other.oneshot == wanted.oneshot;
    // Handlers that are found without a lock are installed one at a time.
    let alone = state.is_unlocked();
    if state.entries.iter().any(|other| alone || !agree(other)) {
        return Err(IrqError::NotShared(irq));
    }
    if wanted.thread.is_none() {
        return Ok(());
    }
    if alone {
        return Err(IrqError::Flow(state.flow, "a handler without a thread"));
    }
    // Its primary handler is the default one when the driver knows the entry by its thread function.
    let default = wanted.thread.as_ref().is_some_and(|thread| Arc::ptr_eq(thread, &wanted.action));
    if default && !wanted.oneshot && !hardware.ops.oneshot_safe {
        return Err(IrqError::NeedsOneshot(irq));
    }
    if wanted.oneshot { hardware.check_oneshot(state.flow) } else { Ok(()) }
}

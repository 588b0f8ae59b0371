//! Lines that the driver holds by guards ([`systems::Line`]): the drop of a guard gives back what it stands for, whichever goes
//! first.

use super::harness;
use super::source::{Handler, Kind, Source, Style};
use super::stack::{GicStack, STRAY};
use crate::verdict::violate;
use hal::{CpuSet, Hal as _};
use irq::{Action, AllocRequest, Flow, Irq, IrqCore, IrqDomain, IrqError, IrqReturn, LineView, RequestFlags};
use machine::SimHal;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use systems::{Handler as HandlerGuard, Line};

const CHECKER: &str = "guards";

/// The guards of one source.
#[derive(Default)]
struct Held {
    line: Option<Arc<Line<SimHal>>>,
    handler: Option<HandlerGuard<SimHal>>,
}

/// The guards of all sources.
pub(super) struct Guards {
    /// Sources with guards, by the last bits of their numbers.
    guarded: u64,
    held: Vec<Mutex<Held>>,
    /// Counts removals, so that the ways of giving back take turns.
    turns: AtomicU32,
}

impl Guards {
    pub(super) fn new(guarded: u64, sources: usize) -> Self {
        Self { guarded, held: (0..sources).map(|_| Mutex::default()).collect(), turns: AtomicU32::new(0) }
    }

    /// True if some source may have guards.
    pub(super) fn any(&self) -> bool {
        self.guarded != 0
    }

    fn held(&self, index: usize) -> MutexGuard<'_, Held> {
        self.held[index].lock().expect("one host thread")
    }

    /// The guard of a source's line, for one that the caller has claimed.
    pub(super) fn line(&self, index: usize) -> Option<Arc<Line<SimHal>>> {
        self.held(index).line.clone()
    }

    fn turn(&self) -> u32 {
        self.turns.fetch_add(1, Relaxed)
    }

    /// Allocates a line, by a guard where the source has guards.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn alloc(
        &self,
        source: &Source,
        core: &Arc<IrqCore<SimHal>>,
        domain: Arc<dyn IrqDomain>,
        request: &AllocRequest,
        flow: Flow,
    ) -> Result<Irq, IrqError> {
        let index = source.number as usize;
        if self.guarded >> (index % 4) & 1 == 0 {
            return core.alloc_line(domain, request, flow);
        }
        // A guard that a failed try has left gives its line back first.
        drop(self.held(index).line.take());
        let line = Line::alloc(core, domain, request, flow)?;
        let irq = line.irq();
        if !Arc::ptr_eq(line.core(), core) {
            violate(CHECKER, "a line is of another core than the one that was asked");
        }
        self.held(index).line = Some(Arc::new(line));
        Ok(irq)
    }

    /// Installs a handler, or one with a thread. False: the source has no guards.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn install(&self, source: &Source, [whole, thread]: &[Arc<Handler>; 2]) -> Result<bool, IrqError> {
        let index = source.number as usize;
        let Some(line) = self.line(index) else { return Ok(false) };
        let flags = RequestFlags::default();
        let handler = match (source.kind, source.style) {
            (Kind::Nmi { .. }, _) => line.request_nmi("nmi", whole.clone()),
            (_, Style::Plain) => line.request("plain", flags, whole.clone()),
            (_, Style::Oneshot) => {
                let flags = RequestFlags { oneshot: true, ..flags };
                line.request_threaded("oneshot", flags, Some(whole.clone()), thread.clone())
            }
        }?;
        if handler.irq() != line.irq()
            || format!("{handler:?}, {line:?}") != format!("Handler({0}), Line({0})", line.irq())
        {
            violate(CHECKER, format!("{handler:?} of {line:?} is of line {}", handler.irq()));
        }
        self.held(index).handler = Some(handler);
        Ok(true)
    }

    /// Takes the handler off: by its guard's drop, or after a refusal. False: the source has no guards.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn remove(&self, index: usize) -> Result<bool, IrqError> {
        let Some(mut handler) = self.held(index).handler.take() else { return Ok(false) };
        match self.turn() % 3 {
            0 => {
                drop(handler);
                return Ok(true);
            }
            1 => {
                // A handler may run on this CPU below.
                let off = SimHal.irq_save();
                let refused = handler.free();
                SimHal.irq_restore(off);
                handler = match refused {
                    Err((handler, IrqError::InHandler(_))) => handler,
                    Err((_, error)) => violate(CHECKER, format!("free with interrupts off: {error}")),
                    Ok(()) => violate(CHECKER, "a handler was freed with interrupts off"),
                };
            }
            _ => {}
        }
        handler.free().map(|()| true).map_err(|(_, error)| error)
    }

    /// Frees a line whose handler is gone, by its guard or by its drop. None: the source has no guards.
    pub(super) fn free_line(&self, index: usize) -> Option<Result<(), IrqError>> {
        let line = self.held(index).line.take()?;
        let (irq, core) = (line.irq(), line.core().clone());
        let before = core.view(irq);
        let freed = match Arc::try_unwrap(line) {
            Ok(line) if self.turn().is_multiple_of(2) => line.free().map_err(|(_, error)| error),
            line => {
                drop(line);
                Ok(())
            }
        };
        // Its number may have gone to another line meanwhile.
        let is_same = |before: &LineView| core.view(irq).is_some_and(|view| view.levels == before.levels);
        if freed.is_ok() && before.as_ref().is_some_and(is_same) {
            violate(CHECKER, format!("line {irq} is there without its guard"));
        }
        Some(freed)
    }

    /// Frees handler and line, the line's guard first: the line stays until the handler is gone. False: the source has no
    /// guards, or another order takes its turn.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn free_line_first(&self, index: usize) -> Result<bool, IrqError> {
        if self.turn().is_multiple_of(2) || self.held(index).handler.is_none() {
            return Ok(false);
        }
        let Some(line) = self.held(index).line.take() else { return Ok(false) };
        let (irq, core) = (line.irq(), line.core().clone());
        let refused = Arc::try_unwrap(line).map(Line::free);
        match refused {
            Ok(Err((line, IrqError::InUse(_)))) => drop(line),
            Ok(Err((_, error))) => violate(CHECKER, format!("free of a line with a handler: {error}")),
            Ok(Ok(())) => violate(CHECKER, format!("line {irq} was freed with a handler")),
            Err(shared) => drop(shared),
        }
        let before = core.view(irq).filter(|view| !view.handlers.is_empty());
        let Some(before) = before else { violate(CHECKER, format!("line {irq} has gone before its handler")) };
        self.remove(index)?;
        // Its number may have gone to another line meanwhile.
        if core.view(irq).is_some_and(|view| view.levels == before.levels) {
            violate(CHECKER, format!("line {irq} is there without its last guard"));
        }
        Ok(true)
    }
}

/// The machine is gone, and with it the hardware that a drop would give back.
impl Drop for Guards {
    fn drop(&mut self) {
        for held in &mut self.held {
            let Held { line, handler } = std::mem::take(held.get_mut().unwrap_or_else(PoisonError::into_inner));
            handler.into_iter().for_each(|handler| _ = handler.keep());
            line.and_then(Arc::into_inner).into_iter().for_each(|line| _ = line.keep());
        }
    }
}

/// Disables the line of a source that the caller has claimed, for a while, by guards.
pub(super) fn disable(stack: &GicStack, source: &Source, line: &Line<SimHal>, ns: u64, twice: bool) {
    let core = line.core();
    let depth = || core.view(line.irq()).map_or(0, |view| view.disabled_depth);
    let before = depth();
    let disable = || match line.disable() {
        Ok(disabled) => Some(disabled),
        Err(error) => {
            stack.check("disable", Err(error));
            None
        }
    };
    let Some(outer) = disable() else { return };
    stack.silence(source, true);
    if twice {
        let inner = disable();
        SimHal.delay_ns(ns);
        if depth() != before + 2 {
            violate(CHECKER, format!("two guards disable line {}, and it counts {}", line.irq(), depth() - before));
        }
        drop(inner);
        stack.saw("disable: one within another");
    }
    SimHal.delay_ns(ns);
    if depth() != before + 1 {
        violate(CHECKER, format!("a guard disables line {}, and it counts {}", line.irq(), depth() - before));
    }
    stack.silence(source, false);
    drop(outer);
    if depth() != before {
        violate(CHECKER, format!("line {} is disabled without a guard", line.irq()));
    }
    stack.saw("guard: disabled and enabled");
}

/// The spare line's handler.
struct Idle;

impl Action for Idle {
    fn handle(&self, _: Irq) -> IrqReturn {
        IrqReturn::None
    }
}

/// A line that was refused its end, because of a handler without a guard, ends with its guard when the handler is gone.
pub(super) fn refuse(stack: &GicStack) {
    let (core, arm) = (&stack.system.core, &stack.system.arm);
    let request = AllocRequest { affinity: CpuSet::first(stack.system.cpus), ..harness::request(STRAY) };
    let Ok(line) = Line::alloc(core, arm.domain(), &request, arm.flow()) else { return };
    let (irq, idle): (_, Arc<dyn Action>) = (line.irq(), Arc::new(Idle));
    stack.check("request without a guard", core.request(irq, "idle", RequestFlags::default(), idle.clone()));
    let line = match line.free() {
        Err((line, IrqError::InUse(_))) => line,
        Err((_, error)) => violate(CHECKER, format!("free of a line with a handler: {error}")),
        Ok(()) => violate(CHECKER, format!("line {irq} was freed with a handler")),
    };
    stack.check("free without a guard", core.free(irq, &idle));
    let before = core.view(irq);
    drop(line);
    if core.view(irq).is_some_and(|view| before.is_some_and(|before| before.levels == view.levels)) {
        violate(CHECKER, format!("line {irq} was refused its end once, and is there without its guard"));
    }
    stack.freed.fetch_add(1, Relaxed);
}

/// What a guard says of its line is what the core says.
pub(super) fn check(stack: &GicStack) {
    for source in &stack.sources {
        let Some(line) = stack.guards.line(source.number as usize) else { continue };
        if source.line() != Some(line.irq()) {
            violate(
                CHECKER,
                format!("source {} has line {:?}, and the guard of {}", source.number, source.line(), line.irq()),
            );
        }
        for cpu in CpuSet::first(stack.system.cpus).iter() {
            let (says, counts) = (line.count(cpu), line.core().count(line.irq(), cpu));
            if says != counts {
                violate(
                    CHECKER,
                    format!("the guard of line {} counts {says} on CPU {cpu}, the core {counts}", line.irq()),
                );
            }
        }
    }
}

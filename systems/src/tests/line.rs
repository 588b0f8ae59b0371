use super::{CPU0, Call, FIRST, core, request};
use crate::{Handler, Line};
use alloc::sync::Arc;
use hal::Hal as _;
use hal::host::HostHal;
use irq::{Flow, Irq, IrqCore, IrqDomain, IrqError, RequestFlags};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

type Core = Arc<IrqCore<HostHal>>;

fn world() -> (HostHal, Core, Arc<dyn IrqDomain>) {
    let hal = HostHal::manual(2);
    let (core, domain) = core(hal);
    (hal, Arc::new(core), Arc::new(domain))
}

fn line(core: &Core, domain: &Arc<dyn IrqDomain>) -> Line<HostHal> {
    Line::alloc(core, domain.clone(), &request(), Flow::Edge).unwrap()
}

fn counted(line: &Line<HostHal>) -> (Handler<HostHal>, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let action = Call(move |_| _ = counter.fetch_add(1, SeqCst));
    (line.request("test", RequestFlags::default(), Arc::new(action)).unwrap(), count)
}

fn is_live(core: &Core, irq: Irq) -> bool {
    core.set_affinity(irq, &request().affinity) != Err(IrqError::NoLine(irq))
}

#[test]
fn a_line_lives_as_long_as_its_last_guard() {
    let (hal, core, domain) = world();
    let line = line(&core, &domain);
    let irq = line.irq();
    let (handler, count) = counted(&line);
    drop(line);
    hal.interrupt(CPU0, || core.handle_vector(FIRST));
    assert_eq!(count.load(SeqCst), 1, "the handler keeps its line");
    drop(handler);
    assert!(!is_live(&core, irq));
    hal.interrupt(CPU0, || core.handle_vector(FIRST));
    assert_eq!((count.load(SeqCst), Arc::strong_count(&count)), (1, 1), "the handler is gone");
}

#[test]
fn a_line_with_handlers_is_not_freed() {
    let (_, core, domain) = world();
    let line = line(&core, &domain);
    let irq = line.irq();
    let (handler, _) = counted(&line);
    let (line, error) = line.free().unwrap_err();
    assert_eq!(error, IrqError::InUse(irq));
    handler.free().unwrap();
    line.free().unwrap();
    assert!(!is_live(&core, irq));
    assert_eq!(Arc::strong_count(&core), 1, "no guard is left");
}

#[test]
fn a_guard_that_was_given_up_frees_nothing() {
    let (_, core, domain) = world();
    let line = line(&core, &domain);
    let (handler, _) = counted(&line);
    let irq = handler.keep();
    drop(line);
    assert!(is_live(&core, irq));
}

#[test]
fn a_handler_that_drops_its_own_guard_disables_its_line() {
    let (hal, core, domain) = world();
    let line = line(&core, &domain);
    let slot: Arc<Mutex<Option<Handler<HostHal>>>> = Arc::default();
    let (own, count) = (slot.clone(), Arc::new(AtomicU32::new(0)));
    let calls = count.clone();
    let action = Call(move |_| {
        calls.fetch_add(1, SeqCst);
        drop(own.lock().unwrap().take());
    });
    let handler = line.request("test", RequestFlags::default(), Arc::new(action)).unwrap();
    *slot.lock().unwrap() = Some(handler);
    for _ in 0..2 {
        hal.interrupt(CPU0, || core.handle_vector(FIRST));
    }
    assert_eq!(count.load(SeqCst), 1, "it is disabled, and kept");
    let irq = line.irq();
    drop(line);
    assert!(is_live(&core, irq));
}

#[test]
fn with_interrupts_off_a_handler_is_not_removed() {
    let (hal, core, domain) = world();
    let line = line(&core, &domain);
    let (handler, count) = counted(&line);
    let off = hal.irq_save();
    let (handler, error) = handler.free().unwrap_err();
    hal.irq_restore(off);
    assert_eq!(error, IrqError::InHandler(line.irq()));
    hal.interrupt(CPU0, || core.handle_vector(FIRST));
    assert_eq!(count.load(SeqCst), 1);
    handler.free().unwrap();
}

#[test]
fn a_line_is_disabled_as_long_as_its_guard_lives() {
    let (hal, core, domain) = world();
    let line = line(&core, &domain);
    let (_handler, count) = counted(&line);
    let disabled = line.disable().unwrap();
    hal.interrupt(CPU0, || core.handle_vector(FIRST));
    assert_eq!(count.load(SeqCst), 0);
    drop(disabled);
    hal.interrupt(CPU0, || core.handle_vector(FIRST));
    assert!(count.load(SeqCst) >= 1);
    assert_eq!(line.count(CPU0), core.count(line.irq(), CPU0));
}

//! The machine that this host thread runs.

use super::Core;
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<*const Core> = const { Cell::new(core::ptr::null()) };
}

/// Makes `core` this host thread's machine.
///
/// # Panics
/// When the thread already has a machine: a thread-local holds it, so a thread has at most one.
pub(crate) fn install(core: &Core) {
    CURRENT.with(|current| {
        assert!(current.get().is_null(), "this host thread runs a machine already");
        current.set(core);
    });
}

/// Forgets it.
pub(crate) fn uninstall() {
    CURRENT.with(|current| current.set(core::ptr::null()));
}

/// Calls `f` with this thread's machine.
///
/// # Panics
/// When the thread has none.
#[allow(unsafe_code)]
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Core) -> R) -> R {
    let core = CURRENT.with(Cell::get);
    assert!(!core.is_null(), "no machine runs on this host thread");
    // SAFETY: `Machine` owns the boxed core, installs it when it is built and uninstalls it before it goes.
    f(unsafe { &*core })
}

/// Calls `f` with this thread's machine, if it has one.
#[allow(unsafe_code)]
#[inline]
pub(crate) fn try_with(f: impl FnOnce(&Core)) {
    let core = CURRENT.with(Cell::get);
    if !core.is_null() {
        // SAFETY: as in `with`.
        f(unsafe { &*core });
    }
}

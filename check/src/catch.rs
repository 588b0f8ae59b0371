//! Turns panics of the code under test into failures of a history. The program goes on.

use crate::verdict::{Failure, Kind};
use machine::time::Ps;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// While a history runs on this thread: place and message of the last panic.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
    static CATCHING: RefCell<u32> = const { RefCell::new(0) };
}

/// Keeps the panics of histories, and prints all others as usual.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CATCHING.with_borrow(|depth| *depth == 0) {
                return before(info);
            }
            let what = info.payload_as_str().unwrap_or("a panic without a text");
            let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
            // Only where RUST_BACKTRACE asks for it.
            let trace = Backtrace::capture();
            let trace = if trace.status() == BacktraceStatus::Captured { format!("\n{trace}") } else { String::new() };
            LAST.set(Some(format!("{what}{}{trace}", place.unwrap_or_default())));
        }));
    });
}

/// Runs `body`. A panic becomes a [`Kind::Crash`]; a failure that [`crate::verdict::violate`] threw stays as it is.
pub(crate) fn panics<R>(body: impl FnOnce() -> R) -> Result<R, Failure> {
    install_hook();
    CATCHING.with_borrow_mut(|depth| *depth += 1);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    CATCHING.with_borrow_mut(|depth| *depth -= 1);
    result.map_err(|payload| match payload.downcast::<Failure>() {
        Ok(failure) => *failure,
        Err(_) => Failure::new(Kind::Crash, "panic", Ps(0), LAST.take().unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_crash_with_its_place() {
        let failure = panics(|| panic!("broken at {}", 7)).unwrap_err();
        assert_eq!((failure.kind, failure.checker), (Kind::Crash, "panic"));
        assert!(failure.text.starts_with("broken at 7 (") && failure.text.contains("catch.rs:"), "{}", failure.text);
        assert_eq!(panics(|| 3), Ok(3));
    }

    #[test]
    fn a_violation_stays_what_it_is() {
        let wrong = Failure::new(Kind::Correctness, "handlers", Ps(5), "called");
        let thrown = wrong.clone();
        assert_eq!(panics(move || panic::panic_any(thrown)), Err(wrong));
    }
}

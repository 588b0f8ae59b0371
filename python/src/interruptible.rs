//! Work without the interpreter's lock, which Ctrl-C ends and whose panics are errors.

use crate::{InputError, RunError};
use lab::cli::Failure;
use lab::interrupt::StopFlag;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Time between two looks for signals.
const LOOK: Duration = Duration::from_millis(50);
/// As the main thread of the command has it.
const STACK_BYTES: usize = 8 << 20;

/// Runs `work` on a thread of its own. The first Ctrl-C sets the stop flag and waits for the end; a second one leaves the
/// thread to itself.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&StopFlag) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let stop = StopFlag::default();
    let (done, wait) = mpsc::channel();
    let flag = stop.clone();
    let body = move || _ = done.send(catch_unwind(AssertUnwindSafe(|| work(&flag))));
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body)?;
    // A receiver cannot be shared, and the closure below must be able to go to another thread.
    let wait = Mutex::new(wait);
    let look = || wait.lock().expect("no other thread has it").recv_timeout(LOOK);
    let mut interrupted = None;
    loop {
        match (py.detach(look), interrupted.take()) {
            (Err(RecvTimeoutError::Timeout), before) => match (py.check_signals(), before) {
                (Err(signal), Some(_)) => return Err(signal),
                (Err(signal), None) => {
                    stop.set();
                    interrupted = Some(signal);
                }
                (Ok(()), before) => interrupted = before,
            },
            (_, Some(signal)) => return Err(signal),
            (Ok(Ok(result)), None) => return result.map_err(error),
            (Ok(Err(panic)), None) => return Err(panicked(&*panic)),
            (Err(RecvTimeoutError::Disconnected), None) => return Err(panicked(&"the thread has gone")),
        }
    }
}

/// The exception of a failure, with the text that the command prints.
pub(crate) fn error(failure: Failure) -> PyErr {
    let text = failure.to_string();
    let text = text.trim_end().to_owned();
    match (&failure, failure.exit_code()) {
        (Failure::Interrupted, _) => PyKeyboardInterrupt::new_err(text),
        (_, 2) => InputError::new_err(text),
        _ => RunError::new_err(text),
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    RunError::new_err(format!("the program panicked, which is a defect of it: {}", text.unwrap_or("without a text")))
}

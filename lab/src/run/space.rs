//! Whether this process has address space for a machine's memory. A machine asks for all of it at once, and cannot do without.

use super::RunError;
use std::cell::Cell;
use std::sync::Mutex;

/// Held from the question to the answer's use, since machines are built on several host threads.
static BUILDING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Memory of this host thread's last machine, which the next one of that size takes over.
    static LAST_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Builds a machine of so much memory.
///
/// # Errors
/// The process has no address space for it.
pub(super) fn build<M>(memory_bytes: usize, machine: impl FnOnce() -> M) -> Result<M, RunError> {
    let _building = BUILDING.lock().unwrap_or_else(|poison| poison.into_inner());
    if LAST_BYTES.get() != memory_bytes && !is_there(memory_bytes) {
        return Err(RunError::NoSpace(memory_bytes));
    }
    LAST_BYTES.set(memory_bytes);
    Ok(machine())
}

fn is_there(bytes: usize) -> bool {
    let mut asked = Vec::<u8>::new();
    let answer = asked.try_reserve_exact(bytes);
    // A compiler may take an allocation that nobody uses for one that succeeds.
    std::hint::black_box(&asked);
    answer.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_too_much_memory_is_refused_before_it_is_built() {
        let bytes = 1 << 50;
        let built = build(bytes, || panic!("the host has no such address space"));
        assert!(matches!(built, Err::<(), _>(RunError::NoSpace(asked)) if asked == bytes));
        assert!(matches!(build(1 << 20, || 7), Ok(7)));
    }
}

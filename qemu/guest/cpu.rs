//! The CPU that a thread of a guest runs on.

use crate::system::{Outcome, check};
use std::os::raw::c_int;

unsafe extern "C" {
    fn sched_setaffinity(pid: c_int, bytes: usize, mask: *const u64) -> c_int;
}

/// Binds the calling thread to a CPU.
pub(crate) fn bind(cpu: usize) -> Outcome<()> {
    let mask = 1_u64 << cpu;
    // SAFETY: the mask lives during the call.
    check(&format!("CPU {cpu}"), unsafe { sched_setaffinity(0, 8, &mask) } == 0)
}

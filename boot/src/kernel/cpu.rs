//! What each CPU keeps, and the way of an interrupt into the kernel.

use super::threads;
use crate::arch;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use hal::CpuId;
use spin::Once;

/// CPUs at most.
pub(crate) const CPUS_MAX: usize = 16;

/// One CPU; only it writes what is not atomic by nature.
pub(crate) struct Cpu {
    /// Interrupts that it handles, one on top of another.
    depth: AtomicU32,
    /// Something better is ready than what it runs.
    pub(crate) need_resched: AtomicBool,
    /// It looks at its run queue by itself.
    pub(crate) in_idle: AtomicBool,
    up: AtomicBool,
}

static CPUS: [Cpu; CPUS_MAX] = [const {
    Cpu {
        depth: AtomicU32::new(0),
        need_resched: AtomicBool::new(false),
        in_idle: AtomicBool::new(false),
        up: AtomicBool::new(false),
    }
}; CPUS_MAX];

/// How an interrupt came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exception {
    /// Through this vector; 0 where the controller tells which interrupt it is.
    Interrupt(u8),
}

type Entry = Box<dyn Fn(Exception) + Send + Sync>;
type Kick = Box<dyn Fn(CpuId) + Send + Sync>;

static ENTRY: Once<Entry> = Once::new();
static KICK: Once<Kick> = Once::new();

/// Says what handles interrupts and what makes another CPU look at its run queue. Once.
pub(crate) fn set_entry(
    entry: impl Fn(Exception) + Send + Sync + 'static,
    kick: impl Fn(CpuId) + Send + Sync + 'static,
) {
    ENTRY.call_once(|| Box::new(entry));
    KICK.call_once(|| Box::new(kick));
}

/// The running CPU.
pub(crate) fn this() -> &'static Cpu {
    of(arch::cpu())
}

/// A CPU by number.
pub(crate) fn of(cpu: u32) -> &'static Cpu {
    &CPUS[cpu as usize]
}

/// The running CPU takes threads from now on.
pub(crate) fn set_up() {
    this().up.store(true, Ordering::Release);
}

/// Whether `cpu` does.
pub(crate) fn is_up(cpu: u32) -> bool {
    of(cpu).up.load(Ordering::Acquire)
}

/// Sends a reschedule IPI.
pub(crate) fn kick(cpu: CpuId) {
    if let Some(kick) = KICK.get() {
        kick(cpu);
    }
}

/// Whether an interrupt is being handled here.
pub(crate) fn in_interrupt() -> bool {
    this().depth.load(Ordering::Relaxed) > 0
}

/// An interrupt, on the stack of what it interrupted, with interrupts off. May return on that stack much later: another
/// thread may run in between.
pub(crate) fn exception(exception: Exception) {
    let cpu = this();
    cpu.depth.store(cpu.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    match ENTRY.get() {
        Some(entry) => entry(exception),
        None => unexpected(exception),
    }
    let depth = cpu.depth.load(Ordering::Relaxed) - 1;
    cpu.depth.store(depth, Ordering::Relaxed);
    if depth == 0 && cpu.need_resched.load(Ordering::Relaxed) && !cpu.in_idle.load(Ordering::Relaxed) {
        threads::reschedule();
    }
}

#[cold]
fn unexpected(exception: Exception) -> ! {
    panic!("{exception:?} before anything handles interrupts")
}

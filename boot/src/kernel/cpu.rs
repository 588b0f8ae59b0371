//! Per-CPU state, and the entry of interrupts into the kernel.

use super::threads;
use crate::arch;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use hal::CpuId;
use spin::Once;

/// Maximum number of CPUs.
pub(crate) const CPUS_MAX: usize = 16;

/// State of one CPU. Only that CPU writes the fields that are not atomic.
pub(crate) struct Cpu {
    /// Nesting depth of the interrupts that it handles.
    depth: AtomicU32,
    /// A better thread than the running one is ready.
    pub(crate) need_resched: AtomicBool,
    /// The CPU is in its idle loop, which looks at the run queue without a kick.
    pub(crate) in_idle: AtomicBool,
    /// Ordinary interrupts are held back by the interrupt controller's priority mask, while the exception is open.
    pub(crate) held_by_priority: AtomicBool,
    up: AtomicBool,
}

static CPUS: [Cpu; CPUS_MAX] = [const {
    Cpu {
        depth: AtomicU32::new(0),
        need_resched: AtomicBool::new(false),
        in_idle: AtomicBool::new(false),
        held_by_priority: AtomicBool::new(false),
        up: AtomicBool::new(false),
    }
}; CPUS_MAX];

/// How an interrupt entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exception {
    /// Its vector; 0 on machines where the interrupt controller identifies the interrupt.
    Interrupt(u8),
}

type Entry = Box<dyn Fn(Exception) + Send + Sync>;
type Kick = Box<dyn Fn(CpuId) + Send + Sync>;

type Timer = Box<dyn Fn(Option<u64>) + Send + Sync>;

static TIMER: Once<Timer> = Once::new();
static ENTRY: Once<Entry> = Once::new();
static KICK: Once<Kick> = Once::new();

/// Sets the handler of interrupts, and the function that makes another CPU look at its run queue. Call it once.
pub(crate) fn set_entry(
    entry: impl Fn(Exception) + Send + Sync + 'static,
    kick: impl Fn(CpuId) + Send + Sync + 'static,
) {
    ENTRY.call_once(|| Box::new(entry));
    KICK.call_once(|| Box::new(kick));
}

/// Sets the function that programs this CPU's timer, to a number of nanoseconds or to never. Call it once. Until then
/// the kernel uses the architecture's timer.
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "the cases of PCs use the architecture's timer"))]
pub(crate) fn set_timer_with(timer: impl Fn(Option<u64>) + Send + Sync + 'static) {
    TIMER.call_once(|| Box::new(timer));
}

/// Programs this CPU's timer to interrupt after `wait_ns`; `None` stops it. Interrupts are off.
pub(crate) fn set_timer(wait_ns: Option<u64>) {
    match TIMER.get() {
        Some(timer) => timer(wait_ns),
        None => arch::set_timer(wait_ns),
    }
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

/// True if `cpu` takes threads.
pub(crate) fn is_up(cpu: u32) -> bool {
    of(cpu).up.load(Ordering::Acquire)
}

/// Sends a reschedule IPI.
pub(crate) fn kick(cpu: CpuId) {
    if let Some(kick) = KICK.get() {
        kick(cpu);
    }
}

/// True while this CPU handles an interrupt.
pub(crate) fn in_interrupt() -> bool {
    this().depth.load(Ordering::Relaxed) > 0
}

/// Handles an interrupt on the stack of the interrupted thread, with interrupts off. Other threads may run before it
/// returns on that stack.
pub(crate) fn exception(exception: Exception) {
    let cpu = this();
    cpu.depth.store(cpu.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    match ENTRY.get() {
        Some(entry) => entry(exception),
        None => unexpected(exception),
    }
    let depth = cpu.depth.load(Ordering::Relaxed) - 1;
    cpu.depth.store(depth, Ordering::Relaxed);
    // What holds interrupts back must not lose its CPU.
    let may_switch =
        depth == 0 && !cpu.in_idle.load(Ordering::Relaxed) && !cpu.held_by_priority.load(Ordering::Relaxed);
    if may_switch && cpu.need_resched.load(Ordering::Relaxed) {
        threads::reschedule();
    }
}

#[cold]
fn unexpected(exception: Exception) -> ! {
    panic!("{exception:?} before anything handles interrupts")
}

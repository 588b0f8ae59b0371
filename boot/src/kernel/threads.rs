//! Threads: `sched` picks the thread to run, and this module switches stacks.
//!
//! One lock guards the scheduler and the saved stack pointers. As the scheduler requires, it is held from the pick
//! until the CPU runs on the new stack. The thread that was switched to releases it.
#![allow(unsafe_code)]

use super::{STACK_BYTES, cpu};
use crate::arch;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use hal::{Affinity, CpuId, SpawnError, ThreadBody, ThreadId, ThreadSpec};
use sched::{Choice, Scheduler};
use spin::Mutex;

/// A thread's time slice while another thread waits.
const SLICE_NS: u64 = 2_000_000;

struct Threads {
    sched: Scheduler,
    /// Saved stack pointer of each thread.
    stacks: Vec<usize>,
    bodies: Vec<Option<ThreadBody>>,
    /// Saved pointer of each CPU's own stack. The CPU idles on that stack when it runs on no thread's stack.
    idle: [usize; cpu::CPUS_MAX],
    /// The stack on which each CPU runs: a thread's, or its own.
    stands_on: [Option<ThreadId>; cpu::CPUS_MAX],
}

static THREADS: Mutex<Option<Threads>> = Mutex::new(None);

/// Runs `f` under the lock, with interrupts off.
fn with<R>(f: impl FnOnce(&mut Threads) -> R) -> R {
    let were_on = metal::interrupts_off();
    let result = f(THREADS.lock().as_mut().expect("threads are set up at boot"));
    if were_on {
        metal::interrupts_on();
    }
    result
}

/// Sets up the scheduler for CPUs 0 up to `cpus`.
pub(crate) fn init(cpus: u32) {
    assert!(cpus as usize <= cpu::CPUS_MAX, "{cpus} CPUs; at most {}", cpu::CPUS_MAX);
    *THREADS.lock() = Some(Threads {
        sched: Scheduler::new(cpus, SLICE_NS),
        stacks: Vec::new(),
        bodies: Vec::new(),
        idle: [0; cpu::CPUS_MAX],
        stands_on: [None; cpu::CPUS_MAX],
    });
}

/// Starts a thread.
///
/// # Errors
/// As [`hal::Threads::spawn`].
pub(crate) fn spawn(spec: &ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError> {
    let stack = Box::leak(alloc::vec![0_u128; STACK_BYTES / 16].into_boxed_slice());
    let pointer = arch::new_stack(stack.as_ptr_range().end.addr(), first_steps);
    let (id, kicked) = with(|threads| {
        let (id, kicked) = threads.sched.spawn(spec)?;
        threads.stacks.push(pointer);
        threads.bodies.push(Some(body));
        Ok((id, kicked))
    })?;
    after_wake(kicked);
    Ok(id)
}

/// The thread that owns the current stack. While the CPU idles, this thread lends it the stack.
pub(crate) fn current() -> Option<ThreadId> {
    with(|threads| threads.stands_on[arch::cpu() as usize])
}

/// Puts the running thread to sleep until it is woken.
pub(crate) fn park() {
    assert!(!cpu::in_interrupt(), "an interrupt cannot park");
    let were_on = metal::interrupts_off();
    if with(|threads| threads.sched.park(CpuId(arch::cpu()))) {
        schedule();
    }
    if were_on {
        metal::interrupts_on();
    }
}

/// Wakes `thread`.
pub(crate) fn wake(thread: ThreadId) {
    after_wake(with(|threads| threads.sched.wake(thread)));
}

/// Changes the CPUs on which `thread` may run.
///
/// # Errors
/// As [`hal::Threads::set_affinity`].
pub(crate) fn set_affinity(thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError> {
    let kicked = with(|threads| threads.sched.set_affinity(thread, affinity))?;
    kicked.into_iter().for_each(|cpu| after_wake(Some(cpu)));
    Ok(())
}

/// Takes the CPU out of the scheduler, or puts it back.
pub(crate) fn set_online(cpu: CpuId, online: bool) {
    let mut kicked = Vec::new();
    with(|threads| match online {
        true => _ = threads.sched.online(cpu).then(|| kicked.push(cpu)),
        false => threads.sched.offline(cpu, |cpu| kicked.push(cpu)),
    });
    kicked.into_iter().for_each(|cpu| after_wake(Some(cpu)));
}

/// Lets other threads run, except in an interrupt or with interrupts off.
pub(crate) fn yield_if_possible() {
    let were_on = metal::interrupts_off();
    if were_on && !cpu::in_interrupt() && !cpu::this().in_idle.load(Ordering::Relaxed) {
        with(|threads| threads.sched.yield_now(CpuId(arch::cpu())));
        schedule();
    }
    if were_on {
        metal::interrupts_on();
    }
}

/// Turns interrupts on. Switches to a better thread that was woken while they were off.
#[inline]
pub(crate) fn enable() {
    let cpu = cpu::this();
    let asked = cpu.need_resched.load(Ordering::Relaxed);
    if asked && !cpu::in_interrupt() && !cpu.in_idle.load(Ordering::Relaxed) {
        schedule();
    }
    metal::interrupts_on();
}

/// Runs at the end of an interrupt, with interrupts off, when a better thread is ready.
pub(crate) fn reschedule() {
    schedule();
}

/// Handles the timer's interrupt, which may end a slice.
pub(crate) fn tick() {
    // The timer's line stays raised until the timer is programmed again.
    cpu::set_timer(None);
    let now_ns = arch::CLOCK.now_ns();
    let gives_way = with(|threads| threads.sched.tick(CpuId(arch::cpu()), now_ns));
    if gives_way {
        cpu::this().need_resched.store(true, Ordering::Relaxed);
    } else {
        arm_slice();
    }
}

/// Makes `kicked` look at its run queue.
fn after_wake(kicked: Option<CpuId>) {
    let Some(target) = kicked else { return with_slice() };
    let were_on = metal::interrupts_off();
    cpu::of(target.0).need_resched.store(true, Ordering::Release);
    if target.0 != arch::cpu() {
        cpu::kick(target);
    } else if were_on && !cpu::in_interrupt() && !cpu::this().in_idle.load(Ordering::Relaxed) && current().is_some() {
        schedule();
    }
    if were_on {
        metal::interrupts_on();
    }
}

/// A waiting thread may need a slice of this CPU.
fn with_slice() {
    let were_on = metal::interrupts_off();
    arm_slice();
    if were_on {
        metal::interrupts_on();
    }
}

/// The timer runs only while another thread waits for this CPU.
fn arm_slice() {
    let deadline_ns = with(|threads| threads.sched.next_deadline_ns(CpuId(arch::cpu())));
    let now_ns = arch::CLOCK.now_ns();
    cpu::set_timer(deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now_ns).max(10_000)));
}

/// Switches to the thread that the scheduler picks. Returns when this stack is picked again, perhaps on another CPU.
/// Interrupts are off.
fn schedule() {
    loop {
        let mut guard = THREADS.lock();
        let threads = guard.as_mut().expect("threads are set up at boot");
        let (me, now_ns) = (arch::cpu() as usize, arch::CLOCK.now_ns());
        cpu::this().need_resched.store(false, Ordering::Relaxed);
        match threads.sched.pick(CpuId(me as u32), now_ns) {
            Choice::Thread(next) if threads.stands_on[me] == Some(next) => {
                drop(guard);
                return arm_slice();
            }
            Choice::Thread(next) => {
                let save: *mut usize = match threads.stands_on[me] {
                    Some(thread) => &raw mut threads.stacks[thread.0 as usize],
                    None => &raw mut threads.idle[me],
                };
                threads.stands_on[me] = Some(next);
                let pointer = threads.stacks[next.0 as usize];
                switch(guard, save, pointer);
                return arm_slice();
            }
            Choice::Idle => {
                drop(guard);
                idle_wait();
            }
        }
    }
}

/// Leaves this stack with the lock held. The next CPU to run on this stack holds the lock, and releases it.
fn switch(guard: spin::MutexGuard<'_, Option<Threads>>, save: *mut usize, pointer: usize) {
    core::mem::forget(guard);
    // SAFETY: the lock is held, so `save` stays where it is and nobody else runs on the stack at `pointer`, which was
    // saved by this function or made by `arch::new_stack`.
    unsafe {
        arch::switch_stack(save, pointer);
        THREADS.force_unlock();
    }
}

/// Waits for an interrupt on the current stack.
fn idle_wait() {
    let cpu = cpu::this();
    cpu.in_idle.store(true, Ordering::Relaxed);
    if !cpu.need_resched.load(Ordering::Acquire) {
        metal::wait_for_interrupt();
        metal::interrupts_off();
    }
    cpu.in_idle.store(false, Ordering::Relaxed);
}

/// The idle loop of a CPU on its own stack.
pub(crate) fn idle() -> ! {
    loop {
        metal::interrupts_off();
        let kicked = with(|threads| threads.sched.stack_returned(CpuId(arch::cpu())));
        if let Some(kicked) = kicked {
            after_wake(Some(kicked));
        }
        schedule();
    }
}

/// Entry of a new thread: the first run on its stack, with the lock held and interrupts off.
extern "C" fn first_steps() -> ! {
    // SAFETY: `switch` left the lock held for this stack.
    unsafe { THREADS.force_unlock() };
    let body = with(|threads| {
        let id = threads.stands_on[arch::cpu() as usize].expect("a thread stands on its stack");
        threads.bodies[id.0 as usize].take()
    });
    arm_slice();
    metal::interrupts_on();
    if let Some(body) = body {
        body();
    }
    exit()
}

/// Ends the running thread. Its stack is never freed: cases start few threads.
fn exit() -> ! {
    metal::interrupts_off();
    let mut guard = THREADS.lock();
    let threads = guard.as_mut().expect("threads are set up at boot");
    let me = arch::cpu() as usize;
    threads.sched.exit(CpuId(me as u32));
    threads.stands_on[me] = None;
    let (idle, mut nowhere) = (threads.idle[me], 0);
    switch(guard, &raw mut nowhere, idle);
    unreachable!("an ended thread runs on");
}

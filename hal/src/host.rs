//! A [`Hal`] on the host's own threads and atomics, for tests and benchmarks.
//!
//! A CPU is a number that a host thread carries. A thread turns interrupts off by taking ownership of its CPU: two
//! threads of one CPU can never both have interrupts off. A test decides where interrupts arrive: see
//! [`HostHal::set_interrupt_hook`].

mod memory;
mod threads;

pub use memory::{HostDma, HostRegs};

use crate::{
    Affinity, AtomicWord, CpuId, DmaError, Hal, IrqState, SpawnError, ThreadBody, ThreadId, ThreadSpec, Threads, Word,
    Work,
};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{thread, thread_local};

/// How far a wait with a deadline moves a manual clock each time it looks, in nanoseconds.
const MANUAL_RELAX_NS: u64 = 1_000;
/// A waiting host thread looks at a word this many times before it yields.
const SPINS: u32 = 64;

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static INTERRUPTS_ON: Cell<bool> = const { Cell::new(true) };
    static HOOKED: Cell<bool> = const { Cell::new(false) };
    static HOOK: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

enum Clock {
    /// Moves only by request, and in waits.
    Manual(AtomicU64),
    Monotonic(Instant),
}

struct World {
    clock: Clock,
    /// Per CPU: 0, or 1 + the number of the host thread that has turned its interrupts off.
    owners: Box<[AtomicU64]>,
    memory: memory::Memory,
    joins: threads::Joins,
}

/// A world of host threads. A value names its world. The world lives as long as the process: make one per test.
#[derive(Clone, Copy)]
pub struct HostHal {
    world: &'static World,
}

impl HostHal {
    /// A world of `cpus` CPUs whose clock stands at 0 until [`HostHal::advance_ns`] or a wait moves it.
    pub fn manual(cpus: u32) -> Self {
        Self::new(cpus, Clock::Manual(AtomicU64::new(0)))
    }

    /// A world of `cpus` CPUs with the host's monotonic clock, from 0.
    pub fn monotonic(cpus: u32) -> Self {
        Self::new(cpus, Clock::Monotonic(Instant::now()))
    }

    fn new(cpus: u32, clock: Clock) -> Self {
        let owners = (0..cpus).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into();
        let world = World { clock, owners, memory: memory::Memory::default(), joins: threads::Joins::default() };
        Self { world: Box::leak(Box::new(world)) }
    }

    /// How many CPUs the world has.
    pub fn cpus(self) -> u32 {
        self.world.owners.len() as u32
    }

    /// Moves a manual clock.
    ///
    /// # Panics
    /// When the clock is monotonic.
    pub fn advance_ns(self, duration_ns: u64) {
        match &self.world.clock {
            Clock::Manual(now_ns) => _ = now_ns.fetch_add(duration_ns, Ordering::Relaxed),
            Clock::Monotonic(_) => panic!("a monotonic clock cannot be moved by {duration_ns} ns"),
        }
    }

    /// Makes `cpu` the CPU of this host thread from now on.
    ///
    /// # Panics
    /// When there is no such CPU, or when interrupts are off: the thread would take its ownership along.
    pub fn set_cpu(self, cpu: CpuId) {
        assert!(cpu.index() < self.world.owners.len(), "CPU {cpu} is not one of {}", self.cpus());
        assert!(self.interrupts_on(), "a thread cannot move to CPU {cpu} with interrupts off");
        CPU.set(cpu.0);
    }

    /// Whether interrupts are on for this host thread.
    pub fn interrupts_on(self) -> bool {
        INTERRUPTS_ON.get()
    }

    /// Runs `f` as CPU `cpu` with interrupts on, then restores the former CPU. So one host thread can play many CPUs.
    pub fn on_cpu<R>(self, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        let before = Restore { cpu: CPU.get(), on: INTERRUPTS_ON.replace(true) };
        self.set_cpu(cpu);
        let result = f();
        assert!(self.interrupts_on(), "interrupts of CPU {cpu} were left off");
        drop(before);
        result
    }

    /// Runs `f` as an interrupt of CPU `cpu`, with interrupts off. Then restores the former state.
    ///
    /// # Panics
    /// When that CPU has interrupts off further down this thread's stack: hardware would not interrupt it.
    pub fn interrupt<R>(self, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        if cpu == self.cpu() && !self.interrupts_on() && HOOK_RUNS.get() {
            return f();
        }
        self.on_cpu(cpu, || {
            let _off = Off::new(self, cpu);
            f()
        })
    }

    /// Installs `hook` for this host thread. It is called wherever the thread's CPU could take an interrupt: when
    /// interrupts are turned on, and in waits with interrupts on. Interrupts are off while the hook runs. It delivers
    /// interrupts with [`HostHal::interrupt`], to its own CPU or any other.
    pub fn set_interrupt_hook(self, hook: impl Fn() + 'static) {
        HOOK.set(Some(Rc::new(hook)));
        HOOKED.set(true);
    }

    /// Undoes [`HostHal::set_interrupt_hook`].
    pub fn clear_interrupt_hook(self) {
        HOOKED.set(false);
        HOOK.set(None);
    }

    /// Waits for every thread that this world spawned.
    ///
    /// # Panics
    /// With the payload of the first thread that panicked.
    pub fn join_all(self) {
        self.world.joins.join_all();
    }

    /// The live DMA buffer that holds `address`: how a test's device model reaches memory.
    pub fn dma_at(self, address: crate::DeviceAddress) -> Option<HostDma> {
        self.world.memory.at(address)
    }

    fn own(self, cpu: CpuId) {
        let me = u64::from(threads::current().0) + 1;
        let owner = &self.world.owners[cpu.index()];
        while let Err(other) = owner.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
            assert!(other != me, "CPU {cpu} has interrupts off further down this thread's stack");
            thread::yield_now();
        }
    }

    fn disown(self, cpu: CpuId) {
        self.world.owners[cpu.index()].store(0, Ordering::Release);
    }

    #[cold]
    fn run_hook(self) {
        let hook = HOOK.with_borrow(Clone::clone);
        if let Some(hook) = hook {
            let _off = Off::new(self, self.cpu());
            let outer = HOOK_RUNS.replace(true);
            hook();
            HOOK_RUNS.set(outer);
        }
    }

    /// A place where an interrupt could be taken.
    fn window(self) {
        if HOOKED.get() && self.interrupts_on() {
            self.run_hook();
        }
    }
}

thread_local! {
    /// The hook runs on this thread's CPU, with interrupts off.
    static HOOK_RUNS: Cell<bool> = const { Cell::new(false) };
}

/// The thread's former CPU. It is restored on drop, so that a failed test does not disturb the next one.
struct Restore {
    cpu: u32,
    on: bool,
}

impl Drop for Restore {
    fn drop(&mut self) {
        CPU.set(self.cpu);
        INTERRUPTS_ON.set(self.on);
    }
}

/// Turns interrupts off. At the end no interrupt is taken, as in the return from an interrupt.
struct Off {
    hal: HostHal,
    cpu: CpuId,
}

impl Off {
    fn new(hal: HostHal, cpu: CpuId) -> Self {
        hal.own(cpu);
        INTERRUPTS_ON.set(false);
        Self { hal, cpu }
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        INTERRUPTS_ON.set(true);
        self.hal.disown(self.cpu);
    }
}

impl Hal for HostHal {
    type Word = AtomicWord;
    type Regs = HostRegs;
    type Dma = HostDma;

    fn dma_alloc(self, len_bytes: usize, align_bytes: usize) -> Result<HostDma, DmaError> {
        self.world.memory.alloc(len_bytes, align_bytes)
    }

    fn now_ns(self) -> u64 {
        match &self.world.clock {
            Clock::Manual(now_ns) => now_ns.load(Ordering::Relaxed),
            Clock::Monotonic(start) => start.elapsed().as_nanos() as u64,
        }
    }

    #[inline]
    fn cpu(self) -> CpuId {
        CpuId(CPU.get())
    }

    #[inline]
    fn irq_save(self) -> IrqState {
        let were_on = INTERRUPTS_ON.get();
        if were_on {
            self.own(self.cpu());
            INTERRUPTS_ON.set(false);
        }
        IrqState { were_on }
    }

    #[inline]
    fn irq_restore(self, state: IrqState) {
        if state.were_on {
            INTERRUPTS_ON.set(true);
            self.disown(self.cpu());
            self.window();
        }
    }

    fn relax_on(self, word: &AtomicWord, seen: u64, deadline_ns: u64) {
        self.window();
        for _ in 0..SPINS {
            if word.get() != seen || self.now_ns() >= deadline_ns {
                return;
            }
            core::hint::spin_loop();
        }
        if let Clock::Manual(now_ns) = &self.world.clock
            && deadline_ns != u64::MAX
        {
            now_ns.fetch_add(MANUAL_RELAX_NS, Ordering::Relaxed);
        }
        thread::yield_now();
    }

    fn delay_ns(self, duration_ns: u64) {
        match &self.world.clock {
            Clock::Manual(now_ns) => _ = now_ns.fetch_add(duration_ns, Ordering::Relaxed),
            Clock::Monotonic(_) => {
                let end_ns = self.now_ns() + duration_ns;
                while self.now_ns() < end_ns {
                    core::hint::spin_loop();
                }
            }
        }
        self.window();
    }

    /// Runs the interrupt hook and yields the host thread.
    fn wait_for_interrupt(self) {
        self.irq_restore(IrqState { were_on: !self.interrupts_on() });
        self.window();
        thread::yield_now();
    }

    #[inline]
    fn work(self, _work: Work, _count: u32) {}
}

impl Threads for HostHal {
    fn spawn(self, spec: ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError> {
        let cpu = threads::first_cpu(&spec.affinity, self.cpus())?;
        self.world.joins.spawn(spec.name, move || {
            self.set_cpu(cpu);
            body();
        })
    }

    fn current_thread(self) -> ThreadId {
        threads::current()
    }

    fn park(self) {
        if let Some(cpu) = threads::park() {
            self.set_cpu(cpu);
        }
        self.window();
    }

    fn wake(self, thread: ThreadId) {
        threads::wake(thread);
    }

    /// The thread carries the first CPU of `affinity` once it has been woken.
    fn set_affinity(self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError> {
        threads::set_next_cpu(thread, threads::first_cpu(affinity, self.cpus())?);
        Ok(())
    }

    fn yield_now(self) {
        self.window();
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests;

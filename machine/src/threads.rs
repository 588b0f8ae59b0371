//! Coroutines: the stacks on which threads and idle CPUs run.

use crate::time::Ps;
use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use hal::{Affinity, CpuId, ThreadId};
use sched::{Scheduler, Topology};
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

/// Why a coroutine continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The time came that it waited for. The clock has forgotten the wait.
    Elapsed,
    /// Its wait is over in another way.
    Resume,
    /// Its CPU has an interrupt to take.
    Accept,
    /// The scheduler put it on a CPU.
    Scheduled,
}

/// Why a coroutine left its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Yield {
    /// This CPU is next, for this reason.
    Switch(CpuId, Reason),
    /// The next event is next.
    Event,
    /// The stop event came.
    Stop,
    /// No event is pending.
    Drained,
    /// Too many steps without time passing.
    Livelock,
}

type Task = Coroutine<Reason, Yield, Yield>;

/// Bytes of a coroutine's stack. The host commits only the touched pages.
const STACK_BYTES: usize = 128 << 10;

/// Stacks that a host thread keeps for its next machines. A new stack costs more than what most threads do on it.
const SPARE_MAX: usize = 512;

thread_local! {
    static SPARE: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A coroutine and the way out of it.
pub(crate) struct Thread {
    /// None once it is dropped.
    task: RefCell<Option<Task>>,
    yielder: Cell<*const Yielder<Reason, Yield>>,
}

impl Thread {
    /// A coroutine that runs `body`. `body` returns what to do after its end. First `begin` gets the way out.
    pub(crate) fn new(begin: fn(WayOut), body: impl FnOnce() -> Yield + 'static) -> Rc<Self> {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let new = || DefaultStack::new(STACK_BYTES).expect("the host gives a coroutine its stack");
        let task = Coroutine::with_stack(spare.unwrap_or_else(new), move |out: &Yielder<Reason, Yield>, _first| {
            begin(WayOut(out));
            body()
        });
        Rc::new(Self { task: RefCell::new(Some(task)), yielder: Cell::new(core::ptr::null()) })
    }

    /// Ends the coroutine by unwinding its stack.
    fn unwind(&self) {
        self.task.borrow_mut().as_mut().into_iter().for_each(Coroutine::force_unwind);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some(mut task) = self.task.take() else { return };
        task.force_unwind();
        let stack = task.into_stack();
        // The host thread itself may be ending.
        _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(stack);
            }
        });
    }
}

/// How the running coroutine leaves its stack.
pub(crate) struct WayOut(*const Yielder<Reason, Yield>);

/// All coroutines of a machine.
pub(crate) struct Threads {
    sched: RefCell<Scheduler>,
    threads: RefCell<Vec<Rc<Thread>>>,
    /// Where each thread may run, as it was asked for last.
    affinities: RefCell<Vec<Affinity>>,
    /// A CPU's idle coroutine, for a CPU to which no thread has lent its stack.
    idle: RefCell<Vec<Option<Rc<Thread>>>>,
    /// The coroutine on each CPU: a thread, or its idle coroutine.
    current: Box<[Cell<Option<ThreadId>>]>,
    /// The way out of the coroutine that runs.
    yielder: Cell<*const Yielder<Reason, Yield>>,
}

impl Threads {
    pub(crate) fn new(cpus: u32, time_slice: Ps, topology: Option<Topology>) -> Self {
        let slice_ns = time_slice.as_ns();
        let scheduler = match topology {
            Some(topology) => Scheduler::with_topology(cpus, slice_ns, topology),
            None => Scheduler::new(cpus, slice_ns),
        };
        Self {
            sched: RefCell::new(scheduler),
            threads: RefCell::default(),
            affinities: RefCell::default(),
            idle: RefCell::new((0..cpus).map(|_| None).collect()),
            current: (0..cpus).map(|_| Cell::new(None)).collect(),
            yielder: Cell::new(core::ptr::null()),
        }
    }

    /// The scheduler. The borrow must end before a coroutine leaves its stack.
    #[inline]
    pub(crate) fn sched(&self) -> RefMut<'_, Scheduler> {
        self.sched.borrow_mut()
    }

    /// Where `thread` may run, if it exists.
    pub(crate) fn affinity(&self, thread: ThreadId) -> Option<Affinity> {
        self.affinities.borrow().get(thread.0 as usize).cloned()
    }

    pub(crate) fn set_affinity(&self, thread: ThreadId, affinity: &Affinity) {
        if let Some(own) = self.affinities.borrow_mut().get_mut(thread.0 as usize) {
            *own = affinity.clone();
        }
    }

    /// Adds the coroutine of the thread that was spawned last.
    pub(crate) fn add(&self, id: ThreadId, affinity: &Affinity, thread: Rc<Thread>) {
        self.affinities.borrow_mut().push(affinity.clone());
        let mut threads = self.threads.borrow_mut();
        assert_eq!(threads.len(), id.0 as usize, "thread numbers are dense");
        threads.push(thread);
    }

    /// A coroutine has begun. Records its way out.
    pub(crate) fn begin(&self, out: WayOut) {
        self.yielder.set(out.0);
    }

    /// Leaves the running coroutine.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn suspend(&self, why: Yield) -> Reason {
        let yielder = self.yielder.get();
        assert!(!yielder.is_null(), "a point of the seam outside every thread of the machine");
        // SAFETY: set by `begin` or `resume` to the yielder of the coroutine that runs now, which lives on its stack.
        unsafe { (*yielder).suspend(why) }
    }

    /// Runs the coroutine of `cpu` until it leaves. If the CPU has none, `idle` creates it.
    #[inline]
    pub(crate) fn resume(&self, cpu: CpuId, reason: Reason, idle: impl FnOnce() -> Rc<Thread>) -> Yield {
        let thread = match self.current(cpu) {
            Some(id) => self.threads.borrow()[id.0 as usize].clone(),
            None => self.idle.borrow_mut()[cpu.index()].get_or_insert_with(idle).clone(),
        };
        self.yielder.set(thread.yielder.get());
        let result = thread.task.borrow_mut().as_mut().expect("it lives").resume(reason);
        thread.yielder.set(self.yielder.replace(core::ptr::null()));
        match result {
            CoroutineResult::Yield(why) | CoroutineResult::Return(why) => why,
        }
    }

    /// The running thread of `cpu`. While the CPU idles, the thread whose stack it uses. None on the console, which is no CPU: what a
    /// machine's end drops runs there.
    #[inline]
    pub(crate) fn current(&self, cpu: CpuId) -> Option<ThreadId> {
        self.current.get(cpu.index())?.get()
    }

    /// `cpu` uses the stack of this thread from now on; with None, its idle coroutine's stack.
    #[inline]
    pub(crate) fn set_current(&self, cpu: CpuId, thread: Option<ThreadId>) {
        self.current[cpu.index()].set(thread);
    }

    /// Ends every coroutine by unwinding its stack.
    pub(crate) fn unwind(&self) {
        for thread in self.threads.take() {
            thread.unwind();
        }
        for thread in self.idle.take().into_iter().flatten() {
            thread.unwind();
        }
    }
}

//! Threads as coroutines, and how a CPU goes from one to the next.

use crate::core::Core;
use crate::cpu::{Account, CONSOLE_STEP, Cpu};
use crate::event::{Event, cpu_event};
use crate::observe::Fact;
use crate::time::Ps;
use crate::unrest::Kind;
use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use hal::{CpuId, SpawnError, ThreadBody, ThreadId, ThreadSpec};
use sched::{Choice, Scheduler, State};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Why a coroutine goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// Its wait is over.
    Resume,
    /// Its CPU has an interrupt to take.
    Accept,
    /// The scheduler put it on a CPU.
    Scheduled,
}

/// Why a coroutine left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Yield {
    /// This CPU is next, for this reason.
    Switch(CpuId, Reason),
    /// The next event is next.
    Event,
    /// The stop event came.
    Stop,
    /// Nothing is pending.
    Drained,
    /// Steps without time, without end.
    Livelock,
}

type Task = Coroutine<Reason, Yield, Yield>;

/// Bytes of a coroutine's stack; the host commits what is touched.
const STACK_BYTES: usize = 128 << 10;

/// A coroutine and the way out of it.
struct Thread {
    task: RefCell<Task>,
    yielder: Cell<*const Yielder<Reason, Yield>>,
}

/// All coroutines of a machine.
pub(crate) struct Threads {
    pub(crate) sched: RefCell<Scheduler>,
    threads: RefCell<Vec<Rc<Thread>>>,
    /// The coroutine that idles on a CPU which no thread has lent its stack.
    idle: RefCell<Vec<Option<Rc<Thread>>>>,
    /// What runs on each CPU: a thread, or its idle coroutine.
    current: Box<[Cell<Option<ThreadId>>]>,
    /// The way out of the coroutine that runs.
    yielder: Cell<*const Yielder<Reason, Yield>>,
}

impl Threads {
    pub(crate) fn new(cpus: u32, time_slice: Ps) -> Self {
        Self {
            sched: RefCell::new(Scheduler::new(cpus, time_slice.as_ns())),
            threads: RefCell::default(),
            idle: RefCell::new((0..cpus).map(|_| None).collect()),
            current: (0..cpus).map(|_| Cell::new(None)).collect(),
            yielder: Cell::new(core::ptr::null()),
        }
    }

    /// Leaves the running coroutine.
    #[allow(unsafe_code)]
    pub(crate) fn suspend(&self, why: Yield) -> Reason {
        let yielder = self.yielder.get();
        assert!(!yielder.is_null(), "a point of the seam outside every thread of the machine");
        // SAFETY: set by `Core::resume` to the yielder of the coroutine that runs now, which lives on its stack.
        unsafe { (*yielder).suspend(why) }
    }

    /// The running thread of `cpu`; while it idles, the one whose stack is lent.
    pub(crate) fn current(&self, cpu: CpuId) -> Option<ThreadId> {
        self.current[cpu.index()].get()
    }

    /// Ends every coroutine by unwinding its stack.
    pub(crate) fn unwind(&self) {
        for thread in self.threads.take() {
            thread.task.borrow_mut().force_unwind();
        }
        for thread in self.idle.take().into_iter().flatten() {
            thread.task.borrow_mut().force_unwind();
        }
    }
}

/// A coroutine that runs `body`, which returns what to do when it has ended.
fn thread(body: impl FnOnce() -> Yield + 'static) -> Rc<Thread> {
    let stack = DefaultStack::new(STACK_BYTES).expect("the host gives a coroutine its stack");
    let task = Coroutine::with_stack(stack, move |out: &Yielder<Reason, Yield>, _first| {
        // `Core::resume` keeps it for the coroutine's later turns.
        crate::current::with(|core| core.threads.yielder.set(core::ptr::from_ref(out)));
        body()
    });
    Rc::new(Thread { task: RefCell::new(task), yielder: Cell::new(core::ptr::null()) })
}

impl Core {
    /// Starts a thread; it first runs when its CPU schedules.
    pub(crate) fn spawn(&self, spec: &ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError> {
        let (id, kicked) = self.threads.sched.borrow_mut().spawn(spec)?;
        let coroutine = thread(move || {
            body();
            crate::current::with(Core::exit_thread)
        });
        let mut threads = self.threads.threads.borrow_mut();
        assert_eq!(threads.len(), id.0 as usize, "thread numbers are dense");
        threads.push(coroutine);
        drop(threads);
        match kicked {
            Some(cpu) => self.ask_to_schedule(cpu),
            None => self.real_cpus().iter().for_each(|cpu| self.arm_slice(cpu)),
        }
        Ok(id)
    }

    /// `thread` may run again.
    pub(crate) fn wake(&self, thread: ThreadId) {
        self.owed_point();
        if self.unrest.as_ref().is_some_and(|unrest| self.starve(unrest, thread)) {
            return;
        }
        match self.wake_in_scheduler(thread) {
            (Some(cpu), _) => self.ask_to_schedule(cpu),
            // Its CPU is busy, from now on in slices.
            (None, State::Ready(cpu)) => self.arm_slice(&self.cpus[cpu.index()]),
            _ => {}
        }
    }

    /// Whom to kick, and what the thread does now.
    pub(crate) fn wake_in_scheduler(&self, thread: ThreadId) -> (Option<CpuId>, State) {
        let place = self.unrest.as_ref().and_then(|unrest| self.misplacement(unrest, thread));
        let mut sched = self.threads.sched.borrow_mut();
        (sched.wake_on(thread, place), sched.state(thread))
    }

    /// A reschedule IPI that no CPU sent.
    pub(crate) fn kick_from_nowhere(&self, cpu: CpuId) {
        self.cpus[cpu.index()].need_resched.set(true);
        let is_gic = self.config.interrupts.gic().is_some();
        let vector = if is_gic { 0 } else { self.config.reschedule_vector };
        self.tell(|| Fact::IpiSent { from: cpu.0, to: cpu.0, vector });
        let content = if is_gic { cpu.0.into() } else { vector.into() };
        self.push(self.now(), Event::for_cpu(cpu, cpu_event::RAISE, content));
    }

    /// Makes `cpu` look at its run queue: at its next chance if it is this one, else by an IPI.
    fn ask_to_schedule(&self, cpu: CpuId) {
        let target = &self.cpus[cpu.index()];
        target.need_resched.set(true);
        if cpu.0 != self.running.get() {
            self.kick(cpu);
        }
    }

    /// A reschedule IPI.
    pub(crate) fn kick(&self, cpu: CpuId) {
        let from = self.cpu().id.0;
        // A GIC has its own number for it, and keeps the sender.
        let is_gic = self.config.interrupts.gic().is_some();
        self.send_ipi(cpu, if is_gic { from.into() } else { self.config.reschedule_vector.into() });
    }

    /// The running thread sleeps until it is woken.
    pub(crate) fn park(&self) {
        assert!(self.cpu().irq_on.get() && self.cpu().depth.get() == 0, "park needs a thread with interrupts on");
        self.settle();
        let cpu = self.cpu().id;
        if self.threads.sched.borrow_mut().park(cpu) {
            self.schedule();
        }
    }

    /// The running thread lets others run.
    pub(crate) fn yield_now(&self) {
        if self.on_console() {
            return self.run_for(CONSOLE_STEP);
        }
        self.settle();
        self.give_way();
    }

    /// The running thread goes behind the others of its CPU.
    pub(crate) fn give_way(&self) {
        let cpu = self.cpu().id;
        self.threads.sched.borrow_mut().yield_now(cpu);
        self.schedule();
    }

    /// After an interrupt: something better may be ready.
    pub(crate) fn reschedule(&self) {
        let cpu = self.cpu();
        cpu.need_resched.set(false);
        self.schedule();
    }

    /// Gives the CPU to whom the scheduler picks. Returns when it picks this thread again, perhaps on another CPU.
    fn schedule(&self) {
        let cpu = self.cpu();
        let me = self.threads.current(cpu.id);
        loop {
            cpu.need_resched.set(false);
            let choice = self.threads.sched.borrow_mut().pick(cpu.id, self.now().as_ns());
            match choice {
                Choice::Thread(next) if Some(next) == me => return self.arm_slice(cpu),
                Choice::Thread(next) => {
                    self.hand_over(cpu, next);
                    let reason = self.threads.suspend(Yield::Switch(cpu.id, Reason::Scheduled));
                    assert_eq!(reason, Reason::Scheduled, "thread {me:?} went on without being scheduled");
                    return;
                }
                Choice::Idle => self.idle_wait(cpu),
            }
        }
    }

    /// Nothing is ready: waits for an interrupt, which may make something so.
    fn idle_wait(&self, cpu: &Cpu) {
        cpu.in_idle_loop.set(true);
        self.wait_for_interrupt();
        cpu.in_idle_loop.set(false);
    }

    fn hand_over(&self, cpu: &Cpu, next: ThreadId) {
        cpu.owe(self.config.costs.work_ps[hal::Work::ContextSwitch as usize], Account::System);
        cpu.idle.set(false);
        self.threads.current[cpu.id.index()].set(Some(next));
        self.arm_slice(cpu);
    }

    /// The running thread has ended: what its CPU does next.
    fn exit_thread(&self) -> Yield {
        self.settle();
        let cpu = self.cpu();
        self.threads.sched.borrow_mut().exit(cpu.id);
        self.threads.current[cpu.id.index()].set(None);
        Yield::Switch(cpu.id, Reason::Scheduled)
    }

    /// What a CPU does on its own idle coroutine.
    fn idle_loop(&self) -> Yield {
        loop {
            let cpu = self.cpu();
            let kicked = self.threads.sched.borrow_mut().stack_returned(cpu.id);
            kicked.into_iter().for_each(|cpu| self.ask_to_schedule(cpu));
            cpu.need_resched.set(false);
            let choice = self.threads.sched.borrow_mut().pick(cpu.id, self.now().as_ns());
            match choice {
                Choice::Thread(next) => {
                    self.hand_over(cpu, next);
                    self.threads.suspend(Yield::Switch(cpu.id, Reason::Scheduled));
                }
                Choice::Idle => self.idle_wait(cpu),
            }
        }
    }

    /// Round robin needs an event only while somebody waits for this CPU.
    ///
    /// A CPU that is about to schedule arms it then: armed now, the end of a slice that is over would raise the timer
    /// again, and a tick that wakes a thread would never end.
    pub(crate) fn arm_slice(&self, cpu: &Cpu) {
        if cpu.slice_armed.get() || cpu.need_resched.get() {
            return;
        }
        if let Some(deadline_ns) = self.threads.sched.borrow().next_deadline_ns(cpu.id) {
            cpu.slice_armed.set(true);
            let at = Ps::from_ns(deadline_ns).max(self.now()) + self.late(Kind::LateTimer);
            self.push(at, Event::for_cpu(cpu.id, cpu_event::SLICE, 0));
        }
    }

    /// The end of a time slice: the local timer's vector, if it still matters.
    pub(crate) fn slice_over(&self, cpu: &Cpu) {
        cpu.slice_armed.set(false);
        if self.threads.sched.borrow_mut().tick(cpu.id, self.now().as_ns()) {
            cpu.need_resched.set(true);
            self.raise_timer(cpu);
        } else {
            self.arm_slice(cpu);
        }
    }

    /// Runs `cpu`'s coroutine until it leaves.
    fn resume(&self, cpu: CpuId, reason: Reason) -> Yield {
        let current = self.threads.current(cpu);
        let thread = match current {
            Some(id) => self.threads.threads.borrow()[id.0 as usize].clone(),
            None => {
                let mut idle = self.threads.idle.borrow_mut();
                idle[cpu.index()].get_or_insert_with(|| thread(|| crate::current::with(Core::idle_loop))).clone()
            }
        };
        self.running.set(cpu.0);
        self.threads.yielder.set(thread.yielder.get());
        self.switches.set(self.switches.get() + 1);
        let result = thread.task.borrow_mut().resume(reason);
        thread.yielder.set(self.threads.yielder.replace(core::ptr::null()));
        self.running.set(self.config.cpus);
        match result {
            CoroutineResult::Yield(why) | CoroutineResult::Return(why) => why,
        }
    }

    /// Lets the machine run for a while, for the console.
    pub(crate) fn run_for(&self, duration: Ps) {
        self.runs.set(self.runs.get() + 1);
        self.stop_at(self.now() + duration);
        assert_ne!(self.run(), Yield::Livelock, "the machine stands still at {}", self.now());
    }

    /// Runs the machine from the host's own stack until the stop event, or until nothing is pending.
    pub(crate) fn run(&self) -> Yield {
        /// A CPU that does not exist: nothing due concerns the host's stack.
        const NOBODY: CpuId = CpuId(0x3fff_ffff);
        if self.guard.found().is_some() {
            return Yield::Livelock;
        }
        loop {
            let next = self.run_events(NOBODY, (Ps::MAX, u64::MAX));
            let mut why = match next {
                crate::core::Next::Other(cpu, reason) => Yield::Switch(cpu, reason),
                crate::core::Next::Stop => return Yield::Stop,
                crate::core::Next::Livelock => return Yield::Livelock,
                _ => return Yield::Drained,
            };
            while let Yield::Switch(cpu, reason) = why {
                why = self.resume(cpu, reason);
            }
            if why != Yield::Event {
                return why;
            }
        }
    }
}

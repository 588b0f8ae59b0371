//! Threads: how a CPU switches from one to the next.

use super::points::Next;
use super::{Core, current};
use crate::cpu::{Account, Cpu};
use crate::event::{Event, cpu_event};
use crate::observe::Fact;
use crate::threads::{Reason, Thread, Yield};
use crate::time::Ps;
use crate::unrest::Kind;
use hal::{Affinity, CpuId, SpawnError, ThreadBody, ThreadId, ThreadSpec};
use sched::{Choice, State};
use std::rc::Rc;

/// A coroutine of this host thread's machine.
fn thread(body: impl FnOnce() -> Yield + 'static) -> Rc<Thread> {
    Thread::new(|out| current::with(|core| core.threads.begin(out)), body)
}

impl Core {
    /// Starts a thread; it first runs when its CPU schedules.
    pub(crate) fn spawn(&self, spec: &ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError> {
        let (id, kicked) = self.threads.sched().spawn(spec)?;
        let coroutine = thread(move || {
            body();
            current::with(Core::exit_thread)
        });
        self.threads.add(id, &spec.affinity, coroutine);
        if let Some(turns) = self.unrest().and_then(|unrest| unrest.turns.as_ref()).filter(|_| !self.on_console()) {
            self.current_thread().into_iter().for_each(|starter| turns.inherit(id, starter));
        }
        match kicked {
            Some(cpu) => self.ask_to_schedule(cpu),
            None => self.board.cpus.real().iter().for_each(|cpu| self.arm_slice(cpu)),
        }
        self.started();
        Ok(id)
    }

    /// Sets the CPUs where a thread may run from now on.
    pub(crate) fn set_affinity(&self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError> {
        let kicked = self.threads.sched().set_affinity(thread, affinity)?;
        self.threads.set_affinity(thread, affinity);
        kicked.into_iter().for_each(|cpu| self.ask_to_schedule(cpu));
        Ok(())
    }

    /// Makes `thread` runnable again.
    pub(crate) fn wake(&self, thread: ThreadId) {
        self.owed_point();
        if self.unrest().is_some_and(|unrest| self.starve(unrest, thread)) {
            return;
        }
        match self.wake_in_scheduler(thread) {
            (Some(cpu), _) => self.ask_to_schedule(cpu),
            // Its CPU is busy, so from now on threads share it in time slices.
            (None, State::Ready(cpu)) => self.arm_slice(self.board.cpus.of(cpu)),
            _ => {}
        }
    }

    /// Wakes the thread. Returns the CPU to kick, and the thread's new state.
    pub(crate) fn wake_in_scheduler(&self, thread: ThreadId) -> (Option<CpuId>, State) {
        let place = self.unrest().and_then(|unrest| self.misplacement(unrest, thread));
        let waker = (!self.on_console()).then(|| self.cpu().id);
        let mut sched = self.threads.sched();
        (sched.wake_by(thread, waker, place), sched.state(thread))
    }

    /// A reschedule IPI that no CPU sent.
    pub(crate) fn kick_from_nowhere(&self, cpu: CpuId) {
        self.board.cpus.of(cpu).set_need_resched(true);
        let content = self.board.controller().kick(cpu);
        let vector = self.board.controller().ipi_vector(content);
        self.board.tell(|| Fact::IpiSent { from: cpu.0, to: cpu.0, vector });
        self.clock().push(self.now(), Event::for_cpu(cpu, cpu_event::RAISE, content));
    }

    /// Makes `cpu` check its run queue: at its next opportunity if it is the running CPU, otherwise by an IPI.
    fn ask_to_schedule(&self, cpu: CpuId) {
        let target = self.board.cpus.of(cpu);
        target.set_need_resched(true);
        if cpu != self.cpu().id {
            self.kick(cpu);
        }
    }

    /// The running thread sleeps until it is woken.
    pub(crate) fn park(&self) {
        assert!(self.cpu().irq_on() && self.cpu().depth() == 0, "park needs a thread with interrupts on");
        self.settle();
        let cpu = self.cpu().id;
        if self.threads.sched().park(cpu) {
            self.schedule();
        }
    }

    /// The running thread yields to other threads.
    pub(crate) fn yield_now(&self) {
        if self.on_console() {
            return self.run_for(super::CONSOLE_STEP);
        }
        self.settle();
        self.give_way();
    }

    /// The running thread goes behind the others of its CPU.
    pub(crate) fn give_way(&self) {
        let cpu = self.cpu().id;
        self.threads.sched().yield_now(cpu);
        self.schedule();
    }

    /// After an interrupt: the scheduler may prefer another thread.
    pub(crate) fn reschedule(&self) {
        let cpu = self.cpu();
        cpu.set_need_resched(false);
        self.schedule();
    }

    /// Gives the CPU to the thread that the scheduler picks. Returns when the scheduler picks this thread again,
    /// perhaps on another CPU.
    fn schedule(&self) {
        let cpu = self.cpu();
        let me = self.threads.current(cpu.id);
        self.end_stores(cpu.id);
        loop {
            cpu.set_need_resched(false);
            let choice = self.threads.sched().pick(cpu.id, self.now().as_ns());
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

    /// No thread is ready: waits for an interrupt, which may make one ready.
    fn idle_wait(&self, cpu: &Cpu) {
        cpu.set_in_idle_loop(true);
        self.wait_for_interrupt();
        cpu.set_in_idle_loop(false);
    }

    fn hand_over(&self, cpu: &Cpu, next: ThreadId) {
        cpu.owe(self.board.costs.work.of(hal::Work::ContextSwitch).ps, Account::System);
        cpu.set_idle(false);
        self.threads.set_current(cpu.id, Some(next));
        self.arm_slice(cpu);
    }

    /// The running thread has ended. Returns the CPU's next action.
    fn exit_thread(&self) -> Yield {
        self.settle();
        let cpu = self.cpu();
        self.threads.sched().exit(cpu.id);
        self.threads.set_current(cpu.id, None);
        Yield::Switch(cpu.id, Reason::Scheduled)
    }

    /// The loop of a CPU on its own idle coroutine.
    fn idle_loop(&self) -> Yield {
        loop {
            let cpu = self.cpu();
            let kicked = self.threads.sched().stack_returned(cpu.id);
            kicked.into_iter().for_each(|cpu| self.ask_to_schedule(cpu));
            cpu.set_need_resched(false);
            let choice = self.threads.sched().pick(cpu.id, self.now().as_ns());
            match choice {
                Choice::Thread(next) => {
                    self.hand_over(cpu, next);
                    self.threads.suspend(Yield::Switch(cpu.id, Reason::Scheduled));
                }
                Choice::Idle => self.idle_wait(cpu),
            }
        }
    }

    /// Round robin needs an event only while another thread waits for this CPU.
    ///
    /// If the CPU is about to schedule, it arms the slice at that time. If it were armed now, the end of a slice that
    /// is already over would raise the timer again, and a tick that wakes a thread would never end.
    pub(crate) fn arm_slice(&self, cpu: &Cpu) {
        if cpu.is_slice_armed() || cpu.need_resched() {
            return;
        }
        if let Some(deadline_ns) = self.threads.sched().next_deadline_ns(cpu.id) {
            cpu.set_slice_armed(true);
            let at = Ps::from_ns(deadline_ns).max(self.now()) + self.board.late(Kind::LateTimer);
            self.clock().push(at, Event::for_cpu(cpu.id, cpu_event::SLICE, 0));
        }
    }

    /// The end of a time slice: raises the local timer's vector, if the slice still matters.
    pub(crate) fn slice_over(&self, cpu: &Cpu) {
        cpu.set_slice_armed(false);
        // An idle CPU that gets a thread is kicked; no CPU of this machine sends that interrupt.
        let idle = self.threads.sched().offload(cpu.id);
        idle.into_iter().for_each(|idle| self.kick_from_nowhere(idle));
        if self.threads.sched().tick(cpu.id, self.now().as_ns()) {
            cpu.set_need_resched(true);
            self.board.controller().time_slice(&self.board, cpu);
        } else {
            self.arm_slice(cpu);
        }
    }

    /// Runs the coroutine of `cpu` until it leaves its stack. `cpu` stays the running CPU: the caller runs another one or
    /// the console.
    fn resume(&self, cpu: CpuId, reason: Reason) -> Yield {
        self.board.cpus.run(cpu);
        self.board.witness.note_switch();
        self.threads.resume(cpu, reason, || thread(|| current::with(Core::idle_loop)))
    }

    /// Lets the machine run for a while, for the console.
    pub(crate) fn run_for(&self, duration: Ps) {
        self.clock().begin_run(self.now() + duration);
        assert_ne!(self.run(), Yield::Livelock, "the machine stands still at {}", self.now());
    }

    /// Runs the machine from the host's own stack until the stop event, or until nothing is pending.
    pub(crate) fn run(&self) -> Yield {
        /// A CPU that does not exist: no due event concerns the host's stack.
        const NOBODY: CpuId = CpuId(0x3fff_ffff);
        if self.clock().guard().found().is_some() {
            return Yield::Livelock;
        }
        loop {
            let next = self.run_events(NOBODY, (Ps::MAX, u64::MAX));
            let mut why = match next {
                Next::Other(cpu, reason) => Yield::Switch(cpu, reason),
                Next::Stop => return Yield::Stop,
                Next::Livelock => return Yield::Livelock,
                _ => return Yield::Drained,
            };
            while let Yield::Switch(cpu, reason) = why {
                why = self.resume(cpu, reason);
            }
            self.board.cpus.run_console();
            if why != Yield::Event {
                return why;
            }
        }
    }
}

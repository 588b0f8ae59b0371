use crate::mask::Mask;
use crate::queue::{Link, Queue};
use crate::topology::Topology;
use alloc::vec::Vec;
use core::mem;
use hal::{Affinity, CpuId, CpuSet, SpawnError, ThreadId, ThreadSpec};

#[cfg(test)]
mod tests;

/// A scheduling decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// This thread.
    Thread(ThreadId),
    /// Idle: the CPU idles on its present stack.
    Idle,
}

/// The state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It waits in the queue of this CPU. An offline CPU holds it until some CPU of its affinity comes online.
    Ready(CpuId),
    /// It runs on this CPU.
    Running(CpuId),
    /// It waits for a wake.
    Parked,
    /// It has ended.
    Exited,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) state: State,
    /// A wake came since the last park.
    wake_token: bool,
    pub(crate) urgent: bool,
    pub(crate) allowed: Mask,
    /// The CPU on which the thread last ran, or will first run.
    pub(crate) home: CpuId,
    /// The CPU that idles on its stack.
    pub(crate) lent_to: Option<CpuId>,
    /// When it was last given a CPU, or lost it to another thread; none before its first run.
    pub(crate) ran_ns: Option<u64>,
    /// The rest of its slice after a preemption; 0 for a fresh slice.
    slice_left_ns: u64,
    next: Option<u32>,
}

impl Link for Thread {
    fn next(&mut self) -> &mut Option<u32> {
        &mut self.next
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) current: Option<ThreadId>,
    slice_end_ns: u64,
    pub(crate) urgent: Queue,
    pub(crate) normal: Queue,
    /// The thread whose stack the CPU uses without running the thread.
    borrowed: Option<ThreadId>,
}

/// All threads and the CPUs they run on.
///
/// # Panics
/// Every method panics for a CPU or thread number that this scheduler never gave out: that is a bug of the caller.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) online: Mask,
    /// CPUs whose last pick was idle, and for which nothing was queued since.
    pub(crate) idle: Mask,
    /// CPUs with a normal thread in their queue.
    pub(crate) crowded: Mask,
    slice_ns: u64,
    /// The caches and nodes by which threads are placed as Linux places them; none: one domain, and nothing moves.
    pub(crate) topology: Option<Topology>,
    /// The CPU at which the search for the next new thread's CPU starts.
    next_home: u32,
}

impl Scheduler {
    /// `cpu_count` CPUs, all online and idle; normal threads take turns of `slice_ns`.
    pub fn new(cpu_count: u32, slice_ns: u64) -> Self {
        Self {
            threads: Vec::new(),
            cpus: (0..cpu_count).map(|_| Cpu::default()).collect(),
            online: Mask::all(cpu_count),
            idle: Mask::all(cpu_count),
            crowded: Mask::empty(cpu_count),
            slice_ns,
            topology: None,
            next_home: 0,
        }
    }

    /// As [`Scheduler::new`], with threads placed and moved by the rules of [`crate::Topology`].
    pub fn with_topology(cpu_count: u32, slice_ns: u64, topology: Topology) -> Self {
        Self { topology: Some(topology), ..Self::new(cpu_count, slice_ns) }
    }

    /// Adds a thread, ready to run, and says which CPU to kick. New threads are spread round their affinity.
    ///
    /// # Errors
    /// [`SpawnError::NoCpu`] when the affinity names none of the CPUs.
    pub fn spawn(&mut self, spec: &ThreadSpec) -> Result<(ThreadId, Option<CpuId>), SpawnError> {
        let cpu_count = self.cpus.len() as u32;
        let allowed = Mask::of(&spec.affinity, cpu_count);
        let start = CpuId(self.next_home % cpu_count.max(1));
        let home = self.topology.and_then(|topology| self.least_loaded(topology, &allowed));
        let home = home.or_else(|| allowed.first_common(&self.online, start));
        let home = home.or_else(|| allowed.first_common(&allowed, start));
        let Some(home) = home else { return Err(SpawnError::NoCpu(named(&spec.affinity), cpu_count)) };
        self.next_home = home.0 + 1;
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(Thread {
            state: State::Parked,
            wake_token: false,
            urgent: spec.urgent,
            allowed,
            home,
            lent_to: None,
            ran_ns: None,
            slice_left_ns: 0,
            next: None,
        });
        Ok((id, self.make_ready(id)))
    }

    /// Changes the affinity of `thread` from its next wake on; it stays where it is until then. A CPU that idles on
    /// its stack runs it once more.
    ///
    /// # Errors
    /// [`SpawnError::NoCpu`] when the affinity names none of the CPUs.
    pub fn set_affinity(&mut self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError> {
        let cpu_count = self.cpus.len() as u32;
        let first = match affinity {
            Affinity::Any => Some(CpuId(0)),
            Affinity::Cpu(cpu) => Some(*cpu),
            Affinity::Set(set) => set.iter().next(),
        };
        let Some(first) = first.filter(|first| first.0 < cpu_count) else {
            return Err(SpawnError::NoCpu(named(affinity), cpu_count));
        };
        let Self { threads, online, .. } = self;
        let thread = &mut threads[thread.0 as usize];
        thread.allowed.set(affinity, cpu_count);
        if !thread.allowed.contains(thread.home) {
            thread.home = thread.allowed.first_common(online, first).unwrap_or(first);
        }
        Ok(())
    }

    /// The running thread of `cpu` wants to sleep. True: it is parked, and the caller picks. False: a wake had come
    /// since its last park; that wake is used up now, and the thread runs on.
    #[must_use = "a thread that was woken meanwhile runs on"]
    pub fn park(&mut self, cpu: CpuId) -> bool {
        let thread = self.current_mut(cpu);
        if mem::take(&mut thread.wake_token) {
            return false;
        }
        self.stop_current(cpu, State::Parked);
        true
    }

    /// The running thread of `cpu` has ended; the caller picks. Its stack stays in use while it is lent to idle.
    pub fn exit(&mut self, cpu: CpuId) {
        self.stop_current(cpu, State::Exited);
    }

    /// The running thread of `cpu` goes behind the others of its class; the caller picks.
    pub fn yield_now(&mut self, cpu: CpuId) {
        let id = self.stop_current(cpu, State::Ready(cpu));
        self.queue_of(cpu, id, Queue::push_back);
    }

    /// Ends the current park of `thread`, or the next one. Returns the CPU to kick: one that idles, or one that runs a
    /// normal thread while the woken one is urgent.
    pub fn wake(&mut self, thread: ThreadId) -> Option<CpuId> {
        self.wake_on(thread, None)
    }

    /// As [`Scheduler::wake`], but a parked thread goes to `cpu` if its affinity allows, the CPU is online, and no
    /// other CPU idles on its stack. For a test that must hold wherever the thread runs.
    pub fn wake_on(&mut self, thread: ThreadId, cpu: Option<CpuId>) -> Option<CpuId> {
        self.wake_by(thread, None, cpu)
    }

    /// As [`Scheduler::wake_on`], from the CPU `waker`. With a [`Topology`] the waker may attract the thread.
    pub fn wake_by(&mut self, thread: ThreadId, waker: Option<CpuId>, cpu: Option<CpuId>) -> Option<CpuId> {
        let woken = &mut self.threads[thread.0 as usize];
        match woken.state {
            State::Parked => {
                let may =
                    |cpu: &CpuId| woken.lent_to.is_none() && woken.allowed.contains(*cpu) && self.online.contains(*cpu);
                let place = cpu.filter(may).unwrap_or_else(|| self.place(thread, waker));
                self.queue_on(thread, place)
            }
            State::Ready(_) | State::Running(_) => {
                woken.wake_token = true;
                None
            }
            State::Exited => None,
        }
    }

    /// Chooses the next thread of `cpu` from `now_ns` on. A running thread continues unless it must yield: to an urgent
    /// thread, at the end of its slice, or because the CPU is offline.
    pub fn pick(&mut self, cpu: CpuId, now_ns: u64) -> Choice {
        if let Some(id) = self.cpus[cpu.index()].current {
            if !self.gives_way(cpu, now_ns) {
                self.renew_slice(cpu, now_ns);
                return Choice::Thread(id);
            }
            self.preempt(cpu, now_ns);
        }
        if !self.online.contains(cpu) {
            return Choice::Idle;
        }
        let urgent = self.cpus[cpu.index()].urgent.pop_front(&mut self.threads);
        let next = urgent.or_else(|| self.pop_normal(cpu)).or_else(|| self.pull(cpu, now_ns));
        let Some(index) = next else {
            self.idle.insert(cpu);
            return Choice::Idle;
        };
        self.idle.remove(cpu);
        self.run(cpu, ThreadId(index), now_ns);
        Choice::Thread(ThreadId(index))
    }

    /// The slice timer of `cpu` has fired. True if it should pick. If no thread waits, the running one gets a fresh
    /// slice.
    pub fn tick(&mut self, cpu: CpuId, now_ns: u64) -> bool {
        if self.cpus[cpu.index()].current.is_none() {
            return self.preempts(cpu);
        }
        let gives_way = self.gives_way(cpu, now_ns);
        if !gives_way {
            self.renew_slice(cpu, now_ns);
        }
        gives_way
    }

    /// True if `cpu` should pick now, whatever the time: a waiting thread outranks the running one.
    pub fn preempts(&self, cpu: CpuId) -> bool {
        let state = &self.cpus[cpu.index()];
        let online = self.online.contains(cpu);
        match state.current {
            Some(_) if !online => true,
            Some(id) => !state.urgent.is_empty() && !self.threads[id.0 as usize].urgent,
            None => online && !(state.urgent.is_empty() && state.normal.is_empty()),
        }
    }

    /// The time of the next [`Scheduler::tick`]: the end of the slice, if a normal thread runs and another waits for
    /// it.
    pub fn next_deadline_ns(&self, cpu: CpuId) -> Option<u64> {
        let state = &self.cpus[cpu.index()];
        if state.normal.is_empty() {
            return None;
        }
        state.current.filter(|id| !self.threads[id.0 as usize].urgent).map(|_| state.slice_end_ns)
    }

    /// The thread that runs on `cpu`.
    pub fn current(&self, cpu: CpuId) -> Option<ThreadId> {
        self.cpus[cpu.index()].current
    }

    /// The state of `thread`.
    pub fn state(&self, thread: ThreadId) -> State {
        self.threads[thread.0 as usize].state
    }

    /// Whether `cpu` is online.
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.online.contains(cpu)
    }

    /// The thread on whose stack `cpu` idles. Until the CPU picks another thread or calls
    /// [`Scheduler::stack_returned`], no other CPU may run that thread, and its stack may not be freed.
    pub fn lent_to_idle(&self, cpu: CpuId) -> Option<ThreadId> {
        self.cpus[cpu.index()].borrowed
    }

    /// `cpu` left the stack that was lent to it for one of its own, or stopped. Returns the CPU to kick if the thread
    /// had been held back here, on an offline CPU.
    pub fn stack_returned(&mut self, cpu: CpuId) -> Option<CpuId> {
        let id = self.cpus[cpu.index()].borrowed.take()?;
        self.threads[id.0 as usize].lent_to = None;
        let mut kicked = None;
        if !self.online.contains(cpu) {
            self.evacuate(cpu, |cpu| kicked = Some(cpu));
        }
        kicked
    }

    /// Takes `cpu` offline. Its queued threads move where their affinity allows; `kick` is called for their new CPUs.
    /// The others are held, and so is a thread whose stack the CPU uses. A running thread runs until the CPU's next
    /// pick.
    pub fn offline(&mut self, cpu: CpuId, kick: impl FnMut(CpuId)) {
        self.online.remove(cpu);
        self.idle.remove(cpu);
        self.evacuate(cpu, kick);
    }

    /// Brings `cpu` online. Held threads that it may run come to it. Returns true if it has something to pick.
    pub fn online(&mut self, cpu: CpuId) -> bool {
        self.online.insert(cpu);
        for other in (0..self.cpus.len() as u32).map(CpuId) {
            if !self.online.contains(other) {
                self.evacuate(other, |_| {});
            }
        }
        let waits = self.preempts(cpu);
        if self.cpus[cpu.index()].current.is_none() && !waits {
            self.idle.insert(cpu);
        }
        waits
    }

    fn current_mut(&mut self, cpu: CpuId) -> &mut Thread {
        let Some(id) = self.cpus[cpu.index()].current else { panic!("CPU {cpu} runs no thread") };
        &mut self.threads[id.0 as usize]
    }

    /// The current thread stops running, but its CPU still uses its stack.
    fn stop_current(&mut self, cpu: CpuId, state: State) -> ThreadId {
        let thread = self.current_mut(cpu);
        thread.state = state;
        thread.slice_left_ns = 0;
        thread.lent_to = Some(cpu);
        let current = &mut self.cpus[cpu.index()];
        current.borrowed = current.current.take();
        current.borrowed.unwrap_or_else(|| unreachable!("current_mut found a thread"))
    }

    fn gives_way(&self, cpu: CpuId, now_ns: u64) -> bool {
        let state = &self.cpus[cpu.index()];
        self.preempts(cpu)
            || (!state.normal.is_empty() && self.next_deadline_ns(cpu).is_some_and(|deadline_ns| now_ns >= deadline_ns))
    }

    fn renew_slice(&mut self, cpu: CpuId, now_ns: u64) {
        let state = &mut self.cpus[cpu.index()];
        if now_ns >= state.slice_end_ns {
            state.slice_end_ns = now_ns.saturating_add(self.slice_ns);
        }
    }

    /// The current thread gives way: to the back of its queue when its slice is over, else to the front.
    fn preempt(&mut self, cpu: CpuId, now_ns: u64) {
        let left_ns = self.cpus[cpu.index()].slice_end_ns.saturating_sub(now_ns);
        let id = self.stop_current(cpu, State::Ready(cpu));
        self.threads[id.0 as usize].slice_left_ns = left_ns;
        self.threads[id.0 as usize].ran_ns = Some(now_ns);
        self.queue_of(cpu, id, if left_ns == 0 { Queue::push_back } else { Queue::push_front });
    }

    fn run(&mut self, cpu: CpuId, id: ThreadId, now_ns: u64) {
        self.stack_returned(cpu);
        let thread = &mut self.threads[id.0 as usize];
        debug_assert_eq!(thread.lent_to, None, "the stack of a thread about to run on CPU {cpu} is in use");
        thread.state = State::Running(cpu);
        // It was queued here before its affinity changed: its next wake is elsewhere.
        if thread.allowed.contains(cpu) {
            thread.home = cpu;
        }
        thread.ran_ns = Some(now_ns);
        let slice_ns = if thread.slice_left_ns == 0 { self.slice_ns } else { mem::take(&mut thread.slice_left_ns) };
        let state = &mut self.cpus[cpu.index()];
        state.current = Some(id);
        state.slice_end_ns = now_ns.saturating_add(slice_ns);
    }

    /// Queues a thread on the best CPU for it. Returns that CPU if it needs a kick.
    fn make_ready(&mut self, id: ThreadId) -> Option<CpuId> {
        self.queue_on(id, self.place(id, None))
    }

    /// Queues a thread on `cpu`. Returns that CPU if it needs a kick.
    pub(crate) fn queue_on(&mut self, id: ThreadId, cpu: CpuId) -> Option<CpuId> {
        let thread = &mut self.threads[id.0 as usize];
        thread.state = State::Ready(cpu);
        let outranks =
            thread.urgent && !self.cpus[cpu.index()].current.is_none_or(|run| self.threads[run.0 as usize].urgent);
        let first_urgent = self.cpus[cpu.index()].urgent.is_empty();
        self.queue_of(cpu, id, Queue::push_back);
        let was_idle = self.idle.contains(cpu);
        self.idle.remove(cpu);
        (self.online.contains(cpu) && (was_idle || (outranks && first_urgent))).then_some(cpu)
    }

    fn place(&self, id: ThreadId, waker: Option<CpuId>) -> CpuId {
        let thread = &self.threads[id.0 as usize];
        let home = thread.home;
        if let Some(cpu) = thread.lent_to {
            return cpu;
        }
        if let Some(topology) = self.topology.filter(|_| self.online.contains(home)) {
            return self.place_near(topology, thread, waker);
        }
        if self.idle.contains(home) {
            return home;
        }
        let else_where =
            || if self.online.contains(home) { None } else { thread.allowed.first_common(&self.online, home) };
        thread.allowed.first_common(&self.idle, home).or_else(else_where).unwrap_or(home)
    }

    fn queue_of(&mut self, cpu: CpuId, id: ThreadId, push: fn(&mut Queue, &mut [Thread], u32)) {
        let state = &mut self.cpus[cpu.index()];
        let queue = if self.threads[id.0 as usize].urgent {
            &mut state.urgent
        } else {
            self.crowded.insert(cpu);
            &mut state.normal
        };
        push(queue, &mut self.threads, id.0);
    }

    fn pop_normal(&mut self, cpu: CpuId) -> Option<u32> {
        let index = self.cpus[cpu.index()].normal.pop_front(&mut self.threads)?;
        self.left_queue(cpu);
        Some(index)
    }

    /// A normal thread has left the queue of `cpu`.
    pub(crate) fn left_queue(&mut self, cpu: CpuId) {
        if self.cpus[cpu.index()].normal.is_empty() {
            self.crowded.remove(cpu);
        }
    }

    /// Queues again every thread of an offline CPU. A thread that no online CPU may run returns to its queue.
    fn evacuate(&mut self, cpu: CpuId, mut kick: impl FnMut(CpuId)) {
        self.crowded.remove(cpu);
        let state = &mut self.cpus[cpu.index()];
        for mut queue in [mem::take(&mut state.urgent), mem::take(&mut state.normal)] {
            while let Some(index) = queue.pop_front(&mut self.threads) {
                if let Some(to) = self.make_ready(ThreadId(index)) {
                    kick(to);
                }
            }
        }
    }
}

/// The CPUs that an affinity names, for the error: none of them exists.
fn named(affinity: &Affinity) -> CpuSet {
    match affinity {
        Affinity::Any => CpuSet::new(),
        Affinity::Cpu(cpu) => CpuSet::of(*cpu),
        Affinity::Set(set) => set.clone(),
    }
}

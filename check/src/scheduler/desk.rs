//! The scheduler under test beside the oracle: each step is done to both, and then they must agree in everything that a caller
//! can see.

use super::oracle::{Domains, Oracle, Place};
use super::rules::HOT_NS;
use super::step::{Allowed, Moment, SchedulerStep};
use hal::{Affinity, CpuId, CpuSet, SpawnError, ThreadId, ThreadSpec};
use sched::{Choice, Scheduler, State, Topology};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The shape of a scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) cpus: u32,
    pub(super) slice_ns: u64,
    /// CPUs of a node and of a cache domain.
    pub(super) domains: Option<(u32, u32)>,
    pub(super) threads_max: usize,
}

/// A scheduler and what is expected of it.
pub(super) struct Desk {
    scheduler: Scheduler,
    pub(super) oracle: Oracle,
    threads_max: usize,
    now_ns: u64,
    /// CPUs that were kicked and have not picked since.
    kicked: BTreeSet<u32>,
    pub(super) steps: u64,
}

/// A difference, in words.
pub(super) type Finding = Result<(), String>;

fn agree<T: PartialEq + Debug>(what: &str, is: T, expected: T) -> Finding {
    if is == expected { Ok(()) } else { Err(format!("{what}: {is:?}, expected {expected:?}")) }
}

fn number(cpu: Option<CpuId>) -> Option<u32> {
    cpu.map(|cpu| cpu.0)
}

/// The one of `from` that a drawn number means.
fn one_of(from: &[u32], drawn: u32) -> Option<u32> {
    from.get((drawn as usize).checked_rem(from.len())?).copied()
}

fn place_of(state: State) -> Place {
    match state {
        State::Ready(cpu) => Place::Waits(cpu.0),
        State::Running(cpu) => Place::Runs(cpu.0),
        State::Parked => Place::Sleeps,
        State::Exited => Place::Gone,
    }
}

impl Desk {
    pub(super) fn new(shape: &Shape) -> Self {
        let Shape { cpus, slice_ns, domains, threads_max } = *shape;
        let topology = |(node_cpus, cache_cpus)| Topology { node_cpus, cache_cpus };
        let scheduler = match domains.map(topology) {
            Some(topology) => Scheduler::with_topology(cpus, slice_ns, topology),
            None => Scheduler::new(cpus, slice_ns),
        };
        let domains = domains.map(|(node, cache)| Domains { node, cache });
        let oracle = Oracle::new(cpus, slice_ns, domains);
        Self { scheduler, oracle, threads_max, now_ns: 0, kicked: BTreeSet::new(), steps: 0 }
    }

    fn count(&self) -> u32 {
        self.oracle.cpus.len() as u32
    }

    fn thread(&self, drawn: u32) -> Option<u32> {
        drawn.checked_rem(self.oracle.threads.len() as u32)
    }

    /// Does a step, which a finding then names.
    pub(super) fn apply(&mut self, step: &SchedulerStep) -> Finding {
        self.steps += 1;
        let done = self.act(step).and_then(|()| self.compare());
        done.map_err(|text| format!("at {} ns, behind \"{step}\" (step {}): {text}", self.now_ns, self.steps))
    }

    fn act(&mut self, step: &SchedulerStep) -> Finding {
        let running = |desk: &Self, drawn| one_of(&desk.oracle.with(|cpu| cpu.runs.is_some()), drawn);
        match *step {
            SchedulerStep::Spawn(..) if self.oracle.threads.len() >= self.threads_max => Ok(()),
            SchedulerStep::Spawn(allowed, urgent) => self.spawn(allowed, urgent),
            SchedulerStep::Wake { thread, waker, place } => self.wake(thread, waker, place),
            SchedulerStep::Pick(cpu) => self.pick(cpu % self.count()),
            SchedulerStep::Park { cpu, picks } => match running(self, cpu) {
                Some(cpu) => self.stop(cpu, picks, Self::park),
                None => Ok(()),
            },
            SchedulerStep::Exit { cpu, picks } => match running(self, cpu) {
                Some(cpu) => self.stop(cpu, picks, |desk, cpu| {
                    desk.scheduler.exit(CpuId(cpu));
                    desk.oracle.exit(cpu);
                    Ok(())
                }),
                None => Ok(()),
            },
            SchedulerStep::Yield { cpu, picks } => match running(self, cpu) {
                Some(cpu) => self.stop(cpu, picks, |desk, cpu| {
                    desk.scheduler.yield_now(CpuId(cpu));
                    desk.oracle.yield_now(cpu);
                    Ok(())
                }),
                None => Ok(()),
            },
            SchedulerStep::Tick { cpu, offloads } => self.tick(cpu, offloads),
            SchedulerStep::Pass(moment) => self.pass(moment),
            SchedulerStep::Allow { thread, allowed } => self.allow(thread, allowed),
            SchedulerStep::Offline(cpu) => self.offline(cpu),
            SchedulerStep::Online(cpu) => self.online(cpu),
            SchedulerStep::Return(cpu) => self.stack_returned(cpu),
            SchedulerStep::Rest => self.rest(),
        }
    }

    fn note_kick(&mut self, what: &str, is: Option<CpuId>, expected: Option<u32>) -> Finding {
        self.kicked.extend(expected);
        agree(what, number(is), expected)
    }

    /// The CPUs of an affinity that exist, or what the scheduler must say of one that names none.
    fn allowed(&self, affinity: &Affinity) -> Result<BTreeSet<u32>, SpawnError> {
        let count = self.count();
        let named: CpuSet = match affinity {
            Affinity::Any => return Ok((0..count).collect()),
            Affinity::Cpu(cpu) => CpuSet::of(*cpu),
            Affinity::Set(set) => set.clone(),
        };
        let exist: BTreeSet<_> = named.iter().map(|cpu| cpu.0).filter(|&cpu| cpu < count).collect();
        if exist.is_empty() { Err(SpawnError::NoCpu(named, count)) } else { Ok(exist) }
    }

    fn spawn(&mut self, allowed: Allowed, urgent: bool) -> Finding {
        let affinity = allowed.affinity(self.count());
        let allowed = self.allowed(&affinity);
        let is = self.scheduler.spawn(&ThreadSpec { name: "thread", affinity, urgent });
        let expected = allowed.map(|allowed| self.oracle.spawn(allowed, urgent));
        if let Ok((_, kicked)) = expected {
            self.kicked.extend(kicked);
        }
        agree("the new thread", is.map(|(thread, kicked)| (thread.0, number(kicked))), expected)
    }

    /// Mostly one that sleeps, and if there is any, often one whose last CPU is between two threads.
    fn sleeper(&self, drawn: u32) -> Option<u32> {
        let is_between = |cpu: u32| {
            let cpu = &self.oracle.cpus[cpu as usize];
            cpu.runs.is_none() && !cpu.idles
        };
        let all = (0..).zip(&self.oracle.threads).filter(|(_, thread)| thread.place == Place::Sleeps);
        let between = all.clone().filter(|(_, thread)| thread.lent.is_none() && is_between(thread.last));
        let numbers = |found: &mut dyn Iterator<Item = u32>| found.collect::<Vec<_>>();
        match drawn % 4 {
            0 => None,
            1 => one_of(&numbers(&mut between.map(|(number, _)| number)), drawn / 4),
            _ => one_of(&numbers(&mut all.map(|(number, _)| number)), drawn / 4),
        }
    }

    fn wake(&mut self, drawn: u32, waker: Option<u32>, place: Option<u32>) -> Finding {
        let Some(thread) = self.sleeper(drawn).or(self.thread(drawn)) else { return Ok(()) };
        // Some wakers idle: an interrupt came there.
        let idle = waker.filter(|waker| waker.is_multiple_of(3)).map(|_| self.oracle.with(|cpu| cpu.idles));
        let waker = idle.and_then(|idle| one_of(&idle, drawn)).or(waker);
        let count = self.count();
        let [waker, place] = [waker, place].map(|cpu| cpu.map(|cpu| cpu % count));
        let (id, cpu_id) = (ThreadId(thread), |cpu: Option<u32>| cpu.map(CpuId));
        let is = match (waker, place) {
            (None, None) => self.scheduler.wake(id),
            (None, Some(_)) => self.scheduler.wake_on(id, cpu_id(place)),
            (Some(_), _) => self.scheduler.wake_by(id, cpu_id(waker), cpu_id(place)),
        };
        let was = (self.oracle.thread(thread).place, self.oracle.thread(thread).lent);
        let expected = self.oracle.wake(thread, waker, place);
        self.note_kick("the wake kicks", is, expected)?;
        match (was, self.scheduler.state(id)) {
            ((Place::Sleeps, None), State::Ready(cpu)) if !self.oracle.thread(thread).allowed.contains(&cpu.0) => {
                Err(format!("thread {thread} was woken for CPU {cpu}, which its affinity does not allow"))
            }
            _ => Ok(()),
        }
    }

    fn pick(&mut self, cpu: u32) -> Finding {
        self.kicked.remove(&cpu);
        let is = match self.scheduler.pick(CpuId(cpu), self.now_ns) {
            Choice::Thread(thread) => Some(thread.0),
            Choice::Idle => None,
        };
        agree(&format!("CPU {cpu} runs"), is, self.oracle.pick(cpu, self.now_ns))
    }

    fn park(&mut self, cpu: u32) -> Finding {
        agree("the thread sleeps", self.scheduler.park(CpuId(cpu)), self.oracle.park(cpu))
    }

    fn stop(&mut self, cpu: u32, picks: bool, how: impl FnOnce(&mut Self, u32) -> Finding) -> Finding {
        how(self, cpu)?;
        if picks { self.pick(cpu) } else { Ok(()) }
    }

    /// One whose slice may be over, if there is any.
    fn tick(&mut self, drawn: u32, offloads: bool) -> Finding {
        let shares = self.oracle.with(|cpu| cpu.runs.is_some() && !cpu.normal.is_empty());
        let cpu = one_of(&shares, drawn).unwrap_or(drawn % self.count());
        if offloads {
            let is = self.scheduler.offload(CpuId(cpu));
            let expected = self.oracle.offload(cpu);
            self.note_kick("the end of the slice kicks", is, expected)?;
        }
        let gives_way = self.oracle.tick(cpu, self.now_ns);
        agree("the slice is over", self.scheduler.tick(CpuId(cpu), self.now_ns), gives_way)?;
        if gives_way { self.pick(cpu) } else { Ok(()) }
    }

    fn pass(&mut self, moment: Moment) -> Finding {
        let until_ns = match moment {
            Moment::Later(ns) => Some(self.now_ns + ns),
            Moment::Slice(drawn, less_ns) => {
                let all = self.oracle.with(|cpu| cpu.runs.is_some() && !cpu.normal.is_empty());
                let end_ns = one_of(&all, drawn).and_then(|cpu| self.oracle.deadline_ns(cpu));
                end_ns.map(|end_ns| end_ns.saturating_sub(less_ns))
            }
            Moment::Cold(drawn, less_ns) => {
                let ran_ns = self.thread(drawn).and_then(|thread| self.oracle.thread(thread).ran_ns);
                ran_ns.map(|ran_ns| ran_ns + HOT_NS - less_ns)
            }
        };
        self.now_ns = until_ns.unwrap_or(0).max(self.now_ns);
        Ok(())
    }

    fn allow(&mut self, drawn: u32, allowed: Allowed) -> Finding {
        let Some(thread) = self.thread(drawn) else { return Ok(()) };
        let affinity = allowed.affinity(self.count());
        let expected = self.allowed(&affinity).map(|allowed| self.oracle.allow(thread, allowed));
        if let Ok(kicked) = expected {
            self.kicked.extend(kicked);
        }
        agree("the new affinity", self.scheduler.set_affinity(ThreadId(thread), &affinity).map(number), expected)
    }

    fn offline(&mut self, drawn: u32) -> Finding {
        let Some(cpu) = one_of(&self.oracle.with(|cpu| cpu.online), drawn) else { return Ok(()) };
        let mut is = Vec::new();
        self.scheduler.offline(CpuId(cpu), |kicked| is.push(kicked.0));
        let expected = self.oracle.offline(cpu);
        self.kicked.extend(&expected);
        // It stops what it runs.
        self.kicked.insert(cpu);
        agree("going offline kicks", is, expected)
    }

    fn online(&mut self, drawn: u32) -> Finding {
        let Some(cpu) = one_of(&self.oracle.with(|cpu| !cpu.online), drawn) else { return Ok(()) };
        let expected = self.oracle.online(cpu);
        if expected {
            self.kicked.insert(cpu);
        }
        agree("threads wait for the CPU that is back", self.scheduler.online(CpuId(cpu)), expected)
    }

    fn stack_returned(&mut self, drawn: u32) -> Finding {
        let lends = self.oracle.with(|cpu| cpu.borrows.is_some());
        let Some(cpu) = one_of(&lends, drawn) else { return Ok(()) };
        let is = self.scheduler.stack_returned(CpuId(cpu));
        let expected = self.oracle.stack_returned(cpu);
        self.note_kick("the returned stack kicks", is, expected)
    }

    /// Every CPU that has been told does what it was told for. Then a CPU that idles has no thread that waits for it.
    fn rest(&mut self) -> Finding {
        // A CPU between two threads picks without being kicked.
        let between = self.oracle.with(|cpu| cpu.runs.is_none() && cpu.online && !cpu.idles);
        self.kicked.extend(between);
        while let Some(cpu) = self.kicked.pop_first() {
            self.pick(cpu)?;
        }
        for index in 0..self.oracle.threads.len() as u32 {
            let State::Ready(cpu) = self.scheduler.state(ThreadId(index)) else { continue };
            if self.scheduler.is_online(cpu) && self.scheduler.current(cpu).is_none() {
                return Err(format!("CPU {cpu} idles, and thread {index} waits for it"));
            }
        }
        Ok(())
    }

    /// They agree in all that a caller can ask.
    fn compare(&self) -> Finding {
        for (index, thread) in (0..).zip(&self.oracle.threads) {
            let is = place_of(self.scheduler.state(ThreadId(index)));
            if is != thread.place {
                return Err(format!("thread {index} is {is:?}, expected {:?}", thread.place));
            }
        }
        for (index, cpu) in (0..).zip(&self.oracle.cpus) {
            let id = CpuId(index);
            let is = (
                self.scheduler.current(id).map(|thread| thread.0),
                self.scheduler.lent_to_idle(id).map(|thread| thread.0),
                self.scheduler.is_online(id),
                self.scheduler.preempts(id),
                self.scheduler.next_deadline_ns(id),
            );
            let expected =
                (cpu.runs, cpu.borrows, cpu.online, self.oracle.preempts(index), self.oracle.deadline_ns(index));
            if is != expected {
                let what = "runs, stands on the stack of, is online, should pick, slice ends";
                return Err(format!("CPU {index} ({what}): {is:?}, expected {expected:?}"));
            }
        }
        Ok(())
    }

    /// Brings every CPU back, and lets each thread run to its sleep: none may be left behind.
    pub(super) fn drain(&mut self) -> Finding {
        let count = self.count();
        for _ in 0..count {
            self.apply(&SchedulerStep::Online(0))?;
        }
        self.apply(&SchedulerStep::Rest)?;
        // Those that run, and those behind them; a thread that was woken before it slept runs twice.
        for _ in 0..=2 * self.oracle.threads.len() {
            for cpu in self.oracle.with(|cpu| cpu.runs.is_some()) {
                self.stop(cpu, true, Self::park)?;
            }
        }
        self.compare()?;
        let is_left =
            |thread: u32| !matches!(place_of(self.scheduler.state(ThreadId(thread))), Place::Sleeps | Place::Gone);
        match (0..self.oracle.threads.len() as u32).find(|&thread| is_left(thread)) {
            Some(thread) => Err(format!("thread {thread} never ran to its sleep")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

//! What a scheduler must do, from the rules in the documentation of `sched`: plain lists and sets, searched from one end to
//! the other. It shares nothing with the scheduler's code.

use crate::coverage::Coverage;
use std::collections::BTreeSet;

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Waits(u32),
    Runs(u32),
    Sleeps,
    Gone,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) place: Place,
    pub(super) urgent: bool,
    pub(super) allowed: BTreeSet<u32>,
    /// The CPU of these on which it ran last, or is to run first.
    pub(super) last: u32,
    /// The CPU that stands on its stack without running it.
    pub(super) lent: Option<u32>,
    /// When it was last given a CPU or lost it to another.
    pub(super) ran_ns: Option<u64>,
    woken: bool,
    /// What is left of its slice.
    rest_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) online: bool,
    /// Its last pick found nothing, and nothing was queued for it since.
    pub(super) idles: bool,
    pub(super) runs: Option<u32>,
    pub(super) borrows: Option<u32>,
    pub(super) urgent: Vec<u32>,
    pub(super) normal: Vec<u32>,
    slice_end_ns: u64,
}

/// Consecutive CPUs that share something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domains {
    pub(super) node: u32,
    pub(super) cache: u32,
}

/// The expected state of a scheduler.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) threads: Vec<Thread>,
    pub(super) cpus: Vec<Cpu>,
    pub(super) domains: Option<Domains>,
    pub(super) seen: Coverage,
    slice_ns: u64,
    /// The next new thread's CPU is searched from here.
    next: u32,
}

/// The first of `cpus` from `from` upwards and then round.
pub(super) fn round(cpus: impl IntoIterator<Item = u32>, from: u32) -> Option<u32> {
    cpus.into_iter().min_by_key(|&cpu| (cpu < from, cpu))
}

impl Oracle {
    pub(super) fn new(count: u32, slice_ns: u64, domains: Option<Domains>) -> Self {
        let cpu = |_| Cpu { online: true, idles: true, ..Cpu::default() };
        let cpus = (0..count).map(cpu).collect();
        Self { threads: Vec::new(), cpus, domains, seen: Coverage::default(), slice_ns, next: 0 }
    }

    pub(super) fn cpu(&mut self, cpu: u32) -> &mut Cpu {
        &mut self.cpus[cpu as usize]
    }

    pub(super) fn thread(&mut self, thread: u32) -> &mut Thread {
        &mut self.threads[thread as usize]
    }

    fn saw(&mut self, what: &'static str) {
        self.seen.add(what, 1);
    }

    pub(super) fn with(&self, is: impl Fn(&Cpu) -> bool) -> Vec<u32> {
        (0..).zip(&self.cpus).filter(|(_, cpu)| is(cpu)).map(|(number, _)| number).collect()
    }

    /// The CPUs of `allowed` that are online.
    pub(super) fn usable(&self, allowed: &BTreeSet<u32>) -> Vec<u32> {
        self.with(|cpu| cpu.online).into_iter().filter(|cpu| allowed.contains(cpu)).collect()
    }

    pub(super) fn is_urgent(&self, thread: u32) -> bool {
        self.threads[thread as usize].urgent
    }

    /// A new thread of these CPUs, one of which exists: its number, and who is kicked.
    pub(super) fn spawn(&mut self, allowed: BTreeSet<u32>, urgent: bool) -> (u32, Option<u32>) {
        let usable = self.usable(&allowed);
        let last = match (usable.is_empty(), self.domains) {
            (true, _) => round(allowed.iter().copied(), self.next % self.cpus.len() as u32),
            (false, None) => round(usable, self.next % self.cpus.len() as u32),
            (false, Some(domains)) => {
                self.saw("spawn: by load");
                Some(self.least_loaded(domains, &usable))
            }
        };
        let last = last.expect("one of them exists");
        self.next = last + 1;
        let number = self.threads.len() as u32;
        let place = Place::Sleeps;
        self.threads.push(Thread { place, urgent, allowed, last, lent: None, ran_ns: None, woken: false, rest_ns: 0 });
        let to = self.target(number, None);
        (number, self.join(number, to))
    }

    /// Another affinity, whose CPUs exist. Who is kicked.
    pub(super) fn allow(&mut self, number: u32, allowed: BTreeSet<u32>) -> Option<u32> {
        let usable = self.usable(&allowed);
        let first = usable.first().or(allowed.first()).copied().expect("one of them exists");
        let thread = self.thread(number);
        thread.allowed = allowed;
        if !thread.allowed.contains(&thread.last) {
            thread.last = first;
        }
        let (place, lent) = (thread.place, thread.lent);
        match place {
            Place::Waits(cpu) if !self.cpus[cpu as usize].online && lent.is_none() => {
                let to = self.target(number, None);
                if to == cpu {
                    return None;
                }
                self.saw("held thread: goes elsewhere");
                self.leave(cpu, number);
                self.join(number, to)
            }
            _ => None,
        }
    }

    /// A thread leaves the queue of a CPU.
    pub(super) fn leave(&mut self, cpu: u32, number: u32) {
        let cpu = self.cpu(cpu);
        cpu.urgent.retain(|&other| other != number);
        cpu.normal.retain(|&other| other != number);
    }

    /// A thread comes to the end of the queue of a CPU. Who is kicked.
    pub(super) fn join(&mut self, number: u32, to: u32) -> Option<u32> {
        let urgent = self.is_urgent(number);
        let outranks = self.cpus[to as usize].runs.is_some_and(|runs| urgent && !self.is_urgent(runs));
        self.thread(number).place = Place::Waits(to);
        let cpu = self.cpu(to);
        let is_told = cpu.idles || outranks && cpu.urgent.is_empty();
        cpu.idles = false;
        if urgent {
            cpu.urgent.push(number)
        } else {
            cpu.normal.push(number)
        }
        (cpu.online && is_told).then_some(to)
    }

    /// Where a thread that becomes ready goes.
    fn target(&mut self, number: u32, waker: Option<u32>) -> u32 {
        let thread = &self.threads[number as usize];
        let (last, allowed) = (thread.last, &thread.allowed);
        if let Some(lent) = thread.lent {
            self.saw("wake: of a lent stack");
            return lent;
        }
        let is_online = self.cpus[last as usize].online;
        if let Some(domains) = self.domains.filter(|_| is_online) {
            return self.near(domains, number, waker);
        }
        let idle: Vec<_> = self.with(|cpu| cpu.idles).into_iter().filter(|cpu| allowed.contains(cpu)).collect();
        if self.cpus[last as usize].idles {
            return last;
        }
        let elsewhere = if is_online { None } else { round(self.usable(allowed), last) };
        round(idle, last).or(elsewhere).unwrap_or(last)
    }

    /// Who is kicked by a wake.
    pub(super) fn wake(&mut self, number: u32, waker: Option<u32>, wanted: Option<u32>) -> Option<u32> {
        match self.threads[number as usize].place {
            Place::Gone => None,
            Place::Waits(_) | Place::Runs(_) => {
                self.saw("wake: before the sleep");
                self.thread(number).woken = true;
                None
            }
            Place::Sleeps => {
                let thread = &self.threads[number as usize];
                let may = |cpu: &u32| {
                    thread.lent.is_none() && thread.allowed.contains(cpu) && self.cpus[*cpu as usize].online
                };
                let to = wanted.filter(may).unwrap_or_else(|| self.target(number, waker));
                self.join(number, to)
            }
        }
    }

    /// The thread of `cpu` stops, and its stack stays in use.
    fn stop(&mut self, cpu: u32, place: Place) -> u32 {
        let number = self.cpu(cpu).runs.take().expect("it runs one");
        self.cpu(cpu).borrows = Some(number);
        let thread = self.thread(number);
        (thread.place, thread.lent, thread.rest_ns) = (place, Some(cpu), 0);
        number
    }

    /// False: it was woken before.
    pub(super) fn park(&mut self, cpu: u32) -> bool {
        let number = self.cpu(cpu).runs.expect("it runs one");
        let woken = std::mem::take(&mut self.thread(number).woken);
        if !woken {
            self.stop(cpu, Place::Sleeps);
        }
        !woken
    }

    pub(super) fn exit(&mut self, cpu: u32) {
        self.stop(cpu, Place::Gone);
    }

    pub(super) fn yield_now(&mut self, cpu: u32) {
        let number = self.stop(cpu, Place::Waits(cpu));
        let urgent = self.is_urgent(number);
        let cpu = self.cpu(cpu);
        if urgent { cpu.urgent.push(number) } else { cpu.normal.push(number) }
    }

    /// Whether a CPU should pick, whatever the time.
    pub(super) fn preempts(&self, cpu: u32) -> bool {
        let Cpu { online, runs, urgent, normal, .. } = &self.cpus[cpu as usize];
        match runs {
            Some(runs) => !online || !urgent.is_empty() && !self.is_urgent(*runs),
            None => *online && !(urgent.is_empty() && normal.is_empty()),
        }
    }

    /// The end of a slice for which somebody waits.
    pub(super) fn deadline_ns(&self, cpu: u32) -> Option<u64> {
        let cpu = &self.cpus[cpu as usize];
        let shares = cpu.runs.is_some_and(|runs| !self.is_urgent(runs)) && !cpu.normal.is_empty();
        shares.then_some(cpu.slice_end_ns)
    }

    /// The running thread of `cpu` goes on, unless it must give way.
    fn goes_on(&mut self, cpu: u32, now_ns: u64) -> bool {
        let over = self.deadline_ns(cpu).is_some_and(|end_ns| now_ns >= end_ns);
        let goes_on = !self.preempts(cpu) && !over;
        if goes_on && now_ns >= self.cpu(cpu).slice_end_ns {
            self.cpu(cpu).slice_end_ns = now_ns + self.slice_ns;
        }
        goes_on
    }

    pub(super) fn tick(&mut self, cpu: u32, now_ns: u64) -> bool {
        match self.cpu(cpu).runs {
            None => self.preempts(cpu),
            Some(_) => !self.goes_on(cpu, now_ns),
        }
    }

    /// What a CPU runs next.
    pub(super) fn pick(&mut self, cpu: u32, now_ns: u64) -> Option<u32> {
        if let Some(runs) = self.cpu(cpu).runs {
            if self.goes_on(cpu, now_ns) {
                return Some(runs);
            }
            self.preempt(cpu, now_ns);
        }
        if !self.cpu(cpu).online {
            return None;
        }
        let of = self.cpu(cpu);
        let queued = of.urgent.first().or(of.normal.first()).copied();
        let next = match queued {
            Some(next) => {
                self.leave(cpu, next);
                Some(next)
            }
            None => self.pull(cpu, now_ns),
        };
        self.cpu(cpu).idles = next.is_none();
        let next = next?;
        if let Some(borrowed) = self.cpu(cpu).borrows.take() {
            self.thread(borrowed).lent = None;
        }
        let slice_ns = self.slice_ns;
        let thread = self.thread(next);
        (thread.place, thread.ran_ns) = (Place::Runs(cpu), Some(now_ns));
        if thread.allowed.contains(&cpu) {
            thread.last = cpu;
        }
        let rest_ns = std::mem::take(&mut thread.rest_ns);
        let of = self.cpu(cpu);
        of.runs = Some(next);
        of.slice_end_ns = now_ns + if rest_ns == 0 { slice_ns } else { rest_ns };
        Some(next)
    }

    /// It keeps its place and the rest of its slice; when that is over, it goes behind the others.
    fn preempt(&mut self, cpu: u32, now_ns: u64) {
        let rest_ns = self.cpu(cpu).slice_end_ns.saturating_sub(now_ns);
        let number = self.stop(cpu, Place::Waits(cpu));
        let thread = self.thread(number);
        (thread.rest_ns, thread.ran_ns) = (rest_ns, Some(now_ns));
        let urgent = thread.urgent;
        self.saw(if rest_ns == 0 { "preempted: its slice was over" } else { "preempted: within its slice" });
        let cpu = self.cpu(cpu);
        match (urgent, rest_ns) {
            (true, _) => cpu.urgent.insert(0, number),
            (false, 0) => cpu.normal.push(number),
            (false, _) => cpu.normal.insert(0, number),
        }
    }

    /// The CPUs to kick.
    pub(super) fn offline(&mut self, cpu: u32) -> Vec<u32> {
        (self.cpu(cpu).online, self.cpu(cpu).idles) = (false, false);
        self.evacuate(cpu)
    }

    /// Threads wait for it.
    pub(super) fn online(&mut self, cpu: u32) -> bool {
        self.cpu(cpu).online = true;
        for other in self.with(|cpu| !cpu.online) {
            let kicked = self.evacuate(other);
            // The caller learns of that one below.
            assert!(
                kicked.iter().all(|&kicked| kicked == cpu),
                "a held thread found another CPU than the one that came"
            );
        }
        let waits = self.preempts(cpu);
        let of = self.cpu(cpu);
        of.idles = of.runs.is_none() && !waits;
        waits
    }

    /// Who is kicked when an idle CPU stands on its own stack again.
    pub(super) fn stack_returned(&mut self, cpu: u32) -> Option<u32> {
        let borrowed = self.cpu(cpu).borrows.take()?;
        self.thread(borrowed).lent = None;
        let kicked = if self.cpu(cpu).online { Vec::new() } else { self.evacuate(cpu) };
        kicked.last().copied()
    }

    /// Threads of an offline CPU go where they may, or stay.
    fn evacuate(&mut self, cpu: u32) -> Vec<u32> {
        let of = self.cpu(cpu);
        let queued = [std::mem::take(&mut of.urgent), std::mem::take(&mut of.normal)].concat();
        let mut kicked = Vec::new();
        for number in queued {
            let to = self.target(number, None);
            self.saw(if to == cpu { "offline: a thread is held" } else { "offline: a thread moved" });
            kicked.extend(self.join(number, to));
        }
        kicked
    }
}

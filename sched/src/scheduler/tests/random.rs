//! Random steps, against plain lists.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;

/// The naive model: plain lists, one class and CPU each. It takes from the scheduler only where a thread was placed,
/// checks that it may be there, and predicts every pick.
struct Naive {
    scheduler: Scheduler,
    threads: Vec<NaiveThread>,
    queues: Vec<[VecDeque<ThreadId>; 2]>,
    running: Vec<Option<ThreadId>>,
    /// CPUs whose last pick found nothing.
    idle: Vec<bool>,
    now_ns: u64,
}

struct NaiveThread {
    spec: ThreadSpec,
    state: State,
    token: bool,
    /// The CPU that uses its stack, whether or not it runs the thread.
    stack_of: Option<CpuId>,
}

#[derive(Clone, Debug)]
enum Step {
    Spawn(u8, bool),
    Park(u8),
    Exit(u8),
    Yield(u8),
    Wake(u8),
    Pick(u8),
    Pass(u16),
    Offline(u8),
    Online(u8),
    StackReturned(u8),
}

const CPUS: u32 = 3;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (any::<u8>(), any::<bool>()).prop_map(|(affinity, urgent)| Step::Spawn(affinity, urgent)),
        4 => any::<u8>().prop_map(Step::Park),
        1 => any::<u8>().prop_map(Step::Exit),
        2 => any::<u8>().prop_map(Step::Yield),
        6 => any::<u8>().prop_map(Step::Wake),
        8 => any::<u8>().prop_map(Step::Pick),
        2 => (0..1500_u16).prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::Offline),
        2 => any::<u8>().prop_map(Step::Online),
        1 => any::<u8>().prop_map(Step::StackReturned),
    ]
}

fn cpu_of(byte: u8) -> CpuId {
    CpuId(u32::from(byte) % CPUS)
}

impl Naive {
    fn new() -> Self {
        Self {
            scheduler: Scheduler::new(CPUS, SLICE_NS),
            threads: Vec::new(),
            queues: (0..CPUS).map(|_| Default::default()).collect(),
            running: vec![None; CPUS as usize],
            idle: vec![true; CPUS as usize],
            now_ns: 0,
        }
    }

    fn thread(&mut self, id: ThreadId) -> &mut NaiveThread {
        &mut self.threads[id.0 as usize]
    }

    fn queue(&mut self, cpu: CpuId, id: ThreadId) -> &mut VecDeque<ThreadId> {
        let class = usize::from(!self.thread(id).spec.urgent);
        &mut self.queues[cpu.index()][class]
    }

    /// Looks up where the scheduler put a thread that became ready.
    fn became_ready(&mut self, id: ThreadId) {
        let State::Ready(cpu) = self.scheduler.state(id) else { panic!("{id:?} is not ready") };
        if let Some(lender) = self.thread(id).stack_of {
            assert_eq!(cpu, lender, "a thread whose stack is lent is queued elsewhere");
        }
        self.thread(id).state = State::Ready(cpu);
        self.queue(cpu, id).push_back(id);
    }

    /// After CPUs came or went: follows queued threads, in the order in which they were queued.
    fn follow_moves(&mut self, from: CpuId) {
        for class in 0..2 {
            for id in core::mem::take(&mut self.queues[from.index()][class]) {
                self.became_ready(id);
            }
        }
    }

    fn stop(&mut self, cpu: CpuId, state: State) {
        let id = self.running[cpu.index()].take().expect("checked by the caller");
        self.thread(id).state = state;
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Spawn(affinity, urgent) => self.spawn(affinity, urgent),
            Step::Wake(byte) => self.wake(byte),
            Step::Pass(ns) => self.now_ns += u64::from(ns),
            Step::Pick(byte) => self.pick(cpu_of(byte)),
            Step::Park(byte) | Step::Exit(byte) | Step::Yield(byte) if self.running[cpu_of(byte).index()].is_none() => {
            }
            Step::Park(byte) => self.park(cpu_of(byte)),
            Step::Exit(byte) => {
                self.scheduler.exit(cpu_of(byte));
                self.stop(cpu_of(byte), State::Exited);
            }
            Step::Yield(byte) => {
                let cpu = cpu_of(byte);
                let id = self.running[cpu.index()].expect("checked by the guard");
                self.scheduler.yield_now(cpu);
                self.stop(cpu, State::Ready(cpu));
                self.queue(cpu, id).push_back(id);
            }
            Step::Offline(byte) => {
                self.scheduler.offline(cpu_of(byte), |_| {});
                self.follow_moves(cpu_of(byte));
            }
            Step::Online(byte) => {
                self.scheduler.online(cpu_of(byte));
                (0..CPUS).map(CpuId).for_each(|cpu| {
                    if !self.scheduler.is_online(cpu) {
                        self.follow_moves(cpu);
                    }
                });
            }
            Step::StackReturned(byte) => self.stack_returned(cpu_of(byte)),
        }
    }

    fn spawn(&mut self, affinity: u8, urgent: bool) {
        if self.threads.len() >= 12 {
            return;
        }
        let affinity = match affinity % 8 {
            0 | 7 => Affinity::Any,
            1 => Affinity::Cpu(cpu_of(affinity / 8)),
            mask => Affinity::Set((0..CPUS).filter(|cpu| mask & (1 << cpu) != 0).map(CpuId).collect()),
        };
        let spec = spec(affinity, urgent);
        let (id, kicked) = self.scheduler.spawn(&spec).expect("every mask from 2 to 6 names a CPU");
        self.threads.push(NaiveThread { spec, state: State::Parked, token: false, stack_of: None });
        self.check_kick(id, kicked);
        self.became_ready(id);
    }

    fn wake(&mut self, byte: u8) {
        if self.threads.is_empty() {
            return;
        }
        let id = ThreadId(u32::from(byte) % self.threads.len() as u32);
        let kicked = self.scheduler.wake(id);
        match self.thread(id).state {
            State::Parked => {
                self.check_kick(id, kicked);
                self.became_ready(id);
            }
            State::Exited => assert_eq!(kicked, None),
            _ => {
                assert_eq!(kicked, None);
                self.thread(id).token = true;
            }
        }
    }

    /// The scheduler must kick a CPU that idles or runs a lower-ranked thread, unless such a thread is queued there
    /// already.
    fn check_kick(&mut self, id: ThreadId, kicked: Option<CpuId>) {
        let State::Ready(cpu) = self.scheduler.state(id) else { panic!("{id:?} was made ready") };
        assert!(kicked.is_none_or(|kicked| kicked == cpu));
        if !self.scheduler.is_online(cpu) {
            assert_eq!(kicked, None);
            return;
        }
        if self.idle[cpu.index()] && self.queues[cpu.index()].iter().all(VecDeque::is_empty) {
            assert_eq!(kicked, Some(cpu), "an idle CPU was not told");
        }
        let runs_lower = self.running[cpu.index()].is_some_and(|run| !self.threads[run.0 as usize].spec.urgent);
        let urgent_waits = !self.queues[cpu.index()][0].is_empty();
        if self.threads[id.0 as usize].spec.urgent && runs_lower && !urgent_waits {
            assert_eq!(kicked, Some(cpu));
        }
    }

    fn park(&mut self, cpu: CpuId) {
        let id = self.running[cpu.index()].expect("checked by the guard");
        let token = core::mem::take(&mut self.thread(id).token);
        assert_eq!(self.scheduler.park(cpu), !token, "a wake since the last park makes it return at once");
        if !token {
            self.stop(cpu, State::Parked);
        }
    }

    fn stack_returned(&mut self, cpu: CpuId) {
        if self.running[cpu.index()].is_some() {
            return;
        }
        let lent = self.scheduler.lent_to_idle(cpu);
        self.scheduler.stack_returned(cpu);
        let Some(id) = lent else { return };
        self.thread(id).stack_of = None;
        if !self.scheduler.is_online(cpu) {
            self.follow_moves(cpu);
        }
    }

    fn pick(&mut self, cpu: CpuId) {
        let deadline_ns = self.scheduler.next_deadline_ns(cpu);
        let was = self.running[cpu.index()];
        let choice = self.scheduler.pick(cpu, self.now_ns);
        self.idle[cpu.index()] = choice == Choice::Idle;
        if let Some(id) = was {
            let [urgent, normal] = &self.queues[cpu.index()];
            let slice_over = deadline_ns.is_some_and(|deadline_ns| self.now_ns >= deadline_ns);
            let outranked = !urgent.is_empty() && !self.threads[id.0 as usize].spec.urgent;
            let turn_over = slice_over && !normal.is_empty();
            if !outranked && !turn_over && self.scheduler.is_online(cpu) {
                assert_eq!(choice, Choice::Thread(id), "a running thread was stopped without a reason");
                return;
            }
            self.stop(cpu, State::Ready(cpu));
            let over = deadline_ns.is_none_or(|deadline_ns| self.now_ns >= deadline_ns);
            let has_rest = self.scheduler.threads[id.0 as usize].slice_left_ns > 0;
            assert!(deadline_ns.is_none() || has_rest != over, "the rest of a slice decides the place");
            // Urgent threads have no slices.
            let to_front = has_rest || self.threads[id.0 as usize].spec.urgent;
            let queue = self.queue(cpu, id);
            if to_front { queue.push_front(id) } else { queue.push_back(id) }
        }
        if !self.scheduler.is_online(cpu) {
            assert_eq!(choice, Choice::Idle);
            return;
        }
        let [urgent, normal] = &mut self.queues[cpu.index()];
        let expected = urgent.pop_front().or_else(|| normal.pop_front());
        assert_eq!(choice, expected.map_or(Choice::Idle, Choice::Thread), "urgent first, each class in order");
        if let Some(id) = expected {
            self.ran(cpu, id);
        }
    }

    fn ran(&mut self, cpu: CpuId, id: ThreadId) {
        self.threads.iter_mut().filter(|thread| thread.stack_of == Some(cpu)).for_each(|thread| thread.stack_of = None);
        let thread = self.thread(id);
        assert_eq!(thread.stack_of, None, "its stack is in use");
        thread.stack_of = Some(cpu);
        thread.state = State::Running(cpu);
        let allowed = match &thread.spec.affinity {
            Affinity::Any => true,
            Affinity::Cpu(only) => *only == cpu,
            Affinity::Set(set) => set.contains(cpu),
        };
        assert!(allowed, "{id:?} runs on CPU {cpu} against its affinity");
        self.running[cpu.index()] = Some(id);
    }

    fn check(&self) {
        for (index, thread) in self.threads.iter().enumerate() {
            let id = ThreadId(index as u32);
            assert_eq!(self.scheduler.state(id), thread.state);
            let running_on = self.running.iter().filter(|&&run| run == Some(id)).count();
            let queued = self.queues.iter().flatten().flatten().filter(|&&queued| queued == id).count();
            let (is_running, is_ready) =
                (matches!(thread.state, State::Running(_)), matches!(thread.state, State::Ready(_)));
            assert_eq!(
                (running_on, queued),
                (usize::from(is_running), usize::from(is_ready)),
                "{id:?} lost or doubled"
            );
        }
    }

    /// Brings everything online and lets every thread run to its park: none may be left behind.
    fn drain(&mut self) {
        (0..CPUS as u8).for_each(|cpu| self.apply(Step::Online(cpu)));
        for _ in 0..4 * self.threads.len() {
            for cpu in 0..CPUS as u8 {
                self.apply(Step::Pick(cpu));
                self.apply(Step::Park(cpu));
            }
        }
        let left = self.threads.iter().filter(|thread| matches!(thread.state, State::Ready(_) | State::Running(_)));
        assert_eq!(left.count(), 0, "a runnable thread never ran");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn the_scheduler_agrees_with_plain_lists(steps in proptest::collection::vec(step(), 1..200)) {
        let mut naive = Naive::new();
        for step in steps {
            naive.apply(step);
            naive.check();
        }
        naive.drain();
    }
}

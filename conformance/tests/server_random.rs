//! Random management against random load. After any history, everything completes within a bound, nothing is left, and
//! the counts add up. The same seed gives the same history.

use campanile_conformance::server::{Config, GUEST_NOTIFICATION, Host, Path, Queue, Server};
use drivers::vtd::GuestPosting;
use hal::{Affinity, CpuId, CpuSet, Dma as _, Hal as _, ThreadSpec, Threads, Word as _};
use irq::posted::{Deliverable, Descriptor, Notification};
use irq::{Action, Irq, IrqDomain as _, IrqError, RequestFlags, StormConfig, Vector};
use machine::unrest::Unrest;
use machine::{SimHal, Word};
use proptest::prelude::*;
use std::sync::Arc;

/// After management has stopped, the rest of the load may take this long: some thousand commands at 10 µs, and a few
/// flights, ticks and throttles.
const BOUND_NS: u64 = 20_000_000;

#[derive(Clone, Debug)]
enum Step {
    Move(u32, u32),
    /// Disables a line this many times, waits, enables it as often.
    Disable(u32, u32, u64),
    Offline(u32, u64),
    Retrigger(u32),
    /// The handler goes and comes back.
    Replace(u32),
    Synchronize(u32),
    /// This many more commands.
    Load(u32, u64, u32),
    /// A guest has the line, or gives it back.
    Lend(u32),
    /// Another line's messages keep a CPU busy.
    Ring(u64, u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (line, cpu) = (0..4u32, 0..4u32);
    prop_oneof![
        5 => (line.clone(), 1..16u32).prop_map(|(line, cpus)| Step::Move(line, cpus)),
        2 => (line.clone(), 1..4u32, 0..20_000u64).prop_map(|(line, depth, ns)| Step::Disable(line, depth, ns)),
        3 => (cpu, 0..80_000u64).prop_map(|(cpu, ns)| Step::Offline(cpu, ns)),
        2 => line.clone().prop_map(Step::Retrigger),
        1 => line.clone().prop_map(Step::Replace),
        1 => line.clone().prop_map(Step::Synchronize),
        3 => (line.clone(), 1..200u64, 1..32u32).prop_map(|(line, count, depth)| Step::Load(line, count, depth)),
        2 => line.clone().prop_map(Step::Lend),
        1 => (1..60u64, 400..4_000u64).prop_map(|(count, period)| Step::Ring(count, period)),
        4 => (0..60_000u64).prop_map(Step::Pass),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let delivery = prop_oneof![1 => Just(Path::Plain), 1 => Just(Path::Remapped), 3 => Just(Path::Posted)];
    let storm = StormConfig { burst: 40, burst_ns_min: 60_000, unhandled_max: 30, throttle_ns: 150_000 };
    let storm = prop_oneof![3 => Just(StormConfig::default()), 1 => Just(storm)];
    (delivery, 2..=4u32, 1..=2u32, 1..=2u32, any::<bool>(), any::<u64>(), 1..=4u64, storm).prop_map(
        |(delivery, cpus, drives, queues, managed, seed, speed, storm)| Config {
            storm,
            delivery,
            cpus,
            drives,
            queues,
            managed,
            seed,
            read_ns: speed * 5_000,
            ..Config::default()
        },
    )
}

/// A queue's guest: the descriptor to which its line is posted while it is lent.
struct Guest {
    memory: <SimHal as hal::Hal>::Dma,
    lent: bool,
}

impl Guest {
    fn new() -> Self {
        let memory = SimHal.dma_alloc(64, 64).expect("memory");
        Descriptor::new(memory.words()).initialise(Notification { vector: GUEST_NOTIFICATION, destination: 0 });
        Self { memory, lent: false }
    }

    fn lend_or_take(&mut self, host: &Host, queue: &Queue) {
        let Some(remap) = host.remap().filter(|remap| remap.is_posted()) else { return };
        let entry = host.core().view(queue.line).expect("a line").levels[1].hwirq;
        self.lent = !self.lent;
        let descriptor = self.memory.device_address();
        let done = match self.lent {
            true => remap.lend_to_guest(entry, GuestPosting { descriptor, vector: Vector(0x66), urgent: false }),
            false => remap.take_back(entry),
        };
        done.expect("the unit works");
    }

    /// The guest's driver, on its virtual CPU.
    fn serve(&self, queue: &Queue) {
        let reap = |_| _ = queue.pair.handle(queue.line);
        Descriptor::new(self.memory.words()).serve(1, &Deliverable::ALL, |_| (), reap);
    }
}

/// Does one step; numbers of queues and CPUs count modulo their number.
fn apply(host: &Arc<Host>, guests: &mut [Guest], step: &Step) {
    let queues: Vec<_> = host.queues().collect();
    let queue = |index: u32| queues[index as usize % queues.len()];
    match *step {
        Step::Move(line, cpus) => {
            let wanted: CpuSet = (0..host.cpus()).filter(|cpu| cpus & 1 << cpu != 0).map(CpuId).collect();
            let line = queue(line).line;
            match host.core().set_affinity(line, &wanted) {
                Ok(()) => {}
                Err(error) => {
                    let managed = host.core().view(line).expect("a line").managed;
                    let expected = if managed { IrqError::Managed(line) } else { IrqError::NoCpu(line) };
                    assert_eq!(error, expected);
                }
            }
        }
        Step::Disable(line, depth, ns) => {
            (0..depth).for_each(|_| host.core().disable(queue(line).line).expect("from a thread"));
            SimHal.delay_ns(ns);
            (0..depth).for_each(|_| host.core().enable(queue(line).line).expect("disabled"));
        }
        Step::Offline(cpu, ns) => {
            host.offline_for(CpuId(cpu % host.cpus()), ns).expect("others are online");
        }
        Step::Retrigger(line) => host.core().retrigger(queue(line).line).expect("all are online"),
        Step::Replace(line) => {
            let queue = queue(line);
            let action: Arc<dyn Action> = queue.pair.clone();
            host.core().free(queue.line, &action).expect("its handler");
            let flags = RequestFlags { start_disabled: true, ..RequestFlags::default() };
            host.core().request(queue.line, "again", flags, action).expect("no handler");
            host.core().enable(queue.line).expect("it starts disabled");
            // Completions in between had no line, so the driver looks for them itself.
            queue.pair.poll(usize::MAX);
        }
        Step::Synchronize(line) => host.core().synchronize(queue(line).line).expect("from a thread"),
        Step::Load(line, count, depth) => {
            let room = 31 - u32::from(queue(line).pair.snapshot().in_flight);
            queue(line).load.start(count, depth.min(room));
        }
        Step::Lend(line) => guests[line as usize % queues.len()].lend_or_take(host, queue(line)),
        Step::Ring(count, period_ns) => host.ringer.ring(count, period_ns),
        Step::Pass(ns) => SimHal.delay_ns(ns),
    }
    queues.iter().zip(&*guests).for_each(|(queue, guest)| guest.serve(queue));
}

struct Quick;

impl Action for Quick {
    fn handle(&self, _: Irq) -> irq::IrqReturn {
        irq::IrqReturn::Handled
    }
}

/// Steps that a second manager may do beside the first: those that need not run alone. A disable is excluded beside a
/// replacement, whose request forgets the disables of the previous handler.
fn is_shareable(step: &Step, beside: &[Step]) -> bool {
    match step {
        Step::Move(..) | Step::Retrigger(_) | Step::Synchronize(_) | Step::Ring(..) | Step::Pass(_) => true,
        Step::Disable(..) => !beside.iter().any(|step| matches!(step, Step::Replace(_))),
        Step::Offline(..) | Step::Replace(_) | Step::Load(..) | Step::Lend(_) => false,
    }
}

/// Has a second manager go through its history on CPU 1, which comes and goes; the word is 1 when it has ended.
fn start_second_manager(host: &Arc<Host>, steps: Vec<Step>) -> Arc<Word> {
    let over = Arc::new(<Word as hal::Word>::new(0));
    let (host, done) = (host.clone(), over.clone());
    let body = move || {
        steps.iter().for_each(|step| apply(&host, &mut [], step));
        done.swap(1);
    };
    let spec = ThreadSpec { name: "second manager", affinity: Affinity::Cpu(CpuId(1)), urgent: false };
    SimHal.spawn(spec, Box::new(body)).expect("CPU 1 exists");
    over
}

/// Runs two histories at a time to their end, checks everything, and returns the machine's digest and clock.
fn run(config: &Config, steps: &[Step], others: &[Step]) -> (u64, u64) {
    let mut server = Server::new(config);
    let history = steps.to_vec();
    let second: Vec<Step> = others.iter().filter(|step| is_shareable(step, steps)).cloned().collect();
    server.run(move |host| {
        let line = host.ringer_line();
        host.core().request(line, "ringer", RequestFlags::default(), Arc::new(Quick)).expect("a new line");
        host.queues().for_each(|queue| queue.load.start(50, 8));
        let mut guests: Vec<_> = host.queues().map(|_| Guest::new()).collect();
        let second = start_second_manager(host, second);
        history.iter().for_each(|step| apply(host, &mut guests, step));
        while second.load() == 0 {
            SimHal.relax_on(&second, 0, u64::MAX);
        }
        for (queue, guest) in host.queues().zip(&mut guests).filter(|(_, guest)| guest.lent) {
            guest.lend_or_take(host, queue);
            guest.serve(queue);
        }
        host.ringer.ring(0, 0);
        let limit_ns = SimHal.now_ns() + BOUND_NS;
        while !host.queues().all(|queue| queue.load.is_done()) {
            assert!(SimHal.now_ns() < limit_ns, "not done {BOUND_NS} ns after the last step\n{}", host.describe());
            SimHal.delay_ns(10_000);
        }
    });
    server.finish();
    assert_eq!(server.faults(), []);
    let digest = server.machine.engine_counters().digest;
    server.run(|host| host.check_no_vector_leaked());
    (digest, server.machine.now().0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_history_everything_completes_once_and_nothing_is_left(
        config in config(),
        steps in prop::collection::vec(step(), 1..40),
        others in prop::collection::vec(step(), 0..40),
    ) {
        run(&config, &steps, &others);
    }
}

fn busy_history() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..12 {
        steps.extend([
            Step::Load(round, 150, 20),
            Step::Move(round, 1 << (round % 4)),
            Step::Pass(9_000),
            Step::Offline(round, 40_000),
            Step::Ring(20, 900),
            Step::Retrigger(round + 1),
            Step::Lend(round / 2),
            Step::Disable(round, 2, 4_000),
        ]);
    }
    steps
}

#[test]
fn a_seed_is_a_history_on_every_host_thread_and_another_seed_another() {
    for delivery in [Path::Plain, Path::Remapped, Path::Posted] {
        let of = move |seed, short_cuts| {
            run(&Config { delivery, seed, short_cuts, ..Config::default() }, &busy_history(), &busy_history())
        };
        let first = of(7, true);
        assert_eq!(of(7, true), first, "twice on one thread");
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(move || of(7, true))).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), first, "on another thread");
        }
        assert_eq!(of(7, false), first, "without the engine's short cuts");
        assert_ne!(of(8, true).0, first.0, "another seed");
    }
}

/// All of the above also holds when every point of the seam may be disturbed.
#[test]
fn a_random_schedule_loses_nothing_and_is_the_same_without_the_engines_short_cuts() {
    for delivery in [Path::Plain, Path::Remapped, Path::Posted] {
        let of = |seed, short_cuts| {
            let unrest = Some(Unrest::new(seed));
            run(&Config { delivery, short_cuts, unrest, ..Config::default() }, &busy_history(), &busy_history())
        };
        let calm = run(&Config { delivery, ..Config::default() }, &busy_history(), &busy_history());
        for seed in 0..6 {
            let first = of(seed, true);
            assert_ne!(first, calm, "seed {seed}");
            assert_eq!(of(seed, false), first, "seed {seed} without the engine's short cuts");
        }
    }
}

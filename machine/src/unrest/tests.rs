//! A machine that does some of everything, disturbed.

use super::turns::{Cause, Turn};
use super::{Chance, Kind, Unrest};
use crate::model::Model;
use crate::time::Ps;
use crate::world::World;
use crate::{Costs, Machine, MachineConfig, Regs, RunEnd, SimHal, Word};
use hal::{Affinity, CpuId, Hal, Lock, Regs as _, ThreadSpec, Threads, Word as _, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Work of the tests' own.
const SUBMIT: Work = Work::custom(0);

/// Raises a vector for every write, round the CPUs; refuses to be written out of order; reads what was written last.
struct Bell {
    cpus: u32,
    last: [u64; 2],
    disorder: u64,
    line: u64,
}

impl Model for Bell {
    fn name(&self) -> &str {
        "bell"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, arg: u64) {
        world.interrupt((arg % u64::from(self.cpus)) as u32, 0x40 + (arg % 64) as u8, false);
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, offset: u32, _: u8) -> u64 {
        self.last[offset as usize / 8]
    }
    fn write(&mut self, world: &mut World<'_>, _: u8, offset: u32, _: u8, value: u64) {
        let last = &mut self.last[offset as usize / 8];
        self.disorder += u64::from(value <= *last);
        *last = value;
        let at = world.line_reserve(self.line, world.now(), Ps::from_ns(20));
        world.schedule(at, 0, value);
    }
    fn is_far(&self) -> bool {
        true
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// What a run left.
#[derive(PartialEq, Eq, Debug)]
struct Left {
    digest: u64,
    end: Ps,
    counts: [u64; Kind::COUNT],
    interrupts: u64,
    disorder: u64,
}

/// The kinds that happen on a machine without a GIC or a virtio device.
fn usual() -> impl Iterator<Item = Kind> {
    let others = [Kind::LateDisable, Kind::LateCommand, Kind::LateReset, Kind::ReservedField];
    Kind::ALL.into_iter().filter(move |kind| !others.contains(kind))
}

const CPUS: u32 = 3;
const ROUNDS: u64 = 60;

/// Pairs of threads that hand a word to and fro, share a lock, and write and read a register each.
fn busy(unrest: Option<Unrest>, short_cuts: bool) -> Left {
    let mut costs = Costs { wake_from_idle: Ps::from_ns(500), time_slice: Ps::from_ns(20_000), ..Costs::default() };
    costs.work.set_ps(SUBMIT, 300_000);
    costs.work.set_ps(Work::IrqHandler, 100_000);
    let config =
        MachineConfig { cpus: CPUS, costs, jitter_percent: 40, short_cuts, unrest, ..MachineConfig::default() };
    let mut machine = Machine::new(config);
    let memory = SimHal.dma_alloc(64, 64).expect("room");
    let line = hal::Dma::device_address(&memory).0;
    let bell = machine.add_model(|_| Box::new(Bell { cpus: CPUS, last: [0; 2], disorder: 0, line }));
    let interrupts = Arc::new(AtomicU64::new(0));
    let count = interrupts.clone();
    machine.set_interrupt_entry(move |vector| {
        count.fetch_add(u64::from(vector < 0x80), Relaxed);
        SimHal.work(Work::IrqHandler, 1);
        Regs::Lapic.write32(0x80b, 0);
    });
    let regs = machine.regs(bell, 0);
    let done = Arc::new(Word::new(0));
    let over = done.clone();
    let boot = move || {
        let shared = Arc::new(Lock::new(SimHal, 0u64));
        let memory = Arc::new(memory);
        for pair in 0..2u64 {
            let turn = Arc::new(Word::new(0));
            for side in 0..2u64 {
                let (shared, turn, over, memory) = (shared.clone(), turn.clone(), over.clone(), memory.clone());
                let body = move || take_turns((pair, side), regs, &turn, &shared, &memory, &over);
                let affinity = if side == 0 { Affinity::Any } else { Affinity::Cpu(CpuId(pair as u32)) };
                let spec = ThreadSpec { name: "side", affinity, urgent: false };
                SimHal.spawn(spec, Box::new(body)).expect("the CPUs exist");
            }
        }
        sleepers(&over);
        for cpu in 0..CPUS {
            let spec = ThreadSpec { name: "lapic", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
            SimHal.spawn(spec, Box::new(|| Regs::Lapic.write32(0x80f, 0x1ff))).expect("the CPU exists");
        }
        while over.load() < 6 {
            SimHal.relax_on(&over, over.get(), u64::MAX);
        }
        *shared.lock()
    };
    assert_eq!(machine.run_boot(Ps::from_ns(50_000_000), boot), Ok(4 * ROUNDS), "the lock excludes");
    let end = machine.now();
    assert_eq!(machine.run_until(end + Ps::from_ns(1_000_000)), RunEnd::Quiet);
    let disorder = machine.with_model(bell, |bell: &mut Bell| bell.disorder).expect("it is a bell");
    let digest = machine.engine_counters().digest;
    Left { digest, end, counts: machine.unrest_counts(), interrupts: interrupts.load(Relaxed), disorder }
}

/// One thread of a pair.
fn take_turns(
    (pair, side): (u64, u64),
    regs: Regs,
    turn: &Word,
    shared: &Lock<SimHal, u64>,
    memory: &crate::memory::Dma,
    over: &Word,
) {
    for round in 0..ROUNDS {
        while turn.load() != round * 2 + side {
            SimHal.relax_on(turn, turn.get(), u64::MAX);
        }
        let state = SimHal.irq_save();
        SimHal.work(SUBMIT, 1);
        let written = round * 2 + side + 1;
        regs.write64(pair as u32 * 8, written);
        SimHal.irq_restore(state);
        assert_eq!(regs.read64(pair as u32 * 8), written, "a read pushes the writes before it");
        hal::Dma::words(memory)[1].set(written);
        hal::Dma::words(memory)[0].fetch_add(1);
        let before = {
            let mut value = shared.lock();
            let before = *value;
            SimHal.delay_ns(50);
            *value = before + 1;
            before
        };
        assert!(before < 4 * ROUNDS);
        Regs::Lapic.write32(0x83f, 0x90);
        turn.swap(round * 2 + side + 1);
        SimHal.yield_now();
    }
    over.fetch_add(1);
}

/// Two threads that wake each other in turn: no wake is lost, and none is made up.
fn sleepers(over: &Arc<Word>) {
    let first = Arc::new(Word::new(0));
    let ids = Arc::new([Word::new(0), Word::new(0)]);
    for me in 0..2usize {
        let (over, ids, first) = (over.clone(), ids.clone(), first.clone());
        let body = move || {
            ids[me].set(u64::from(SimHal.current_thread().0));
            first.fetch_add(1);
            while first.load() < 2 {
                SimHal.relax_on(&first, first.get(), u64::MAX);
            }
            for _ in 0..ROUNDS {
                if me == 0 {
                    SimHal.wake(hal::ThreadId(ids[1].get() as u32));
                    SimHal.park();
                } else {
                    SimHal.park();
                    SimHal.wake(hal::ThreadId(ids[0].get() as u32));
                }
            }
            over.fetch_add(1);
        };
        let spec = ThreadSpec { name: "sleeper", affinity: Affinity::Any, urgent: false };
        SimHal.spawn(spec, Box::new(body)).expect("there are CPUs");
    }
}

#[test]
fn without_unrest_nothing_is_disturbed() {
    let left = busy(None, true);
    assert_eq!(left.counts, [0; Kind::COUNT]);
    assert_eq!(left.interrupts, 2 * 2 * ROUNDS);
    // A schedule whose window is empty is none: not a number of the models' is drawn for it.
    let never = Unrest { until: Ps(0), ..Unrest::new(5) };
    assert_eq!(busy(Some(never), true), left);
}

#[test]
fn every_kind_happens_and_nothing_is_lost() {
    let (mut digests, mut sum) = (Vec::new(), [0; Kind::COUNT]);
    for seed in 0..20 {
        let left = busy(Some(Unrest::new(seed)), true);
        assert_eq!(left.disorder, 0, "seed {seed}");
        // Two of one vector that meet in an IRR are one.
        assert!((ROUNDS..=4 * ROUNDS).contains(&left.interrupts), "seed {seed}: {left:?}");
        Kind::ALL.iter().for_each(|&kind| sum[kind as usize] += left.counts[kind as usize]);
        digests.push(left.digest);
    }
    assert!(usual().all(|kind| sum[kind as usize] > 0), "{sum:?}");
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 20, "a seed is a schedule");
}

#[test]
fn a_seed_is_a_schedule_with_and_without_the_engines_short_cuts() {
    for seed in 0..8 {
        let first = busy(Some(Unrest::new(seed)), true);
        assert_eq!(busy(Some(Unrest::new(seed)), true), first, "seed {seed} again");
        assert_eq!(busy(Some(Unrest::new(seed)), false), first, "seed {seed} without the engine's short cuts");
        let there = std::thread::spawn(move || busy(Some(Unrest::new(seed)), true)).join().expect("it ran");
        assert_eq!(there, first, "seed {seed} on another host thread");
    }
}

#[test]
fn each_kind_can_be_left_out_or_be_alone() {
    let all = |chance| Unrest { chances: [chance; Kind::COUNT], ..Unrest::new(3) };
    let often = Chance { per_mille: 300, longest: Ps::from_ns(700) };
    for kind in usual() {
        let without = busy(Some(all(often).without(kind)), true);
        assert_eq!(without.counts[kind as usize], 0, "{}", kind.name());
        assert_eq!(without.counts.iter().filter(|&&count| count > 0).count(), usual().count() - 1, "{}", kind.name());
        let alone = busy(Some(all(Chance::default()).with(kind, often)), true);
        assert!(alone.counts[kind as usize] > 0, "{}", kind.name());
        assert_eq!(alone.counts.iter().sum::<u64>(), alone.counts[kind as usize], "{}", kind.name());
        assert_ne!(alone.digest, without.digest);
    }
}

#[test]
fn a_window_ends_the_unrest() {
    let half = busy(Some(Unrest::new(1)), true).end.0 / 2;
    let until = Unrest { until: Ps(half), ..Unrest::new(1) };
    let (whole, part) = (busy(Some(Unrest::new(1)), true), busy(Some(until), true));
    let sum = |left: &Left| left.counts.iter().sum::<u64>();
    assert!(sum(&part) > 0 && sum(&part) < sum(&whole));
}

/// Even when every chance is certain, threads go on and the run ends.
#[test]
fn certain_disturbances_starve_nobody_for_ever() {
    let certain = Chance { per_mille: 1_000, longest: Ps::from_ns(300) };
    let left = busy(Some(Unrest { chances: [certain; Kind::COUNT], ..Unrest::new(1) }), true);
    assert!(usual().all(|kind| left.counts[kind as usize] > 0), "{left:?}");
}

/// Who only tries a lock may find it held although its holder has done the last thing that it wanted to do.
#[test]
fn a_lock_may_be_freed_late() {
    let gets = |unrest| {
        let mut machine = Machine::new(MachineConfig { cpus: 2, unrest, ..MachineConfig::default() });
        let boot = || {
            let shared = Arc::new((Lock::new(SimHal, ()), Word::new(0)));
            let held = shared.clone();
            let body = move || {
                let guard = held.0.lock();
                SimHal.delay_ns(1_000);
                held.1.set(1);
                drop(guard);
            };
            let spec = ThreadSpec { name: "holder", affinity: Affinity::Cpu(CpuId(1)), urgent: false };
            SimHal.spawn(spec, Box::new(body)).expect("the CPU exists");
            while shared.1.get() == 0 {
                SimHal.delay_ns(1);
            }
            let gets = shared.0.try_lock().is_some();
            SimHal.delay_ns(1_000);
            (gets, shared.0.try_lock().is_some())
        };
        machine.run_boot(Ps::from_ns(1_000_000), boot).expect("it ends")
    };
    let always = Chance { per_mille: 1_000, longest: Ps::from_ns(700) };
    let only = |seed| Unrest { chances: [Chance::default(); Kind::COUNT], ..Unrest::new(seed) };
    assert_eq!(gets(None), (true, true));
    let late = (1..=4).map(|seed| gets(Some(only(seed).with(Kind::LateRelease, always))));
    assert_eq!(late.collect::<Vec<_>>(), [(false, true); 4]);
}

/// A CPU sets a word and reads another one, which a second CPU sets when it has seen the first.
#[test]
fn a_plain_read_behind_an_update_sees_what_came_between() {
    let reads = |unrest| {
        let mut machine = Machine::new(MachineConfig { cpus: 2, unrest, ..MachineConfig::default() });
        let boot = || {
            let words = Arc::new([0, 0].map(Word::new));
            let own = words.clone();
            let body = move || {
                while own[0].get() == 0 {
                    SimHal.delay_ns(10);
                }
                own[1].set(1);
            };
            let spec = ThreadSpec { name: "second", affinity: Affinity::Cpu(CpuId(1)), urgent: false };
            SimHal.spawn(spec, Box::new(body)).expect("the CPU exists");
            SimHal.delay_ns(10_000);
            words[0].swap(1);
            words[1].get()
        };
        machine.run_boot(Ps::from_ns(1_000_000), boot).expect("it ends")
    };
    let always = Chance { per_mille: 1_000, longest: Ps::from_ns(700) };
    let only = |seed| Unrest { chances: [Chance::default(); Kind::COUNT], ..Unrest::new(seed) };
    assert_eq!(reads(None), 0);
    let late: u64 = (1..=4).map(|seed| reads(Some(only(seed).with(Kind::LateStep, always)))).sum();
    assert!(late >= 3, "{late}");
}

/// A new thread may have run and slept before its starter has its number.
#[test]
fn a_starter_may_come_to_know_its_thread_late() {
    let had_run = |unrest| {
        let mut machine = Machine::new(MachineConfig { cpus: 2, unrest, ..MachineConfig::default() });
        let boot = || {
            let ran = Arc::new(Word::new(0));
            let own = ran.clone();
            let spec = ThreadSpec { name: "new", affinity: Affinity::Cpu(CpuId(1)), urgent: false };
            SimHal.spawn(spec, Box::new(move || own.set(1))).expect("the CPU exists");
            ran.get()
        };
        machine.run_boot(Ps::from_ns(1_000_000), boot).expect("it ends")
    };
    let always = Chance { per_mille: 1_000, longest: Ps::from_ns(50_000) };
    let only = |seed| Unrest { chances: [Chance::default(); Kind::COUNT], ..Unrest::new(seed) };
    assert_eq!(had_run(None), 0);
    let late: u64 = (1..=4).map(|seed| had_run(Some(only(seed).with(Kind::LateStarter, always)))).sum();
    assert!(late >= 3, "{late}");
}

/// Two agents add 1 to a word, each by a read and a write. The value in the end, and the turns.
fn race(schedule: &str) -> (u64, Vec<Turn>) {
    let unrest = Some(Unrest::directed(schedule.parse().expect("a schedule")));
    let mut machine = Machine::new(MachineConfig { cpus: 2, unrest, ..MachineConfig::default() });
    let word = Arc::new(Word::new(0));
    for agent in 0..2 {
        let word = word.clone();
        let body = move || {
            crate::begin_agent(agent);
            SimHal.delay_ns(10);
            let value = word.get();
            SimHal.delay_ns(10);
            word.set(value + 1);
            crate::end_agent();
        };
        let spec = ThreadSpec { name: "agent", affinity: Affinity::Cpu(CpuId(agent.into())), urgent: false };
        SimHal.spawn(spec, Box::new(body)).expect("a CPU");
    }
    machine.run_until(Ps::from_ns(1_000_000));
    (word.get(), machine.turns().0)
}

#[test]
fn a_directed_schedule_stops_an_agent_where_it_says() {
    // One after the other, whoever begins; a stop before the read does no harm; one between read and write does.
    for (schedule, value) in [("ab", 2), ("ba", 2), ("ab,a1b", 2), ("ab,a2b", 1), ("ba,b2a", 1), ("ab,a2b,b1a", 2)] {
        assert_eq!(race(schedule).0, value, "{schedule}");
    }
    let causes = |schedule| race(schedule).1.iter().map(|turn| (turn.agent, turn.cause)).collect::<Vec<_>>();
    assert_eq!(causes("ab"), [(0, Cause::Begin), (1, Cause::Ended)]);
    assert_eq!(causes("ab,a2b"), [(0, Cause::Begin), (1, Cause::Switch), (0, Cause::Ended)]);
    assert_eq!(race("ab").1[0], Turn { agent: 0, cause: Cause::Begin, from: 1, to: 3, alive: 3 });
}

#[test]
fn an_agent_that_waits_gives_its_turn_away() {
    for polls in [false, true] {
        let unrest = Some(Unrest::directed("ab".parse().expect("a schedule")));
        let mut machine = Machine::new(MachineConfig { cpus: 2, unrest, ..MachineConfig::default() });
        let word = Arc::new(Word::new(0));
        for agent in 0..2 {
            let word = word.clone();
            let body = move || {
                crate::begin_agent(agent);
                if agent == 1 {
                    word.swap(1);
                }
                while word.load() == 0 {
                    if polls { SimHal.delay_ns(100) } else { SimHal.relax_on(&word, 0, u64::MAX) }
                }
                crate::end_agent();
            };
            let spec = ThreadSpec { name: "agent", affinity: Affinity::Cpu(CpuId(agent.into())), urgent: false };
            SimHal.spawn(spec, Box::new(body)).expect("a CPU");
        }
        machine.run_until(Ps::from_ns(1_000_000));
        let causes: Vec<_> = machine.turns().0.iter().map(|turn| (turn.agent, turn.cause)).collect();
        assert_eq!(causes, [(0, Cause::Begin), (1, Cause::Waited), (0, Cause::Ended)], "polls: {polls}");
    }
}

/// A device that writes down what it reads of two words, whenever it is asked.
struct Reader {
    address: u64,
    seen: Vec<[u64; 2]>,
}

impl Model for Reader {
    fn name(&self) -> &str {
        "reader"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, _arg: u64) {
        let word = |index: u64| world.read64(self.address + 8 * index).expect("it is memory");
        self.seen.push([word(0), word(1)]);
    }
    fn read(&mut self, world: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        self.event(world, 0, 0);
        0
    }
    fn write(&mut self, world: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {
        self.event(world, 0, 0);
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// What a device sees of two stores of a CPU, every 10 ns, and at last by a register access that follows them.
fn stores_seen(unrest: Option<Unrest>, atomic: bool) -> Vec<[u64; 2]> {
    let mut machine = Machine::new(MachineConfig { unrest, ..MachineConfig::default() });
    let memory = SimHal.dma_alloc(64, 64).expect("room");
    let address = hal::Dma::device_address(&memory).0;
    let reader = machine.add_model(|_| Box::new(Reader { address, seen: Vec::new() }));
    let regs = machine.regs(reader, 0);
    (0..200).for_each(|step| machine.poke(reader, Ps::from_ns(10 * step), 0, 0));
    let body = move || {
        let words = hal::Dma::words(&memory);
        words[0].set(1);
        if atomic {
            words[1].swap(1)
        } else {
            words[1].get()
        };
        words[1].set(1);
        assert_eq!(words.iter().map(Word::get).take(2).collect::<Vec<_>>(), [1, 1], "the CPU sees its stores");
        regs.write32(0, 0);
    };
    machine.run_boot(Ps::from_ns(10_000), body).expect("it ends");
    machine.run_until(Ps::from_ns(20_000));
    let mut seen =
        machine.with_model(reader, |reader: &mut Reader| std::mem::take(&mut reader.seen)).expect("it is one");
    seen.dedup();
    seen
}

#[test]
fn a_device_sees_plain_stores_late_but_in_order_and_before_a_register_access() {
    let often = Chance { per_mille: 1_000, longest: Ps::from_ns(700) };
    let slow =
        |seed| Unrest { chances: [Chance::default(); Kind::COUNT], ..Unrest::new(seed) }.with(Kind::SlowStore, often);
    assert_eq!(stores_seen(None, false), [[0, 0], [1, 1]], "both at once without unrest");
    let mut all: Vec<_> = (0..8).map(|seed| stores_seen(Some(slow(seed)), false)).collect();
    all.sort();
    all.dedup();
    // Old, torn, new.
    assert!(all.contains(&vec![[0, 0], [1, 0], [1, 1]]), "{all:?}");
    assert!(
        all.iter().flatten().all(|seen| *seen != [0, 1]) && all.iter().all(|seen| seen.last() == Some(&[1, 1])),
        "{all:?}"
    );
    // A read-modify-write waits for the store before it.
    for seed in 0..8 {
        let seen = stores_seen(Some(slow(seed)), true);
        assert!(seen.iter().all(|words| *words != [0, 1]), "{seen:?}");
    }
}

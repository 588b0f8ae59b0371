//! Software and models that loop at one instant.

use crate::model::Model;
use crate::time::Ps;
use crate::world::World;
use crate::{BootError, Machine, MachineConfig, RunEnd, SimHal, Word};
use hal::{Affinity, CpuId, Hal as _, ThreadSpec, Threads, Word as _};

fn machine() -> Machine {
    Machine::new(MachineConfig { cpus: 2, memory_bytes: 4096, still_steps_max: 10_000, ..MachineConfig::default() })
}

#[test]
fn a_poll_that_takes_no_time_is_found() {
    for short_cuts in [true, false] {
        let config = MachineConfig { still_steps_max: 10_000, short_cuts, ..MachineConfig::default() };
        let mut machine = Machine::new(config);
        let end = machine.run_boot(Ps::from_ns(1_000), || {
            let word = Word::new(0);
            while word.load() == 0 {}
        });
        assert_eq!(end, Err(BootError::Stuck(RunEnd::Livelock { cpu: Some(CpuId(0)) })));
        // The livelock persists. The machine can still be read out and dropped.
        let now = machine.now();
        assert_eq!(machine.run_until(Ps::from_ns(5_000)), RunEnd::Livelock { cpu: Some(CpuId(0)) });
        assert_eq!(machine.now(), now);
    }
}

#[test]
fn a_look_at_the_clock_takes_no_time_either() {
    let end = machine().run_boot(Ps::from_ns(1_000), || while SimHal.now_ns() < 500 {});
    assert_eq!(end, Err(BootError::Stuck(RunEnd::Livelock { cpu: Some(CpuId(0)) })));
}

#[test]
fn as_many_steps_as_are_allowed_are_none_too_many() {
    let end = machine().run_boot(Ps::from_ns(100_000), || {
        let word = Word::new(0);
        for _ in 0..3 {
            (0..9_990).for_each(|_| _ = word.load());
            SimHal.delay_ns(1);
        }
    });
    assert_eq!(end, Ok(()));
}

#[test]
fn waits_that_end_at_their_deadlines_are_no_standstill() {
    for other in [false, true] {
        let end = machine().run_boot(Ps::from_ns(100_000), move || {
            if other {
                let spec = ThreadSpec { name: "other", affinity: Affinity::Cpu(CpuId(1)), urgent: false };
                SimHal.spawn(spec, Box::new(wait_often)).expect("CPU 1 exists");
            }
            wait_often();
        });
        assert_eq!(end, Ok(()), "other: {other}");
    }
}

fn wait_often() {
    let word = Word::new(0);
    (0..15_000).for_each(|_| SimHal.relax_on(&word, 0, SimHal.now_ns() + 1));
}

/// Sends itself events at the present, or chains them.
struct Round;

impl Model for Round {
    fn name(&self) -> &str {
        "round"
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        if arg == 0 {
            world.schedule(world.now(), code, arg);
        } else {
            world.chain(world.me(), code, arg);
        }
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn events_without_end_at_one_instant_are_found() {
    for (arg, is_somebody_running) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut machine = machine();
        let round = machine.add_model(|_| Box::new(Round));
        machine.poke(round, Ps::from_ns(500), 0, arg);
        let livelock = RunEnd::Livelock { cpu: None };
        if is_somebody_running {
            let end = machine.run_boot(Ps::from_ns(1_000), || SimHal.delay_ns(800));
            assert_eq!(end, Err(BootError::Stuck(livelock)));
        } else {
            assert_eq!(machine.run_until(Ps::from_ns(1_000)), livelock);
        }
        assert_eq!(machine.now(), Ps::from_ns(500));
    }
}

#[test]
#[should_panic(expected = "the machine stands still")]
fn the_console_does_not_wait_for_a_machine_that_stands_still() {
    let mut machine = machine();
    let word = Word::new(0);
    assert!(machine.run_boot(Ps::from_ns(1_000), || while SimHal.now_ns() < 500 {}).is_err());
    SimHal.relax_on(&word, 0, u64::MAX);
}

use super::{CPU0, CPU1, Call, FIRST, core, request};
use crate::{Alarm, CpuTimers, Expired, Line};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::CpuId;
use hal::host::HostHal;
use irq::{Flow, IrqCore, RequestFlags};
use std::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Did {
    Arm(u64),
    Stop,
    Nudge(CpuId),
}

#[derive(Clone, Default)]
struct Timers(Arc<Mutex<Vec<Did>>>);

impl Timers {
    fn add(&self, did: Did) {
        self.0.lock().unwrap().push(did);
    }

    fn take(&self) -> Vec<Did> {
        core::mem::take(&mut self.0.lock().unwrap())
    }
}

impl CpuTimers for Timers {
    fn arm(&self, wait_ns: u64) {
        self.add(Did::Arm(wait_ns));
    }
    fn stop(&self) {
        self.add(Did::Stop);
    }
    fn nudge(&self, cpu: CpuId) {
        self.add(Did::Nudge(cpu));
    }
}

type World = (HostHal, Timers, Arc<Alarm<HostHal>>, Arc<IrqCore<HostHal>>, Line<HostHal>);

fn world() -> World {
    let hal = HostHal::manual(2);
    let timers = Timers::default();
    let (mut core, domain) = core(hal);
    let alarm = Alarm::new(hal, 2, Box::new(timers.clone()));
    core.set_deadline_hook(alarm.hook());
    let core = Arc::new(core);
    let line = Line::alloc(&core, Arc::new(domain), &request(), Flow::Edge).unwrap();
    (hal, timers, alarm, core, line)
}

fn expired(hal: HostHal, alarm: &Alarm<HostHal>, core: &IrqCore<HostHal>) -> Expired {
    hal.interrupt(CPU0, || {
        let whose = alarm.expired(core);
        core.housekeep();
        whose
    })
}

#[test]
fn without_deadlines_no_timer_is_touched() {
    let (hal, timers, alarm, core, line) = world();
    line.request("test", RequestFlags::default(), Arc::new(Call(|_| ()))).unwrap().keep();
    hal.interrupt(CPU0, || core.handle_vector(FIRST));
    assert_eq!(expired(hal, &alarm, &core), Expired::NotArmed);
    hal.interrupt(CPU0, || {
        alarm.look(&core);
        alarm.stop();
    });
    assert_eq!(timers.take(), []);
}

#[test]
fn a_throttled_line_comes_back_without_a_tick() {
    let (hal, timers, alarm, core, line) = world();
    line.request("test", RequestFlags::default(), Arc::new(Call(|_| ()))).unwrap().keep();
    for _ in 0..2 {
        hal.interrupt(CPU0, || core.handle_vector(FIRST));
    }
    assert_eq!(timers.take(), [Did::Arm(5_000)], "two interrupts within 1 µs are a storm here");
    hal.advance_ns(5_000);
    assert_eq!(expired(hal, &alarm, &core), Expired::Core);
    assert_eq!(core.next_deadline_ns(CPU0), None, "it is throttled no more");
    assert_eq!(timers.take(), []);
}

/// The tick switches threads: its interrupt ends when the thread that was interrupted runs again.
#[test]
fn a_throttled_line_does_not_wait_for_the_end_of_a_tick() {
    let (hal, timers, alarm, core, line) = world();
    line.request("test", RequestFlags::default(), Arc::new(Call(|_| ()))).unwrap().keep();
    hal.interrupt(CPU0, || alarm.arm(5_000));
    for _ in 0..2 {
        hal.interrupt(CPU0, || core.handle_vector(FIRST));
    }
    hal.advance_ns(5_000);
    timers.take();
    hal.interrupt(CPU0, || {
        assert_eq!(alarm.expired(&core), Expired::Kernel);
        alarm.arm(15_000);
    });
    assert_eq!(timers.take(), [Did::Arm(0)], "at once, for the core");
    assert_eq!(expired(hal, &alarm, &core), Expired::Core);
    assert_eq!(core.next_deadline_ns(CPU0), None, "it is throttled no more");
    assert_eq!(timers.take(), [Did::Arm(10_000)], "the next tick");
}

#[test]
fn the_timer_is_armed_for_the_earlier_of_both() {
    let (hal, timers, alarm, core, line) = world();
    hal.interrupt(CPU0, || alarm.arm(3_000));
    line.set_affinity(&hal::CpuSet::of(CPU1)).unwrap();
    assert_eq!(timers.take(), [Did::Arm(3_000), Did::Arm(1_000)], "the vector that it left is due after its flight");
    hal.advance_ns(1_000);
    assert_eq!(expired(hal, &alarm, &core), Expired::Core, "the kernel's is later");
    assert_eq!(timers.take(), [Did::Arm(2_000)]);
    hal.advance_ns(2_000);
    assert_eq!(expired(hal, &alarm, &core), Expired::Kernel);
    assert_eq!(expired(hal, &alarm, &core), Expired::NotArmed, "once");
}

#[test]
fn a_timer_that_comes_early_is_armed_again() {
    let (hal, timers, alarm, core, _line) = world();
    hal.interrupt(CPU0, || alarm.arm(3_000));
    hal.advance_ns(2_999);
    assert_eq!(expired(hal, &alarm, &core), Expired::Core);
    assert_eq!(timers.take(), [Did::Arm(3_000), Did::Arm(1)]);
}

#[test]
fn another_cpu_arms_its_own_timer() {
    let (hal, timers, alarm, core, line) = world();
    hal.on_cpu(CPU1, || line.set_affinity(&hal::CpuSet::of(CPU1)).unwrap());
    assert_eq!(timers.take(), [Did::Nudge(CPU0)]);
    hal.interrupt(CPU0, || alarm.look(&core));
    hal.interrupt(CPU0, || alarm.look(&core));
    assert_eq!(timers.take(), [Did::Arm(1_000)], "once");
    hal.interrupt(CPU0, || alarm.stop());
    assert_eq!(timers.take(), [Did::Stop]);
}

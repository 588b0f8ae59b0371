//! Random operations in any order on real lines of a GIC: no interrupt is lost, none stays active, and the GIC reports
//! no fault.

mod gic_rig;

use gic_rig::{ALL, ArmHarness, Count, Options, PULSE, Rig, wire_arg};
use hal::{CpuId, CpuSet, Hal as _};
use irq::{Action, Irq, IrqChipState, IrqCore, RequestFlags, Trigger};
use machine::SimHal;
use proptest::prelude::*;
use std::sync::Arc;

const LINES: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Raise(usize),
    Disable(usize),
    Enable(usize),
    Move(usize, u32),
    Retrigger(usize),
    /// Its handler is freed, and requested again.
    Replace(usize),
    /// CPU 1 is offline for this many nanoseconds, in which a line is raised.
    Away(usize, u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let line = 0..LINES;
    prop_oneof![
        4 => line.clone().prop_map(Step::Raise),
        1 => line.clone().prop_map(Step::Disable),
        1 => line.clone().prop_map(Step::Enable),
        1 => (line.clone(), 0..2u32).prop_map(|(line, cpu)| Step::Move(line, cpu)),
        1 => line.clone().prop_map(Step::Retrigger),
        1 => line.clone().prop_map(Step::Replace),
        1 => (line, 0..5_000u64).prop_map(|(line, ns)| Step::Away(line, ns)),
        3 => (1..3_000u64).prop_map(Step::Pass),
    ]
}

/// One step. `depth` counts how often each line is disabled.
fn apply(
    step: Step,
    system: &Arc<ArmHarness>,
    lines: &[Irq; LINES],
    counts: &[Arc<Count>; LINES],
    depth: &mut [u32; LINES],
) {
    let core = &system.core;
    match step {
        Step::Raise(line) => raise(core, lines[line]),
        Step::Disable(line) => {
            core.disable(lines[line]).expect("no handler asks");
            depth[line] += 1;
        }
        Step::Enable(line) if depth[line] > 0 => {
            core.enable(lines[line]).expect("it is disabled");
            depth[line] -= 1;
        }
        Step::Move(line, cpu) => {
            core.set_affinity(lines[line], &CpuSet::of(CpuId(cpu))).expect("both have started");
        }
        Step::Retrigger(line) => core.retrigger(lines[line]).expect("a GIC can"),
        Step::Replace(line) => {
            let handler: Arc<dyn Action> = counts[line].clone();
            core.free(lines[line], &handler).expect("no handler asks");
            core.request(lines[line], "random", RequestFlags::default(), handler).expect("it was freed");
            depth[line] = 0;
        }
        Step::Away(line, ns) => {
            let there = system.clone();
            system.on(1, move || there.leave());
            raise(core, lines[line]);
            SimHal.delay_ns(ns);
            let there = system.clone();
            system.on(1, move || there.come_up());
        }
        Step::Pass(ns) => SimHal.delay_ns(ns),
        Step::Enable(_) => {}
    }
}

fn raise(core: &IrqCore<SimHal>, line: Irq) {
    core.set_irqchip_state(line, IrqChipState::Pending, true).expect("a GIC keeps it");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_lines_live(
        which in 0..ALL.len(),
        force_threads: bool,
        steps in proptest::collection::vec(step(), 1..60),
        pulses in proptest::collection::vec((0..40_000u64, 40..43u32), 0..30),
    ) {
        let (version, mode) = ALL[which];
        let mut rig = Rig::new(version, mode, Options { cpus: 2, force_threads, ..Options::default() });
        let counts: [Arc<Count>; LINES] = Default::default();
        let handlers = counts.clone();
        let lines = rig.run(move |system| {
            [0, 1, 2].map(|index| {
                let line = system.spi(40 + index);
                system.core.set_type(line, Trigger::EdgeRising).expect("an SPI can be");
                let handler = handlers[index as usize].clone();
                system.core.request(line, "random", RequestFlags::default(), handler).expect("a new line");
                line
            })
        });
        for &(in_ns, intid) in &pulses {
            rig.wire(in_ns, PULSE, wire_arg(intid, 0, true));
        }
        let seen = counts.clone();
        let (active, served) = rig.run(move |system| {
            let core = &system.core;
            let mut depth = [0; LINES];
            steps.into_iter().for_each(|step| apply(step, system, &lines, &seen, &mut depth));
            for (line, depth) in lines.into_iter().zip(depth) {
                (0..depth).for_each(|_| core.enable(line).expect("it is disabled"));
            }
            SimHal.delay_ns(100_000);
            let before = seen.each_ref().map(|count| count.all());
            lines.into_iter().for_each(|line| raise(core, line));
            SimHal.delay_ns(100_000);
            let served = [0, 1, 2].map(|line| seen[line].all() - before[line]);
            (lines.map(|line| core.irqchip_state(line, IrqChipState::Active).expect("it keeps it")), served)
        });
        prop_assert_eq!(active, [false; LINES]);
        prop_assert_eq!(served, [1; LINES], "a line that is raised once more is served once more");
        rig.finish();
    }
}

//! The effects of a GIC's fault plan that software sees.

use crate::Interrupts;
use crate::gic::{Gic, GicConfig, GicFaults, PULSE, STICK, WIRE, wire_arg};
use crate::time::Ps;
use crate::{Machine, MachineConfig, SimHal};
use hal::{Hal as _, Regs as _};
use std::cell::RefCell;
use std::rc::Rc;

/// (time in ns, word read).
type Seen = Rc<RefCell<Vec<(u64, u32)>>>;

/// A GICv2 whose CPU 0 takes SPIs 40 (edge) and 41 (level); what its acknowledge register read, and when. A handler of
/// SPI 41 takes its wire down.
fn rig(faults: GicFaults) -> (Machine, Seen) {
    let interrupts = Interrupts::GicV2(GicConfig { spis: 32, faults, ..GicConfig::default() });
    let mut machine = Machine::new(MachineConfig { interrupts, memory_bytes: 4096, ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    let seen = Seen::default();
    let log = seen.clone();
    machine.set_exception_entry(move |_| {
        let word = gic.cpu_interface.read32(0x00c);
        log.borrow_mut().push((SimHal.now_ns(), word));
        if word < 1020 {
            gic.cpu_interface.write32(0x010, word);
        }
    });
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        gic.cpu_interface.write32(0x004, 0xf0);
        gic.cpu_interface.write32(0x000, 1);
        gic.distributor.write32(0xc08, 0x0002_0000);
        gic.distributor.write32(0x828, 0x0101);
        gic.distributor.write32(0x104, 3 << 8);
        gic.distributor.write32(0x000, 1);
    });
    assert_eq!(end, Ok(()));
    (machine, seen)
}

fn words(seen: &Seen) -> Vec<u32> {
    seen.take().into_iter().map(|(_, word)| word).collect()
}

fn counter(machine: &mut Machine, name: &str) -> u64 {
    let gic = machine.gic().expect("it was asked for").model;
    let counters = machine.with_any_model(gic, |model| model.counters());
    counters.into_iter().find(|(other, _)| *other == name).expect("a counter").1
}

#[test]
fn a_spurious_acknowledgement_leaves_the_interrupt_pending() {
    let (mut machine, seen) = rig(GicFaults { spurious: 500, ..GicFaults::default() });
    let gic = machine.gic().expect("it was asked for").model;
    for turn in 0..40 {
        machine.poke(gic, Ps::from_ns(1_000 * (turn + 1)), PULSE, wire_arg(40, 0, true));
    }
    machine.run_until(Ps::from_ns(50_000));
    let words = words(&seen);
    assert_eq!(words.iter().filter(|&&word| word == 40).count(), 40, "none is lost");
    let spurious = words.iter().filter(|&&word| word == 1023).count() as u64;
    assert!((15..100).contains(&spurious), "{spurious}");
    assert_eq!(counter(&mut machine, "withdrawn"), spurious);
    assert_eq!(words.len() as u64, 40 + spurious);
    let healed = machine.with_model(gic, |gic: &mut Gic| gic.faults_mut().until = Ps(0));
    assert_eq!(healed, Some(()));
    machine.poke(gic, Ps::from_ns(51_000), PULSE, wire_arg(40, 0, true));
    machine.run_until(Ps::from_ns(60_000));
    assert_eq!(self::words(&seen), [40]);
}

#[test]
fn a_doubled_edge_is_an_interrupt_more() {
    let faults = GicFaults { doubled: 1_000, until: Ps::from_ns(2_000), ..GicFaults::default() };
    let (mut machine, seen) = rig(faults);
    let gic = machine.gic().expect("it was asked for").model;
    machine.poke(gic, Ps::from_ns(1_000), PULSE, wire_arg(40, 0, true));
    machine.poke(gic, Ps::from_ns(10_000), PULSE, wire_arg(40, 0, true));
    machine.run_until(Ps::from_ns(20_000));
    let seen = seen.take();
    assert_eq!(seen.iter().map(|&(_, word)| word).collect::<Vec<_>>(), [40, 40, 40]);
    assert!(seen[1].0 > 1_000 && seen[1].0 <= 6_010, "{seen:?}");
    assert_eq!(counter(&mut machine, "doubled"), 1);
}

#[test]
fn a_line_that_sticks_comes_again_and_again_until_it_is_free() {
    let (mut machine, seen) = rig(GicFaults::default());
    let gic = machine.gic().expect("it was asked for").model;
    machine.poke(gic, Ps::from_ns(1_000), STICK, wire_arg(41, 0, true));
    // The device's changes have no effect.
    machine.poke(gic, Ps::from_ns(1_200), WIRE, wire_arg(41, 0, true));
    machine.poke(gic, Ps::from_ns(1_400), WIRE, wire_arg(41, 0, false));
    machine.poke(gic, Ps::from_ns(2_000), STICK, wire_arg(41, 0, false));
    machine.run_until(Ps::from_ns(10_000));
    let seen = seen.take();
    assert!(seen.len() > 100 && seen.iter().all(|&(at, word)| word == 41 || word == 1023 && at >= 2_000));
    assert!(seen.iter().all(|&(at, _)| (1_000..2_010).contains(&at)), "{:?}", seen.last());
    machine.poke(gic, Ps::from_ns(11_000), STICK, wire_arg(80, 0, true));
    machine.run_until(Ps::from_ns(12_000));
    assert_eq!(machine.faults().0[0].kind, "GIC wire that does not exist");
}

//! The embedded GIC on the machine's model: a level wire is served by its thread, once each time it is raised. Serving
//! it touches no register of the distributor.

use drivers::gic::{Affinity, Redistributors};
use example_threaded_gic::Wires;
use hal::{CpuId, Hal as _};
use irq::{IrqError, Trigger};
use machine::Interrupts;
use machine::gic::{GicConfig, WIRE, wire_arg};
use machine::time::Ps;
use machine::{Machine, MachineConfig, SimHal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use systems::arm::{GicHardware, TimerHardware};

const LIMIT: Ps = Ps::from_ns(1_000_000);
/// Duration of the driver's work.
const WORK_NS: u64 = 8_000;

#[test]
fn a_level_is_served_by_its_thread_without_a_mask() {
    let interrupts = Interrupts::GicV3(GicConfig::default());
    let mut machine = Machine::new(MachineConfig { interrupts, ..MachineConfig::default() });
    let windows = machine.gic().expect("it was asked for");
    let wires: Arc<OnceLock<Wires<SimHal>>> = Arc::default();
    let entry = wires.clone();
    machine.set_exception_entry(move |_| entry.get().expect("it is set up").irq_exception());
    let served = Arc::new(AtomicU64::new(0));
    let (slot, count) = (wires.clone(), served.clone());
    let refused = machine.run_boot(LIMIT, move || {
        let redistributors = Redistributors { regs: windows.redistributors, len_bytes: 0x2_0000, base: 0x080a_0000 };
        let gic = GicHardware::V3 {
            distributor: windows.distributor,
            redistributors: vec![redistributors],
            system_registers: windows.cpu_interface,
            affinities: vec![Affinity(0)],
        };
        let timer = TimerHardware::physical_timer(windows.timer);
        let wires = slot.get_or_init(|| Wires::new(SimHal, gic, timer).expect("a GICv3"));
        wires.start_cpu().expect("the boot CPU");
        let work = move || {
            SimHal.delay_ns(WORK_NS);
            count.fetch_add(1, Relaxed);
        };
        wires.connect(40, Trigger::LevelHigh, CpuId(0), work).expect("a wire").keep();
        wires.connect(41, Trigger::LevelLow, CpuId(0), || ()).map(|_| ())
    });
    assert!(matches!(refused, Ok(Err(IrqError::Undeliverable(_)))), "an SPI is no low level: {refused:?}");

    let counters = |machine: &mut Machine| {
        let counters = machine.with_any_model(windows.model, |gic| gic.counters());
        let of = |name| counters.iter().find(|(other, _)| *other == name).expect("a counter").1;
        ["distributor_reads", "distributor_writes", "deactivated"].map(of)
    };
    let before = counters(&mut machine);
    // Raises the wire three times. Lowers it while the thread works, as a device does when it has been served.
    for time in [10_000, 40_000, 70_000] {
        for (at_ns, raised) in [(time, true), (time + WORK_NS / 2, false)] {
            let at = machine.now() + Ps::from_ns(at_ns);
            machine.poke(windows.model, at, WIRE, wire_arg(40, 0, raised));
        }
    }
    machine.run_boot(LIMIT, || SimHal.delay_ns(150_000)).expect("time passes");
    let after = counters(&mut machine);
    assert_eq!(served.load(Relaxed), 3);
    let [reads, writes, deactivated] = [0, 1, 2].map(|index: usize| after[index] - before[index]);
    assert_eq!((reads, writes), (0, 0), "neither masked nor unmasked");
    assert!(deactivated >= 3);
    assert_eq!(machine.faults().0, []);
}

//! The PC on the machine: interrupts arrive, move away from a CPU that goes offline, and stop when the guard is
//! dropped.

use check::server::ringer::{Ringer, RingerPort};
use example_pc::{Firmware, bring_up, connect};
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Threads as _, Word as _};
use irq::{Action, Irq, IrqReturn, RequesterId};
use machine::fabric::dispatch::Dispatch;
use machine::fabric::port::Credits;
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::time::Ps;
use machine::{Machine, MachineConfig, Regs, SimHal, Word};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use systems::pc::{Path, Pc, PcCpus, PcError};

const LIMIT: Ps = Ps::from_ns(50_000_000);
const REQUESTER: u16 = 0x100;
const RINGS: u64 = 50;

/// A driver that counts its interrupts by CPU.
#[derive(Default)]
struct Driver([AtomicU64; 2]);

impl Driver {
    fn counts(&self) -> [u64; 2] {
        [&self.0[0], &self.0[1]].map(|count| count.load(Relaxed))
    }
}

impl Action for Driver {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.0[SimHal.cpu().index()].fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

fn unit(posted_interrupts: bool) -> VtdUnit {
    let config = VtdConfig {
        name: "dmar0".into(),
        posted_interrupts,
        extended_interrupt_mode: true,
        fault_records: 1,
        remap_time: Ps::from_ns(50),
        post_time: Ps::from_ns(100),
        command_time: Ps::from_ns(200),
        invalidation_time: Ps::from_ns(500),
        invalidation_fault: InvalidationFault::None,
    };
    VtdUnit::new(config, Dispatch::new(Ps::from_ns(100)), Credits::default())
}

/// Runs `body` on `cpu`, and waits for it.
fn on_cpu(cpu: u32, body: impl FnOnce() + Send + 'static) {
    let done = Arc::new(<Word as hal::Word>::new(0));
    let over = done.clone();
    let spec = ThreadSpec { name: "on cpu", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
    let thread = move || {
        body();
        over.swap(1);
    };
    SimHal.spawn(spec, Box::new(thread)).expect("the CPU exists");
    while done.load() == 0 {
        SimHal.relax_on(&done, 0, u64::MAX);
    }
}

/// The kernel's gates and its way to start CPUs.
fn start(gates: &OnceLock<Arc<PcCpus<SimHal>>>, cpus: &Arc<PcCpus<SimHal>>) -> Result<(), PcError> {
    assert!(gates.set(cpus.clone()).is_ok(), "once");
    for cpu in cpus.range() {
        let cpus = cpus.clone();
        on_cpu(cpu, move || cpus.start_cpu().expect("it comes for the first time"));
    }
    Ok(())
}

fn ring(device: RingerPort, driver: &Driver) -> [u64; 2] {
    let before = driver.counts();
    device.ring(RINGS, 2_000);
    SimHal.delay_ns(RINGS * 2_000 + 20_000);
    let after = driver.counts();
    [after[0] - before[0], after[1] - before[1]]
}

fn drive(pc: &Arc<Pc<SimHal>>, device: RingerPort) {
    let driver = Arc::new(Driver::default());
    let handler = connect(pc, RequesterId(REQUESTER), device, CpuSet::of(CpuId(1)), driver.clone()).expect("a line");
    assert_eq!(ring(device, &driver), [0, RINGS]);
    let (own, rung) = (pc.clone(), driver.clone());
    on_cpu(1, move || {
        let off = SimHal.irq_save();
        assert_eq!(own.stop_cpu(), Ok(CpuId(1)));
        let there = own.clone();
        on_cpu(0, move || assert_eq!(ring(device, &rung), [RINGS, 0], "CPU 1 is offline"));
        there.start_cpu().expect("it comes back");
        SimHal.irq_restore(off);
    });
    SimHal.delay_ns(3_000_000);
    assert_eq!(ring(device, &driver), [0, RINGS], "the line is at home again");
    assert_eq!(pc.strays(), 0);
    drop(handler);
    assert_eq!(Arc::strong_count(&driver), 1, "nobody can call it any more");
    assert_eq!(ring(device, &driver), [0, 0]);
}

/// Brings up a PC with or without a unit that can post, and uses it.
fn run(posted_interrupts: bool) -> (Path, String) {
    let mut machine = Machine::new(MachineConfig { cpus: 2, memory_bytes: 1 << 20, ..MachineConfig::default() });
    let unit = machine.add_model(|_| Box::new(unit(posted_interrupts)));
    let ringer = machine.add_model(|_| Box::new(Ringer::new(unit, REQUESTER)));
    let gates: Arc<OnceLock<Arc<PcCpus<SimHal>>>> = Arc::default();
    let entry = gates.clone();
    machine.set_interrupt_entry(move |vector| entry.get().expect("it is up").interrupt(vector));
    let windows = vec![Regs::Model { model: unit, region: 0 }];
    let result = machine.run_boot(LIMIT, move || {
        let firmware = Firmware { apic: Regs::Lapic, apic_ids: vec![0, 1], timer_hz: 1_000_000_000, units: windows };
        let pc = Arc::new(bring_up(SimHal, firmware, |cpus| start(&gates, cpus)).expect("it comes up"));
        drive(&pc, RingerPort(Regs::Model { model: ringer, region: 0 }));
        (pc.policy().units[0].path, pc.to_string())
    });
    result.unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn a_pc_posts_where_its_unit_can() {
    assert_eq!(run(true), (Path::Posted, "2 CPUs, messages posted".into()));
}

#[test]
fn a_pc_falls_back_and_says_why() {
    let (path, told) = run(false);
    assert_eq!(path, Path::Remapped);
    assert!(told.starts_with("2 CPUs, messages remapped, not posted: ") && told.contains("CAP.PI"), "{told}");
}

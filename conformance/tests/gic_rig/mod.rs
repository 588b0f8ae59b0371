//! A machine with a GIC, its driver and its core, built as for `check`, and operations of tests on it.
#![allow(dead_code, unreachable_pub, unused_imports)]

pub use check::gic::harness::{
    self, ALL, ArmHarness, Entry, ITS_BASE, Options, V2M_BASE, Version, hardware, request, spec,
};
pub use machine::gic::{PULSE, WIRE, wire_arg};

use drivers::gic::EoiMode;
use hal::Hal as _;
use irq::{Action, Irq, IrqReturn};
use machine::fault::FaultRecord;
use machine::gic::GicWindows;
use machine::time::Ps;
use machine::{Machine, MachineConfig, SimHal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A machine with its system.
pub struct Rig {
    pub machine: Machine,
    pub windows: GicWindows,
    system: Entry,
}

impl Rig {
    pub fn new(version: Version, mode: EoiMode, options: Options) -> Self {
        Self::with(version, mode, options, |_, _| ())
    }

    /// With further models, made before anything runs.
    pub fn with(version: Version, mode: EoiMode, options: Options, add: impl FnOnce(&mut Machine, GicWindows)) -> Self {
        let machine = MachineConfig { memory_bytes: 32 << 20, ..options.machine };
        let options = Options { machine, ..options };
        let system = Entry::default();
        let mut machine = harness::build(version, &options, &system);
        let windows = machine.gic().expect("it was asked for");
        add(&mut machine, windows);
        let entry = system.clone();
        let mut rig = Self { machine, windows, system };
        rig.boot(move || _ = harness::bring_up(windows, version, mode, &options, &entry));
        rig
    }

    fn boot<R: Send + 'static>(&mut self, body: impl FnOnce() -> R + Send + 'static) -> R {
        self.machine.run_boot(Ps::from_ns(1_000_000_000), body).expect("it ends")
    }

    /// Runs `body` as a thread on CPU 0.
    pub fn run<R: Send + 'static>(&mut self, body: impl FnOnce(&Arc<ArmHarness>) -> R + Send + 'static) -> R {
        let system = self.system.get().expect("it was brought up").clone();
        self.boot(move || body(&system))
    }

    /// Drives a wire or a pulse, this many nanoseconds from now.
    pub fn wire(&mut self, in_ns: u64, code: u32, arg: u64) {
        let at = self.machine.now() + Ps::from_ns(in_ns);
        self.machine.poke(self.windows.model, at, code, arg);
    }

    pub fn counter(&mut self, name: &str) -> u64 {
        let counters = self.machine.with_any_model(self.windows.model, |gic| gic.counters());
        counters.into_iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("counter {name}")).1
    }

    pub fn counters<const N: usize>(&mut self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.counter(name))
    }

    pub fn faults(&self) -> Vec<FaultRecord> {
        self.machine.faults().0
    }

    /// At the end of every test: no fault, and no interrupt that the driver could not assign.
    pub fn finish(&self) {
        assert_eq!(self.faults(), []);
        let system = self.system.get().expect("it was brought up");
        let arm = &system.arm;
        assert_eq!((arm.strays(), arm.last_stray(), arm.late_writes()), (0, None, 0));
    }
}

/// A handler that counts, a word a CPU.
#[derive(Default)]
pub struct Count([AtomicU64; 4]);

impl Count {
    pub fn on(&self, cpu: u32) -> u64 {
        self.0[cpu as usize].load(Relaxed)
    }
    pub fn all(&self) -> u64 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }
}

impl Action for Count {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.0[SimHal.cpu().index()].fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// A handler that is a closure.
pub struct Do<F>(pub F);

impl<F: Fn() + Send + Sync> Action for Do<F> {
    fn handle(&self, _: Irq) -> IrqReturn {
        (self.0)();
        IrqReturn::Handled
    }
}

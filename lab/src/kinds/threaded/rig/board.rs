//! The kernel's side: a system that forces handlers into threads, and two lines.

use super::bench::Bench;
use crate::kinds::threaded::{Linux, ThreadedVariant};
use crate::run::SetupError;
use check::gic::harness::{Version, hardware};
use drivers::gic::{EoiMode, RwpPolls};
use hal::{CpuId, CpuSet, Hal as _, ThreadSpec, Threads as _, Work};
use irq::{Action, Irq, IrqReturn, RequestFlags, Trigger};
use machine::SimHal;
use machine::gic::{GicWindows, TIMER_HZ};
use spec::gic::IntId;
use std::sync::{Arc, OnceLock};
use systems::arm::{Arm, ArmBuilder, TimerHardware};

/// An unused SPI.
const INTID: IntId = IntId(40);
/// Another device's SPI.
pub(super) const NEIGHBOUR: u32 = 41;
/// The SGI of a kick.
const RESCHEDULE: IntId = IntId(0);
/// Capacity of the core in lines: more than are used.
const LINES_MAX: u32 = 8;
/// Longest time from the controller to the CPU for an interrupt.
const FLIGHT_NS: u64 = 10_000;

/// The inputs of bring-up.
pub(super) struct Parts {
    pub(super) gic: GicWindows,
    pub(super) version: u64,
    pub(super) cpus: u32,
    pub(super) variant: ThreadedVariant,
    pub(super) linux: Linux,
    /// Gives the exception entry the system.
    pub(super) installed: Arc<OnceLock<Arc<Arm<SimHal>>>>,
    pub(super) bench: Arc<Bench>,
}

/// A handler that only spends time: for the scheduler's interrupts and the other device's.
struct Plain;

impl Action for Plain {
    fn handle(&self, _: Irq) -> IrqReturn {
        SimHal.work(Work::IrqHandler, 1);
        IrqReturn::Handled
    }
}

impl Parts {
    /// Brings everything up, on CPU 0, and has the bench thread begin there.
    pub(super) fn set_up(self) -> Result<Arc<Arm<SimHal>>, SetupError> {
        let mode = match self.variant {
            ThreadedVariant::Mask => EoiMode::SplitAtOnce,
            ThreadedVariant::MaskEoiMode0 => EoiMode::Together,
            ThreadedVariant::EoiMode1 | ThreadedVariant::Ours => EoiMode::Split,
        };
        let rwp_polls = match (self.variant, self.linux) {
            (ThreadedVariant::Ours, _) | (_, Linux::Since5_19) => RwpPolls::Disabling,
            (_, Linux::Before5_19) => RwpPolls::Every,
        };
        let version = if self.version == 2 { Version::V2 } else { Version::V3 };
        // The scheduler's time slices end by the PPI of the physical timer.
        let timer = TimerHardware::physical_timer(self.gic.timer);
        let timer = TimerHardware { frequency_hz: Some(TIMER_HZ), is_stopped: true, ..timer };
        let arm = ArmBuilder::new(SimHal, hardware(&self.gic, version, self.cpus), timer)
            .eoi_mode(mode)
            .rwp_polls(rwp_polls)
            .lines_max(LINES_MAX)
            .flight_ns(FLIGHT_NS)
            .force_threads(true)
            .reschedule(RESCHEDULE, "scheduler", Arc::new(Plain))
            .tick("scheduler", Arc::new(Plain))
            .build()?;
        let here = || CpuSet::of(CpuId(0));
        let line = arm.spi(INTID, here())?.request("bench", RequestFlags::default(), self.bench.clone())?.keep();
        let neighbour = arm.wire(IntId(NEIGHBOUR), Trigger::EdgeRising, here())?;
        let in_interrupt = RequestFlags { no_thread: true, ..RequestFlags::default() };
        neighbour.request("neighbour", in_interrupt, Arc::new(Plain))?.keep();
        assert!(self.installed.set(arm.clone()).is_ok(), "a kernel is brought up once");
        for cpu in 0..self.cpus {
            let arm = arm.clone();
            spawn("start", cpu, move || arm.start_cpu().expect("its redistributor was found by the build"))?;
        }
        let (core, bench) = (arm.core().clone(), self.bench);
        spawn("bench", 0, move || bench.run(&core, line))?;
        Ok(arm)
    }
}

fn spawn(name: &'static str, cpu: u32, body: impl FnOnce() + Send + 'static) -> Result<(), SetupError> {
    let spec = ThreadSpec { name, affinity: hal::Affinity::Cpu(CpuId(cpu)), urgent: false };
    SimHal.spawn(spec, Box::new(body)).map_err(SetupError::Spawn)?;
    Ok(())
}

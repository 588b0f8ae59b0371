//! Guards and alarms on a core whose lines end at local APICs.

mod alarm;
mod line;
mod pc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::apic::{self, ApicId, ApicMode, Lapic, VectorDomain};
use hal::host::{HostHal, HostRegs};
use hal::{CpuId, CpuSet, Regs};
use irq::{Action, AllocRequest, CoreConfig, Irq, IrqCore, IrqReturn, RequesterId, StormConfig, Vector};

const CPU0: CpuId = CpuId(0);
const CPU1: CpuId = CpuId(1);

/// Registers that take every write, and read as 0.
struct Written;

impl Regs for Written {
    fn read32(&self, _offset: u32) -> u32 {
        0
    }
    fn write32(&self, _offset: u32, _value: u32) {}
    fn read64(&self, _offset: u32) -> u64 {
        0
    }
    fn write64(&self, _offset: u32, _value: u64) {}
}

fn config() -> CoreConfig {
    let storm = StormConfig { burst: 2, burst_ns_min: 1_000, unhandled_max: 2, throttle_ns: 5_000 };
    CoreConfig { flight_ns: 1_000, storm, ..apic::core_config(2, 4) }
}

/// A core of two CPUs that is not shared yet, and the domain of its vectors.
fn core(hal: HostHal) -> (IrqCore<HostHal>, VectorDomain<HostHal>) {
    let regs = HostRegs::new(Arc::new(Written));
    let lapic = Lapic::new(hal, regs, ApicMode::X2Apic, Vec::from([ApicId(0), ApicId(1)])).unwrap();
    (IrqCore::new(hal, config()).unwrap(), VectorDomain::new(hal, Arc::new(lapic)))
}

fn request() -> AllocRequest {
    AllocRequest::fixed(RequesterId(0x100), 0, CpuSet::of(CPU0))
}

/// A handler made of a function.
struct Call<F>(F);

impl<F: Fn(Irq) + Send + Sync> Action for Call<F> {
    fn handle(&self, irq: Irq) -> IrqReturn {
        (self.0)(irq);
        IrqReturn::Handled
    }
}

/// The vector of the first line: the core gives them in ascending order.
const FIRST: Vector = Vector(0x20);

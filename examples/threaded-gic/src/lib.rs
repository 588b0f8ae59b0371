//! A GICv3 with threaded handlers: a kernel takes the GIC's driver and the delivery core, and every handler of a wire runs
//! in a thread, which the GIC's active state holds back until it is done.
//!
//! ```text
//! IRQ exception ─► Wires::irq_exception ─► IAR ─► EOIR (others come through) ─► wake the thread
//! thread ─► the driver's work ─► DIR: the wire may interrupt again
//! ```
//!
//! The kernel brings the seam with threads (`spawn`, `park`, `wake`, `set_affinity`) and its registers.
#![no_std]
extern crate alloc;

use alloc::sync::Arc;
use alloc::vec;
use drivers::gic::{Affinity, EoiMode, GicDomain, GicError, GicV3, Redistributors};
use hal::{CpuId, CpuSet, Hal};
use irq::{
    Action, AllocRequest, CoreConfig, Delivery, Irq, IrqCore, IrqError, IrqReturn, RequestFlags, RequesterId, Trigger,
};

/// Lines that the kernel has at most.
const LINES: u32 = 64;
/// Longest way of an interrupt to its CPU, in nanoseconds.
const FLIGHT_NS: u64 = 10_000;

/// Where the GIC is, as the device tree or the MADT says.
pub struct Description<R> {
    /// The distributor.
    pub distributor: R,
    /// All redistributors: their window, its length, their bus address.
    pub redistributors: Redistributors<R>,
    /// ICC_*_EL1, by encoding.
    pub system_registers: R,
    /// MPIDR_EL1 of each CPU, as affinity.
    pub affinities: vec::Vec<Affinity>,
}

/// What a driver does with an interrupt: in a thread, with interrupts on.
struct Work<F>(F);

impl<F: Fn() + Send + Sync> Action for Work<F> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        (self.0)();
        IrqReturn::Handled
    }
}

/// The kernel's wires.
pub struct Wires<H: Hal> {
    core: IrqCore<H>,
    gic: Arc<GicV3<H>>,
}

impl<H: Hal> Wires<H> {
    /// Sets the GIC up, on the boot CPU.
    ///
    /// # Errors
    /// What the GIC says.
    pub fn new(hal: H, description: Description<H::Regs>) -> Result<Self, GicError> {
        let Description { distributor, redistributors, system_registers, affinities } = description;
        let cpus = affinities.len() as u32;
        let regions = vec![redistributors];
        let gic = GicV3::new(hal, distributor, regions, system_registers, &affinities, EoiMode::Split, 0)?;
        let config = CoreConfig { force_threads: true, flight_ns: FLIGHT_NS, ..CoreConfig::x86(cpus, LINES) };
        let core = IrqCore::new(hal, config).map_err(|_| GicError::Cpus(affinities.len()))?;
        Ok(Self { core, gic: Arc::new(gic) })
    }

    /// What every other CPU does as it comes up.
    ///
    /// # Errors
    /// What the GIC says.
    pub fn start_cpu(&self) -> Result<(), GicError> {
        self.gic.start_cpu()
    }

    /// The IRQ exception, with interrupts off.
    pub fn irq_exception(&self) {
        self.gic.handle(&self.core);
    }

    /// Has `work` done in a thread on `cpu` whenever the wire `intid` interrupts.
    ///
    /// # Errors
    /// A number that is no wire of this GIC or is taken, a trigger that it cannot have, a kernel without threads.
    pub fn connect(
        &self,
        intid: u32,
        trigger: Trigger,
        cpu: CpuId,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<Irq, IrqError> {
        let request = AllocRequest {
            requester: RequesterId(0),
            index: intid,
            affinity: CpuSet::of(cpu),
            managed: false,
            delivery: Delivery::Fixed,
        };
        let line = self.core.alloc_line(&GicDomain::new(self.gic.clone()), &request, self.gic.flow())?;
        let requested = self
            .core
            .set_type(line, trigger)
            .and_then(|()| self.core.request(line, "wire", RequestFlags::default(), Arc::new(Work(work))));
        requested.map(|()| line).inspect_err(|_| _ = self.core.free_line(line))
    }

    /// The core, for what this example leaves to the kernel: affinity, accounting, CPUs that go.
    pub fn core(&self) -> &IrqCore<H> {
        &self.core
    }
}

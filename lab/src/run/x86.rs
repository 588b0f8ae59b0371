//! A PC's interrupt hardware as software sees it: local APICs, remapping units, posted delivery, and the core above them.

use super::SetupError;
use crate::run::pcie::Pcie;
use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::message::MessageDomain;
use drivers::vtd::{FaultEvent, RemapConfig, RemapDomain, RemapUnit};
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Word as _};
use irq::posted::{PostedConfig, PostedMsi, Statistics};
use irq::{
    Action, AllocRequest, CoreConfig, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, StormConfig,
    SystemHandler,
};
use irq::{RequesterId, Vector};
use machine::{Machine, Regs, SimHal, Word};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// System vectors: those of Linux.
pub(crate) const LOCAL_TIMER: Vector = Vector(0xec);
const RESCHEDULE: Vector = Vector(0xfd);
const SPURIOUS: Vector = Vector(0xff);

/// What a kind of experiment wants of a PC.
pub(crate) struct Wanted {
    /// Lines of its devices.
    pub(crate) device_lines: u32,
    /// Posted delivery, and how a notification is served.
    pub(crate) posted: Option<(PostedConfig, Serving)>,
    pub(crate) storm: StormConfig,
    /// What the local timer's interrupt does, on each CPU that has one running.
    pub(crate) timer: Option<TimerHandler>,
}

/// How the handler of a notification serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serving {
    /// Whole.
    Whole,
    /// Until so many nanoseconds have passed; the rest comes with another notification.
    Within(u64),
    /// By sending each vector to the CPU itself.
    SelfIpi,
}

/// Runs in interrupt context, before the EOI.
pub(crate) type TimerHandler = Arc<dyn Fn() + Send + Sync>;

/// What bring-up is given.
pub(crate) struct Parts {
    /// The host's CPUs: those of the whole machine unless it is shared.
    cpus: Range<u32>,
    iommus: Vec<Regs>,
    /// Where the interrupt entry finds the core.
    core: Arc<OnceLock<Arc<IrqCore<SimHal>>>>,
}

impl Parts {
    /// Hangs the interrupt entry into the machine and notes what is where.
    pub(crate) fn new(machine: &mut Machine, cpus: u32, pcie: &Pcie) -> Self {
        let parts = Self::of_host(machine, 0..cpus, pcie);
        let entry = parts.core.clone();
        machine.set_interrupt_entry(move |vector| {
            if let Some(core) = entry.get() {
                core.handle_vector(Vector(vector));
            }
        });
        parts
    }

    /// One of several hosts in a machine. The caller hangs in the entry, and leads interrupts of `cpus` to its core.
    pub(crate) fn of_host(machine: &Machine, cpus: Range<u32>, pcie: &Pcie) -> Self {
        let iommus = pcie.iommus.iter().map(|&iommu| machine.regs(iommu, 0)).collect();
        Self { cpus, iommus, core: Arc::default() }
    }

    /// Where the entry finds the core.
    pub(crate) fn core(&self) -> Arc<OnceLock<Arc<IrqCore<SimHal>>>> {
        self.core.clone()
    }

    /// A PC whose messages are not remapped. The caller hangs in the entry.
    pub(crate) fn without_remapping(cpus: u32) -> Self {
        Self { cpus: 0..cpus, iommus: Vec::new(), core: Arc::default() }
    }
}

/// What every device's set-up needs.
pub(crate) struct Pc {
    pub(crate) core: Arc<IrqCore<SimHal>>,
    pub(crate) posted: Option<Arc<PostedMsi<SimHal>>>,
    vectors: Arc<dyn IrqDomain>,
    pub(crate) lapic: Arc<Lapic<SimHal>>,
    cpus: Range<u32>,
}

impl Pc {
    /// The core, the local APICs of every CPU, posted delivery when it is wanted. Runs on the boot thread.
    pub(crate) fn set_up(parts: &Parts, wanted: Wanted) -> Result<Self, SetupError> {
        let cpus = parts.cpus.clone();
        let Wanted { device_lines, posted, storm, timer } = wanted;
        // Each IOMMU's fault event has a line too.
        let config = CoreConfig { storm, ..CoreConfig::x86(cpus.end, device_lines + parts.iommus.len() as u32) };
        let mut core = IrqCore::new(SimHal, config)?;
        let ids = (0..cpus.end).map(ApicId).collect();
        let lapic = Arc::new(Lapic::new(SimHal, Regs::Lapic, ApicMode::X2Apic, ids)?);
        let destinations: Vec<u32> = (0..cpus.end).collect();
        let serving = posted.map_or(Serving::Whole, |(_, serving)| serving);
        let posted =
            posted.map(|(config, _)| PostedMsi::new(SimHal, config, &destinations).map(Arc::new)).transpose()?;
        system_vectors(&mut core, &lapic, posted.as_ref(), serving, timer)?;
        let vectors = VectorDomain::new(SimHal, lapic.clone());
        core.set_root_chip(vectors.chip().clone());
        let vectors: Arc<dyn IrqDomain> = Arc::new(vectors);
        let core = Arc::new(core);
        let set = parts.core.set(core.clone());
        assert!(set.is_ok(), "the core is set once");
        enable_lapics(cpus.clone(), &lapic)?;
        Ok(Self { core, posted, vectors, lapic, cpus })
    }

    /// The domain of vectors: the parent of whatever is not remapped.
    pub(crate) fn vectors(&self) -> Arc<dyn IrqDomain> {
        self.vectors.clone()
    }

    /// The domain of the devices behind each remapping unit, for `lines` vectors in all.
    pub(crate) fn remap_domains(&self, parts: &Parts, lines: u32) -> Result<Vec<Arc<dyn IrqDomain>>, SetupError> {
        parts.iommus.iter().enumerate().map(|(index, &regs)| self.remap_domain(index, regs, lines)).collect()
    }

    /// A remapping unit, its fault event, and the domain of the devices behind it.
    fn remap_domain(&self, index: usize, regs: Regs, lines: u32) -> Result<Arc<dyn IrqDomain>, SetupError> {
        let config =
            RemapConfig { table_entries: lines.next_power_of_two().clamp(256, 65_536), apic_mode: ApicMode::X2Apic };
        let unit = Arc::new(RemapUnit::new(SimHal, regs, config)?);
        self.fault_line(index, &unit)?;
        let (lapic, vectors) = (self.lapic.clone(), self.vectors.clone());
        Ok(match &self.posted {
            Some(posted) => Arc::new(RemapDomain::posted(unit, lapic, vectors, posted.clone())?),
            None => Arc::new(RemapDomain::remapped(unit, lapic, vectors)),
        })
    }

    /// The unit's own interrupt, which is never remapped.
    fn fault_line(&self, index: usize, unit: &Arc<RemapUnit<SimHal>>) -> Result<(), SetupError> {
        let domain = MessageDomain::new(SimHal, FaultEvent::new(unit.clone()), self.vectors.clone())?;
        let request = AllocRequest {
            requester: RequesterId(0),
            index: 0,
            // In turn: one CPU has no vectors for hundreds of units.
            affinity: CpuSet::of(CpuId(self.cpus.start + index as u32 % self.cpus.len() as u32)),
            managed: false,
            delivery: irq::Delivery::Fixed,
        };
        let line = self.core.alloc_line(&domain, &request, Flow::Edge)?;
        let name = format!("dmar{index}");
        self.core.request(line, name, RequestFlags::default(), Arc::new(FaultHandler(unit.clone())))?;
        Ok(())
    }

    /// What the notifications of all CPUs brought.
    pub(crate) fn posted_statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for cpu in self.cpus.clone() {
            let own = self.posted.as_ref().map_or(Statistics::default(), |posted| posted.statistics(CpuId(cpu)));
            sum.notifications += own.notifications;
            sum.empty_notifications += own.empty_notifications;
            sum.passes += own.passes;
            sum.vectors += own.vectors;
        }
        sum
    }

    /// A line for MSI-X entry `index` of a device, on one CPU.
    pub(crate) fn device_line(
        &self,
        domain: &dyn IrqDomain,
        requester: u16,
        index: u32,
        cpu: u32,
        (name, action): (String, Arc<dyn Action>),
    ) -> Result<Irq, SetupError> {
        let request = AllocRequest {
            requester: RequesterId(requester),
            index,
            affinity: CpuSet::of(CpuId(cpu)),
            managed: false,
            delivery: irq::Delivery::Fixed,
        };
        let line = self.core.alloc_line(domain, &request, Flow::Edge)?;
        self.core.request(line, name, RequestFlags::default(), action)?;
        Ok(line)
    }

    /// Interrupts of `lines` so far.
    pub(crate) fn count(&self, lines: &[Irq]) -> u64 {
        let cpus = self.cpus.clone().map(CpuId);
        cpus.map(|cpu| lines.iter().map(|&line| self.core.count(line, cpu)).sum::<u64>()).sum()
    }
}

fn system_vectors(
    core: &mut IrqCore<SimHal>,
    lapic: &Arc<Lapic<SimHal>>,
    posted: Option<&Arc<PostedMsi<SimHal>>>,
    serving: Serving,
    timer: Option<TimerHandler>,
) -> Result<(), SetupError> {
    let eoi = |lapic: &Arc<Lapic<SimHal>>| {
        let lapic = lapic.clone();
        move |_: &IrqCore<SimHal>| lapic.eoi()
    };
    let end = eoi(lapic);
    let timer = move |core: &IrqCore<SimHal>| {
        if let Some(handler) = &timer {
            handler();
        }
        end(core);
    };
    core.set_system_vector(LOCAL_TIMER, "LOC", "Local timer interrupts", Arc::new(timer))?;
    core.set_system_vector(RESCHEDULE, "RES", "Rescheduling interrupts", Arc::new(eoi(lapic)))?;
    // A spurious interrupt has no EOI.
    core.set_system_vector(SPURIOUS, "SPU", "Spurious interrupts", Arc::new(|_: &IrqCore<SimHal>| {}))?;
    if let Some(posted) = posted {
        let handler = notification_handler(lapic.clone(), posted.clone(), serving);
        let vector = PostedConfig::default().notification_vector;
        core.set_system_vector(vector, "PMN", "Posted MSI notification event", handler)?;
    }
    Ok(())
}

fn notification_handler(
    lapic: Arc<Lapic<SimHal>>,
    posted: Arc<PostedMsi<SimHal>>,
    serving: Serving,
) -> SystemHandler<SimHal> {
    let send = |lapic: &Lapic<SimHal>, vector| lapic.send_self(vector).expect("an x2APIC takes every self-IPI");
    match serving {
        Serving::Whole => Arc::new(move |core: &IrqCore<SimHal>| {
            posted.handle(|vector| _ = core.dispatch(vector), || lapic.eoi());
        }),
        Serving::Within(limit_ns) => Arc::new(move |core: &IrqCore<SimHal>| {
            let dispatch = |vector| _ = core.dispatch(vector);
            posted.handle_within(limit_ns, dispatch, |vector| send(&lapic, vector), || lapic.eoi());
        }),
        Serving::SelfIpi => Arc::new(move |_: &IrqCore<SimHal>| {
            posted.handle(|vector| send(&lapic, vector), || lapic.eoi());
        }),
    }
}

/// Each CPU enables its own APIC; returns when all have.
fn enable_lapics(cpus: Range<u32>, lapic: &Arc<Lapic<SimHal>>) -> Result<(), SetupError> {
    let here = SimHal.cpu().0;
    let up = Arc::new(<Word as hal::Word>::new(cpus.contains(&here).into()));
    if cpus.contains(&here) {
        lapic.enable(SPURIOUS);
    }
    for cpu in cpus.clone().filter(|&cpu| cpu != here) {
        let (lapic, up) = (lapic.clone(), up.clone());
        let spec = ThreadSpec { name: "bring-up", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
        let body = move || {
            lapic.enable(SPURIOUS);
            up.fetch_add(1);
        };
        SimHal.spawn(spec, Box::new(body)).map_err(SetupError::Spawn)?;
    }
    while up.load() < cpus.len() as u64 {
        SimHal.relax_on(&up, up.get(), u64::MAX);
    }
    Ok(())
}

/// The handler of a unit's fault event: takes the records, so that the next fault is told too. The figures come from
/// the unit's own log.
struct FaultHandler(Arc<RemapUnit<SimHal>>);

impl Action for FaultHandler {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        let mut any = false;
        self.0.take_faults(|_| any = true);
        if any { IrqReturn::Handled } else { IrqReturn::None }
    }
}

//! A PC's interrupt hardware as software sees it: local APICs, remapping units, posted delivery, and the core above them.

use super::SetupError;
use crate::run::pcie::Pcie;
use drivers::apic::{ApicId, ApicMode};
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Threads as _, Word as _};
use irq::posted::{PostedConfig, Statistics};
use irq::{Action, AllocRequest, Flow, Irq, IrqCore, IrqDomain, RequestFlags, RequesterId, StormConfig};
use machine::{Machine, Regs, SimHal, Word};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use systems::Alarm;
use systems::pc::{Apics, ExtraVector, Path, PcBuilder, PcCpus, Tick, TickEoi};
pub(crate) use systems::pc::{LOCAL_TIMER, Serving};

/// The needs of a kind of experiment on a PC.
pub(crate) struct Wanted {
    /// Lines of its devices.
    pub(crate) device_lines: u32,
    /// Entries of the remapping tables, at least.
    pub(crate) remapping_entries: u32,
    /// Posted delivery, and how a notification is served.
    pub(crate) posted: Option<(PostedConfig, Serving)>,
    pub(crate) storm: StormConfig,
    /// The handler of the local timer's interrupt, on each CPU whose timer runs.
    pub(crate) timer: Option<TimerHandler>,
}

/// Runs in interrupt context, before the EOI.
pub(crate) type TimerHandler = Arc<dyn Fn(&Alarm<SimHal>) + Send + Sync>;

/// Gives an interrupt entry the CPUs of a PC.
pub(crate) type Entry = Arc<OnceLock<Arc<PcCpus<SimHal>>>>;

/// The inputs of bring-up.
pub(crate) struct Parts {
    /// The host's CPUs: those of the whole machine unless it is shared.
    cpus: Range<u32>,
    iommus: Vec<Regs>,
    entry: Entry,
    /// Remapping stays off.
    plain: bool,
}

impl Parts {
    /// Installs the interrupt entry in the machine, and collects the parts that bring-up needs.
    pub(crate) fn new(machine: &mut Machine, cpus: u32, pcie: &Pcie) -> Self {
        let parts = Self::of_host(machine, 0..cpus, pcie);
        let entry = parts.entry.clone();
        machine.set_interrupt_entry(move |vector| {
            if let Some(cpus) = entry.get() {
                cpus.interrupt(vector);
            }
        });
        parts
    }

    /// One of several hosts in a machine. The caller installs the entry and routes the interrupts of `cpus` to it.
    pub(crate) fn of_host(machine: &Machine, cpus: Range<u32>, pcie: &Pcie) -> Self {
        let iommus = pcie.iommus.iter().map(|&iommu| machine.regs(iommu, 0)).collect();
        Self { cpus, iommus, entry: Arc::default(), plain: false }
    }

    /// The same PC with its remapping units off.
    pub(crate) fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// The CPUs, for the interrupt entry.
    pub(crate) fn entry(&self) -> Entry {
        self.entry.clone()
    }

    /// A PC whose messages are not remapped. The caller installs the entry.
    pub(crate) fn without_remapping(cpus: u32) -> Self {
        Self { cpus: 0..cpus, iommus: Vec::new(), entry: Arc::default(), plain: false }
    }
}

/// The parts that every device's set-up needs.
pub(crate) struct Pc {
    pub(crate) system: systems::pc::Pc<SimHal>,
    pub(crate) core: Arc<IrqCore<SimHal>>,
}

impl Pc {
    /// A PC on all of its CPUs. Runs on the boot thread.
    pub(crate) fn set_up(parts: &Parts, wanted: Wanted) -> Result<Self, SetupError> {
        Self::set_up_with(parts, wanted, None)
    }

    /// As [`Pc::set_up`], with one more system vector.
    pub(crate) fn set_up_with(parts: &Parts, wanted: Wanted, extra: Option<ExtraVector>) -> Result<Self, SetupError> {
        let Wanted { device_lines, remapping_entries, posted, storm, timer } = wanted;
        let ids = (0..parts.cpus.end).map(ApicId).collect();
        // A tick of the timer is a nanosecond on this machine.
        let apics = Apics { regs: Regs::Lapic, mode: ApicMode::X2Apic, ids, timer_hz: 1_000_000_000 };
        let path = match posted {
            Some(_) => Path::Posted,
            None if parts.plain || parts.iommus.is_empty() => Path::Plain,
            None => Path::Remapped,
        };
        let mut builder = PcBuilder::new(SimHal, apics, device_lines)
            .only_cpus(parts.cpus.clone())
            .table_entries(remapping_entries.next_power_of_two().clamp(256, 65_536))
            .storm(storm)
            .demand(path);
        if let Some((config, serving)) = posted {
            builder = builder.notifications(config, serving);
        }
        if let Some(run) = timer {
            builder = builder.tick(Tick { eoi: TickEoi::Last, runs_unarmed: true, run });
        }
        builder = parts.iommus.iter().fold(builder, |builder, &regs| builder.unit(regs));
        builder = extra.into_iter().fold(builder, PcBuilder::vector);
        let system = builder.build(|cpus| {
            assert!(parts.entry.set(cpus.clone()).is_ok(), "a PC is brought up once");
            start_cpus(cpus)
        })?;
        let core = system.core().clone();
        Ok(Self { system, core })
    }

    /// The parents of the messages of the devices behind each remapping unit.
    pub(crate) fn pci(&self) -> Result<Vec<Arc<dyn IrqDomain>>, SetupError> {
        (0..self.system.units().len()).map(|unit| Ok(self.system.pci(unit)?)).collect()
    }

    /// The counts of the notifications of all CPUs.
    pub(crate) fn posted_statistics(&self) -> Statistics {
        self.system.statistics()
    }

    /// A line for MSI-X entry `index` of a device, on one CPU.
    pub(crate) fn device_line(
        &self,
        domain: Arc<dyn IrqDomain>,
        requester: u16,
        index: u32,
        cpu: u32,
        (name, action): (String, Arc<dyn Action>),
    ) -> Result<Irq, SetupError> {
        let request = AllocRequest::fixed(RequesterId(requester), index, CpuSet::of(CpuId(cpu)));
        let line = self.core.alloc_line(domain, &request, Flow::Edge)?;
        self.core.request(line, name, RequestFlags::default(), action)?;
        Ok(line)
    }

    /// Interrupts of `lines` so far.
    pub(crate) fn count(&self, lines: &[Irq]) -> u64 {
        let cpus = self.system.range().map(CpuId);
        cpus.map(|cpu| lines.iter().map(|&line| self.core.count(line, cpu)).sum::<u64>()).sum()
    }
}

/// Each CPU starts itself; returns when all have.
fn start_cpus(cpus: &Arc<PcCpus<SimHal>>) -> Result<(), SetupError> {
    let here = SimHal.cpu().0;
    let range = cpus.range();
    let up = Arc::new(<Word as hal::Word>::new(range.contains(&here).into()));
    if range.contains(&here) {
        cpus.start_cpu()?;
    }
    for cpu in range.clone().filter(|&cpu| cpu != here) {
        let (cpus, up) = (cpus.clone(), up.clone());
        let spec = ThreadSpec { name: "bring-up", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
        let body = move || {
            cpus.start_cpu().expect("it was never offline");
            up.fetch_add(1);
        };
        SimHal.spawn(spec, Box::new(body)).map_err(SetupError::Spawn)?;
    }
    while up.load() < range.len() as u64 {
        SimHal.relax_on(&up, up.get(), u64::MAX);
    }
    Ok(())
}

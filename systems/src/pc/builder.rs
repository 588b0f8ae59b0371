//! The description of a PC.

use super::error::PcError;
use super::policy::{Path, Policy, UnitPolicy};
use super::timer::ApicTimers;
use super::units::{Bringing, FaultObserver, Unit};
use super::vectors::{ExtraVector, Serving, Tick, Vectors};
use super::{Parts, Pc, PcCpus, root};
use crate::Alarm;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use drivers::apic::{self, ApicId, ApicMode, Lapic};
use drivers::vtd::RemapConfig;
use hal::{DmaExchange128, Hal, Threads};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{CoreConfig, IrqCore, IrqDomain, StormConfig};

/// The local APICs of a machine.
pub struct Apics<R> {
    /// The page of registers in xAPIC mode, the window of model-specific registers in x2APIC mode.
    pub regs: R,
    /// Their mode, the same for all.
    pub mode: ApicMode,
    /// The APIC ids of CPUs 0, 1, ….
    pub ids: Vec<ApicId>,
    /// Ticks per second of their timers, undivided.
    pub timer_hz: u64,
}

/// Collects the description of a PC. The defaults are those of [`apic::core_config`], posted delivery where the
/// hardware supports it, and notifications as in [`PostedConfig::default`].
pub struct PcBuilder<H: Hal> {
    hal: H,
    apics: Apics<H::Regs>,
    switches_to_x2apic: bool,
    range: Range<u32>,
    core: CoreConfig,
    wish: Path,
    strict: bool,
    devices_post: bool,
    posted: PostedConfig,
    serving: Serving,
    table_entries: u32,
    units: Vec<H::Regs>,
    /// Set by code that knows the kernel has threads.
    force_threads: Option<fn(&mut IrqCore<H>)>,
    tick: Option<Tick<H>>,
    extra: Vec<ExtraVector>,
    observer: Option<FaultObserver>,
}

impl<H: Hal> PcBuilder<H> {
    /// A PC of these CPUs with room for `lines_max` lines of devices.
    pub fn new(hal: H, apics: Apics<H::Regs>, lines_max: u32) -> Self {
        let cpus = apics.ids.len() as u32;
        Self {
            hal,
            apics,
            switches_to_x2apic: false,
            range: 0..cpus,
            core: apic::core_config(cpus, lines_max),
            wish: Path::default(),
            strict: false,
            devices_post: false,
            posted: PostedConfig::default(),
            serving: Serving::default(),
            table_entries: 256,
            units: Vec::new(),
            force_threads: None,
            tick: None,
            extra: Vec::new(),
            observer: None,
        }
    }

    /// Each CPU switches its local APIC to x2APIC mode when it starts: firmware left them in xAPIC mode. The register
    /// window must include IA32_APIC_BASE.
    #[must_use]
    pub fn switch_to_x2apic(mut self) -> Self {
        self.switches_to_x2apic = true;
        self
    }

    /// Limits the system to these CPUs. Another system has the others of the machine: no line is delivered there.
    #[must_use]
    pub fn only_cpus(mut self, range: Range<u32>) -> Self {
        self.range = range;
        self
    }

    /// Adds the remapping unit behind `regs`. The first one added has number 0.
    #[must_use]
    pub fn unit(mut self, regs: H::Regs) -> Self {
        self.units.push(regs);
        self
    }

    /// Number of entries of each unit's table: a power of two from 2 to 65,536. The default is 256.
    #[must_use]
    pub fn table_entries(mut self, count: u32) -> Self {
        self.table_entries = count;
        self
    }

    /// The wished path of messages to their CPUs. A unit that cannot provide it uses the next best path, and the
    /// reason is kept: [`Pc::policy`].
    #[must_use]
    pub fn wish(mut self, path: Path) -> Self {
        self.wish = path;
        self
    }

    /// As [`PcBuilder::wish`], but a unit that cannot provide the path is an error.
    #[must_use]
    pub fn demand(mut self, path: Path) -> Self {
        self.strict = true;
        self.wish(path)
    }

    /// How notifications are sent and served.
    #[must_use]
    pub fn notifications(mut self, config: PostedConfig, serving: Serving) -> Self {
        (self.posted, self.serving) = (config, serving);
        self
    }

    /// Devices post by themselves: the CPUs get posted descriptors whatever the remapping units support. A device behind a
    /// unit that remaps cannot post: [`Pc::posting_domain`].
    #[must_use]
    pub fn devices_post(mut self) -> Self {
        self.devices_post = true;
        self
    }

    /// The longest time that a message is under way, in nanoseconds: see [`CoreConfig::flight_ns`].
    #[must_use]
    pub fn flight_ns(mut self, flight_ns: u64) -> Self {
        self.core.flight_ns = flight_ns;
        self
    }

    /// When a line is a storm.
    #[must_use]
    pub fn storm(mut self, storm: StormConfig) -> Self {
        self.core.storm = storm;
        self
    }

    /// Every handler that can runs in a thread: [`IrqCore::force_threads`].
    #[must_use]
    pub fn force_threads(mut self, force: bool) -> Self
    where
        H: Threads,
    {
        self.force_threads = force.then_some(IrqCore::force_threads);
        self
    }

    /// The kernel's tick. [`PcCpus::tick_at`] requests it.
    #[must_use]
    pub fn tick(mut self, tick: Tick<H>) -> Self {
        self.tick = Some(tick);
        self
    }

    /// Adds a system vector of the kernel.
    #[must_use]
    pub fn vector(mut self, extra: ExtraVector) -> Self {
        self.extra.push(extra);
        self
    }

    /// Reports the requests that remapping units block to `observer`. The fault handlers take the records in any case.
    #[must_use]
    pub fn observe_faults(mut self, observer: FaultObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    fn validate(&self) -> Result<(), PcError> {
        let cpus = self.core.cpus;
        if cpus == 0 || self.range.is_empty() || self.range.end > cpus {
            return Err(PcError::Cpus(self.range.end, cpus));
        }
        if self.apics.timer_hz == 0 {
            return Err(PcError::TimerHz(0));
        }
        if self.has_descriptors() && self.serving != Serving::Whole && self.apics.mode != ApicMode::X2Apic {
            return Err(PcError::Serving(self.apics.mode));
        }
        Ok(())
    }

    fn has_descriptors(&self) -> bool {
        self.wish == Path::Posted || self.devices_post
    }
}

impl<H: Hal> PcBuilder<H>
where
    H::Dma: DmaExchange128,
{
    /// Brings the PC up. When the interrupt side is ready, it calls `start`. `start` connects the kernel's interrupt
    /// entry to [`PcCpus::interrupt`] and makes every CPU of the system, including this one, call
    /// [`PcCpus::start_cpu`]. Then the remapping units are brought up.
    ///
    /// # Errors
    /// [`PcError`], which names the wrong value and the valid ones; the error of `start`. Units that were turned on are off then; the
    /// memory of one that does not obey stays allocated.
    pub fn build<E: From<PcError>>(self, start: impl FnOnce(&Arc<PcCpus<H>>) -> Result<(), E>) -> Result<Pc<H>, E> {
        let (building, cpus, vectors) = self.cpus()?;
        start(&cpus)?;
        Ok(building.finish(cpus, vectors)?)
    }

    /// Builds everything up to the CPUs. It touches no register.
    #[expect(clippy::type_complexity, reason = "the halves of one function")]
    fn cpus(mut self) -> Result<(Building<H>, Arc<PcCpus<H>>, Arc<dyn IrqDomain>), PcError> {
        self.validate()?;
        // The fault event of each unit needs a line too.
        self.core.lines_max += self.units.len() as u32;
        self.core.cpus = self.range.end;
        self.core.first_cpu = self.range.start;
        let mut core = IrqCore::new(self.hal, self.core)?;
        self.force_threads.into_iter().for_each(|force| force(&mut core));
        let has_descriptors = self.has_descriptors();
        let Apics { regs, mode, ids, timer_hz } = self.apics;
        let destinations: Vec<u32> = ids.iter().map(|&id| mode.destination_field(id)).collect();
        let lapic = Arc::new(Lapic::new(self.hal, regs, mode, ids)?);
        let posted = has_descriptors.then(|| PostedMsi::new(self.hal, self.posted, &destinations).map(Arc::new));
        let posted = posted.transpose()?;
        let timers = ApicTimers { lapic: lapic.clone(), hz: timer_hz };
        let alarm = Alarm::new(self.hal, self.range.end, Box::new(timers));
        core.set_deadline_hook(alarm.hook());
        let notified = posted.as_ref().map(|posted| (posted, self.posted, self.serving));
        let vectors = Vectors { lapic: &lapic, alarm: &alarm, posted: notified, tick: self.tick, extra: self.extra };
        vectors.install(&mut core)?;
        let vectors = root(&mut core, self.hal, &lapic);
        let parts = Parts { hal: self.hal, core: Arc::new(core), lapic, posted };
        let cpus = Arc::new(PcCpus::new(parts, alarm, self.range, self.switches_to_x2apic));
        let building = Building {
            wish: self.wish,
            strict: self.strict,
            remap: RemapConfig { table_entries: self.table_entries, apic_mode: mode },
            units: self.units,
            observer: self.observer,
        };
        Ok((building, cpus, vectors))
    }
}

/// The parts of the build that run after the CPUs have started.
struct Building<H: Hal> {
    wish: Path,
    strict: bool,
    remap: RemapConfig,
    units: Vec<H::Regs>,
    observer: Option<FaultObserver>,
}

impl<H: Hal> Building<H>
where
    H::Dma: DmaExchange128,
{
    fn finish(self, cpus: Arc<PcCpus<H>>, vectors: Arc<dyn IrqDomain>) -> Result<Pc<H>, PcError> {
        let Self { wish, strict, remap, units: windows, observer } = self;
        let bringing = Bringing { cpus: &cpus, vectors: &vectors, config: remap, wish, strict, observer };
        let mut units: Vec<Unit<H>> = Vec::with_capacity(windows.len());
        let mut policies: Vec<UnitPolicy> = Vec::with_capacity(windows.len());
        for (index, regs) in windows.into_iter().enumerate() {
            let (unit, policy) = match bringing.bring_up(index, regs) {
                Ok(up) => up,
                Err(why) => {
                    units.into_iter().for_each(|unit| unit.take_down(cpus.core()));
                    return Err(why);
                }
            };
            units.push(unit);
            policies.push(policy);
        }
        if units.is_empty() {
            let (unit, policy) = bringing.without_units()?;
            units.push(unit);
            policies.push(policy);
        }
        drop(bringing);
        Ok(Pc { cpus, vectors, units, policy: Policy { wish, units: policies } })
    }
}

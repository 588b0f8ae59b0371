//! The description of an Arm system.

use super::controller::Controller;
use super::cpus::Life;
use super::messages::{MessageHardware, Messages};
use super::timer::{Expired, GenericTimer, Nudged, TimerHardware, Timers};
use super::{Arm, ArmError, GicHardware, PRIVATE};
use crate::Alarm;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use drivers::gic::{EoiMode, RwpPolls};
use hal::{CpuSet, Hal, Threads, Word};
use irq::{Action, CoreConfig, Irq, IrqCore, IrqReturn, StormConfig};
use spec::gic::{IntId, Kind};

/// Describes an Arm system, and builds it.
///
/// The defaults are 256 lines, EOImode 1, SGI 0 for rescheduling, and no message hardware.
pub struct ArmBuilder<H: Hal> {
    hal: H,
    gic: GicHardware<H::Regs>,
    timer: TimerHardware<H::Regs>,
    mode: EoiMode,
    rwp_polls: RwpPolls,
    config: CoreConfig,
    /// Set by code that knows the kernel has threads.
    force_threads: Option<fn(&mut IrqCore<H>)>,
    messages: Option<MessageHardware<H::Regs>>,
    pseudo_nmis: bool,
    reschedule: IntId,
    kicked: Named,
    tick: Named,
}

/// A handler of the kernel, and its name in the accounting.
struct Named {
    name: String,
    action: Arc<dyn Action>,
}

impl<H: Hal> ArmBuilder<H> {
    /// A system with this GIC, whose CPUs have this timer.
    pub fn new(hal: H, gic: GicHardware<H::Regs>, timer: TimerHardware<H::Regs>) -> Self {
        let nothing = |name| Named { name: String::from(name), action: Arc::new(Nothing) };
        Self {
            hal,
            timer,
            mode: EoiMode::Split,
            rwp_polls: RwpPolls::default(),
            config: CoreConfig { flight_ns: 10_000, ..CoreConfig::new(gic.cpus(), 256) },
            force_threads: None,
            gic,
            messages: None,
            pseudo_nmis: false,
            reschedule: IntId(0),
            kicked: nothing("reschedule"),
            tick: nothing("timer"),
        }
    }

    /// How interrupts are ended.
    pub fn eoi_mode(mut self, mode: EoiMode) -> Self {
        self.mode = mode;
        self
    }

    /// Which writes the GIC's driver polls RWP after. The default polls only where the architecture demands it.
    pub fn rwp_polls(mut self, polls: RwpPolls) -> Self {
        self.rwp_polls = polls;
        self
    }

    /// Most lines that can exist at the same time, private ones included.
    pub fn lines_max(mut self, lines_max: u32) -> Self {
        self.config.lines_max = lines_max;
        self
    }

    /// The longest time that an interrupt stays under way after its sender was redirected, in nanoseconds.
    pub fn flight_ns(mut self, flight_ns: u64) -> Self {
        self.config.flight_ns = flight_ns;
        self
    }

    /// When a line is a storm, and how long the core then masks it.
    pub fn storm(mut self, storm: StormConfig) -> Self {
        self.config.storm = storm;
        self
    }

    /// Every handler that can runs in a thread: [`IrqCore::force_threads`].
    pub fn force_threads(mut self, force: bool) -> Self
    where
        H: Threads,
    {
        self.force_threads = force.then_some(IrqCore::force_threads);
        self
    }

    /// The hardware that takes devices' messages.
    pub fn messages(mut self, hardware: MessageHardware<H::Regs>) -> Self {
        self.messages = Some(hardware);
        self
    }

    /// The kernel turns interrupts off by a priority mask. It calls [`Arm::pseudo_nmi`] for interrupts that still
    /// arrive.
    pub fn pseudo_nmis(mut self) -> Self {
        self.pseudo_nmis = true;
        self
    }

    /// The handler that runs on a kicked CPU, and its name in the accounting.
    pub fn reschedule(mut self, intid: IntId, name: impl Into<String>, action: Arc<dyn Action>) -> Self {
        self.reschedule = intid;
        self.kicked = Named { name: name.into(), action };
        self
    }

    /// The kernel's tick. It runs when the time of [`Arm::tick_at`] has come. It also runs when the timer's PPI
    /// interrupts without a request of this system.
    pub fn tick(mut self, name: impl Into<String>, action: Arc<dyn Action>) -> Self {
        self.tick = Named { name: name.into(), action };
        self
    }

    /// Sets everything up, on the boot CPU. From now on, interrupts may come to each CPU that has called
    /// [`Arm::start_cpu`]. The boot CPU must call it too. Before its first start no line can be delivered to another CPU.
    ///
    /// # Errors
    /// [`ArmError`] says what is wrong with the description, or which part did not start.
    pub fn build(self) -> Result<Arc<Arm<H>>, ArmError> {
        let Self {
            hal,
            gic,
            timer,
            mode,
            rwp_polls,
            config,
            force_threads,
            messages,
            pseudo_nmis,
            reschedule,
            kicked,
            tick,
        } = self;
        if reschedule.kind() != Kind::Sgi {
            return Err(ArmError::NotSoftware(reschedule));
        }
        if timer.ppi.kind() != Kind::Ppi {
            return Err(ArmError::NotPpi(timer.ppi));
        }
        if pseudo_nmis && matches!(gic, GicHardware::V2 { .. }) {
            return Err(ArmError::PseudoNmi);
        }
        let gic = Controller::new(hal, gic, (mode, rwp_polls), messages.as_ref().map_or(0, MessageHardware::lpis))?;
        let mut core = IrqCore::new(hal, config)?;
        core.set_online(&CpuSet::of(hal.cpu()))?;
        force_threads.into_iter().for_each(|force| force(&mut core));
        let ppi = timer.ppi;
        let timer = Arc::new(GenericTimer::new(hal, timer, config.cpus)?);
        let timers = Timers { timer: timer.clone(), gic: gic.clone(), reschedule };
        let alarm = Alarm::new(hal, config.cpus, Box::new(timers));
        core.set_deadline_hook(alarm.hook());
        let words = |count| (0..count).map(|_| H::Word::new(0)).collect::<Box<[_]>>();
        let mut arm = Arm {
            hal,
            core: Arc::new(core),
            gic,
            alarm,
            timer: timer.clone(),
            reschedule,
            messages: None,
            lives: words(config.cpus as usize),
            private: words(PRIVATE),
        };
        arm.set_life(hal.cpu(), Life::Booted);
        let (core, alarm) = (Arc::downgrade(&arm.core), arm.alarm.clone());
        let nudged = Nudged { core: core.clone(), alarm: alarm.clone(), kernel: kicked.action };
        arm.private_line(reschedule, kicked.name, Arc::new(nudged))?;
        let expired = Expired { core, alarm, timer, kernel: tick.action };
        arm.private_line(ppi, tick.name, Arc::new(expired))?;
        arm.messages = messages.map(|hardware| Messages::new(hal, &arm.gic, hardware)).transpose()?;
        Ok(Arc::new(arm))
    }
}

/// A handler that does nothing.
struct Nothing;

impl Action for Nothing {
    fn handle(&self, _: Irq) -> IrqReturn {
        IrqReturn::Handled
    }
}

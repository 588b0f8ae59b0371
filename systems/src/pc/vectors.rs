//! System vectors: those of Linux, with their rows of `/proc/interrupts`.

use super::error::PcError;
use crate::{Alarm, Expired};
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::apic::Lapic;
use hal::Hal;
use irq::posted::{PostedConfig, PostedMsi};
use irq::{IrqCore, SystemHandler, Vector};

/// Each CPU's own timer: `LOC`.
pub const LOCAL_TIMER: Vector = Vector(0xec);
/// Makes a CPU look at its run queue, and at the core's deadlines: `RES`.
pub const RESCHEDULE: Vector = Vector(0xfd);
/// Raised by a local APIC when an interrupt disappeared before it was taken: `SPU`.
pub const SPURIOUS: Vector = Vector(0xff);

/// When the interrupt of the timer is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickEoi {
    /// Before the kernel's tick, which may switch threads and come back much later.
    First,
    /// After the tick: no interrupt of lower priority comes during it.
    Last,
}

/// The kernel's tick. It runs with interrupts off and may arm the next one.
pub type TickHandler<H> = Arc<dyn Fn(&Alarm<H>) + Send + Sync>;

/// The kernel's action when a deadline given to [`super::PcCpus::tick_at`] has passed.
pub struct Tick<H: Hal> {
    /// When the interrupt is ended.
    pub eoi: TickEoi,
    /// Also run the tick when [`LOCAL_TIMER`] comes although no timer was armed: another source uses the vector too.
    pub runs_unarmed: bool,
    /// The tick itself.
    pub run: TickHandler<H>,
}

/// How a notification of posted delivery is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Serving {
    /// All requests, without a limit.
    #[default]
    Whole,
    /// No handler begins after this many nanoseconds. The CPU sends itself another notification for the rest.
    Within(u64),
    /// By sending each vector to the CPU itself.
    SelfIpi,
}

/// A system vector of the kernel. The system ends its interrupt after the handler has returned.
#[derive(Clone)]
pub struct ExtraVector {
    /// The vector, above those of devices.
    pub vector: Vector,
    /// Its row of `/proc/interrupts`.
    pub abbreviation: &'static str,
    /// The description at the end of the row.
    pub description: &'static str,
    /// Runs with interrupts off.
    pub run: Arc<dyn Fn() + Send + Sync>,
}

/// The parts from which the vectors are installed.
pub(super) struct Vectors<'a, H: Hal> {
    pub(super) lapic: &'a Arc<Lapic<H>>,
    pub(super) alarm: &'a Arc<Alarm<H>>,
    pub(super) posted: Option<(&'a Arc<PostedMsi<H>>, PostedConfig, Serving)>,
    pub(super) tick: Option<Tick<H>>,
    pub(super) extra: Vec<ExtraVector>,
}

impl<H: Hal> Vectors<'_, H> {
    /// Installs the vectors in the core.
    pub(super) fn install(self, core: &mut IrqCore<H>) -> Result<(), PcError> {
        core.set_system_vector(LOCAL_TIMER, "LOC", "Local timer interrupts", self.timer())?;
        let (end, alarm) = (self.lapic.clone(), self.alarm.clone());
        let reschedule = move |core: &IrqCore<H>| {
            end.eoi();
            alarm.look(core);
        };
        core.set_system_vector(RESCHEDULE, "RES", "Rescheduling interrupts", Arc::new(reschedule))?;
        // A spurious interrupt has no EOI.
        core.set_system_vector(SPURIOUS, "SPU", "Spurious interrupts", Arc::new(|_: &IrqCore<H>| {}))?;
        for ExtraVector { vector, abbreviation, description, run } in self.extra {
            let end = self.lapic.clone();
            let handler = move |_: &IrqCore<H>| {
                run();
                end.eoi();
            };
            core.set_system_vector(vector, abbreviation, description, Arc::new(handler))?;
        }
        if let Some((posted, config, serving)) = self.posted {
            let vector = config.notification_vector;
            let handler = notification(self.lapic.clone(), posted.clone(), serving);
            let set = core.set_system_vector(vector, "PMN", "Posted MSI notification event", handler);
            set.map_err(|_| PcError::Notification(vector))?;
        }
        Ok(())
    }

    fn timer(&self) -> SystemHandler<H> {
        let (end, alarm) = (self.lapic.clone(), self.alarm.clone());
        let eoi = self.tick.as_ref().map_or(TickEoi::First, |tick| tick.eoi);
        let runs_unarmed = self.tick.as_ref().is_some_and(|tick| tick.runs_unarmed);
        let run = self.tick.as_ref().map(|tick| tick.run.clone());
        Arc::new(move |core: &IrqCore<H>| {
            if eoi == TickEoi::First {
                end.eoi();
            }
            let is_due = match alarm.expired(core) {
                Expired::Kernel => true,
                Expired::Core => false,
                Expired::NotArmed => runs_unarmed,
            };
            if is_due {
                run.iter().for_each(|run| run(&alarm));
            }
            if eoi == TickEoi::Last {
                end.eoi();
            }
        })
    }
}

fn notification<H: Hal>(lapic: Arc<Lapic<H>>, posted: Arc<PostedMsi<H>>, serving: Serving) -> SystemHandler<H> {
    match serving {
        Serving::Whole => Arc::new(move |core: &IrqCore<H>| {
            posted.handle(|vector| _ = core.dispatch(vector), || lapic.eoi());
        }),
        // The builder has checked for x2APIC mode, in which a self-IPI never fails.
        Serving::Within(limit_ns) => Arc::new(move |core: &IrqCore<H>| {
            let dispatch = |vector| _ = core.dispatch(vector);
            posted.handle_within(limit_ns, dispatch, |vector| _ = lapic.send_self(vector), || lapic.eoi());
        }),
        Serving::SelfIpi => Arc::new(move |_: &IrqCore<H>| {
            posted.handle(|vector| _ = lapic.send_self(vector), || lapic.eoi());
        }),
    }
}

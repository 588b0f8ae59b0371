//! A whole Arm system: GIC, delivery core, messages, each CPU's timer and private lines.
//!
//! ```text
//! build ─► each CPU: start_cpu ─► IRQ exception: Arm::exception ─► line ─► handler
//!                    stop_cpu  ◄─ a CPU that goes; start_cpu when it comes back
//! ```
//!
//! The kernel describes its hardware to an [`ArmBuilder`] and calls [`Arm::exception`] from its IRQ exception. Lines are
//! guards ([`Line`]); private lines live as long as the system. The timer of each CPU serves the kernel's tick
//! ([`Arm::tick_at`]) and the core's own deadlines, so that a throttled line always comes back.
//!
//! Left out: pseudo-NMIs beyond their exception (the kernel masks by priority), several ITSs, CPUs that were not
//! described when the system was built.

mod builder;
mod controller;
mod cpus;
mod error;
mod messages;
mod timer;

pub use builder::ArmBuilder;
pub use controller::GicHardware;
pub use error::ArmError;
pub use messages::{MessageHardware, Messages};
pub use timer::TimerHardware;

use crate::{Alarm, Line};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use controller::Controller;
use drivers::gic::GicError;
use drivers::message::{MessageDomain, MessageSource};
use hal::{CpuId, CpuSet, Hal, Word};
use irq::{
    Action, AllocRequest, Flow, Interrupts, Irq, IrqCore, IrqDomain, IrqError, RequestFlags, RequesterId, Trigger,
};
use spec::gic::IntId;
use timer::GenericTimer;

/// Private INTIDs of a CPU.
const PRIVATE: usize = 32;

/// An Arm system.
pub struct Arm<H: Hal> {
    hal: H,
    core: Arc<IrqCore<H>>,
    gic: Controller<H>,
    alarm: Arc<Alarm<H>>,
    timer: Arc<GenericTimer<H>>,
    reschedule: IntId,
    messages: Option<Messages<H>>,
    /// The stage of each CPU, a [`cpus::Life`]. Each CPU writes its own word.
    lives: Box<[H::Word]>,
    /// By private INTID: 0, or 1 + the line. Every CPU enables these lines when it starts.
    private: Box<[H::Word]>,
}

impl<H: Hal> Arm<H> {
    /// The IRQ exception of every CPU: delivers all pending interrupts. Interrupts are off.
    #[inline]
    pub fn exception(&self) {
        self.gic.handle(&self.core);
    }

    /// The exception of a pseudo-NMI that came while interrupts were off. Delivers pseudo-NMIs and no other interrupt.
    /// Takes no lock.
    #[inline]
    pub fn pseudo_nmi(&self) {
        self.gic.handle_pseudo_nmi(&self.core);
    }

    /// Makes `cpu` look at its run queue: sends the reschedule interrupt. `cpu` then sees all earlier stores of this
    /// CPU.
    ///
    /// # Errors
    /// [`GicError`] when the CPU is not in the system, or has not been started.
    pub fn kick(&self, cpu: CpuId) -> Result<(), GicError> {
        self.send(self.reschedule, cpu)
    }

    /// Sends the software-generated interrupt `intid` to `cpu`.
    ///
    /// # Errors
    /// As [`Arm::kick`]; [`GicError::NotSoftware`].
    pub fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError> {
        self.gic.common().send(intid, cpu)
    }

    /// Makes this CPU's timer run the kernel's tick at `at_ns` by [`Hal::now_ns`]. Replaces an earlier request.
    pub fn tick_at(&self, at_ns: u64) {
        self.alarm.arm(at_ns);
    }

    /// Cancels the kernel's tick on this CPU.
    pub fn no_tick(&self) {
        self.alarm.disarm();
    }

    /// The delivery core, for functions that this type does not wrap.
    pub fn core(&self) -> &Arc<IrqCore<H>> {
        &self.core
    }

    /// The domain of SPIs and private interrupts: [`AllocRequest::index`] is the INTID.
    pub fn domain(&self) -> Arc<dyn IrqDomain> {
        self.gic.domain()
    }

    /// The flow of SPIs.
    pub fn flow(&self) -> Flow {
        self.gic.common().flow()
    }

    /// The path of messages, if the system was built with one.
    pub fn messages(&self) -> Option<&Messages<H>> {
        self.messages.as_ref()
    }

    /// The domain of one device's messages, for example of its MSI-X table.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when the system takes no messages.
    pub fn message_domain<S: MessageSource + 'static>(&self, source: S) -> Result<Arc<MessageDomain<H, S>>, IrqError> {
        let messages =
            self.messages.as_ref().ok_or(IrqError::NotSupported("messages: built with no ITS and no frame"))?;
        MessageDomain::new(self.hal, source, messages.domain().clone()).map(Arc::new)
    }

    /// Allocates the line of a wire to the GIC, delivered to one of `cpus`. Its trigger is the last one set for the
    /// wire; level-triggered at first.
    ///
    /// # Errors
    /// [`IrqError`] when the INTID does not exist or has a line, or no CPU of `cpus` is online.
    pub fn spi(&self, intid: IntId, cpus: CpuSet) -> Result<Line<H>, IrqError> {
        Line::alloc(&self.core, self.domain(), &request(intid, cpus), self.flow())
    }

    /// Allocates the line of a wire with this trigger.
    ///
    /// # Errors
    /// As [`Arm::spi`]; a trigger that the GIC cannot detect.
    pub fn wire(&self, intid: IntId, trigger: Trigger, cpus: CpuSet) -> Result<Line<H>, IrqError> {
        let line = self.spi(intid, cpus)?;
        self.core.set_type(line.irq(), trigger)?;
        Ok(line)
    }

    /// Gives a private interrupt a line with a handler, for as long as the system lives. Every CPU that starts from
    /// now on enables the line. A CPU that has started already must call [`IrqCore::enable_percpu`].
    ///
    /// # Errors
    /// [`ArmError::NotPrivate`], or the core's error for an INTID that has a line.
    pub fn private_line(
        &self,
        intid: IntId,
        name: impl Into<String>,
        action: Arc<dyn Action>,
    ) -> Result<Irq, ArmError> {
        let slot = self.private.get(intid.0 as usize).ok_or(ArmError::NotPrivate(intid))?;
        let all = CpuSet::first(self.lives.len() as u32);
        let line = Line::alloc(&self.core, self.domain(), &request(intid, all), Flow::PerCpu)?;
        let irq = line.request(name, RequestFlags::default(), action)?.keep();
        slot.set(u64::from(irq.0) + 1);
        Ok(irq)
    }

    /// Private lines, by ascending INTID.
    fn private_lines(&self) -> impl Iterator<Item = Irq> + '_ {
        self.private.iter().map(Word::get).filter(|&slot| slot != 0).map(|slot| Irq((slot - 1) as u32))
    }

    /// The counts of all lines, in the format of `/proc/interrupts`. Stray interrupts appear as its errors.
    pub fn interrupts(&self) -> Interrupts {
        self.core.interrupts().with_strays(self.strays())
    }

    /// Number of interrupts that belonged to no line.
    pub fn strays(&self) -> u64 {
        self.gic.common().strays()
    }

    /// The last interrupt that belonged to no line.
    pub fn last_stray(&self) -> Option<IntId> {
        self.gic.common().last_stray()
    }

    /// How often a write that disables an interrupt did not take effect in time. Each such interrupt may have been
    /// delivered once more.
    pub fn late_writes(&self) -> u64 {
        self.gic.common().late_writes()
    }
}

/// A line of the GIC itself.
fn request(intid: IntId, affinity: CpuSet) -> AllocRequest {
    AllocRequest::fixed(RequesterId(0), intid.0, affinity)
}

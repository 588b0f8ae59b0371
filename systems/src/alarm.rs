//! One timer per CPU for two users: the kernel's tick, and the core's own deadlines.
//!
//! The core notes when a CPU must look after its lines: to unmask a throttled line, to give back a vector that a line
//! has left, or to apply a deferred move. Any interrupt on that CPU does the work that is due. If no interrupt comes,
//! a timer is needed, and it must not depend on the kernel's tick. So the core reports each earlier deadline to the
//! alarm, and the alarm arms the timer of that CPU. It arms the current CPU's timer directly. It interrupts another
//! CPU, which then looks at its own deadline.
//!
//! While neither the core nor the kernel has a deadline, the alarm touches no register.

use alloc::boxed::Box;
use alloc::sync::Arc;
use hal::{CpuId, Hal, Word};
use irq::{DeadlineHook, IrqCore};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The timers of all CPUs, and a way to interrupt another CPU.
pub trait CpuTimers: Send + Sync {
    /// Makes this CPU's timer interrupt it once, `wait_ns` nanoseconds from now; 0 for at once. Replaces the former
    /// setting. A timer that cannot wait so long may interrupt earlier: the alarm then arms it for the rest.
    fn arm(&self, wait_ns: u64);

    /// Stops this CPU's timer.
    fn stop(&self);

    /// Interrupts `cpu`, which then calls [`Alarm::look`].
    fn nudge(&self, cpu: CpuId);
}

/// The owner of the deadline for which a CPU's timer interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expired {
    /// The kernel's deadline has passed: its tick is due.
    Kernel,
    /// The core's deadline, or no deadline has passed yet.
    Core,
    /// Neither: the timer was not armed. Another source has used its interrupt.
    NotArmed,
}

/// The deadlines of one CPU. Only that CPU writes them, with interrupts off.
struct Cpu<H: Hal> {
    kernel_ns: H::Word,
    /// The time for which the timer is armed.
    armed_ns: H::Word,
}

/// The timers of all CPUs, each armed for the earlier of the kernel's and the core's deadline.
pub struct Alarm<H: Hal> {
    hal: H,
    timers: Box<dyn CpuTimers>,
    cpus: Box<[Cpu<H>]>,
}

impl<H: Hal> Alarm<H> {
    /// Alarms of the CPUs below number `cpus`. No timer is armed.
    pub fn new(hal: H, cpus: u32, timers: Box<dyn CpuTimers>) -> Arc<Self> {
        let cpu = |_| Cpu { kernel_ns: H::Word::new(NEVER), armed_ns: H::Word::new(NEVER) };
        Arc::new(Self { hal, timers, cpus: (0..cpus).map(cpu).collect() })
    }

    /// The hook to give to the core: see [`IrqCore::set_deadline_hook`].
    pub fn hook(self: &Arc<Self>) -> DeadlineHook {
        let alarm = self.clone();
        Arc::new(move |cpu, at_ns| {
            if cpu == alarm.hal.cpu() {
                alarm.arm_by(at_ns);
            } else {
                alarm.timers.nudge(cpu);
            }
        })
    }

    /// Sets the kernel's deadline on this CPU to `at_ns` by [`Hal::now_ns`]. Replaces the kernel's former deadline.
    pub fn arm(&self, at_ns: u64) {
        let off = self.hal.irq_save();
        self.here().kernel_ns.set(at_ns);
        self.arm_by(at_ns);
        self.hal.irq_restore(off);
    }

    /// Cancels the kernel's deadline on this CPU. The timer may still interrupt, but not for the kernel.
    pub fn disarm(&self) {
        let off = self.hal.irq_save();
        self.here().kernel_ns.set(NEVER);
        self.hal.irq_restore(off);
    }

    /// Arms this CPU's timer for the core's next deadline on this CPU. The handler of [`CpuTimers::nudge`] calls it,
    /// and so does a CPU that comes online. Interrupts are off.
    #[inline]
    pub fn look(&self, core: &IrqCore<H>) {
        if let Some(at_ns) = core.next_deadline_ns(self.hal.cpu()) {
            self.arm_by(at_ns);
        }
    }

    /// This CPU's timer has interrupted it. Arms the timer for the next deadline, and says whose deadline has passed.
    /// For the kernel's deadline, the caller then runs the kernel's tick, which may arm the next one. The core does
    /// its due work at the end of every interrupt. A tick may switch threads, and its interrupt then ends much later: so
    /// the timer interrupts once more, at once, if the core has due work then. Interrupts are off.
    pub fn expired(&self, core: &IrqCore<H>) -> Expired {
        let cpu = self.here();
        if cpu.armed_ns.get() == NEVER {
            return Expired::NotArmed;
        }
        let deadline_ns = core.next_deadline_ns(self.hal.cpu()).unwrap_or(NEVER);
        let kernel_ns = cpu.kernel_ns.get();
        let now_ns = self.hal.now_ns();
        let due = kernel_ns <= now_ns;
        if due {
            cpu.kernel_ns.set(NEVER);
        }
        cpu.armed_ns.set(NEVER);
        let later = |at_ns: u64| if at_ns > now_ns { at_ns } else { NEVER };
        // Without a tick, work that is due already is done before this interrupt ends.
        let core_ns = if due { deadline_ns } else { later(deadline_ns) };
        self.arm_by(core_ns.min(later(kernel_ns)));
        if due { Expired::Kernel } else { Expired::Core }
    }

    /// Stops this CPU's timer, for a CPU that goes offline. Interrupts are off.
    pub fn stop(&self) {
        let cpu = self.here();
        cpu.kernel_ns.set(NEVER);
        if cpu.armed_ns.get() != NEVER {
            cpu.armed_ns.set(NEVER);
            self.timers.stop();
        }
    }

    fn here(&self) -> &Cpu<H> {
        &self.cpus[self.hal.cpu().index()]
    }

    /// Makes the timer interrupt at `at_ns` or earlier.
    fn arm_by(&self, at_ns: u64) {
        let cpu = self.here();
        if at_ns < cpu.armed_ns.get() {
            cpu.armed_ns.set(at_ns);
            self.timers.arm(at_ns.saturating_sub(self.hal.now_ns()));
        }
    }
}

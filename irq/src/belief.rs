//! What the core believes of each line's hardware, for code that compares it with the hardware.

use crate::delivery::IrqCore;
use crate::line::LineState;
use crate::{Flow, HardwareIrq, Irq, Target, Trigger};
use hal::{CpuSet, Hal};

/// The core's belief of one line. It is true while the line's lock is held: posted register writes may still be on
/// their way, and nothing else.
pub struct Belief<'a> {
    /// The line.
    pub irq: Irq,
    /// Where the line is delivered, if it has a target of its own.
    pub target: Option<Target>,
    /// Masked, at the level of [`Belief::masking_level`].
    pub masked: bool,
    /// The level that masks the line: 0 is the device's. None if no level can.
    pub masking_level: Option<usize>,
    /// Masked for a while, because it stormed. An interrupt that comes meanwhile stays pending.
    pub throttled: bool,
    /// The trigger of the line's wire, if the core was told.
    pub trigger: Option<Trigger>,
    /// The line is a pseudo-NMI.
    pub nmi: bool,
    /// Each CPU has its own line of this number.
    pub is_per_cpu: bool,
    /// The CPUs on which a per-CPU line is enabled.
    pub enabled_on: &'a CpuSet,
    /// The line is managed, and none of its CPUs is online.
    pub shutdown: bool,
    /// It is shut down, and its hardware lets no interrupt of the line reach a CPU.
    pub deactivated: bool,
    state: &'a LineState,
}

impl Belief<'_> {
    /// The chip's name and the line's number at each level, from the device to the CPU.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = (&'static str, HardwareIrq)> + ExactSizeIterator {
        let levels = self.state.hardware().map_or(&[][..], |hardware| &hardware.levels);
        levels.iter().map(|level| (level.chip.name(), level.hwirq))
    }
}

impl<H: Hal> IrqCore<H> {
    /// Calls `tell` with the belief of each line that is neither free nor being freed. The line's lock is held
    /// meanwhile, so `tell` must call nothing of the core. Does not allocate.
    pub fn for_each_belief(&self, mut tell: impl FnMut(&Belief<'_>)) {
        for line in self.lines.iter() {
            let state = line.state.lock();
            let Some(hardware) = state.hardware().filter(|_| state.is_live()) else { continue };
            tell(&Belief {
                irq: hardware.irq,
                target: state.target(),
                masked: state.masked,
                masking_level: hardware.ops.masking_level(),
                throttled: state.storm.is_throttled(),
                trigger: state.trigger,
                nmi: state.nmi,
                is_per_cpu: state.flow == Flow::PerCpu && !state.nmi,
                enabled_on: &state.percpu_enabled,
                shutdown: state.is_shut_down(),
                deactivated: state.is_deactivated(),
                state: &state,
            });
        }
    }
}

//! The chip of a GIC's lines: a line's hardware number is its INTID.

use super::version::{EoiMode, Version};
use super::{Gic, GicError};
use alloc::sync::Arc;
use hal::Hal;
use irq::{ChipBehaviour, Flow, HardwareIrq, IrqChip, IrqChipState, IrqError, Level, Target, Trigger};
use spec::gic::{IntId, Kind, Priority, gicd};

fn intid(level: &Level<'_>) -> IntId {
    IntId(level.hwirq().0 as u32)
}

impl<H: Hal, V: Version<H>> Gic<H, V> {
    /// Fields of several interrupts share a register.
    fn set_priority(&self, intid: IntId, priority: Priority) {
        let _fields = self.fields.lock();
        self.version.frame(intid).modify_field(gicd::IPRIORITYR, intid, 8, |_| priority.0.into());
    }

    /// Disables the interrupt during the change (IHI 0048B, "GICD_ICFGRn"). Some implementations have PPIs with a
    /// fixed trigger, so the driver reads the setting back.
    pub(super) fn set_edge(&self, intid: IntId, edge: bool) -> Result<(), IrqError> {
        let _fields = self.fields.lock();
        let frame = self.version.frame(intid);
        let (register, bit) = (gicd::ICFGR.get(intid.0 / 16), 0b10 << (intid.0 % 16 * 2));
        let word = frame.read(register);
        if (word & bit != 0) == edge {
            return Ok(());
        }
        // The lower bit of the field is not the trigger.
        frame.write(register, word ^ bit);
        if (frame.read(register) & bit != 0) != edge {
            return Err(IrqError::Hardware("GIC", "the interrupt's trigger is fixed, and is the other one"));
        }
        Ok(())
    }

    /// Lets an INTID's interrupts reach a new line. The core masks a new line at the level that will later unmask it.
    /// If that level is nearer the device, such as an MSI-X table, this level enables the INTID at once.
    pub(super) fn open(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        let intid = intid(level);
        self.point(intid, target)?;
        if self.lines.set(intid, level.irq()) {
            self.enable(intid);
        }
        Ok(())
    }

    /// Routes a line's interrupt to a CPU. Private interrupts cannot be routed.
    fn point(&self, intid: IntId, target: Target) -> Result<(), IrqError> {
        if intid.is_private() {
            return Ok(());
        }
        let _fields = self.fields.lock();
        self.version.route(intid, target.cpu).map_err(|error| match error {
            GicError::NoCpu(_) | GicError::NoInterface(_) => IrqError::Target("GIC", target),
            other => other.into(),
        })
    }
}

impl<H: Hal, V: Version<H>> Gic<H, V> {
    /// The chip of this GIC's lines. Without [`EoiMode::Split`] one call ends an interrupt, so the chip has no ack.
    pub(super) fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        let split = self.mode == EoiMode::Split;
        let behaviour = ChipBehaviour {
            automasks_flow: split,
            ends_in_halves: split,
            eoi_threaded: split,
            ..ChipBehaviour::default()
        };
        let chip = IrqChip::of(V::NAME, self)
            .behaviour(behaviour)
            .mask(Self::mask, Self::unmask)
            .set_affinity(Self::set_affinity)
            .retrigger(Self::retrigger)
            .set_type(Self::set_type)
            .state(Self::state, Self::set_state);
        let chip = match self.mode {
            EoiMode::Together => chip.eoi(Self::end),
            EoiMode::Split => chip.ack(Self::end).eoi(Self::deactivate),
            EoiMode::SplitAtOnce => chip.eoi(Self::end_and_deactivate),
        };
        let chip = if V::HAS_PSEUDO_NMI { chip.nmi(Self::nmi_setup, Self::nmi_teardown) } else { chip };
        chip.build()
    }

    /// The priority drop of [`EoiMode::Split`]: other lines can interrupt again, while this line stays active.
    #[inline]
    fn end(&self, level: &Level<'_>) {
        self.version.end(intid(level));
    }

    #[inline]
    fn deactivate(&self, level: &Level<'_>) {
        self.version.deactivate(intid(level));
    }

    /// The whole end of [`EoiMode::SplitAtOnce`].
    #[inline]
    fn end_and_deactivate(&self, level: &Level<'_>) {
        self.end(level);
        self.deactivate(level);
    }

    fn mask(&self, level: &Level<'_>) {
        self.lines.note_mask(intid(level), true);
        self.disable(intid(level));
    }

    fn unmask(&self, level: &Level<'_>) {
        self.lines.note_mask(intid(level), false);
        self.enable(intid(level));
    }

    /// An active interrupt stays active at the CPU that took it, and any CPU may deactivate it (IHI 0069H, "Interrupt
    /// affinity routing" and "ICC_DIR_EL1"). A pending interrupt goes to the new CPU.
    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        if intid(level).is_private() {
            return Err(IrqError::Undeliverable("a private interrupt has no affinity: every CPU has its own"));
        }
        self.point(intid(level), target)
    }

    fn retrigger(&self, level: &Level<'_>) -> bool {
        self.set_pending(intid(level), true);
        true
    }

    fn set_type(&self, level: &Level<'_>, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        let intid = intid(level);
        let edge = match (trigger, intid.kind()) {
            (Trigger::EdgeRising, _) => true,
            (_, Kind::Sgi) => return Err(IrqError::Undeliverable("a software-generated interrupt is a rising edge")),
            (Trigger::LevelHigh, _) => false,
            // The polarity of a PPI's wire is implementation defined (IHI 0069H, "PPIs").
            (Trigger::LevelLow, Kind::Ppi) => false,
            (Trigger::EdgeFalling, Kind::Ppi) => true,
            _ => return Err(IrqError::Undeliverable("an SPI of a GIC is a rising edge or a high level")),
        };
        if intid.kind() != Kind::Sgi {
            self.set_edge(intid, edge)?;
        }
        Ok(None)
    }

    fn state(&self, level: &Level<'_>, which: IrqChipState) -> Result<bool, IrqError> {
        let (intid, frame) = (intid(level), self.version.frame(intid(level)));
        Ok(match which {
            IrqChipState::Pending => frame.bit(gicd::ISPENDR, intid),
            IrqChipState::Active => frame.bit(gicd::ISACTIVER, intid),
            IrqChipState::Masked => !frame.bit(gicd::ISENABLER, intid),
        })
    }

    fn set_state(&self, level: &Level<'_>, which: IrqChipState, value: bool) -> Result<(), IrqError> {
        let (intid, frame) = (intid(level), self.version.frame(intid(level)));
        match (which, value) {
            (IrqChipState::Pending, pending) => self.set_pending(intid, pending),
            (IrqChipState::Active, true) => {
                frame.strobe_one(gicd::ISACTIVER, intid);
                self.settle(intid);
            }
            (IrqChipState::Active, false) => {
                frame.strobe_one(gicd::ICACTIVER, intid);
                self.settle(intid);
            }
            (IrqChipState::Masked, true) => self.mask(level),
            (IrqChipState::Masked, false) => self.unmask(level),
        }
        Ok(())
    }

    fn nmi_setup(&self, level: &Level<'_>) -> Result<(), IrqError> {
        self.set_priority(intid(level), Priority::PSEUDO_NMI);
        Ok(())
    }

    fn nmi_teardown(&self, level: &Level<'_>) {
        self.set_priority(intid(level), Priority::DEFAULT);
    }

    /// Frees an INTID. Clears its pending state, so that the next line of this number receives no old interrupt.
    pub(super) fn close(&self, hwirq: HardwareIrq) {
        let intid = IntId(hwirq.0 as u32);
        self.disable(intid);
        self.version.set_pending(intid, false);
        self.lines.free(intid);
    }
}

//! The chip of a GIC's lines: a line's hardware number is its INTID.

use super::version::{EoiMode, Version};
use super::{Gic, GicError};
use hal::Hal;
use irq::{ChipOps, Flow, HardwareIrq, IrqChip, IrqChipState, IrqError, Level, Target, Trigger};
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

    /// The interrupt is disabled meanwhile (IHI 0048B, "GICD_ICFGRn"). Whether a PPI's trigger can be changed is the
    /// implementation's affair, so it is read back.
    pub(super) fn set_edge(&self, intid: IntId, edge: bool) -> Result<(), IrqError> {
        let _fields = self.fields.lock();
        let frame = self.version.frame(intid);
        let wanted = if edge { 0b10 } else { 0b00 };
        frame.modify_field(gicd::ICFGR, intid, 2, |_| wanted);
        let word = frame.read(gicd::ICFGR.get(intid.0 / 16));
        if (word >> (intid.0 % 16 * 2)) & 0b10 != wanted {
            return Err(IrqError::Hardware("GIC", "the interrupt's trigger is fixed, and is the other one"));
        }
        Ok(())
    }

    /// Lets an INTID's interrupts come to a new line. The core masks a new line at the level that will unmask it, which
    /// may be nearer the device: an MSI-X table's, for example. Then this one lets everything through.
    pub(super) fn open(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        let intid = intid(level);
        self.point(intid, target)?;
        if self.lines.set(intid, level.irq()) {
            self.enable(intid);
        }
        Ok(())
    }

    /// Points the hardware of a line at a CPU; private interrupts are where they are.
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

impl<H: Hal, V: Version<H>> IrqChip for Gic<H, V> {
    fn name(&self) -> &'static str {
        V::NAME
    }

    /// With one register for both ends there is nothing to do before the handler.
    fn provides(&self) -> ChipOps {
        let split = self.mode == EoiMode::Split;
        ChipOps {
            ack: split,
            eoi: true,
            mask: true,
            set_affinity: true,
            retrigger: true,
            set_type: true,
            state: true,
            nmi: V::HAS_PSEUDO_NMI,
            automasks_flow: split,
            ends_in_halves: split,
            eoi_threaded: split,
            ..ChipOps::default()
        }
    }

    /// The priority drop: other lines come through again, this one stays active.
    #[inline]
    fn ack(&self, level: &Level<'_>) {
        self.version.end(intid(level));
    }

    #[inline]
    fn eoi(&self, level: &Level<'_>) {
        match self.mode {
            EoiMode::Together => self.version.end(intid(level)),
            EoiMode::Split => self.version.deactivate(intid(level)),
        }
    }

    fn mask(&self, level: &Level<'_>) {
        self.lines.note_mask(intid(level));
        self.disable(intid(level));
    }

    fn unmask(&self, level: &Level<'_>) {
        self.enable(intid(level));
    }

    /// An interrupt that is active stays so at the CPU that took it, and may be deactivated by any (IHI 0069H,
    /// "Interrupt affinity routing" and "ICC_DIR_EL1"). What is pending goes to the new one.
    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        if intid(level).is_private() {
            return Err(IrqError::Delivery("a private interrupt has no affinity: every CPU has its own"));
        }
        self.point(intid(level), target)
    }

    fn retrigger(&self, level: &Level<'_>) -> bool {
        self.version.set_pending(intid(level), true);
        true
    }

    fn set_type(&self, level: &Level<'_>, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        let intid = intid(level);
        let edge = match (trigger, intid.kind()) {
            (Trigger::EdgeRising, _) => true,
            (_, Kind::Sgi) => return Err(IrqError::Delivery("a software-generated interrupt is a rising edge")),
            (Trigger::LevelHigh, _) => false,
            // What a PPI's wire means is its implementation's affair (IHI 0069H, "PPIs").
            (Trigger::LevelLow, Kind::Ppi) => false,
            (Trigger::EdgeFalling, Kind::Ppi) => true,
            _ => return Err(IrqError::Delivery("an SPI of a GIC is a rising edge or a high level")),
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
            (IrqChipState::Pending, pending) => self.version.set_pending(intid, pending),
            (IrqChipState::Active, true) => frame.strobe_one(gicd::ISACTIVER, intid),
            (IrqChipState::Active, false) => frame.strobe_one(gicd::ICACTIVER, intid),
            (IrqChipState::Masked, true) => self.disable(intid),
            (IrqChipState::Masked, false) => self.enable(intid),
        }
        Ok(())
    }

    fn nmi_setup(&self, level: &Level<'_>) -> Result<(), IrqError> {
        if !V::HAS_PSEUDO_NMI {
            return Err(IrqError::NotSupported("pseudo-NMI"));
        }
        self.set_priority(intid(level), Priority::PSEUDO_NMI);
        Ok(())
    }

    fn nmi_teardown(&self, level: &Level<'_>) {
        self.set_priority(intid(level), Priority::DEFAULT);
    }

    /// The number's next line gets nothing of this one's.
    fn release(&self, hwirq: HardwareIrq) {
        let intid = IntId(hwirq.0 as u32);
        self.disable(intid);
        self.version.set_pending(intid, false);
        self.lines.free(intid);
    }
}

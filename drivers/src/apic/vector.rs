//! The vector domain: the CPU's end of every hierarchy.

use super::{ApicError, Lapic};
use crate::slots::Slots;
use alloc::sync::Arc;
use hal::{CpuId, Hal, Lock};
use irq::{
    AllocRequest, ChipOps, Delivery, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target,
    Vector,
};
use spec::apic::DeliveryMode;
use spec::msi::PlainData;

/// More lines than all vectors of any machine.
const LINES: usize = 1 << 20;

/// A line, as the vector domain knows it.
#[derive(Clone, Copy)]
struct Line {
    delivery: Delivery,
    target: Option<(CpuId, Vector)>,
}

/// The chip of the vector domain: the local APIC of whichever CPU a line is delivered to.
pub struct LapicChip<H: Hal> {
    hal: H,
    lapic: Arc<Lapic<H>>,
    /// By hardware number in this domain.
    lines: Lock<H, Slots<Line>>,
}

impl<H: Hal> LapicChip<H> {
    fn line(&self, hwirq: HardwareIrq) -> Option<Line> {
        self.lines.lock().get(hwirq.0 as usize).copied()
    }

    fn retarget(&self, hwirq: HardwareIrq, target: Target) -> Result<(), IrqError> {
        let vector = target.vector.filter(|_| self.lapic.id(target.cpu).is_ok());
        let vector = vector.ok_or(IrqError::Target("LAPIC", target))?;
        match self.lines.lock().get_mut(hwirq.0 as usize) {
            Some(line) => line.target = Some((target.cpu, vector)),
            None => return Err(IrqError::Hardware("LAPIC", "the line was not allocated in the vector domain")),
        }
        Ok(())
    }
}

impl<H: Hal> IrqChip for LapicChip<H> {
    fn name(&self) -> &'static str {
        "APIC"
    }

    fn provides(&self) -> ChipOps {
        ChipOps {
            ack: true,
            eoi: true,
            set_affinity: true,
            retrigger: true,
            compose_message: true,
            is_pending: true,
            ..ChipOps::default()
        }
    }

    /// Edge: the EOI comes first, so that the vector can be requested again while its handler runs.
    fn ack(&self, _level: &Level<'_>) {
        self.lapic.eoi();
    }

    fn eoi(&self, _level: &Level<'_>) {
        self.lapic.eoi();
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.retarget(level.hwirq(), target)
    }

    /// An IPI of the line's own vector. It is taken directly and in service like any interrupt, so whatever chip acks
    /// it must end in an EOI.
    fn retrigger(&self, level: &Level<'_>) -> bool {
        let line = self.line(level.hwirq());
        match line {
            Some(Line { delivery: Delivery::Fixed | Delivery::PrivateStack, target: Some((cpu, vector)) }) => {
                if cpu == self.hal.cpu() {
                    self.lapic.send_self(vector).is_ok()
                } else {
                    self.lapic.send(cpu, vector).is_ok()
                }
            }
            _ => false,
        }
    }

    /// A plain message (SDM vol. 3, "Message Address Register Format"), with the id's bits above 8 where only a
    /// remapping unit's own events can have them.
    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        let Some(Line { delivery, target: Some((cpu, vector)) }) = self.line(level.hwirq()) else {
            return Err(IrqError::Hardware("LAPIC", "the line has no vector yet"));
        };
        let mode = match delivery {
            Delivery::Fixed | Delivery::PrivateStack => DeliveryMode::FIXED,
            Delivery::Nmi => DeliveryMode::NMI,
            Delivery::Logical => return Err(IrqError::Delivery("a logical destination needs interrupt remapping")),
        };
        let message = self.lapic.event_message(cpu, vector)?;
        Ok(MsiMessage { data: PlainData::from_bits(message.data).with_delivery_mode(mode.0).into_bits(), ..message })
    }

    /// The IRR of another CPU cannot be read, so only the target's own CPU can tell; asked elsewhere, the answer is
    /// that it may be: a vector is freed by its CPU, or once that is offline.
    fn is_pending(&self, _level: &Level<'_>, target: Target) -> bool {
        target.cpu != self.hal.cpu() || target.vector.is_some_and(|vector| self.lapic.is_requested(vector))
    }

    fn release(&self, hwirq: HardwareIrq) {
        self.lines.lock().remove(hwirq.0 as usize);
    }
}

impl From<ApicError> for IrqError {
    fn from(error: ApicError) -> Self {
        match error {
            ApicError::Id(..) => Self::Hardware("LAPIC", "an APIC id does not fit the mode"),
            ApicError::Cpu(_) => Self::Hardware("LAPIC", "a CPU has no APIC id"),
            ApicError::CommandTimeout(_) => Self::Hardware("LAPIC", "an IPI was not accepted in time"),
        }
    }
}

/// The root domain of x86: a line here is a vector on a CPU. The core chooses CPU and vector.
pub struct VectorDomain<H: Hal> {
    chip: Arc<LapicChip<H>>,
}

impl<H: Hal> VectorDomain<H> {
    /// The vectors of the CPUs whose APICs `lapic` are.
    pub fn new(hal: H, lapic: Arc<Lapic<H>>) -> Self {
        Self { chip: Arc::new(LapicChip { hal, lapic, lines: Lock::new(hal, Slots::new()) }) }
    }

    /// The chip of every line in it.
    pub fn chip(&self) -> &Arc<LapicChip<H>> {
        &self.chip
    }
}

impl<H: Hal> IrqDomain for VectorDomain<H> {
    fn name(&self) -> &str {
        "VECTOR"
    }

    fn parent(&self) -> Option<&dyn IrqDomain> {
        None
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        let line = Line { delivery: request.delivery, target: None };
        let number = self.chip.lines.lock().insert(line, LINES);
        let number = number.ok_or(IrqError::Exhausted("lines of the vector domain", LINES as u32))?;
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(number as u64) })
    }

    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.chip.retarget(level.hwirq(), target)
    }
}

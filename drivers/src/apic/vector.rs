//! The vector domain: the level next to the CPU in every hierarchy.

use super::{ApicError, Lapic};
use crate::slots::Slots;
use alloc::sync::Arc;
use hal::{CpuId, Hal, Lock};
use irq::{
    AllocRequest, CoreConfig, DeliveryKind, HardwareIrq, Identity, IdentitySpace, IrqChip, IrqDomain, IrqError, Level,
    LevelData, MsiMessage, Target, Vector,
};
use spec::apic::DeliveryMode;
use spec::msi::PlainData;

/// The vectors of a local APIC: 256, of which the first 32 are exceptions (SDM vol. 3, "Exception and Interrupt
/// Vectors"). Devices use those below 0xeb; posted delivery uses 0xeb for its notifications, as Linux does.
pub const VECTORS: IdentitySpace = IdentitySpace {
    first: Identity(0x20),
    last: Identity(0xff),
    device_first: Identity(0x20),
    device_last: Identity(0xea),
};

/// The vectors of devices, in ascending order.
pub fn device_vectors() -> impl Iterator<Item = Vector> {
    (VECTORS.device_first.0..=VECTORS.device_last.0).map(|number| Vector(number as u8))
}

/// The configuration of a core on local APICs: [`CoreConfig::new`] with [`VECTORS`].
pub fn core_config(cpus: u32, lines_max: u32) -> CoreConfig {
    CoreConfig { identities: Some(VECTORS), ..CoreConfig::new(cpus, lines_max) }
}

/// An upper bound: more lines than any machine has vectors.
const LINES: usize = 1 << 20;

/// The vector domain's state of one line.
#[derive(Clone, Copy)]
struct Line {
    delivery: DeliveryKind,
    target: Option<(CpuId, Vector)>,
}

/// Implements the chip of the vector domain. It always acts on the local APIC of the CPU that receives the line.
struct Lines<H: Hal> {
    hal: H,
    lapic: Arc<Lapic<H>>,
    /// Indexed by hardware number in this domain.
    lines: Lock<H, Slots<Line>>,
}

impl<H: Hal> Lines<H> {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        IrqChip::of("APIC", self)
            .ack(Self::end)
            .eoi(Self::end)
            .set_affinity(Self::set_affinity)
            .retrigger(Self::retrigger)
            .compose_message(Self::compose_message)
            .is_pending(Self::is_pending)
            .build()
    }

    fn line(&self, hwirq: HardwareIrq) -> Option<Line> {
        self.lines.lock().get(hwirq.0 as usize).copied()
    }

    fn retarget(&self, hwirq: HardwareIrq, target: Target) -> Result<(), IrqError> {
        let vector = target.vector().filter(|_| self.lapic.id(target.cpu).is_ok());
        let vector = vector.ok_or(IrqError::Target("LAPIC", target))?;
        match self.lines.lock().get_mut(hwirq.0 as usize) {
            Some(line) => line.target = Some((target.cpu, vector)),
            None => return Err(IrqError::Hardware("LAPIC", "the line was not allocated in the vector domain")),
        }
        Ok(())
    }

    /// Runs at a line's ack or at its eoi. An edge line sends the EOI at its ack, so that the local APIC can accept
    /// the vector again while its handler runs.
    fn end(&self, _level: &Level<'_>) {
        self.lapic.eoi();
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.retarget(level.hwirq(), target)
    }

    /// Sends an IPI with the line's own vector. The CPU takes the IPI directly and has it in service like any
    /// interrupt, so every chip that acks it must send an EOI.
    fn retrigger(&self, level: &Level<'_>) -> bool {
        let line = self.line(level.hwirq());
        match line {
            Some(Line { delivery: DeliveryKind::Fixed | DeliveryKind::PrivateStack, target: Some((cpu, vector)) }) => {
                if cpu == self.hal.cpu() {
                    self.lapic.send_self(vector).is_ok()
                } else {
                    self.lapic.send(cpu, vector).is_ok()
                }
            }
            _ => false,
        }
    }

    /// A plain message (SDM vol. 3, "Message Address Register Format"). The id's bits above the low 8 go to a field
    /// that only a remapping unit's own events can use.
    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        let Some(Line { delivery, target: Some((cpu, vector)) }) = self.line(level.hwirq()) else {
            return Err(IrqError::Hardware("LAPIC", "the line has no vector yet"));
        };
        let mode = match delivery {
            DeliveryKind::Fixed | DeliveryKind::PrivateStack => DeliveryMode::FIXED,
            DeliveryKind::Nmi => DeliveryMode::NMI,
            DeliveryKind::Logical => {
                return Err(IrqError::Undeliverable("a logical destination needs interrupt remapping"));
            }
        };
        let message = self.lapic.event_message(cpu, vector)?;
        Ok(MsiMessage { data: PlainData::from_bits(message.data).with_delivery_mode(mode.0).into_bits(), ..message })
    }

    /// A CPU can read only its own IRR. On any other CPU the answer is therefore `true`: the vector may be pending.
    /// The core frees a vector on that vector's CPU, or after that CPU has gone offline.
    fn is_pending(&self, _level: &Level<'_>, target: Target) -> bool {
        target.cpu != self.hal.cpu() || target.vector().is_some_and(|vector| self.lapic.is_requested(vector))
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
    lines: Arc<Lines<H>>,
    chip: Arc<IrqChip>,
}

impl<H: Hal> VectorDomain<H> {
    /// The vectors of all CPUs that `lapic` serves.
    pub fn new(hal: H, lapic: Arc<Lapic<H>>) -> Self {
        let lines = Arc::new(Lines { hal, lapic, lines: Lock::new(hal, Slots::new()) });
        Self { chip: lines.chip(), lines }
    }

    /// The chip of every line in this domain.
    pub fn chip(&self) -> &Arc<IrqChip> {
        &self.chip
    }
}

impl<H: Hal> IrqDomain for VectorDomain<H> {
    fn name(&self) -> &str {
        "VECTOR"
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        let line = Line { delivery: request.delivery, target: None };
        let number = self.lines.lines.lock().insert(line, LINES);
        let number = number.ok_or(IrqError::Exhausted("lines of the vector domain", LINES as u32))?;
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(number as u64) })
    }

    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.lines.retarget(level.hwirq(), target)
    }

    fn release(&self, hwirq: HardwareIrq) {
        self.lines.lines.lock().remove(hwirq.0 as usize);
    }
}

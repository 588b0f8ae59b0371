//! I/O APIC: interrupt pins as lines (82093AA datasheet; VT-d, "I/OxAPIC Programming" behind a remapping unit).
//!
//! Behind a remapping unit a redirection entry names an entry of the remapping table and stays as it is when the line
//! moves. Level-triggered pins are then told of the end by the I/O APIC's own EOI register, since the remapped message
//! is edge-triggered for the local APIC. Pins are never posted.

use crate::apic::Lapic;
use crate::message::parent_with;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use hal::{Hal, Lock, Regs};
use irq::{
    AllocRequest, ChipOps, Delivery, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target,
    Vector,
};
use spec::apic::{IoApicVersion, Redirection, RemappableRedirection, ioapic};
use spec::msi::{PlainAddress, PlainData, RemappableAddress};

/// How a pin is wired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PinWiring {
    /// Level-triggered instead of edge.
    pub level: bool,
    /// Active low instead of high.
    pub active_low: bool,
}

/// Why an I/O APIC cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoApicError {
    /// The parent domain posts.
    PostedParent,
    /// So many pins were described, and the I/O APIC has so many.
    Pins(usize, usize),
    /// Its version, below 0x20, has no EOI register, which level-triggered pins need behind a remapping unit.
    NoEoi(u8),
}

impl fmt::Display for IoApicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PostedParent => write!(f, "I/O APIC pins cannot be posted; give them a remapped domain"),
            Self::Pins(given, has) => write!(f, "{given} I/O APIC pins were described; it has {has}"),
            Self::NoEoi(version) => {
                write!(f, "I/O APIC version {version:#x} has no EOI register; remapped level pins need 0x20 or later")
            }
        }
    }
}

impl core::error::Error for IoApicError {}

/// Where an I/O APIC's messages go.
pub enum IoApicRoute<H: Hal> {
    /// Straight to these local APICs; their EOIs come back by themselves.
    Plain(Arc<Lapic<H>>),
    /// To a remapping unit.
    Remapped,
}

struct Pin {
    wiring: PinWiring,
    taken: bool,
    entry: Redirection,
    /// The vector of a plain level-triggered pin has changed since its last end. The EOI of an interrupt that was
    /// under way names the old one, and the pin would wait for its own for ever.
    moved: bool,
}

struct State<R> {
    regs: R,
    pins: Vec<Pin>,
    has_eoi: bool,
}

impl<R: Regs> State<R> {
    fn read(&self, register: u8) -> u32 {
        self.regs.write32(ioapic::SELECT, u32::from(register));
        self.regs.read32(ioapic::WINDOW)
    }

    fn write(&self, register: u8, value: u32) {
        self.regs.write32(ioapic::SELECT, u32::from(register));
        self.regs.write32(ioapic::WINDOW, value);
    }

    /// The low half has the mask: it is written last when the pin opens, first when it closes.
    fn program(&mut self, pin: usize, entry: Redirection) {
        let bits = entry.into_bits();
        let register = ioapic::REDIRECTION + 2 * pin as u8;
        let halves = [(register + 1, (bits >> 32) as u32), (register, bits as u32)];
        let order = if entry.masked() { [1, 0] } else { [0, 1] };
        for (register, value) in order.map(|half| halves[half]) {
            self.write(register, value);
        }
        self.pins[pin].entry = entry;
    }

    /// Ends the pin's interrupt by its entry's own vector; without an EOI register by a turn as an edge-triggered pin,
    /// which has no remote IRR.
    fn end(&mut self, pin: usize) {
        let entry = self.pins[pin].entry;
        if self.has_eoi {
            self.regs.write32(ioapic::EOI, entry.vector().into());
        } else {
            self.program(pin, entry.with_masked(true).with_level(false));
            self.program(pin, entry.with_masked(true));
            self.set_masked(pin, entry.masked());
        }
    }

    fn set_masked(&mut self, pin: usize, masked: bool) {
        let Some(state) = self.pins.get_mut(pin) else { return };
        state.entry.set_masked(masked);
        let low = state.entry.into_bits() as u32;
        self.write(ioapic::REDIRECTION + 2 * pin as u8, low);
    }
}

/// The chip of an I/O APIC's pins.
pub struct IoApicChip<H: Hal> {
    route: IoApicRoute<H>,
    state: Lock<H, State<H::Regs>>,
}

impl<H: Hal> IoApicChip<H> {
    /// Puts what the levels towards the CPU compose into the pin's entry, mask and wiring kept.
    fn refresh(&self, level: &Level<'_>) -> Result<(), IrqError> {
        let composer = parent_with(level, |ops| ops.compose_message)?;
        let message = composer.chip().compose_message(&composer)?;
        let pin = level.hwirq().0 as usize;
        let mut state = self.state.lock();
        let Some(Pin { wiring, entry, .. }) = state.pins.get(pin) else {
            return Err(IrqError::Hardware("I/O APIC", "no such pin"));
        };
        let bits = match self.route {
            IoApicRoute::Plain(_) => plain(message)?.into_bits(),
            IoApicRoute::Remapped => remappable(message, pin as u8).into_bits(),
        };
        let new = Redirection::from_bits(bits)
            .with_level(wiring.level)
            .with_active_low(wiring.active_low)
            .with_masked(entry.masked());
        if new != *entry {
            // Masked while the halves differ.
            let (masked, entry_had_vector) = (new.masked(), entry.vector() != 0);
            state.pins[pin].moved = entry_had_vector;
            state.program(pin, new.with_masked(true));
            state.set_masked(pin, masked);
        }
        Ok(())
    }
}

fn plain(message: MsiMessage) -> Result<Redirection, IrqError> {
    let address = PlainAddress::from_bits(message.address);
    if address.destination_high() != 0 {
        return Err(IrqError::Delivery("an APIC id above 0xff needs interrupt remapping"));
    }
    let data = PlainData::from_bits(message.data);
    Ok(Redirection::new()
        .with_vector(data.vector())
        .with_delivery_mode(data.delivery_mode())
        .with_logical(address.logical())
        .with_destination(address.destination_low()))
}

/// The vector only finds the pin again at its directed EOI, so the pin's own number does.
fn remappable(message: MsiMessage, pin: u8) -> RemappableRedirection {
    let address = RemappableAddress::from_bits(message.address as u32);
    RemappableRedirection::new()
        .with_remappable(true)
        .with_handle_low(address.handle_low())
        .with_handle_high(address.handle_high())
        .with_vector(pin)
}

impl<H: Hal> IrqChip for IoApicChip<H> {
    fn name(&self) -> &'static str {
        match self.route {
            IoApicRoute::Plain(_) => "IO-APIC",
            IoApicRoute::Remapped => "IR-IO-APIC",
        }
    }

    fn provides(&self) -> ChipOps {
        ChipOps { eoi: true, mask: true, set_affinity: true, retrigger: true, forwards: true, ..ChipOps::default() }
    }

    /// The local APIC first: the pin, if still asserted, sends again as soon as it is told. Its EOI means nothing to a pin
    /// whose vector it held for an edge: a device that sent to that vector, by a message that is no longer its own, took
    /// the level's mark (SDM vol. 3, "Interrupt Acceptance for Fixed Interrupts", TMR). Where that happens only after the
    /// look, the edge comes as one more interrupt of this line, and its end is seen.
    fn eoi(&self, level: &Level<'_>) {
        let pin = level.hwirq().0 as usize;
        let mut state = self.state.lock();
        let tell = match state.pins.get_mut(pin) {
            Some(Pin { wiring: PinWiring { level: true, .. }, moved, entry, .. }) => match &self.route {
                IoApicRoute::Plain(lapic) => core::mem::take(moved) || !lapic.is_level(Vector(entry.vector())),
                IoApicRoute::Remapped => true,
            },
            _ => false,
        };
        if let Ok(parent) = parent_with(level, |ops| ops.eoi) {
            parent.chip().eoi(&parent);
        }
        if tell {
            state.end(pin);
        }
    }

    /// A level that is still raised comes again once its pin is told of an end. An IPI would come as an edge, which takes
    /// the level's mark from a request that waits at the local APIC.
    fn retrigger(&self, level: &Level<'_>) -> bool {
        let pin = level.hwirq().0 as usize;
        let mut state = self.state.lock();
        if state.pins.get(pin).is_some_and(|pin| pin.wiring.level) {
            state.end(pin);
            return true;
        }
        drop(state);
        parent_with(level, |ops| ops.retrigger).is_ok_and(|parent| parent.chip().retrigger(&parent))
    }

    fn mask(&self, level: &Level<'_>) {
        let mut state = self.state.lock();
        state.set_masked(level.hwirq().0 as usize, true);
        // The read waits for the write: the pin sends nothing after it.
        state.regs.read32(ioapic::WINDOW);
    }

    fn unmask(&self, level: &Level<'_>) {
        self.state.lock().set_masked(level.hwirq().0 as usize, false);
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        let mover = parent_with(level, |ops| ops.set_affinity)?;
        mover.chip().set_affinity(&mover, target)?;
        self.refresh(level)
    }

    fn release(&self, hwirq: HardwareIrq) {
        let mut state = self.state.lock();
        let pin = hwirq.0 as usize;
        if pin < state.pins.len() {
            state.program(pin, Redirection::new().with_masked(true));
            state.pins[pin].taken = false;
        }
    }
}

/// The pins of one I/O APIC.
pub struct IoApicDomain<H: Hal> {
    parent: Arc<dyn IrqDomain>,
    chip: Arc<IoApicChip<H>>,
}

impl<H: Hal> IoApicDomain<H> {
    /// The I/O APIC behind `regs`, all pins masked, whose messages take `route` and whose lines belong to `parent`.
    /// `wiring` describes each pin.
    ///
    /// # Errors
    /// [`IoApicError`] when the parent posts, pins are missing, or level pins would never learn of their end.
    pub fn new(
        hal: H,
        regs: H::Regs,
        wiring: &[PinWiring],
        route: IoApicRoute<H>,
        parent: Arc<dyn IrqDomain>,
    ) -> Result<Self, IoApicError> {
        if parent.is_posted() {
            return Err(IoApicError::PostedParent);
        }
        let masked = Redirection::new().with_masked(true);
        let pins = wiring.iter().map(|&wiring| Pin { wiring, taken: false, entry: masked, moved: false }).collect();
        let mut state = State { regs, pins, has_eoi: false };
        let version = IoApicVersion::from_bits(state.read(ioapic::VERSION));
        state.has_eoi = version.version() >= ioapic::VERSION_WITH_EOI;
        let has = usize::from(version.entries_less_one()) + 1;
        if wiring.len() > has {
            return Err(IoApicError::Pins(wiring.len(), has));
        }
        let needs_eoi = matches!(route, IoApicRoute::Remapped) && wiring.iter().any(|pin| pin.level);
        if needs_eoi && !state.has_eoi {
            return Err(IoApicError::NoEoi(version.version()));
        }
        for pin in 0..wiring.len() {
            state.program(pin, masked);
        }
        Ok(Self { parent, chip: Arc::new(IoApicChip { route, state: Lock::new(hal, state) }) })
    }
}

impl<H: Hal> IrqDomain for IoApicDomain<H> {
    fn name(&self) -> &str {
        self.chip.name()
    }

    fn parent(&self) -> Option<&dyn IrqDomain> {
        Some(&*self.parent)
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        if request.delivery == Delivery::Logical && matches!(self.chip.route, IoApicRoute::Plain(_)) {
            return Err(IrqError::Delivery("a logical destination needs interrupt remapping"));
        }
        let mut state = self.chip.state.lock();
        let exhausted = IrqError::Exhausted("pins of the I/O APIC", state.pins.len() as u32);
        match state.pins.get_mut(request.index as usize) {
            Some(pin) if !pin.taken => pin.taken = true,
            _ => return Err(exhausted),
        }
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(u64::from(request.index)) })
    }

    fn activate(&self, level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        self.chip.refresh(level)
    }
}

#[cfg(test)]
mod tests;

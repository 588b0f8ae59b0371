//! I/O APIC: interrupt pins as lines (82093AA datasheet; VT-d, "I/OxAPIC Programming" behind a remapping unit).
//!
//! Behind a remapping unit a redirection entry names an entry of the remapping table and does not change when the line
//! moves. The local APIC then sees an edge, so a level-triggered pin learns of its end through the I/O APIC's own EOI
//! register. Pins are never posted.

use crate::apic::Lapic;
use crate::register::Typed as _;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use hal::{Hal, Lock, Regs};
use irq::{
    AllocRequest, ChipBehaviour, DeliveryKind, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage,
    Target, Vector,
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

/// Why the driver refuses an I/O APIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoApicError {
    /// The parent domain posts.
    PostedParent,
    /// The caller described the first number of pins; the I/O APIC has the second.
    Pins(usize, usize),
    /// This version, below 0x20, has no EOI register. Level-triggered pins behind a remapping unit need one.
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

/// Pins whose redirection entries IOREGSEL can select: it has 8 bits, and an entry takes two registers from 10h on (82093AA,
/// "IOREGSEL").
const PINS_MAX: usize = (0x100 - ioapic::REDIRECTION as usize) / 2;

/// Route of an I/O APIC's messages.
pub enum IoApicRoute<H: Hal> {
    /// Directly to these local APICs. Their EOIs reach the I/O APIC without software.
    Plain(Arc<Lapic<H>>),
    /// To a remapping unit.
    Remapped,
}

struct Pin {
    wiring: PinWiring,
    taken: bool,
    entry: Redirection,
    /// True after the vector of a plain level-triggered pin has changed, until the next end. The EOI of an earlier
    /// interrupt names the old vector, so the pin would wait for its own EOI for ever.
    moved: bool,
}

struct State<R> {
    regs: R,
    pins: Vec<Pin>,
    has_eoi: bool,
}

impl<R: Regs> State<R> {
    fn read(&self, register: u8) -> u32 {
        self.regs.write(ioapic::SELECT, u32::from(register));
        self.regs.read(ioapic::WINDOW)
    }

    fn write(&self, register: u8, value: u32) {
        self.regs.write(ioapic::SELECT, u32::from(register));
        self.regs.write(ioapic::WINDOW, value);
    }

    /// The low half contains the mask. The driver writes it last to open the pin, and first to close it.
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

    /// Ends the pin's interrupt through the EOI register, with the entry's vector. Without that register, switches the
    /// pin to edge-triggered and back, which clears its remote IRR.
    fn end(&mut self, pin: usize) {
        let entry = self.pins[pin].entry;
        if self.has_eoi {
            self.regs.write(ioapic::EOI, entry.vector().into());
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

/// Implements the chip of an I/O APIC's pins.
struct IoApic<H: Hal> {
    route: IoApicRoute<H>,
    state: Lock<H, State<H::Regs>>,
}

impl<H: Hal> IoApic<H> {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        let name = match self.route {
            IoApicRoute::Plain(_) => "IO-APIC",
            IoApicRoute::Remapped => "IR-IO-APIC",
        };
        IrqChip::of(name, self)
            .behaviour(ChipBehaviour { forwards: true, ..ChipBehaviour::default() })
            .eoi(Self::eoi)
            .mask(Self::mask, Self::unmask)
            .set_affinity(Self::set_affinity)
            .retrigger(Self::retrigger)
            .build()
    }

    /// Writes the message that the parent levels compose into the pin's entry, and keeps the mask and the wiring.
    fn refresh(&self, level: &Level<'_>) -> Result<(), IrqError> {
        let message = level.parent_message()?;
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
            // The entry stays masked while its halves do not match.
            let (masked, entry_had_vector) = (new.masked(), entry.vector() != 0);
            state.pins[pin].moved = entry_had_vector;
            state.program(pin, new.with_masked(true));
            state.set_masked(pin, masked);
            // The read completes after the writes: nothing goes to a CPU that the line has left, and that goes offline next.
            state.regs.read(ioapic::WINDOW);
        }
        Ok(())
    }
}

fn plain(message: MsiMessage) -> Result<Redirection, IrqError> {
    let address = PlainAddress::from_bits(message.address);
    if address.destination_high() != 0 {
        return Err(IrqError::Undeliverable("an APIC id above 0xff needs interrupt remapping"));
    }
    let data = PlainData::from_bits(message.data);
    Ok(Redirection::new()
        .with_vector(data.vector())
        .with_delivery_mode(data.delivery_mode())
        .with_logical(address.logical())
        .with_destination(address.destination_low()))
}

/// Here the vector field only lets a directed EOI find the pin, so it holds the pin's number.
fn remappable(message: MsiMessage, pin: u8) -> RemappableRedirection {
    let address = RemappableAddress::from_bits(message.address as u32);
    RemappableRedirection::new()
        .with_remappable(true)
        .with_handle_low(address.handle_low())
        .with_handle_high(address.handle_high())
        .with_vector(pin)
}

impl<H: Hal> IoApic<H> {
    /// Sends the EOI to the local APIC first, because a pin that is still asserted sends again as soon as it gets its
    /// EOI. The local APIC does not pass the EOI on when it has marked the vector as an edge: a device with an
    /// outdated message to that vector clears the level mark (SDM vol. 3, "Interrupt Acceptance for Fixed Interrupts",
    /// TMR). If that edge comes after the check here, it raises one more interrupt of this line, whose end sees the
    /// cleared mark.
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
        level.parent_eoi();
        if tell {
            state.end(pin);
        }
    }

    /// A pin whose level is still raised sends again when it gets an EOI. An IPI would arrive as an edge instead, and
    /// would clear the level mark of a request that is pending at the local APIC.
    fn retrigger(&self, level: &Level<'_>) -> bool {
        let pin = level.hwirq().0 as usize;
        let mut state = self.state.lock();
        if state.pins.get(pin).is_some_and(|pin| pin.wiring.level) {
            state.end(pin);
            return true;
        }
        drop(state);
        level.parent_retrigger()
    }

    fn mask(&self, level: &Level<'_>) {
        let mut state = self.state.lock();
        state.set_masked(level.hwirq().0 as usize, true);
        // The read completes after the write, and the pin sends nothing afterwards.
        state.regs.read(ioapic::WINDOW);
    }

    fn unmask(&self, level: &Level<'_>) {
        self.state.lock().set_masked(level.hwirq().0 as usize, false);
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        level.set_parent_affinity(target)?;
        self.refresh(level)
    }
}

/// The pins of one I/O APIC.
pub struct IoApicDomain<H: Hal> {
    parent: Arc<dyn IrqDomain>,
    io_apic: Arc<IoApic<H>>,
    chip: Arc<IrqChip>,
}

impl<H: Hal> IoApicDomain<H> {
    /// The I/O APIC behind `regs`. Masks all pins, also those behind the described ones, which firmware or another kernel
    /// may have left open. The messages take `route`, and the lines belong to `parent`. `wiring` describes each pin.
    ///
    /// # Errors
    /// [`IoApicError`] when the parent posts, the number of pins is wrong, or level pins could never get an EOI.
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
        let has = (usize::from(version.entries_less_one()) + 1).min(PINS_MAX);
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
        for pin in wiring.len()..has {
            state.write(ioapic::REDIRECTION + 2 * pin as u8, masked.into_bits() as u32);
        }
        let io_apic = Arc::new(IoApic { route, state: Lock::new(hal, state) });
        Ok(Self { parent, chip: io_apic.chip(), io_apic })
    }
}

impl<H: Hal> IrqDomain for IoApicDomain<H> {
    fn name(&self) -> &str {
        self.chip.name()
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        if request.delivery == DeliveryKind::Logical && matches!(self.io_apic.route, IoApicRoute::Plain(_)) {
            return Err(IrqError::Undeliverable("a logical destination needs interrupt remapping"));
        }
        let mut state = self.io_apic.state.lock();
        let exhausted = IrqError::Exhausted("pins of the I/O APIC", state.pins.len() as u32);
        match state.pins.get_mut(request.index as usize) {
            Some(pin) if !pin.taken => pin.taken = true,
            _ => return Err(exhausted),
        }
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(u64::from(request.index)) })
    }

    fn activate(&self, level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        self.io_apic.refresh(level)
    }

    fn release(&self, hwirq: HardwareIrq) {
        let mut state = self.io_apic.state.lock();
        let pin = hwirq.0 as usize;
        if pin < state.pins.len() {
            state.program(pin, Redirection::new().with_masked(true));
            state.pins[pin].taken = false;
        }
    }
}

#[cfg(test)]
mod tests;

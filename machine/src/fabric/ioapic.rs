//! An I/O APIC: it turns pin changes into messages.
//!
//! Sources: Intel 82093AA datasheet ("I/O APIC Registers", "I/O Redirection Table Registers"); VT-d, "I/OxAPIC
//! Programming" for entries in remappable format. It has the directed EOI register of version 0x20, or is older.

use crate::model::{Model, ModelId, Upstream};
use crate::observe::Fact;
use crate::world::World;
use spec::apic::{IoApicVersion, Redirection, ioapic};

// Offsets, as constants for `match` patterns.
const SELECT: u32 = ioapic::SELECT.offset();
const WINDOW: u32 = ioapic::WINDOW.offset();
const EOI: u32 = ioapic::EOI.offset();

/// Maximum number of pins: registers 0x10 to 0xff, two per entry.
const PINS_MAX: usize = 120;
/// Arbitration id, bits 27:24: follows the id. Register index.
const ARBITRATION: u8 = 0x02;

/// The configuration of one I/O APIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoApicConfig {
    /// Name in traces and faults.
    pub name: String,
    /// Requester id of its messages, as ACPI's DMAR table would tell.
    pub requester: u16,
    /// Pins, 1 to 120.
    pub pins: u8,
}

/// Event: the line of pin `arg / 2` becomes asserted (`arg` odd) or deasserted. Polarity is part of the line: asserted
/// means active. Tests and models send this event with [`World::schedule_for`].
pub const PIN: u32 = 0;

/// Event: a fault holds a pin asserted from now on (`arg` odd), or ends and the pin follows its line again.
pub const STICK: u32 = 1;

/// The argument of [`PIN`] and [`STICK`].
pub const fn pin_arg(pin: u8, asserted: bool) -> u64 {
    (pin as u64) << 1 | asserted as u64
}

/// A device that drives a level-triggered pin through an event descriptor (KVM, irqfd with a resampler). The end of
/// the interrupt deasserts the pin and sends `model` the event. The model must then assert the pin again if needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resampler {
    /// The model that gets the event.
    pub model: ModelId,
    /// The event code.
    pub code: u32,
    /// The event argument.
    pub arg: u64,
}

#[derive(Clone, Copy)]
struct Pin {
    entry: Redirection,
    /// The pin's line is asserted, or a fault holds it.
    asserted: bool,
    line: bool,
    stuck: bool,
    resampler: Option<Resampler>,
}

/// An I/O APIC inside the root complex. Its messages go directly to its IOMMU.
pub struct IoApic {
    iommu: ModelId,
    config: IoApicConfig,
    select: u8,
    id: u32,
    pins: Vec<Pin>,
    messages: u64,
    lost_edges: u64,
    has_eoi: bool,
}

impl IoApic {
    /// After reset: every pin masked.
    pub fn new(iommu: ModelId, config: IoApicConfig) -> Self {
        let pin = Pin {
            entry: Redirection::new().with_masked(true),
            asserted: false,
            line: false,
            stuck: false,
            resampler: None,
        };
        let pins = vec![pin; usize::from(config.pins).clamp(1, PINS_MAX)];
        Self { iommu, config, select: 0, id: 0, pins, messages: 0, lost_edges: 0, has_eoi: true }
    }

    /// One of version 11h: it has no EOI register.
    pub fn without_eoi_register(self) -> Self {
        Self { has_eoi: false, ..self }
    }

    /// Each pin is as firmware may leave it: open, with a vector and a destination of firmware's.
    pub fn leave_open(&mut self) {
        for (vector, pin) in (0x40..).zip(&mut self.pins) {
            pin.entry = Redirection::new().with_vector(vector);
        }
    }

    /// The redirection entry of `pin`, if the pin exists.
    pub fn redirection(&self, pin: u8) -> Option<Redirection> {
        self.pins.get(usize::from(pin)).map(|pin| pin.entry)
    }

    /// Installs a resampler on `pin`, if the pin exists.
    pub fn set_resampler(&mut self, pin: u8, resampler: Resampler) {
        if let Some(pin) = self.pins.get_mut(usize::from(pin)) {
            pin.resampler = Some(resampler);
        }
    }

    /// Sends the message of `pin`. In either format the entry's upper bits and bit 11 become the address, and its
    /// lower bits the data. Bits 63:48 go to 19:4, so the format bit and the handle (or the destination) get to their
    /// places.
    fn send(&mut self, world: &mut World<'_>, pin: usize) {
        let entry = self.pins[pin].entry;
        self.pins[pin].entry.set_remote_irr(entry.level());
        let bits = entry.into_bits();
        let address = 0xfee0_0000 | (bits >> 48 & 0xffff) << 4 | (bits >> 11 & 1) << 2;
        let data = bits as u32 & 0x7ff | u32::from(entry.level()) << 15 | 1 << 14;
        self.messages += 1;
        let message = Upstream::Message { requester: self.config.requester, address, data };
        world.upstream(self.iommu, message);
    }

    /// Sends the message of a level-triggered pin that is asserted, unmasked and not in service.
    fn evaluate(&mut self, world: &mut World<'_>, pin: usize) {
        let Pin { entry, asserted, .. } = self.pins[pin];
        if entry.level() && asserted && !entry.masked() && !entry.remote_irr() {
            self.send(world, pin);
        }
    }

    /// An edge on a masked pin is lost ("Interrupt Mask").
    fn line(&mut self, world: &mut World<'_>, pin: usize, code: u32, is_high: bool) {
        let Some(state) = self.pins.get_mut(pin) else {
            let text = format!("there are {}", self.pins.len());
            return world.fault("I/O APIC pin that does not exist", pin as u64, text);
        };
        *(if code == STICK { &mut state.stuck } else { &mut state.line }) = is_high;
        let asserted = state.line || state.stuck;
        let rising = asserted && !state.asserted;
        state.asserted = asserted;
        let entry = state.entry;
        match (entry.level(), rising, entry.masked()) {
            (true, _, _) => self.evaluate(world, pin),
            (false, true, false) => self.send(world, pin),
            (false, true, true) => self.lost_edges += 1,
            (false, false, _) => {}
        }
    }

    /// Ends the level-triggered interrupts of `vector`. A pin that is still asserted sends again.
    fn end_of_interrupt(&mut self, world: &mut World<'_>, vector: u8) {
        for pin in 0..self.pins.len() {
            let state = &mut self.pins[pin];
            let entry = &mut state.entry;
            if entry.level() && entry.remote_irr() && entry.vector() == vector {
                entry.set_remote_irr(false);
                if let Some(Resampler { model, code, arg }) = state.resampler {
                    state.line = false;
                    state.asserted = state.stuck;
                    world.schedule_for(model, world.now(), code, arg);
                }
                self.evaluate(world, pin);
            }
        }
    }

    fn selected(&self) -> u32 {
        match self.select {
            ioapic::ID | ARBITRATION => self.id,
            ioapic::VERSION => IoApicVersion::new()
                .with_version(if self.has_eoi { ioapic::VERSION_WITH_EOI } else { 0x11 })
                .with_entries_less_one((self.pins.len() - 1) as u8)
                .into_bits(),
            register => {
                let Some(index) = register.checked_sub(ioapic::REDIRECTION) else { return 0 };
                let pin = self.pins.get(usize::from(index / 2));
                pin.map_or(0, |pin| (pin.entry.into_bits() >> (index % 2 * 32)) as u32)
            }
        }
    }

    fn set_selected(&mut self, world: &mut World<'_>, value: u32) {
        if self.select == ioapic::ID {
            self.id = value & 0x0f00_0000;
        }
        let Some(index) = self.select.checked_sub(ioapic::REDIRECTION) else { return };
        let pin = usize::from(index / 2);
        let Some(state) = self.pins.get_mut(pin) else { return };
        let old = state.entry;
        let bits = crate::memory::with_field(old.into_bits(), u32::from(index % 2) * 32, 32, value.into());
        // Delivery status and remote IRR are read-only. An edge-triggered entry has no remote IRR.
        let entry = Redirection::from_bits(bits).with_delivery_pending(false);
        state.entry = entry.with_remote_irr(old.remote_irr() && entry.level());
        let (old, new) = (old.into_bits(), state.entry.into_bits());
        world.tell(|| Fact::Redirected { pin: pin as u8, old, new });
        self.evaluate(world, pin);
    }
}

impl Model for IoApic {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        self.line(world, (arg >> 1) as usize, code, arg & 1 != 0);
    }

    fn read(&mut self, _world: &mut World<'_>, _region: u8, offset: u32, _width_bytes: u8) -> u64 {
        match offset {
            SELECT => self.select.into(),
            WINDOW => self.selected().into(),
            _ => 0,
        }
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width_bytes: u8, value: u64) {
        match offset {
            SELECT => self.select = value as u8,
            WINDOW => self.set_selected(world, value as u32),
            EOI if self.has_eoi => self.end_of_interrupt(world, value as u8),
            _ => {}
        }
    }

    fn eoi_broadcast(&mut self, world: &mut World<'_>, vector: u8) {
        self.end_of_interrupt(world, vector);
    }

    /// In the chipset, behind a link of its own.
    fn is_far(&self) -> bool {
        true
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("messages", self.messages), ("lost_edges", self.lost_edges)]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

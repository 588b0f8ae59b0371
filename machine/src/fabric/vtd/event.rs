//! The two events that the unit itself signals, by plain messages that are never remapped (VT-d, "Remapping Hardware
//! Event Interrupt Programming").

use super::request::LapicMessage;
use spec::vtd::registers::EventControl;

/// Control, data and address registers of one event.
pub(super) struct EventRegisters {
    control: EventControl,
    data: u32,
    address: u64,
}

impl EventRegisters {
    /// After reset: masked.
    pub(super) fn new() -> Self {
        Self { control: EventControl::new().with_masked(true), data: 0, address: 0 }
    }

    /// The event happens. Returns the message to send; while masked the event stays pending.
    pub(super) fn raise(&mut self) -> Option<LapicMessage> {
        self.control.set_pending(self.control.masked());
        (!self.control.masked()).then(|| LapicMessage::plain(self.address, self.data))
    }

    /// Software has handled every cause.
    pub(super) fn served(&mut self) {
        self.control.set_pending(false);
    }

    /// Reads 32-bit register `part`: control, data, address, upper address.
    pub(super) fn read(&self, part: u32) -> u32 {
        match part {
            0 => self.control.into_bits(),
            1 => self.data,
            2 => self.address as u32,
            _ => (self.address >> 32) as u32,
        }
    }

    /// Writes 32-bit register `part`. Unmasking sends a pending event.
    pub(super) fn write(&mut self, part: u32, value: u32) -> Option<LapicMessage> {
        match part {
            0 => {
                self.control.set_masked(EventControl::from_bits(value).masked());
                return if self.control.pending() { self.raise() } else { None };
            }
            1 => self.data = value & 0xffff,
            2 => self.address = self.address & !0xffff_ffff | u64::from(value & !3),
            _ => self.address = self.address & 0xffff_ffff | u64::from(value) << 32,
        }
        None
    }
}

//! Events: their target and their meaning.

use hal::CpuId;

/// The number under which a model stands in its machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModelId(pub u32);

/// An event: its target and its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// The upper half is the target, the lower half the code. Two words, so that an event travels in registers:
    /// written to memory in parts and read back whole, it would stall the host's CPU.
    pub(crate) head: u64,
    pub(crate) arg: u64,
}

pub(crate) const KIND_MODEL: u32 = 0;
pub(crate) const KIND_WRITE: u32 = 1;
pub(crate) const KIND_CPU: u32 = 2;
pub(crate) const KIND_STOP: u32 = 3;

/// The model or CPU in a target.
pub(crate) const INDEX_MASK: u32 = 0x3fff_ffff;

/// A hand pulls a device out (arg 0) or puts it in (arg 1). No model has a code of its own that is so high.
pub(crate) const PLUG: u32 = (1 << 28) - 2;

/// The kinds of events for a CPU.
pub(crate) mod cpu_event {
    /// A wait is over, if its generation (`arg`) is still the CPU's current one.
    pub(crate) const RESUME: u32 = 0;
    /// The LAPIC has an interrupt to deliver.
    pub(crate) const ACCEPT: u32 = 1;
    /// An interrupt message or IPI arrives: vector in `arg`.
    pub(crate) const RAISE: u32 = 2;
    /// The LAPIC timer has expired, if its generation (`arg`) is still the timer's current one.
    pub(crate) const TIMER: u32 = 3;
    /// The running thread's time slice may be over.
    pub(crate) const SLICE: u32 = 4;
    /// A starved thread (`arg`) is woken.
    pub(crate) const WAKE: u32 = 5;
}

impl Event {
    /// No register of a model has this offset or a higher one.
    pub(crate) const OFFSET_END: u32 = 1 << 26;

    fn new(target: u32, code: u32, arg: u64) -> Self {
        Self { head: u64::from(target) << 32 | u64::from(code), arg }
    }

    /// Kind in the top two bits, below it the model or CPU.
    pub(crate) fn target(self) -> u32 {
        (self.head >> 32) as u32
    }

    pub(crate) fn code(self) -> u32 {
        self.head as u32
    }

    pub(crate) fn for_model(model: ModelId, code: u32, arg: u64) -> Self {
        assert!(code < 1 << 28, "event code {code:#x} of model {} needs more than 28 bits", model.0);
        Self::new(KIND_MODEL << 30 | model.0, code, arg)
    }

    /// A register write that arrives later. The code holds region, width and offset.
    pub(crate) fn write(model: ModelId, region: u8, offset: u32, width_bytes: u8, value: u64) -> Self {
        debug_assert!(offset < Self::OFFSET_END && region < 16, "region {region} offset {offset:#x}");
        let (narrow, wide) = (u32::from(width_bytes < 4), u32::from(width_bytes == 8 || width_bytes == 2));
        let code = narrow << 31 | u32::from(region) << 27 | wide << 26 | offset;
        Self::new(KIND_WRITE << 30 | model.0, code, value)
    }

    /// Region, offset and width in bytes of [`Event::write`].
    pub(crate) fn write_target(self) -> (u8, u32, u8) {
        let code = self.code();
        let width_bytes = match (code >> 31, code >> 26 & 1) {
            (0, 0) => 4,
            (0, _) => 8,
            (_, 0) => 1,
            _ => 2,
        };
        ((code >> 27 & 15) as u8, code & (Self::OFFSET_END - 1), width_bytes)
    }

    pub(crate) fn for_cpu(cpu: CpuId, code: u32, arg: u64) -> Self {
        Self::new(KIND_CPU << 30 | cpu.0, code, arg)
    }

    pub(crate) fn stop(run: u64) -> Self {
        Self::new(KIND_STOP << 30, 0, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_keeps_its_width_and_place() {
        for width_bytes in [1, 2, 4, 8] {
            let event = Event::write(ModelId(5), 15, 0x3ff_fffc, width_bytes, 7);
            assert_eq!(event.write_target(), (15, 0x3ff_fffc, width_bytes));
        }
    }
}

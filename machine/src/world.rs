//! What a model may do to the rest of the machine.

use crate::core::Core;
use crate::cpu::IrqInput;
use crate::event::Event;
use crate::fault::FaultRecord;
use crate::memory::BusError;
use crate::model::{ModelId, Upstream};
use crate::observe::Fact;
use crate::time::Ps;
use crate::trace::Track;
use crate::unrest::Kind;
use core::ops::Range;
use hal::Word as _;

/// A model's view of its machine while it handles one call.
pub struct World<'a> {
    core: &'a Core,
    me: ModelId,
}

impl<'a> World<'a> {
    pub(crate) fn new(core: &'a Core, me: ModelId) -> Self {
        Self { core, me }
    }

    /// The present.
    pub fn now(&self) -> Ps {
        self.core.now()
    }

    /// The model that is being called.
    pub fn me(&self) -> ModelId {
        self.me
    }

    /// Sends this model an event at `at`, which may be the present but not the past.
    ///
    /// # Panics
    /// When `code` needs more than 28 bits.
    pub fn schedule(&mut self, at: Ps, code: u32, arg: u64) {
        self.schedule_for(self.me, at, code, arg);
    }

    /// Sends `model` an event at `at`.
    ///
    /// # Panics
    /// When `code` needs more than 28 bits.
    pub fn schedule_for(&mut self, model: ModelId, at: Ps, code: u32, arg: u64) {
        self.core.push(at, Event::for_model(model, code, arg));
    }

    /// Sends `model` an event that follows the one that is being handled, before anything else: what this model and
    /// that one do is one step. For a bus whose own event is also its user's.
    ///
    /// # Panics
    /// When `code` needs more than 28 bits.
    pub fn chain(&mut self, model: ModelId, code: u32, arg: u64) {
        self.core.chain(Event::for_model(model, code, arg));
    }

    /// Passes a transfer or message to the bus `to`, now.
    pub fn upstream(&mut self, to: ModelId, request: Upstream) {
        if let Upstream::Message { requester, address, data } = request {
            self.tell(|| Fact::Message { from: self.me, to, requester, address, data });
        }
        let mut bus = self.core.model(to).borrow_mut();
        bus.upstream(&mut World::new(self.core, to), self.me, request);
    }

    /// 64 bits of memory.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn read64(&self, address: u64) -> Result<u64, BusError> {
        match self.core.memory_word(address, 8) {
            Ok(word) => Ok(word.get()),
            Err(missed) => self.core.host_read(missed),
        }
    }

    /// 32 bits of memory.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn read32(&self, address: u64) -> Result<u32, BusError> {
        match self.core.memory_word(address, 4) {
            Ok(word) => Ok((word.get() >> (address % 8 * 8)) as u32),
            Err(missed) => Ok(self.core.host_read(missed)? as u32),
        }
    }

    /// Writes 64 bits; CPUs that wait on the word go on.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn write64(&mut self, address: u64, value: u64) -> Result<(), BusError> {
        match self.core.memory_word(address, 8) {
            Ok(word) => word.set(value),
            Err(missed) => self.core.host_write(missed, value)?,
        }
        Ok(())
    }

    /// Writes 32 bits.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn write32(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        let word = match self.core.memory_word(address, 4) {
            Ok(word) => word,
            Err(missed) => return self.core.host_write(missed, value.into()),
        };
        word.set(crate::memory::with_field(word.get(), (address % 8 * 8) as u32, 32, value.into()));
        Ok(())
    }

    /// Writes those `bytes` of the 64-bit word at `address` that are in the range, and touches nothing beside them: what a
    /// lent model has beside its own may be another agent's.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub(crate) fn write_within(&mut self, address: u64, value: u64, bytes: Range<u32>) -> Result<(), BusError> {
        if let Ok(word) = self.core.memory_word(address, 8) {
            let part = value >> (8 * bytes.start);
            let bits = 8 * (bytes.end - bytes.start);
            word.set(crate::memory::with_field(word.get(), 8 * bytes.start, bits, part));
            return Ok(());
        }
        let mut at = bytes.start;
        while at < bytes.end {
            // The largest access that begins here.
            let mut sizes = [8, 4, 2, 1].into_iter();
            let size =
                sizes.find(|size| at.is_multiple_of(*size) && at + size <= bytes.end).expect("one byte always fits");
            let part = value >> (8 * at) & (u64::MAX >> (64 - 8 * size));
            self.core.host_write(BusError { address: address + u64::from(at), bytes: size }, part)?;
            at += size;
        }
        Ok(())
    }

    /// What was written before is seen before anything is read after it. The machine's own memory is always so.
    pub(crate) fn order(&self) {
        if let Some(host) = self.core.host() {
            host.order();
        }
    }

    /// Changes 64 bits atomically and returns the old ones. What that costs is the caller's: [`Self::line_reserve`].
    /// Only of the machine's own memory: [`crate::lent`] does not serve it.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn update64(&mut self, address: u64, change: impl FnOnce(u64) -> u64) -> Result<u64, BusError> {
        let word = self.core.memory_word(address, 8)?;
        let old = word.get();
        word.set(change(old));
        Ok(old)
    }

    /// Takes the cache line of `address` for an atomic update that lasts `cost`, not before `earliest`; returns when
    /// it ends. CPUs and other devices that update the line wait for each other.
    pub fn line_reserve(&mut self, address: u64, earliest: Ps, cost: Ps) -> Ps {
        self.core.line_reserve(address, earliest, cost)
    }

    /// A lent model's message.
    pub(crate) fn message_to_host(&self, address: u64, data: u32) {
        if let Some(host) = self.core.host() {
            host.message(address, data);
        }
    }

    /// An interrupt message arrives now at the LAPIC `apic_id`. False when there is none, or it takes nothing.
    pub fn interrupt(&mut self, apic_id: u32, vector: u8, level: bool) -> bool {
        self.core.raise(apic_id, vector, level)
    }

    /// What the CPU interface of `cpu` asks of it from now on.
    pub fn set_irq_input(&mut self, cpu: u32, input: IrqInput) {
        self.core.set_irq_input(cpu, input);
    }

    /// `cpu` has acknowledged an interrupt that does not mask exceptions further: pseudo-NMIs come through again.
    pub fn unmask_exceptions(&mut self, cpu: u32) {
        self.core.unmask_exceptions(cpu);
    }

    /// From a CPU's request for an IPI to its arrival at the other CPU.
    pub fn ipi_time(&self) -> Ps {
        self.core.config.costs.ipi + self.message_delay()
    }

    /// How much longer than its model says a message takes on its way to a CPU: nothing, but for
    /// [`crate::unrest::Kind::LateMessage`].
    pub fn message_delay(&self) -> Ps {
        self.core.late(Kind::LateMessage)
    }

    /// `mean`, give or take the platform's jitter, uniformly; from this model's own stream.
    pub fn jitter(&mut self, mean: Ps) -> Ps {
        self.core.jitter(self.me, mean)
    }

    /// A number from this model's own stream.
    pub fn random(&mut self) -> u64 {
        self.core.random(self.me)
    }

    /// Records something that went wrong, by whose fault, for the report.
    pub fn fault(&mut self, kind: &'static str, requester: u64, text: String) {
        self.core.record_fault(FaultRecord { at: self.now(), source: self.me, kind, requester, text, count: 1 });
    }

    /// Tells the machine's observer, if it has one, what this model did.
    #[inline]
    pub fn tell(&self, fact: impl FnOnce() -> Fact) {
        self.core.tell(fact);
    }

    /// A span on this model's track of the trace.
    pub fn trace(&mut self, name: &'static str, start: Ps, duration: Ps, argument: u64) {
        self.core.trace(Track::Model(self.me), name, start, duration, argument);
    }
}

//! A model's operations on the rest of the machine.

use super::Board;
use super::model::{ModelId, Upstream};
use crate::cpu::IrqInput;
use crate::event::Event;
use crate::fault::FaultRecord;
use crate::memory::BusError;
use crate::observe::Fact;
use crate::time::Ps;
use crate::trace::{Span, Track};
use crate::unrest::Kind;
use crate::word::Word;
use core::ops::Range;

/// A model's view of its machine while it handles one call.
pub struct World<'a> {
    board: &'a Board,
    me: ModelId,
}

impl<'a> World<'a> {
    pub(crate) fn new(board: &'a Board, me: ModelId) -> Self {
        Self { board, me }
    }

    /// The present.
    pub fn now(&self) -> Ps {
        self.board.now()
    }

    /// The model that the machine is calling.
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
        self.board.clock.push(at, Event::for_model(model, code, arg));
    }

    /// Sends `model` an event that runs directly after the current one, before any other event: both together are one
    /// step. A bus uses this when its own event is also the event of its user.
    ///
    /// # Panics
    /// When `code` needs more than 28 bits.
    pub fn chain(&mut self, model: ModelId, code: u32, arg: u64) {
        self.board.clock.chain(Event::for_model(model, code, arg));
    }

    /// Passes a transfer or message to the bus `to` now.
    pub fn upstream(&mut self, to: ModelId, request: Upstream) {
        if let Upstream::Message { requester, address, data } = request {
            self.tell(|| Fact::Message { from: self.me, to, requester, address, data });
        }
        let mut bus = self.board.model(to).borrow_mut();
        bus.upstream(&mut World::new(self.board, to), self.me, request);
    }

    /// Reads 64 bits of memory.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn read64(&self, address: u64) -> Result<u64, BusError> {
        match self.board.memory_word(address, 8) {
            Ok(word) => Ok(self.seen(word)),
            Err(missed) => self.board.memory.host_read(missed),
        }
    }

    /// Reads `N` words of memory in one transfer.
    ///
    /// # Errors
    /// As [`Self::read64`], of the first word that cannot be read.
    #[inline]
    pub fn read_words<const N: usize>(&self, address: u64) -> Result<[u64; N], BusError> {
        if let Some(words) = self.board.memory.words_to_read(address, N) {
            return Ok(core::array::from_fn(|index| self.seen(&words[index])));
        }
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.read64(address.wrapping_add(index as u64 * 8))?;
        }
        Ok(words)
    }

    /// Reads 32 bits of memory.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn read32(&self, address: u64) -> Result<u32, BusError> {
        match self.board.memory_word(address, 4) {
            Ok(word) => Ok((self.seen(word) >> (address % 8 * 8)) as u32),
            Err(missed) => Ok(self.board.memory.host_read(missed)? as u32),
        }
    }

    /// Writes 64 bits. CPUs that wait on the word continue.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn write64(&mut self, address: u64, value: u64) -> Result<(), BusError> {
        match self.board.memory_word(address, 8) {
            Ok(word) => self.store(word, value),
            Err(missed) => self.board.memory.host_write(missed, value)?,
        }
        Ok(())
    }

    /// Writes 32 bits.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn write32(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        let word = match self.board.memory_word(address, 4) {
            Ok(word) => word,
            Err(missed) => return self.board.memory.host_write(missed, value.into()),
        };
        self.store_field(word, (address % 8 * 8) as u32, 32, value.into());
        Ok(())
    }

    /// Writes the selected `bytes` of the 64-bit word at `address` and leaves the other bytes alone: memory next to
    /// that of a lent model may belong to another agent.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub(crate) fn write_within(&mut self, address: u64, value: u64, bytes: Range<u32>) -> Result<(), BusError> {
        if let Ok(word) = self.board.memory_word(address, 8) {
            let part = value >> (8 * bytes.start);
            let bits = 8 * (bytes.end - bytes.start);
            self.store_field(word, 8 * bytes.start, bits, part);
            return Ok(());
        }
        let mut at = bytes.start;
        while at < bytes.end {
            // The largest access that the alignment at this address allows.
            let mut sizes = [8, 4, 2, 1].into_iter();
            let size =
                sizes.find(|size| at.is_multiple_of(*size) && at + size <= bytes.end).expect("one byte always fits");
            let part = value >> (8 * at) & (u64::MAX >> (64 - 8 * size));
            self.board.memory.host_write(BusError { address: address + u64::from(at), bytes: size }, part)?;
            at += size;
        }
        Ok(())
    }

    /// Makes every earlier write visible before any later read. The machine's own memory needs no such fence.
    pub(crate) fn order(&self) {
        if let Some(host) = self.board.memory.host() {
            host.order();
        }
    }

    /// Changes 64 bits atomically and returns the old value. The caller accounts for the time: [`Self::line_reserve`].
    /// Works only on the machine's own memory; [`crate::lent`] does not support it.
    ///
    /// # Errors
    /// No memory there, or not aligned.
    pub fn update64(&mut self, address: u64, change: impl FnOnce(u64) -> u64) -> Result<u64, BusError> {
        let word = self.board.memory_word(address, 8)?;
        let old = self.seen(word);
        self.store(word, change(old));
        Ok(old)
    }

    /// A word as a device sees it: stores of CPUs may be under way.
    #[inline]
    fn seen(&self, word: &Word) -> u64 {
        self.board.memory.stores.seen(word, self.now())
    }

    /// Writes a part of a word.
    #[inline]
    fn store_field(&self, word: &Word, shift: u32, bits: u32, value: u64) {
        let stores = &self.board.memory.stores;
        if stores.is_any() {
            return self.store(word, crate::memory::with_field(self.seen(word), shift, bits, value));
        }
        word.set_quietly(crate::memory::with_field(word.value(), shift, bits, value));
        self.board.word_written(word);
    }

    /// Writes a word. CPUs that wait on it continue.
    #[inline]
    fn store(&self, word: &Word, value: u64) {
        self.board.memory.stores.store(word, value, self.now());
        self.board.word_written(word);
    }

    /// Reserves the cache line of `address` for an atomic update that lasts `cost` and starts at `earliest` or later.
    /// Returns the end of the update. CPUs and other devices that update the line wait for each other, and an update by
    /// another agent than the last one takes [`crate::Costs::line_move`] more.
    pub fn line_reserve(&mut self, address: u64, earliest: Ps, cost: Ps) -> Ps {
        self.board.line_reserve(self.me, address, earliest, cost)
    }

    /// Passes on a message of a lent model.
    pub(crate) fn message_to_host(&self, address: u64, data: u32) {
        if let Some(host) = self.board.memory.host() {
            host.message(address, data);
        }
    }

    /// Delivers an interrupt message to the LAPIC `apic_id` now. False when there is no such LAPIC, or it accepts
    /// nothing.
    pub fn interrupt(&mut self, apic_id: u32, vector: u8, level: bool) -> bool {
        self.board.message(apic_id, vector, level)
    }

    /// Sets the request that the CPU interface of `cpu` makes to it from now on.
    pub fn set_irq_input(&mut self, cpu: u32, input: IrqInput) {
        self.board.set_irq_input(cpu, input);
    }

    /// `cpu` has acknowledged an ordinary interrupt. This ends the masking of exceptions: pseudo-NMIs can be taken
    /// again.
    pub fn unmask_exceptions(&mut self, cpu: u32) {
        self.board.unmask_exceptions(cpu);
    }

    /// Time from a CPU's request for an IPI to the IPI's arrival at the other CPU.
    pub fn ipi_time(&self) -> Ps {
        self.board.costs.ipi + self.message_delay()
    }

    /// Extra delay of a message on its way to a CPU, beyond the model's own. Zero unless
    /// [`crate::unrest::Kind::LateMessage`] strikes.
    pub fn message_delay(&self) -> Ps {
        self.board.late(Kind::LateMessage)
    }

    /// Extra delay of this kind until a change in an interrupt controller takes effect. Zero unless it strikes.
    pub(crate) fn effect_delay(&self, kind: Kind) -> Ps {
        self.board.late(kind)
    }

    /// A driver sets the device up and asks for something that a device may refuse: true if it does, by a
    /// [`crate::setback::Setback::Refusal`].
    pub(crate) fn refuses(&self) -> bool {
        self.board.setback.refuses()
    }

    /// Extra delay until a CPU's timer expires. Zero unless [`crate::unrest::Kind::LateTimer`] strikes.
    pub(crate) fn timer_delay(&self) -> Ps {
        self.board.late(Kind::LateTimer)
    }

    /// `mean` with the platform's jitter, uniformly distributed; drawn from this model's own random stream.
    pub fn jitter(&mut self, mean: Ps) -> Ps {
        self.board.jitter(self.me, mean)
    }

    /// A random number from this model's own stream.
    pub fn random(&mut self) -> u64 {
        self.board.random(self.me)
    }

    /// Records a fault for the report. `requester` says who caused it.
    pub fn fault(&mut self, kind: &'static str, requester: u64, text: String) {
        self.board.record_fault(FaultRecord { at: self.now(), source: self.me, kind, requester, text, count: 1 });
    }

    /// Informs the machine's observer, if there is one, of this model's action.
    #[inline]
    pub fn tell(&self, fact: impl FnOnce() -> Fact) {
        self.board.tell(fact);
    }

    /// Traces a span on this model's track.
    pub fn trace(&mut self, name: &'static str, start: Ps, duration: Ps, argument: u64) {
        self.board.witness.trace(Span { track: Track::Model(self.me), name, start, duration, argument });
    }
}

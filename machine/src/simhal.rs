//! The seam on the simulated machine.

use crate::core::Core;
use crate::core::current::{try_with, with};
use crate::memory::Dma;
use crate::regs::Regs;
use crate::time::Ps;
use crate::word::Word;
use hal::{Affinity, CpuId, DmaError, Hal, IrqState, SpawnError, ThreadBody, ThreadId, ThreadSpec, Threads, Work};

/// The [`Hal`] of the machine that runs on this host thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimHal;

impl Regs {
    fn read(self, offset: u32, width_bytes: u8) -> u64 {
        match self {
            Self::Model { model, region } => with(|core| core.mmio_read(model, region, offset, width_bytes)),
            Self::Lapic => with(|core| core.lapic_read(offset)),
            Self::Unposted { model, region, is_banked } => {
                with(|core| core.unposted_read(model, region, is_banked, offset, width_bytes))
            }
        }
    }

    fn write(self, offset: u32, width_bytes: u8, value: u64) {
        match self {
            Self::Model { model, region } => with(|core| core.mmio_write(model, region, offset, width_bytes, value)),
            Self::Lapic => with(|core| core.lapic_write(offset, value)),
            Self::Unposted { model, region, is_banked } => {
                with(|core| core.unposted_write((model, region, is_banked), offset, width_bytes, value));
            }
        }
    }
}

impl hal::Regs for Regs {
    fn read8(&self, offset: u32) -> u8 {
        self.read(offset, 1) as u8
    }
    fn write8(&self, offset: u32, value: u8) {
        self.write(offset, 1, value.into());
    }
    fn read16(&self, offset: u32) -> u16 {
        self.read(offset, 2) as u16
    }
    fn write16(&self, offset: u32, value: u16) {
        self.write(offset, 2, value.into());
    }
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset, 4) as u32
    }
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, 4, value.into());
    }
    fn read64(&self, offset: u32) -> u64 {
        self.read(offset, 8)
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, 8, value);
    }
}

impl Hal for SimHal {
    type Word = Word;
    type Regs = Regs;
    type Dma = Dma;

    fn dma_alloc(self, len_bytes: usize, align_bytes: usize) -> Result<Dma, DmaError> {
        with(|core| core.allocate(len_bytes, align_bytes))
    }
    #[inline]
    fn now_ns(self) -> u64 {
        with(|core| core.look_at_clock().as_ns())
    }
    #[inline]
    fn cpu(self) -> CpuId {
        with(|core| core.cpu().id)
    }
    #[inline]
    fn irq_save(self) -> IrqState {
        IrqState { were_on: with(Core::irq_save) }
    }
    #[inline]
    fn irq_restore(self, state: IrqState) {
        if state.were_on {
            with(Core::irq_enable);
        }
    }
    fn relax_on(self, word: &Word, seen: u64, deadline_ns: u64) {
        with(|core| core.relax_on(word, seen, Ps::from_ns(deadline_ns)));
    }
    fn delay_ns(self, duration_ns: u64) {
        with(|core| core.delay(Ps::from_ns(duration_ns)));
    }
    fn wait_for_interrupt(self) {
        with(Core::wait_for_interrupt);
    }
    #[inline]
    fn work(self, work: Work, count: u32) {
        with(|core| core.work(work, count));
    }
}

impl Threads for SimHal {
    fn spawn(self, spec: ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError> {
        with(|core| core.spawn(&spec, body))
    }
    #[inline]
    fn current_thread(self) -> ThreadId {
        with(|core| core.current_thread().unwrap_or(NO_THREAD))
    }
    fn park(self) {
        with(Core::park);
    }
    fn wake(self, thread: ThreadId) {
        with(|core| core.wake(thread));
    }
    fn set_affinity(self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError> {
        with(|core| core.set_affinity(thread, affinity))
    }
    fn yield_now(self) {
        with(Core::yield_now);
    }
}

impl SimHal {
    /// Asks `cpu` to look at its run queue, by a reschedule IPI. Owed.
    pub fn kick(self, cpu: CpuId) {
        with(|core| core.kick(cpu));
    }
}

/// The thread that an interrupt sees if its CPU idles before any thread ran there.
pub const NO_THREAD: ThreadId = ThreadId(u32::MAX);

impl Word {
    /// A plain store by a CPU, which changes the bits of `mask` alone.
    #[inline]
    pub(crate) fn store(&self, value: u64, mask: u64) {
        let old = self.value();
        self.set_quietly(value);
        try_with(|core| core.stored(self, old, mask));
    }

    /// The running CPU waits until devices see its stores.
    pub(crate) fn await_stores() {
        with(Core::wait_for_stores);
    }

    /// A store that is seen at once. CPUs that wait on the word continue.
    #[inline]
    pub(crate) fn store_now(&self, value: u64) {
        self.set_quietly(value);
        try_with(|core| core.board().word_written(self));
    }

    /// A read-modify-write by a CPU: others act first, and the line must be free.
    #[inline]
    fn update(&self, change: impl FnOnce(u64) -> u64) -> u64 {
        with(|core| core.atomic_point(self));
        let old = self.value();
        self.store_now(change(old));
        with(Core::updated);
        old
    }
}

impl hal::Word for Word {
    #[inline]
    fn new(value: u64) -> Self {
        Self::holding(value)
    }
    #[inline]
    fn get(&self) -> u64 {
        self.value()
    }
    #[inline]
    fn set(&self, value: u64) {
        self.store(value, u64::MAX);
    }
    #[inline]
    fn load(&self) -> u64 {
        with(|core| core.load_point(self));
        self.value()
    }
    #[inline]
    fn swap(&self, value: u64) -> u64 {
        self.update(|_| value)
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        with(|core| core.atomic_point(self));
        let old = self.value();
        if old != current {
            return Err(old);
        }
        self.store_now(new);
        with(Core::updated);
        Ok(old)
    }
    #[inline]
    fn fetch_or(&self, mask: u64) -> u64 {
        self.update(|old| old | mask)
    }
    #[inline]
    fn fetch_and(&self, mask: u64) -> u64 {
        self.update(|old| old & mask)
    }
    #[inline]
    fn fetch_add(&self, value: u64) -> u64 {
        self.update(|old| old.wrapping_add(value))
    }
}

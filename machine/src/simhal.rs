//! The seam on the simulated machine.

use crate::current::with;
use crate::gic::GicRegion;
use crate::memory::Dma;
use crate::model::ModelId;
use crate::time::Ps;
use crate::word::Word;
use hal::{Affinity, CpuId, DmaError, Hal, IrqState, SpawnError, ThreadBody, ThreadId, ThreadSpec, Work};

/// The [`Hal`] of the machine that runs on this host thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimHal;

/// A window of registers on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regs {
    /// A region of a model.
    Model {
        /// Which model.
        model: ModelId,
        /// Which of its regions.
        region: u8,
    },
    /// The running CPU's local APIC in x2APIC mode; offsets are MSR numbers.
    Lapic,
    /// A region of a GIC: a write has arrived before the CPU goes on, and is a point as a read is.
    Gic {
        /// Which model.
        model: ModelId,
        /// Which of its regions. Of those with registers for each CPU, the model sees the accessing CPU's number above
        /// bit 15 of the offset.
        region: GicRegion,
    },
}

impl Regs {
    fn read(self, offset: u32, width_bytes: u8) -> u64 {
        match self {
            Self::Model { model, region } => with(|core| core.mmio_read(model, region, offset, width_bytes)),
            Self::Lapic => with(|core| core.lapic_read(offset)),
            Self::Gic { model, region } => with(|core| core.gic_read(model, region, offset, width_bytes)),
        }
    }

    fn write(self, offset: u32, width_bytes: u8, value: u64) {
        match self {
            Self::Model { model, region } => with(|core| core.mmio_write(model, region, offset, width_bytes, value)),
            Self::Lapic => with(|core| core.lapic_write(offset, value)),
            Self::Gic { model, region } => with(|core| core.gic_write(model, region, offset, width_bytes, value)),
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
        with(|core| Dma::new(&core.arena, len_bytes, align_bytes))
    }
    #[inline]
    fn now_ns(self) -> u64 {
        with(|core| {
            if !core.on_console() {
                core.still_point();
            }
            core.local_now().as_ns()
        })
    }
    #[inline]
    fn cpu(self) -> CpuId {
        with(|core| core.cpu().id)
    }
    #[inline]
    fn irq_save(self) -> IrqState {
        IrqState { were_on: with(crate::core::Core::irq_save) }
    }
    #[inline]
    fn irq_restore(self, state: IrqState) {
        if state.were_on {
            with(crate::core::Core::irq_enable);
        }
    }
    fn relax_on(self, word: &Word, seen: u64, deadline_ns: u64) {
        with(|core| core.relax_on(word, seen, Ps::from_ns(deadline_ns)));
    }
    fn delay_ns(self, duration_ns: u64) {
        with(|core| {
            core.cpu().owe(Ps::from_ns(duration_ns).0, core.kernel_account());
            core.settle();
        });
    }
    fn wait_for_interrupt(self) {
        with(crate::core::Core::wait_for_interrupt);
    }
    fn kick(self, cpu: CpuId) {
        with(|core| core.kick(cpu));
    }
    fn spawn(self, spec: ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError> {
        with(|core| core.spawn(&spec, body))
    }
    #[inline]
    fn current_thread(self) -> ThreadId {
        with(|core| core.threads.current(core.cpu().id).unwrap_or(NO_THREAD))
    }
    fn park(self) {
        with(crate::core::Core::park);
    }
    fn wake(self, thread: ThreadId) {
        with(|core| core.wake(thread));
    }
    fn set_affinity(self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError> {
        with(|core| core.threads.sched.borrow_mut().set_affinity(thread, affinity))
    }
    fn yield_now(self) {
        with(crate::core::Core::yield_now);
    }
    #[inline]
    fn work(self, work: Work, count: u32) {
        with(|core| core.work(work, count));
    }
}

/// What an interrupt sees that found its CPU idle before any thread ran there.
pub const NO_THREAD: ThreadId = ThreadId(u32::MAX);

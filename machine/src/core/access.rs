//! CPU accesses to registers and memory words.

use super::{Core, current};
use crate::board::controller::{Effect, Fault};
use crate::event::{Event, ModelId, cpu_event};
use crate::memory::Dma;
use crate::observe::Fact;
use crate::regs::{BANK_BITS, REGION_BYTES};
use crate::time::Ps;
use crate::unrest::Kind;
use crate::word::Word;
use hal::DmaError;

impl Drop for Dma {
    fn drop(&mut self) {
        // What a panic drops says nothing about its driver.
        if !std::thread::panicking() {
            current::try_with(|core| core.given_back(self));
        }
        self.release();
    }
}

/// Registers of models.
impl Core {
    /// A read of a model's register by the running CPU.
    pub(crate) fn mmio_read(&self, model: ModelId, region: u8, offset: u32, width_bytes: u8) -> u64 {
        let own = self.board.model(model).borrow().access_costs(region, offset);
        let cost = own.map_or(self.board.costs.register_read, |own| own.read);
        self.board.owe(cost + self.push_writes(model));
        self.settle();
        self.wait_for_stores();
        self.board.read_register(model, region, offset, width_bytes)
    }

    /// A posted write. With interrupts off it is only added to the debt; it arrives in order when its time has come. A
    /// write that a hypervisor traps has been emulated when this call returns.
    pub(crate) fn mmio_write(&self, model: ModelId, region: u8, offset: u32, width_bytes: u8, value: u64) {
        if offset >= Event::OFFSET_END {
            let text = format!("region {region}, offset {offset:#x}");
            return self.board.cpu_fault("register write beyond any window", text);
        }
        let (order, own, is_trapped) = {
            let target = self.board.model(model).borrow();
            (target.write_order(region, offset), target.access_costs(region, offset), target.is_trapped())
        };
        self.board.owe(own.map_or(self.board.costs.register_write, |own| own.write));
        self.wait_for_stores();
        self.note_write();
        // No time passes for the console: the write arrives after the events that are due.
        if is_trapped && !self.on_console() {
            self.settle();
            return self.write_now(model, region, offset, width_bytes, value);
        }
        if self.cpu().irq_on() {
            self.settle();
        }
        let at = self.write_arrival(model, order);
        self.clock().push(at, Event::write(model, region, offset, width_bytes, value));
        self.owed_point();
    }

    /// A write that takes effect before the CPU continues.
    fn write_now(&self, model: ModelId, region: u8, offset: u32, width_bytes: u8, value: u64) {
        self.board.witness.note(self.now(), Event::write(model, region, offset, width_bytes, value));
        self.board.write_register(model, region, offset, width_bytes, value);
    }

    /// A read of an unposted region by the running CPU. Everything due happens first.
    pub(crate) fn unposted_read(&self, model: ModelId, region: u8, is_banked: bool, offset: u32, width: u8) -> u64 {
        let Some(seen) = self.banked(is_banked, offset) else {
            self.no_register(region, offset);
            return 0;
        };
        let costs = self.board.model(model).borrow().access_costs(region, seen);
        self.board.owe(costs.map_or(Ps(0), |costs| costs.read) + self.push_early_writes(model, region));
        self.settle();
        self.wait_for_stores();
        // The thread may have been preempted and moved to another CPU. It then sees the bank of that CPU.
        let seen = self.banked(is_banked, offset).unwrap_or(seen);
        self.board.read_register(model, region, seen, width)
    }

    /// A write to an unposted region by the running CPU: it has arrived when this returns, unless the region may
    /// acknowledge early and the disturbed schedule makes the write late.
    pub(crate) fn unposted_write(
        &self,
        (model, region, is_banked): (ModelId, u8, bool),
        offset: u32,
        width: u8,
        value: u64,
    ) {
        let Some(seen) = self.banked(is_banked, offset) else { return self.no_register(region, offset) };
        let costs = self.board.model(model).borrow().access_costs(region, seen);
        self.board.owe(costs.map_or(Ps(0), |costs| costs.write));
        self.settle();
        self.wait_for_stores();
        let seen = self.banked(is_banked, offset).unwrap_or(seen);
        self.note_write();
        match self.early_arrival(model, region) {
            Some(at) => self.clock().push(at, Event::write(model, region, seen, width, value)),
            None => self.write_now(model, region, seen, width, value),
        }
    }

    /// A setback may count the write.
    #[inline]
    fn note_write(&self) {
        if self.board.setback.counts_writes() {
            self.count_write();
        }
    }

    #[cold]
    fn count_write(&self) {
        let happening = self.board.setback.count_write();
        happening.into_iter().for_each(|event| self.board.dispatch_late(event));
    }

    /// The offset as the model sees it. For banked registers it includes the running CPU's number; the console uses
    /// CPU 0. `None` when the offset lies outside the bank.
    fn banked(&self, is_banked: bool, offset: u32) -> Option<u32> {
        if !is_banked {
            return (offset < REGION_BYTES).then_some(offset);
        }
        let cpu = if self.on_console() { 0 } else { self.cpu().id.0 };
        (offset >> BANK_BITS == 0).then_some(cpu << BANK_BITS | offset)
    }

    #[cold]
    fn no_register(&self, region: u8, offset: u32) {
        self.board.cpu_fault("GIC access to no register", format!("region {region}, offset {offset:#x}"));
    }
}

/// Offsets in the page of a local APIC in xAPIC mode end below this; the numbers of x2APIC mode's registers begin above.
const PAGE_BYTES: u32 = 0x400;

/// Registers of the running CPU's own interrupt controller.
impl Core {
    /// A write to the running CPU's own LAPIC: WRMSR, or a store to its page, which nothing posts.
    pub(crate) fn lapic_write(&self, register: u32, value: u64) {
        // A command of xAPIC mode takes two stores, and others act between them.
        if register < PAGE_BYTES {
            self.settle();
        }
        self.wait_for_stores();
        let cpu = self.cpu();
        let effect = self.board.controller().write(cpu, register, value);
        if effect != Effect::Fault(Fault::NoRegisters) {
            self.board.owe(self.board.costs.lapic_write);
        }
        match effect {
            Effect::None => {}
            Effect::IdleEoi => {
                self.board.tell_of_cpu(|cpu| Fact::IdleEoi { cpu });
                self.board.cpu_fault("EOI with nothing in service", String::new());
            }
            Effect::Ended { vector, broadcast } => {
                self.board.tell_of_cpu(|cpu| Fact::Ended { cpu, vector });
                if broadcast {
                    self.board.owe(self.board.costs.level_eoi);
                    self.settle();
                    self.board.broadcast_eoi(vector);
                }
            }
            Effect::Ipi { to, vector } => self.board.send_ipi(to, vector.into()),
            Effect::Timer(ticks) => self.arm_timer(ticks),
            Effect::Fault(fault) => {
                self.board.cpu_fault(fault.kind(), format!("write of {value:#x} to {register:#x}"));
            }
        }
    }

    /// Arms the running CPU's timer. 0 ticks disarm it.
    fn arm_timer(&self, ticks: u32) {
        let cpu = self.cpu();
        if ticks == 0 {
            cpu.rearm_timer(Ps(0));
        } else {
            let delay = Ps(self.board.costs.timer_tick.0 * u64::from(ticks)) + self.board.late(Kind::LateTimer);
            let at = self.board.local_now() + delay;
            let generation = cpu.rearm_timer(at);
            self.clock().push(at, Event::for_cpu(cpu.id, cpu_event::TIMER, generation.into()));
        }
    }

    /// A read of the running CPU's own LAPIC.
    pub(crate) fn lapic_read(&self, register: u32) -> u64 {
        self.settle();
        self.board.controller().read(&self.board, self.cpu(), register).unwrap_or_else(|fault| {
            self.board.cpu_fault(fault.kind(), format!("read of {register:#x}"));
            0
        })
    }
}

/// Words and buffers.
impl Core {
    pub(crate) fn allocate(&self, len: usize, align: usize) -> Result<Dma, DmaError> {
        if self.board.memory.is_exhausted.get() || self.board.setback.denies_memory() {
            let source = ModelId(u32::MAX);
            self.board.tell_of_cpu(|_| Fact::Struck { source, fault: "no memory" });
            return Err(DmaError::Exhausted(len));
        }
        let buffer = self.board.memory.allocate(len, align)?;
        self.board.memory.range_of(&buffer).into_iter().for_each(|range| self.board.setback.allocated(range));
        Ok(buffer)
    }

    /// A buffer goes back to the free list: tells of each model that still uses some of it.
    fn given_back(&self, buffer: &Dma) {
        let Some(range) = self.board.memory.range_of(buffer) else { return };
        self.board.setback.released(&range);
        if self.board.witness.is_watched() {
            self.board.tell_of_use(&range);
        }
    }

    /// A read-modify-write by the running CPU. First everything due happens, and the CPU waits for a cache line that a
    /// device updates atomically.
    #[inline]
    pub(crate) fn atomic_point(&self, word: &Word) {
        self.settle();
        // Locks and counters lie outside the memory of devices.
        let line = self.board.memory.line_of(word);
        if self.board.memory.stores.is_any() {
            self.drain_stores(line.is_some());
        }
        if let Some(line) = line {
            self.update_line(line);
        }
    }

    /// The running CPU has changed the bits of `mask` by a plain store. No point of the seam.
    #[inline]
    pub(crate) fn stored(&self, word: &Word, old: u64, mask: u64) {
        if let Some(unrest) = self.unrest() {
            self.hold_store(unrest, word, (old, mask));
        }
        if let Some(address) = self.board.memory.watched_address(word) {
            self.board.tell_of_cpu(|cpu| Fact::Stored { cpu, address, old, value: word.value() });
        }
        self.board.word_written(word);
    }

    /// An ordered read by the running CPU. A plain one (`Word::get`) is free: where it sees what a device wrote, the
    /// update that follows pays for the line, and where it sees nothing new, the line has not moved.
    #[inline]
    pub(crate) fn load_point(&self, word: &Word) {
        self.settle();
        if let Some(line) = self.board.memory.line_of(word) {
            self.read_line(line);
        }
    }

    /// The running CPU takes the cache line, and updates it.
    #[inline(never)]
    fn update_line(&self, line: usize) {
        let held = || self.board.late(Kind::SlowLine);
        let (cpu, transfer) = (self.cpu().id, self.board.costs.line_update);
        let wait = self.board.memory.update_line(line, cpu, self.now(), transfer, held);
        self.wait_for_line(wait);
    }

    /// The running CPU reads the cache line.
    #[inline(never)]
    fn read_line(&self, line: usize) {
        let wait = self.board.memory.read_line(line, self.now(), self.board.costs.line_update);
        self.wait_for_line(wait);
    }

    #[inline]
    fn wait_for_line(&self, wait: Ps) {
        if wait > Ps(0) {
            self.board.owe(wait);
            self.settle();
        }
    }
}

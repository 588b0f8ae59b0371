//! The local APIC of one CPU: pending vectors, vectors in service, and its registers in x2APIC mode and xAPIC mode.
//!
//! Register numbers and rules are those of the Intel SDM, volume 3, chapter "Advanced Programmable Interrupt
//! Controller (APIC)"; each place names its clause.

use crate::board::Board;
use crate::board::controller::{Built, Controller, Effect, Fault};
use crate::cpu::{Cpu, IrqInput};
use crate::observe::{Arrival, Fact};
use hal::CpuId;
use page::Page;
use std::cell::RefCell;

mod page;

/// 256 bits, one per vector.
#[derive(Clone, Copy, Default)]
struct Vectors([u64; 4]);

impl Vectors {
    fn set(&mut self, vector: u8) {
        self.0[usize::from(vector / 64)] |= 1 << (vector % 64);
    }

    fn clear(&mut self, vector: u8) {
        self.0[usize::from(vector / 64)] &= !(1 << (vector % 64));
    }

    fn contains(&self, vector: u8) -> bool {
        self.0[usize::from(vector / 64)] & (1 << (vector % 64)) != 0
    }

    fn highest(&self) -> Option<u8> {
        let word = (0..4).rev().find(|&word| self.0[word] != 0)?;
        Some((word as u32 * 64 + 63 - self.0[word].leading_zeros()) as u8)
    }

    /// 32 bits of a register bank.
    fn bank(&self, index: u32) -> u32 {
        (self.0[index as usize / 2] >> (index % 2 * 32)) as u32
    }
}

/// MSR numbers, as patterns.
mod msr {
    use spec::apic::x2apic;

    pub(super) const ID: u32 = x2apic::ID.offset();
    pub(super) const VERSION: u32 = x2apic::VERSION.offset();
    pub(super) const TPR: u32 = x2apic::TPR.offset();
    pub(super) const PPR: u32 = x2apic::PPR.offset();
    pub(super) const EOI: u32 = x2apic::EOI.offset();
    pub(super) const LDR: u32 = x2apic::LDR.offset();
    pub(super) const SVR: u32 = x2apic::SVR.offset();
    pub(super) const ISR: u32 = x2apic::ISR.first();
    pub(super) const TMR: u32 = x2apic::TMR.first();
    pub(super) const IRR: u32 = x2apic::IRR.first();
    pub(super) const ESR: u32 = x2apic::ESR.offset();
    pub(super) const ICR: u32 = x2apic::ICR.offset();
    pub(super) const LVT_TIMER: u32 = x2apic::LVT_TIMER.offset();
    pub(super) const LVT_THERMAL: u32 = x2apic::LVT_THERMAL.offset();
    pub(super) const LVT_ERROR: u32 = x2apic::LVT_ERROR.offset();
    pub(super) const TIMER_INITIAL: u32 = x2apic::TIMER_INITIAL.offset();
    pub(super) const TIMER_CURRENT: u32 = x2apic::TIMER_CURRENT.offset();
    pub(super) const TIMER_DIVIDE: u32 = x2apic::TIMER_DIVIDE.offset();
    pub(super) const SELF_IPI: u32 = x2apic::SELF_IPI.offset();
}

/// Software enable, bit 8 of the spurious-interrupt vector register.
const SVR_ENABLE: u32 = 1 << 8;
/// Mask, bit 16 of every LVT entry.
const LVT_MASKED: u32 = 1 << 16;

/// How software reaches the registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// x2APIC mode: by the numbers of model-specific registers.
    Msr,
    /// xAPIC mode: by offsets in the page.
    Page,
}

/// One CPU's local APIC.
struct Lapic {
    cpu: u32,
    /// Bits by which its id is its CPU's number shifted left.
    id_shift: u32,
    irr: Vectors,
    isr: Vectors,
    /// Trigger mode of the last arrival: set for level.
    tmr: Vectors,
    task_priority: u8,
    spurious: u32,
    lvt_timer: u32,
    /// The other LVT entries (thermal, performance, LINT0, LINT1, error). The model never raises them.
    lvt_rest: [u32; 5],
    timer_initial: u32,
    timer_divide: u32,
    /// In xAPIC mode.
    page: Option<Page>,
}

impl Lapic {
    /// After reset: software-disabled, every LVT entry masked ("Local APIC State After Power-Up or Reset").
    fn new(cpu: u32, id_shift: u32, access: Access) -> Self {
        Self {
            cpu,
            id_shift,
            irr: Vectors::default(),
            isr: Vectors::default(),
            tmr: Vectors::default(),
            task_priority: 0,
            spurious: 0xff,
            lvt_timer: LVT_MASKED,
            lvt_rest: [LVT_MASKED; 5],
            timer_initial: 0,
            timer_divide: 0,
            page: (access == Access::Page).then(Page::new),
        }
    }

    fn id(&self) -> u32 {
        self.cpu << self.id_shift
    }

    /// A message or IPI arrives. False when it is not accepted: software-disabled, or an illegal vector below 16
    /// ("Interrupt Acceptance for Fixed Interrupts", "Valid Interrupt Vectors").
    fn raise(&mut self, vector: u8, level: bool) -> bool {
        if vector < 16 || self.spurious & SVR_ENABLE == 0 {
            return false;
        }
        self.irr.set(vector);
        if level {
            self.tmr.set(vector)
        } else {
            self.tmr.clear(vector)
        }
        true
    }

    /// Processor priority: the higher of task priority and the highest in service, by class ("Task and Processor
    /// Priorities").
    fn processor_priority(&self) -> u8 {
        let in_service = self.isr.highest().unwrap_or(0);
        if self.task_priority >> 4 >= in_service >> 4 { self.task_priority } else { in_service & 0xf0 }
    }

    /// The vector that the CPU would take now.
    fn deliverable(&self) -> Option<u8> {
        self.irr.highest().filter(|vector| vector >> 4 > self.processor_priority() >> 4)
    }

    /// Takes the vector: moves it from IRR to ISR.
    fn accept(&mut self) -> Option<u8> {
        let vector = self.deliverable()?;
        self.irr.clear(vector);
        self.isr.set(vector);
        Some(vector)
    }

    /// The timer has expired. Returns the vector that it raises, unless its LVT entry is masked.
    fn timer_fired(&mut self) -> Option<u8> {
        self.timer_initial = 0;
        (self.lvt_timer & LVT_MASKED == 0).then_some(self.lvt_timer as u8)
    }

    /// True if the vector is pending.
    fn is_requested(&self, vector: u8) -> bool {
        self.irr.contains(vector)
    }

    /// The highest vector in service.
    fn in_service(&self) -> Option<u8> {
        self.isr.highest()
    }

    /// IRR and ISR, 64 vectors per word.
    fn vectors(&self) -> [[u64; 4]; 2] {
        [self.irr.0, self.isr.0]
    }

    /// A read of the register that this mode has at `register`.
    fn read(&self, register: u32) -> Result<u64, Fault> {
        match &self.page {
            Some(page) => page::read(self, page, register),
            None => self.read_msr(register),
        }
    }

    /// A write.
    #[inline]
    fn write(&mut self, register: u32, value: u64) -> Effect {
        let Some(mut page) = self.page.take() else { return self.write_msr(register, value) };
        let effect = page::write(self, &mut page, register, value as u32);
        self.page = Some(page);
        effect
    }

    /// RDMSR of `register`. `Err` means a fault on hardware.
    fn read_msr(&self, register: u32) -> Result<u64, Fault> {
        Ok(match register {
            msr::ID => self.id().into(),
            // Version 0x15, six LVT entries above the first.
            msr::VERSION => 0x0005_0015,
            msr::TPR => self.task_priority.into(),
            msr::PPR => self.processor_priority().into(),
            // Cluster id and bit, derived from the id ("Deriving Logical x2APIC ID").
            msr::LDR => u64::from((self.id() & !0xf) << 12 | 1 << (self.id() & 0xf)),
            msr::SVR => self.spurious.into(),
            msr::ISR..msr::TMR => self.isr.bank(register - msr::ISR).into(),
            msr::TMR..msr::IRR => self.tmr.bank(register - msr::TMR).into(),
            msr::IRR..msr::ESR => self.irr.bank(register - msr::IRR).into(),
            msr::ESR | msr::ICR | msr::TIMER_CURRENT => 0,
            msr::LVT_TIMER => self.lvt_timer.into(),
            msr::LVT_THERMAL..=msr::LVT_ERROR => self.lvt_rest[(register - msr::LVT_THERMAL) as usize].into(),
            msr::TIMER_INITIAL => self.timer_initial.into(),
            msr::TIMER_DIVIDE => self.timer_divide.into(),
            _ => return Err(Fault::Access),
        })
    }

    /// WRMSR. Reserved registers and values fault.
    fn write_msr(&mut self, register: u32, value: u64) -> Effect {
        match register {
            msr::TPR => self.task_priority = value as u8,
            msr::EOI if value == 0 => return self.end_of_interrupt(),
            msr::SVR => self.spurious = value as u32 & 0x11ff,
            msr::ESR if value == 0 => {}
            msr::ICR => return self.command(value),
            msr::LVT_TIMER => self.lvt_timer = value as u32,
            msr::LVT_THERMAL..=msr::LVT_ERROR => self.lvt_rest[(register - msr::LVT_THERMAL) as usize] = value as u32,
            msr::TIMER_INITIAL => {
                self.timer_initial = value as u32;
                return Effect::Timer(self.timer_initial.saturating_mul(self.divisor()));
            }
            msr::TIMER_DIVIDE => self.timer_divide = value as u32 & 0xb,
            msr::SELF_IPI => return Effect::Ipi { to: CpuId(self.cpu), vector: value as u8 },
            _ => return Effect::Fault(Fault::Access),
        }
        Effect::None
    }

    /// Ends the highest vector in service. Does nothing without one ("Signaling Interrupt Servicing Completion").
    fn end_of_interrupt(&mut self) -> Effect {
        let Some(vector) = self.isr.highest() else { return Effect::IdleEoi };
        self.isr.clear(vector);
        Effect::Ended { vector, broadcast: self.tmr.contains(vector) }
    }

    /// Interrupt command register, as in x2APIC mode: vector 7:0, delivery mode 10:8, destination mode 11,
    /// shorthand 19:18, destination 63:32. Fixed delivery to a physical id is modelled, and the self shorthand.
    fn command(&self, value: u64) -> Effect {
        let (delivery, logical, shorthand) = (value >> 8 & 7, value >> 11 & 1, value >> 18 & 3);
        match (delivery, logical, shorthand) {
            (0, 0, 0) => {
                let to = cpu_of((value >> 32) as u32, self.id_shift).unwrap_or(u32::MAX);
                Effect::Ipi { to: CpuId(to), vector: value as u8 }
            }
            (0, _, 1) => Effect::Ipi { to: CpuId(self.cpu), vector: value as u8 },
            _ => Effect::Fault(Fault::Access),
        }
    }

    /// True for the register that counts down to the timer's interrupt ("APIC Timer"). Only the clock knows its value.
    fn is_current_count(&self, register: u32) -> bool {
        let offset = spec::apic::xapic::TIMER_CURRENT.offset();
        register == if self.page.is_some() { offset } else { msr::TIMER_CURRENT }
    }

    /// Divide configuration register: bits 3, 1 and 0 ("APIC Timer").
    fn divisor(&self) -> u32 {
        match self.timer_divide >> 1 & 4 | self.timer_divide & 3 {
            7 => 1,
            encoded => 2 << encoded,
        }
    }
}

/// The CPU of an APIC id, if a CPU can have it.
fn cpu_of(id: u32, shift: u32) -> Option<u32> {
    let cpu = id >> shift;
    (cpu << shift == id).then_some(cpu)
}

/// The local APICs of a machine: one per CPU, and one that the console programs.
pub(crate) struct LocalApics {
    apics: Box<[RefCell<Lapic>]>,
    id_shift: u32,
    /// The vector of a reschedule IPI.
    reschedule_vector: u8,
    /// The vector that ends a time slice.
    timer_vector: u8,
}

impl LocalApics {
    /// The local APICs of `cpus` CPUs after reset.
    ///
    /// # Panics
    /// In xAPIC mode, when a CPU's id does not fit into 8 bits: 0xff is the broadcast.
    pub(crate) fn build(cpus: u32, id_shift: u32, access: Access, [reschedule_vector, timer_vector]: [u8; 2]) -> Built {
        let last = cpus.saturating_sub(1) << id_shift;
        assert!(access == Access::Msr || last < 0xff, "APIC id {last:#x}; xAPIC mode has 0 to 0xfe");
        let apics = (0..=cpus).map(|cpu| RefCell::new(Lapic::new(cpu, id_shift, access))).collect();
        Built { controller: Box::new(Self { apics, id_shift, reschedule_vector, timer_vector }), model: None }
    }

    /// A message or an IPI arrives at the LAPIC of `cpu`, if there is one.
    #[inline]
    fn raise(&self, board: &Board, number: Option<u32>, vector: u8, level: bool) -> bool {
        let cpu = number.and_then(|number| board.cpus.real().get(number as usize));
        let (arrival, input) = cpu.map_or((Arrival::Refused, IrqInput::Low), |cpu| {
            let mut lapic = self.apics[cpu.id.index()].borrow_mut();
            let arrival = match (lapic.is_requested(vector), lapic.raise(vector, level)) {
                (_, false) => Arrival::Refused,
                (false, true) => Arrival::Pending,
                (true, true) => Arrival::Merged,
            };
            (arrival, Self::input(&lapic))
        });
        board.tell(|| Fact::Raised { cpu: number.unwrap_or(u32::MAX), vector, level, arrival });
        match cpu {
            Some(cpu) if arrival != Arrival::Refused => {
                board.drive(cpu, input);
                true
            }
            _ => false,
        }
    }

    /// The request that the LAPIC makes to its CPU.
    fn input(lapic: &Lapic) -> IrqInput {
        if lapic.deliverable().is_some() { IrqInput::Irq } else { IrqInput::Low }
    }
}

impl Controller for LocalApics {
    fn accept(&self, cpu: &Cpu) -> Option<u8> {
        let mut lapic = self.apics[cpu.id.index()].borrow_mut();
        let vector = lapic.accept();
        cpu.set_irq_input(Self::input(&lapic));
        vector
    }

    fn in_service(&self, cpu: CpuId) -> Option<u8> {
        self.apics[cpu.index()].borrow().in_service()
    }

    fn vectors(&self, cpu: CpuId) -> Option<[[u64; 4]; 2]> {
        Some(self.apics.get(cpu.index())?.borrow().vectors())
    }

    fn message(&self, board: &Board, apic_id: u32, vector: u8, level: bool) -> bool {
        self.raise(board, cpu_of(apic_id, self.id_shift), vector, level)
    }

    fn kick(&self, _from: CpuId) -> u64 {
        self.reschedule_vector.into()
    }

    fn ipi_vector(&self, content: u64) -> u8 {
        content as u8
    }

    /// A LAPIC that firmware has not enabled yet cannot accept the kick. The CPU then leaves its halt as after an
    /// INIT, and checks its run queue.
    fn ipi(&self, board: &Board, cpu: &Cpu, content: u64) -> bool {
        let is_accepted = self.raise(board, Some(cpu.id.0), content as u8, false);
        !is_accepted && cpu.is_idle() && content == u64::from(self.reschedule_vector)
    }

    fn timer(&self, board: &Board, cpu: &Cpu) {
        let fired = self.apics[cpu.id.index()].borrow_mut().timer_fired();
        if let Some(vector) = fired {
            self.raise(board, Some(cpu.id.0), vector, false);
        }
    }

    fn time_slice(&self, board: &Board, cpu: &Cpu) {
        self.raise(board, Some(cpu.id.0), self.timer_vector, false);
    }

    fn read(&self, board: &Board, cpu: &Cpu, register: u32) -> Result<u64, Fault> {
        let lapic = self.apics[cpu.id.index()].borrow();
        if lapic.is_current_count(register) {
            let left_ps = cpu.timer.get().1.0.saturating_sub(board.local_now().0);
            let ticks = left_ps.div_ceil(board.costs.timer_tick.0.max(1));
            return Ok(ticks.div_ceil(lapic.divisor().into()));
        }
        lapic.read(register)
    }

    fn write(&self, cpu: &Cpu, register: u32, value: u64) -> Effect {
        let mut lapic = self.apics[cpu.id.index()].borrow_mut();
        let effect = lapic.write(register, value);
        cpu.set_irq_input(Self::input(&lapic));
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled() -> Lapic {
        let mut lapic = Lapic::new(3, 0, Access::Msr);
        lapic.write(0x80f, 0x1ff);
        lapic
    }

    #[test]
    fn a_lapic_after_reset_accepts_nothing() {
        assert!(!Lapic::new(0, 0, Access::Msr).raise(0x31, false));
    }

    #[test]
    fn vectors_below_16_are_illegal() {
        assert!(!enabled().raise(15, false));
    }

    #[test]
    fn the_highest_goes_first_and_its_class_blocks_until_eoi() {
        let mut lapic = enabled();
        assert!(lapic.raise(0x41, false) && lapic.raise(0x52, false) && lapic.raise(0x45, false));
        assert_eq!(lapic.accept(), Some(0x52));
        assert_eq!(lapic.accept(), None);
        assert_eq!(lapic.read(0x80a), Ok(0x50));
        lapic.write(0x80b, 0);
        assert_eq!(lapic.accept(), Some(0x45));
        // 0x41 has the same priority class, so it waits.
        assert_eq!(lapic.accept(), None);
        lapic.write(0x80b, 0);
        assert_eq!(lapic.accept(), Some(0x41));
    }

    #[test]
    fn only_a_level_interrupt_is_broadcast_at_eoi() {
        let mut lapic = enabled();
        lapic.raise(0x60, true);
        lapic.accept();
        assert_eq!(lapic.read(0x81b), Ok(1), "TMR bank 3, vector 0x60");
        assert_eq!(lapic.write(0x80b, 0), Effect::Ended { vector: 0x60, broadcast: true });
        assert_eq!(lapic.write(0x80b, 0), Effect::IdleEoi);
    }

    #[test]
    fn task_priority_holds_back_its_class() {
        let mut lapic = enabled();
        lapic.write(0x808, 0x40);
        lapic.raise(0x4f, false);
        assert_eq!(lapic.accept(), None);
        lapic.write(0x808, 0);
        assert_eq!(lapic.accept(), Some(0x4f));
    }

    #[test]
    fn an_ipi_names_its_destination() {
        let mut lapic = enabled();
        assert_eq!(lapic.write(0x830, 7 << 32 | 0xfd), Effect::Ipi { to: CpuId(7), vector: 0xfd });
        assert_eq!(lapic.write(0x83f, 0x33), Effect::Ipi { to: CpuId(3), vector: 0x33 });
        assert_eq!(lapic.write(0x80b, 1), Effect::Fault(Fault::Access), "only 0 may be written to EOI");
    }

    #[test]
    fn an_id_need_not_be_its_cpus_number() {
        let mut lapic = Lapic::new(3, 2, Access::Msr);
        assert_eq!(lapic.read(0x802), Ok(12));
        assert_eq!(lapic.write(0x830, 20 << 32 | 0xfd), Effect::Ipi { to: CpuId(5), vector: 0xfd });
        assert_eq!(lapic.write(0x830, 5 << 32 | 0xfd), Effect::Ipi { to: CpuId(u32::MAX), vector: 0xfd }, "nobody's");
        assert_eq!(lapic.write(0x83f, 0x33), Effect::Ipi { to: CpuId(3), vector: 0x33 });
        assert_eq!((cpu_of(8, 2), cpu_of(9, 2), cpu_of(9, 0)), (Some(2), None, Some(9)));
    }

    #[test]
    fn the_timer_counts_by_its_divisor() {
        let mut lapic = enabled();
        lapic.write(0x83e, 0b1011);
        lapic.write(0x832, 0xec);
        assert_eq!(lapic.write(0x838, 1000), Effect::Timer(1000));
        lapic.write(0x83e, 0b0000);
        assert_eq!(lapic.write(0x838, 1000), Effect::Timer(2000));
        assert_eq!(lapic.timer_fired(), Some(0xec));
        lapic.write(0x832, 0x1_00ec);
        assert_eq!(lapic.timer_fired(), None, "masked");
    }
}

//! A machine with one VT-d unit, a device that sends the messages of a test, and CPUs that log their interrupts.
//!
//! Everything here is written in the manual's own numbers: offsets and bits are literals, not the spec crate's.
#![allow(dead_code, reason = "each test file uses its part")]

use hal::{Affinity, CpuId, Dma as _, Hal as _, Regs as _, ThreadSpec, Threads, Word as _};
use machine::fabric::dispatch::Dispatch;
use machine::fabric::hpet::{Hpet, HpetConfig};
use machine::fabric::ioapic::{IoApic, IoApicConfig, PIN, pin_arg};
use machine::fabric::port::Credits;
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::memory::Dma;
use machine::model::{Model, ModelId, Upstream};
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, MachineConfig, Regs, SimHal};
use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// A function that writes any data to any address, with any requester id, as the test says.
struct Device {
    iommu: ModelId,
    messages: VecDeque<(u16, u64, u32)>,
}

impl Model for Device {
    fn name(&self) -> &str {
        "device"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, _arg: u64) {
        let (requester, address, data) = self.messages.pop_front().expect("one message an event");
        world.upstream(self.iommu, Upstream::Message { requester, address, data });
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Options of a rig.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) posted_interrupts: bool,
    pub(crate) extended_interrupt_mode: bool,
    pub(crate) fault_records: u16,
    pub(crate) invalidation_fault: InvalidationFault,
    /// Time of a descriptor.
    pub(crate) invalidation_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            posted_interrupts: true,
            extended_interrupt_mode: true,
            fault_records: 4,
            invalidation_fault: InvalidationFault::None,
            invalidation_ns: 300,
        }
    }
}

pub(crate) const CPUS: u32 = 4;
/// Interrupts taken: (CPU, vector).
pub(crate) type Log = Rc<RefCell<Vec<(u32, u8)>>>;
/// Serves a vector completely, the EOI included; or leaves it to the rig, which logs it.
pub(crate) type Handler = Box<dyn Fn(u8, &Log) -> bool>;

/// Long enough for anything in these tests.
pub(crate) const LONG_NS: u64 = 10_000;

pub(crate) struct Rig {
    pub(crate) machine: Machine,
    pub(crate) unit: ModelId,
    device: ModelId,
    ioapic: ModelId,
    hpet: ModelId,
    registers: Regs,
    /// Remapping table, 4 KiB: 256 entries.
    pub(crate) table: Dma,
    /// Invalidation queue, 4 KiB: 256 descriptors.
    pub(crate) queue: Dma,
    /// Words for status writes and posted descriptors.
    pub(crate) memory: Dma,
    log: Log,
    handler: Rc<OnceCell<Handler>>,
    tail: u32,
}

impl Rig {
    pub(crate) fn new(options: Options) -> Self {
        Self::with(options, |_, _| ()).0
    }

    /// With models that `add` puts behind the unit.
    pub(crate) fn with<T>(options: Options, add: impl FnOnce(&mut Machine, ModelId) -> T) -> (Self, T) {
        let config = MachineConfig { cpus: CPUS, memory_bytes: 1 << 20, ..MachineConfig::default() };
        let mut machine = Machine::new(config);
        let unit = machine.add_model(|_| Box::new(unit(options)));
        let device = machine.add_model(|_| Box::new(Device { iommu: unit, messages: VecDeque::new() }));
        let ioapic_config = IoApicConfig { name: "ioapic".into(), requester: 0xf0f8, pins: 24 };
        let ioapic = machine.add_model(|_| Box::new(IoApic::new(unit, ioapic_config)));
        // A tick of 100 ns.
        let hpet_config = HpetConfig { name: "hpet".into(), requester: 0xf0f0, period_fs: 100_000_000, timers: 1 };
        let hpet = machine.add_model(|_| Box::new(Hpet::new(unit, hpet_config)));
        let added = add(&mut machine, unit);
        let log = Log::default();
        let handler: Rc<OnceCell<Handler>> = Rc::default();
        let (seen, served) = (log.clone(), handler.clone());
        machine.set_interrupt_entry(move |vector| {
            if served.get().is_some_and(|handler| handler(vector, &seen)) {
                return;
            }
            // The scheduler's own vector does not come from the fabric.
            if vector != 0xfd {
                seen.borrow_mut().push((SimHal.cpu().0, vector));
            }
            Regs::Lapic.write64(0x80b, 0);
        });
        let page = || SimHal.dma_alloc(4096, 4096).expect("memory");
        let (table, queue, memory) = (page(), page(), page());
        let registers = machine.regs(unit, 0);
        let mut rig =
            Self { machine, unit, device, ioapic, hpet, registers, table, queue, memory, log, handler, tail: 0 };
        rig.enable_lapics();
        (rig, added)
    }

    /// Remapping on, as software brings it up: table, queue, cache, enable.
    pub(crate) fn enabled(options: Options) -> Self {
        let mut rig = Self::new(options);
        rig.enable(0x800);
        rig
    }

    /// `mode`: 0x800 for EIME, or 0.
    pub(crate) fn enable(&mut self, mode: u64) {
        // IRTA: 2^(7+1) entries. SIRTP, bit 24; IRTPS, bit 24.
        self.write64(0xb8, self.table.device_address().0 | mode | 7);
        self.command(0x0100_0000, 0x0100_0000);
        // IQT, IQA: 2^0 pages. QIE, bit 26.
        self.write64(0x88, 0);
        self.write64(0x90, self.queue.device_address().0);
        self.command(0x0400_0000, 0x0500_0000);
        self.invalidate(&[(0x4, 0)]);
        // IRE, bit 25, with QIE kept.
        self.command(0x0600_0000, 0x0700_0000);
    }

    fn enable_lapics(&mut self) {
        let boot = || {
            for cpu in 0..CPUS {
                let spec = ThreadSpec { name: "lapic", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
                SimHal.spawn(spec, Box::new(|| Regs::Lapic.write64(0x80f, 0x1ff))).expect("the CPU exists");
            }
        };
        self.machine.run_boot(Ps::from_ns(LONG_NS), boot).expect("it ends");
        self.run(LONG_NS);
    }

    pub(crate) fn run(&mut self, ns: u64) {
        let end = self.machine.now() + Ps::from_ns(ns);
        self.machine.run_until(end);
    }

    /// Sets the handler of interrupts from now on.
    pub(crate) fn set_handler(&mut self, handler: impl Fn(u8, &Log) -> bool + 'static) {
        assert!(self.handler.set(Box::new(handler)).is_ok(), "set once");
    }

    /// Registers of the unit, the I/O APIC and the HPET, for drivers.
    pub(crate) fn windows(&self) -> [Regs; 3] {
        [self.unit, self.ioapic, self.hpet].map(|model| self.machine.regs(model, 0))
    }

    /// Runs driver code on CPU 0, which may wait for as long as drivers do.
    pub(crate) fn drive<R: Send + 'static>(&mut self, body: impl FnOnce() -> R + Send + 'static) -> R {
        self.machine.run_boot(Ps::from_ns(1_000_000_000), body).expect("it ends")
    }

    fn boot<R: Send + 'static>(&mut self, body: impl FnOnce(Regs) -> R + Send + 'static) -> R {
        let registers = self.registers;
        self.machine.run_boot(Ps::from_ns(LONG_NS), move || body(registers)).expect("it ends")
    }

    pub(crate) fn read32(&mut self, offset: u32) -> u32 {
        self.boot(move |registers| registers.read32(offset))
    }

    pub(crate) fn read64(&mut self, offset: u32) -> u64 {
        self.boot(move |registers| registers.read64(offset))
    }

    pub(crate) fn write32(&mut self, offset: u32, value: u32) {
        self.boot(move |registers| {
            registers.write32(offset, value);
            registers.read32(0);
        });
    }

    pub(crate) fn write64(&mut self, offset: u32, value: u64) {
        self.boot(move |registers| {
            registers.write64(offset, value);
            registers.read32(0);
        });
    }

    /// Writes GCMD and waits until GSTS reads `status`.
    pub(crate) fn command(&mut self, value: u32, status: u32) {
        self.write32(0x18, value);
        self.run(LONG_NS);
        assert_eq!(self.read32(0x1c), status, "GSTS after GCMD {value:#x}");
    }

    /// Appends descriptors to the queue and moves the tail, at once.
    pub(crate) fn submit(&mut self, descriptors: &[(u64, u64)]) {
        for &(low, high) in descriptors {
            let word = self.tail as usize * 2;
            self.queue.words()[word].set(low);
            self.queue.words()[word + 1].set(high);
            self.tail = (self.tail + 1) % 256;
        }
        self.write64(0x88, u64::from(self.tail) << 4);
    }

    /// The same, and lets the unit do its work.
    pub(crate) fn invalidate(&mut self, descriptors: &[(u64, u64)]) {
        self.submit(descriptors);
        self.run(LONG_NS);
    }

    /// Writes an entry of the table: bits 63:0 and 127:64. No invalidation.
    pub(crate) fn entry(&self, index: usize, low: u64, high: u64) {
        self.table.words()[index * 2].set(low);
        self.table.words()[index * 2 + 1].set(high);
    }

    /// Sends a message now, and waits for its effects.
    pub(crate) fn message(&mut self, requester: u16, address: u64, data: u32) {
        self.send(requester, address, data);
        self.run(LONG_NS);
    }

    /// Sends a message now.
    pub(crate) fn send(&mut self, requester: u16, address: u64, data: u32) {
        let push = |device: &mut Device| device.messages.push_back((requester, address, data));
        self.machine.with_model(self.device, push).expect("it is the device");
        let now = self.machine.now();
        self.machine.poke(self.device, now, 0, 0);
    }

    /// A line of the I/O APIC.
    pub(crate) fn pin(&mut self, pin: u8, asserted: bool) {
        let now = self.machine.now();
        self.machine.poke(self.ioapic, now, PIN, pin_arg(pin, asserted));
        self.run(1000);
    }

    /// Writes a register of the I/O APIC through IOREGSEL (0x00) and IOWIN (0x10).
    pub(crate) fn ioapic_write(&mut self, register: u32, value: u32) {
        let window = self.machine.regs(self.ioapic, 0);
        self.boot(move |_| {
            window.write32(0x00, register);
            window.write32(0x10, value);
            window.read32(0x10);
        });
        self.run(1000);
    }

    pub(crate) fn ioapic_read(&mut self, register: u32) -> u32 {
        let window = self.machine.regs(self.ioapic, 0);
        self.boot(move |_| {
            window.write32(0x00, register);
            window.read32(0x10)
        })
    }

    /// The directed EOI register, 0x40.
    pub(crate) fn ioapic_eoi(&mut self, vector: u32) {
        let window = self.machine.regs(self.ioapic, 0);
        self.boot(move |_| {
            window.write32(0x40, vector);
            window.read32(0x00);
        });
        self.run(1000);
    }

    pub(crate) fn hpet_write(&mut self, offset: u32, value: u64) {
        let window = self.machine.regs(self.hpet, 0);
        self.boot(move |_| {
            window.write64(offset, value);
            window.read64(0);
        });
    }

    pub(crate) fn hpet_read(&mut self, offset: u32) -> u64 {
        let window = self.machine.regs(self.hpet, 0);
        self.boot(move |_| window.read64(offset))
    }

    /// `count` messages, one every `gap_ns` from now on.
    pub(crate) fn stream(&mut self, requester: u16, address: u64, count: u64, gap_ns: u64) {
        for step in 0..count {
            let push = |device: &mut Device| device.messages.push_back((requester, address, 0));
            self.machine.with_model(self.device, push).expect("it is the device");
            let at = self.machine.now() + Ps::from_ns(step * gap_ns);
            self.machine.poke(self.device, at, 0, 0);
        }
    }

    /// Interrupts taken since the last call: (CPU, vector).
    pub(crate) fn interrupts(&self) -> Vec<(u32, u8)> {
        self.log.take()
    }

    /// Address of word `word` of the spare page.
    pub(crate) fn address(&self, word: usize) -> u64 {
        self.memory.device_address().0 + word as u64 * 8
    }

    /// Entry 5 posts `vector` to the descriptor in the first 64 bytes of the spare page. `bits` are more of the low
    /// half: urgent is bit 14, FPD bit 1.
    pub(crate) fn posted_entry(&self, vector: u8, bits: u64) {
        let descriptor = self.address(0);
        let low = (descriptor & 0xffff_ffc0) << 32 | u64::from(vector) << 16 | 0x8001 | bits;
        self.entry(5, low, descriptor & 0xffff_ffff_0000_0000 | 0x0004_3a00);
    }

    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let counters = self.machine.with_any_model(self.unit, |unit| unit.counters());
        counters.iter().find(|(found, _)| *found == name).expect("a counter of the unit").1
    }
}

pub(crate) fn unit(options: Options) -> VtdUnit {
    let config = VtdConfig {
        name: "dmar0".into(),
        posted_interrupts: options.posted_interrupts,
        extended_interrupt_mode: options.extended_interrupt_mode,
        fault_records: options.fault_records,
        remap_time: Ps::from_ns(50),
        post_time: Ps::from_ns(100),
        command_time: Ps::from_ns(200),
        invalidation_time: Ps::from_ns(options.invalidation_ns),
        invalidation_fault: options.invalidation_fault,
    };
    VtdUnit::new(config, Dispatch::new(Ps::from_ns(100)), Credits::default())
}

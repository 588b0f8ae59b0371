//! A DSA behind a plain bus, and a host that uses only offsets and words from the manual.
#![allow(dead_code, unreachable_pub)]

use hal::{Dma as _, Hal as _, Regs as _, Word as _};
use irq::{Action, Irq};
use machine::dsa::{Config, Dsa};
use machine::fault::FaultRecord;
use machine::model::{Model, ModelId, Upstream};
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, MachineConfig, SimHal};
use std::sync::{Arc, Mutex};

pub type DmaBuffer = <SimHal as hal::Hal>::Dma;
/// The actions of vectors 40h + n, by n.
pub type Handlers = Arc<Mutex<Vec<Option<Arc<dyn Action>>>>>;
/// (address, data) of each message.
pub type Messages = Arc<Mutex<Vec<(u64, u32)>>>;

/// Carries 1 byte in 100 ps, records every message, and raises the vector in its data at LAPIC 0.
struct Bus {
    messages: Messages,
    free: Ps,
}

impl Model for Bus {
    fn name(&self) -> &str {
        "bus"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, world: &mut World<'_>, _: ModelId, request: Upstream) {
        match request {
            Upstream::Message { address, data, .. } => {
                self.messages.lock().expect("one host thread").push((address, data));
                // A LAPIC accepts no message until software has enabled it.
                world.interrupt(0, data as u8, false);
            }
            Upstream::Transfer { model, bytes, code, arg, .. } => {
                self.free = self.free.max(world.now()) + Ps(u64::from(bytes) * 100);
                world.schedule_for(model, self.free, code, arg);
            }
        }
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// Transfers up to 64 KiB, commands of 1 µs.
pub fn config() -> Config {
    Config { transfer_shift_max: 16, ..Config::default() }
}

/// The results once the host has ended.
pub struct After<R> {
    pub result: R,
    pub counters: Vec<(&'static str, u64)>,
    pub faults: Vec<FaultRecord>,
    pub messages: Vec<(u64, u32)>,
    pub in_flight: usize,
}

impl<R> After<R> {
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("counter {name}")).1
    }
    pub fn faulted(&self, kind: &str) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }
}

/// Runs `body` as the host of a device.
pub fn host<R: Send + 'static>(config: Config, body: impl FnOnce(&Host) -> R + Send + 'static) -> After<R> {
    let mut machine = Machine::new(MachineConfig::default());
    let messages = Messages::default();
    let bus = machine.add_model(|_| Box::new(Bus { messages: messages.clone(), free: Ps(0) }));
    let device = machine.add_model(|_| Box::new(Dsa::new(bus, config).expect("a valid device")));
    let [bar0, bar2, config] = [0, 1, 2].map(|region| machine.regs(device, region));
    let handlers = Handlers::default();
    let table = handlers.clone();
    machine.set_interrupt_entry(move |vector| {
        let entry = table.lock().expect("one host thread").get(usize::from(vector - 0x40)).cloned();
        if let Some(Some(action)) = entry {
            action.handle(Irq(vector.into()));
        }
        machine::Regs::Lapic.write64(0x80b, 0);
    });
    let boot = move || body(&Host { bar0, bar2, config, handlers });
    let result = machine.run_boot(Ps::from_ns(1_000_000_000), boot).expect("the host ends");
    let (counters, in_flight) =
        machine.with_model(device, |device: &mut Dsa| (device.counters(), device.in_flight())).expect("a device");
    let faults = machine.faults().0;
    let messages = messages.lock().expect("one host thread").clone();
    After { result, counters, faults, messages, in_flight }
}

/// Memory on a page boundary.
pub fn memory(bytes: usize) -> DmaBuffer {
    SimHal.dma_alloc(bytes, 4096).expect("memory")
}

/// The bytes of a buffer.
pub fn bytes(memory: &DmaBuffer, range: core::ops::Range<usize>) -> Vec<u8> {
    range.map(|at| memory.read8(at)).collect()
}

/// Memory Fill (opcode 04h): completion record valid (04h), requested (08h), interrupt (10h) with a handle.
pub fn fill(record: u64, pattern: u64, destination: u64, bytes: u64, handle: Option<u64>) -> [u64; 8] {
    let flags = if handle.is_some() { 0x1c } else { 0x0c };
    [0x04 << 56 | flags << 32, record, pattern, destination, bytes | handle.unwrap_or(0) << 32, 0, 0, 0]
}

/// Offsets and words only: GRPCFG is at 400h and WQCFG at 800h in this device.
pub struct Host {
    pub bar0: machine::Regs,
    pub bar2: machine::Regs,
    pub config: machine::Regs,
    handlers: Handlers,
}

impl Host {
    pub fn wait_ns(&self, ns: u64) {
        SimHal.delay_ns(ns);
    }

    /// Writes CMD, waits, and gives the error of CMDSTATUS.
    pub fn command(&self, code: u32, operand: u32) -> u32 {
        self.bar0.write32(0xa0, code << 20 | operand);
        self.wait_ns(1_100);
        for _ in 0..1000 {
            let status = self.bar0.read32(0xa8);
            if status >> 31 == 0 {
                return status & 0xff;
            }
            self.wait_ns(100);
        }
        panic!("command {code} is still active");
    }

    /// Group 0: queues 0 and 1, engine 0. Each queue: 8 entries, dedicated, priority 1, transfers of 4 KiB.
    pub fn configure(&self) {
        self.bar0.write64(0x400, 0b11);
        self.bar0.write64(0x420, 0b1);
        for queue in 0..2 {
            self.bar0.write32(0x800 + queue * 32, 8);
            self.bar0.write32(0x808 + queue * 32, 0x11);
            self.bar0.write32(0x80c + queue * 32, 12);
        }
    }

    /// Configured, Enable Device (1), Enable WQ (6) 0 and 1.
    pub fn enable(&self) {
        self.configure();
        assert_eq!(self.command(1, 0), 0, "Enable Device");
        assert_eq!(self.command(6, 0), 0, "Enable WQ 0");
        assert_eq!(self.command(6, 1), 0, "Enable WQ 1");
    }

    /// Eight quadwords at the unlimited portal of a queue.
    pub fn submit(&self, queue: u32, words: [u64; 8]) {
        for (offset, word) in (0..).step_by(8).zip(words) {
            self.bar2.write64(queue * 0x4000 + offset, word);
        }
    }

    /// Submits and waits for the record's status byte.
    pub fn run(&self, queue: u32, record: &DmaBuffer, words: [u64; 8]) -> u64 {
        record.words()[0].set(0);
        self.submit(queue, words);
        for _ in 0..1000 {
            let head = record.words()[0].get();
            if head != 0 {
                return head;
            }
            self.wait_ns(100);
        }
        panic!("no completion record within 100 µs");
    }

    /// MSI-X on: vector n sends 40h + n to FEE0_0000h, unmasked. The table is at 2000h of BAR 0.
    pub fn msix_on(&self, vectors: u32) {
        for vector in 0..vectors {
            self.bar0.write32(0x2000 + vector * 16, 0xfee0_0000);
            self.bar0.write32(0x2004 + vector * 16, 0);
            self.bar0.write32(0x2008 + vector * 16, 0x40 + vector);
            self.bar0.write32(0x200c + vector * 16, 0);
        }
        // Message control, bit 15 (31 of the dword): enable.
        self.config.write32(0x40, 0x8000_0000);
    }

    /// The CPU takes interrupts (SVR bit 8), and `action` serves MSI-X vector `vector`.
    pub fn serve(&self, vector: u16, action: Arc<dyn Action>) {
        machine::Regs::Lapic.write64(0x80f, 0x1ff);
        let mut handlers = self.handlers.lock().expect("one host thread");
        let count = handlers.len().max(usize::from(vector) + 1);
        handlers.resize(count, None);
        handlers[usize::from(vector)] = Some(action);
    }
}

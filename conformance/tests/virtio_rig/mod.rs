//! Virtio drivers and models in one machine of one CPU: wires and messages become vectors from 40h on.
#![allow(dead_code, unreachable_pub)]

pub mod net;

use campanile_conformance::GivenBack;
use drivers::message::MessageSource as _;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::virtio::{Bar, Mmio, MmioConfig as Platform, Pci, RegisterWrites, Transport};
use hal::{Dma as _, Hal as _, Regs as _};
use irq::poll::SoftPoll;
use irq::{Action, Irq, MsiMessage};
use machine::model::{Model, ModelId, Upstream};
use machine::time::Ps;
use machine::virtio::{Device, Exits, Irqfd, Line, MmioConfig, PciConfig, Trigger, VirtioMmio, VirtioPci, code};
use machine::world::World;
use machine::{Machine, MachineConfig, SimHal};
use std::sync::{Arc, Mutex};

pub type DmaBuffer = <SimHal as hal::Hal>::Dma;
type Handlers = Arc<Mutex<Vec<Arc<dyn Action>>>>;
/// Polls at the end of every interrupt.
type Polls = Arc<Mutex<Option<Arc<SoftPoll<SimHal>>>>>;

/// An interrupt controller: pin n is vector 40h + n, and so is a message with that data.
struct Pins {
    levels: Vec<bool>,
    high: Vec<bool>,
    /// Interrupts by pin or message.
    taken: Vec<u64>,
}

impl Pins {
    fn deliver(&mut self, world: &mut World<'_>, pin: usize) {
        self.taken[pin] += 1;
        world.interrupt(0, 0x40 + pin as u8, self.levels[pin]);
    }
}

impl Model for Pins {
    fn name(&self) -> &str {
        "pins"
    }
    fn event(&mut self, world: &mut World<'_>, _: u32, arg: u64) {
        let (pin, asserted) = ((arg >> 1) as usize, arg & 1 != 0);
        if asserted && !self.high[pin] {
            self.deliver(world, pin);
        }
        self.high[pin] = asserted;
    }
    fn eoi_broadcast(&mut self, world: &mut World<'_>, vector: u8) {
        let pin = usize::from(vector - 0x40);
        if self.levels[pin] && self.high[pin] {
            self.deliver(world, pin);
        }
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, world: &mut World<'_>, _: ModelId, request: Upstream) {
        if let Upstream::Message { data, .. } = request {
            self.deliver(world, data as usize - 0x40);
        }
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// How the device is attached to the machine.
#[derive(Clone, Debug)]
pub enum Bus {
    /// MMIO with a wire for each trigger; whether the device offers several.
    Mmio(Vec<Trigger>, bool),
    /// PCI with so many MSI-X entries.
    Pci(u16),
}

impl Bus {
    /// MMIO with so many edges.
    pub fn edges(count: usize) -> Self {
        Self::Mmio(vec![Trigger::Edge; count], true)
    }
}

pub struct Rig {
    pub machine: Machine,
    pub device: ModelId,
    pins: ModelId,
    host: Host,
    pub given_back: GivenBack,
}

/// The rig, for code on the CPU.
#[derive(Clone)]
pub struct Host {
    bus: Bus,
    regs: [machine::Regs; 3],
    handlers: Handlers,
    polls: Polls,
}

/// A device of the given kind behind `bus`, without a driver.
pub fn rig<D: Device>(bus: Bus, device: D) -> Rig {
    rig_on(MachineConfig::default(), bus, device)
}

/// The same in a machine of this kind.
pub fn rig_on<D: Device>(machine: MachineConfig, bus: Bus, device: D) -> Rig {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 16 << 20, ..machine });
    let levels: Vec<_> = match &bus {
        Bus::Mmio(triggers, _) => triggers.iter().map(|&trigger| trigger == Trigger::Level).collect(),
        Bus::Pci(vectors) => vec![false; usize::from(*vectors)],
    };
    let count = levels.len();
    let pins = machine.add_model(|_| Box::new(Pins { levels, high: vec![false; count], taken: vec![0; count] }));
    let (exits, irqfd) = (Exits::default(), Irqfd { signal: Ps::from_ns(300), latency: Ps::from_ns(500) });
    let model: Box<dyn Model> = match &bus {
        Bus::Mmio(triggers, multi_irq) => {
            let line = |(pin, &trigger): (u64, _)| Line {
                controller: pins,
                code: 0,
                asserted: pin << 1 | 1,
                released: pin << 1,
                trigger,
            };
            let lines = (0..).zip(triggers).map(line).collect();
            let config = MmioConfig { name: "virtio".into(), lines, multi_irq: *multi_irq, exits, irqfd };
            Box::new(VirtioMmio::new(config, device).expect("valid lines"))
        }
        &Bus::Pci(vectors) => {
            let config = PciConfig { name: "virtio".into(), requester: 0x100, upstream: pins, vectors, exits, irqfd };
            Box::new(VirtioPci::new(config, device))
        }
    };
    let device = machine.add_model(|_| model);
    let (handlers, polls) = (Handlers::default(), Polls::default());
    let (table, at_end) = (handlers.clone(), polls.clone());
    machine.set_interrupt_entry(move |vector| {
        let handler = table.lock().expect("one host thread").get(usize::from(vector - 0x40)).cloned();
        let handle = || {
            if let Some(handler) = handler {
                handler.handle(Irq(vector.into()));
            }
            machine::Regs::Lapic.write64(0x80b, 0);
        };
        let polls = at_end.lock().expect("one host thread").clone();
        match polls {
            Some(polls) => polls.interrupt(handle),
            None => handle(),
        }
    });
    let given_back = GivenBack::of(&mut machine);
    let regs = [0, 1, 2].map(|region| machine.regs(device, region));
    Rig { machine, device, pins, host: Host { bus, regs, handlers, polls }, given_back }
}

impl Rig {
    /// Runs `body` on the CPU.
    pub fn boot<R: Send + 'static>(&mut self, body: impl FnOnce(&Host) -> R + Send + 'static) -> R {
        let host = self.host.clone();
        let limit = self.machine.now() + Ps::from_ns(5_000_000_000);
        self.machine.run_boot(limit, move || body(&host)).expect("the host ends")
    }

    /// Sends the device an event, and waits until its effects are over.
    pub fn poke(&mut self, code: u32, arg: u64) {
        let now = self.machine.now();
        self.machine.poke(self.device, now, code, arg);
        self.settle();
    }

    pub fn settle(&mut self) {
        self.boot(|_| SimHal.delay_ns(500_000));
    }

    /// Raises a vector that the device has no reason to raise.
    pub fn raise(&mut self, vector: u16) {
        self.poke(code::RAISE, vector.into());
    }

    /// The device with its MMIO transport.
    pub fn mmio<D: Device, R>(&mut self, look: impl FnOnce(&mut VirtioMmio<D>) -> R) -> R {
        self.machine.with_model(self.device, look).expect("on MMIO")
    }

    pub fn counter(&mut self, name: &str) -> u64 {
        let counters = self.machine.with_any_model(self.device, |model| model.counters());
        counters.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("counter {name}")).1
    }

    /// Interrupts since the last call, by vector.
    pub fn taken(&mut self) -> Vec<u64> {
        let zeroed = |pins: &mut Pins| {
            let count = pins.taken.len();
            std::mem::replace(&mut pins.taken, vec![0; count])
        };
        self.machine.with_model(self.pins, zeroed).expect("the pins")
    }

    pub fn faults(&self) -> Vec<&'static str> {
        self.machine.faults().0.into_iter().map(|fault| fault.kind).collect()
    }
}

impl Host {
    /// The driver's transport, with as many interrupts as the platform lists.
    pub fn transport(&self) -> Arc<dyn Transport> {
        match &self.bus {
            Bus::Mmio(triggers, _) => {
                // The model is trapped: a write has taken effect when it returns.
                let (interrupts, writes) = (triggers.len() as u16, RegisterWrites::AtOnce);
                let platform = Platform { interrupts, shared_lines: false, writes };
                Arc::new(Mmio::new(SimHal, self.regs[0], platform).expect("a device"))
            }
            &Bus::Pci(vectors) => {
                let [structures, table, config] = self.regs;
                let capability = MsixCapability::find(&config).expect("MSI-X");
                let table = MsixTable::enable(config, table, capability);
                for entry in 0..u32::from(vectors) {
                    table.write(entry, MsiMessage { address: 0xfee0_0000, data: 0x40 + entry });
                    table.unmask(entry);
                }
                let mut bars = [const { None }; 6];
                bars[4] = Some(Bar { regs: Arc::new(structures), len_bytes: 0x4000 });
                Arc::new(Pci::<SimHal>::new(SimHal, &config, &bars, vectors).expect("a function"))
            }
        }
    }

    /// A register of the MMIO transport, by its offset in the standard.
    pub fn read(&self, offset: u32) -> u32 {
        self.regs[0].read32(offset)
    }

    /// The registers of the MMIO transport.
    pub fn registers(&self) -> machine::Regs {
        self.regs[0]
    }

    /// QueueVector (0d8h) of each queue (QueueSel: 030h).
    pub fn queue_vectors(&self, queues: u32) -> Vec<u32> {
        let vector = |queue| {
            self.regs[0].write32(0x30, queue);
            self.regs[0].read32(0xd8)
        };
        (0..queues).map(vector).collect()
    }

    /// Vector n is handled by the n-th from now on, and the CPU takes interrupts (SVR bit 8).
    pub fn install(&self, handlers: Vec<Arc<dyn Action>>) {
        *self.handlers.lock().expect("one host thread") = handlers;
        machine::Regs::Lapic.write64(0x80f, 0x1ff);
    }

    /// Polls at the end of every interrupt from now on.
    pub fn poll_at_exit(&self, polls: Arc<SoftPoll<SimHal>>) {
        *self.polls.lock().expect("one host thread") = Some(polls);
    }
}

/// Memory on a page boundary.
pub fn memory(bytes: usize) -> DmaBuffer {
    SimHal.dma_alloc(bytes, 4096).expect("memory")
}

pub fn bytes(memory: &DmaBuffer, range: core::ops::Range<usize>) -> Vec<u8> {
    range.map(|at| memory.read8(at)).collect()
}

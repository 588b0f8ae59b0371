//! A machine with the model under test, and a host on CPU 0 that executes the input.

use crate::input::Input;
use hal::{Dma as _, Hal as _, Regs as _, Word as _};
use machine::Interrupts;
use machine::gic::GicCosts;
use machine::model::{AccessCosts, Model, ModelId, Upstream};
use machine::time::Ps;
use machine::world::World;
use machine::{BootError, Costs, Exception, Machine, MachineConfig, Regs, SimHal};

/// Operations of one input.
const STEPS_MAX: usize = 400;
/// Memory of the machine, and the part that the host uses.
const ARENA_BYTES: usize = 1 << 20;
pub(super) const MEMORY_BYTES: u64 = 64 * 4096;
/// Interrupts keep a host busy that has not ended by then; that is no failure of the model.
const LIMIT: Ps = Ps::from_ns(10_000_000);
/// The limit on a machine with a GIC, where every access looks at every interrupt.
const GIC_LIMIT: Ps = Ps::from_ns(3_000_000);

/// Registers that the host may access.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) regs: Regs,
    /// Offsets near which registers lie close together.
    pub(super) bases: &'static [u32],
    /// From one register to the next.
    pub(super) stride: u32,
}

impl Window {
    pub(super) fn new(regs: Regs, bases: &'static [u32]) -> Self {
        Self { regs, bases, stride: 4 }
    }
}

/// The host.
pub(super) struct Host<'a> {
    pub(super) input: Input<'a>,
    pub(super) memory: <SimHal as hal::Hal>::Dma,
    pub(super) windows: Vec<Window>,
    steps: usize,
}

impl Host<'_> {
    /// True if there is a next step.
    pub(super) fn goes_on(&mut self) -> bool {
        self.steps += 1;
        self.steps <= STEPS_MAX && !self.input.is_empty()
    }

    /// The address of byte `offset` of memory.
    pub(super) fn address(&self, offset: u64) -> u64 {
        self.memory.device_address().0 + offset
    }

    /// One of the 256 addresses that are `stride` bytes apart, from byte `start` of memory on.
    pub(super) fn place(&mut self, start: u64, stride: u64) -> u64 {
        let offset = start + u64::from(self.input.u8()) * stride;
        self.address(offset % MEMORY_BYTES)
    }

    /// Writes words to memory, from word `index` on.
    pub(super) fn put(&self, index: usize, words: &[u64]) {
        for (word, &value) in self.memory.words()[index..].iter().zip(words) {
            word.set(value);
        }
    }

    /// A value that is usual in registers and descriptors.
    pub(super) fn value(&mut self) -> u64 {
        self.input.value(self.memory.device_address().0, MEMORY_BYTES)
    }

    /// Any access to any register, a write of a memory word, or a wait.
    pub(super) fn step(&mut self) {
        match self.input.u8() % 8 {
            0..=3 => {
                let (regs, offset) = self.register();
                let value = self.value();
                write(regs, self.input.u8(), offset, value);
            }
            4 => {
                let (regs, offset) = self.register();
                read(regs, self.input.u8(), offset);
            }
            5 => {
                let index = usize::from(self.input.u16()) % (MEMORY_BYTES as usize / 8);
                let value = self.value();
                self.put(index, &[value]);
            }
            6 => {
                // The first words of a page, where tables and rings often begin.
                let index = usize::from(self.input.u8()) % 64 * 512;
                let words = [self.value(), self.value()];
                let pair = usize::from(self.input.u8() % 4) * 2;
                self.put(index + pair, &words);
            }
            _ => self.wait(),
        }
    }

    fn register(&mut self) -> (Regs, u32) {
        let windows = core::mem::take(&mut self.windows);
        let Window { regs, bases, stride } = self.input.pick(&windows);
        self.windows = windows;
        let base = self.input.pick(bases);
        let offset = match self.input.u8() % 8 {
            0..=5 => base + u32::from(self.input.u8()) * stride,
            6 => base.wrapping_add(self.input.u16().into()),
            _ => self.input.u32(),
        };
        (regs, offset)
    }

    /// Lets time pass, so that the model gets on.
    pub(super) fn wait(&mut self) {
        SimHal.delay_ns(self.input.pick(&[10, 1_000, 30_000, 200_000]));
    }
}

fn write(regs: Regs, width: u8, offset: u32, value: u64) {
    match width % 8 {
        0 => regs.write8(offset, value as u8),
        1 => regs.write16(offset, value as u16),
        2 | 3 => regs.write64(offset, value),
        _ => regs.write32(offset, value as u32),
    }
}

fn read(regs: Regs, width: u8, offset: u32) {
    match width % 8 {
        0 => _ = regs.read8(offset),
        1 => _ = regs.read16(offset),
        2 | 3 => _ = regs.read64(offset),
        _ => _ = regs.read32(offset),
    }
}

/// Builds a machine, runs `script` as its host, and checks that the machine still answers afterwards. Every fourth
/// input runs again without the engine's short cuts, and the results must be equal.
pub(super) fn on_machine(
    data: &[u8],
    interrupts: Interrupts,
    build: impl Fn(&mut Machine) -> Vec<Window>,
    script: impl Fn(&mut Host<'_>) + Copy + Send + 'static,
) {
    let (&options, data) = data.split_first().unwrap_or((&0, &[]));
    let seen = run(data, interrupts.clone(), true, &build, script);
    if options % 4 == 1 {
        assert_eq!(seen, run(data, interrupts, false, &build, script), "with and without short cuts");
    }
}

/// Number of events, digest of all events, and faults.
type Seen = (u64, u64, usize);

fn run(
    data: &[u8],
    interrupts: Interrupts,
    short_cuts: bool,
    build: &impl Fn(&mut Machine) -> Vec<Window>,
    script: impl Fn(&mut Host<'_>) + Send + 'static,
) -> Seen {
    // An interrupt costs time, so a storm ends at the time limit.
    let costs = Costs {
        lapic_write: Ps::from_ns(300),
        register_read: Ps::from_ns(50),
        register_write: Ps::from_ns(20),
        timer_tick: Ps::from_ns(100),
        ..Costs::default()
    };
    let gic = interrupts.gic().is_some();
    let v3 = matches!(interrupts, Interrupts::GicV3(_));
    let config =
        MachineConfig { cpus: 2, memory_bytes: ARENA_BYTES, costs, interrupts, short_cuts, ..MachineConfig::default() };
    let mut machine = Machine::new(config);
    let windows = build(&mut machine);
    let interface = machine.gic().map(|gic| gic.cpu_interface);
    machine.set_exception_entry(move |exception| match (exception, interface) {
        (Exception::Vector(_), _) => Regs::Lapic.write64(0x80b, 0),
        (_, Some(interface)) if v3 => {
            let intid = interface.read64(0xc660);
            interface.write64(0xc661, intid);
        }
        (_, Some(interface)) => {
            let intid = interface.read32(0x00c);
            interface.write32(0x010, intid);
        }
        (_, None) => {}
    });
    let data = data.to_vec();
    let boot = move || {
        if !gic {
            // SVR: the LAPIC takes vectors.
            Regs::Lapic.write64(0x80f, 0x1ff);
        }
        let memory = SimHal.dma_alloc(MEMORY_BYTES as usize, 0x1_0000).expect("room");
        let mut host = Host { input: Input::new(&data), memory, windows, steps: 0 };
        script(&mut host);
        SimHal.delay_ns(300_000);
    };
    match machine.run_boot(if gic { GIC_LIMIT } else { LIMIT }, boot) {
        Ok(()) | Err(BootError::TimeLimit(_)) => {}
        Err(error @ BootError::Stuck(_)) => panic!("the host cannot go on: {error}"),
    }
    let engine = machine.engine_counters();
    (engine.events, engine.digest, machine.faults().0.len())
}

/// Costs of a GIC's registers, so that a storm ends at the time limit.
pub(super) fn gic_costs() -> GicCosts {
    let cost = AccessCosts { read: Ps::from_ns(1000), write: Ps::from_ns(1000) };
    GicCosts { distributor: cost, cpu_interface: cost }
}

/// The bus above a device: a byte takes 100 ps, a message becomes the vector in its data at LAPIC 0.
#[derive(Default)]
pub(super) struct Bus {
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
            Upstream::Message { data, .. } => _ = world.interrupt(0, data as u8, false),
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

/// A model whose registers do things that a host cannot do itself: pull a wire, send a message.
pub(super) struct Bell<F>(pub(super) F);

impl<F: Fn(&mut World<'_>, u32, u64) + 'static> Model for Bell<F> {
    fn name(&self) -> &str {
        "bell"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, world: &mut World<'_>, _: u8, offset: u32, _: u8, value: u64) {
        (self.0)(world, offset, value);
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

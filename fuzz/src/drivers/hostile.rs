//! A machine whose device is the honest model with mischief from the input: registers read as something else, words of
//! memory change under the driver, messages come that no device sent. Once the input is used up, the device is honest.

use crate::input::Input;
use hal::{Hal as _, Regs as _};
use irq::{Action, Irq};
use machine::memory::MEMORY_BASE;
use machine::model::{AccessCosts, Model, ModelId, Upstream};
use machine::time::Ps;
use machine::world::World;
use machine::{BootError, Machine, MachineConfig, Regs, SimHal};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

pub(super) type DmaBuffer = <SimHal as hal::Hal>::Dma;

/// Limit of simulated time. Drivers wait for a device for as long as the device declares, up to minutes.
const LIMIT: Ps = Ps::from_ns(2_000_000_000);
const ARENA_BYTES: usize = 4 << 20;
/// Operations of a driver in one input.
const STEPS_MAX: usize = 100;

/// The faults of the device, in order.
pub(super) struct Mischief {
    input: Vec<u8>,
    at: Cell<usize>,
}

impl Mischief {
    fn next<const N: usize>(&self) -> [u8; N] {
        let at = self.at.get();
        self.at.set((at + N).min(self.input.len()));
        let mut bytes = [0; N];
        let rest = &self.input[at..];
        let len = rest.len().min(N);
        bytes[..len].copy_from_slice(&rest[..len]);
        bytes
    }

    fn u8(&self) -> u8 {
        u8::from_le_bytes(self.next())
    }

    /// The value that a register returns instead of `honest`.
    fn answer(&self, honest: u64) -> u64 {
        match self.u8() {
            0..=199 => honest,
            200..=219 => honest ^ 1 << (self.u8() % 64),
            220..=229 => u64::MAX,
            230..=239 => self.u8().into(),
            _ => u64::from_le_bytes(self.next()),
        }
    }

    /// A fault that the driver's request did not cause.
    fn act(&self, world: &mut World<'_>, bus: ModelId) {
        match self.u8() {
            0..=159 => {}
            160..=239 => self.corrupt(world),
            _ => {
                let message =
                    Upstream::Message { requester: 0, address: 0xfee0_0000, data: 0x40 + u32::from(self.u8() % 8) };
                world.upstream(bus, message);
            }
        }
    }

    /// A word of a driver's memory changes: rings lie at the beginnings of pages.
    fn corrupt(&self, world: &mut World<'_>) {
        let [page, word, how, bits] = self.next();
        let address = MEMORY_BASE + u64::from(page % 48) * 4096 + u64::from(word) * 8;
        let Ok(old) = world.read64(address) else { return };
        let shift = u32::from(how % 8) * 8;
        let new = match how / 8 % 4 {
            0 => old ^ u64::from(bits) << shift,
            1 => old.wrapping_add(u64::from(bits) << shift),
            2 => old & !(0xff << shift) | u64::from(bits) << shift,
            _ => u64::from_le_bytes(self.next()),
        };
        world.write64(address, new).expect("it was read");
    }
}

/// A model that does mischief beside its work.
pub(super) struct Hostile<M> {
    honest: M,
    bus: ModelId,
    mischief: Rc<Mischief>,
}

impl<M: Model> Hostile<M> {
    pub(super) fn new(honest: M, bus: ModelId, mischief: &Rc<Mischief>) -> Self {
        Self { honest, bus, mischief: mischief.clone() }
    }
}

impl<M: Model + 'static> Model for Hostile<M> {
    fn name(&self) -> &str {
        self.honest.name()
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        self.mischief.act(world, self.bus);
        self.honest.event(world, code, arg);
        self.mischief.act(world, self.bus);
    }
    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        let honest = self.honest.read(world, region, offset, width_bytes);
        self.mischief.answer(honest) & (u64::MAX >> (64 - 8 * width_bytes))
    }
    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        self.honest.write(world, region, offset, width_bytes, value);
        self.mischief.act(world, self.bus);
    }
    fn write_order(&self, region: u8, offset: u32) -> u32 {
        self.honest.write_order(region, offset)
    }
    fn access_costs(&self, region: u8, offset: u32) -> Option<AccessCosts> {
        self.honest.access_costs(region, offset)
    }
    fn upstream(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        self.honest.upstream(world, from, request);
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// The bus above the device, and wires 0 to 7. Each message or asserted wire becomes a vector from 40h on at LAPIC 0.
struct Bus {
    free: Ps,
}

impl Model for Bus {
    fn name(&self) -> &str {
        "bus"
    }
    fn event(&mut self, world: &mut World<'_>, _: u32, arg: u64) {
        if arg & 1 != 0 {
            world.interrupt(0, 0x40 + (arg >> 1 & 7) as u8, false);
        }
    }
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

/// The driver's side of an input.
pub(super) struct Driver<'a> {
    pub(super) input: Input<'a>,
    handlers: Handlers,
    steps: usize,
}

type Handlers = Arc<Mutex<Vec<Arc<dyn Action>>>>;

impl Driver<'_> {
    /// True if there is a next step.
    pub(super) fn goes_on(&mut self) -> bool {
        self.steps += 1;
        self.steps <= STEPS_MAX && !self.input.is_empty()
    }

    /// Vector 40h + n is served by the n-th from now on.
    pub(super) fn serve(&self, handlers: Vec<Arc<dyn Action>>) {
        *self.handlers.lock().expect("one host thread") = handlers;
    }

    pub(super) fn wait(&mut self) {
        SimHal.delay_ns(self.input.pick(&[100, 2_000, 50_000, 1_000_000]));
    }
}

/// Memory on a page boundary.
pub(super) fn memory(bytes: usize) -> DmaBuffer {
    SimHal.dma_alloc(bytes, 4096).expect("room")
}

/// Far more than an input's requests can cause.
const INTERRUPTS_MAX: u32 = 100_000;

/// Half of the input drives the driver's user, half the device. `build` gets the bus and the faults of the device, and
/// returns the device's registers.
pub(super) fn against_hostile<R: Send + 'static>(
    data: &[u8],
    build: impl FnOnce(&mut Machine, ModelId, &Rc<Mischief>) -> R,
    script: impl FnOnce(&mut Driver<'_>, R) + Send + 'static,
) {
    let (user, device) = data.split_at(data.len() / 2);
    let mischief = Rc::new(Mischief { input: device.to_vec(), at: Cell::new(0) });
    let mut machine = Machine::new(MachineConfig { memory_bytes: ARENA_BYTES, ..MachineConfig::default() });
    let bus = machine.add_model(|_| Box::new(Bus { free: Ps(0) }));
    let regs = build(&mut machine, bus, &mischief);
    let handlers = Handlers::default();
    let (table, taken) = (handlers.clone(), Cell::new(0));
    machine.set_interrupt_entry(move |vector| {
        // A device that interrupts without end is a storm, which the core of a system throttles: no end of an interrupt, and so no
        // next one.
        taken.set(taken.get() + 1);
        if taken.get() > INTERRUPTS_MAX {
            return;
        }
        let index = usize::from(vector).checked_sub(0x40);
        let handler = index.and_then(|index| table.lock().expect("one host thread").get(index).cloned());
        if let Some(handler) = handler {
            handler.handle(Irq(vector.into()));
        }
        Regs::Lapic.write64(0x80b, 0);
    });
    let user = user.to_vec();
    let boot = move || {
        Regs::Lapic.write64(0x80f, 0x1ff);
        script(&mut Driver { input: Input::new(&user), handlers, steps: 0 }, regs);
    };
    match machine.run_boot(LIMIT, boot) {
        Ok(()) | Err(BootError::TimeLimit(_)) => {}
        Err(error @ BootError::Stuck(_)) => panic!("the driver cannot go on: {error}"),
    }
}

/// Requests that were accepted, and their results: each ends once.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Vec<bool>>);

impl Ledger {
    /// Notes `count` requests before they are submitted; returns the tag of the first. An accepted request may end
    /// before the submitting call returns.
    pub(super) fn offer(&self, count: usize) -> u64 {
        let mut ended = self.0.lock().expect("one host thread");
        let first = ended.len();
        ended.resize(first + count, false);
        first as u64
    }

    /// Notes how many of the requests from `first` on were accepted.
    pub(super) fn accept(&self, first: u64, count: usize) {
        let mut ended = self.0.lock().expect("one host thread");
        let refused = ended.split_off(first as usize + count);
        assert!(!refused.contains(&true), "a request was refused and ended");
    }

    /// Notes that the request of that tag has ended.
    pub(super) fn ended(&self, tag: u64) {
        let mut ended = self.0.lock().expect("one host thread");
        let slot = ended.get_mut(tag as usize).unwrap_or_else(|| panic!("request {tag} ends but was never accepted"));
        assert!(!std::mem::replace(slot, true), "request {tag} ends twice");
    }

    /// Notes that the driver has reported that no request is in flight.
    pub(super) fn all_ended(&self) {
        let ended = self.0.lock().expect("one host thread");
        let open = ended.iter().position(|ended| !ended);
        assert_eq!(open, None, "a request never ended");
    }
}

//! What software knows of the server, and what the tests do with it.

use super::bringup::{LOCAL_TIMER, request};
use super::ringer::RingerPort;
use super::{IOAPIC_REQUESTER, Load, Models, RINGER_REQUESTER, WIRE_PIN};
use drivers::apic::Lapic;
use drivers::ioapic::{IoApicDomain, IoApicRoute, PinWiring};
use drivers::message::MessageDomain;
use drivers::nvme::{Controller, QueuePair};
use drivers::vtd::{Fault, RemapDomain, RemapUnit};
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Word as _};
use irq::posted::PostedMsi;
use irq::{Flow, Irq, IrqCore, IrqDomain, IrqError, Vector};
use machine::{Regs, SimHal, Word};
use spec::apic::TimerDivide;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// A queue of a drive, its line, and its load.
pub struct Queue {
    /// The queue.
    pub pair: Arc<QueuePair<SimHal>>,
    /// Its line.
    pub line: Irq,
    /// Its load.
    pub load: Arc<Load>,
}

/// A drive.
pub struct Drive {
    /// Its controller.
    pub controller: Controller<SimHal>,
    /// Its I/O queues.
    pub queues: Vec<Queue>,
}

/// Everything that software knows of the server.
pub struct System {
    /// The delivery core.
    pub core: IrqCore<SimHal>,
    /// The LAPICs.
    pub lapic: Arc<Lapic<SimHal>>,
    /// Posted delivery, where that was asked for.
    pub posted: Option<Arc<PostedMsi<SimHal>>>,
    /// The CPUs' own domain.
    pub vectors: Arc<dyn IrqDomain>,
    /// The remapping unit, except with plain delivery.
    pub unit: Option<Arc<RemapUnit<SimHal>>>,
    /// The domain of PCI messages, where there is a remapping unit.
    pub remap: Option<Arc<RemapDomain<SimHal>>>,
    /// The ringing device.
    pub ringer: RingerPort,
    /// The models, for registers of other devices.
    pub models: Models,
    pub(super) drives: OnceLock<Vec<Drive>>,
    /// Faults that the fault event's handler read.
    pub(super) faults: Arc<Mutex<Vec<Fault>>>,
    /// The fault event's line.
    pub(super) fault_line: OnceLock<Irq>,
    pub(super) cpus: u32,
    pub(super) tick_ns: u64,
    pub(super) ticking: AtomicBool,
    /// What CPU 0's tick does beside: the kernel's timers.
    pub on_tick: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// How often each CPU took each vector.
    pub(super) taken: Vec<[AtomicU64; 256]>,
    /// Interrupts that a CPU took although it was offline, or ended with something left in service.
    pub(super) violations: Mutex<Vec<String>>,
    pub(super) offline: Vec<AtomicBool>,
}

impl System {
    /// The domain of PCI messages.
    pub fn pci(&self) -> Arc<dyn IrqDomain> {
        match &self.remap {
            Some(remap) => remap.clone(),
            None => self.vectors.clone(),
        }
    }

    /// The domain of everything that is never posted.
    pub fn unposted(&self) -> Arc<dyn IrqDomain> {
        match &self.unit {
            Some(unit) => Arc::new(RemapDomain::remapped(unit.clone(), self.lapic.clone(), self.vectors.clone())),
            None => self.vectors.clone(),
        }
    }

    /// A line of the ringing device on any CPU, without a handler.
    pub fn ringer_line(&self) -> Irq {
        let domain = MessageDomain::new(SimHal, self.ringer, self.pci()).expect("PCI messages");
        let request = request(RINGER_REQUESTER, 0, CpuSet::first(self.cpus), false);
        self.core.alloc_line(&domain, &request, Flow::Edge).expect("a line")
    }

    /// The line of the level-triggered pin [`WIRE_PIN`], without a handler; never posted.
    ///
    /// # Panics
    /// When it is refused.
    pub fn pin_line(&self) -> Irq {
        let wiring: Vec<_> = (0..8).map(|pin| PinWiring { level: pin == WIRE_PIN, active_low: false }).collect();
        let regs = Regs::Model { model: self.models.ioapic, region: 0 };
        let route = if self.unit.is_some() { IoApicRoute::Remapped } else { IoApicRoute::Plain(self.lapic.clone()) };
        let domain = IoApicDomain::new(SimHal, regs, &wiring, route, self.unposted()).expect("not posted");
        let request = request(IOAPIC_REQUESTER, WIRE_PIN.into(), CpuSet::first(self.cpus), false);
        self.core.alloc_line(&domain, &request, Flow::FastEoi).expect("a line")
    }

    /// The drives.
    ///
    /// # Panics
    /// Before they are up.
    pub fn drives(&self) -> &[Drive] {
        self.drives.get().expect("they are up")
    }

    /// All drives' queues.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.drives().iter().flat_map(|drive| &drive.queues)
    }

    /// How many CPUs it has.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The line of the remapping unit's own interrupt.
    pub fn fault_line(&self) -> Option<Irq> {
        self.fault_line.get().copied()
    }

    /// What the handler of the fault event read.
    ///
    /// # Panics
    /// Never: one host thread.
    pub fn faults(&self) -> Vec<Fault> {
        self.faults.lock().expect("one host thread").clone()
    }

    /// How often `cpu` took `vector`.
    pub fn taken(&self, cpu: CpuId, vector: Vector) -> u64 {
        self.taken[cpu.index()][usize::from(vector.0)].load(Relaxed)
    }

    /// Starts `count` commands on every queue, `depth` at a time.
    pub fn start_load(&self, count: u64, depth: u32) {
        self.queues().for_each(|queue| queue.load.start(count, depth));
    }

    /// Waits until all that was started has completed.
    pub fn wait_for_load(&self) {
        while !self.queues().all(|queue| queue.load.is_done()) {
            SimHal.delay_ns(5_000);
        }
    }

    /// A CPU takes `vector`: the IDT.
    pub(super) fn take(&self, vector: u8) {
        let cpu = SimHal.cpu();
        self.taken[cpu.index()][usize::from(vector)].fetch_add(1, Relaxed);
        if self.offline[cpu.index()].load(Relaxed) {
            self.violation(format!("CPU {cpu} is offline and took vector {vector:#04x}"));
        }
        self.core.handle_vector(Vector(vector));
    }

    pub(super) fn violation(&self, text: String) {
        self.violations.lock().expect("one host thread").push(text);
    }

    pub(super) fn start_tick(&self) {
        // A tick of the bus clock is 1 ns on this machine.
        self.lapic.start_timer(LOCAL_TIMER, TimerDivide::BY_1, self.tick_ns as u32);
    }

    pub(super) fn stop_ticks(&self) {
        self.ticking.store(false, Relaxed);
        SimHal.delay_ns(2 * self.tick_ns);
    }

    /// Runs `body` on `cpu` and waits for it.
    ///
    /// # Panics
    /// When there is no such CPU.
    pub fn on_cpu<R: Send + 'static>(
        self: &Arc<Self>,
        cpu: CpuId,
        body: impl FnOnce(&Arc<Self>) -> R + Send + 'static,
    ) -> R {
        let done = Arc::new(<Word as hal::Word>::new(0));
        let result = Arc::new(Mutex::new(None));
        let (system, over, slot) = (self.clone(), done.clone(), result.clone());
        let thread = move || {
            let value = body(&system);
            *slot.lock().expect("one host thread") = Some(value);
            over.swap(1);
        };
        let spec = ThreadSpec { name: "on cpu", affinity: Affinity::Cpu(cpu), urgent: true };
        SimHal.spawn(spec, Box::new(thread)).expect("the CPU exists");
        while done.load() == 0 {
            SimHal.relax_on(&done, 0, u64::MAX);
        }
        result.lock().expect("one host thread").take().expect("it has ended")
    }

    /// Runs `body` on each CPU in turn.
    pub fn on_every_cpu(self: &Arc<Self>, body: impl Fn(&Arc<Self>) + Copy + Send + 'static) {
        (0..self.cpus).for_each(|cpu| self.on_cpu(CpuId(cpu), body));
    }

    /// Takes `cpu` offline for `ns`, then online again, and says what the core said to going. While it is away, no
    /// device's vector may arrive there.
    pub fn offline_for(self: &Arc<Self>, cpu: CpuId, ns: u64) -> Result<(), irq::IrqError> {
        self.on_cpu(cpu, move |system| system.stay_offline(cpu, ns))
    }

    fn stay_offline(&self, cpu: CpuId, ns: u64) -> Result<(), irq::IrqError> {
        let off = SimHal.irq_save();
        let result = self.core.cpu_offline().map(|gone| assert_eq!(gone, cpu));
        if result.is_ok() {
            self.posted.iter().for_each(|posted| posted.cpu_offline());
            self.offline[cpu.index()].store(true, Relaxed);
            machine::observe::declare_cpu(cpu.0, false);
            let before = self.device_requests(cpu);
            SimHal.delay_ns(ns);
            let after = self.device_requests(cpu);
            if before != after {
                self.violation(format!("CPU {cpu} is offline and was sent to: {before:x?}, then {after:x?}"));
            }
            machine::observe::declare_cpu(cpu.0, true);
            self.offline[cpu.index()].store(false, Relaxed);
            match self.core.cpu_online(cpu) {
                // The line whose hardware failed is tried again; that all are back is seen at the end.
                Ok(()) | Err(IrqError::Hardware(..)) => {}
                Err(error) => self.violation(format!("online: {error}")),
            }
        }
        SimHal.irq_restore(off);
        result
    }

    /// Whether a vector is posted to `cpu` and not taken yet.
    pub fn any_device_request(&self, cpu: CpuId) -> bool {
        let descriptor = self.posted.as_ref().and_then(|posted| posted.descriptor(cpu));
        descriptor.is_some_and(|descriptor| (0x20..=0xea).any(|vector| descriptor.is_pending(Vector(vector))))
    }

    /// Device vectors that wait at this CPU, in its LAPIC or its descriptor.
    fn device_requests(&self, cpu: CpuId) -> Vec<u8> {
        let here = |&vector: &u8| {
            let posted = self.posted.as_ref().and_then(|posted| posted.descriptor(cpu));
            self.lapic.is_requested(Vector(vector)) || posted.is_some_and(|posted| posted.is_pending(Vector(vector)))
        };
        (0x20..=0xea).filter(here).collect()
    }

    /// Every line, and every queue, for people.
    pub fn describe(&self) -> String {
        let lines: String = self.core.views().iter().map(|line| format!("{line}")).collect();
        let queues = self.drives.get().into_iter().flatten().map(|drive| format!("{}\n", drive.controller.snapshot()));
        lines + &queues.collect::<String>()
    }
}

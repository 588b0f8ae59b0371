//! The software's view of the server, and operations of the tests on it.

use super::bringup::request;
use super::calls::Calls;
use super::ringer::RingerPort;
use super::{IOAPIC_REQUESTER, Load, Models, RINGER_REQUESTER, WIRE_PIN};
use crate::checkers::truth::marks;
use crate::deadlines;
use drivers::apic::device_vectors;
use drivers::ioapic::PinWiring;
use drivers::nvme::{Controller, QueuePair};
use drivers::vtd::{Fault, RemapDomain, RemapUnit};
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Threads as _, Word as _};
use irq::{Flow, Irq, IrqCore, IrqDomain, IrqError, Vector};
use machine::{Regs, SimHal, Word};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use systems::Alarm;
use systems::pc::{Pc, PcCpus};

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

/// The CPUs' interrupt entry, with counts for the tests.
pub(super) struct Watch {
    pub(super) cpus: Arc<PcCpus<SimHal>>,
    /// How often each CPU took each vector.
    taken: Vec<[AtomicU64; 256]>,
    /// Interrupts that a CPU took while offline, or ended with a vector left in service.
    pub(super) violations: Mutex<Vec<String>>,
    offline: Vec<AtomicBool>,
    /// By CPU: it goes offline, is offline, or comes online.
    away: Vec<AtomicBool>,
}

impl Watch {
    pub(super) fn new(cpus: Arc<PcCpus<SimHal>>) -> Self {
        let range = cpus.range();
        Self {
            cpus,
            taken: range.clone().map(|_| [const { AtomicU64::new(0) }; 256]).collect(),
            violations: Mutex::default(),
            offline: range.clone().map(|_| AtomicBool::new(false)).collect(),
            away: range.map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// A CPU takes `vector`: the IDT.
    pub(super) fn take(&self, vector: u8) {
        let cpu = SimHal.cpu();
        self.taken[cpu.index()][usize::from(vector)].fetch_add(1, Relaxed);
        if self.offline[cpu.index()].load(Relaxed) {
            self.violation(format!("CPU {cpu} is offline and took vector {vector:#04x}"));
        }
        self.cpus.interrupt(vector);
    }

    pub(super) fn is_online(&self, cpu: CpuId) -> bool {
        !self.offline[cpu.index()].load(Relaxed)
    }

    pub(super) fn violation(&self, text: String) {
        self.violations.lock().expect("one host thread").push(text);
    }

    /// Runs `body` on each CPU in turn.
    pub(super) fn on_every_cpu(self: &Arc<Self>, body: impl Fn(&Arc<Self>) + Copy + Send + 'static) {
        for cpu in self.cpus.range().map(CpuId) {
            let watch = self.clone();
            on_cpu(cpu, move || body(&watch));
        }
    }
}

/// The kernel's tick.
pub(super) struct Ticks {
    ns: u64,
    ticking: AtomicBool,
    /// Further work of CPU 0's tick: the kernel's timers.
    also: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// By CPU.
    count: Vec<AtomicU64>,
}

impl Ticks {
    pub(super) fn new(ns: u64, cpus: u32) -> Self {
        let count = (0..cpus).map(|_| AtomicU64::new(0)).collect();
        Self { ns, ticking: AtomicBool::new(true), also: OnceLock::new(), count }
    }

    pub(super) fn tick(&self, alarm: &Alarm<SimHal>) {
        self.count[SimHal.cpu().index()].fetch_add(1, Relaxed);
        if self.ticking.load(Relaxed) {
            alarm.arm(SimHal.now_ns() + self.ns);
            if let Some(also) = self.also.get().filter(|_| SimHal.cpu() == CpuId(0)) {
                also();
            }
        }
    }
}

/// The software's view of the whole server.
pub struct Host {
    /// The PC.
    pub pc: Pc<SimHal>,
    pub(super) watch: Arc<Watch>,
    /// The ringing device.
    pub ringer: RingerPort,
    /// The models, for registers of other devices.
    pub models: Models,
    pub(super) drives: OnceLock<Vec<Drive>>,
    /// Faults that the remapping unit reported.
    pub(super) faults: Arc<Mutex<Vec<Fault>>>,
    pub(super) ticks: Arc<Ticks>,
    /// A timer may be armed so much too late, in ns: the clock is read before.
    pub alarm_ns_max: u64,
    pub(super) calls: Arc<Calls>,
}

impl Host {
    /// True if a CPU goes offline, is offline, or comes online: it looks after its lines itself, without a timer.
    pub fn is_away(&self, cpu: CpuId) -> bool {
        self.watch.away[cpu.index()].load(Relaxed)
    }

    /// The delivery core.
    pub fn core(&self) -> &Arc<IrqCore<SimHal>> {
        self.pc.core()
    }

    /// The remapping unit, except with plain delivery.
    pub fn unit(&self) -> Option<&Arc<RemapUnit<SimHal>>> {
        self.pc.units()[0].remapping()
    }

    /// The domain of PCI messages, where there is a remapping unit.
    pub fn remap(&self) -> Option<&Arc<RemapDomain<SimHal>>> {
        self.pc.units()[0].domain()
    }

    /// The parent of PCI messages.
    ///
    /// # Panics
    /// Never: there is one unit, or its substitute.
    pub fn pci(&self) -> Arc<dyn IrqDomain> {
        self.pc.pci(0).expect("the only unit")
    }

    /// The parent of all lines that are never posted.
    ///
    /// # Panics
    /// Never: there is one unit, or its substitute.
    pub fn unposted(&self) -> Arc<dyn IrqDomain> {
        self.pc.unposted(0).expect("the only unit")
    }

    /// Makes CPU 0's tick call `also`.
    ///
    /// # Panics
    /// At the second call.
    pub fn on_tick(&self, also: impl Fn() + Send + Sync + 'static) {
        assert!(self.ticks.also.set(Box::new(also)).is_ok(), "once");
    }

    /// A line of the ringing device on any CPU, without a handler.
    pub fn ringer_line(&self) -> Irq {
        let domain = self.pc.message_domain(0, self.ringer).expect("the only unit");
        let request = request(RINGER_REQUESTER, 0, CpuSet::first(self.cpus()), false);
        self.core().alloc_line(Arc::new(domain), &request, Flow::Edge).expect("a line")
    }

    /// The line of the level-triggered pin [`WIRE_PIN`], without a handler; never posted.
    ///
    /// # Panics
    /// When it is refused.
    pub fn pin_line(&self) -> Irq {
        let wiring: Vec<_> = (0..8).map(|pin| PinWiring { level: pin == WIRE_PIN, active_low: false }).collect();
        let regs = Regs::Model { model: self.models.ioapic, region: 0 };
        let domain = self.pc.io_apic(0, regs, &wiring).expect("eight pins");
        let request = request(IOAPIC_REQUESTER, WIRE_PIN.into(), CpuSet::first(self.cpus()), false);
        self.core().alloc_line(Arc::new(domain), &request, Flow::FastEoi).expect("a line")
    }

    /// The drives.
    ///
    /// # Panics
    /// If they are not up yet.
    pub fn drives(&self) -> &[Drive] {
        self.drives.get().expect("they are up")
    }

    /// All drives' queues.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.drives().iter().flat_map(|drive| &drive.queues)
    }

    /// How many CPUs it has.
    pub fn cpus(&self) -> u32 {
        self.pc.range().end
    }

    /// The line of the remapping unit's own interrupt.
    pub fn fault_line(&self) -> Option<Irq> {
        self.pc.units()[0].fault_line()
    }

    /// The faults that the remapping unit reported.
    ///
    /// # Panics
    /// Never: one host thread.
    pub fn faults(&self) -> Vec<Fault> {
        self.faults.lock().expect("one host thread").clone()
    }

    /// How often `cpu` took `vector`.
    pub fn taken(&self, cpu: CpuId, vector: Vector) -> u64 {
        self.watch.taken[cpu.index()][usize::from(vector.0)].load(Relaxed)
    }

    /// Starts `count` commands on every queue, `depth` at a time.
    pub fn start_load(&self, count: u64, depth: u32) {
        self.queues().for_each(|queue| queue.load.start(count, depth));
    }

    /// Waits until all started commands have completed.
    pub fn wait_for_load(&self) {
        while !self.queues().all(|queue| queue.load.is_done()) {
            SimHal.delay_ns(5_000);
        }
    }

    pub(super) fn start_tick(self: &Arc<Self>) {
        if self.ticks.ticking.load(Relaxed) {
            self.pc.tick_at(SimHal.now_ns() + self.ticks.ns);
        }
    }

    pub(super) fn stop_ticks(&self) {
        self.ticks.ticking.store(false, Relaxed);
        SimHal.delay_ns(2 * self.ticks.ns);
    }

    /// `cpu` goes without a tick for `ns`, as a kernel without work does. Then its ticks go on. False if one came meanwhile.
    pub(crate) fn without_tick(self: &Arc<Self>, cpu: CpuId, ns: u64) -> bool {
        self.on_cpu(cpu, move |host| {
            let count = || host.ticks.count[cpu.index()].load(Relaxed);
            host.pc.no_tick();
            let before = count();
            SimHal.delay_ns(ns);
            let is_still = count() == before;
            host.start_tick();
            is_still
        })
    }

    /// Waits for the next tick of `cpu`. False if none has come for `ns`.
    pub(crate) fn has_tick(&self, cpu: CpuId, ns: u64) -> bool {
        let count = || self.ticks.count[cpu.index()].load(Relaxed);
        let (before, end_ns) = (count(), SimHal.now_ns() + self.ticks.ns + ns);
        while self.ticks.ticking.load(Relaxed) && count() == before {
            if SimHal.now_ns() > end_ns {
                return false;
            }
            SimHal.delay_ns(1_000);
        }
        true
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
        let host = self.clone();
        on_cpu(cpu, move || body(&host))
    }

    /// Runs `body` on each CPU in turn.
    pub fn on_every_cpu(self: &Arc<Self>, body: impl Fn(&Arc<Self>) + Copy + Send + 'static) {
        (0..self.cpus()).for_each(|cpu| self.on_cpu(CpuId(cpu), body));
    }

    /// Takes `cpu` offline for `ns`, then online again. Returns the core's answer to taking it offline. While the CPU
    /// is offline, no device's vector may arrive there.
    pub fn offline_for(self: &Arc<Self>, cpu: CpuId, ns: u64) -> Result<(), irq::IrqError> {
        self.on_cpu(cpu, move |host| host.stay_offline(cpu, || SimHal.delay_ns(ns)))
    }

    /// Takes `cpu` offline until `back` is true, and tells the core's answer to `gone` first. Returns at once.
    pub(crate) fn offline_until(
        self: &Arc<Self>,
        cpu: CpuId,
        back: impl Fn() -> bool + Send + 'static,
        told: impl Fn(Result<(), IrqError>) + Send + 'static,
    ) {
        let host = self.clone();
        let body = move || {
            let wait = || {
                told(Ok(()));
                while !back() {
                    SimHal.delay_ns(5_000);
                }
            };
            if let Err(error) = host.stay_offline(cpu, wait) {
                told(Err(error));
            }
        };
        let spec = ThreadSpec { name: "absent", affinity: Affinity::Cpu(cpu), urgent: true };
        SimHal.spawn(spec, Box::new(body)).expect("the CPU exists");
    }

    fn stay_offline(self: &Arc<Self>, cpu: CpuId, wait: impl FnOnce()) -> Result<(), IrqError> {
        let off = SimHal.irq_save();
        let away = &self.watch.away[cpu.index()];
        away.store(true, Relaxed);
        marks::astir();
        let result = self.pc.stop_cpu().map(|gone| assert_eq!(gone, cpu));
        if result.is_ok() {
            let offline = &self.watch.offline[cpu.index()];
            offline.store(true, Relaxed);
            self.calls.take();
            machine::declare_cpu(cpu.0, false);
            let before = self.pc.requested_here();
            deadlines::check(self.core(), self.cpus(), |cpu| self.watch.is_online(cpu));
            wait();
            let after = self.pc.requested_here();
            if before != after {
                let text = format!("CPU {cpu} is offline and was sent to: {before:x?}, then {after:x?}");
                self.watch.violation(text);
            }
            machine::declare_cpu(cpu.0, true);
            offline.store(false, Relaxed);
            match self.pc.start_cpu() {
                // A line whose hardware failed is tried again; the end of the test checks that all lines are back.
                Ok(()) | Err(IrqError::Hardware(..)) => {}
                Err(error) => self.watch.violation(format!("online: {error}")),
            }
            self.start_tick();
        }
        away.store(false, Relaxed);
        SimHal.irq_restore(off);
        result
    }

    /// True if a vector is posted to `cpu` and not taken yet.
    pub fn any_device_request(&self, cpu: CpuId) -> bool {
        let descriptor = self.pc.posted().and_then(|posted| posted.descriptor(cpu));
        descriptor.is_some_and(|descriptor| device_vectors().any(|vector| descriptor.is_pending(vector)))
    }

    /// Every line, and every queue, for people.
    pub fn describe(&self) -> String {
        let lines: String = self.core().views().iter().map(|line| format!("{line}")).collect();
        let queues = self.drives.get().into_iter().flatten().map(|drive| format!("{}\n", drive.controller.snapshot()));
        lines + &queues.collect::<String>()
    }
}

/// Runs `body` on `cpu` and waits for it.
fn on_cpu<R: Send + 'static>(cpu: CpuId, body: impl FnOnce() -> R + Send + 'static) -> R {
    let done = Arc::new(<Word as hal::Word>::new(0));
    let result = Arc::new(Mutex::new(None));
    let (over, slot) = (done.clone(), result.clone());
    let thread = move || {
        let value = body();
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

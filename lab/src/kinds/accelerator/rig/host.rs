//! The software of a run: our drivers, brought up, and the streams that use them.

use super::ticker::Ticker;
use crate::kinds::accelerator::{Accelerator, StreamVariant, Submitter};
use crate::outcome::histogram;
use crate::run::SetupError;
use crate::run::pcie::Site;
use crate::run::x86::{self, Pc, Serving, Wanted};
use crate::work;
use drivers::dsa::{
    self, BatchDone, Completed, Device, Fill, GroupConfig, Next, QueueConfig, QueueCounters, WorkQueue,
};
use drivers::message::MessageDomain;
use drivers::pci::{MsixCapability, MsixTable};
use hal::{Affinity, CpuId, CpuSet, Dma as _, Hal as _, ThreadSpec, Threads, Word as _};
use hdrhistogram::Histogram;
use irq::posted::PostedConfig;
use irq::{AllocRequest, Flow, Irq, IrqDomain, RequestFlags, RequesterId, StormConfig};
use machine::dsa::{REGION_CONFIG, REGION_PORTALS, REGION_REGISTERS};
use machine::{Regs, SimHal, Word};
use std::sync::{Arc, Mutex};

/// The inputs of bring-up.
pub(super) struct Parts {
    pub(super) accelerator: Accelerator,
    pub(super) variant: StreamVariant,
    pub(super) harvest_passes: u32,
    pub(super) devices: Vec<Site>,
    pub(super) pc: x86::Parts,
    pub(super) seed: u64,
}

/// A machine that is up.
pub(super) struct StreamHost {
    pub(super) pc: Pc,
    pub(super) lines: Vec<Irq>,
    pub(super) ticker: Option<Arc<Ticker>>,
    streams: Vec<(Arc<WorkQueue<SimHal>>, Arc<Stream>)>,
    /// Kept for as long as the machine runs, because the devices write to it.
    _devices: Vec<Device<SimHal>>,
    _buffers: Vec<<SimHal as hal::Hal>::Dma>,
}

/// The MSI-X entry of a device's queue; entry 0 is for errors.
const ENTRY: u16 = 1;
const COMMAND_TIMEOUT_NS: u64 = 1_000_000;

impl StreamHost {
    /// Brings everything up. Runs on the boot thread.
    pub(super) fn set_up(parts: Parts) -> Result<Self, SetupError> {
        let plan = &parts.accelerator;
        let ticker = plan.timer_ns.map(|period_ns| Ticker::new(period_ns, parts.seed));
        let wanted = Wanted {
            device_lines: plan.devices,
            remapping_entries: plan.devices,
            posted: posted(&parts),
            // Two lines take the millions of interrupts that a server's hundred lines do. This rate is not a storm.
            storm: StormConfig { burst_ns_min: 0, unhandled_max: u32::MAX, ..StormConfig::default() },
            timer: ticker.clone().map(Ticker::handler),
        };
        let pc = Pc::set_up(&parts.pc, wanted)?;
        let domains = pc.pci()?;
        let mut host =
            Self { pc, lines: Vec::new(), ticker, streams: Vec::new(), _devices: Vec::new(), _buffers: Vec::new() };
        for site in &parts.devices {
            host.bring_up(plan, *site, domains[site.iommu].clone())?;
        }
        Ok(host)
    }

    /// Starts the timer and the streams. From then on their CPU may only take interrupts.
    pub(super) fn start(&self, plan: &Accelerator) -> Result<(), SetupError> {
        let (ticker, cpus, streams) = (self.ticker.clone(), self.pc.system.cpus().clone(), self.streams.clone());
        let depth = plan.depth as usize;
        let body = move || {
            let state = SimHal.irq_save();
            if let Some(ticker) = ticker {
                ticker.start(cpus.alarm());
            }
            for (queue, stream) in streams {
                let submitted = queue.submit(&vec![stream.fill; depth]);
                assert_eq!(submitted.accepted, depth, "an empty queue of that depth takes them");
            }
            SimHal.irq_restore(state);
        };
        let spec = ThreadSpec { name: "start", affinity: Affinity::Cpu(plan.cpu), urgent: true };
        SimHal.spawn(spec, Box::new(body)).map_err(SetupError::Spawn)?;
        if plan.submitter == Submitter::Thread {
            for ((queue, stream), cpu) in self.streams.iter().cloned().zip(plan.cpu.0 + 1..) {
                let spec = ThreadSpec { name: "submitter", affinity: Affinity::Cpu(CpuId(cpu)), urgent: false };
                SimHal.spawn(spec, Box::new(move || stream.submit(&queue))).map_err(SetupError::Spawn)?;
            }
        }
        Ok(())
    }

    /// A device with one queue whose line is bound to the plan's CPU, and its stream.
    fn bring_up(&mut self, plan: &Accelerator, site: Site, parent: Arc<dyn IrqDomain>) -> Result<(), SetupError> {
        let regs = |region| Regs::Model { model: site.model, region };
        let queue = QueueConfig {
            index: 0,
            entries: plan.depth as u16,
            interrupt: Some(ENTRY),
            priority: 1,
            transfer_bytes_max: plan.bytes,
        };
        let groups = vec![GroupConfig { queues: vec![queue], engines: vec![0] }];
        let config = dsa::Config { groups, command_timeout_ns: COMMAND_TIMEOUT_NS };
        let device = Device::new(SimHal, regs(REGION_REGISTERS), regs(REGION_PORTALS), config)?;
        let buffer = SimHal.dma_alloc(plan.bytes as usize, 4096).map_err(SetupError::Memory)?;
        let fill = Fill { pattern: 0, destination: buffer.device_address(), bytes: plan.bytes, tag: 0 };
        let stream = Arc::new(Stream::new(fill, plan.submitter));
        let queue = device.open_queue(0, stream.clone())?;
        let capability = MsixCapability::find(&regs(REGION_CONFIG))?;
        let table = MsixTable::enable(regs(REGION_CONFIG), regs(REGION_REGISTERS), capability);
        let messages = MessageDomain::new(SimHal, table, parent)?;
        let request = AllocRequest::fixed(RequesterId(site.requester), ENTRY.into(), CpuSet::of(plan.cpu));
        let line = self.pc.core.alloc_line(Arc::new(messages), &request, Flow::Edge)?;
        let name = format!("dsa{}", self.lines.len());
        self.pc.core.request(line, name, RequestFlags::default(), queue.clone())?;
        self.lines.push(line);
        self.streams.push((queue, stream));
        self._devices.push(device);
        self._buffers.push(buffer);
        Ok(())
    }

    /// Clears the histograms.
    pub(super) fn reset(&self) {
        for (_, stream) in &self.streams {
            stream.latency.lock().expect("the machine stands still").reset();
        }
        if let Some(ticker) = &self.ticker {
            ticker.reset();
        }
    }

    /// The queues' counters, together.
    pub(super) fn queues(&self) -> QueueCounters {
        let mut sum = QueueCounters::default();
        for (queue, _) in &self.streams {
            let counters = queue.snapshot().counters;
            sum.completed += counters.completed;
            sum.errors += counters.errors;
            sum.bytes += counters.bytes;
            sum.interrupts += counters.interrupts;
            sum.empty_interrupts += counters.empty_interrupts;
            sum.interrupt_completions += counters.interrupt_completions;
        }
        sum
    }

    /// Time from submission until the handler sees the completion, over all streams.
    pub(super) fn latency(&self) -> Histogram<u64> {
        let mut sum = histogram();
        for (_, stream) in &self.streams {
            sum += &*stream.latency.lock().expect("the machine stands still");
        }
        sum
    }
}

fn posted(parts: &Parts) -> Option<(PostedConfig, Serving)> {
    let default = PostedConfig { passes: parts.harvest_passes, ..PostedConfig::default() };
    match parts.variant {
        StreamVariant::Remapped => None,
        StreamVariant::Posted => Some((default, Serving::Whole)),
        StreamVariant::Passes(passes) => Some((PostedConfig { passes, ..default }, Serving::Whole)),
        StreamVariant::Budget(limit_ns) => Some((default, Serving::Within(limit_ns))),
        StreamVariant::SelfIpi => Some((default, Serving::SelfIpi)),
    }
}

/// Answers each completion with another fill.
struct Stream {
    fill: Fill,
    submitter: Submitter,
    /// Completions that the submitter's thread has yet to answer.
    owed: Word,
    latency: Mutex<Histogram<u64>>,
}

impl Stream {
    fn new(fill: Fill, submitter: Submitter) -> Self {
        Self { fill, submitter, owed: hal::Word::new(0), latency: Mutex::new(histogram()) }
    }

    /// The thread of a stream: waits for completions and answers each. A submission holds the queue's lock, so it makes
    /// one at a time.
    fn submit(&self, queue: &WorkQueue<SimHal>) {
        loop {
            SimHal.relax_on(&self.owed, 0, u64::MAX);
            for _ in 0..self.owed.swap(0) {
                let submitted = queue.submit(&[self.fill]);
                assert_eq!(submitted.accepted, 1, "a completed descriptor leaves room");
            }
        }
    }
}

impl BatchDone for Stream {
    fn batch_done(&self, done: &[Completed], next: &mut Next) {
        SimHal.work(work::STREAM_ENTRY, done.len() as u32);
        let now_ns = SimHal.now_ns();
        let mut latency = self.latency.lock().expect("one host thread");
        for completed in done {
            latency.saturating_record(now_ns - completed.submitted_ns);
            if self.submitter == Submitter::Handler {
                // Submission finds no room only while the queue is being closed.
                let _ = next.push(self.fill);
            }
        }
        // Held across a call of the seam that takes time, it would stop the console.
        drop(latency);
        if self.submitter == Submitter::Thread {
            self.owed.fetch_add(done.len() as u64);
        }
    }
}

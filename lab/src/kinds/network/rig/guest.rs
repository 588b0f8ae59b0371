//! The guest's software: our driver and delivery core, and the program above the driver that sends every packet back.

use super::hardware::{FIRST_PIN, Hardware, REQUESTER, vectors};
use crate::kinds::network::{Apart, IRQS_MAX, Mapping, Trigger};
use crate::kinds::network::{Network, NetworkVariant};
use crate::run::SetupError;
use crate::run::x86::{self, Pc, Wanted};
use drivers::ioapic::PinWiring;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::virtio::net::{Net, NetConfig, Packet, ReceivePoll, Receiver, Verdict};
use drivers::virtio::{Bar, Mmio, MmioConfig, Pci, RegisterWrites, Rung, Transport, VectorMap, VectorPolicy};
use hal::{CpuId, CpuSet, Dma as _};
use irq::poll::{PollConfig, SoftId, SoftPoll};
use irq::{AllocRequest, Flow, Irq, IrqDomain, RequestFlags, RequesterId, StormConfig};
use machine::virtio::pci::{REGION_CONFIG, REGION_MSIX, REGION_STRUCTURES};
use machine::{Regs, SimHal};
use std::sync::{Arc, OnceLock};

/// The inputs of bring-up.
pub(super) struct Parts {
    pub(super) network: Network,
    pub(super) cpus: u32,
    pub(super) entries: u16,
    pub(super) ioapic: Regs,
    /// The device's regions. On the MMIO transport only the first has registers.
    pub(super) regions: [Regs; 3],
    pub(super) variant: NetworkVariant,
    pub(super) pc: x86::Parts,
    /// Gives the interrupt entry the work that it polls at the end of an interrupt.
    pub(super) soft: Arc<OnceLock<Arc<SoftPoll<SimHal>>>>,
}

impl Parts {
    pub(super) fn regions(machine: &machine::Machine, hardware: &Hardware) -> [Regs; 3] {
        [REGION_STRUCTURES, REGION_MSIX, REGION_CONFIG].map(|region| machine.regs(hardware.device, region))
    }
}

/// A guest that is up.
pub(super) struct Guest {
    pub(super) pc: Pc,
    pub(super) net: Arc<Net<SimHal>>,
    pub(super) lines: Vec<Irq>,
}

/// Bytes of a BAR's region on the machine.
const BAR_BYTES: u32 = 0x4000;
/// The BAR of virtio's structures.
const BAR: usize = 4;

/// Sends every packet back to its sender.
struct Reflector {
    soft: Arc<OnceLock<Arc<SoftPoll<SimHal>>>>,
    polls: OnceLock<Vec<SoftId>>,
}

impl Receiver<SimHal> for Reflector {
    fn ready(&self, pair: u16) {
        if let (Some(soft), Some(polls)) = (self.soft.get(), self.polls.get()) {
            soft.schedule(polls[usize::from(pair)]);
        }
    }

    /// Swaps the Ethernet addresses, six bytes each.
    fn received(&self, packet: Packet<'_, <SimHal as hal::Hal>::Dma>) -> Verdict {
        if packet.len_bytes < 14 {
            return Verdict::Done;
        }
        let (memory, at) = (packet.memory, packet.offset_bytes);
        let words = [0, 4, 8].map(|offset| memory.read32(at + offset));
        let [to, from] = [
            u64::from(words[0]) | u64::from(words[1] & 0xffff) << 32,
            u64::from(words[1] >> 16) | u64::from(words[2]) << 16,
        ];
        memory.write32(at, from as u32);
        memory.write32(at + 4, (from >> 32) as u32 | (to as u32) << 16);
        memory.write32(at + 8, (to >> 16) as u32);
        Verdict::Reflect
    }
}

impl Guest {
    /// Brings everything up. Runs on the boot thread.
    pub(super) fn set_up(parts: Parts) -> Result<Self, SetupError> {
        let wanted = Wanted {
            device_lines: vectors(&parts.network).max(IRQS_MAX).into(),
            remapping_entries: 0,
            posted: None,
            // A lightly loaded guest takes one interrupt per packet. This rate is not a storm.
            storm: StormConfig { burst_ns_min: 0, unhandled_max: u32::MAX, ..StormConfig::default() },
            timer: None,
        };
        let pc = Pc::set_up(&parts.pc, wanted)?;
        let (transport, domain) = attach(&parts, &pc)?;
        let reflector = Arc::new(Reflector { soft: parts.soft.clone(), polls: OnceLock::new() });
        let config = NetConfig {
            pairs: parts.network.flows as u16,
            reflect: true,
            entries: parts.entries,
            policy: policy(parts.variant),
            ..NetConfig::default()
        };
        let net = Net::open(SimHal, transport, &config, reflector.clone())?;
        let mut soft = SoftPoll::new(SimHal, parts.cpus, PollConfig::default())?;
        let mut polls = Vec::new();
        for pair in 0..net.pairs() {
            let cpu = match parts.variant.apart() {
                Apart::Polls => CpuId(u32::from(pair) % parts.cpus),
                Apart::Nothing | Apart::Status => cpu_of(net.vectors(), vector_of(net.vectors(), 2 * pair), parts.cpus),
            };
            let poll = Arc::new(ReceivePoll::new(net.clone(), pair));
            polls.push(soft.add(cpu, parts.network.weight, poll, None)?);
        }
        let soft = Arc::new(soft);
        soft.start().map_err(SetupError::Spawn)?;
        let is_first = reflector.polls.set(polls).is_ok() && parts.soft.set(soft).is_ok();
        assert!(is_first, "a guest is brought up once");
        let mut guest = Self { pc, net, lines: Vec::new() };
        guest.request_lines(&parts, &domain)?;
        guest.net.start()?;
        Ok(guest)
    }

    /// A line for each vector, on the CPU that polls its queues.
    fn request_lines(&mut self, parts: &Parts, domain: &Arc<dyn IrqDomain>) -> Result<(), SetupError> {
        for (vector, handler) in (0..).zip(self.net.handlers()) {
            let (index, requester) = match parts.variant {
                NetworkVariant::Mmio { .. } => (u32::from(FIRST_PIN) + u32::from(vector), 0xf0f8),
                NetworkVariant::Pci => (vector.into(), REQUESTER),
            };
            let request = AllocRequest::fixed(
                RequesterId(requester),
                index,
                CpuSet::of(cpu_of(self.net.vectors(), vector, parts.cpus)),
            );
            let is_wire = matches!(parts.variant, NetworkVariant::Mmio { .. });
            let is_level = is_wire && parts.network.trigger == Trigger::Level;
            let flow = if is_level { Flow::FastEoi } else { Flow::Edge };
            let line = self.pc.core.alloc_line(domain.clone(), &request, flow)?;
            self.pc.core.request(line, format!("virtio0-{vector}"), RequestFlags::default(), handler)?;
            self.lines.push(line);
        }
        Ok(())
    }
}

/// The device's transport, and the domain of its interrupts.
type Attached = (Arc<dyn Transport>, Arc<dyn IrqDomain>);

fn attach(parts: &Parts, pc: &Pc) -> Result<Attached, SetupError> {
    let [registers, msix, config] = parts.regions;
    match parts.variant {
        NetworkVariant::Mmio { irqs, .. } => {
            let pins = usize::from(FIRST_PIN) + usize::from(irqs);
            let mut wiring = vec![PinWiring::default(); pins];
            wiring[FIRST_PIN.into()..]
                .fill(PinWiring { level: parts.network.trigger == Trigger::Level, active_low: false });
            let domain = pc.system.io_apic(0, parts.ioapic, &wiring)?;
            let config = MmioConfig { interrupts: irqs, shared_lines: false, writes: RegisterWrites::AtOnce };
            let mut transport = Mmio::<SimHal>::new(SimHal, registers, config)?;
            if parts.variant.apart() == Apart::Status {
                transport = transport.always_acknowledge();
            }
            Ok((Arc::new(transport), Arc::new(domain)))
        }
        NetworkVariant::Pci => {
            let capability = MsixCapability::find(&config)?;
            let table = MsixTable::enable(config, msix, capability);
            let mut bars = [const { None }; 6];
            bars[BAR] = Some(Bar { regs: Arc::new(registers), len_bytes: BAR_BYTES });
            let transport = Pci::<SimHal>::new(SimHal, &config, &bars, capability.entries as u16)?;
            let domain = pc.system.message_domain(0, table)?;
            Ok((Arc::new(transport), Arc::new(domain)))
        }
    }
}

fn policy(variant: NetworkVariant) -> VectorPolicy {
    match variant {
        NetworkVariant::Mmio { mapping: Mapping::Spread, .. } => VectorPolicy::Modulo,
        NetworkVariant::Mmio { mapping: Mapping::Fixed, .. } => VectorPolicy::Pairs,
        NetworkVariant::Mmio { mapping: Mapping::Ladder, .. } | NetworkVariant::Pci => VectorPolicy::Ladder,
    }
}

/// The vector of a queue; 0 if the device has a single interrupt.
fn vector_of(map: &VectorMap, queue: u16) -> u16 {
    let own = map.queues.iter().find(|&&(number, _)| number == queue).map(|&(_, vector)| vector);
    own.filter(|_| map.rung != Rung::Single).unwrap_or(0)
}

/// Vectors are assigned to CPUs in turn. A vector that serves the configuration alone is not counted.
fn cpu_of(map: &VectorMap, vector: u16, cpus: u32) -> CpuId {
    let alone = map.rung != Rung::Single && map.queues_of(map.configuration).next().is_none();
    CpuId(u32::from(vector.saturating_sub(u16::from(alone))) % cpus)
}

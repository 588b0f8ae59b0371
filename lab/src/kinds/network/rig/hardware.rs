//! The guest's machine: CPUs, an I/O APIC, and the network device behind one of its transports.

use crate::kinds::network::{Network, NetworkVariant};
use crate::kinds::network::{Trigger, Workers};
use crate::plan::Plan;
use crate::platform::{Constant, Vhost};
use machine::Machine;
use machine::fabric::dispatch::Dispatch;
use machine::fabric::ioapic::{IoApic, IoApicConfig};
use machine::fabric::port::Credits;
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::model::ModelId;
use machine::time::Ps;
use machine::virtio::net::{Flows, HostConfig, Net, NetConfig};
use machine::virtio::{self, Exits, Irqfd, Line, MmioConfig, PciConfig, VirtioMmio, VirtioPci};

/// Ids of the models, and the variant that they are built for.
pub(super) struct Hardware {
    pub(super) ioapic: ModelId,
    pub(super) device: ModelId,
    pub(super) variant: NetworkVariant,
}

/// Pins of a PC below the first that the device uses: those of ISA devices and PCI.
pub(super) const FIRST_PIN: u8 = 24;
/// The device's PCI requester id.
pub(super) const REQUESTER: u16 = 0x100;

fn time(constant: &Constant) -> Ps {
    Ps(constant.ps())
}

impl Hardware {
    pub(super) fn build(machine: &mut Machine, plan: &Plan, network: &Network, variant: NetworkVariant) -> Self {
        let host = plan.platform.vhost.as_ref().expect("the plan was validated");
        // The path of messages, without remapping. The event descriptor's latency includes the time of an injection.
        let unit = VtdUnit::new(unit_config(), Dispatch::new(Ps(0)), Credits::default());
        let messages = machine.add_model(|_| Box::new(unit));
        let pins = FIRST_PIN + crate::kinds::network::IRQS_MAX as u8;
        let config = IoApicConfig { name: "ioapic".into(), requester: 0xf0f8, pins };
        let ioapic = machine.add_model(|_| Box::new(IoApic::new(messages, config)));
        let net = Net::new(net_config(network, host));
        let exits = Exits { register: time(&host.exit), kick: time(&host.kick) };
        let irqfd = |signal| Irqfd { signal: time(signal), latency: time(&host.inject) };
        let device = match variant {
            NetworkVariant::Mmio { irqs, .. } => {
                let trigger = match network.trigger {
                    Trigger::Edge => virtio::Trigger::Edge,
                    Trigger::Level => virtio::Trigger::Level,
                };
                let config = MmioConfig {
                    name: "virtio-mmio".into(),
                    lines: (0..irqs as u8).map(|line| Line::ioapic(ioapic, FIRST_PIN + line, trigger)).collect(),
                    multi_irq: true,
                    exits,
                    irqfd: irqfd(&host.signal_pin),
                };
                let model = VirtioMmio::new(config, net).expect("the plan's interrupts are within bounds");
                machine.add_model(|_| Box::new(model))
            }
            NetworkVariant::Pci => {
                let config = PciConfig {
                    name: "virtio-pci".into(),
                    requester: REQUESTER,
                    upstream: messages,
                    vectors: vectors(network),
                    exits,
                    irqfd: irqfd(&host.signal_message),
                };
                machine.add_model(|_| Box::new(VirtioPci::new(config, net)))
            }
        };
        let hardware = Self { ioapic, device, variant };
        if let NetworkVariant::Mmio { irqs, .. } = variant
            && network.resampler
        {
            for line in 0..irqs {
                let resampler = virtio::resample_event(device, line);
                machine.with_model(ioapic, |chip: &mut IoApic| chip.set_resampler(FIRST_PIN + line as u8, resampler));
            }
        }
        hardware
    }

    /// Gives access to the device without its transport.
    pub(super) fn net<R>(&self, machine: &mut Machine, act: impl FnOnce(&mut Net) -> R) -> R {
        let found = match self.variant {
            NetworkVariant::Mmio { .. } => {
                machine.with_model(self.device, |model: &mut VirtioMmio<Net>| act(model.device()))
            }
            NetworkVariant::Pci => machine.with_model(self.device, |model: &mut VirtioPci<Net>| act(model.device())),
        };
        found.expect("the device is a network device")
    }
}

/// One vector for each receive queue and each transmit queue, and one for the configuration.
pub(super) fn vectors(network: &Network) -> u16 {
    2 * network.flows as u16 + 1
}

fn net_config(network: &Network, host: &Vhost) -> NetConfig {
    NetConfig {
        // Each flow has a pair, and one more pair whose transmit queue carries its packets back.
        pairs: 2 * network.flows as u16,
        queue_entries: host.ring.whole() as u16,
        host: HostConfig {
            workers: match network.workers {
                Workers::Pair => machine::virtio::net::Workers::PerPair,
                Workers::Device => machine::virtio::net::Workers::PerDevice,
            },
            receive: time(&host.receive),
            transmit: time(&host.transmit),
            wake: time(&host.wake),
            backlog: host.backlog.whole() as u16,
            batch: host.batch.whole() as u16,
            weight: host.weight.whole() as u16,
            flows: flows(network, host),
        },
        ..NetConfig::default()
    }
}

/// A packet costs its sender at least what the platform says.
fn flows(network: &Network, host: &Vhost) -> Flows {
    let every = network.packet_every_ns.map_or(Ps(0), Ps::from_ns);
    let [sent, dropped] = [&host.send, &host.send_dropped].map(|cost| time(cost).max(every));
    Flows { count: network.flows as u16, sent, dropped }
}

fn unit_config() -> VtdConfig {
    VtdConfig {
        name: "messages".into(),
        posted_interrupts: false,
        extended_interrupt_mode: false,
        fault_records: 8,
        remap_time: Ps(0),
        post_time: Ps(0),
        command_time: Ps(0),
        invalidation_time: Ps(0),
        invalidation_fault: InvalidationFault::None,
    }
}

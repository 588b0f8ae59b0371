//! The path of messages and data between PCI devices and the rest: root ports, IOMMUs, sockets' dispatch units.

use crate::outcome::{Server, ServerKind};
use crate::platform::Platform;
use crate::report::trace::Track;
use crate::run::span::{Counters, Span, counter};
use machine::Machine;
use machine::fabric::dispatch::Dispatch;
use machine::fabric::integrated::{IntegratedConfig, IntegratedPath};
use machine::fabric::port::{Credits, RootPort, RootPortConfig};
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::model::{Model, ModelId};
use machine::time::Ps;

/// One device and the ports above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    /// The device's model.
    pub(crate) model: ModelId,
    /// The model of its root port, or of an integrated endpoint's way.
    pub(crate) port: ModelId,
    /// Index of its IOMMU in [`Pcie::iommus`].
    pub(crate) iommu: usize,
    /// PCI requester id.
    pub(crate) requester: u16,
}

/// The units between devices and CPUs, as the platform file arranges them.
pub(crate) struct Pcie {
    pub(crate) ports: Vec<ModelId>,
    pub(crate) iommus: Vec<ModelId>,
    dispatches: Vec<Dispatch>,
    credits: Credits,
    devices: usize,
}

impl Pcie {
    /// The sockets' units and the IOMMUs of so many devices.
    pub(crate) fn new(machine: &mut Machine, platform: &Platform, devices: usize) -> Self {
        let fabric = &platform.fabric;
        let dispatches: Vec<_> = (0..fabric.sockets.whole()).map(|_| Dispatch::new(Ps(fabric.dispatch.ps()))).collect();
        let credits = Credits::default();
        let iommu_count = devices.div_ceil(fabric.drives_per_iommu.whole() as usize);
        let iommus: Vec<_> = (0..iommu_count)
            .map(|index| {
                let socket = index / fabric.iommus_per_socket.whole() as usize % dispatches.len();
                let unit = VtdUnit::new(vtd_config(platform, index), dispatches[socket].clone(), credits.clone());
                machine.add_model(|_| Box::new(unit))
            })
            .collect();
        Self { ports: Vec::new(), iommus, dispatches, credits, devices: 0 }
    }

    /// Adds the next device behind a root port; `build` is given its port and its requester id.
    pub(crate) fn attach(
        &mut self,
        machine: &mut Machine,
        platform: &Platform,
        link_bytes_per_second: u64,
        build: impl FnOnce(ModelId, u16) -> Box<dyn Model>,
    ) -> Site {
        self.attach_numbered(machine, platform, link_bytes_per_second, |_, port, requester| build(port, requester))
    }

    /// As [`Self::attach`], but `build` receives the model's own number.
    pub(crate) fn attach_numbered(
        &mut self,
        machine: &mut Machine,
        platform: &Platform,
        link_bytes_per_second: u64,
        build: impl FnOnce(ModelId, ModelId, u16) -> Box<dyn Model>,
    ) -> Site {
        let fabric = &platform.fabric;
        if self.devices.is_multiple_of(fabric.drives_per_port.whole() as usize) {
            let config = RootPortConfig {
                name: format!("port {}", self.ports.len()),
                link_bytes_per_second,
                message_order_time: Ps(fabric.ordering_stall.ps()),
                waiting_messages_max: fabric.port_queue_depth.whole() as u32,
                relaxed_ordering: fabric.relaxed_ordering.is_set(),
                id_based_ordering: fabric.id_ordering.is_set(),
            };
            let above = self.iommus[self.next_iommu(platform)];
            self.ports.push(machine.add_model(|id| Box::new(RootPort::new(id, above, config, &self.credits))));
        }
        self.attach_below(machine, platform, build)
    }

    /// Adds the next device as a root-complex integrated endpoint, which has no root port.
    pub(crate) fn integrate(
        &mut self,
        machine: &mut Machine,
        platform: &Platform,
        bytes_per_second: u64,
        build: impl FnOnce(ModelId, u16) -> Box<dyn Model>,
    ) -> Site {
        let config = IntegratedConfig {
            name: format!("endpoint {}", self.ports.len()),
            bytes_per_second,
            waiting_messages_max: platform.fabric.port_queue_depth.whole() as u32,
        };
        let above = self.iommus[self.next_iommu(platform)];
        self.ports.push(machine.add_model(|id| Box::new(IntegratedPath::new(id, above, config, &self.credits))));
        self.attach_below(machine, platform, |_, port, requester| build(port, requester))
    }

    /// The index of the next device's IOMMU.
    fn next_iommu(&self, platform: &Platform) -> usize {
        self.devices / platform.fabric.drives_per_iommu.whole() as usize
    }

    /// Adds the next device below the last port.
    fn attach_below(
        &mut self,
        machine: &mut Machine,
        platform: &Platform,
        build: impl FnOnce(ModelId, ModelId, u16) -> Box<dyn Model>,
    ) -> Site {
        let iommu = self.next_iommu(platform);
        self.devices += 1;
        let port = *self.ports.last().expect("the first device opened a port");
        // Bus numbers count from 1, one bus per device.
        let requester = (self.devices as u16) << 8;
        let model = machine.add_model(|id| build(id, port, requester));
        Site { model, port, iommu, requester }
    }

    /// Counts now.
    pub(crate) fn count(&self, machine: &mut Machine) -> PcieCounters {
        let mut counters = |id: &ModelId| machine.with_any_model(*id, |model| model.counters());
        PcieCounters {
            ports: self.ports.iter().map(&mut counters).collect(),
            iommus: self.iommus.iter().map(&mut counters).collect(),
            dispatch_busy: self.dispatches.iter().map(Dispatch::busy).collect(),
        }
    }

    /// The track of a model in a trace.
    pub(crate) fn track(&self, model: ModelId) -> Option<Track> {
        let position = |ids: &[ModelId]| ids.iter().position(|&known| known == model).map(|index| index as u32);
        position(&self.iommus).map(Track::Iommu).or_else(|| position(&self.ports).map(Track::Port))
    }

    /// Index of a port's model.
    pub(crate) fn port_index(&self, port: ModelId) -> usize {
        self.ports.iter().position(|&known| known == port).expect("every device's port is listed")
    }
}

/// The counters of ports, IOMMUs and dispatch units at one moment.
pub(crate) struct PcieCounters {
    pub(crate) ports: Vec<Counters>,
    iommus: Vec<Counters>,
    dispatch_busy: Vec<Ps>,
}

/// How busy the servers of the MSI path were between two moments.
pub(crate) fn servers(span: &Span, start: &PcieCounters, end: &PcieCounters) -> Vec<Server> {
    let server = |kind, index: usize, busy| Server { kind, index: index as u32, busy };
    let grown = |of: &dyn Fn(&PcieCounters) -> u64| span.share(of(end) - of(start));
    let port = |index: usize, name| grown(&|at: &PcieCounters| counter(&at.ports[index], name));
    let iommu = |index: usize, name| grown(&|at: &PcieCounters| counter(&at.iommus[index], name));
    let ports = (0..end.ports.len()).map(|index| server(ServerKind::RootPort, index, port(index, "order_ps")));
    let remapping = (0..end.iommus.len())
        .map(|index| server(ServerKind::Remapping, index, iommu(index, "remap_ps") + iommu(index, "hold_ps")));
    let posted = (0..end.iommus.len()).map(|index| server(ServerKind::PostedLine, index, iommu(index, "post_ps")));
    let dispatch = (0..end.dispatch_busy.len())
        .map(|index| server(ServerKind::Dispatch, index, grown(&|at: &PcieCounters| at.dispatch_busy[index].0)));
    ports.chain(remapping).chain(posted).chain(dispatch).collect()
}

fn vtd_config(platform: &Platform, index: usize) -> VtdConfig {
    let fabric = &platform.fabric;
    VtdConfig {
        name: format!("IOMMU {index}"),
        posted_interrupts: fabric.posted_capability.is_set(),
        extended_interrupt_mode: true,
        fault_records: 8,
        remap_time: Ps(fabric.remap_service.ps()),
        post_time: Ps(fabric.posted_update.ps()),
        // Management is rare, and none of the published figures depends on its times.
        command_time: Ps::from_ns(1_000),
        invalidation_time: Ps::from_ns(500),
        invalidation_fault: InvalidationFault::None,
    }
}

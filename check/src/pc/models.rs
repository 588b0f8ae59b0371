//! The devices' models on the machine.

use super::accelerator;
use crate::server::add_port;
use machine::Machine;
use machine::dsa::Dsa;
use machine::fabric::integrated::{IntegratedConfig, IntegratedPath};
use machine::fabric::port::Credits;
use machine::fabric::tamper::{Tamper, TamperConfig};
use machine::model::ModelId;
use machine::nvme::{Latency, Nvme, REGION_CONFIG, Tail, Timing};
use machine::outage::{Outage, Outages, Unreliable};
use machine::time::Ps;

/// A drive that comes up fast enough for the length of a history.
const QUICKLY: Ps = Ps::from_ns(20_000);
/// Slow commands: with reads of 2 to 20 µs, most of them take longer than an impatient driver waits.
const SLOW: Tail = Tail { one_in: 10, factor: 30 };

/// The times of a drive, some of whose commands may be slow.
pub(super) fn timing(base: Timing, slow: bool) -> Timing {
    let tail = slow.then_some(SLOW);
    let [read, write] = [base.read, base.write].map(|latency| Latency { tail, ..latency });
    Timing { enable: QUICKLY, reset: QUICKLY, shutdown: QUICKLY, read, write, ..base }
}

/// The models of a drive.
pub(super) struct Site {
    pub(super) drive: ModelId,
    pub(super) tamper: ModelId,
    pub(super) outage: Outages,
}

/// A drive whose messages can be tampered with before they reach its port.
pub(super) fn add_tampered_drive(
    machine: &mut Machine,
    iommu: ModelId,
    credits: &Credits,
    tamper: TamperConfig,
    config: machine::nvme::Config,
) -> Site {
    let port = add_port(machine, iommu, credits);
    let tamper = machine.add_model(|_| Box::new(Tamper::new(port, tamper)));
    let drive = Nvme::new(tamper, config).expect("a valid drive");
    let outage = Outages::new(Outage { prompt_region: Some(REGION_CONFIG), ..Outage::default() });
    let drive = machine.add_model(|_| Box::new(Unreliable::removable(drive, outage.clone(), Nvme::lose_power)));
    Site { drive, tamper, outage }
}

/// An accelerator inside the root complex, with a way of its own.
pub(super) fn add_accelerator(
    machine: &mut Machine,
    iommu: ModelId,
    credits: &Credits,
    plan: &accelerator::Plan,
) -> ModelId {
    let way = IntegratedConfig { name: "dsa's way".into(), bytes_per_second: 30_000_000_000, waiting_messages_max: 2 };
    let way = machine.add_model(|id| Box::new(IntegratedPath::new(id, iommu, way, credits)));
    machine.add_model(|_| Box::new(Dsa::new(way, plan.model.clone()).expect("a valid device")))
}

//! The driver of the remapping unit against a hostile unit, which lies about its capabilities, the place of its fault
//! records, and the progress of its queue.

use super::hostile::{Driver, Hostile, against_hostile};
use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::vtd::{GuestPosting, RemapConfig, RemapDomain, RemapUnit};
use hal::{CpuId, CpuSet, DeviceAddress, Hal as _};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{AllocRequest, Irq, IrqDomain, Level, LevelData, RequesterId, Target, Vector};
use machine::fabric::dispatch::Dispatch;
use machine::fabric::port::Credits;
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::time::Ps;
use machine::{Machine, Regs, SimHal};
use std::sync::Arc;

/// Set-up, lines that come, move and go, posting to a guest and back, faults taken.
pub(crate) fn driver_vtd(data: &[u8]) {
    let build = |machine: &mut Machine, bus, mischief: &_| {
        let config = VtdConfig {
            name: "dmar0".into(),
            posted_interrupts: true,
            extended_interrupt_mode: true,
            fault_records: 4,
            remap_time: Ps::from_ns(50),
            post_time: Ps::from_ns(100),
            command_time: Ps::from_ns(200),
            invalidation_time: Ps::from_ns(300),
            invalidation_fault: InvalidationFault::None,
        };
        let unit = VtdUnit::new(config, Dispatch::new(Ps::from_ns(100)), Credits::default());
        let unit = machine.add_model(|_| Box::new(Hostile::new(unit, bus, mischief)));
        machine.regs(unit, 0)
    };
    against_hostile(data, build, |driver, regs| {
        let _ = session(driver, regs);
    });
}

fn session(driver: &mut Driver<'_>, regs: Regs) -> Option<()> {
    let config = RemapConfig { table_entries: 16, apic_mode: ApicMode::X2Apic };
    let unit = Arc::new(RemapUnit::new(SimHal, regs, config).ok()?);
    let lapic = Lapic::new(SimHal, Regs::Lapic, ApicMode::X2Apic, vec![ApicId(0)]).expect("an id");
    let lapic = Arc::new(lapic);
    let vectors = Arc::new(VectorDomain::new(SimHal, lapic.clone()));
    let posted = Arc::new(PostedMsi::new(SimHal, PostedConfig::default(), &[0]).expect("memory"));
    let mut domains = vec![RemapDomain::remapped(unit.clone(), lapic.clone(), vectors.clone())];
    domains.extend(RemapDomain::posted(unit.clone(), lapic, vectors.clone(), posted));
    let descriptor = SimHal.dma_alloc(64, 64).expect("room");
    let mut lines: Vec<(usize, Vec<LevelData>)> = Vec::new();
    while driver.goes_on() {
        let at = driver.input.below(lines.len().max(1) as u32) as usize;
        let vector = Vector(0x30 + driver.input.u8() % 0xc0);
        let target = Target::at(CpuId(0), vector);
        match driver.input.u8() % 8 {
            0 | 1 => {
                let domain = driver.input.below(domains.len() as u32) as usize;
                let request = request(driver.input.u16());
                let vector = vectors.allocate(&request).expect("a vector has no number of its own");
                if let Ok(entry) = domains[domain].allocate(&request) {
                    lines.push((domain, vec![entry, vector]));
                }
            }
            2 if at < lines.len() => {
                let (domain, levels) = lines.swap_remove(at);
                domains[domain].release(levels[0].hwirq);
            }
            3 | 4 if at < lines.len() => {
                let (domain, levels) = &lines[at];
                let level = Level::new(Irq(0), levels);
                let _ = domains[*domain].activate(&level, target);
                let _ = level.chip().compose_message(&level);
            }
            5 if at < lines.len() => {
                let level = Level::new(Irq(0), &lines[at].1);
                let _ = level.chip().set_affinity(&level, target);
            }
            6 if at < lines.len() => {
                let (domain, levels) = &lines[at];
                let descriptor =
                    DeviceAddress(hal::Dma::device_address(&descriptor).0 | u64::from(driver.input.u8() % 2));
                let guest = GuestPosting { descriptor, vector, urgent: false };
                let _ = domains[*domain].lend_to_guest(levels[0].hwirq, guest);
                let _ = domains[*domain].take_back(levels[0].hwirq);
            }
            _ => {
                let mut taken = 0;
                unit.take_faults(|fault| taken += fault.to_string().len().min(1));
                assert!(taken <= 4 * 256, "{taken} faults at once");
            }
        }
    }
    Some(())
}

fn request(requester: u16) -> AllocRequest {
    AllocRequest::fixed(RequesterId(requester), 0, CpuSet::of(CpuId(0)))
}

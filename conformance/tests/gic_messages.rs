//! Devices' messages: an NVMe drive whose MSI-X goes through the ITS, the v2m frame, and the distributor's register.

mod gic_rig;

use campanile_conformance::server::Load;
use drivers::gic::its::ItsDomain;
use drivers::gic::{EoiMode, GicError};
use drivers::message::MessageDomain;
use drivers::nvme::{self, Controller, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixTable};
use gic_rig::{ArmHarness, Count, Do, ITS_BASE, Options, Rig, Version};
use hal::{CpuId, CpuSet, Dma as _, Hal as _, Regs as _, Threads as _, Word as _};
use irq::{AllocRequest, Flow, Irq, IrqChipState, IrqDomain, IrqError, RequestFlags, RequesterId};
use machine::gic::{Gic, GicConfig, GicWindows, ItsConfig, V2mConfig};
use machine::model::ModelId;
use machine::nvme::{Config, Nvme, REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::time::Ps;
use machine::{Machine, Regs, SimHal, inspect};
use std::sync::{Arc, Mutex};

/// The target of a test's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Its,
    V2m(Version),
    Mbi,
}

/// With both EOImodes each.
const WAYS: [(Way, EoiMode); 8] = [
    (Way::Its, EoiMode::Together),
    (Way::Its, EoiMode::Split),
    (Way::V2m(Version::V2), EoiMode::Together),
    (Way::V2m(Version::V2), EoiMode::Split),
    (Way::V2m(Version::V3), EoiMode::Together),
    (Way::V2m(Version::V3), EoiMode::Split),
    (Way::Mbi, EoiMode::Together),
    (Way::Mbi, EoiMode::Split),
];

impl Way {
    fn version(self) -> Version {
        match self {
            Self::V2m(version) => version,
            Self::Its | Self::Mbi => Version::V3,
        }
    }

    fn options(self) -> Options {
        let gic = GicConfig {
            its: (self == Self::Its).then(ItsConfig::default),
            v2m: matches!(self, Self::V2m(_)).then_some(V2mConfig { base: gic_rig::V2M_BASE, first: 64, count: 8 }),
            message_spis: self == Self::Mbi,
            ..GicConfig::default()
        };
        Options { cpus: 2, gic, ..Options::default() }
    }
}

/// A machine with a drive that sends its messages to the GIC.
fn with_drive(way: Way, mode: EoiMode, config: Config) -> (Rig, ModelId) {
    let mut drive = ModelId(0);
    let add = |machine: &mut Machine, windows: GicWindows| {
        drive = machine.add_model(|_| Box::new(Nvme::new(windows.model, config).expect("a valid drive")));
    };
    let rig = Rig::with(way.version(), mode, way.options(), add);
    (rig, drive)
}

fn drive_config() -> Config {
    Config { requester: 0x0100, blocks: 0x1_0000, io_queues_max: 2, vectors: 3, ..Config::default() }
}

struct Drive {
    _controller: Controller<SimHal>,
    messages: Arc<MessageDomain<SimHal, MsixTable<Regs>>>,
    queues: Vec<(Arc<QueuePair<SimHal>>, Irq, Arc<Load>)>,
}

/// Two queues, the second on CPU 1.
fn bring_up(system: &ArmHarness, model: ModelId) -> Drive {
    let region = |region| Regs::Model { model, region };
    let wanted = nvme::Config { queue_pairs: 2, ..nvme::Config::default() };
    let controller = Controller::new(SimHal, region(REGION_CONTROLLER), wanted).expect("the drive comes up");
    let capability = MsixCapability::find(&region(REGION_CONFIG)).expect("MSI-X");
    let table = MsixTable::enable(region(REGION_CONFIG), region(REGION_MSIX), capability);
    let messages = system.arm.message_domain(table).expect("a way of messages");
    let page = Arc::new(SimHal.dma_alloc(4096, 4096).expect("memory"));
    let queues = [1, 2].map(|vector| {
        let load = Arc::new(Load::default());
        let queue = QueueConfig { entries: 32, vector: Some(vector), transfer_bytes_max: 4096 };
        let pair = controller.create_queue_pair(queue, load.clone()).expect("a queue");
        load.attach(&pair, page.clone());
        let affinity = CpuSet::of(CpuId(u32::from(vector) - 1));
        let request = AllocRequest { affinity, ..gic_rig::request(vector.into()) };
        let flow = system.arm.messages().expect("a way of messages").flow();
        let line = system.core.alloc_line(messages.clone(), &request, flow).expect("a line");
        system.core.request(line, "nvme", RequestFlags::default(), pair.clone()).expect("a new line");
        (pair, line, load)
    });
    Drive { _controller: controller, messages, queues: queues.into() }
}

fn wait_for(drive: &Drive) {
    for _ in 0..10_000 {
        if drive.queues.iter().all(|(.., load)| load.is_done()) {
            return;
        }
        SimHal.delay_ns(10_000);
    }
    panic!("a completion was lost: {:?}", drive.queues.iter().map(|(.., load)| load.counts()).collect::<Vec<_>>());
}

#[test]
fn a_drives_completions_arrive_by_every_way() {
    for (way, mode) in WAYS {
        let (mut rig, model) = with_drive(way, mode, drive_config());
        let deactivated = rig.counter("deactivated");
        let counts = rig.run(move |system| {
            let drive = bring_up(system, model);
            drive.queues.iter().for_each(|(.., load)| load.start(200, 8));
            wait_for(&drive);
            drive.queues.iter().for_each(|(.., load)| load.check());
            let counts = |line: Irq| [0, 1].map(|cpu| system.core.count(line, CpuId(cpu)));
            drive.queues.iter().map(|(_, line, _)| counts(*line)).collect::<Vec<_>>()
        });
        assert!(counts[0][0] > 0 && counts[0][1] == 0, "{way:?} {mode:?}: {counts:?}");
        assert!(counts[1][1] > 0 && counts[1][0] == 0, "{way:?} {mode:?}: {counts:?}");
        assert!(rig.counter("messages") > 0);
        if way == Way::Its {
            // Apart from the scheduler's own interrupts, none was active.
            let private = rig.counter("deactivated") - deactivated;
            assert!(private < counts[0][0] + counts[1][1], "{mode:?}: {private}");
        }
        rig.finish();
    }
}

/// Lines move to and fro under load. No interrupt is lost, and the device's message stays the same.
#[test]
fn lines_move_under_load() {
    for (way, mode) in WAYS {
        let (mut rig, model) = with_drive(way, mode, drive_config());
        rig.run(move |system| {
            let drive = bring_up(system, model);
            drive.queues.iter().for_each(|(.., load)| load.start(400, 8));
            for round in 0..20u32 {
                for (_, line, _) in &drive.queues {
                    system.core.set_affinity(*line, &CpuSet::of(CpuId(round % 2))).expect("it moves");
                }
                SimHal.delay_ns(7_000);
            }
            wait_for(&drive);
            drive.queues.iter().for_each(|(.., load)| load.check());
        });
        rig.finish();
    }
}

/// A CPU goes offline under load, its redistributor sleeps, and both come back.
#[test]
fn a_cpu_goes_and_comes_back_under_load() {
    for (way, mode) in WAYS {
        let (mut rig, model) = with_drive(way, mode, drive_config());
        rig.run(move |system| {
            let drive = bring_up(system, model);
            drive.queues.iter().for_each(|(.., load)| load.start(2_000, 8));
            for _ in 0..3 {
                let there = system.clone();
                system.on(1, move || there.leave());
                SimHal.delay_ns(50_000);
                let there = system.clone();
                system.on(1, move || there.come_up());
                SimHal.delay_ns(50_000);
            }
            wait_for(&drive);
            drive.queues.iter().for_each(|(.., load)| load.check());
            assert!(system.core.count(drive.queues[1].1, CpuId(1)) > 0, "it came back");
        });
        rig.finish();
    }
}

/// An LPI has no active state. After a move it fires on its new CPU while the handler still runs on the old one; the
/// handler then runs once more.
#[test]
fn an_lpi_fires_on_its_new_cpu_while_the_old_handler_runs() {
    let mut rig = Rig::new(Version::V3, EoiMode::Split, Way::Its.options());
    let log = Arc::new(Mutex::new(Vec::new()));
    let inner = log.clone();
    let state = rig.run(move |system| {
        let domain = Arc::new(ItsDomain::new(system.its()));
        let line = system.line(domain.clone(), 0, Flow::FastEoi);
        system.core.set_affinity(line, &CpuSet::of(CpuId(1))).expect("it moves");
        let slow = Do(move || {
            inner.lock().expect("one host thread").push((SimHal.cpu().0, SimHal.now_ns()));
            SimHal.delay_ns(20_000);
        });
        system.core.request(line, "slow", RequestFlags::default(), Arc::new(slow)).expect("a new line");
        // On CPU 1 the handler runs for 20 µs. Meanwhile the line moves here and fires again.
        system.core.retrigger(line).expect("INT");
        SimHal.delay_ns(5_000);
        system.core.set_affinity(line, &CpuSet::of(CpuId(0))).expect("MOVI");
        system.core.retrigger(line).expect("INT");
        SimHal.delay_ns(100_000);
        system.core.irqchip_state(line, IrqChipState::Active)
    });
    let log = log.lock().expect("one host thread").clone();
    assert_eq!(log.len(), 2, "neither lost nor twice: {log:?}");
    assert_eq!(log[0].0, 1, "{log:?}");
    assert!(log[1].1 >= log[0].1 + 20_000, "never both at a time: {log:?}");
    assert!(matches!(state, Err(IrqError::NotSupported(_))), "there is no such bit");
    rig.finish();
}

/// The message of a masked event is kept. The message of a freed event has no line: the ITS drops it.
#[test]
fn events_are_masked_and_forgotten() {
    let mut rig = Rig::new(Version::V3, EoiMode::Together, Way::Its.options());
    let count = Arc::new(Count::default());
    let handler = count.clone();
    rig.run(move |system| {
        let domain = Arc::new(ItsDomain::new(system.its()));
        let line = system.line(domain.clone(), 0, Flow::FastEoi);
        let action: Arc<dyn irq::Action> = handler.clone();
        system.core.request(line, "event", RequestFlags::default(), action.clone()).expect("a new line");
        system.core.disable(line).expect("it runs nowhere");
        assert_eq!(system.core.irqchip_state(line, IrqChipState::Masked), Ok(true));
        system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("INT");
        SimHal.delay_ns(5_000);
        assert_eq!(handler.all(), 0, "masked");
        system.core.enable(line).expect("it was disabled");
        SimHal.delay_ns(5_000);
        assert_eq!(handler.all(), 1, "it was kept");
        system.core.free(line, &action).expect("it is its handler");
        system.core.free_line(line).expect("no handler is left");
        SimHal.delay_ns(10_000);
        let again = system.line(domain.clone(), 0, Flow::FastEoi);
        system.core.request(again, "event", RequestFlags::default(), handler.clone()).expect("a new line");
        system.core.retrigger(again).expect("INT");
        SimHal.delay_ns(5_000);
        assert_eq!(handler.all(), 2, "event and LPI serve again");
    });
    rig.finish();
}

#[test]
fn an_its_has_bounds_that_are_errors() {
    let mut rig = Rig::new(Version::V3, EoiMode::Split, Way::Its.options());
    rig.run(move |system| {
        let domain = Arc::new(ItsDomain::new(system.its()));
        for _ in 0..32 {
            system.line(domain.clone(), 0, Flow::FastEoi);
        }
        let more = system.core.alloc_line(domain.clone(), &gic_rig::request(0), Flow::FastEoi);
        assert_eq!(more, Err(IrqError::Exhausted("events of the device", 32)));
        let other = AllocRequest { requester: RequesterId(0xffff), ..gic_rig::request(0) };
        assert!(system.core.alloc_line(domain.clone(), &other, Flow::FastEoi).is_ok(), "of another device");
        assert_eq!(system.its().cpu_online(CpuId(2)), Err(GicError::NoCpu(CpuId(2))));
        assert_eq!(system.its().doorbell(), ITS_BASE + 0x1_0040);
        let strict = system.core.alloc_line(domain.clone(), &other, Flow::Strict);
        assert_eq!(strict, Err(IrqError::Flow(Flow::Strict, "ack")), "an LPI has nothing to acknowledge");
    });
    rig.finish();
}

/// The levels of a line, from the device to the CPU: no level in between has an ack or eoi of its own.
#[test]
fn the_levels_of_a_message_line() {
    for (way, levels) in [
        (Way::Its, ["PCI-MSIX", "ITS", "LPI"]),
        (Way::V2m(Version::V2), ["PCI-MSIX", "V2M", "GICv2"]),
        (Way::Mbi, ["PCI-MSIX", "MBI", "GICv3"]),
    ] {
        let (mut rig, model) = with_drive(way, EoiMode::Split, drive_config());
        let chips = rig.run(move |system| {
            let drive = bring_up(system, model);
            let view = system.core.view(drive.queues[0].1).expect("a line");
            assert_eq!(drive.messages.name(), "PCI-MSIX");
            assert_eq!(system.arm.domain().name(), if way.version() == Version::V2 { "GICv2" } else { "GICv3" });
            view.levels.iter().map(|level| level.chip.to_string()).collect::<Vec<_>>()
        });
        assert_eq!(chips, levels);
        rig.finish();
    }
}

/// A managed line whose CPU is offline has no other CPU. A message that comes meanwhile, from a device that cannot mask its
/// own, waits for that CPU.
#[test]
fn a_message_of_a_managed_line_waits_for_its_cpu() {
    let mut rig = Rig::new(Version::V3, EoiMode::Split, Way::Its.options());
    let count = Arc::new(Count::default());
    let counted = count.clone();
    rig.run(move |system| {
        let domain = Arc::new(ItsDomain::new(system.its()));
        let request = AllocRequest { managed: true, affinity: CpuSet::of(CpuId(1)), ..gic_rig::request(0) };
        let line = system.core.alloc_line(domain, &request, Flow::FastEoi).expect("a line");
        system.core.request(line, "counts", RequestFlags::default(), counted).expect("a new line");
        let there = system.clone();
        system.on(1, move || there.leave());
        assert!(system.core.view(line).expect("it lives").shutdown);
        system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("INT");
        SimHal.delay_ns(20_000);
        let there = system.clone();
        system.on(1, move || there.come_up());
        SimHal.delay_ns(100_000);
    });
    assert_eq!([0, 1].map(|cpu| count.on(cpu)), [0, 1]);
    rig.finish();
}

/// A managed line that is allocated while its CPU is offline works once that CPU is there.
#[test]
fn a_managed_line_may_be_older_than_its_cpu() {
    for (way, mode) in WAYS {
        let mut rig = Rig::new(way.version(), mode, way.options());
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        let counted = counts.clone();
        rig.run(move |system| {
            let there = system.clone();
            system.on(1, move || there.leave());
            let domain = system.arm.messages().expect("a way of messages").domain().clone();
            let flow = system.arm.messages().expect("a way of messages").flow();
            let request =
                |index| AllocRequest { managed: true, affinity: CpuSet::of(CpuId(1)), ..gic_rig::request(index) };
            let message = system.core.alloc_line(domain, &request(0), flow).expect("a line");
            let wire = system.core.alloc_line(system.arm.domain(), &request(40), system.arm.flow()).expect("a line");
            for (line, count) in [message, wire].into_iter().zip(counted) {
                system.core.request(line, "counts", RequestFlags::default(), count).expect("a new line");
            }
            let there = system.clone();
            system.on(1, move || there.come_up());
            for line in [message, wire] {
                system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("its CPU is there");
            }
            SimHal.delay_ns(100_000);
        });
        assert_eq!(counts.map(|count| [0, 1].map(|cpu| count.on(cpu))), [[0, 1]; 2], "{way:?} {mode:?}");
        rig.finish();
    }
}

/// What stays at a CPU that goes offline goes to the next one that is online: here CPU 0 has gone before.
#[test]
fn events_go_to_a_cpu_that_is_online() {
    let gic = GicConfig { its: Some(ItsConfig::default()), ..GicConfig::default() };
    let mut rig = Rig::new(Version::V3, EoiMode::Split, Options { cpus: 3, gic, ..Options::default() });
    let target = rig.run(|system| {
        let domain = Arc::new(ItsDomain::new(system.its()));
        let request = AllocRequest { managed: true, affinity: CpuSet::of(CpuId(1)), ..gic_rig::request(0) };
        system.core.alloc_line(domain, &request, Flow::FastEoi).expect("a line");
        let off = SimHal.irq_save();
        system.arm.stop_cpu().expect("others are left");
        let over = Arc::new(<machine::Word as hal::Word>::new(0));
        let (there, done) = (system.clone(), over.clone());
        let third = move || {
            let second = there.clone();
            there.on(1, move || second.leave());
            done.set(1);
        };
        SimHal.spawn(gic_rig::spec(2), Box::new(third)).expect("CPU 2 exists");
        while over.load() == 0 {
            SimHal.delay_ns(1_000);
        }
        let target = inspect(system.model, |gic: &Gic, world| gic.translation(world, 0x0100, 0).map(|(_, cpu)| cpu));
        system.come_up();
        SimHal.irq_restore(off);
        target.flatten()
    });
    assert_eq!(target, Some(2));
    rig.finish();
}

/// Defect: a redistributor was taken for this driver's own by the address of its table of configuration alone (GICR_PROPBASER,
/// 70h). An earlier kernel's may have lain there; its table of pending bits (GICR_PENDBASER, 78h) did not.
#[test]
fn an_earlier_kernels_lpis_are_not_taken_for_ones_own() {
    // 2^14 INTIDs of which 2^13 are LPIs, a byte each; inner shareable, write back. A bit for each INTID.
    let earlier = Arc::new(Mutex::new((0, 0)));
    let left = earlier.clone();
    let mut rig = Rig::with(Version::V3, EoiMode::Split, Way::Its.options(), |machine, windows| {
        let frame = windows.redistributors;
        let kernel = move || {
            let pending = SimHal.dma_alloc(1 << 16, 1 << 16).expect("memory");
            let properties = SimHal.dma_alloc(1 << 13, 1 << 12).expect("memory").device_address().0;
            frame.write64(0x70, properties | 0x78d);
            frame.write64(0x78, pending.device_address().0 | 0x780);
            frame.write32(0x00, 1);
            *left.lock().expect("one thread") = (properties, pending.device_address().0);
            std::mem::forget(pending);
        };
        machine.run_boot(Ps::from_ns(1_000_000), kernel).expect("it ends");
    });
    let frame = rig.windows.redistributors;
    let [properties, pending] = rig.run(move |_| [0x70, 0x78].map(|offset| frame.read64(offset) & 0xf_ffff_ffff_f000));
    let (old_properties, old_pending) = *earlier.lock().expect("one thread");
    assert_eq!(properties, old_properties, "else this test shows nothing");
    assert_ne!(pending, old_pending);
    rig.finish();
}

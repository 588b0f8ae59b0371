//! GICv2 (IHI 0048B, tables 4-1 and 4-2: offsets). `d` is the distributor, `c` the CPU interface.

use super::*;
use crate::gic::{EoiMode, GicDomain, GicError, GicV2, MessageSpiDomain};
use hal::CpuId;
use irq::{ChipBehaviour, IrqChipState, IrqError, MsiMessage, Trigger};
use spec::gic::IntId;

/// Two CPUs, 64 INTIDs; CPU 0 has interface 2.
fn gic(mode: EoiMode) -> (Arc<Log>, Arc<GicV2<HostHal>>) {
    let log = Arc::new(Log::default());
    log.answer('d', 0x004, &[0x21]);
    log.answer('d', 0x800, &[0x0404_0404]);
    let gic = GicV2::new(hal(), log.window('d'), log.window('c'), 2, mode).unwrap();
    (log, Arc::new(gic))
}

#[test]
fn setting_up_disables_everything_then_opens_the_interface() {
    let (log, _gic) = gic(EoiMode::Split);
    let log = log.take();
    let spis = ["wd 184 ffffffff", "wd 384 ffffffff", "wd 420 c0c0c0c0"];
    let start = log.iter().position(|access| access == spis[0]).unwrap();
    assert_eq!(log[..start], ["rd 4", "wd 0 0", "rd 800"]);
    assert_eq!(log[start..start + 3], spis);
    assert_eq!(log[start + 10], "wd 820 4040404", "all SPIs to this CPU's interface");
    assert_eq!(log[start + 18..start + 21], ["wd c08 0", "wd c0c 0", "wd 0 1"]);
    let private = ["rd 800", "wd 180 ffffffff", "wd 380 ffffffff", "wd 400 c0c0c0c0"];
    assert_eq!(log[start + 21..start + 25], private);
    let interface = ["wc 0 0", "wc 4 f0", "wc d0 0", "wc d4 0", "wc d8 0", "wc dc 0", "wc 0 201"];
    assert_eq!(log[log.len() - 8], "wd 100 ffff", "software-generated interrupts alone");
    assert_eq!(log[log.len() - 7..], interface, "EOImodeNS is bit 9");
}

#[test]
fn a_gicv2_has_eight_interfaces() {
    let log = Arc::new(Log::default());
    let new = |cpus| GicV2::new(hal(), log.window('d'), log.window('c'), cpus, EoiMode::Together).map(|_| ());
    assert_eq!(new(9), Err(GicError::Cpus(9)));
    assert_eq!(new(0), Err(GicError::Cpus(0)));
    assert_eq!(new(2), Err(GicError::NoInterface(CpuId(0))), "ITARGETSR0 reads 0");
    assert_eq!(new(1), Ok(()), "as it does where there is one CPU");
}

/// IHI 0048B, "GICD_ICFGRn": two bits an interrupt, the upper one 1 for an edge.
#[test]
fn an_spi_that_was_an_edge_comes_up_as_a_level() {
    let (log, gic) = gic(EoiMode::Split);
    let domain = GicDomain::new(gic);
    log.take();
    log.answer('d', 0xc08, &[0x8002_8000, 0x8000_8000]);
    domain.allocate(&request(40)).map(|_| ()).unwrap();
    assert_eq!(log.take(), ["rd c08", "wd c08 80008000", "rd c08"]);
    // One whose trigger is fixed is a line all the same.
    log.answer('d', 0xc08, &[0x0008_0000]);
    assert!(domain.allocate(&request(41)).is_ok());
    log.take();
    domain.allocate(&request(20)).map(|_| ()).unwrap();
    assert_eq!(log.take(), [""; 0], "a private interrupt has its trigger on each CPU");
}

#[test]
fn an_interrupt_is_acknowledged_dropped_and_deactivated() {
    let (log, gic) = gic(EoiMode::Split);
    let (core, _) = core_with_line(Arc::new(GicDomain::new(gic.clone())), 40, gic.flow());
    log.answer('c', 0x0c, &[40, 1023]);
    log.take();
    gic.handle(&core);
    assert_eq!(log.take(), ["rc c", "wc 10 28", "wc 1000 28", "rc c"]);
    assert_eq!(gic.strays(), 0);
}

#[test]
fn with_eoimode_0_one_write_ends_it() {
    let (log, gic) = gic(EoiMode::Together);
    let (core, _) = core_with_line(Arc::new(GicDomain::new(gic.clone())), 40, gic.flow());
    log.answer('c', 0x0c, &[40, 1023]);
    log.take();
    gic.handle(&core);
    assert_eq!(log.take(), ["rc c", "wc 10 28", "rc c"]);
}

#[test]
fn the_end_of_a_software_interrupt_names_its_sender() {
    let (log, gic) = gic(EoiMode::Split);
    let (core, irq) = core_with_line(Arc::new(GicDomain::new(gic.clone())), 5, Flow::PerCpu);
    core.enable_percpu(irq).unwrap();
    log.answer('c', 0x0c, &[0xc05, 0x405, 1023]);
    log.take();
    gic.handle(&core);
    let cycle = |token: &str| [std::format!("wc 10 {token}"), std::format!("wc 1000 {token}")];
    let log: Vec<String> = log.take().into_iter().filter(|access| access.starts_with('w')).collect();
    assert_eq!(log, [cycle("c05"), cycle("405")].concat());
}

#[test]
fn what_nobody_wants_is_disabled_and_ended() {
    let (log, gic) = gic(EoiMode::Split);
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    log.answer('c', 0x0c, &[45, 0x805, 1022]);
    log.take();
    gic.handle(&core);
    let expected = ["rc c", "wd 184 2000", "wc 10 2d", "wc 1000 2d", "rc c", "wc 10 805", "wc 1000 805", "rc c"];
    assert_eq!(log.take(), expected, "1022 is not ended");
    assert_eq!((gic.strays(), gic.last_stray()), (2, Some(IntId(5))));
}

/// `check` found this bug: the stray path disabled an INTID that a new line had taken and enabled in the meantime.
#[test]
fn what_ends_a_stray_leaves_the_next_line_enabled() {
    let (log, gic) = gic(EoiMode::Split);
    let _levels = line(Arc::new(GicDomain::new(gic.clone())), 45, Target::on(CpuId(0)));
    log.take();
    gic.end_stray(IntId(45), false);
    assert_eq!(log.take(), ["wd 184 2000", "wd 104 2000", "wc 10 2d", "wc 1000 2d"]);
    gic.end_stray(IntId(45), true);
    assert_eq!(log.take(), ["wc 10 2d", "wc 1000 2d"], "the line that is being freed is masked");
}

/// A line without a handler is masked. If it were enabled, a raised wire would interrupt without end, since the core believes it
/// masked and does not mask it again.
#[test]
fn what_ends_a_stray_leaves_the_next_line_masked() {
    let (log, gic) = gic(EoiMode::Together);
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    let line = core.alloc_line(Arc::new(GicDomain::new(gic.clone())), &request(45), Flow::FastEoi).unwrap();
    let strays = || {
        log.take();
        gic.end_stray(IntId(45), false);
        log.take()
    };
    assert_eq!(strays(), ["wd 184 2000", "wc 10 2d"]);
    core.request(line, "quiet", Default::default(), Arc::new(Quiet)).unwrap();
    assert_eq!(strays(), ["wd 184 2000", "wd 104 2000", "wc 10 2d"]);
    core.disable_nosync(line).unwrap();
    assert_eq!(strays(), ["wd 184 2000", "wc 10 2d"]);
}

#[test]
fn one_bit_is_written_where_ones_act() {
    let (log, gic) = gic(EoiMode::Split);
    let domain = Arc::new(GicDomain::new(gic));
    let levels = line(domain.clone(), 45, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    // All neighbours are enabled, pending and active, and stay so.
    for offset in [0x104, 0x184, 0x204, 0x284, 0x304, 0x384] {
        log.answer('d', offset, &[0xffff_ffff]);
    }
    log.take();
    chip.mask(&level);
    chip.unmask(&level);
    assert!(chip.retrigger(&level));
    assert_eq!(log.take(), ["wd 184 2000", "wd 104 2000", "wd 204 2000"]);
    for (which, value) in [
        (IrqChipState::Pending, false),
        (IrqChipState::Active, true),
        (IrqChipState::Active, false),
        (IrqChipState::Masked, false),
    ] {
        chip.set_state(&level, which, value).unwrap();
    }
    assert_eq!(log.take(), ["wd 284 2000", "wd 304 2000", "wd 384 2000", "wd 104 2000"]);
    assert_eq!(chip.state(&level, IrqChipState::Active), Ok(true));
    assert_eq!(chip.state(&level, IrqChipState::Masked), Ok(false));
    log.answer('d', 0x204, &[0xffff_dfff]);
    assert_eq!(chip.state(&level, IrqChipState::Pending), Ok(false));
}

#[test]
fn a_line_goes_to_the_interface_of_a_cpu_that_has_started() {
    let (log, gic) = gic(EoiMode::Split);
    let levels = line(Arc::new(GicDomain::new(gic.clone())), 45, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    let there = Target::on(CpuId(1));
    assert_eq!(chip.set_affinity(&level, there), Err(IrqError::Target("GIC", there)));
    assert_eq!(gic.send(IntId(3), CpuId(1)), Err(GicError::NoInterface(CpuId(1))));
    log.answer('d', 0x800, &[0x0101_0101]);
    hal().on_cpu(CpuId(1), || gic.start_cpu()).unwrap();
    log.answer('d', 0x82c, &[0x0404_0404]);
    log.take();
    chip.set_affinity(&level, there).unwrap();
    gic.send(IntId(3), CpuId(1)).unwrap();
    assert_eq!(log.take(), ["rd 82c", "wd 82c 4040104", "wd f00 10003"]);
    assert_eq!(gic.send(IntId(16), CpuId(1)), Err(GicError::NotSoftware(IntId(16))));
    assert_eq!(gic.send(IntId(3), CpuId(2)), Err(GicError::NoCpu(CpuId(2))));
    gic.stop_cpu().unwrap();
}

#[test]
fn a_trigger_is_read_back() {
    let (log, gic) = gic(EoiMode::Together);
    let domain = Arc::new(GicDomain::new(gic));
    let levels = line(domain.clone(), 45, Target::on(CpuId(0)));
    let (spi, level) = chip(&levels);
    log.answer('d', 0xc08, &[0, 0x0800_0000]);
    log.take();
    assert_eq!(spi.set_type(&level, Trigger::EdgeRising), Ok(None));
    assert_eq!(log.take(), ["rd c08", "wd c08 8000000", "rd c08"]);
    assert!(spi.set_type(&level, Trigger::LevelHigh).is_err(), "it stays an edge");
    assert!(matches!(spi.set_type(&level, Trigger::EdgeFalling), Err(IrqError::Undeliverable(_))));
    assert!(matches!(spi.nmi_setup(&level), Err(IrqError::NotSupported(_))));
    let levels = line(domain.clone(), 2, Target::on(CpuId(0)));
    let (sgi, level) = chip(&levels);
    assert!(matches!(sgi.set_type(&level, Trigger::LevelHigh), Err(IrqError::Undeliverable(_))));
    assert!(matches!(sgi.set_affinity(&level, Target::on(CpuId(0))), Err(IrqError::Undeliverable(_))));
}

#[test]
fn software_interrupts_are_pending_once_a_sender() {
    let (log, gic) = gic(EoiMode::Split);
    let levels = line(Arc::new(GicDomain::new(gic)), 6, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    log.take();
    chip.set_state(&level, IrqChipState::Pending, true).unwrap();
    chip.set_state(&level, IrqChipState::Pending, false).unwrap();
    assert_eq!(log.take(), ["wd f24 40000", "wd f14 ff0000"]);
}

#[test]
fn an_intid_is_given_once_and_only_if_it_is_one() {
    let (_, gic) = gic(EoiMode::Split);
    let domain = Arc::new(GicDomain::new(gic));
    let refused = |index| domain.allocate(&request(index)).map(|level| level.hwirq).unwrap_err();
    for beyond in [64, 1020, 1023, 8192, u32::MAX] {
        assert_eq!(refused(beyond), IrqError::Hardware("GIC", "the distributor has no such INTID"), "{beyond}");
    }
    let level = domain.allocate(&request(63)).unwrap();
    assert_eq!(refused(63), IrqError::Hardware("GIC", "the INTID has a line already"));
    domain.release(level.hwirq);
    assert!(domain.allocate(&request(63)).is_ok());
    let nmi = AllocRequest { delivery: irq::DeliveryKind::Nmi, ..request(62) };
    assert!(matches!(domain.allocate(&nmi).map(|_| ()), Err(IrqError::Undeliverable(_))));
}

#[test]
fn a_flow_that_would_leave_a_line_active_for_ever_is_refused() {
    let (_, gic) = gic(EoiMode::Split);
    let domain = Arc::new(GicDomain::new(gic));
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    for flow in [Flow::Edge, Flow::Level, Flow::FastEoi] {
        let refused = core.alloc_line(domain.clone(), &request(40), flow);
        assert_eq!(refused, Err(IrqError::Flow(flow, "an ack or an eoi that ends the interrupt alone")));
    }
    let irq = core.alloc_line(domain.clone(), &request(40), Flow::Strict).unwrap();
    assert!(matches!(core.set_flow(irq, Flow::Edge), Err(IrqError::Flow(Flow::Edge, _))), "nor later");
}

#[test]
fn without_halves_a_flow_without_an_eoi_is_refused() {
    let (_, gic) = gic(EoiMode::Together);
    let domain = Arc::new(GicDomain::new(gic));
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    for flow in [Flow::Edge, Flow::Level, Flow::Strict] {
        assert_eq!(core.alloc_line(domain.clone(), &request(40), flow), Err(IrqError::Flow(flow, "ack")));
    }
}

#[test]
fn what_a_line_leaves_its_successor_does_not_get() {
    let (log, gic) = gic(EoiMode::Split);
    let domain = Arc::new(GicDomain::new(gic));
    let levels = line(domain.clone(), 45, Target::on(CpuId(0)));
    log.take();
    domain.release(levels[0].hwirq);
    assert_eq!(log.take(), ["wd 184 2000", "wd 284 2000"]);
}

/// The core masks a new line at the level that will unmask it. If that is another level, this one must be open.
#[test]
fn a_line_comes_up_closed_where_it_is_masked_and_open_elsewhere() {
    let (log, gic) = gic(EoiMode::Split);
    let domain = Arc::new(GicDomain::new(gic.clone()));
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    log.take();
    core.alloc_line(domain.clone(), &request(40), gic.flow()).unwrap();
    assert_eq!(log.take(), ["rd c08", "wd 184 100", "rd 828", "wd 828 4"], "ICFGR says a level");
    line(domain.clone(), 41, Target::on(CpuId(0)));
    assert_eq!(log.take(), ["rd c08", "rd 828", "wd 828 400", "wd 104 200"]);
}

#[test]
fn a_message_is_the_frames_register_and_the_intid() {
    let (log, gic) = gic(EoiMode::Split);
    log.answer('m', 0x008, &[0x0030_0002]);
    log.answer('d', 0xc0c, &[0, 2]);
    let domain = Arc::new(MessageSpiDomain::v2m(gic.clone(), &log.window('m'), 0x0802_0000).unwrap());
    log.take();
    let levels = line(domain.clone(), 7, Target::on(CpuId(0)));
    let open = ["rd c0c", "wd c0c 2", "rd c0c", "rd 830", "wd 830 4", "wd 104 10000"];
    assert_eq!(log.take(), open, "an edge, to CPU 0, and open: nobody has masked it here");
    let (frame, level) = chip(&levels);
    assert_eq!(frame.compose_message(&level), Ok(MsiMessage { address: 0x0802_0040, data: 48 }));
    assert_eq!(frame.operations().collect::<Vec<_>>(), ["compose_message"], "ack and eoi are the GIC's");
    assert_eq!(frame.behaviour(), ChipBehaviour { oneshot_safe: true, ..ChipBehaviour::default() });
    log.answer('d', 0xc0c, &[2, 0xa]);
    line(domain.clone(), 0, Target::on(CpuId(0)));
    let full = domain.parent().unwrap().allocate(&request(1)).map(|_| ());
    assert_eq!(full, Err(IrqError::Exhausted("SPIs for messages", 2)));
    log.answer('m', 0x008, &[0x003f_0002]);
    let beyond = MessageSpiDomain::v2m(gic.clone(), &log.window('m'), 0).map(|_| ());
    assert_eq!(beyond, Err(GicError::MessageRange(63, 2, 64)));
    log.answer('m', 0x008, &[0x0010_0002]);
    let private = MessageSpiDomain::v2m(gic, &log.window('m'), 0).map(|_| ());
    assert_eq!(private, Err(GicError::MessageRange(16, 2, 64)));
}

//! GICv3 (IHI 0069H, tables of the memory-mapped registers; ARM DDI 0487, encodings of ICC_*). `d` is the distributor,
//! `r` the redistributors, `c` the system registers.

use super::*;
use crate::gic::{Affinity, EoiMode, GicDomain, GicError, GicV3, MessageSpiDomain, Redistributors, RwpPolls};
use hal::CpuId;
use irq::{IrqChipState, IrqError, MsiMessage};
use spec::gic::IntId;

const IAR1: u32 = 0xc660;

fn log() -> Arc<Log> {
    let log = Arc::new(Log::default());
    // 64 INTIDs of 16 bits, messages of both kinds.
    log.answer('d', 0x0004, &[0x007b_0001]);
    log.answer('d', 0xffe8, &[0x30]);
    // CPU 1.0's redistributor comes first, then CPU 0.0's, which is the last.
    log.answer('r', 0x0_0008, &[0x0000_0100_0000_0700]);
    log.answer('r', 0x2_0008, &[0x0000_0000_0000_0110]);
    log.answer('c', 0xc665, &[7]);
    log
}

fn new(log: &Arc<Log>, mode: EoiMode) -> Result<GicV3<HostHal>, GicError> {
    let region = Redistributors { regs: log.window('r'), len_bytes: 0x4_0000, base: 0x080a_0000 };
    GicV3::new(hal(), log.window('d'), [region].into(), log.window('c'), &[Affinity(0), Affinity(0x100)], mode, 16)
}

fn gic(mode: EoiMode) -> (Arc<Log>, Arc<GicV3<HostHal>>) {
    let log = log();
    let gic = Arc::new(new(&log, mode).unwrap());
    (log, gic)
}

#[test]
fn setting_up_routes_by_affinity_before_it_enables() {
    let (log, _) = gic(EoiMode::Split);
    let log = log.take();
    let start = log.iter().position(|access| access == "wd 0 0").unwrap();
    assert_eq!(log[start..start + 5], ["wd 0 0", "rd 0", "wd 0 10", "rd 0", "wd 84 ffffffff"], "RWP behind each");
    let enable = log.iter().position(|access| access == "wd 0 13").unwrap();
    assert_eq!(log[enable - 3..enable], ["wd 61f0 0", "wd 61f8 0", "rd 0"], "the last IROUTER, and RWP");
    assert_eq!(log[enable + 1..enable + 5], ["rr 20014", "wr 20014 0", "rr 20014", "wr 30080 ffffffff"]);
    let private = ["wr 30180 ffffffff", "wr 30380 ffffffff", "wr 30400 c0c0c0c0"];
    assert_eq!(log[enable + 5..enable + 8], private);
    let interface = [
        "rr 20000",
        "wr 30100 ffff",
        "wc c665 1",
        "rc c665",
        "wc c230 f0",
        "wc c663 0",
        "rc c664",
        "wc c648 0",
        "rc c664",
        "wc c664 2",
        "wc c667 1",
    ];
    assert_eq!(log[log.len() - interface.len()..], interface, "EOImode changes behind the active priorities");
}

/// Defect: a set-up behind another one, or behind an earlier kernel's, turned affinity routing off, which is unpredictable (IHI
/// 0069H, "GICD_CTLR", ARE).
#[test]
fn setting_up_never_turns_affinity_routing_off() {
    let log = log();
    log.answer('d', 0x0000, &[0x13]);
    new(&log, EoiMode::Split).unwrap();
    let log = log.take();
    let controls: Vec<_> = log.iter().filter(|access| access.starts_with("wd 0 ")).collect();
    assert_eq!(controls, ["wd 0 10", "wd 0 10", "wd 0 13"]);
}

/// Defect: only the first register was cleared. Priorities of 6 bits have two, those of 7 and 8 four; an access to another is
/// undefined.
#[test]
fn setting_up_clears_the_active_priorities_that_there_are() {
    for (bits, registers) in [(4, 1), (5, 1), (6, 2), (7, 4), (8, 4)] {
        let log = log();
        log.answer('c', 0xc664, &[(bits - 1) << 8]);
        new(&log, EoiMode::Split).unwrap();
        let log = log.take();
        let written: Vec<&str> = ["wc c648 0", "wc c649 0", "wc c64a 0", "wc c64b 0"]
            .into_iter()
            .filter(|clear| log.iter().any(|access| access == clear))
            .collect();
        assert_eq!(written, ["wc c648 0", "wc c649 0", "wc c64a 0", "wc c64b 0"][..registers], "{bits} bits");
    }
}

/// Each register of the shared interrupts is written once.
#[test]
fn setting_up_writes_each_register_once() {
    let log = log();
    log.answer('d', 0x0004, &[0x007b_0003]);
    new(&log, EoiMode::Split).unwrap();
    let log = log.take();
    let writes = |first: u32, last: u32| {
        let offset = |access: &str| u32::from_str_radix(access.strip_prefix("wd ")?.split(' ').next()?, 16).ok();
        log.iter().filter_map(|access| offset(access)).filter(|offset| (first..=last).contains(offset)).count()
    };
    assert_eq!(writes(0x0c08, 0x0cff), 6, "ICFGR: 16 interrupts each");
    assert_eq!(writes(0x6100, 0x7fff), 96, "IROUTER");
}

#[test]
fn a_gic_that_does_not_answer_is_an_error_and_no_hang() {
    let log = log();
    log.answer('d', 0x0000, &[0x8000_0000]);
    assert_eq!(new(&log, EoiMode::Split).err(), Some(GicError::Timeout("GICD_CTLR.RWP = 0", 10_000_000)));
    let log = self::log();
    log.answer('r', 0x2_0014, &[6]);
    assert_eq!(new(&log, EoiMode::Split).err(), Some(GicError::Timeout("GICR_WAKER.ChildrenAsleep = 0", 10_000_000)));
    let log = self::log();
    log.answer('c', 0xc665, &[0]);
    assert_eq!(new(&log, EoiMode::Split).err(), Some(GicError::SystemRegisters));
    let log = self::log();
    log.answer('d', 0xffe8, &[0x20]);
    assert_eq!(new(&log, EoiMode::Split).err(), Some(GicError::Revision(2)));
    let log = self::log();
    log.answer('r', 0x0_0008, &[0x10]);
    assert_eq!(
        new(&log, EoiMode::Split).err(),
        Some(GicError::NoRedistributor(CpuId(1), 0x100)),
        "the first is the last"
    );
}

#[test]
fn an_interrupt_touches_the_cpu_interface_alone() {
    for (mode, cycle) in [
        (EoiMode::Split, ["rc c660", "wc c661 28", "wc c659 28", "rc c660"].as_slice()),
        (EoiMode::Together, &["rc c660", "wc c661 28", "rc c660"]),
        (EoiMode::SplitAtOnce, &["rc c660", "wc c661 28", "wc c659 28", "rc c660"]),
    ] {
        let (log, gic) = gic(mode);
        let (core, _) = core_with_line(Arc::new(GicDomain::new(gic.clone())), 40, gic.flow());
        log.answer('c', IAR1, &[40, 1023]);
        log.take();
        gic.handle(&core);
        assert_eq!(log.take(), cycle, "{mode:?}");
    }
}

/// The polls of Linux until 5.18 (`gic_poke_irq`): after each of these writes, on the frame that was written.
#[test]
fn with_polls_after_every_write_unmasking_and_raising_wait_too() {
    let log = log();
    let gic = Arc::new(new(&log, EoiMode::SplitAtOnce).unwrap().rwp_polls(RwpPolls::Every));
    let domain = Arc::new(GicDomain::new(gic.clone()));
    let levels = line(domain.clone(), 45, Target::on(CpuId(0)));
    let (spi, level) = chip(&levels);
    log.answer('d', 0x0000, &[0x13]);
    log.take();
    spi.mask(&level);
    spi.unmask(&level);
    assert_eq!(log.take(), ["wd 184 2000", "rd 0", "wd 104 2000", "rd 0"]);
    spi.set_state(&level, IrqChipState::Pending, true).unwrap();
    spi.set_state(&level, IrqChipState::Active, false).unwrap();
    assert_eq!(log.take(), ["wd 204 2000", "rd 0", "wd 384 2000", "rd 0"]);
    let levels = line(domain, 27, Target::on(CpuId(0)));
    let (ppi, level) = chip(&levels);
    log.take();
    ppi.unmask(&level);
    assert_eq!(log.take(), ["wr 30100 8000000", "rr 20000"], "the redistributor's RWP");
}

#[test]
fn masking_waits_until_it_is_so_and_unmasking_does_not() {
    let (log, gic) = gic(EoiMode::Split);
    let domain = Arc::new(GicDomain::new(gic.clone()));
    let levels = line(domain.clone(), 45, Target::on(CpuId(0)));
    let (spi, level) = chip(&levels);
    log.answer('d', 0x0000, &[0x8000_0013, 0x8000_0013, 0x13]);
    log.take();
    spi.mask(&level);
    spi.unmask(&level);
    assert_eq!(log.take(), ["wd 184 2000", "rd 0", "rd 0", "rd 0", "wd 104 2000"]);
    let levels = line(domain.clone(), 27, Target::on(CpuId(0)));
    let (ppi, level) = chip(&levels);
    log.take();
    ppi.mask(&level);
    ppi.unmask(&level);
    assert_eq!(log.take(), ["wr 30180 8000000", "rr 20000", "wr 30100 8000000"], "this CPU's redistributor");
    hal().on_cpu(CpuId(1), || ppi.unmask(&level));
    assert_eq!(log.take(), ["wr 10100 8000000"]);
    assert_eq!(gic.late_writes(), 0);
    log.answer('d', 0x0000, &[0x8000_0013]);
    spi.set_state(&Level::new(Irq(0), &levels), IrqChipState::Masked, true).unwrap();
    assert_eq!(gic.late_writes(), 0, "that was the PPI's");
}

#[test]
fn a_mask_that_never_takes_effect_is_recorded() {
    let (log, gic) = gic(EoiMode::Split);
    let levels = line(Arc::new(GicDomain::new(gic.clone())), 45, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    log.answer('d', 0x0000, &[0x8000_0013]);
    chip.mask(&level);
    assert_eq!(gic.late_writes(), 1);
}

#[test]
fn an_lpi_without_a_line_is_ended_and_never_deactivated() {
    let (log, gic) = gic(EoiMode::Split);
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    log.answer('c', IAR1, &[8200, 0x00ff_ffff, 1020]);
    log.take();
    gic.handle(&core);
    assert_eq!(log.take(), ["rc c660", "wc c661 2008", "rc c660", "wc c661 ffffff", "rc c660"]);
    assert_eq!((gic.strays(), gic.last_stray()), (2, Some(IntId(0xff_ffff))));
}

#[test]
fn an_interrupt_beyond_the_distributor_disables_nothing() {
    let (log, gic) = gic(EoiMode::Split);
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    log.answer('c', IAR1, &[1019, 5000, 1023]);
    log.take();
    gic.handle(&core);
    let expected = ["rc c660", "wc c661 3fb", "wc c659 3fb", "rc c660", "wc c661 1388", "rc c660"];
    assert_eq!(log.take(), expected, "5000 is of a range that is left out, and would be deactivated if it were active");
}

#[test]
fn a_pseudo_nmi_masks_the_others_while_it_is_taken() {
    let (log, gic) = gic(EoiMode::Split);
    let levels = line(Arc::new(GicDomain::new(gic.clone())), 45, Target::on(CpuId(0)));
    let (spi, level) = chip(&levels);
    log.answer('d', 0x42c, &[0xc0c0_c0c0, 0xc0c0_80c0]);
    log.take();
    spi.nmi_setup(&level).unwrap();
    spi.nmi_teardown(&level);
    assert_eq!(log.take(), ["rd 42c", "wd 42c c0c080c0", "rd 42c", "wd 42c c0c0c0c0"]);
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    log.answer('c', 0xc230, &[0xf0]);
    log.answer('c', IAR1, &[1023]);
    gic.handle_pseudo_nmi(&core);
    assert_eq!(log.take(), ["rc c230", "wc c230 c0", "rc c660", "wc c230 f0"]);
}

#[test]
fn affinities_are_routes_and_targets() {
    let (log, gic) = gic(EoiMode::Split);
    let levels = line(Arc::new(GicDomain::new(gic.clone())), 45, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    log.take();
    chip.set_affinity(&level, Target::on(CpuId(1))).unwrap();
    gic.send(IntId(7), CpuId(1)).unwrap();
    assert_eq!(log.take(), ["wd 6168 100", "wc c65d 7010001"]);
    let nowhere = Target::on(CpuId(2));
    assert_eq!(chip.set_affinity(&level, nowhere), Err(IrqError::Target("GIC", nowhere)));
    assert_eq!(gic.send(IntId(7), CpuId(2)), Err(GicError::NoCpu(CpuId(2))));
}

#[test]
fn level_0_above_15_needs_a_range_selector() {
    let log = log();
    log.answer('r', 0x2_0008, &[0x0000_0025_0000_0110]);
    let region = Redistributors { regs: log.window('r'), len_bytes: 0x4_0000, base: 0 };
    let gic =
        GicV3::new(hal(), log.window('d'), [region].into(), log.window('c'), &[Affinity(0x25)], EoiMode::Split, 0)
            .unwrap();
    assert_eq!(gic.send(IntId(1), CpuId(0)), Err(GicError::Range(CpuId(0))));
    log.answer('d', 0x0004, &[0x047b_0001]);
    log.take();
    gic.send(IntId(1), CpuId(0)).unwrap();
    assert_eq!(log.take().last().unwrap(), "wc c65d 200001000020");
}

/// No redistributor has Last set: the driver reads nothing beyond the window, and the error names the missing CPU.
#[test]
fn redistributors_are_looked_for_within_their_window_only() {
    for (len_bytes, affinity, found) in
        [(0x5_ffff, 0, true), (0x4_0000, 0, true), (0x3_ffff, 0x100, true), (0x3_ffff, 0, false), (0, 0x100, false)]
    {
        let log = log();
        log.answer('r', 0x2_0008, &[0x0000_0000_0000_0100]);
        let region = Redistributors { regs: log.window('r'), len_bytes, base: 0 };
        let gic = GicV3::new(
            hal(),
            log.window('d'),
            [region].into(),
            log.window('c'),
            &[Affinity(affinity)],
            EoiMode::Split,
            0,
        );
        let missing = GicError::NoRedistributor(CpuId(0), affinity);
        assert_eq!(gic.err(), (!found).then_some(missing), "{len_bytes:#x}");
        let beyond = |access: &String| {
            let mut words = access.split(' ');
            let offset = u32::from_str_radix(words.nth(1).unwrap(), 16).unwrap();
            access.starts_with("rr") && offset >= len_bytes
        };
        assert!(!log.take().iter().any(beyond), "{len_bytes:#x}");
    }
}

#[test]
fn a_cpu_that_goes_closes_its_interface_and_sleeps() {
    let (log, gic) = gic(EoiMode::Split);
    log.answer('r', 0x2_0014, &[0, 2, 6]);
    log.take();
    gic.stop_cpu().unwrap();
    assert_eq!(log.take(), ["wc c667 0", "rr 20014", "wr 20014 2", "rr 20014", "rr 20014"]);
}

#[test]
fn a_message_is_the_distributors_register() {
    let (log, gic) = gic(EoiMode::Split);
    log.answer('d', 0xc0c, &[0, 2]);
    let domain = Arc::new(MessageSpiDomain::mbi(gic.clone(), 0x0800_0000, IntId(48), 8).unwrap());
    let levels = line(domain.clone(), 0, Target::on(CpuId(1)));
    let (mbi, level) = chip(&levels);
    assert_eq!(mbi.compose_message(&level), Ok(MsiMessage { address: 0x0800_0040, data: 48 }));
    assert!(MessageSpiDomain::mbi(gic, 0, IntId(60), 8).is_err());
    let log = self::log();
    log.answer('d', 0x0004, &[0x007a_0001]);
    let without = Arc::new(new(&log, EoiMode::Split).unwrap());
    let refused = MessageSpiDomain::mbi(without, 0, IntId(48), 8).err();
    assert_eq!(refused, Some(GicError::Missing("message-based SPIs (GICD_TYPER.MBIS)")));
}

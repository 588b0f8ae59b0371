//! LPIs that an earlier kernel left enabled (IHI 0069H, "GICR_TYPER", CommonLPIAff in bits 25:24; "GICR_PROPBASER").

use super::*;

/// What setting LPIs up on CPU 0.0.0.0 accesses where redistributors of these GICR_TYPER follow its own, whose GICR_CTLR read
/// these values in turn. Its own GICR_TYPER has this CommonLPIAff.
fn setting_up(common: u64, others: &[(u64, &[u64])]) -> (Result<(), GicError>, Vec<String>) {
    let log = Arc::new(Log::default());
    log.answer('d', 0x0004, &[0x007b_0001]);
    log.answer('d', 0xffe8, &[0x30]);
    log.answer('c', 0xc665, &[7]);
    log.answer('r', 0x0_0008, &[common << 24]);
    log.answer('r', 0x0_0070, &[0x400]);
    for (&(kind, control), base) in others.iter().zip((0x2_0000..).step_by(0x2_0000)) {
        log.answer('r', base + 8, &[kind]);
        log.answer('r', base, control);
    }
    let len_bytes = 0x2_0000 * (others.len() as u32 + 1);
    let region = Redistributors { regs: log.window('r'), len_bytes, base: 0x080a_0000 };
    let (distributor, icc) = (log.window('d'), log.window('c'));
    let gic = GicV3::new(hal(), distributor, [region].into(), icc, &[Affinity(0)], EoiMode::Split, 64).unwrap();
    log.take();
    let made = Lpis::new(hal(), Arc::new(gic)).map(drop);
    (made, log.take())
}

/// Defect: each redistributor was disabled when its own CPU came up, and the first got another table than its group still used.
/// Those of CPUs that this kernel does not start were never disabled.
#[test]
fn all_that_share_a_table_are_disabled_before_the_first_gets_another() {
    let (made, log) = setting_up(0, &[(0x0000_0001_0000_0100, &[1, 1, 0]), (0x0100_0000_0000_0210, &[1, 1, 8, 0])]);
    assert_eq!(made, Ok(()));
    let table = log.iter().position(|access| access.starts_with("wr 70 ")).unwrap();
    let group = ["rr 20000", "rr 20000", "wr 20000 0", "rr 20000", "rr 20000"];
    let last = ["rr 40000", "rr 40000", "wr 40000 0", "rr 40000", "rr 40000", "rr 40000"];
    assert_eq!(log[1..12], [&group[..], &last].concat(), "RWP behind each");
    assert!(table >= 12, "{log:?}");
}

#[test]
fn a_redistributor_of_another_group_is_left_alone() {
    // Groups of equal affinity level 3; of levels 3 and 2; of levels 3 to 1.
    for (common, within, beyond) in [(1, 0xff_ffff, 0x100_0000), (2, 0xffff, 0x1_0000), (3, 0xff, 0x100)] {
        let kind = |affinity: u64| affinity << 32 | common << 24;
        let (made, log) = setting_up(common, &[(kind(within), &[1, 1, 0]), (kind(beyond) | 0x10, &[1])]);
        assert_eq!(made, Ok(()));
        assert!(log.iter().any(|access| access == "wr 20000 0"), "CommonLPIAff {common}: {log:?}");
        assert!(!log.iter().any(|access| access[1..].starts_with("r 40000")), "CommonLPIAff {common}: {log:?}");
    }
}

#[test]
fn no_table_is_given_to_a_group_of_which_one_stays_enabled() {
    let (made, log) = setting_up(0, &[(0x0002_0304_0000_0110, &[1])]);
    assert_eq!(made, Err(GicError::LpisEnabled(0x0002_0304)));
    assert!(!log.iter().any(|access| access.starts_with("wr 70 ")), "{log:?}");
    let late = setting_up(0, &[(0x0002_0304_0000_0110, &[9])]).0;
    assert_eq!(late, Err(GicError::Timeout("GICR_CTLR.RWP = 0", 10_000_000)));
}

//! How long the tables of LPIs stay allocated.

use super::*;

/// The address in the newest write that begins with `register`.
fn table(log: &[String], register: &str) -> DeviceAddress {
    let word = log.iter().rev().find_map(|access| access.strip_prefix(register)).expect("the redistributor has it");
    DeviceAddress(u64::from_str_radix(word, 16).unwrap() & 0xf_ffff_ffff_f000)
}

/// An ITS does not come up. Then the redistributor's GICR_CTLR reads these values in turn. Which of its tables are there
/// behind it, and what was written to GICR_CTLR.
fn after_an_its_that_fails(control: &[u64], is_shared: bool) -> ([bool; 2], Vec<String>) {
    let rig = rig();
    let log = rig.log.take();
    let tables = ["wr 70 ", "wr 78 "].map(|register| table(&log, register));
    rig.log.answer('r', 0x0_0000, control);
    rig.log.answer('i', 0x00, &[0]);
    let Rig { gic, lpis, log, fake, .. } = rig;
    let others = if is_shared { Some(lpis.clone()) } else { None };
    assert!(Its::new(hal(), HostRegs::new(fake), lpis, CONFIG).is_err(), "it does not get quiet");
    drop((others, gic));
    let writes = log.take().into_iter().filter(|access| access.starts_with("wr 0 ")).collect();
    (tables.map(|table| hal().dma_at(table).is_some()), writes)
}

/// Defect: an ITS that failed took the tables with it, although the redistributor used them.
#[test]
fn the_tables_of_a_redistributor_that_stays_enabled_outlive_an_its_that_fails() {
    assert_eq!(after_an_its_that_fails(&[1], false), ([true; 2], ["wr 0 0".into()].into()));
}

/// Defect: so they did where LPIs can be disabled.
#[test]
fn a_redistributor_is_disabled_and_its_tables_freed_where_an_its_fails() {
    assert_eq!(after_an_its_that_fails(&[1, 1, 0], false), ([false; 2], ["wr 0 0".into()].into()));
}

#[test]
fn an_its_that_fails_leaves_lpis_on_for_their_other_owners() {
    assert_eq!(after_an_its_that_fails(&[1, 1, 0], true), ([true; 2], [].into()));
}

#[test]
fn the_tables_of_a_redistributor_that_was_not_enabled_are_freed() {
    let rig = rig();
    rig.log.answer('r', 0x0_0070, &[0]);
    assert!(Lpis::new(hal(), rig.gic.clone()).is_err(), "it does not snoop");
    assert!(hal().dma_at(table(&rig.log.take(), "wr 70 ")).is_none());
}

//! How long the tables of LPIs stay allocated.

use super::*;

/// The address in the newest write that begins with `register`.
fn table(log: &[String], register: &str) -> DeviceAddress {
    let word = log.iter().rev().find_map(|access| access.strip_prefix(register)).expect("the redistributor has it");
    DeviceAddress(u64::from_str_radix(word, 16).unwrap() & 0xf_ffff_ffff_f000)
}

/// What was written to the redistributor's GICR_CTLR.
fn controls(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|access| access.starts_with("wr 0 ")).collect()
}

/// An ITS does not come up. Then the redistributor's GICR_CTLR reads these values in turn. Which of its tables are there
/// behind it, and what was written to GICR_CTLR.
fn after_an_its_that_fails(control: &[u64]) -> ([bool; 2], Vec<String>) {
    let rig = rig();
    let log = rig.log.take();
    let tables = ["wr 70 ", "wr 78 "].map(|register| table(&log, register));
    rig.log.answer('r', 0x0_0000, control);
    rig.log.answer('i', 0x00, &[0]);
    let Rig { gic, lpis, log, fake, .. } = rig;
    assert!(Its::new(hal(), HostRegs::new(fake), lpis, CONFIG).is_err(), "it does not get quiet");
    drop(gic);
    (tables.map(|table| hal().dma_at(table).is_some()), controls(&log))
}

/// Defect: an ITS that failed took the tables with it, although the redistributor used them.
#[test]
fn the_tables_of_a_redistributor_that_stays_enabled_outlive_an_its_that_fails() {
    assert_eq!(after_an_its_that_fails(&[1]), ([true; 2], ["wr 0 0".into()].into()));
}

/// Defect: so they did where LPIs can be disabled.
#[test]
fn a_redistributor_is_disabled_and_its_tables_freed_where_an_its_fails() {
    assert_eq!(after_an_its_that_fails(&[1, 1, 0]), ([false; 2], ["wr 0 0".into()].into()));
}

#[test]
fn an_its_that_fails_leaves_lpis_on_for_another() {
    let rig = rig();
    let other = rig.its().unwrap();
    rig.log.take();
    rig.log.answer('i', 0x00, &[0]);
    assert!(rig.its().is_err(), "it does not get quiet");
    assert_eq!(controls(&rig.log), [""; 0]);
    drop(other);
}

/// Defect: any other reference to the LPIs kept them enabled, and their tables allocated for good.
#[test]
fn an_its_that_fails_disables_lpis_whoever_else_has_them() {
    let rig = rig();
    let tables = ["wr 70 ", "wr 78 "].map({
        let log = rig.log.take();
        move |register| table(&log, register)
    });
    rig.log.answer('r', 0x0_0000, &[1, 1, 0]);
    rig.log.answer('i', 0x00, &[0]);
    assert!(rig.its().is_err(), "it does not get quiet");
    assert_eq!(controls(&rig.log), ["wr 0 0"]);
    assert!(tables.iter().all(|&table| hal().dma_at(table).is_some()), "their owner may try again");
    drop(rig);
    assert!(tables.iter().all(|&table| hal().dma_at(table).is_none()));
}

#[test]
fn an_its_behind_one_that_failed_has_lpis_again() {
    let rig = rig();
    rig.log.answer('i', 0x00, &[0]);
    assert!(rig.its().is_err(), "it does not get quiet");
    rig.log.answer('i', 0x00, &[0x8000_0000]);
    rig.log.take();
    rig.its().unwrap();
    assert_eq!(controls(&rig.log), ["wr 0 1"]);
}

#[test]
fn the_tables_of_a_redistributor_that_was_not_enabled_are_freed() {
    let rig = rig();
    rig.log.answer('r', 0x0_0070, &[0]);
    assert!(Lpis::new(hal(), rig.gic.clone()).is_err(), "it does not snoop");
    assert!(hal().dma_at(table(&rig.log.take(), "wr 70 ")).is_none());
}

//! How long the tables of LPIs stay allocated.

use super::*;

/// The address in the newest write that begins with `register`.
fn table(log: &[String], register: &str) -> DeviceAddress {
    let word = log.iter().rev().find_map(|access| access.strip_prefix(register)).expect("the redistributor has it");
    DeviceAddress(u64::from_str_radix(word, 16).unwrap() & 0xf_ffff_ffff_f000)
}

/// Defect: an ITS that failed took the tables with it, although the redistributor used them.
#[test]
fn the_tables_of_an_enabled_redistributor_outlive_an_its_that_fails() {
    let rig = rig();
    let log = rig.log.take();
    rig.log.answer('i', 0x00, &[0]);
    assert!(rig.its().is_err(), "it does not get quiet");
    let Rig { gic, lpis, .. } = rig;
    drop((lpis, gic));
    let is_there = ["wr 70 ", "wr 78 "].map(|register| hal().dma_at(table(&log, register)).is_some());
    assert_eq!(is_there, [true; 2]);
}

#[test]
fn the_tables_of_a_redistributor_that_was_not_enabled_are_freed() {
    let rig = rig();
    rig.log.answer('r', 0x0_0070, &[0]);
    assert!(Lpis::new(hal(), rig.gic.clone()).is_err(), "it does not snoop");
    assert!(hal().dma_at(table(&rig.log.take(), "wr 70 ")).is_none());
}

//! An ITS that does not answer, or answers nonsense.

use super::*;

#[test]
fn an_its_that_stops_is_an_error_and_no_hang() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    *rig.fake.frozen.lock().unwrap() = true;
    let there = Target::on(CpuId(1));
    for _ in 0..2 {
        let late = Err(IrqError::Hardware("GIC", "GITS_CREADR = GITS_CWRITER"));
        assert_eq!(chip.set_affinity(&level, there), late);
    }
    *rig.fake.frozen.lock().unwrap() = false;
    rig.fake.commands();
    let reader = rig.fake.state.lock().unwrap().1;
    rig.fake.follow(reader + 3 * 32);
    assert_eq!(opcodes(&rig.fake.commands()), [0x01, 0x05, 0x05], "it comes to it at last, and to nothing else");
    assert_eq!(chip.set_affinity(&level, there), Ok(()));
}

/// The ITS may map the device yet, and then reads the table.
#[test]
fn the_table_of_a_device_that_was_not_mapped_in_time_stays() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    *rig.fake.frozen.lock().unwrap() = true;
    let reader = rig.fake.state.lock().unwrap().1;
    let late = domain.allocate(&request(0)).err();
    assert_eq!(late, Some(IrqError::Hardware("GIC", "GITS_CREADR = GITS_CWRITER")));
    *rig.fake.frozen.lock().unwrap() = false;
    rig.fake.follow(reader + 32);
    let commands = rig.fake.commands();
    assert_eq!(opcodes(&commands), [0x08]);
    // "MAPD": ITT_addr, bits 51:8 of the third word.
    let table = DeviceAddress(commands[0][2] & 0xf_ffff_ffff_ff00);
    assert!(hal().dma_at(table).is_some(), "{table:?} is nobody else's");
}

#[test]
fn an_its_that_stops_outside_of_its_queue_is_an_error() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    *rig.fake.frozen.lock().unwrap() = true;
    // GITS_CREADR, Offset (bits 19:5): the queue ends at 1000h.
    rig.fake.state.lock().unwrap().1 = 0xf_ffe0 | STALLED;
    let refused = Err(IrqError::Hardware("GIC", "the ITS refused a command"));
    assert_eq!(chip.set_affinity(&level, Target::on(CpuId(1))), refused);
}

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

/// "MAPD" with V = 0 may be done yet, and then the ITS knows no event of the device.
#[test]
fn a_device_that_the_its_may_have_unmapped_is_mapped_before_its_next_event() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
    let first = rig.fake.commands()[0];
    *rig.fake.frozen_after.lock().unwrap() = Some(2);
    domain.release(levels[0].hwirq);
    domain.parent().unwrap().release(levels[1].hwirq);
    assert_eq!(opcodes(&rig.fake.commands()), [0x0f, 0x05], "DISCARD, SYNC, and silence");
    (*rig.fake.frozen.lock().unwrap(), *rig.fake.frozen_after.lock().unwrap()) = (false, None);
    let reader = rig.fake.state.lock().unwrap().1;
    rig.fake.follow(reader + 32);
    line(domain.clone(), 0, Target::on(CpuId(0)));
    let commands = rig.fake.commands();
    assert_eq!(opcodes(&commands), [0x08, 0x08, 0x0a, 0x0c, 0x05], "unmapped late, then MAPD, MAPTI, INV, SYNC");
    assert_eq!((commands[0][2] >> 63, commands[1][2] >> 63), (0, 1), "valid again");
    assert_ne!(commands[1][2], first[2], "with a table that nothing is left in");
}

/// An ITS that is enabled uses the tables that it was given.
#[test]
fn an_its_without_its_first_cpu_is_stopped_before_its_tables_are_freed() {
    for stops in [true, false] {
        let rig = rig();
        *rig.fake.frozen.lock().unwrap() = true;
        // GITS_CTLR.Quiescent at the start, and when it is to stop.
        rig.log.answer('i', 0x00, if stops { &[0x8000_0000] } else { &[0x8000_0000, 0] });
        rig.log.take();
        assert_eq!(rig.its().err(), Some(GicError::Timeout("GITS_CREADR = GITS_CWRITER", 100_000_000)));
        let controls = rig.log.take().into_iter().filter(|access| access.starts_with("wi 0 ")).collect::<Vec<_>>();
        assert_eq!(controls, ["wi 0 0", "wi 0 1", "wi 0 0"]);
        // GITS_BASER0, Physical_Address (bits 47:12); GITS_CBASER likewise.
        let state = *rig.fake.state.lock().unwrap();
        for register in [state.0, state.2] {
            let kept = hal().dma_at(DeviceAddress(register & 0xffff_ffff_f000)).is_some();
            assert_eq!(kept, !stops, "{register:#x}");
        }
    }
}

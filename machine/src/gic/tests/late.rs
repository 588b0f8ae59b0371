//! What unrest makes late in a GIC, each by its own kind and as far as the manual allows.

use super::message::{Bench, TRANSLATER, machine_with, run, with_its};
use super::{GicConfig, v3};
use crate::gic::Gic;
use crate::inspect;
use crate::time::Ps;
use crate::unrest::{Chance, Kind, Unrest};
use crate::{Interrupts, Machine, MachineConfig, SimHal};
use hal::{Hal, Regs as _};

/// Always and only `kind`.
fn only(kind: Kind, longest: Ps) -> Option<Unrest> {
    let none = Unrest { chances: [Chance::default(); Kind::COUNT], ..Unrest::new(1) };
    Some(none.with(kind, Chance { per_mille: 1_000, longest }))
}

/// IHI 0069H, "SYNC": the redistributor's operations are observed before any further command. Without one they may be late.
#[test]
fn a_command_acts_on_a_redistributor_late_up_to_a_sync_that_names_it() {
    let unrest = only(Kind::LateCommand, Ps::from_ns(500_000));
    let (machine, gic, _) = machine_with(with_its(), 2, TRANSLATER, unrest);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        bench.map();
        // INT, and SYNC of CPU 1.
        bench.command([0x0000_0100_0000_0003, 5, 0, 0]);
        bench.command([5, 0, 0x1_0000, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023, "nobody waited for CPU 0's redistributor");
        bench.command([5, 0, 0, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 8200);
        // CLEAR and INT stay in order without a SYNC between them.
        bench.command([0x0000_0100_0000_0004, 5, 0, 0]);
        bench.command([0x0000_0100_0000_0003, 5, 0, 0]);
        bench.command([5, 0, 0, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 8200);
        // At the latest after their time.
        bench.command([0x0000_0100_0000_0004, 5, 0, 0]);
        SimHal.delay_ns(500_000);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
        gic.its.write32(0x0000, 0);
        assert_eq!(gic.its.read32(0x0000), 0x8000_0000, "quiescent again");
    });
    assert_eq!(faults, []);
}

/// IHI 0069H, "GITS_CREADR": it tells how far the ITS is, and nothing says when it must be further.
#[test]
fn a_silent_its_stands_still_and_then_does_all_its_commands() {
    for last_words in [0, 1, 2] {
        let (mut machine, gic, _) = machine_with(with_its(), 2, TRANSLATER, None);
        machine.set_its_silent(Ps::from_ns(200_000), last_words);
        let faults = run(machine, move || {
            let mut bench = Bench::new(gic);
            // MAPC, SYNC.
            bench.begin([9, 0, 0x8000_0000_0000_0002, 0]);
            SimHal.delay_ns(1_000);
            bench.begin([5, 0, 0, 0]);
            SimHal.delay_ns(150_000);
            assert_eq!(gic.its.read64(0x0090), u64::from(last_words) * 32, "neither stalled nor further");
            SimHal.delay_ns(60_000);
            assert_eq!(gic.its.read64(0x0090), 2 * 32);
            bench.map();
        });
        assert_eq!(faults, []);
    }
}

/// IHI 0069H, "SYNC": until then a command is not done, and a checker can see that. An INT moves nothing, and INVs come for
/// all LPIs at once.
#[test]
fn a_command_is_awaited_until_its_redistributor_is_synchronized() {
    let unrest = only(Kind::LateCommand, Ps::from_ns(500_000));
    let (machine, gic, _) = machine_with(with_its(), 2, TRANSLATER, unrest);
    let faults = run(machine, move || {
        let awaits = |intid| inspect(gic.model, |gic: &Gic, _| gic.awaits_command(intid));
        let mut bench = Bench::new(gic);
        bench.map();
        let [movi, interrupt, clear, inv] = [1, 3, 4, 0xc].map(|opcode| [0x0000_0100_0000_0000 | opcode, 5, 2, 0]);
        for (command, counts) in [(interrupt, false), (clear, true), (inv, false), (movi, true)] {
            bench.command([5, 0, 0, 0]);
            assert_eq!(awaits(8200), Some(false));
            bench.command(command);
            assert_eq!((awaits(8200), awaits(8201)), (Some(counts), Some(false)), "{command:x?}");
        }
        // Of the other CPU: the LPI may still be taken where it was.
        bench.command([5, 0, 0x1_0000, 0]);
        assert_eq!(awaits(8200), Some(true));
        bench.command([5, 0, 0, 0]);
        assert_eq!(awaits(8200), Some(false));
    });
    assert_eq!(faults, []);
}

/// IHI 0069H, "DISCARD": the LPI may be taken until a SYNC, and an event that is mapped in between is not forgotten.
#[test]
fn a_discard_is_late_and_spares_what_is_mapped_behind_it() {
    let unrest = only(Kind::LateCommand, Ps::from_ns(500_000));
    let (machine, gic, _) = machine_with(with_its(), 2, TRANSLATER, unrest);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        bench.map();
        let [interrupt, discard] = [3, 0xf].map(|opcode| [0x0000_0100_0000_0000 | opcode, 5, 0, 0]);
        let sync = [5, 0, 0, 0];
        [interrupt, sync, discard].into_iter().for_each(|command| bench.command(command));
        assert_eq!(gic.cpu_interface.read64(0xc662), 8200, "nobody waited");
        bench.command(sync);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
        bench.map();
        [discard].into_iter().for_each(|command| bench.command(command));
        bench.map();
        [sync, interrupt, sync].into_iter().for_each(|command| bench.command(command));
        assert_eq!(gic.cpu_interface.read64(0xc662), 8200, "it has its configuration");
    });
    assert_eq!(faults, []);
}

/// A machine whose CPU 0 takes SPI 40; how long RWP stays set after it is disabled, and what may be acknowledged then.
fn disable(unrest: Option<Unrest>) -> (u64, u64) {
    let Interrupts::GicV3(config) = v3() else { unreachable!("it is one") };
    let interrupts = Interrupts::GicV3(GicConfig { write_pending_time: Ps::from_ns(50), ..config });
    let mut machine = Machine::new(MachineConfig { interrupts, unrest, ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    let test = move || {
        let _off = SimHal.irq_save();
        super::v3::bring_up(gic, 0);
        gic.distributor.write32(0x084, 1 << 8);
        gic.distributor.write32(0x104, 1 << 8);
        gic.distributor.write32(0x184, 1 << 8);
        let start = SimHal.now_ns();
        gic.distributor.write32(0x204, 1 << 8);
        let signalled = gic.cpu_interface.read64(0xc662);
        while gic.distributor.read32(0x000) >> 31 == 1 {
            SimHal.delay_ns(10);
        }
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023, "RWP is clear");
        (SimHal.now_ns() - start, signalled)
    };
    machine.run_boot(Ps::from_ns(1_000_000), test).expect("it ends")
}

/// IHI 0069H, "GICD_CTLR", RWP.
#[test]
fn a_disable_is_late_as_long_as_rwp_says_so() {
    let (usual, signalled) = disable(None);
    assert!(usual < 100 && signalled == 40, "{usual} ns, {signalled}");
    let (late, signalled) = disable(only(Kind::LateDisable, Ps::from_ns(4_000)));
    assert!((100..=4_100).contains(&late) && signalled == 40, "{late} ns, {signalled}");
}

/// Arm ARM, "Device memory": with early acknowledgement a write arrives after its CPU has gone on, in order, and before a
/// read of the same peripheral.
#[test]
fn a_write_to_a_far_frame_is_late_and_a_read_pushes_it() {
    let unrest = only(Kind::LateWrite, Ps::from_ns(10_000));
    let mut machine = Machine::new(MachineConfig { interrupts: v3(), unrest, ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    let test = move || {
        let _off = SimHal.irq_save();
        super::v3::bring_up(gic, 0);
        gic.distributor.write32(0x084, 1 << 8);
        gic.distributor.write32(0x104, 1 << 8);
        gic.distributor.read32(0x000);
        gic.distributor.write32(0x204, 1 << 8);
        let before = gic.cpu_interface.read64(0xc662);
        assert_eq!(gic.distributor.read32(0x204), 1 << 8);
        (before, gic.cpu_interface.read64(0xc662))
    };
    assert_eq!(machine.run_boot(Ps::from_ns(1_000_000), test), Ok((1023, 40)));
}

//! GICv2 (IHI 0048B).

use super::{v2, with_registers};
use crate::gic::GicWindows;
use hal::{Hal as _, Regs as _, Threads};

/// Enables the distributor and CPU 0's interface (`control`) for all priorities. Enables SPI 40 for CPU 0 with
/// priority A0h.
fn bring_up(gic: GicWindows, control: u32) {
    gic.cpu_interface.write32(0x004, 0xf0);
    gic.cpu_interface.write32(0x000, control);
    gic.distributor.write32(0x428, 0x0000_00a0);
    gic.distributor.write32(0x828, 0x0000_0001);
    gic.distributor.write32(0x104, 1 << 8);
    gic.distributor.write32(0x000, 1);
}

#[test]
fn identification() {
    let faults = with_registers(v2(), 3, |gic| {
        // One more block of 32 INTIDs than the private ones, three CPUs.
        assert_eq!(gic.distributor.read32(0x004), 0x0000_0041);
        assert_eq!(gic.distributor.read32(0xfe8) >> 4 & 0xf, 2);
        assert_eq!(gic.cpu_interface.read32(0x0fc) >> 16 & 0xf, 2);
    });
    assert_eq!(faults, []);
}

/// "Interrupt handling state machine": inactive, pending, active, inactive.
#[test]
fn an_edge_goes_from_pending_to_active_to_inactive() {
    let faults = with_registers(v2(), 1, |gic| {
        bring_up(gic, 1);
        gic.distributor.write32(0xc08, 0x0002_0000);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.distributor.read32(0x204), 1 << 8, "pending");
        assert_eq!(gic.cpu_interface.read32(0x018), 40, "HPPIR takes nothing");
        assert_eq!(gic.cpu_interface.read32(0x014), 0xff, "idle");
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
        assert_eq!((gic.distributor.read32(0x204), gic.distributor.read32(0x304)), (0, 1 << 8), "active");
        assert_eq!(gic.cpu_interface.read32(0x014), 0xa0, "running priority");
        assert_eq!(gic.cpu_interface.read32(0x00c), 1023, "no second one");
        gic.cpu_interface.write32(0x010, 40);
        assert_eq!((gic.distributor.read32(0x304), gic.cpu_interface.read32(0x014)), (0, 0xff));
    });
    // The trigger is changed while the interrupt is enabled.
    assert_eq!(faults, [("GIC trigger of an enabled interrupt is changed", 1)]);
}

/// EOImode 1: priority drop and deactivation are apart ("Priority drop and interrupt deactivation").
#[test]
fn with_eoi_mode_1_eoir_drops_and_dir_deactivates() {
    let faults = with_registers(v2(), 1, |gic| {
        bring_up(gic, 0x201);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
        gic.cpu_interface.write32(0x010, 40);
        assert_eq!(gic.cpu_interface.read32(0x014), 0xff, "dropped");
        assert_eq!(gic.distributor.read32(0x304), 1 << 8, "still active");
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read32(0x00c), 1023, "active and pending: not signalled");
        gic.cpu_interface.write32(0x1000, 40);
        assert_eq!(gic.distributor.read32(0x304), 0);
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
    });
    assert_eq!(faults, []);
}

#[test]
fn dir_with_eoi_mode_0_is_unpredictable_and_ignored() {
    let faults = with_registers(v2(), 1, |gic| {
        bring_up(gic, 1);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
        gic.cpu_interface.write32(0x1000, 40);
        assert_eq!(gic.distributor.read32(0x304), 1 << 8);
    });
    assert_eq!(faults, [("GIC deactivation with EOImode 0", 1)]);
}

/// A level-sensitive interrupt stays pending while its wire is asserted, and ICPENDR does not change that.
#[test]
fn a_level_follows_its_wire() {
    let (mut machine, gic) = super::bare(v2(), 1);
    let wire = |machine: &mut crate::Machine, at, asserted| {
        let arg = crate::gic::wire_arg(40, 0, asserted);
        machine.poke(gic.model, crate::time::Ps::from_ns(at), crate::gic::WIRE, arg);
    };
    wire(&mut machine, 1_000, true);
    wire(&mut machine, 3_000, false);
    let end = machine.run_boot(crate::time::Ps::from_ns(100_000), move || {
        let _state = crate::SimHal.irq_save();
        bring_up(gic, 1);
        crate::SimHal.delay_ns(1_000);
        gic.distributor.write32(0x284, 1 << 8);
        assert_eq!(gic.distributor.read32(0x204), 1 << 8);
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
        assert_eq!((gic.distributor.read32(0x204), gic.distributor.read32(0x304)), (1 << 8, 1 << 8));
        gic.cpu_interface.write32(0x010, 40);
        assert_eq!(gic.cpu_interface.read32(0x00c), 40, "it comes again");
        crate::SimHal.delay_ns(3_000);
        gic.cpu_interface.write32(0x010, 40);
        assert_eq!(gic.distributor.read32(0x204), 0, "the wire fell while it was active");
        assert_eq!(gic.cpu_interface.read32(0x00c), 1023);
    });
    assert_eq!(end, Ok(()));
}

/// Writing back the value that ICENABLER reads disables the neighbours, because ones take effect.
#[test]
fn a_read_modify_write_of_icenabler_disables_the_neighbours() {
    let faults = with_registers(v2(), 1, |gic| {
        gic.distributor.write32(0x104, 0x0f);
        gic.distributor.write32(0x184, 1 << 1);
        assert_eq!(gic.distributor.read32(0x184), 0x0d);
        gic.distributor.write32(0x184, gic.distributor.read32(0x184) | 1 << 2);
        assert_eq!(gic.distributor.read32(0x104), 0);
    });
    assert_eq!(faults, []);
}

/// "Interrupt prioritization": the mask only passes strictly more urgent interrupts; preemption needs a strictly more
/// urgent group priority.
#[test]
fn priority_masks_and_preempts() {
    let faults = with_registers(v2(), 1, |gic| {
        bring_up(gic, 1);
        // SPI 41: priority 80h. SPI 42: A0h.
        gic.distributor.write32(0x428, 0x00a0_80a0);
        gic.distributor.write32(0x828, 0x0001_0101);
        gic.distributor.write32(0x104, 0x700);
        gic.cpu_interface.write32(0x004, 0xa0);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read32(0x00c), 1023, "A0h does not pass a mask of A0h");
        assert_eq!(gic.cpu_interface.read32(0x018), 40, "but HPPIR shows it");
        gic.cpu_interface.write32(0x004, 0xff);
        assert_eq!(gic.cpu_interface.read32(0x004), 0xf8, "five bits of priority");
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
        gic.distributor.write32(0x204, 1 << 10);
        assert_eq!(gic.cpu_interface.read32(0x00c), 1023, "an equal priority does not preempt");
        gic.distributor.write32(0x204, 1 << 9);
        assert_eq!(gic.cpu_interface.read32(0x00c), 41);
        assert_eq!(gic.cpu_interface.read32(0x014), 0x80);
        assert_eq!(gic.cpu_interface.read32(0x0d0), 1 << (0x80 >> 3) | 1 << (0xa0 >> 3), "two active priorities");
        gic.cpu_interface.write32(0x010, 41);
        assert_eq!(gic.cpu_interface.read32(0x014), 0xa0);
        gic.cpu_interface.write32(0x010, 40);
        assert_eq!(gic.cpu_interface.read32(0x00c), 42);
    });
    assert_eq!(faults, []);
}

/// A binary point of 6 leaves bit 7 to decide about preemption; the smallest is 2 with five bits of priority.
#[test]
fn the_binary_point_keeps_neighbours_from_preempting() {
    let faults = with_registers(v2(), 1, |gic| {
        bring_up(gic, 1);
        gic.cpu_interface.write32(0x008, 0);
        assert_eq!(gic.cpu_interface.read32(0x008), 2);
        gic.cpu_interface.write32(0x008, 6);
        gic.distributor.write32(0x428, 0x0020_80a0);
        gic.distributor.write32(0x828, 0x0001_0101);
        gic.distributor.write32(0x104, 0x700);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
        gic.distributor.write32(0x204, 1 << 9);
        assert_eq!(gic.cpu_interface.read32(0x00c), 1023, "80h has the group priority of A0h");
        gic.distributor.write32(0x204, 1 << 10);
        assert_eq!(gic.cpu_interface.read32(0x00c), 42, "20h has not");
        assert_eq!(gic.cpu_interface.read32(0x014), 0, "the group priority runs");
    });
    assert_eq!(faults, []);
}

/// SGIs are pending per sender, show the sender in bits 12:10, and end with it.
#[test]
fn an_sgi_names_its_sender() {
    let faults = with_registers(v2(), 2, |gic| {
        bring_up(gic, 1);
        gic.distributor.write32(0x100, 0xffff);
        // To itself by filter 10b, then as if CPU 1 had sent it.
        gic.distributor.write32(0xf00, 0x0200_0005);
        gic.distributor.write32(0xf24, 0x0000_0200);
        crate::SimHal.delay_ns(2_000);
        assert_eq!(gic.distributor.read32(0xf24), 0x0000_0300, "SGI 5 from both");
        gic.distributor.write32(0x280, 1 << 5);
        assert_eq!(gic.distributor.read32(0x200), 1 << 5, "ICPENDR says nothing to SGIs");
        assert_eq!(gic.cpu_interface.read32(0x00c), 5);
        assert_eq!(gic.cpu_interface.read32(0x00c), 1023);
        gic.cpu_interface.write32(0x010, 5);
        assert_eq!(gic.cpu_interface.read32(0x00c), 0x405);
        gic.cpu_interface.write32(0x010, 0x005);
        assert_eq!(gic.distributor.read32(0x300), 1 << 5, "the wrong sender deactivates nothing");
        gic.distributor.write32(0xf24, 0x0000_0300);
        gic.distributor.write32(0xf14, 0x0000_0100);
        assert_eq!(gic.distributor.read32(0xf24), 0x0000_0200);
    });
    assert_eq!(
        faults,
        [
            ("GIC end of an interrupt that is not the latest", 1),
            ("GIC deactivation of an interrupt that is not active", 1)
        ]
    );
}

/// "The effect of interrupt grouping on reads of the GICC_IAR": 1022 for group 1 with AckCtl clear.
#[test]
fn group_1_is_acknowledged_through_the_alias() {
    let faults = with_registers(v2(), 1, |gic| {
        bring_up(gic, 3);
        gic.distributor.write32(0x000, 3);
        gic.distributor.write32(0x084, 1 << 8);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!((gic.cpu_interface.read32(0x00c), gic.cpu_interface.read32(0x018)), (1022, 1022));
        assert_eq!(gic.cpu_interface.read32(0x028), 40);
        assert_eq!(gic.cpu_interface.read32(0x020), 40);
        assert_eq!((gic.cpu_interface.read32(0x0d0), gic.cpu_interface.read32(0x0e0)), (0, 1 << 20));
        gic.cpu_interface.write32(0x024, 40);
        // With AckCtl, IAR serves both.
        gic.cpu_interface.write32(0x000, 7);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read32(0x00c), 40);
    });
    assert_eq!(faults, []);
}

#[test]
fn private_interrupts_are_the_cpus_own() {
    let faults = with_registers(v2(), 2, |gic| {
        assert_eq!(gic.distributor.read32(0x800), 0x0101_0101, "CPU 0 sees itself");
        gic.distributor.write32(0x100, 0x0001_0000);
        let word = std::sync::Arc::new(<crate::Word as hal::Word>::new(0));
        let seen = word.clone();
        let other = move || {
            assert_eq!(gic.distributor.read32(0x800), 0x0202_0202);
            assert_eq!(gic.distributor.read32(0x100), 0, "CPU 1 has its own");
            hal::Word::swap(&*seen, 1);
        };
        let affinity = hal::Affinity::Cpu(hal::CpuId(1));
        let spec = hal::ThreadSpec { name: "other", affinity, urgent: false };
        crate::SimHal.spawn(spec, Box::new(other)).expect("CPU 1 exists");
        while hal::Word::load(&*word) == 0 {
            crate::SimHal.relax_on(&word, 0, u64::MAX);
        }
    });
    assert_eq!(faults, []);
}

#[test]
fn what_does_not_exist_is_recorded_and_harmless() {
    let faults = with_registers(v2(), 1, |gic| {
        bring_up(gic, 0x201);
        assert_eq!(gic.distributor.read64(0x100), 0, "registers have 32 bits");
        assert_eq!(gic.distributor.read32(0x102), 0);
        assert_eq!(gic.distributor.read32(0x0ff0), 0);
        assert_eq!(gic.distributor.read32(0x1_0000), 0, "beyond the frame");
        gic.distributor.write32(0x004, 0xffff_ffff);
        assert_eq!(gic.cpu_interface.read32(0x010), 0);
        // No interrupts behind: read as zero, writes ignored, no fault.
        gic.distributor.write32(0x110, 0xffff_ffff);
        assert_eq!(gic.distributor.read32(0x110), 0);
        gic.cpu_interface.write32(0x010, 1023);
        gic.cpu_interface.write32(0x010, 40);
        gic.cpu_interface.write32(0x010, 200);
        gic.cpu_interface.write32(0x1000, 40);
        gic.distributor.write32(0xf00, 0x0000_0005);
        gic.distributor.write32(0xf00, 0x0300_0005);
        gic.redistributors.write32(0, 1);
        gic.distributor.write32(0x828, 0xffff_ffff);
        assert_eq!(gic.distributor.read32(0x828), 0x0101_0101, "only the CPU that exists");
        gic.distributor.write32(0x800, 0);
    });
    let kinds: Vec<_> = faults.iter().map(|&(kind, _)| kind).collect();
    assert_eq!(
        kinds,
        [
            "GIC access of a wrong width",
            "GIC access of a wrong width",
            "GIC access to no register",
            "GIC access to no register",
            "GIC write to a read-only register",
            "GIC read of a write-only register",
            "GIC end of no interrupt",
            "GIC end or deactivation of an interrupt that does not exist",
            "GIC deactivation of an interrupt that is not active",
            "GIC software interrupt to no CPU",
            "GICD_SGIR filter that is reserved",
            "GIC access to no register",
            "GIC write to a read-only register",
        ]
    );
}

/// "Register access": only priorities, targets and senders have byte accesses.
#[test]
fn some_registers_have_bytes() {
    let faults = with_registers(v2(), 2, |gic| {
        gic.distributor.write32(0x428, 0xa0a0_a0a0);
        gic.distributor.write8(0x42a, 0x27);
        assert_eq!(gic.distributor.read32(0x428), 0xa020_a0a0);
        assert_eq!((gic.distributor.read8(0x42a), gic.distributor.read8(0x42b)), (0x20, 0xa0));
        gic.distributor.write8(0x829, 3);
        assert_eq!(gic.distributor.read32(0x828), 0x0000_0300);
        gic.distributor.write32(0xf20, 0x0303_0303);
        gic.distributor.write8(0xf11, 1);
        assert_eq!(gic.distributor.read32(0xf20), 0x0303_0203);
        assert_eq!(gic.distributor.read8(0x100), 0);
        gic.distributor.write16(0x428, 0);
        gic.cpu_interface.write8(0x004, 0xff);
    });
    assert_eq!(faults, [("GIC access of a wrong width", 1); 3]);
}

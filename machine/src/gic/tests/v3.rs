//! GICv3 (IHI 0069H). System registers by their encodings: ICC_PMR_EL1 c230h, ICC_IAR1_EL1 c660h, ICC_EOIR1_EL1 c661h,
//! ICC_HPPIR1_EL1 c662h, ICC_BPR1_EL1 c663h, ICC_CTLR_EL1 c664h, ICC_IGRPEN1_EL1 c667h, ICC_DIR_EL1 c659h, ICC_RPR_EL1
//! c65bh, ICC_SGI1R_EL1 c65dh.

use super::{v3, with_registers};
use crate::config::Interrupts;
use crate::gic::GicConfig;
use crate::gic::GicWindows;
use hal::{Hal as _, Regs as _, Threads};

/// Wakes CPU 0's redistributor, enables group 1 with affinity routing; SPI 40 in group 1 to CPU 0, priority C0h, enabled.
pub(super) fn bring_up(gic: GicWindows, control: u64) {
    gic.distributor.write32(0x000, 0x12);
    wake(gic, 0);
    gic.cpu_interface.write64(0xc230, 0xf0);
    gic.cpu_interface.write64(0xc664, control);
    gic.cpu_interface.write64(0xc667, 1);
    gic.distributor.write32(0x084, 0xffff_ffff);
    gic.distributor.write32(0x428, 0xc0c0_c0c0);
    gic.distributor.write64(0x6140, 0);
    gic.distributor.write32(0x104, 1 << 8);
}

pub(super) fn wake(gic: GicWindows, cpu: u32) {
    let base = cpu * 0x2_0000;
    gic.redistributors.write32(base + 0x14, 0);
    while gic.redistributors.read32(base + 0x14) & 4 != 0 {
        crate::SimHal.delay_ns(10);
    }
}

#[test]
fn identification() {
    let faults = with_registers(v3(), 18, |gic| {
        assert_eq!(gic.distributor.read32(0x004) & 0x1f, 1);
        assert_eq!(gic.distributor.read32(0xffe8) >> 4 & 0xf, 3);
        assert_eq!(gic.distributor.read32(0x000), 0x40, "one security state");
        // CPU 17: affinity 0.0.1.1, number 17, the last.
        assert_eq!(gic.redistributors.read64(17 * 0x2_0000 + 8), 0x0000_0101_0000_1110);
        assert_eq!(gic.redistributors.read32(16 * 0x2_0000 + 12), 0x100);
        assert_eq!(gic.redistributors.read32(0x14), 6, "asleep after reset");
        assert_eq!(gic.cpu_interface.read64(0xc665), 7, "system registers only");
        assert_eq!(gic.cpu_interface.read64(0xc664) >> 8 & 7, 4, "five bits of priority");
    });
    assert_eq!(faults, []);
}

#[test]
fn acknowledge_drop_deactivate() {
    let faults = with_registers(v3(), 1, |gic| {
        bring_up(gic, 2);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc662), 40);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
        assert_eq!((gic.cpu_interface.read64(0xc65b), gic.cpu_interface.read64(0xc648)), (0xc0, 1 << 24));
        gic.cpu_interface.write64(0xc661, 40);
        assert_eq!((gic.cpu_interface.read64(0xc65b), gic.distributor.read32(0x304)), (0xff, 1 << 8));
        gic.cpu_interface.write64(0xc659, 40);
        assert_eq!(gic.distributor.read32(0x304), 0);
        // EOImode 0: both at once, and DIR is ignored.
        gic.cpu_interface.write64(0xc664, 0);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
        gic.cpu_interface.write64(0xc661, 40);
        assert_eq!(gic.distributor.read32(0x304), 0);
    });
    assert_eq!(faults, []);
}

/// RWP is set after a write that disables. Until it reads zero, the interrupt may still be signalled.
#[test]
fn a_disabled_interrupt_may_come_until_rwp_is_clear() {
    let faults = with_registers(v3(), 1, |gic| {
        bring_up(gic, 2);
        gic.distributor.write32(0x184, 1 << 8);
        assert_eq!(gic.distributor.read32(0x104), 0);
        assert_eq!(gic.distributor.read32(0x000), 0x8000_0052);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40, "not disabled everywhere yet");
        gic.cpu_interface.write64(0xc661, 40);
        gic.cpu_interface.write64(0xc659, 40);
        while gic.distributor.read32(0x000) >> 31 == 1 {}
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 1023);
        // Enabling needs no time.
        gic.distributor.write32(0x104, 1 << 8);
        assert_eq!(gic.distributor.read32(0x000) >> 31, 0);
        // A redistributor has its own RWP: bit 3.
        gic.redistributors.write32(0x1_0100, 1 << 20);
        gic.redistributors.write32(0x1_0180, 1 << 20);
        assert_eq!(gic.redistributors.read32(0) & 8, 8);
        crate::SimHal.delay_ns(100);
        assert_eq!(gic.redistributors.read32(0) & 8, 0);
    });
    assert_eq!(faults, []);
}

#[test]
fn group_0_is_not_signalled_as_irq() {
    let faults = with_registers(v3(), 1, |gic| {
        bring_up(gic, 0);
        gic.distributor.write32(0x084, 0);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 1023);
    });
    assert_eq!(faults, []);
}

#[test]
fn an_spi_goes_where_its_route_says() {
    let faults = with_registers(v3(), 2, |gic| {
        bring_up(gic, 0);
        wake(gic, 1);
        gic.distributor.write64(0x6140, 1);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 1023, "it is CPU 1's");
        // Interrupt_Routing_Mode: routes to a participating CPU. CPU 1 does not participate.
        gic.distributor.write32(0x6140, 0x8000_0001);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
        gic.distributor.write64(0x6148, 2);
        gic.distributor.write64(0x6150, 0xffff_ffff_ffff_ffff);
        assert_eq!(gic.distributor.read64(0x6150), 0x0000_00ff_80ff_ffff, "reserved bits are zero");
    });
    assert_eq!(faults, [("GIC route to no CPU", 1)]);
}

#[test]
fn an_sgi_goes_by_affinity() {
    let faults = with_registers(v3(), 18, |gic| {
        bring_up(gic, 0);
        gic.redistributors.write32(0x1_0080, 0xffff_ffff);
        gic.redistributors.write32(0x1_0100, 0xffff);
        // SGI 3 to 0.0.0.0; SGI 4 to 0.0.1.1, which is CPU 17; SGI 5 to a cluster that is not there.
        gic.cpu_interface.write64(0xc65d, 0x0300_0001);
        gic.cpu_interface.write64(0xc65d, 0x0401_0002);
        gic.cpu_interface.write64(0xc65d, 0x0502_0001);
        gic.cpu_interface.write64(0xc65d, 1 << 40 | 0x0600_0000);
        crate::SimHal.delay_ns(2_000);
        assert_eq!(gic.redistributors.read32(0x1_0200), 1 << 3);
        assert_eq!(gic.redistributors.read32(17 * 0x2_0000 + 0x1_0200), 1 << 4 | 1 << 6);
        assert_eq!(gic.cpu_interface.read64(0xc660), 3, "no sender in GICv3");
        assert_eq!(gic.distributor.read32(0x200), 0, "private ones are not in the distributor");
    });
    assert_eq!(faults, [("GIC software interrupt to no CPU", 1)]);
}

/// IHI 0069H, "GICD_TYPER", RSS, and "ICC_SGI1R_EL1", RS: affinity level 0 may be above 15.
#[test]
fn an_sgi_selects_a_range_of_affinities() {
    let config = GicConfig { affinity_shift: 4, ..GicConfig::default() };
    let interrupts = Interrupts::GicV3(config);
    let faults = with_registers(interrupts, 3, |gic| {
        bring_up(gic, 0);
        assert_eq!(gic.distributor.read32(0x4) >> 26 & 1, 1);
        assert_eq!(gic.redistributors.read64(2 * 0x2_0000 + 8) >> 32, 0x20);
        gic.redistributors.write32(0x1_0080, 0xffff_ffff);
        // SGI 3 to 0.0.0.32, which is CPU 2; SGI 4 to 0.0.0.0; SGI 5 to 0.0.0.1, which is nobody.
        gic.cpu_interface.write64(0xc65d, 2 << 44 | 0x0300_0001);
        gic.cpu_interface.write64(0xc65d, 0x0400_0001);
        gic.cpu_interface.write64(0xc65d, 0x0500_0002);
        crate::SimHal.delay_ns(2_000);
        assert_eq!(gic.redistributors.read32(2 * 0x2_0000 + 0x1_0200), 1 << 3);
        assert_eq!(gic.redistributors.read32(0x1_0200), 1 << 4);
    });
    assert_eq!(faults, [("GIC software interrupt to no CPU", 1)]);
}

#[test]
fn a_sleeping_redistributor_delivers_nothing() {
    let faults = with_registers(v3(), 1, |gic| {
        bring_up(gic, 0);
        gic.redistributors.write32(0x14, 2);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 1023);
        wake(gic, 0);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
    });
    assert_eq!(faults, []);
}

#[test]
fn what_does_not_exist_is_recorded_and_harmless() {
    let faults = with_registers(v3(), 1, |gic| {
        bring_up(gic, 0);
        gic.distributor.write32(0x100, 1);
        gic.redistributors.write32(0x2_0000, 1);
        gic.redistributors.write32(0x1_0280 + 4, 1);
        assert_eq!(gic.redistributors.read64(0x1_0100), 0);
        assert_eq!(gic.cpu_interface.read64(0xc661), 0);
        gic.cpu_interface.write64(0xc660, 1);
        gic.cpu_interface.write64(0x1234, 1);
        gic.cpu_interface.write64(0xc661, 9000);
        gic.cpu_interface.write64(0xc659, 40);
        gic.distributor.write32(0x000, 0x02);
        assert_eq!(gic.its.read64(8), 0);
        assert_eq!(gic.v2m.read32(8), 0);
    });
    let kinds: Vec<_> = faults.iter().map(|&(kind, _)| kind).collect();
    assert_eq!(
        kinds,
        [
            "GIC access to no register",
            "GIC access to no register",
            "GIC access to no register",
            "GIC access of a wrong width",
            "GIC read of a write-only register",
            "GIC write to a read-only register",
            "GIC access to no register",
            "GIC end or deactivation of an interrupt that does not exist",
            "GIC deactivation with EOImode 0",
            "GICD_CTLR write that is unpredictable",
            "GIC access to no register",
            "GIC access to no register",
        ]
    );
}

/// Runs `body` on CPU 1, interrupts off, and waits for it.
fn on_cpu_1(body: impl FnOnce() + Send + 'static) {
    let done = std::sync::Arc::new(<crate::Word as hal::Word>::new(0));
    let seen = done.clone();
    let body = move || {
        let off = crate::SimHal.irq_save();
        body();
        hal::Word::swap(&*seen, 1);
        // If interrupts were on again, a signalled interrupt would find no handler.
        crate::SimHal.irq_restore(off);
    };
    let affinity = hal::Affinity::Cpu(hal::CpuId(1));
    let spec = hal::ThreadSpec { name: "other", affinity, urgent: false };
    crate::SimHal.spawn(spec, Box::new(body)).expect("CPU 1 exists");
    while hal::Word::load(&*done) == 0 {
        crate::SimHal.relax_on(&done, 0, u64::MAX);
    }
}

/// An SPI is rerouted while it is active: it stays active, any CPU may deactivate it, and it is then signalled at the
/// new CPU. Priority drop belongs to the acknowledging CPU ("Priority drop and interrupt deactivation").
#[test]
fn an_active_spi_moves_and_another_cpu_deactivates_it() {
    let faults = with_registers(v3(), 2, |gic| {
        bring_up(gic, 2);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
        gic.cpu_interface.write64(0xc661, 40);
        gic.distributor.write64(0x6140, 1);
        gic.distributor.write32(0x204, 1 << 8);
        on_cpu_1(move || {
            wake(gic, 1);
            gic.cpu_interface.write64(0xc664, 2);
            gic.cpu_interface.write64(0xc230, 0xf0);
            gic.cpu_interface.write64(0xc667, 1);
            assert_eq!(gic.cpu_interface.read64(0xc660), 1023, "active at CPU 0");
            gic.cpu_interface.write64(0xc659, 40);
            assert_eq!(gic.cpu_interface.read64(0xc660), 40);
            gic.cpu_interface.write64(0xc661, 40);
            gic.cpu_interface.write64(0xc659, 40);
        });
        assert_eq!(gic.distributor.read32(0x304), 0);
    });
    assert_eq!(faults, []);
}

/// A PPI belongs to its CPU: a deactivation by another CPU affects that CPU's own PPI.
#[test]
fn a_ppi_is_deactivated_by_the_cpu_that_took_it() {
    let faults = with_registers(v3(), 2, |gic| {
        bring_up(gic, 2);
        gic.redistributors.write32(0x1_0080, 0xffff_ffff);
        gic.redistributors.write32(0x1_0100, 1 << 27);
        gic.redistributors.write32(0x1_0200, 1 << 27);
        assert_eq!(gic.cpu_interface.read64(0xc660), 27);
        gic.cpu_interface.write64(0xc661, 27);
        on_cpu_1(move || {
            gic.cpu_interface.write64(0xc664, 2);
            gic.cpu_interface.write64(0xc659, 27);
        });
        assert_eq!(gic.redistributors.read32(0x1_0300), 1 << 27);
        gic.cpu_interface.write64(0xc659, 27);
        assert_eq!(gic.redistributors.read32(0x1_0300), 0);
    });
    assert_eq!(faults, [("GIC deactivation of an interrupt that is not active", 1)]);
}

/// Active priorities can be saved and restored through their registers, as an operating system does
/// ("ICC_AP1R<n>_EL1").
#[test]
fn active_priorities_are_saved_and_restored() {
    let faults = with_registers(v3(), 1, |gic| {
        bring_up(gic, 2);
        gic.distributor.write32(0x204, 1 << 8);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
        let saved = gic.cpu_interface.read64(0xc648);
        gic.cpu_interface.write64(0xc648, 0);
        assert_eq!(gic.cpu_interface.read64(0xc65b), 0xff);
        gic.cpu_interface.write64(0xc648, saved);
        assert_eq!(gic.cpu_interface.read64(0xc65b), 0xc0);
        assert_eq!(gic.cpu_interface.read64(0xc649), 0, "five bits of priority need one register");
    });
    assert_eq!(faults, [("GIC access to no register", 1)]);
}

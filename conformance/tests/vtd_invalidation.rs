//! The interrupt-entry cache and queued invalidation: VT-d specification, "Interrupt Entry Cache", "Queued Invalidation
//! Interface", "Invalidation Wait Descriptor".

mod vtd_rig;

use hal::{Dma as _, Word as _};
use machine::fabric::vtd::{InvalidationFault, InvalidationTrouble, VtdUnit};
use machine::time::Ps;
use vtd_rig::{Options, Rig};

const HIGH: u64 = 0x0000_0000_0004_3a00;
const VECTOR_41: u64 = 0x0000_0002_0041_0001;
const VECTOR_42: u64 = 0x0000_0002_0042_0001;
const HANDLE_5: u64 = 0xfee0_00b0;
/// IEC, global: type 4.
const IEC_GLOBAL: (u64, u64) = (0x4, 0);

/// Wait with a status write (bit 5) of `data` to `address`.
fn wait(data: u64, address: u64) -> (u64, u64) {
    (data << 32 | 0x25, address)
}

fn vectors(rig: &Rig) -> Vec<u8> {
    rig.interrupts().into_iter().map(|(_, vector)| vector).collect()
}

#[test]
fn a_changed_entry_delivers_the_old_way_until_it_is_invalidated() {
    let mut rig = Rig::enabled(Options::default());
    rig.entry(5, VECTOR_41, HIGH);
    rig.message(0x3a00, HANDLE_5, 0);
    rig.entry(5, VECTOR_42, HIGH);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(vectors(&rig), [0x41, 0x41], "stale");
    // Index-selective (bit 4) of entry 6: not ours.
    rig.invalidate(&[(0x0000_0006_0000_0014, 0)]);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(vectors(&rig), [0x41]);
    // Entry 5.
    rig.invalidate(&[(0x0000_0005_0000_0014, 0)]);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(vectors(&rig), [0x42]);
    // Entry 6 with index mask 2 (bits 31:27): entries 4 to 7.
    rig.entry(5, VECTOR_41, HIGH);
    rig.invalidate(&[(0x0000_0006_1000_0014, 0)]);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(vectors(&rig), [0x41]);
    rig.entry(5, VECTOR_42, HIGH);
    rig.invalidate(&[IEC_GLOBAL]);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(vectors(&rig), [0x42]);
}

#[test]
fn an_entry_that_was_not_present_is_not_cached() {
    let mut rig = Rig::enabled(Options::default());
    rig.message(0x3a00, HANDLE_5, 0);
    rig.entry(5, VECTOR_41, HIGH);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(vectors(&rig), [0x41]);
}

#[test]
fn a_new_table_does_not_empty_the_cache() {
    let mut rig = Rig::enabled(Options::default());
    rig.entry(5, VECTOR_41, HIGH);
    rig.message(0x3a00, HANDLE_5, 0);
    rig.entry(5, VECTOR_42, HIGH);
    // SIRTP beside QIE and IRE: without CAP.ESIRTPS, invalidation is left to software.
    rig.command(0x0700_0000, 0x0700_0000);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(vectors(&rig), [0x41, 0x41]);
}

#[test]
fn a_wait_writes_its_status_after_what_is_before_it() {
    let mut rig = Rig::enabled(Options::default());
    let status = rig.address(16);
    // 32 bits at any multiple of 4; the rest of the word stays.
    rig.memory.words()[16].set(0x1111_1111_2222_2222);
    rig.submit(&[IEC_GLOBAL, wait(7, status + 4)]);
    assert_eq!(rig.memory.words()[16].get(), 0x1111_1111_2222_2222, "not yet: 300 ns a descriptor");
    rig.run(1000);
    assert_eq!(rig.memory.words()[16].get(), 0x0000_0007_2222_2222);
    assert_eq!(rig.read64(0x80), rig.read64(0x88), "IQH has reached IQT");
}

/// An invalidation is complete when the requests that used the old entry have arrived (VT-d, "Interrupt Draining"):
/// here a message is in service, 50 + 100 ns, when descriptors of 1 ns each invalidate its entry. The messages differ in
/// their data, which a handle without a subhandle ignores: equal ones would merge while they wait.
#[test]
fn an_invalidation_drains_what_used_the_old_entry() {
    let mut rig = Rig::enabled(Options { invalidation_ns: 1, ..Options::default() });
    rig.entry(5, VECTOR_41, HIGH);
    let status = rig.address(16);
    for data in 0..3 {
        rig.send(0x3a00, HANDLE_5, data);
    }
    rig.run(10);
    rig.entry(5, VECTOR_42, HIGH);
    rig.submit(&[IEC_GLOBAL, wait(7, status)]);
    while rig.memory.words()[16].get() == 0 {
        rig.run(1);
    }
    assert_eq!(vectors(&rig), [0x41], "the old vector before the status");
    rig.run(1000);
    assert_eq!(vectors(&rig), [0x42, 0x42], "what was still queued goes the new way");
}

/// The same for a notification on its way: posted after 100 ns, it takes 100 more to the LAPIC.
#[test]
fn an_invalidation_drains_notifications() {
    let mut rig = Rig::enabled(Options { invalidation_ns: 1, ..Options::default() });
    rig.posted_entry(0x41, 0);
    rig.memory.words()[4].set(0x0000_0003_00eb_0000);
    let status = rig.address(16);
    rig.send(0x3a00, HANDLE_5, 0);
    rig.run(120);
    assert_eq!(rig.memory.words()[1].get(), 2, "posted");
    rig.submit(&[IEC_GLOBAL, wait(7, status)]);
    while rig.memory.words()[16].get() == 0 {
        rig.run(1);
    }
    assert_eq!(vectors(&rig), [0xeb]);
}

#[test]
fn the_head_wraps() {
    let mut rig = Rig::enabled(Options::default());
    let status = rig.address(16);
    for round in 1..=300 {
        rig.invalidate(&[wait(round, status)]);
        assert_eq!(rig.memory.words()[16].get(), round);
    }
    assert_eq!(rig.read64(0x80), (301 % 256) << 4);
}

/// IF (bit 4) sets ICS.IWC (0x9c) and sends the invalidation event: IECTL 0xa0, IEDATA 0xa4, IEADDR 0xa8.
#[test]
fn a_wait_may_interrupt() {
    let mut rig = Rig::enabled(Options::default());
    assert_eq!(rig.read32(0xa0), 0x8000_0000, "masked after reset");
    rig.write32(0xa4, 0x52);
    rig.write32(0xa8, 0xfee0_1000);
    rig.write32(0xa0, 0);
    rig.invalidate(&[(0x15, 0)]);
    assert_eq!(rig.interrupts(), [(1, 0x52)]);
    assert_eq!(rig.read32(0x9c), 1);
    // Not again until IWC is cleared.
    rig.invalidate(&[(0x15, 0)]);
    assert_eq!(rig.interrupts(), []);
    rig.write32(0x9c, 1);
    assert_eq!(rig.read32(0x9c), 0);
    rig.invalidate(&[(0x15, 0)]);
    assert_eq!(rig.interrupts(), [(1, 0x52)]);
}

/// A bad descriptor sets FSTS.IQE (bit 4); the queue stands at it until IQE is cleared. IQERCD (0xb0) tells why.
#[test]
fn a_bad_descriptor_stops_the_queue() {
    // (descriptor, IQEI)
    let cases = [((0xf, 0), 3), ((0x204, 0), 3), ((0x4, 1), 4), ((0x0000_0005_0000_0114, 0), 4), ((0x25, 1), 4)];
    for (bad, info) in cases {
        let mut rig = Rig::enabled(Options::default());
        let status = rig.address(16);
        rig.invalidate(&[bad, wait(7, status)]);
        assert_eq!(rig.read32(0x34), 1 << 4, "{bad:x?}");
        assert_eq!(rig.read64(0xb0) & 0xf, info, "{bad:x?}");
        assert_eq!(rig.read64(0x80), 0x10, "the head is at the bad descriptor: one was before it");
        assert_eq!(rig.memory.words()[16].get(), 0);
        // Software replaces it and clears IQE.
        rig.queue.words()[2].set(IEC_GLOBAL.0);
        rig.queue.words()[3].set(IEC_GLOBAL.1);
        rig.write32(0x34, 1 << 4);
        rig.run(10_000);
        assert_eq!(rig.memory.words()[16].get(), 7);
        assert_eq!(rig.read32(0x34), 0);
    }
}

#[test]
fn a_tail_outside_the_queue_stops_it() {
    let mut rig = Rig::enabled(Options::default());
    rig.write64(0x88, 256 << 4);
    rig.run(1000);
    assert_eq!((rig.read32(0x34), rig.read64(0xb0) & 0xf), (1 << 4, 1));
}

#[test]
fn disabling_the_queue_resets_the_head() {
    let mut rig = Rig::enabled(Options::default());
    assert_eq!(rig.read64(0x80), 0x10);
    // IRE alone.
    rig.command(0x0200_0000, 0x0300_0000);
    assert_eq!(rig.read64(0x80), 0);
}

#[test]
fn broken_queues_are_late_fail_or_hang() {
    let broken = |fault| {
        let mut rig = Rig::enabled(Options { invalidation_fault: fault, ..Options::default() });
        let status = rig.address(16);
        rig.submit(&[wait(7, status)]);
        rig
    };
    let mut late = broken(InvalidationFault::Late(Ps::from_ns(5000)));
    late.run(5000);
    assert_eq!(late.memory.words()[16].get(), 0);
    late.run(400);
    assert_eq!(late.memory.words()[16].get(), 7);
    drop(late);
    let mut failing = broken(InvalidationFault::FetchFails(1));
    failing.run(10_000);
    assert_eq!((failing.read32(0x34), failing.read64(0xb0) & 0xf), (1 << 4, 2));
    drop(failing);
    let mut hanging = broken(InvalidationFault::Hangs(1));
    hanging.run(100_000);
    assert_eq!((hanging.memory.words()[16].get(), hanging.read32(0x34)), (0, 0));
}

/// A temporary fault that begins when the unit is up, and ends by itself.
#[test]
fn a_troubled_queue_works_again_when_its_window_is_over() {
    let troubled = |trouble| {
        let mut rig = Rig::enabled(Options::default());
        let from = rig.machine.now();
        let until = from + Ps::from_ns(50_000);
        let fault = InvalidationFault::Within { from, until, trouble };
        rig.machine.with_model(rig.unit, |unit: &mut VtdUnit| unit.set_invalidation_fault(fault)).expect("a unit");
        let status = rig.address(16);
        rig.submit(&[wait(7, status)]);
        rig.run(5_000);
        assert_eq!(rig.memory.words()[16].get(), 0, "{trouble:?}");
        rig
    };
    let mut late = troubled(InvalidationTrouble::Late(Ps::from_ns(8_000)));
    late.run(4_000);
    assert_eq!((late.memory.words()[16].get(), late.read32(0x34)), (7, 0));
    drop(late);
    let mut standing = troubled(InvalidationTrouble::Stands);
    standing.run(40_000);
    assert_eq!((standing.memory.words()[16].get(), standing.read32(0x34)), (0, 0));
    standing.run(10_000);
    assert_eq!((standing.memory.words()[16].get(), standing.read32(0x34)), (7, 0));
    drop(standing);
    let mut failing = troubled(InvalidationTrouble::FetchFails);
    assert_eq!((failing.read32(0x34), failing.read64(0xb0) & 0xf), (1 << 4, 2), "IQE");
    // Software clears IQE, and the fetch fails again.
    failing.write32(0x34, 1 << 4);
    failing.run(2_000);
    assert_eq!(failing.read32(0x34), 1 << 4);
    failing.run(50_000);
    failing.write32(0x34, 1 << 4);
    failing.run(2_000);
    assert_eq!((failing.memory.words()[16].get(), failing.read32(0x34)), (7, 0));
    drop(failing);
    let mut refusing = troubled(InvalidationTrouble::FirstFetchFails);
    assert_eq!((refusing.read32(0x34), refusing.read64(0xb0) & 0xf), (1 << 4, 2), "IQE");
    refusing.write32(0x34, 1 << 4);
    refusing.run(2_000);
    assert_eq!((refusing.memory.words()[16].get(), refusing.read32(0x34)), (7, 0));
    // The next descriptor is refused once too.
    let status = refusing.address(16);
    refusing.submit(&[wait(8, status)]);
    refusing.run(5_000);
    assert_eq!((refusing.memory.words()[16].get(), refusing.read32(0x34)), (7, 1 << 4));
}

#[test]
fn a_queue_that_hung_goes_on_with_the_next_tail_once_it_is_mended() {
    let mut rig = Rig::enabled(Options { invalidation_fault: InvalidationFault::Hangs(1), ..Options::default() });
    let (first, second) = (rig.address(16), rig.address(17));
    rig.submit(&[wait(7, first)]);
    rig.run(100_000);
    let mend = |unit: &mut VtdUnit| unit.set_invalidation_fault(InvalidationFault::None);
    assert_eq!(rig.machine.with_model(rig.unit, mend), Some(()));
    rig.run(100_000);
    assert_eq!(rig.memory.words()[16].get(), 0);
    rig.invalidate(&[wait(8, second)]);
    assert_eq!((rig.memory.words()[16].get(), rig.memory.words()[17].get()), (7, 8));
}

//! Remapped and posted delivery, word by word from the VT-d specification: chapters "Interrupt Remapping" and "Interrupt
//! Posting".

mod vtd_rig;

use hal::{Dma as _, Word as _};
use vtd_rig::{Options, Rig};

/// Requester 3a:00.0. Entry 5: vector 0x41 to APIC id 2, checked against all of the requester (SVT 01, SQ 00).
const ENTRY: (u64, u64) = (0x0000_0002_0041_0001, 0x0000_0000_0004_3a00);
/// Handle 5: 5 << 5, remappable format (bit 4).
const HANDLE_5: u64 = 0xfee0_00b0;

/// NV 0xeb to APIC id 3.
const CONTROL: u64 = 0x0000_0003_00eb_0000;

#[test]
fn capabilities() {
    let mut rig = Rig::new(Options::default());
    assert_eq!(rig.read32(0x00), 0x10, "VER 1.0");
    let capability = rig.read64(0x08);
    assert_eq!(capability >> 59 & 1, 1, "PI");
    assert_eq!(capability >> 40 & 0xff, 3, "NFR: four records");
    let extended = rig.read64(0x10);
    assert_eq!(extended & 0b1_1010, 0b1_1010, "QI, IR, EIM");
    assert_eq!(extended >> 20 & 0xf, 15, "MHMV");
    drop(rig);
    let mut without = Rig::new(Options { posted_interrupts: false, ..Options::default() });
    assert_eq!(without.read64(0x08) >> 59 & 1, 0);
}

#[test]
fn reserved_bits_of_the_address_registers_read_as_0() {
    let mut rig = Rig::new(Options::default());
    rig.write64(0xb8, u64::MAX);
    rig.write64(0x90, u64::MAX);
    assert_eq!((rig.read64(0xb8), rig.read64(0x90)), (0xffff_ffff_ffff_f80f, 0xffff_ffff_ffff_f807));
}

#[test]
fn with_remapping_off_a_message_is_what_it_says() {
    let mut rig = Rig::new(Options::default());
    // SDM: destination in 19:12, vector in 7:0.
    rig.message(0x3a00, 0xfee0_1000, 0x33);
    assert_eq!(rig.interrupts(), [(1, 0x33)]);
    assert_eq!(rig.counter("remap_ps"), 0, "no remapping time");
}

#[test]
fn a_remapped_request_goes_where_its_entry_says() {
    let mut rig = Rig::enabled(Options::default());
    rig.entry(5, ENTRY.0, ENTRY.1);
    // The data is ignored without a sub-handle.
    rig.message(0x3a00, HANDLE_5, 0xdead_beef);
    assert_eq!(rig.interrupts(), [(2, 0x41)]);
    assert_eq!(rig.read32(0x34), 0, "FSTS");
}

#[test]
fn in_xapic_mode_the_destination_lies_in_bits_15_to_8() {
    let mut rig = Rig::new(Options::default());
    rig.enable(0);
    rig.entry(5, 0x0000_0200_0041_0001, ENTRY.1);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), [(2, 0x41)]);
}

#[test]
fn handle_and_sub_handle_add_up() {
    let mut rig = Rig::enabled(Options::default());
    rig.entry(5, ENTRY.0, ENTRY.1);
    // Handle 3, SHV (bit 3), sub-handle 2.
    rig.message(0x3a00, 0xfee0_0078, 2);
    assert_eq!(rig.interrupts(), [(2, 0x41)]);
}

#[test]
fn a_logical_destination_reaches_each_member_of_its_cluster() {
    let mut rig = Rig::enabled(Options::default());
    // DM, bit 2; cluster 0, members 1 and 3.
    rig.entry(5, 0x0000_000a_0041_0005, ENTRY.1);
    rig.message(0x3a00, HANDLE_5, 0);
    let mut interrupts = rig.interrupts();
    interrupts.sort_unstable();
    assert_eq!(interrupts, [(1, 0x41), (3, 0x41)]);
}

#[test]
fn the_requester_is_checked_as_sq_and_svt_say() {
    // (bits 83:64, requester, goes through)
    let cases = [
        (0x0_ffff, 0x3a00, true, "SVT 00 checks nothing"),
        (0x4_3a00, 0x3a00, true, "all 16 bits"),
        (0x4_3a00, 0x3a04, false, "all 16 bits"),
        (0x5_3a00, 0x3a04, true, "SQ 01 ignores bit 2"),
        (0x5_3a00, 0x3a02, false, "SQ 01 compares bit 1"),
        (0x6_3a00, 0x3a06, true, "SQ 10 ignores bits 2 and 1"),
        (0x6_3a00, 0x3a01, false, "SQ 10 compares bit 0"),
        (0x7_3a00, 0x3a07, true, "SQ 11 ignores the function"),
        (0x7_3a00, 0x3a08, false, "SQ 11 compares the device"),
        (0x8_3a3c, 0x3cff, true, "SVT 10: bus 3a to 3c"),
        (0x8_3a3c, 0x3d00, false, "SVT 10: bus 3d lies outside"),
        (0x8_3a3c, 0x39ff, false, "SVT 10: bus 39 lies outside"),
    ];
    let mut rig = Rig::enabled(Options::default());
    for (source, requester, passes, why) in cases {
        rig.entry(5, ENTRY.0, source);
        rig.invalidate(&[(0x4, 0)]);
        rig.message(requester, HANDLE_5, 0);
        let expected: &[(u32, u8)] = if passes { &[(2, 0x41)] } else { &[] };
        assert_eq!(rig.interrupts(), expected, "{why}");
    }
}

#[test]
fn a_post_sets_its_bit_and_notifies() {
    let mut rig = Rig::enabled(Options::default());
    rig.posted_entry(0x41, 0);
    rig.memory.words()[4].set(CONTROL);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), [(3, 0xeb)]);
    assert_eq!(rig.memory.words()[1].get(), 1 << 1, "PIR[0x41]");
    assert_eq!(rig.memory.words()[4].get(), CONTROL | 1, "ON");
    // The next finds ON set: silent.
    rig.posted_entry(0x93, 0);
    rig.invalidate(&[(0x0000_0005_0000_0014, 0)]);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), []);
    assert_eq!(rig.memory.words()[2].get(), 1 << 0x13, "PIR[0x93]");
    assert_eq!((rig.counter("posted"), rig.counter("notifications")), (2, 1));
}

/// "If ON is clear, and either the request is urgent or SN is clear": ON is set and a notification sent.
#[test]
fn on_sn_and_urgent() {
    // (ON, SN, URG) → notified, ON afterwards
    let cases = [
        ((0, 0, 0), true, 1),
        ((0, 0, 1), true, 1),
        ((0, 1, 0), false, 0),
        ((0, 1, 1), true, 1),
        ((1, 0, 0), false, 1),
        ((1, 0, 1), false, 1),
        ((1, 1, 0), false, 1),
        ((1, 1, 1), false, 1),
    ];
    let mut rig = Rig::enabled(Options::default());
    for ((on, sn, urgent), notified, on_after) in cases {
        rig.posted_entry(0x41, urgent << 14);
        rig.invalidate(&[(0x4, 0)]);
        rig.memory.words()[1].set(0);
        rig.memory.words()[4].set(CONTROL | sn << 1 | on);
        rig.message(0x3a00, HANDLE_5, 0);
        let case = format!("ON {on}, SN {sn}, URG {urgent}");
        assert_eq!(!rig.interrupts().is_empty(), notified, "{case}");
        assert_eq!(rig.memory.words()[1].get(), 2, "PIR is set whatever ON and SN say: {case}");
        assert_eq!(rig.memory.words()[4].get(), CONTROL | sn << 1 | on_after, "{case}");
    }
}

#[test]
fn in_xapic_mode_ndst_lies_in_bits_15_to_8() {
    let mut rig = Rig::new(Options::default());
    rig.enable(0);
    rig.posted_entry(0x41, 0);
    rig.memory.words()[4].set(0x0000_0300_00eb_0000);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), [(3, 0xeb)]);
}

#[test]
fn a_write_outside_the_interrupt_range_is_a_write() {
    let mut rig = Rig::enabled(Options::default());
    let address = rig.address(9);
    rig.message(0x3a00, address + 4, 0x1234_5678);
    assert_eq!(rig.memory.words()[9].get(), 0x1234_5678_0000_0000);
}

//! Refused requests, their records and the fault event: VT-d specification, "Interrupt Remapping Fault Conditions",
//! "Primary Fault Logging", "Fault Events".

mod vtd_rig;

use hal::{Dma as _, Word as _};
use vtd_rig::{Options, Rig};

const LOW: u64 = 0x0000_0002_0041_0001;
const HIGH: u64 = 0x0000_0000_0004_3a00;
const HANDLE_5: u64 = 0xfee0_00b0;
/// FSTS.
const FSTS: u32 = 0x34;
/// PPF.
const PENDING: u32 = 1 << 1;

/// Offset of the records: CAP.FRO, bits 33:24, in units of 16 bytes.
fn records(rig: &mut Rig) -> u32 {
    (rig.read64(0x08) >> 24 & 0x3ff) as u32 * 16
}

/// The first record as (F, reason, requester, interrupt index), which is then cleared.
fn take_record(rig: &mut Rig) -> (u64, u64, u64, u64) {
    let at = records(rig) + (rig.read32(FSTS) >> 8 & 0xff) * 16;
    let (low, high) = (rig.read64(at), rig.read64(at + 8));
    rig.write32(at + 12, 0x8000_0000);
    (high >> 63, high >> 32 & 0xff, high & 0xffff, low >> 48)
}

/// Sends to entry 5 and expects only a fault of `reason`.
fn expect_fault(rig: &mut Rig, address: u64, data: u32, reason: u64, index: u64) {
    rig.invalidate(&[(0x4, 0)]);
    rig.message(0x3a00, address, data);
    assert_eq!(rig.interrupts(), [], "reason {reason:#x}");
    assert_eq!(rig.read32(FSTS) & 0xff, PENDING, "reason {reason:#x}");
    assert_eq!(take_record(rig), (1, reason, 0x3a00, index));
    assert_eq!(rig.read32(FSTS) & 0xff, 0, "PPF follows the records");
}

#[test]
fn each_reason() {
    let mut rig = Rig::enabled(Options::default());
    rig.entry(5, LOW, HIGH);
    // 20h: bits 31:16 of the data with a valid sub-handle.
    expect_fault(&mut rig, 0xfee0_00b8, 0x0001_0000, 0x20, 5);
    // 21h: handle 256 of 256 entries; handle 0x8000 (bit 2 of the address).
    expect_fault(&mut rig, 0xfee0_2010, 0, 0x21, 0x100);
    expect_fault(&mut rig, 0xfee0_0014, 0, 0x21, 0x8000);
    // 22h: present bit clear.
    rig.entry(5, LOW & !1, HIGH);
    expect_fault(&mut rig, HANDLE_5, 0, 0x22, 5);
    // 24h: bit 12 of either format, bit 24, bit 84; SVT 11; delivery mode 011.
    for (low, high) in [(LOW | 1 << 12, HIGH), (LOW | 1 << 24, HIGH), (LOW, HIGH | 1 << 20)] {
        rig.entry(5, low, high);
        expect_fault(&mut rig, HANDLE_5, 0, 0x24, 5);
    }
    rig.entry(5, LOW, 0xc_3a00);
    expect_fault(&mut rig, HANDLE_5, 0, 0x24, 5);
    rig.entry(5, LOW | 0b011 << 5, HIGH);
    expect_fault(&mut rig, HANDLE_5, 0, 0x24, 5);
    // 25h: compatibility format in extended mode; its record has no index.
    expect_fault(&mut rig, 0xfee0_1000, 0x33, 0x25, 0);
    // 26h: another requester's entry.
    rig.entry(5, LOW, 0x4_3b00);
    expect_fault(&mut rig, HANDLE_5, 0, 0x26, 5);
}

#[test]
fn a_table_without_memory_is_23h() {
    let mut rig = Rig::new(Options::default());
    rig.write64(0xb8, 0x1000 | 0x807);
    rig.command(0x0100_0000, 0x0100_0000);
    rig.command(0x0200_0000, 0x0300_0000);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(take_record(&mut rig), (1, 0x23, 0x3a00, 5));
}

#[test]
fn posted_descriptors_have_their_reasons() {
    let mut rig = Rig::enabled(Options::default());
    // 27h: no memory at the descriptor.
    rig.entry(5, 0x0000_1000_0041_8001, HIGH);
    expect_fault(&mut rig, HANDLE_5, 0, 0x27, 5);
    // 28h: bit 258 of the descriptor; bit 320.
    rig.posted_entry(0x41, 0);
    for (word, bits) in [(4, 1 << 2), (5, 1)] {
        rig.memory.words()[word].set(bits);
        expect_fault(&mut rig, HANDLE_5, 0, 0x28, 5);
        assert_eq!(rig.memory.words()[1].get(), 0, "nothing is posted");
        rig.memory.words()[word].set(0);
    }
    // 24h: a reserved bit of the posted format (12), and bit 2, which the remapped format uses.
    for bit in [12, 2] {
        rig.posted_entry(0x41, 1 << bit);
        expect_fault(&mut rig, HANDLE_5, 0, 0x24, 5);
    }
}

#[test]
fn without_the_capability_the_posted_format_is_reserved() {
    let mut rig = Rig::enabled(Options { posted_interrupts: false, ..Options::default() });
    rig.posted_entry(0x41, 0);
    expect_fault(&mut rig, HANDLE_5, 0, 0x24, 5);
}

#[test]
fn compatibility_format_passes_only_when_allowed_and_never_in_extended_mode() {
    let mut rig = Rig::new(Options::default());
    rig.enable(0);
    expect_fault(&mut rig, 0xfee0_1000, 0x33, 0x25, 0);
    // CFI, bit 23, beside QIE and IRE.
    rig.command(0x0680_0000, 0x0780_0000);
    rig.message(0x3a00, 0xfee0_1000, 0x33);
    assert_eq!(rig.interrupts(), [(1, 0x33)]);
    drop(rig);
    let mut extended = Rig::enabled(Options::default());
    extended.command(0x0680_0000, 0x0780_0000);
    expect_fault(&mut extended, 0xfee0_1000, 0x33, 0x25, 0);
}

/// FPD silences the faults of an entry (22h, 24h, 26h, 27h, 28h), not those of a request (21h, 25h).
#[test]
fn fpd() {
    let mut rig = Rig::enabled(Options::default());
    for (low, high) in [(2, HIGH), (LOW | 2 | 1 << 12, HIGH), (LOW | 2, 0x4_3b00)] {
        rig.entry(5, low, high);
        rig.invalidate(&[(0x4, 0)]);
        rig.message(0x3a00, HANDLE_5, 0);
        assert_eq!((rig.interrupts(), rig.read32(FSTS)), (vec![], 0));
    }
    rig.posted_entry(0x41, 2);
    rig.memory.words()[6].set(1);
    rig.invalidate(&[(0x4, 0)]);
    rig.message(0x3a00, HANDLE_5, 0);
    assert_eq!(rig.read32(FSTS), 0);
    expect_fault(&mut rig, 0xfee0_2010, 0, 0x21, 0x100);
    let (faults, _) = rig.machine.faults();
    assert!(faults.iter().any(|fault| fault.kind.ends_with("wrong requester")), "the report sees them all");
}

#[test]
fn records_fill_in_turn_then_overflow() {
    let mut rig = Rig::enabled(Options { fault_records: 2, ..Options::default() });
    let at = records(&mut rig);
    for requester in [0x100, 0x200, 0x300] {
        rig.message(requester, HANDLE_5, 0);
    }
    assert_eq!(rig.read32(FSTS), 0b11, "PFO and PPF, FRI 0");
    assert_eq!(rig.read64(at + 8) & 0xffff, 0x100);
    assert_eq!(rig.read64(at + 24) & 0xffff, 0x200);
    // No fault is recorded until PFO is cleared, although there is room.
    rig.write32(at + 12, 0x8000_0000);
    rig.message(0x400, HANDLE_5, 0);
    assert_eq!(rig.read64(at + 8) >> 63, 0);
    rig.write32(FSTS, 1);
    rig.message(0x500, HANDLE_5, 0);
    assert_eq!(rig.read64(at + 8) & 0xffff, 0x500);
    assert_eq!(rig.read32(FSTS) & 1, 0);
    assert_eq!(rig.counter("faults_dropped"), 2);
}

#[test]
fn writing_0_clears_nothing() {
    let mut rig = Rig::enabled(Options::default());
    let at = records(&mut rig);
    rig.message(0x100, HANDLE_5, 0);
    rig.write32(at + 12, 0);
    rig.write32(at + 8, 0xffff_ffff);
    rig.write32(FSTS, 0xffff_ffff);
    assert_eq!(rig.read64(at + 8), 0x8000_0022_0000_0100);
    assert_eq!(rig.read32(FSTS) & 0xff, PENDING, "PPF is read-only");
}

/// "Invalidation Completion Error": a device answers what nobody asked of it. FSTS.ICE (bit 5), and the device in bits 63:48 of IQERCD
/// (0xb0). While it stands, no fault is a new reason for an event.
#[test]
fn an_unexpected_completion_is_an_error_with_an_event() {
    let mut rig = Rig::enabled(Options::default());
    rig.write32(0x3c, 0x51);
    rig.write32(0x40, 0xfee0_1000);
    rig.write32(0x38, 0);
    rig.machine.poke(rig.unit, machine::time::Ps(0), machine::fabric::vtd::COMPLETION, 0x3a07);
    rig.run(10_000);
    assert_eq!(rig.interrupts(), [(1, 0x51)]);
    assert_eq!((rig.read32(FSTS), rig.read64(0xb0)), (0x20, 0x3a07 << 48));
    rig.message(0x100, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), [], "the error stands");
    assert_eq!(rig.read32(FSTS) & 0xff, 0x20 | PENDING);
    rig.write32(FSTS, 0x20);
    assert_eq!((rig.read32(FSTS) & 0xff, rig.read64(0xb0)), (PENDING, 0));
}

/// FECTL 0x38, FEDATA 0x3c, FEADDR 0x40. After reset the event is masked (IM, bit 31).
#[test]
fn the_fault_event_is_a_plain_message() {
    let mut rig = Rig::enabled(Options::default());
    assert_eq!(rig.read32(0x38), 0x8000_0000);
    rig.write32(0x3c, 0x51);
    rig.write32(0x40, 0xfee0_1000);
    rig.message(0x100, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), []);
    assert_eq!(rig.read32(0x38), 0xc000_0000, "IP while masked");
    // Unmasking sends it, to CPU 1, though remapping is on and the compatibility format blocked.
    rig.write32(0x38, 0);
    rig.run(1000);
    assert_eq!(rig.interrupts(), [(1, 0x51)]);
    assert_eq!(rig.read32(0x38), 0);
    // One event until software has served everything.
    rig.message(0x100, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), []);
    let at = records(&mut rig);
    rig.write32(at + 12, 0x8000_0000);
    rig.write32(at + 28, 0x8000_0000);
    rig.message(0x100, HANDLE_5, 0);
    assert_eq!(rig.interrupts(), [(1, 0x51)]);
}

#[test]
fn a_pending_event_is_forgotten_when_its_causes_are_served() {
    let mut rig = Rig::enabled(Options::default());
    rig.write32(0x3c, 0x51);
    rig.write32(0x40, 0xfee0_1000);
    rig.message(0x100, HANDLE_5, 0);
    take_record(&mut rig);
    assert_eq!(rig.read32(0x38), 0x8000_0000);
    rig.write32(0x38, 0);
    rig.run(1000);
    assert_eq!(rig.interrupts(), []);
}

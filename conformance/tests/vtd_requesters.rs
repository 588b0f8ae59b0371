//! Requesters inside the root complex: an I/O APIC (82093AA datasheet; VT-d specification, "I/OxAPIC Programming") and
//! an HPET (IA-PC HPET specification 1.0a), whose messages stay remapped.

mod vtd_rig;

use vtd_rig::{Options, Rig};

/// Remapping entry 5 for requester f0:1f.0, the I/O APIC: vector 0x41 to APIC id 2, edge; level is bit 4.
const ENTRY: (u64, u64) = (0x0000_0002_0041_0001, 0x0004_f0f8);
/// Redirection entry of pin 3, remappable: index 5 in 63:49, format bit 48, vector 0x41.
const HIGH: u32 = 0x000b_0000;
const EDGE: u32 = 0x0000_0041;
const LEVEL: u32 = 0x0000_8041;
const MASKED: u32 = 0x0001_0000;
/// Remote IRR.
const REMOTE_IRR: u32 = 0x0000_4000;
/// Registers of pin 3.
const PIN_3: (u32, u32) = (0x16, 0x17);

fn rig(low: u64) -> Rig {
    let mut rig = Rig::enabled(Options::default());
    rig.entry(5, low, ENTRY.1);
    rig.ioapic_write(PIN_3.1, HIGH);
    rig
}

#[test]
fn identification_and_reset() {
    let mut rig = Rig::new(Options::default());
    assert_eq!(rig.ioapic_read(0x01), 0x0017_0020, "version 0x20, 24 entries");
    assert_eq!(rig.ioapic_read(0x10), MASKED);
    rig.ioapic_write(0x00, 0xffff_ffff);
    assert_eq!(rig.ioapic_read(0x00), 0x0f00_0000);
}

#[test]
fn in_compatibility_format_the_entry_names_the_cpu() {
    let mut rig = Rig::new(Options::default());
    // Destination in 63:56; remapping is off.
    rig.ioapic_write(PIN_3.1, 0x0100_0000);
    rig.ioapic_write(PIN_3.0, EDGE);
    rig.pin(3, true);
    assert_eq!(rig.interrupts(), [(1, 0x41)]);
}

#[test]
fn an_edge_goes_through_its_remapping_entry_once() {
    let mut rig = rig(ENTRY.0);
    rig.ioapic_write(PIN_3.0, EDGE);
    rig.pin(3, true);
    assert_eq!(rig.interrupts(), [(2, 0x41)]);
    rig.pin(3, true);
    rig.pin(3, false);
    assert_eq!(rig.interrupts(), []);
    rig.pin(3, true);
    assert_eq!(rig.interrupts(), [(2, 0x41)]);
    assert_eq!(rig.read32(0x34), 0, "no fault");
}

#[test]
fn an_edge_on_a_masked_pin_is_lost() {
    let mut rig = rig(ENTRY.0);
    rig.pin(3, true);
    rig.ioapic_write(PIN_3.0, EDGE);
    assert_eq!(rig.interrupts(), []);
}

#[test]
fn index_bit_15_lies_in_bit_11() {
    let mut rig = rig(ENTRY.0);
    rig.ioapic_write(PIN_3.0, EDGE | 1 << 11);
    rig.pin(3, true);
    let at = (rig.read64(0x08) >> 24 & 0x3ff) as u32 * 16;
    assert_eq!(rig.read64(at) >> 48, 0x8005);
    assert_eq!(rig.read64(at + 8), 0x8000_0021_0000_f0f8, "index beyond the table, from the I/O APIC");
}

/// The LAPIC broadcasts the EOI of a level interrupt; a pin that is still asserted then interrupts again.
#[test]
fn a_level_comes_again_until_it_is_gone() {
    let mut rig = rig(ENTRY.0 | 1 << 4);
    rig.ioapic_write(PIN_3.0, LEVEL | MASKED);
    rig.pin(3, true);
    assert_eq!(rig.interrupts(), [], "masked");
    // The rig's handler ends each interrupt at once, so it comes over and over.
    rig.ioapic_write(PIN_3.0, LEVEL);
    let storm = rig.interrupts();
    assert!(storm.len() > 3 && storm.iter().all(|&interrupt| interrupt == (2, 0x41)), "{storm:?}");
    rig.pin(3, false);
    rig.interrupts();
    rig.run(10_000);
    assert_eq!(rig.interrupts(), []);
    assert_eq!(rig.ioapic_read(PIN_3.0), LEVEL, "remote IRR is clear");
}

/// With an edge-triggered remapping entry no EOI is broadcast: the pin waits for the directed EOI.
#[test]
fn a_directed_eoi_clears_remote_irr_by_vector() {
    let mut rig = rig(ENTRY.0);
    rig.ioapic_write(PIN_3.0, LEVEL);
    rig.pin(3, true);
    assert_eq!(rig.interrupts(), [(2, 0x41)]);
    assert_eq!(rig.ioapic_read(PIN_3.0), LEVEL | REMOTE_IRR);
    rig.ioapic_eoi(0x42);
    assert_eq!(rig.interrupts(), []);
    // Remote IRR is read-only.
    rig.ioapic_write(PIN_3.0, LEVEL);
    assert_eq!(rig.ioapic_read(PIN_3.0), LEVEL | REMOTE_IRR);
    rig.ioapic_eoi(0x41);
    assert_eq!(rig.interrupts(), [(2, 0x41)]);
}

#[test]
fn an_hpet_message_is_remapped_like_any_other() {
    let mut rig = Rig::enabled(Options::default());
    // Entry 9 for requester f0:1e.0: vector 0x36 to APIC id 1.
    rig.entry(9, 0x0000_0001_0036_0001, 0x0004_f0f0);
    assert_eq!(rig.hpet_read(0x000), 0x05f5_e100_8086_2001);
    // FSB route 0x110: address in 63:32, data in 31:0. Handle 9, remappable.
    rig.hpet_write(0x110, 0xfee0_0130_0000_0000);
    // Timer 0, 0x100: interrupt enable (2), FSB enable (14); comparator 0x108 after 20 ticks of 100 ns.
    rig.hpet_write(0x100, 0x4004);
    assert_eq!(rig.hpet_read(0x100), 0xc034, "FSB capable, 64 bits, periodic capable");
    rig.hpet_write(0x108, 20);
    rig.hpet_write(0x010, 1);
    rig.run(1_500);
    assert_eq!(rig.interrupts(), []);
    rig.run(1_000);
    assert_eq!(rig.interrupts(), [(1, 0x36)]);
    rig.run(10_000);
    assert_eq!(rig.interrupts(), [], "one shot");
}

#[test]
fn a_periodic_hpet_timer_goes_on() {
    let mut rig = Rig::new(Options::default());
    rig.hpet_write(0x110, 0xfee0_1000_0000_0036);
    // Periodic (3), the next write of the comparator sets its value (6), the one after it the period.
    rig.hpet_write(0x100, 0x404c);
    rig.hpet_write(0x108, 10);
    rig.hpet_write(0x108, 10);
    rig.hpet_write(0x010, 1);
    rig.run(5_550);
    assert_eq!(rig.interrupts(), [(1, 0x36); 5]);
    // While halted, the counter stands still.
    rig.hpet_write(0x010, 0);
    let stood = rig.hpet_read(0x0f0);
    rig.run(5_000);
    assert_eq!((rig.hpet_read(0x0f0), rig.interrupts()), (stood, vec![]));
}

#[test]
fn a_wrong_requester_is_refused() {
    let mut rig = rig(ENTRY.0);
    // The entry is the I/O APIC's.
    rig.message(0xf0f0, 0xfee0_00b0, 0);
    assert_eq!(rig.interrupts(), []);
    let at = (rig.read64(0x08) >> 24 & 0x3ff) as u32 * 16;
    assert_eq!(rig.read64(at + 8), 0x8000_0026_0000_f0f0);
}

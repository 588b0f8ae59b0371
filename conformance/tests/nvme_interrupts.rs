//! MSI-X, the drive's message rules and interrupt coalescing, word by word from the PCI Express and NVMe Base 2.0
//! specifications.

mod nvme_rig;

use hal::Regs as _;
use machine::nvme::{Config, FaultPlan, HiddenCoalescing, Resend};
use machine::time::Ps;
use nvme_rig::{After, Host, Pair, command, config, host, status};

/// Submits `count` flushes at once.
fn flushes(host: &Host, pair: &mut Pair, count: u64) {
    for n in 0..count {
        pair.push(command(0x00, n, 1, [0, 0], [0; 4]));
    }
    host.ring_sq(pair.qid, pair.tail);
}

/// Takes and acknowledges all entries.
fn reap_all(host: &Host, pair: &mut Pair) -> usize {
    let taken = core::iter::from_fn(|| pair.pop()).count();
    if taken > 0 {
        host.ring_cq(pair.qid, pair.head);
    }
    taken
}

#[test]
fn the_capability_and_the_table_at_reset() {
    host(config(), |host| {
        assert_eq!(host.config.read32(0x08) >> 8, 0x01_08_02, "class code");
        assert_eq!(host.config.read32(0x34), 0x40, "capabilities pointer");
        // Id 11h, no next, table size 5 − 1, disabled.
        assert_eq!(host.config.read32(0x40), 0x0004_0011);
        assert_eq!((host.config.read32(0x44), host.config.read32(0x48)), (0x0000_0004, 0x0000_8004), "BAR 4");
        assert_eq!((0..5).map(|vector| host.msix.read32(vector * 16 + 12)).collect::<Vec<_>>(), [1; 5], "all masked");
        host.msix.write64(16, 0x0000_0001_fee0_1003);
        assert_eq!(host.msix.read64(16), 0x0000_0001_fee0_1000, "bits 1:0 are zero");
        host.msix.write32(0x8000, 1);
        assert_eq!(host.msix.read32(0x8000), 0, "pending bits are read-only");
        host.config.write32(0x40, 0xffff_ffff);
        assert_eq!(host.config.read32(0x40), 0xc004_0011, "enable and function mask only");
        assert_eq!(host.msix.read32(5 * 16 + 12), 0, "no sixth entry");
    });
}

#[test]
fn an_entry_makes_one_message_of_its_vector() {
    let after = host(config(), |host| {
        host.msix_on(5);
        host.enable();
        let mut pair = host.create(2, 16, Some(3));
        let before = host.messages();
        assert!(before.iter().all(|&message| message == (0xfee0_0000, 0x40)), "admin: vector 0");
        flushes(host, &mut pair, 1);
        host.wait_ns(10_000);
        assert_eq!(host.messages()[before.len()..], [(0xfee0_0000, 0x43)]);
    });
    assert_eq!((after.by_vector[3], after.counter("msis")), (1, after.messages.len() as u64));
}

#[test]
fn entries_within_the_window_share_a_message() {
    let mut config = config();
    // Entries 100 ns apart, a window of 500 ns: the first opens it, four or five follow.
    config.timing.msi = Ps::from_ns(450);
    let after = host(config, |host| {
        host.msix_on(5);
        host.enable();
        let mut pair = host.create(1, 16, Some(1));
        flushes(host, &mut pair, 10);
        host.wait_ns(20_000);
        assert_eq!(reap_all(host, &mut pair), 10);
    });
    assert_eq!((after.by_vector[1], after.counter("msis_merged") >= 8), (2, true));
}

#[test]
fn a_queue_without_interrupts_sends_none() {
    let after = host(config(), |host| {
        host.msix_on(5);
        host.enable();
        let mut pair = host.create(1, 16, None);
        flushes(host, &mut pair, 10);
        host.wait_ns(20_000);
        reap_all(host, &mut pair)
    });
    assert_eq!((after.result, after.by_vector[1..].iter().sum::<u64>()), (10, 0));
}

#[test]
fn a_masked_vector_is_pending_and_sends_when_the_mask_goes() {
    // (write that masks, write that unmasks): the vector's control, then the function mask.
    for function in [false, true] {
        let after = host(config(), move |host| {
            host.msix_on(5);
            host.enable();
            let mut pair = host.create(1, 16, Some(2));
            let mask = |on: u32| {
                if function { host.config.write32(0x40, 0x8000_0000 | on << 30) } else { host.msix.write32(44, on) }
            };
            mask(1);
            let before = host.messages().len();
            flushes(host, &mut pair, 3);
            host.wait_ns(20_000);
            assert_eq!((host.messages().len(), host.msix.read32(0x8000)), (before, 0b100));
            mask(0);
            host.wait_ns(1_000);
            assert_eq!((host.messages().len(), host.msix.read32(0x8000)), (before + 1, 0));
            // The host acknowledged while the vector was masked: the condition is gone, and so is the pending bit.
            reap_all(host, &mut pair);
            mask(1);
            flushes(host, &mut pair, 1);
            host.wait_ns(20_000);
            assert_eq!(host.msix.read32(0x8000), 0b100);
            reap_all(host, &mut pair);
            host.wait_ns(1_000);
            assert_eq!(host.msix.read32(0x8000), 0);
            mask(0);
            host.wait_ns(1_000);
            assert_eq!(host.messages().len(), before + 1);
        });
        assert_eq!(after.counter("msis_pended"), 2);
    }
}

/// One entry, then a second 2 µs after it, and a look between the two or not.
fn two_entries(resend: Resend, acknowledge_between: bool) -> After<()> {
    host(Config { resend, ..config() }, move |host| {
        host.msix_on(5);
        host.enable();
        let mut pair = host.create(1, 16, Some(1));
        flushes(host, &mut pair, 1);
        host.wait_ns(2_000);
        flushes(host, &mut pair, 1);
        host.wait_ns(4_500);
        if acknowledge_between {
            reap_all(host, &mut pair);
        }
        host.wait_ns(20_000);
        reap_all(host, &mut pair);
        host.wait_ns(20_000);
    })
}

#[test]
fn when_a_vector_sends_again() {
    assert_eq!(two_entries(Resend::PerEntry, false).by_vector[1], 2);
    assert_eq!(two_entries(Resend::PerEntry, true).by_vector[1], 2);
    assert_eq!(two_entries(Resend::PerUnacknowledgedBatch, false).by_vector[1], 2);
    assert_eq!(two_entries(Resend::PerUnacknowledgedBatch, true).by_vector[1], 2);
    assert_eq!(two_entries(Resend::AfterDoorbell, false).by_vector[1], 1, "the host has not answered the first");
    assert_eq!(two_entries(Resend::AfterDoorbell, true).by_vector[1], 2);
}

#[test]
fn what_the_host_found_itself_needs_no_message() {
    for (resend, messages, spared) in [(Resend::PerUnacknowledgedBatch, 0, 1), (Resend::PerEntry, 1, 0)] {
        let mut config = Config { resend, ..config() };
        config.timing.msi = Ps::from_ns(5_000);
        let after = host(config, |host| {
            host.msix_on(5);
            host.enable();
            let mut pair = host.create(1, 16, Some(1));
            flushes(host, &mut pair, 1);
            host.wait_ns(6_000);
            assert_eq!(reap_all(host, &mut pair), 1);
            host.wait_ns(20_000);
        });
        assert_eq!(after.by_vector[1], messages, "{resend:?}");
        // Admin entries were taken before their messages, too.
        assert!(after.counter("msis_spared") >= spared);
    }
}

/// Flushes every 10 µs for 4 ms (400), reaped 9 µs later, with features 08h and 09h set to these dwords.
fn coalesced(config: Config, feature_08h: u64, feature_09h: u64) -> After<()> {
    host(config, move |host| {
        host.msix_on(5);
        host.enable();
        let mut pair = host.create(1, 64, Some(1));
        assert_eq!(status(host.run(0x09, 0, [0, 0], [0x08, feature_08h, 0, 0])), 0);
        assert_eq!(status(host.run(0x09, 0, [0, 0], [0x09, feature_09h, 0, 0])), 0);
        let mut seen = host.messages().len();
        let mut taken = 0;
        for _ in 0..400 {
            flushes(host, &mut pair, 1);
            host.wait_ns(9_990);
            // A host that acts only on messages.
            if host.messages().len() > seen {
                seen = host.messages().len();
                taken += reap_all(host, &mut pair);
            }
        }
        host.wait_ns(2_000_000);
        taken += reap_all(host, &mut pair);
        assert_eq!(taken, 400, "no entry is lost");
    })
}

#[test]
fn coalescing_makes_as_few_messages_as_it_says() {
    let messages = |after: After<()>| after.by_vector[1];
    assert_eq!(messages(coalesced(config(), 0x0000, 0x1)), 400, "off");
    assert_eq!(messages(coalesced(config(), 0x0007, 0x1)), 400, "time 0: off");
    assert_eq!(messages(coalesced(config(), 0x0200, 0x1)), 400, "threshold 0, one entry: off");
    // Threshold 7, 0's based: eight entries; 25.5 ms are never reached.
    assert_eq!(messages(coalesced(config(), 0xff07, 0x1)), 50);
    // 100 µs are reached first: eleven entries (0 to 100 µs) of 10 µs each, within one either way.
    let by_time = messages(coalesced(config(), 0x01ff, 0x1));
    assert!((34..=40).contains(&by_time), "{by_time}");
    assert_eq!(messages(coalesced(config(), 0xff07, 0x1_0001)), 400, "disabled for vector 1");
}

#[test]
fn the_admin_queue_is_never_coalesced() {
    let after = host(config(), |host| {
        host.msix_on(5);
        host.enable();
        assert_eq!(status(host.run(0x09, 0, [0, 0], [0x08, 0xffff, 0, 0])), 0);
        let before = host.messages().len();
        // Not acknowledged at once, so that the message is not spared.
        host.admin.push(command(0x0a, 1, 0, [0, 0], [0x08, 0, 0, 0]));
        host.ring_sq(0, host.admin.tail);
        host.wait_ns(3_000);
        host.messages().len() - before
    });
    assert_eq!((after.result, after.counter("coalesced")), (1, 0));
}

#[test]
fn hidden_coalescing_reads_as_none() {
    let hidden = |entries, us: u64| Config {
        hidden_coalescing: Some(HiddenCoalescing { entries, time: Ps::from_ns(us * 1000) }),
        ..config()
    };
    assert_eq!(coalesced(hidden(4, 1_000), 0, 0x1).by_vector[1], 100);
    let by_time = coalesced(hidden(0, 100), 0, 0x1).by_vector[1];
    assert!((34..=40).contains(&by_time), "{by_time}");
    host(hidden(4, 1_000), |host| {
        host.enable();
        assert_eq!(host.run(0x0a, 0, [0, 0], [0x08, 0, 0, 0])[0] & 0xffff_ffff, 0);
    });
}

#[test]
fn a_dropped_message_is_counted_and_a_disabled_function_sends_none() {
    let faults = FaultPlan { drop_msi: Some(1), ..FaultPlan::default() };
    let after = host(Config { faults, ..config() }, |host| {
        host.msix_on(5);
        host.enable();
        host.admin.push(command(0x0a, 1, 0, [0, 0], [0x08, 0, 0, 0]));
        host.ring_sq(0, host.admin.tail);
        host.wait_ns(10_000);
    });
    assert_eq!((after.messages.len(), after.counter("msis_lost")), (0, 1));
    let after = host(config(), |host| {
        host.enable();
        assert_eq!(host.identify(1, 0).0, 0);
        host.wait_ns(10_000);
    });
    assert!(after.messages.is_empty());
}

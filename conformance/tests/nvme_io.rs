//! I/O commands, data pointers and completion entries, word by word from NVMe Base 2.0 and the NVM Command Set 1.0.

mod nvme_rig;

use hal::{Dma as _, Hal as _, Regs as _, Word as _};
use machine::SimHal;
use machine::nvme::{Config, FaultPlan, RandomFaults, StorageKind};
use machine::outage::Outage;
use machine::time::Ps;
use nvme_rig::{cid, command, config, host, memory, status, transfer, unreliable};

const WRITE: u64 = 0x01;
const READ: u64 = 0x02;

fn storing() -> Config {
    Config { storage: StorageKind::Memory, ..config() }
}

#[test]
fn an_entry_has_phase_head_queue_and_id() {
    let after = host(config(), |host| {
        host.enable();
        let mut pair = host.create(2, 4, None);
        let data = memory(512);
        let prp = [data.device_address().0, 0];
        (0..9).map(|n| host.io(&mut pair, transfer(READ, 0x40 + n, n, 1, prp))[1]).collect::<Vec<_>>()
    });
    // SQHD 15:0, SQID 31:16, CID 47:32, P 48: inverted every four entries.
    let phases = [1, 1, 1, 1, 0, 0, 0, 0, 1];
    let expected: Vec<u64> =
        (0..9).map(|n| ((n + 1) % 4) | 2 << 16 | (0x40 + n) << 32 | phases[n as usize] << 48).collect();
    assert_eq!(after.result, expected);
    assert_eq!((after.counter("reads"), after.counter("read_bytes")), (9, 9 * 512));
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn what_was_written_is_read_back_over_lists_of_pages() {
    host(storing(), |host| {
        host.enable();
        let mut pair = host.create(1, 8, None);
        // (blocks, offset of the data in its first page, entries of the first list page)
        for (blocks, offset, list_entries) in
            [(1, 0, 0), (1, 4, 0), (1, 0xf00, 0), (16, 0x200, 2), (64, 0xc00, 512), (64, 0, 3), (200, 4, 2)]
        {
            let bytes = blocks as usize * 512;
            let pages = bytes.div_ceil(4096) + 1;
            let from = memory(pages * 4096);
            let to = memory(pages * 4096);
            for at in (0..bytes).step_by(4) {
                from.write32(offset + at, (at as u32 + blocks as u32).wrapping_mul(0x9e37_79b9));
            }
            let (from_prp, _keep) = data_pointer(&from, offset, bytes, list_entries);
            let (to_prp, _keep_too) = data_pointer(&to, offset, bytes, list_entries);
            assert_eq!(status(host.io(&mut pair, transfer(WRITE, 1, 100, blocks, from_prp))), 0);
            assert_eq!(status(host.io(&mut pair, transfer(READ, 2, 100, blocks, to_prp))), 0);
            for at in (0..pages * 4096).step_by(4) {
                let inside = (offset..offset + bytes).contains(&at);
                let expected = if inside { from.read32(at) } else { 0 };
                assert_eq!(to.read32(at), expected, "{blocks} blocks at {offset:#x}: byte {at:#x}");
            }
        }
        let zero = memory(4096);
        zero.words()[0].set(1);
        host.io(&mut pair, transfer(READ, 3, 5000, 1, [zero.device_address().0, 0]));
        assert_eq!(zero.words()[0].get(), 0, "never written");
    });
}

/// PRP1 and PRP2 for data in a buffer of whole pages; lists stand at the end of their page so that they hold
/// `list_entries` entries, then go on on another page.
fn data_pointer(
    data: &nvme_rig::DmaBuffer,
    offset: usize,
    bytes: usize,
    list_entries: usize,
) -> ([u64; 2], Vec<nvme_rig::DmaBuffer>) {
    let base = data.device_address().0;
    let pages: Vec<u64> = (1..(offset + bytes).div_ceil(4096)).map(|page| base + page as u64 * 4096).collect();
    let prp1 = base + offset as u64;
    if pages.len() < 2 {
        return ([prp1, pages.first().copied().unwrap_or(0)], Vec::new());
    }
    let list = memory(4096);
    let start = 512 - list_entries.min(512);
    let mut lists = vec![list];
    let mut at = start;
    for (index, &page) in pages.iter().enumerate() {
        if at == 511 && index + 1 < pages.len() {
            let next = memory(4096);
            lists.last().expect("one").words()[511].set(next.device_address().0);
            lists.push(next);
            at = 0;
        }
        lists.last().expect("one").words()[at].set(page);
        at += 1;
    }
    ([prp1, lists[0].device_address().0 + start as u64 * 8], lists)
}

#[test]
fn wrong_commands_get_their_status() {
    let after = host(storing(), |host| {
        host.enable();
        let mut pair = host.create(1, 32, None);
        let data = memory(8192);
        let list = memory(4096);
        let at = data.device_address().0;
        let loop_list = list.device_address().0;
        list.words()[0].set(at + 8);
        // A list that points to itself for ever.
        let chain = memory(4096);
        chain.words()[511].set(chain.device_address().0 + 511 * 8);
        let prp = [at, 0];
        let cases = [
            (command(0x7e, 0, 1, prp, [0; 4]), 0x001, "unknown opcode"),
            (transfer(READ | 0x100, 0, 0, 1, prp), 0x002, "fused"),
            (transfer(READ | 0x4000, 0, 0, 1, prp), 0x002, "SGL"),
            (command(READ, 0, 2, prp, [0; 4]), 0x00b, "namespace 2"),
            (command(READ, 0, 0, prp, [0; 4]), 0x00b, "namespace 0"),
            (transfer(READ, 0, 0x1_0000, 1, prp), 0x080, "first block beyond the end"),
            (transfer(READ, 0, 0xffff, 2, prp), 0x080, "last block beyond the end"),
            (transfer(READ, 0, u64::MAX, 2, prp), 0x080, "wraps"),
            (transfer(READ, 0, 0, 257, prp), 0x002, "beyond MDTS: 128 KiB"),
            (transfer(READ, 0, 0, 1, [at + 2, 0]), 0x013, "PRP1 off a dword"),
            (transfer(READ, 0, 0, 16, [at, at + 4]), 0x013, "PRP2 off its page"),
            (transfer(READ, 0, 0, 32, [at, loop_list + 4]), 0x013, "list off a qword"),
            (transfer(READ, 0, 0, 32, [at, loop_list]), 0x013, "list entry off its page"),
            (transfer(READ, 0, 0, 256, [at, chain.device_address().0 + 511 * 8]), 0x013, "a chain that ends nowhere"),
            (transfer(READ, 0, 0, 1, [0x1000, 0]), 0x004, "no memory there"),
            (transfer(WRITE, 0, 0, 1, [u64::MAX - 3, 0]), 0x004, "no memory there either"),
            (command(0x00, 0, 1, [0, 0], [0; 4]), 0x000, "flush"),
            (command(0x00, 0, 0xffff_ffff, [0, 0], [0; 4]), 0x000, "flush of all namespaces"),
        ];
        for (id, (mut words, expected, why)) in (0x200..).zip(cases) {
            words[0] |= id << 16;
            let entry = host.io(&mut pair, words);
            assert_eq!((cid(entry), status(entry)), (id, expected), "{why}");
        }
    });
    assert_eq!((after.counter("errors"), after.counter("flushes"), after.slots_in_use), (16, 2, 0));
}

#[test]
fn tags_tell_blocks_apart() {
    host(Config { storage: StorageKind::Tags, ..config() }, |host| {
        host.enable();
        let mut pair = host.create(1, 8, None);
        let data = memory(4096);
        let prp = [data.device_address().0, 0];
        host.io(&mut pair, transfer(READ, 1, 700, 2, prp));
        assert_eq!((data.words()[0].get(), data.words()[64].get()), (700, 701));
        data.words()[0].set(0xabcd);
        host.io(&mut pair, transfer(WRITE, 2, 701, 1, prp));
        host.io(&mut pair, transfer(READ, 3, 700, 2, prp));
        assert_eq!((data.words()[0].get(), data.words()[64].get()), (700, 0xabcd));
    });
}

#[test]
fn a_full_completion_queue_is_never_overwritten() {
    let after = host(config(), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        // Its entries go to a completion queue of four.
        assert_eq!(status(host.run(0x00, 0, [0, 0], [1, 0, 0, 0])), 0);
        let small = memory(4096);
        assert_eq!(status(host.run(0x05, 0, [small.device_address().0, 0], [0x0003_0002, 1, 0, 0])), 0);
        let sq = [pair.sq.device_address().0, 0];
        assert_eq!(status(host.run(0x01, 0, sq, [0x000f_0001, 0x2_0001, 0, 0])), 0);
        let mut cids = Vec::new();
        for n in 0..12 {
            pair.push(command(0x00, n, 1, [0, 0], [0; 4]));
        }
        host.ring_sq(1, 12);
        let (mut head, mut phase) = (0, 1);
        for _ in 0..12 {
            host.wait_ns(50_000);
            let word = small.words()[head * 2 + 1].get();
            assert_eq!(word >> 48 & 1, phase, "an entry for each command");
            cids.push(word >> 32 & 0xffff);
            head = (head + 1) % 4;
            phase ^= u64::from(head == 0);
            host.ring_cq(2, head as u16);
        }
        cids
    });
    assert_eq!(after.result, (0..12).collect::<Vec<_>>(), "each once, in order");
    assert!(after.counter("queue_full_waits") > 0);
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn fetching_goes_round_the_queues() {
    let after = host(config(), |host| {
        host.enable();
        let mut pairs = [host.create(1, 16, None), host.create(2, 16, None)];
        for pair in &mut pairs {
            for n in 0..8 {
                pair.push(command(0x00, n, 1, [0, 0], [0; 4]));
            }
            host.ring_sq(pair.qid, pair.tail);
        }
        // Fetched 100 ns apart from t0 = doorbell; flushed 5 µs later: after 4 of each, both have about 4.
        host.wait_ns(5_000 + 850);
        pairs.map(|mut pair| core::iter::from_fn(|| pair.pop()).count())
    });
    let [first, second] = after.result;
    assert!(first.abs_diff(second) <= 1 && first + second < 16, "{first} and {second}");
}

#[test]
fn slots_limit_what_is_worked_on_at_once() {
    let mut config = config();
    config.timing.slots = 2;
    config.timing.fetch = Ps::from_ns(10);
    let after = host(config, |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        for n in 0..8 {
            pair.push(command(0x00, n, 1, [0, 0], [0; 4]));
        }
        host.ring_sq(1, 8);
        (0..4)
            .map(|_| {
                host.wait_ns(5_050);
                core::iter::from_fn(|| pair.pop()).count()
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(after.result, [2, 2, 2, 2]);
    assert_eq!(after.counter("slots_busy_ps"), 8 * 5_000_000);
}

#[test]
fn deleting_a_queue_completes_what_is_in_work() {
    let after = host(storing(), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        let data = memory(4096);
        data.words()[0].set(0x55);
        for n in 0..4 {
            pair.push(transfer(READ, n, 0, 1, [data.device_address().0, 0]));
        }
        host.ring_sq(1, 4);
        host.wait_ns(3_000);
        assert_eq!(status(host.run(0x00, 0, [0, 0], [1, 0, 0, 0])), 0);
        let mut entries: Vec<_> = (0..4).map(|_| host.reap(&mut pair)).map(|e| (cid(e), status(e))).collect();
        entries.sort_unstable();
        assert_eq!(entries, [(0, 8), (1, 8), (2, 8), (3, 8)]);
        host.wait_ns(100_000);
        assert!(pair.pop().is_none(), "once each");
        assert_eq!(data.words()[0].get(), 0x55, "nothing written after the deletion");
        assert_eq!(status(host.run(0x04, 0, [0, 0], [1, 0, 0, 0])), 0);
    });
    assert_eq!(after.slots_in_use, 0);
}

#[test]
fn data_on_the_link_of_a_deleted_queue_go_nowhere() {
    let after = host(storing(), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        let data = memory(128 << 10);
        data.words()[0].set(0x55);
        let (prp, _lists) = data_pointer(&data, 0, 128 << 10, 512);
        // 128 KiB pass the link in 13 µs.
        pair.push(transfer(WRITE, 1, 40, 256, prp));
        host.ring_sq(1, 1);
        host.wait_ns(3_000);
        assert_eq!(status(host.run(0x00, 0, [0, 0], [1, 0, 0, 0])), 0);
        assert_eq!(status(host.reap(&mut pair)), 0x008);
        host.wait_ns(100_000);
        assert!(pair.pop().is_none(), "once");
        let mut other = host.create(2, 16, None);
        assert_eq!(status(host.io(&mut other, transfer(READ, 2, 40, 1, prp))), 0);
        data.words()[0].get()
    });
    assert_eq!((after.result, after.counter("writes"), after.slots_in_use), (0, 0, 0));
}

#[test]
fn abort_finds_a_command_in_work() {
    host(config(), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        pair.push(transfer(READ, 7, 0, 1, [memory(512).device_address().0, 0]));
        host.ring_sq(1, 1);
        host.wait_ns(1_000);
        assert_eq!(host.run(0x08, 0, [0, 0], [0x0007_0001, 0, 0, 0])[0] & 1, 0);
        let entry = host.reap(&mut pair);
        assert_eq!((cid(entry), status(entry)), (7, 0x007));
        assert_eq!(host.run(0x08, 0, [0, 0], [0x0007_0001, 0, 0, 0])[0] & 1, 1, "it is over");
        host.wait_ns(50_000);
        assert!(pair.pop().is_none());
    });
}

#[test]
fn a_reset_drops_everything_in_work() {
    let after = host(config(), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        let data = memory(512);
        for n in 0..8 {
            pair.push(transfer(READ, n, 0, 1, [data.device_address().0, 0]));
        }
        host.ring_sq(1, 8);
        host.wait_ns(5_000);
        host.disable();
        host.enable();
        host.wait_ns(100_000);
        assert!(pair.pop().is_none());
        let mut pair = host.create(1, 16, None);
        assert_eq!(status(host.io(&mut pair, transfer(READ, 1, 0, 1, [data.device_address().0, 0]))), 0);
    });
    assert_eq!((after.counter("completions"), after.slots_in_use), (1, 0));
}

#[test]
fn planned_faults_happen_at_their_entry() {
    let faults = FaultPlan {
        unknown_cid_at_entry: Some(1),
        duplicate_at_entry: Some(2),
        unknown_sq_at_entry: Some(3),
        wrong_phase_at_entry: Some(4),
        ..FaultPlan::default()
    };
    host(Config { faults, ..config() }, |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        for n in 1..=4 {
            pair.push(command(0x00, n, 1, [0, 0], [0; 4]));
        }
        host.ring_sq(1, 4);
        host.wait_ns(50_000);
        let entries: Vec<_> = core::iter::from_fn(|| pair.pop()).map(|e| (cid(e), e[1] >> 16 & 0xffff)).collect();
        assert_eq!(entries, [(0xfffe, 1), (2, 1), (2, 1), (3, 0xffff)]);
        assert_eq!(pair.cq.words()[9].get() >> 32, 4, "there, with the phase of no pass");
    });
}

#[test]
fn a_drive_fails_falls_silent_or_is_pulled() {
    let when = Some(Ps::from_ns(60_000));
    let registers = |faults, outage| {
        unreliable(Config { faults, ..config() }, outage, |host| {
            host.enable();
            let mut pair = host.create(1, 16, None);
            pair.push(command(0x00, 1, 1, [0, 0], [0; 4]));
            host.wait_ns(60_000);
            host.ring_sq(1, 1);
            host.wait_ns(50_000);
            (host.bar0.read32(0x1c), pair.pop().is_some())
        })
    };
    let failed = registers(FaultPlan { fatal_at: when, ..FaultPlan::default() }, Outage::default());
    assert_eq!(failed.result, (3, false), "CFS, RDY");
    assert!(failed.faulted("NVMe controller failure by the fault plan"));
    let outage = |outage| registers(FaultPlan::default(), outage).result;
    assert_eq!(outage(Outage { silent_at: when, ..Outage::default() }), (1, false));
    assert_eq!(outage(Outage { gone_at: when, ..Outage::default() }), (0xffff_ffff, false));
}

#[test]
fn a_silence_that_ends_is_made_up_for() {
    let outage =
        Outage { silent_at: Some(Ps::from_ns(100_000)), silent_until: Some(Ps::from_ns(300_000)), ..Outage::default() };
    let after = unreliable(config(), outage, |host| {
        host.msix_on(5);
        host.enable();
        let mut pair = host.create(1, 16, Some(1));
        let now = SimHal.now_ns();
        assert!(now < 90_000, "the silence has not begun at {now} ns");
        host.wait_ns(98_000 - now);
        // The drive works on one command when the silence begins; another is submitted during the silence.
        pair.push(command(0x00, 1, 1, [0, 0], [0; 4]));
        host.ring_sq(1, 1);
        host.wait_ns(50_000);
        pair.push(command(0x00, 2, 1, [0, 0], [0; 4]));
        host.ring_sq(1, 2);
        host.wait_ns(100_000);
        assert_eq!((pair.pop(), host.bar0.read32(0x1c), host.messages().len()), (None, 1, 0), "but ready");
        host.wait_ns(60_000);
        let entries: Vec<_> = core::iter::from_fn(|| pair.pop()).map(cid).collect();
        assert_eq!(entries, [1, 2]);
        assert_eq!(host.messages(), [(0xfee0_0000, 0x41); 2]);
    });
    assert_eq!(after.slots_in_use, 0);
}

/// Four commands under certain random faults, and a fifth when they are over: entries as (command id, queue).
fn spoilt(random: RandomFaults) -> Vec<(u64, u64)> {
    let random = RandomFaults { until: Ps::from_ns(150_000), ..random };
    let faults = FaultPlan { random, ..FaultPlan::default() };
    let after = host(Config { faults, ..config() }, |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        for n in 1..=4 {
            pair.push(command(0x00, n, 1, [0, 0], [0; 4]));
        }
        host.ring_sq(1, 4);
        let now = SimHal.now_ns();
        assert!(now < 130_000, "rung at {now} ns");
        host.wait_ns(200_000 - now);
        pair.push(command(0x00, 5, 1, [0, 0], [0; 4]));
        host.ring_sq(1, 5);
        host.wait_ns(20_000);
        core::iter::from_fn(|| pair.pop()).map(|e| (cid(e), e[1] >> 16 & 0xffff)).collect()
    });
    assert_eq!(after.slots_in_use, 0);
    after.result
}

#[test]
fn random_faults_end_with_their_window() {
    let none = RandomFaults::default();
    assert_eq!(spoilt(none), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
    let twice = |second: fn(u64) -> (u64, u64)| -> Vec<_> {
        (1..=4).flat_map(|n| [(n, 1), second(n)]).chain([(5, 1)]).collect()
    };
    assert_eq!(spoilt(RandomFaults { duplicate: 1_000, ..none }), twice(|n| (n, 1)));
    assert_eq!(spoilt(RandomFaults { stray_cid: 1_000, ..none }), twice(|n| (!n & 0xffff, 1)));
    assert_eq!(spoilt(RandomFaults { stray_sq: 1_000, ..none }), twice(|n| (n, 0xffff)));
    assert_eq!(spoilt(RandomFaults { lost: 1_000, ..none }), [(5, 1)]);
    // Corrected before the end.
    let corrected = RandomFaults { wrong_phase: 1_000, corrected_after: Ps::from_ns(30_000), ..none };
    assert_eq!(spoilt(corrected), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
    let never = RandomFaults { corrected_after: Ps::from_ns(1_000_000_000), ..corrected };
    assert_eq!(spoilt(never), [], "those behind it are not seen either");
    let some = RandomFaults { duplicate: 500, ..none };
    let (first, again) = (spoilt(some), spoilt(some));
    assert_eq!(first, again, "a seed is a history");
    assert_ne!(first, spoilt(RandomFaults { seed: 2, ..some }));
}

/// The host looks after each message, finds nothing, and gets another message. The drive writes nothing to a queue
/// that was deleted.
#[test]
fn a_corrected_phase_is_signalled_again_while_its_queue_is_there() {
    let wrong = |corrected_after_ns| {
        let corrected_after = Ps::from_ns(corrected_after_ns);
        let random = RandomFaults { wrong_phase: 1_000, corrected_after, ..RandomFaults::default() };
        Config { faults: FaultPlan { random, ..FaultPlan::default() }, ..config() }
    };
    let after = host(wrong(20_000), |host| {
        host.msix_on(5);
        host.enable();
        let mut pair = host.create(1, 16, Some(1));
        pair.push(command(0x00, 1, 1, [0, 0], [0; 4]));
        host.ring_sq(1, 1);
        host.wait_ns(15_000);
        let told = |host: &nvme_rig::Host| host.messages().iter().filter(|&&(_, data)| data == 0x41).count();
        assert_eq!((told(host), pair.pop()), (1, None));
        host.wait_ns(20_000);
        (told(host), pair.pop().map(cid))
    });
    assert_eq!(after.result, (2, Some(1)));
    for resets in [false, true] {
        let after = host(wrong(100_000), move |host| {
            host.enable();
            let mut pair = host.create(1, 16, None);
            pair.push(command(0x00, 1, 1, [0, 0], [0; 4]));
            host.ring_sq(1, 1);
            host.wait_ns(15_000);
            if resets {
                host.disable();
            } else {
                // Delete the submission queue (00h), then the completion queue (04h).
                assert_eq!(status(host.run(0x00, 0, [0, 0], [1, 0, 0, 0])), 0);
                assert_eq!(status(host.run(0x04, 0, [0, 0], [1, 0, 0, 0])), 0);
            }
            pair.cq.words()[1].set(0x5555);
            host.wait_ns(200_000);
            pair.cq.words()[1].get()
        });
        assert_eq!(after.result, 0x5555, "resets: {resets}");
    }
}

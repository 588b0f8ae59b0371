//! The drive's controller registers and admin commands, word by word from NVMe Base 2.0.

mod nvme_rig;

use hal::{Dma as _, Regs as _, Word as _};
use machine::nvme::Config;
use nvme_rig::{config, host, memory, status};

#[test]
fn capabilities_and_version() {
    let after = host(config(), |host| (host.bar0.read64(0), host.bar0.read32(8), host.bar0.read32(0x1c)));
    let (cap, version, csts) = after.result;
    // MQES 3Fh, CQR, TO 1, DSTRD 0, NVM command set, MPSMIN 0, MPSMAX 4.
    assert_eq!(cap, 0x0040_0020_0101_003f);
    assert_eq!((version, csts), (0x0002_0000, 0));
}

#[test]
fn ready_follows_enable_and_a_reset_clears_it() {
    host(config(), |host| {
        host.bar0.write32(0x24, 0x0007_0007);
        host.bar0.write64(0x28, host.admin.sq.device_address().0);
        host.bar0.write64(0x30, host.admin.cq.device_address().0);
        host.bar0.write32(0x14, 0x0046_0001);
        assert_eq!(host.bar0.read32(0x1c), 0, "not at once");
        host.wait_ns(21_000);
        assert_eq!(host.bar0.read32(0x1c), 1);
        host.bar0.write32(0x14, 0x0046_0000);
        assert_eq!(host.bar0.read32(0x1c), 1, "still for a while");
        host.wait_ns(11_000);
        assert_eq!(host.bar0.read32(0x1c), 0);
        assert_eq!(host.bar0.read32(0x24), 0x0007_0007, "AQA survives");
        host.enable();
        assert_eq!(host.identify(1, 0).0, 0);
    });
}

#[test]
fn a_shutdown_is_reported_when_it_is_over() {
    host(config(), |host| {
        host.enable();
        // SHN 01b in bits 15:14.
        host.bar0.write32(0x14, 0x0046_4001);
        assert_eq!(host.bar0.read32(0x1c) >> 2 & 3, 1, "occurring");
        host.wait_ns(31_000);
        assert_eq!(host.bar0.read32(0x1c) >> 2 & 3, 2, "complete");
    });
}

#[test]
fn wrong_configurations_are_fatal_and_recorded() {
    // (AQA, offset of ASQ, CC)
    let wrong = [
        (0x0007_0000, 0, 0x0046_0001),
        (0x0007_0007, 64, 0x0046_0001),
        (0x0007_0007, 0, 0x0046_0281),
        (0x0007_0007, 0, 0x0046_0071),
        (0x0007_0007, 0, 0x0046_0801),
    ];
    for (aqa, offset, cc) in wrong {
        let after = host(config(), move |host| {
            host.bar0.write32(0x24, aqa);
            host.bar0.write64(0x28, host.admin.sq.device_address().0 + offset);
            host.bar0.write64(0x30, host.admin.cq.device_address().0);
            host.bar0.write32(0x14, cc);
            host.wait_ns(21_000);
            assert_eq!(host.bar0.read32(0x1c), 2, "CFS, not RDY");
            host.disable();
            host.enable();
        });
        assert!(after.faulted("NVMe controller enabled with a wrong configuration"), "{cc:#x}");
    }
}

#[test]
fn queues_outside_memory_are_fatal() {
    let after = host(config(), |host| {
        host.bar0.write32(0x24, 0x0007_0007);
        host.bar0.write64(0x28, 0x1000);
        host.bar0.write64(0x30, host.admin.cq.device_address().0);
        host.bar0.write32(0x14, 0x0046_0001);
        host.wait_ns(21_000);
        host.ring_sq(0, 1);
        host.wait_ns(5_000);
        host.bar0.read32(0x1c)
    });
    assert_eq!(after.result, 3);
    assert!(after.faulted("NVMe submission queue outside memory"));
}

#[test]
fn identify_structures() {
    host(config(), |host| {
        host.enable();
        let (result, data) = host.identify(1, 0);
        assert_eq!(result, 0);
        assert_eq!((data.read8(77), data.read32(80)), (5, 0x0002_0000), "MDTS, VER");
        assert_eq!((data.read8(512), data.read8(513), data.read32(516)), (0x66, 0x44, 1), "SQES, CQES, NN");
        assert!((4..72).all(|at| (0x20..0x7f).contains(&data.read8(at))), "SN, MN, FR are ASCII");
        let (result, data) = host.identify(0, 1);
        assert_eq!(result, 0);
        assert_eq!((data.words()[0].get(), data.words()[1].get()), (0x1_0000, 0x1_0000), "NSZE, NCAP");
        assert_eq!((data.read8(26), data.read32(128)), (0, 0x0009_0000), "FLBAS, LBAF0: 2^9");
        let (result, data) = host.identify(0, 7);
        assert_eq!((result, data.words().iter().any(|word| word.get() != 0)), (0, false), "inactive: zeros");
        let (result, data) = host.identify(2, 0);
        assert_eq!((result, data.words()[0].get()), (0, 1), "active: 1, then 0");
        assert_eq!(host.identify(2, 1).1.read32(0), 0, "none above 1");
        assert_eq!(host.identify(2, 0xffff_fffe).0, 0x00b);
        assert_eq!(host.identify(0x7f, 0).0, 0x002);
    });
}

#[test]
fn an_unknown_admin_opcode() {
    let after = host(config(), |host| {
        host.enable();
        let entry = host.run(0xd7, 0, [0, 0], [0; 4]);
        (status(entry), entry[1] >> 63)
    });
    assert_eq!(after.result, (0x001, 1), "Invalid Opcode, DNR");
    assert_eq!(after.counter("errors"), 1);
}

#[test]
fn queue_creation_is_checked() {
    host(config(), |host| {
        host.enable();
        let page = memory(4096);
        let at = page.device_address().0;
        // (opcode, dword 10, dword 11, PRP1, status)
        let cases = [
            (0x05, 0x0007_0000, 0x1, at, 0x101, "id 0"),
            (0x05, 0x0007_0005, 0x1, at, 0x101, "id 5 of 4"),
            (0x05, 0x0000_0001, 0x1, at, 0x102, "one entry"),
            (0x05, 0x0040_0001, 0x1, at, 0x102, "65 entries, MQES 64"),
            (0x05, 0x0007_0001, 0x0, at, 0x002, "not contiguous, CAP.CQR"),
            (0x05, 0x0007_0001, 0x1, at + 8, 0x013, "not on a page"),
            (0x05, 0x0007_0001, 0x5_0003, at, 0x108, "vector 5 of 0 to 4"),
            (0x01, 0x0007_0001, 0x1_0001, at, 0x100, "its CQ was not created"),
            (0x01, 0x0007_0001, 0x9_0001, at, 0x101, "its CQ is out of range"),
            (0x01, 0x0007_0001, 0x0_0001, at, 0x101, "the admin CQ"),
            (0x05, 0x0007_0001, 0x0_0003, at, 0x000, "right"),
            (0x05, 0x0007_0001, 0x0_0003, at, 0x101, "again"),
            (0x01, 0x0007_0001, 0x1_0001, at, 0x000, "right"),
            (0x01, 0x0007_0001, 0x1_0001, at, 0x101, "again"),
            (0x04, 0x0000_0001, 0, 0, 0x10c, "its SQ still exists"),
            (0x00, 0x0000_0002, 0, 0, 0x101, "no such SQ"),
            (0x00, 0x0000_0000, 0, 0, 0x101, "the admin SQ"),
            (0x00, 0x0000_0001, 0, 0, 0x000, "right"),
            (0x04, 0x0000_0001, 0, 0, 0x000, "right"),
            (0x04, 0x0000_0001, 0, 0, 0x101, "gone"),
        ];
        for (opcode, dword10, dword11, prp1, expected, why) in cases {
            let entry = host.run(opcode, 0, [prp1, 0], [dword10, dword11, 0, 0]);
            assert_eq!(status(entry), expected, "{why}");
        }
    });
}

#[test]
fn features() {
    host(config(), |host| {
        host.enable();
        // (opcode: 09h set, 0Ah get; dword 10; dword 11; status; dword 0)
        let cases = [
            (0x09, 0x07, 0x0001_0002, 0, 0x0001_0002, "three submission, two completion queues"),
            (0x0a, 0x07, 0, 0, 0x0001_0002, "current"),
            (0x0a, 0x107, 0, 0, 0x0003_0003, "default: four each"),
            (0x09, 0x07, 0x0063_0063, 0, 0x0003_0003, "no more than there are"),
            (0x09, 0x07, 0x0000_ffff, 0x002, 0, "FFFFh"),
            (0x09, 0x08, 0x0000_0207, 0, 0, "eight entries or 200 µs"),
            (0x0a, 0x08, 0, 0, 0x0207, "reads back"),
            (0x0a, 0x108, 0, 0, 0, "default off"),
            (0x0a, 0x308, 0, 0, 4, "changeable"),
            (0x09, 0x8000_0008, 0, 0x10d, 0, "not saveable"),
            (0x09, 0x09, 0x0001_0003, 0, 0, "no coalescing on vector 3"),
            (0x0a, 0x09, 0x3, 0, 0x0001_0003, "reads back"),
            (0x0a, 0x09, 0x2, 0, 0x0000_0002, "others as they were"),
            (0x09, 0x09, 0x0001_0005, 0x002, 0, "vector 5 of 0 to 4"),
            (0x09, 0x7e, 0, 0x002, 0, "unknown"),
            (0x0a, 0x01, 0, 0x002, 0, "not offered"),
        ];
        for (opcode, dword10, dword11, expected, value, why) in cases {
            let entry = host.run(opcode, 0, [0, 0], [dword10, dword11, 0, 0]);
            assert_eq!((status(entry), entry[0] & 0xffff_ffff), (expected, value), "{why}");
        }
        host.create(1, 8, None);
        assert_eq!(status(host.run(0x09, 0, [0, 0], [0x07, 0, 0, 0])), 0x00c, "queues exist");
        host.disable();
        host.enable();
        assert_eq!(host.run(0x0a, 0, [0, 0], [0x08, 0, 0, 0])[0] & 0xffff_ffff, 0, "a reset takes it back");
    });
}

#[test]
fn wrong_doorbells_are_reported_as_events() {
    let after = host(config(), |host| {
        host.enable();
        // Asynchronous Event Request: no completion until something happens.
        host.admin.push(nvme_rig::command(0x0c, 0x77, 0, [0, 0], [0; 4]));
        host.ring_sq(0, host.admin.tail);
        host.wait_ns(20_000);
        assert!(host.admin.pop().is_none());
        host.ring_sq(3, 1);
        let entry = host.admin_entry();
        assert_eq!((nvme_rig::cid(entry), status(entry)), (0x77, 0));
        assert_eq!(entry[0] & 0xffff_ffff, 0x0001_0000, "error status, invalid doorbell register, log 01h");
        let mut pair = host.create(1, 4, None);
        host.admin.push(nvme_rig::command(0x0c, 0x78, 0, [0, 0], [0; 4]));
        host.ring_sq(0, host.admin.tail);
        host.wait_ns(20_000);
        host.ring_cq(1, 1);
        host.ring_sq(1, 4);
        host.wait_ns(20_000);
        assert!(host.admin.pop().is_none(), "nothing more until the log is read");
        let log = memory(64);
        // Get Log Page 01h, 16 dwords.
        host.admin.push(nvme_rig::command(0x02, 0x79, 0, [log.device_address().0, 0], [0x000f_0001, 0, 0, 0]));
        host.ring_sq(0, host.admin.tail);
        let mut entries = [host.admin_entry(), host.admin_entry()];
        entries.sort_by_key(|&entry| nvme_rig::cid(entry));
        assert_eq!(entries.map(nvme_rig::cid), [0x78, 0x79]);
        assert_eq!(entries[0][0] & 0xffff_ffff, 0x0001_0100, "invalid doorbell write value");
        // The queue still works.
        assert_eq!(status(host.io(&mut pair, nvme_rig::command(0, 1, 1, [0, 0], [0; 4]))), 0);
    });
    assert_eq!(after.counter("doorbell_errors"), 3);
    assert!(after.faulted("NVMe doorbell of no queue") && after.faulted("NVMe doorbell with an invalid value"));
}

#[test]
fn event_requests_are_limited_and_can_be_aborted() {
    host(config(), |host| {
        host.enable();
        // AERL 3: four at once.
        for cid in 1..=5 {
            host.admin.push(nvme_rig::command(0x0c, cid, 0, [0, 0], [0; 4]));
        }
        host.ring_sq(0, host.admin.tail);
        let entry = host.admin_entry();
        assert_eq!((nvme_rig::cid(entry), status(entry)), (5, 0x105));
        // Abort (08h): SQID 15:0, CID 31:16.
        host.admin.push(nvme_rig::command(0x08, 9, 0, [0, 0], [0x0002_0000, 0, 0, 0]));
        host.ring_sq(0, host.admin.tail);
        let entries = [host.admin_entry(), host.admin_entry()];
        assert_eq!(entries.map(|entry| (nvme_rig::cid(entry), status(entry))), [(2, 0x007), (9, 0)]);
        assert_eq!(entries[1][0] & 1, 0, "aborted");
    });
}

#[test]
fn doorbells_follow_the_stride() {
    host(Config { doorbell_stride: 2, ..config() }, |host| {
        assert_eq!(host.bar0.read64(0) >> 32 & 0xf, 2);
        host.enable();
        let data = memory(4096);
        host.admin.push(nvme_rig::command(0x06, 1, 0, [data.device_address().0, 0], [1, 0, 0, 0]));
        host.bar0.write32(0x1000, 1);
        host.wait_ns(5_000);
        assert!(host.admin.pop().is_some());
        // CQ 0 head: 1000h + 1 × 16.
        host.bar0.write32(0x1010, 1);
        assert_eq!(data.read32(516), 1);
    });
}

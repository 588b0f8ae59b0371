//! The model, clause by clause, by literal offsets and words (DSA).

mod dsa_rig;

use dsa_rig::{bytes, config, fill, host, memory};
use hal::{Dma as _, Regs as _, Word as _};
use machine::dsa::{Config, Data};

/// "GENCAP", "WQCAP", "GRPCAP", "ENGCAP", "OPCAP", "Table Offsets".
#[test]
fn capabilities_read_as_configured() {
    host(config(), |host| {
        assert_eq!(host.bar0.read32(0x00), 0x100, "VERSION");
        assert_eq!(host.bar0.read64(0x10), 0x10_8010_0000, "GENCAP: configurable, 2^16 bytes, 16 per engine");
        assert_eq!(host.bar0.read64(0x20), 0x0012_0000_0008_0080, "WQCAP: occupancy, dedicated, 8 queues, 128 entries");
        assert_eq!(host.bar0.read64(0x30), 4, "GRPCAP");
        assert_eq!(host.bar0.read64(0x38), 4, "ENGCAP");
        assert_eq!(host.bar0.read64(0x40), 0x11, "OPCAP: No-op and Fill");
        assert_eq!(host.bar0.read64(0x60), 0x0010_0008_0004, "offsets in units of 100h");
        assert_eq!(host.config.read32(0), 0x0b25_8086);
    });
}

/// "Memory Fill": the pattern begins at the destination, whatever its alignment, and no other byte changes.
#[test]
fn a_fill_changes_its_bytes_and_no_other() {
    host(config(), |host| {
        host.enable();
        let (record, data) = (memory(64), memory(256));
        let pattern = 0x8877_6655_4433_2211;
        for (start, length) in [(0, 64), (8, 8), (3, 1), (5, 3), (5, 30), (7, 9), (1, 255)] {
            data.words().iter().for_each(|word| word.set(u64::MAX));
            let words =
                fill(record.device_address().0, pattern, data.device_address().0 + start as u64, length as u64, None);
            assert_eq!(host.run(0, &record, words), 0x01, "{length} bytes at {start}");
            let mut expected = vec![0xff; 256];
            (0..length).for_each(|index| expected[start + index] = 0x11 * (index % 8 + 1) as u8);
            assert_eq!(bytes(&data, 0..256), expected, "{length} bytes at {start}");
        }
    });
}

/// "Completion Record": the errors of single descriptors.
#[test]
fn wrong_descriptors_complete_with_their_status() {
    let after = host(config(), |host| {
        host.enable();
        let (record, data) = (memory(64), memory(4096));
        let good = fill(record.device_address().0, 0, data.device_address().0, 64, None);
        let wrong = |change: fn(&mut [u64; 8])| {
            let mut words = good;
            change(&mut words);
            host.run(0, &record, words)
        };
        assert_eq!(wrong(|w| w[0] = w[0] & !(0xff << 56) | 0x03 << 56), 0x10, "an operation that OPCAP lacks");
        assert_eq!(wrong(|w| w[0] |= 0x02 << 32), 0x11, "block on fault");
        assert_eq!(record.words()[2].get(), 0x02, "the invalid flags");
        assert_eq!(wrong(|w| w[0] |= 1 << 20), 0x12, "a reserved bit");
        assert_eq!(wrong(|w| w[7] = 1), 0x12, "a reserved field");
        assert_eq!(wrong(|w| w[4] = 0), 0x13, "a size of zero");
        assert_eq!(wrong(|w| w[4] = 4097), 0x13, "a size above the queue's");
        assert_eq!(wrong(|w| w[4] = 4096), 0x01);
        assert_eq!(wrong(|w| (w[0], w[4]) = (w[0] | 0x10 << 32, 64 | 9 << 32)), 0x19, "an interrupt handle of nine");
        assert_eq!(wrong(|w| w[3] = 0x1000), 0x83, "no memory there");
        assert_eq!(record.words()[1].get(), 0x1000, "the fault address");
        // Memory ends in the middle of the transfer.
        let end = 0x1_0000_0000u64 + machine::MachineConfig::default().memory_bytes as u64;
        let words = fill(record.device_address().0, 0, end - 24, 64, None);
        assert_eq!(host.run(0, &record, words), 24 << 32 | 0x83, "24 bytes were done");
        assert_eq!(record.words()[1].get(), end);
    });
    assert_eq!(after.counter("errors"), 9);
    assert_eq!(after.in_flight, 0);
}

/// "SWERROR": errors that have no completion record; the first is kept, others set the overflow.
#[test]
fn errors_without_a_record_are_software_errors() {
    let after = host(config(), |host| {
        host.enable();
        host.msix_on(9);
        host.bar0.write32(0x88, 1);
        let (record, data) = (memory(64), memory(64));
        let take = || {
            let error = host.bar0.read64(0xc0);
            host.bar0.write32(0xc0, 3);
            assert_eq!(host.bar0.read64(0xc0) & 3, 0, "write 1 to clear");
            if error & 1 == 1 { error & 0xff_00ff_ff0f } else { 0 }
        };
        // A queue that is not enabled: valid, descriptor and queue valid; error 51h, queue 2, opcode 4.
        host.submit(2, fill(record.device_address().0, 0, data.device_address().0, 64, None));
        assert_eq!(take(), 0x04_0002_510d);
        assert_eq!(host.bar0.read32(0x98), 1, "INTCAUSE");
        host.bar0.write32(0x98, 1);
        assert_eq!(host.bar0.read32(0x98), 0);
        // A record that is not aligned, and one outside memory.
        host.submit(1, fill(record.device_address().0 + 8, 0, data.device_address().0, 64, None));
        host.wait_ns(2_000);
        host.submit(1, fill(0x1000, 0, data.device_address().0, 64, None));
        host.wait_ns(2_000);
        assert_eq!(take(), 0x04_0001_1b0f, "the first, and overflow");
        // Without a record, success is not reported; an error is.
        let mut words = fill(0, 0, data.device_address().0, 64, None);
        words[0] = 0x04 << 56;
        host.submit(0, words);
        host.wait_ns(2_000);
        assert_eq!(take(), 0, "success");
        words[4] = 0;
        host.submit(0, words);
        host.wait_ns(2_000);
        assert_eq!(take(), 0x04_0000_130d);
    });
    assert_eq!(after.messages, [(0xfee0_0000, 0x40); 3], "entry 0, once for each recorded error");
}

/// "Dedicated Work Queue": a descriptor too many is refused, and the others complete.
#[test]
fn a_full_queue_refuses() {
    let mut config = config();
    config.timing.in_flight = 1;
    let after = host(config, |host| {
        host.enable();
        let (record, data) = (memory(4096), memory(64));
        for slot in 0..12 {
            host.submit(0, fill(record.device_address().0 + 32 * slot, 0, data.device_address().0, 64, None));
        }
        host.wait_ns(20_000);
        let done = (0..12).filter(|slot| record.words()[slot * 4].get() == 1).count();
        assert_eq!(host.bar0.read64(0xc0) >> 8 & 0xff, 0x52);
        done
    });
    assert_eq!(after.counter("submitted") + after.counter("refused"), 12);
    assert_eq!(after.result as u64, after.counter("completed"));
    assert!(after.counter("refused") > 0);
}

/// "CMDSTATUS": the errors of commands.
#[test]
fn commands_refuse_what_cannot_be() {
    host(config(), |host| {
        assert_eq!(host.command(6, 0), 0x20, "Enable WQ in a disabled device");
        assert_eq!(host.command(2, 0), 0x31, "Disable Device in a disabled device");
        assert_eq!(host.command(31, 0), 0x01, "no such command");
        host.configure();
        host.bar0.write64(0x440, 0b10);
        host.bar0.write64(0x460, 0b10);
        assert_eq!(host.command(1, 0), 0x15, "a queue in two groups");
        host.bar0.write64(0x440, 0);
        assert_eq!(host.command(1, 0), 0x15, "a group of engines alone");
        host.bar0.write64(0x460, 0);
        host.bar0.write32(0x800, 121);
        assert_eq!(host.command(1, 0), 0x14, "129 entries of 128");
        host.bar0.write32(0x800, 120);
        assert_eq!(host.command(1, 0), 0);
        assert_eq!(host.bar0.read32(0x90), 1, "GENSTS: enabled");
        assert_eq!(host.command(1, 0), 0x10, "enabled already");
        assert_eq!(host.command(6, 8), 0x02, "no queue 8");
        assert_eq!(host.command(6, 2), 0x22, "a size of zero");
        host.bar0.write32(0x808, 0x01);
        assert_eq!(host.command(6, 0), 0x23, "a priority of zero");
        host.bar0.write32(0x808, 0x10);
        assert_eq!(host.command(6, 0), 0x24, "shared");
        host.bar0.write32(0x808, 0x13);
        assert_eq!(host.command(6, 0), 0x25, "block on fault");
        host.bar0.write32(0x808, 0x1000_0011);
        assert_eq!(host.command(6, 0), 0x26, "PASID");
        host.bar0.write32(0x808, 0x11);
        host.bar0.write32(0x80c, 0x11);
        assert_eq!(host.command(6, 0), 0x28, "2^17 bytes");
        host.bar0.write32(0x80c, 0x10);
        assert_eq!(host.command(6, 0), 0);
        assert_eq!(host.bar0.read32(0x818) >> 30, 1, "WQCFG: enabled");
        assert_eq!(host.command(6, 0), 0x21, "enabled already");
        assert_eq!(host.command(7, 0b10), 0x32, "Disable WQ of a disabled queue");
        assert_eq!(host.command(7, 1 << 8), 0x02, "no queue 8");
        assert_eq!(host.command(7, 1), 0);
        assert_eq!(host.bar0.read32(0x818) >> 30, 0);
        assert_eq!(host.command(2, 0), 0, "Disable Device");
        assert_eq!(host.bar0.read32(0x90), 0);
    });
}

/// "Disable WQ" waits for the descriptors in the queue; "Abort WQ" does not.
#[test]
fn disable_waits_and_abort_abandons() {
    for (command, expected) in [(7, 8), (9, 1)] {
        let mut config = config();
        config.timing.service = machine::time::Ps::from_ns(3_000);
        let after = host(config, move |host| {
            host.enable();
            let (record, data) = (memory(4096), memory(64));
            for slot in 0..8 {
                host.submit(0, fill(record.device_address().0 + 32 * slot, 0, data.device_address().0, 64, None));
            }
            assert_eq!(host.command(command, 1), 0);
            (0..8).filter(|slot| record.words()[slot * 4].get() == 1).count()
        });
        assert_eq!(after.result, expected, "command {command}");
        assert_eq!(after.counter("abandoned"), 8 - expected as u64);
        assert_eq!(after.in_flight, 0);
    }
}

/// One message a descriptor, and a masked vector's message is pending (PCI, "Per-vector Masking").
#[test]
fn every_descriptor_sends_its_message() {
    let after = host(config(), |host| {
        host.enable();
        host.msix_on(9);
        let (record, data) = (memory(4096), memory(64));
        let submit = |slot: u64, handle| {
            host.submit(0, fill(record.device_address().0 + 32 * slot, 0, data.device_address().0, 64, Some(handle)));
        };
        (0..3).for_each(|slot| submit(slot, 2));
        host.wait_ns(5_000);
        host.bar0.write32(0x202c, 1);
        (0..3).for_each(|slot| submit(slot, 2));
        host.wait_ns(5_000);
        assert_eq!(host.bar0.read32(0x3000), 0b100, "pending");
        host.bar0.write32(0x202c, 0);
        assert_eq!(host.bar0.read32(0x3000), 0);
    });
    assert_eq!(after.messages, [(0xfee0_0000, 0x42); 4], "three, and one for the three that were masked");
}

/// Tables are read-only while the device or queue that they describe is enabled.
#[test]
fn tables_do_not_change_under_an_enabled_device() {
    let after = host(config(), |host| {
        host.enable();
        host.bar0.write64(0x400, 0xff);
        host.bar0.write32(0x800, 100);
        assert_eq!((host.bar0.read64(0x400), host.bar0.read32(0x800)), (0b11, 8));
    });
    assert!(after.faulted("DSA group written while the device is enabled"));
    assert!(after.faulted("DSA queue configured while it is enabled"));
}

/// A timed fill touches no byte, and still must lie in memory.
#[test]
fn a_timed_fill_leaves_memory_alone() {
    host(Config { data: Data::Timed, ..config() }, |host| {
        host.enable();
        let (record, data) = (memory(64), memory(64));
        let words = |destination| fill(record.device_address().0, u64::MAX, destination, 64, None);
        assert_eq!(host.run(0, &record, words(data.device_address().0)), 1);
        assert_eq!(data.words()[0].get(), 0);
        assert_eq!(host.run(0, &record, words(u64::MAX - 8)), 0x83);
    });
}

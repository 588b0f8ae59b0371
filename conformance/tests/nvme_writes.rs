//! Writes through a cache and past it, Flush, Dataset Management and the volatile write cache, word by word from NVMe
//! Base 2.0 and the NVM Command Set 1.0.

mod nvme_rig;

use hal::{Dma as _, Hal as _, Word as _};
use machine::SimHal;
use machine::nvme::{Config, Latency, Spread, StorageKind, Writes};
use machine::time::Ps;
use nvme_rig::{Host, Pair, command, config, host, memory, status, transfer};

const WRITE: u64 = 0x01;
const READ: u64 = 0x02;
/// Dword 12, bit 30: FUA.
const FUA: u64 = 1 << 30;

fn fixed(us: u64) -> Latency {
    Latency { mean: Ps::from_ns(us * 1000), spread: Spread::Fixed, tail: None }
}

/// A cache of four writes of 4 KiB; the media take one in 100 µs and program it in 10 µs more.
fn cached(is_volatile: bool) -> Config {
    let writes = Writes {
        cache_bytes: 4 * 4096,
        is_volatile,
        cached: fixed(2),
        sequential_bytes_per_second: 40_960_000,
        random_bytes_per_second: 40_960_000,
        unit_bytes: 4096,
    };
    Config { writes, ..config() }
}

/// How long one I/O takes, in µs: to the next 0.5 µs of the rig's polling.
fn takes_us(host: &Host, pair: &mut Pair, words: [u64; 8]) -> u64 {
    let start_ns = SimHal.now_ns();
    assert_eq!(status(host.io(pair, words)), 0);
    (SimHal.now_ns() - start_ns) / 1000
}

#[test]
fn a_write_ends_in_the_cache_and_waits_for_room_when_it_is_full() {
    host(cached(false), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        let data = memory(4096);
        let prp = [data.device_address().0, 0];
        let write = |n: u64| transfer(WRITE, n, 104 * n, 8, prp);
        let times: Vec<u64> = (0..6).map(|n| takes_us(host, &mut pair, write(n))).collect();
        assert!(times[..4].iter().all(|&us| us < 5), "the cache takes four: {times:?}");
        assert!((60..110).contains(&times[4]) && (80..120).contains(&times[5]), "then the media's rate: {times:?}");
    });
}

#[test]
fn fua_ends_on_the_media() {
    host(cached(true), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        let data = memory(4096);
        let mut write = transfer(WRITE, 1, 0, 8, [data.device_address().0, 0]);
        assert!(takes_us(host, &mut pair, write) < 5);
        write[6] |= FUA;
        // It waits for the first write's 100 µs, and then for its own.
        let us = takes_us(host, &mut pair, write);
        assert!((190..205).contains(&us), "{us} µs");
    });
}

#[test]
fn flush_waits_for_a_volatile_cache_alone() {
    for (is_volatile, least, most) in [(true, 300, 330), (false, 4, 8)] {
        host(cached(is_volatile), move |host| {
            host.enable();
            // Identify Controller byte 525, VWC: bit 0.
            let (_, data) = host.identify(1, 0);
            assert_eq!(data.read8(525), u8::from(is_volatile), "VWC");
            let mut pair = host.create(1, 16, None);
            let data = memory(4096);
            let flush = command(0x00, 9, 1, [0, 0], [0; 4]);
            let us = takes_us(host, &mut pair, flush);
            assert!((4..8).contains(&us), "nothing to write: {us} µs");
            for n in 0..3 {
                assert!(takes_us(host, &mut pair, transfer(WRITE, n, 56 * n, 8, [data.device_address().0, 0])) < 5);
            }
            let us = takes_us(host, &mut pair, flush);
            assert!((least..most).contains(&us), "volatile {is_volatile}: {us} µs");
        });
    }
}

#[test]
fn feature_06h_exists_with_a_volatile_cache_and_turns_it_off() {
    host(cached(false), |host| {
        host.enable();
        assert_eq!(status(host.run(0x0a, 0, [0, 0], [0x06, 0, 0, 0])), 0x002, "no VWC, no feature");
    });
    host(cached(true), |host| {
        host.enable();
        let wce =
            |host: &mut Host, select: u64| host.run(0x0a, 0, [0, 0], [0x06 | select << 8, 0, 0, 0])[0] & 0xffff_ffff;
        assert_eq!((wce(host, 0), wce(host, 1), wce(host, 3)), (1, 1, 4), "current, default, changeable");
        assert_eq!(status(host.run(0x09, 0, [0, 0], [0x06, 0, 0, 0])), 0);
        assert_eq!(wce(host, 0), 0);
        let mut pair = host.create(1, 16, None);
        let data = memory(4096);
        let us = takes_us(host, &mut pair, transfer(WRITE, 1, 0, 8, [data.device_address().0, 0]));
        assert!((95..105).contains(&us), "through: {us} µs");
    });
}

#[test]
fn a_reset_ends_the_writes_that_wait_for_room() {
    host(cached(false), |host| {
        host.enable();
        let mut pair = host.create(1, 16, None);
        let data = memory(4096);
        for n in 0..8 {
            pair.push(transfer(WRITE, n, 104 * n, 8, [data.device_address().0, 0]));
        }
        host.ring_sq(1, pair.tail);
        host.wait_ns(20_000);
        host.disable();
        host.enable();
        let mut pair = host.create(1, 16, None);
        host.wait_ns(500_000);
        assert_eq!(pair.pop(), None, "no entry of an earlier life");
        assert!(takes_us(host, &mut pair, transfer(WRITE, 1, 0, 8, [data.device_address().0, 0])) < 5);
    });
}

/// Dataset Management (09h): `ranges` of (first block, blocks); dword 10 NR, dword 11 bit 2 AD.
fn dataset(ranges: &[(u64, u64)], dword11: u64) -> ([u64; 8], nvme_rig::DmaBuffer) {
    let list = memory(4096);
    for (index, &(first, blocks)) in ranges.iter().enumerate() {
        // Context attributes 31:0, length 63:32; then the starting block.
        list.words()[index * 2].set(blocks << 32);
        list.words()[index * 2 + 1].set(first);
    }
    (command(0x09, 0, 1, [list.device_address().0, 0], [ranges.len() as u64 - 1, dword11, 0, 0]), list)
}

#[test]
fn deallocated_blocks_read_as_never_written() {
    let after = host(Config { storage: StorageKind::Memory, ..config() }, |host| {
        host.enable();
        let (_, data) = host.identify(1, 0);
        // Identify Controller byte 520, ONCS: bit 2, Dataset Management.
        assert_eq!(data.read8(520) & 0b100, 0b100, "ONCS");
        let mut pair = host.create(1, 16, None);
        let data = memory(4096);
        let prp = [data.device_address().0, 0];
        for lba in 0..6 {
            data.write32(0, 0xabc0 + lba);
            assert_eq!(status(host.io(&mut pair, transfer(WRITE, 1, lba.into(), 1, prp))), 0);
        }
        let read = |host: &Host, pair: &mut Pair| -> Vec<u32> {
            (0..6)
                .map(|lba| {
                    assert_eq!(status(host.io(pair, transfer(READ, 1, lba, 1, prp))), 0);
                    data.read32(0)
                })
                .collect()
        };
        let (hint, _keep) = dataset(&[(0, 6)], 0b011);
        assert_eq!(status(host.io(&mut pair, hint)), 0);
        assert_eq!(read(host, &mut pair), [0xabc0, 0xabc1, 0xabc2, 0xabc3, 0xabc4, 0xabc5], "IDR and IDW are hints");
        let (wrong, _keep) = dataset(&[(0, 6), (0xffff, 2)], 0b100);
        assert_eq!(status(host.io(&mut pair, wrong)), 0x080, "a range beyond the end: none is deallocated");
        let (trim, _keep) = dataset(&[(1, 2), (5, 1)], 0b100);
        assert_eq!(status(host.io(&mut pair, trim)), 0);
        assert_eq!(read(host, &mut pair), [0xabc0, 0, 0, 0xabc3, 0xabc4, 0]);
        let mut off = trim;
        off[3] += 2;
        assert_eq!(status(host.io(&mut pair, off)), 0x013, "ranges off a dword");
    });
    assert_eq!(after.counter("deallocates"), 2);
}

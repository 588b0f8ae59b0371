use super::*;

#[test]
fn a_batch_is_its_entries_and_one_doorbell() {
    let rig = Rig::new(8, 128 << 10);
    let requests = [
        read(70, 0x0_0123, 0x1_0000_2000, 4096),
        IoRequest { op: IoOp::Write, ..read(71, 8, 0x1_0000_2200, 8192) },
        IoRequest { op: IoOp::Flush, ..read(72, 0, 0, 0) },
    ];
    assert_eq!(rig.pair.submit(&requests), Submitted { accepted: 3, refused: None });
    assert_eq!(rig.log.take(), [Event::Doorbell(SQ_DOORBELL, 3)]);
    assert_eq!(rig.command(0), [0x1_0000_0002, 0, 0, 0x1_0000_2000, 0, 0x123, 7, 0]);
    let write = rig.command(1);
    assert_eq!((write[0], write[3], write[5], write[6]), (0x1_0001_0001, 0x1_0000_2200, 8, 15));
    let list = rig.hal.dma_at(DeviceAddress(write[4])).unwrap();
    let first = ((write[4] - list.device_address().0) / 8) as usize;
    assert_eq!([0, 1].map(|i| list.words()[first + i].get()), [0x1_0000_3000, 0x1_0000_4000]);
    assert_eq!(rig.command(2), [0x1_0002_0000, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn no_list_crosses_a_page_and_no_two_share_a_word() {
    let rig = Rig::new(64, 132 << 10);
    let requests: Vec<_> = (0..63).map(|i| read(i, 0, 0x1_0000_0200 + i * (1 << 20), 132 << 10)).collect();
    assert_eq!(rig.pair.submit(&requests).accepted, 63);
    let mut lists: Vec<_> = (0..63).map(|i| rig.command(i)[4]).collect();
    assert!(lists.iter().all(|list| list % 4096 + 33 * 8 <= 4096));
    lists.sort_unstable();
    assert!(lists.windows(2).all(|pair| pair[1] - pair[0] >= 33 * 8));
    let last = rig.hal.dma_at(DeviceAddress(rig.command(62)[4])).unwrap();
    let word = (rig.command(62)[4] - last.device_address().0) / 8 + 32;
    assert_eq!(last.words()[word as usize].get(), 0x1_0000_0000 + 62 * (1 << 20) + 33 * 4096);
}

#[test]
fn a_full_queue_says_how_many_it_took() {
    let rig = Rig::new(4, 4096);
    assert_eq!(rig.submit_reads(0, 5), Submitted { accepted: 3, refused: Some(Refusal::Full) });
    assert_eq!(rig.submit_reads(9, 1), Submitted { accepted: 0, refused: Some(Refusal::Full) });
    assert_eq!(rig.log.take(), [Event::Doorbell(SQ_DOORBELL, 3)]);
    let counters = rig.pair.snapshot().submission;
    assert_eq!((counters.commands, counters.doorbells, counters.full), (3, 1, 2));
}

#[test]
fn a_bad_request_stops_the_batch_before_itself() {
    let rig = Rig::new(8, 8192);
    let cases = [
        (read(1, 0, 0x1000, 0), Refusal::Length(0, 512)),
        (read(1, 0, 0x1000, 1000), Refusal::Length(1000, 512)),
        (read(1, 0, 0x1000, 8704), Refusal::TooLong(8704, 8192)),
        (read(1, BLOCKS - 7, 0x1000, 4096), Refusal::Range(BLOCKS - 7, BLOCKS)),
        (read(1, u64::MAX, 0x1000, 512), Refusal::Range(u64::MAX, BLOCKS)),
        (read(1, 0, 0x1002, 512), Refusal::Buffer(0x1002)),
        (read(1, 0, u64::MAX - 3, 512), Refusal::Buffer(u64::MAX - 3)),
    ];
    for (bad, why) in cases {
        let taken = rig.pair.snapshot().in_flight;
        assert_eq!(rig.pair.submit(&[bad, read(2, 0, 0, 512)]), Submitted { accepted: 0, refused: Some(why) });
        assert_eq!(rig.pair.snapshot().in_flight, taken);
    }
    assert_eq!(rig.log.take(), []);
    let last_block = read(3, BLOCKS - 8, 0x1000, 4096);
    let batch = [last_block, read(1, 0, 0x1000, 0)];
    assert_eq!(rig.pair.submit(&batch), Submitted { accepted: 1, refused: Some(Refusal::Length(0, 512)) });
    assert_eq!(rig.log.take(), [Event::Doorbell(SQ_DOORBELL, 1)]);
}

#[test]
fn a_stopped_queue_takes_nothing() {
    let rig = Rig::new(4, 4096);
    rig.pair.stop();
    assert_eq!(rig.submit_reads(0, 1), Submitted { accepted: 0, refused: Some(Refusal::Stopped) });
    assert_eq!(rig.log.take(), []);
}

#[test]
fn a_range_to_deallocate_is_one_command_of_any_length() {
    let rig = Rig::new(8, 4096);
    let trim = IoRequest { op: IoOp::Deallocate, ..read(70, 0x123, 0, 1 << 30) };
    assert_eq!(rig.pair.submit(&[read(1, 0, 0x1000, 512)]).accepted, 1);
    // 2^30 bytes are 2^21 blocks, which reach past the end.
    assert_eq!(rig.pair.submit(&[trim]).refused, Some(Refusal::Range(0x123, BLOCKS)));
    let trim = IoRequest { len_bytes: 1 << 20, ..trim };
    assert_eq!(rig.pair.submit(&[trim]), Submitted { accepted: 1, refused: None });
    // Opcode 09h, id 1, namespace 1; one range (NR 0), deallocate (AD, bit 2 of dword 11).
    let command = rig.command(1);
    assert_eq!((command[0], command[4], command[5], command[6]), (0x1_0001_0009, 0, 4 << 32, 0));
    let range = rig.hal.dma_at(DeviceAddress(command[3])).unwrap();
    let first = ((command[3] - range.device_address().0) / 8) as usize;
    // Attributes 0, 2,048 blocks, from block 123h on.
    assert_eq!([0, 1].map(|i| range.words()[first + i].get()), [0x800 << 32, 0x123]);
}

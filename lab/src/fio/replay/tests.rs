use super::*;
use crate::fio::{jobs, sections};
use proptest::prelude::*;

const IO: fn(usize, usize, u64, u64) -> Replayed = Replayed::Io;

/// The log, read by a job with these options.
fn read(options: &str, bytes: &[u8]) -> Result<Log, String> {
    let text = format!("[a]\nread_iolog=t.log\ndirect=1\nioengine=libaio\n{options}");
    let sections = sections("j.fio", text.as_bytes(), &|_, _| Err("no".into())).unwrap();
    let (mut jobs, _) = jobs("j.fio", &sections, &[]).unwrap();
    let read = |path: &str| Ok((path.to_owned(), bytes.to_vec(), false));
    load(&mut jobs, &read, &mut Vec::new()).map_err(|error| format!("{error} at {:?}", error.place.column))?;
    Ok(jobs[0].replay.as_ref().unwrap().log(0).unwrap().as_ref().clone())
}

const V3: &str = "fio version 3 iolog\n0 /dev/a add\n0 b add\n10 /dev/a open\n30 /dev/a read 4096 8192\n\
                  40 b write 0 4096\n45 b sync 0 0\n45 b datasync 0 0\n145 /dev/a trim 65536 65536\n\
                  150 b wait 9 9\n200 /dev/a close\n";

#[test]
fn version_3_has_times() {
    let log = read("", V3.as_bytes()).unwrap();
    assert_eq!(log.files, ["/dev/a", "b"]);
    let gap = Replayed::Gap;
    // The first time stamp that is not 0 has no wait before it.
    let entries = [
        gap(20_000),
        IO(0, 0, 4096, 8192),
        gap(10_000),
        IO(1, 1, 0, 4096),
        gap(5_000),
        Replayed::Sync(1),
        Replayed::Sync(1),
        gap(100_000),
        IO(2, 0, 65536, 65536),
        gap(50_000),
    ];
    assert_eq!(log.entries[..], entries);
    assert_eq!((log.ios, log.longest, log.end), ([1, 1, 1], 8192, 131_072));
    assert_eq!(log.pattern(), Pattern { random: false, read_percent: 50, trims: Trims::None });
}

#[test]
fn options_change_what_is_repeated() {
    let log = read("replay_no_stall=1\nreplay_redirect=/dev/c\nreplay_scale=2\nreplay_align=4k\n", V3.as_bytes());
    let log = log.unwrap();
    assert_eq!(log.files, ["/dev/c"]);
    let entries = [IO(0, 0, 0, 8192), IO(1, 0, 0, 4096), Replayed::Sync(0), Replayed::Sync(0), IO(2, 0, 32768, 65536)];
    assert_eq!(log.entries[..], entries);
    let log = read("replay_skip=read,sync\nreplay_time_scale=50\n", V3.as_bytes()).unwrap();
    assert_eq!(log.ios, [0, 1, 1]);
    assert_eq!(log.entries[..2], [Replayed::Gap(20_000), IO(1, 1, 0, 4096)], "half as fast");
    // The wait of what is left out is left out too, as by fio; a datasync stays.
    assert_eq!(log.entries[2..5], [Replayed::Sync(1), Replayed::Gap(200_000), IO(2, 0, 65536, 65536)]);
}

#[test]
fn version_2_has_waits_from_the_beginning_of_the_run() {
    let text = "fio version 2 iolog\nf add\nf open\nf wait 700 0\nf read 0 4096\nf write 4096 4096\nf close\n";
    let log = read("", text.as_bytes()).unwrap();
    assert_eq!(log.entries[..], [Replayed::Until(700_000_000), IO(0, 0, 0, 4096), IO(1, 0, 4096, 4096)]);
    assert_eq!(read("replay_no_stall=1\n", text.as_bytes()).unwrap().entries.len(), 2);
}

const BLKPARSE: &str = "  8,0    3        1     0.000010000   697  G   W 223490 + 8 [kjournald]\n\
  8,0    3        2     0.000012000   697  Q   W 223490 + 8 [kjournald]\n\
  8,16   1        3     0.000112000   698  Q  RA 16 + 16 [cat]\n\
  8,0    3        4     0.000113000   697  D   W 223490 + 8 [kjournald]\n\
  8,0    3        5     0.000212000   697  Q FWS [jbd2]\n\
  8,0    3        6     0.000312000   697  Q  DS 2048 + 2048 [fstrim]\n\
  8,0    3        7     0.000412000   697  Q FWFS 8 + 8 [jbd2]\n\
  8,0    3        0     0.000500000     0  m   N cfq697 something\n\
CPU3 (8,0):\n Reads Queued:           0,        0KiB\n";

#[test]
fn what_blkparse_prints_is_repeated_by_its_queueing() {
    let log = read("", BLKPARSE.as_bytes()).unwrap();
    assert_eq!(log.files, ["/dev/block/8:0", "/dev/block/8:16"]);
    let gap = Replayed::Gap(100_000);
    let entries = [
        IO(1, 0, 223_490 * 512, 4096),
        gap,
        IO(0, 1, 8192, 8192),
        gap,
        Replayed::Sync(0),
        gap,
        IO(2, 0, 1 << 20, 1 << 20),
        gap,
        IO(1, 0, 4096, 4096),
    ];
    assert_eq!(log.entries[..], entries);
    let dispatched = BLKPARSE.replace(" Q ", " X ");
    assert_eq!(read("", dispatched.as_bytes()).unwrap().entries[..], [IO(1, 0, 223_490 * 512, 4096)]);
    let aligned = read("replay_align=64k\n", BLKPARSE.as_bytes()).unwrap();
    assert_eq!(aligned.entries[0], IO(1, 0, 223_490 * 512 / 65_536 * 65_536, 65_536), "lengths are whole too");
    let huge = format!("8,0 0 1 0.000000001 1 Q R 0 + {} [x]\n", u64::MAX);
    assert!(read("replay_align=4k\n", huge.as_bytes()).is_err(), "longer than any I/O");
}

/// `struct blk_io_trace` as the kernel writes it.
fn raw(is_big: bool, time_ns: u64, action: u32, (sector, bytes): (u64, u32), more: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    let mut put = |value: u64, size: usize| {
        let bytes = value.to_le_bytes();
        let own: Vec<u8> = if is_big { bytes[..size].iter().rev().copied().collect() } else { bytes[..size].to_vec() };
        record.extend(own);
    };
    let fields = [(0x6561_7407, 4), (1, 4), (time_ns, 8), (sector, 8), (bytes.into(), 4), (action.into(), 4)];
    fields.into_iter().for_each(|(value, size)| put(value, size));
    // Process, device 259:1, CPU, error, bytes behind the record.
    [(7, 4), (259 << 20 | 1, 4), (0, 4), (0, 2), (more.len() as u64, 2)].into_iter().for_each(|(v, s)| put(v, s));
    record.extend(more);
    record
}

#[test]
fn the_kernels_records_are_read_in_either_order_of_bytes() {
    for is_big in [false, true] {
        let queue = |class: u32| 1 | (1 << 4 | class) << 16;
        let records = [
            raw(is_big, 0, 1 << 26, (0, 0), b"name"),
            raw(is_big, 5_000, queue(1), (8, 4096), b""),
            raw(is_big, 9_000, 7 | 1 << 16, (8, 4096), b""),
            raw(is_big, 25_000, queue(2), (16, 8192), b"xyz"),
            raw(is_big, 26_000, queue(1 << 13), (0, 65536), b""),
            raw(is_big, 27_000, queue(4 | 2), (0, 0), b""),
        ];
        let log = read("", &records.concat()).unwrap();
        assert_eq!(log.files, ["/dev/block/259:1"]);
        let entries = [
            IO(0, 0, 4096, 4096),
            Replayed::Gap(20_000),
            IO(1, 0, 8192, 8192),
            Replayed::Gap(1_000),
            IO(2, 0, 0, 65536),
            Replayed::Gap(1_000),
            Replayed::Sync(0),
        ];
        assert_eq!(log.entries[..], entries);
    }
}

#[test]
fn an_error_names_line_and_column() {
    let wrong = |lines: &str| read("", format!("fio version 3 iolog\n{lines}").as_bytes()).unwrap_err();
    let cases = [
        ("0 f add\n5 f frob\n", "t.log:3: `frob` is no action of such a line; valid: add, open or close at Some(5)"),
        ("x f add\n", "t.log:2: `x` is no time in microseconds; valid: a whole number at Some(1)"),
        (
            "0 f read 0 4096\n",
            "t.log:2: `f` is a file that no line before has added; valid: a line `f add` before it at Some(3)",
        ),
        ("0 f add\n0 f read -1 4096\n", "t.log:3: `-1` is no offset; valid: a whole number at Some(10)"),
        (
            "0 f add\n0 f read 0 9999999999\n",
            "t.log:3: `9999999999` bytes are more than an I/O may have; valid: up to 1073741824 at Some(12)",
        ),
        (
            "0 f add 7\n",
            "t.log:2: `0 f add 7` is no record; valid: time file action offset length, or without the last two at \
             Some(3)",
        ),
        ("0 f add\n", "t.log: has no I/O that could be repeated at None"),
    ];
    for (lines, error) in cases {
        assert_eq!(wrong(lines), error);
    }
    assert!(read("", b"hello\n").unwrap_err().starts_with("t.log:1: is no log: it begins with neither"));
    let kind = BLKPARSE.replace("RA 16", "XX 16");
    assert!(read("", kind.as_bytes()).unwrap_err().starts_with("t.log:3: `XX` is no kind of I/O"));
}

#[test]
fn each_clone_has_its_log() {
    let text = "[a]\nread_iolog=x:y\nnumjobs=3\ndirect=1\nioengine=libaio\n";
    let sections = sections("j.fio", text.as_bytes(), &|_, _| Err("no".into())).unwrap();
    let (mut jobs, _) = jobs("j.fio", &sections, &[]).unwrap();
    let log = |path: &str| format!("fio version 2 iolog\n{path} add\n{path} read 0 512\n").into_bytes();
    load(&mut jobs, &|path| Ok((path.to_owned(), log(path), false)), &mut Vec::new()).unwrap();
    let names: Vec<_> = (0..3).map(|clone| jobs[0].file_names(clone)).collect();
    assert_eq!(names, [["x"], ["y"], ["x"]]);
    assert_eq!(jobs[0].distinct_clones(), 2);
}

proptest! {
    /// Whatever stands in a log, it is read or refused.
    #[test]
    fn no_log_ends_in_a_panic(head in 0usize..4, text in "([0-9]{0,20}|[a-z+,.:\\[\\]]{0,6}| |\n|read|add|Q|8,0){0,40}",
                              bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let heads = ["fio version 2 iolog\n", "fio version 3 iolog\n", "  8,0 0 1 0.000000001 1 Q ", ""];
        let _ = read("", format!("{}{text}", heads[head]).as_bytes());
        let _ = read("", &bytes);
        for first in [[0x07, 0x74, 0x61, 0x65], [0x65, 0x61, 0x74, 0x07]] {
            let _ = read("", &[&first[..], &bytes].concat());
        }
    }

    /// What is written in fio's form is read as it was.
    #[test]
    fn what_is_written_is_read(ios in prop::collection::vec((0usize..3, 0u64..1 << 40, 1u64..1 << 20, 0u64..10_000), 1..50)) {
        let (mut text, mut entries, mut at) = (String::from("fio version 3 iolog\n1 f add\n"), Vec::new(), 1);
        for (direction, offset, bytes, gap) in ios {
            at += gap;
            let action = ["read", "write", "trim"][direction];
            text.push_str(&format!("{at} f {action} {offset} {bytes}\n"));
            entries.extend((gap > 0).then_some(Replayed::Gap(gap * 1000)));
            entries.push(IO(direction, 0, offset, bytes));
        }
        prop_assert_eq!(&*read("", text.as_bytes()).unwrap().entries, entries);
    }
}

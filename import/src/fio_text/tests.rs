use super::*;
use proptest::prelude::*;

const NEW: &str =
    "a job: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=4
...
fio-3.33
Starting 2 processes

a job: (groupid=0, jobs=2): err= 0: pid=27398: Mon Nov 23 13:02:56 2026
  read: IOPS=23.5k, BW=91.8MiB/s (96.3MB/s)(91.9MiB/1000msec)
    slat (nsec): min=1151, max=6021.5k, avg=56275.81, stdev=195458.86
    clat (usec): min=2, max=39107, avg=124.11, stdev=778.49
     lat (usec): min=8, max=39109, avg=180.38, stdev=809.67
    clat percentiles (usec):
     |  1.00th=[    9],  5.00th=[   10], 10.00th=[   11], 20.00th=[   12],
     | 99.99th=[27657]
   bw (  KiB/s): min=86288, max=86288, per=91.77%, avg=86288.00, stdev= 0.00, samples=2
  write: IOPS=1.2M, BW=4.5GiB/s (4.8GB/s)(4.5GiB/1000msec); 0 zone resets
    clat (msec): min=7, max=38917, avg=1.5K, stdev=825.19
  lat (usec)   : 4=0.01%, 10=9.17%, 20=29.75%, 50=8.12%, 100=16.63%
  cpu          : usr=2.60%, sys=21.05%, ctx=12698, majf=0, minf=25
     issued rwts: total=23529,1200001,0,0 short=0,0,0,0 dropped=0,0,0,0

Run status group 0 (all jobs):
   READ: bw=91.8MiB/s (96.3MB/s), 91.8MiB/s-91.8MiB/s (96.3MB/s-96.3MB/s), io=91.9MiB (96.4MB), run=1001-1001msec

Disk stats (read/write):
  nvme0n1: ios=24100/1200300, merge=0/1, ticks=1715/2779, in_queue=4494, util=52.61%
";
const OLD: &str = "b: (g=0): rw=read, bs=4K-4K/8K-8K/4K-4K, ioengine=sync, iodepth=1
fio-2.1.11
b: (groupid=1, jobs=1): err= 5 (file:io_u.c:1, func=x): pid=7: Mon
  read : io=1024.0MB, bw=10240KB/s, iops=2560, runt=100000msec
    clat (usec): min=50, max= 1234, avg=80.00, stdev= 3.10
     lat (usec): min=50, max= 1234, avg=80.25, stdev= 3.10
    clat percentiles (usec):
     |  1.00th=[   73], 99.99th=[>=2000]
  cpu          : usr=1.00%, sys=2.00%, ctx=1, majf=0, minf=2
     issued    : total=r=256001/w=0/d=0, short=r=0/w=0/d=0
";

/// A terse line of version 3: 5 fields, then reads and writes.
fn line(version: &str) -> String {
    let percentiles = "1.000000%=8;99.000000%=90;0%=0;";
    let direction = |iops: u32| {
        format!("400;4000;{iops};1000;1;9;2.5;1.0;2;99;80.5;3.0;{percentiles}9;99;83.0;4.0;1;2;57.5%;1.0;0.0")
    };
    let trims = if version == "3" { String::new() } else { format!(";{}", direction(0)) };
    let start = if version == "2" { "2;a".to_owned() } else { format!("{version};fio-3.33;a") };
    format!("{start};0;0;{};{}{trims};5.5%;10.25%;1;0;29;0.1%;0.1%", direction(1000), direction(10))
}

#[test]
fn what_fio_prints_for_people_is_read() {
    let found = FioOutput::parse(NEW.as_bytes()).unwrap();
    let [job] = found.jobs.as_slice() else { panic!("{found:?}") };
    assert_eq!((found.version.as_str(), job.name.as_str(), job.error), ("fio-3.33", "a job", 0));
    let (read, write) = (&job.directions[0], &job.directions[1]);
    assert_eq!((read.ios, read.iops, read.runtime_ms), (23_529, 23_529.0, 1000.0));
    assert_eq!((write.iops, write.clat_ns), (1_200_001.0, Some(1.5e9)));
    assert_eq!((read.clat_ns, read.slat_ns, read.lat_ns), (Some(124_110.0), Some(56_275.81), Some(180_380.0)));
    assert_eq!(read.percentiles_ns[0], (1.0, 9000.0));
    assert_eq!((read.percentiles_ns.len(), read.percentiles_ns[4]), (5, (99.99, 27_657_000.0)));
    assert!((read.bandwidth_bps / (91.8 * 1048576.0) - 1.0).abs() < 1e-9);
    assert_eq!((job.user_percent, job.system_percent), (Some(2.6), Some(21.05)));
    let option = |key: &str| {
        job.options.iter().chain(&found.global_options).find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    };
    assert_eq!([option("rw"), option("iodepth"), option("numjobs")], [Some("randrw"), Some("4"), Some("2")]);
    assert_eq!([option("bs"), option("filename")], [Some("4096"), Some("/dev/nvme0n1")]);
    assert_eq!(found.notes.len(), 3);
}

#[test]
fn the_members_of_an_array_are_the_drives_and_not_the_array() {
    let of = |disks: &str| {
        let (before, _) = NEW.split_once("  nvme0n1: ios").unwrap();
        let found = FioOutput::parse(format!("{before}{disks}").as_bytes()).unwrap();
        (found.jobs[0].options.last().unwrap().1.clone(), found.notes.join("\n"))
    };
    let array = "    md0: ios=24100/1200300, merge=0/0, ticks=0/0, in_queue=0, util=0.00%, aggrios=10/0, aggrmerge=0/0, aggrutil=5%\n";
    let members = "  nvme0n1: ios=10/0, merge=0/0, util=5%\n  nvme1n1: ios=10/0, merge=0/0, util=5%\n";
    let (files, notes) = of(&format!("{array}{members}"));
    assert_eq!(files, "/dev/nvme0n1:/dev/nvme1n1");
    assert!(notes.contains("md0 is made of nvme0n1, nvme1n1"), "{notes}");
    let (files, notes) = of(array);
    assert_eq!(files, "/dev/md0");
    assert!(notes.contains("md0 is taken as one drive"), "{notes}");
}

#[test]
fn the_page_cache_is_where_the_disks_did_less_than_fio() {
    let with = |text: &str| {
        let found = FioOutput::parse(text.as_bytes()).unwrap();
        let mut options = found.global_options.clone();
        options.extend(found.jobs[0].options.iter().filter(|(name, _)| name == "filename").cloned());
        options.sort();
        let options: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (options.join(" "), found.of_cache().is_some(), found.notes.join("\n"))
    };
    let direct = NEW.replace("ios=24100/1200300", "ios=23600/1190000").replace("1000msec", "10000msec");
    let (options, is_cached, notes) = with(&direct);
    assert_eq!((options.as_str(), is_cached), ("direct=1 filename=/dev/nvme0n1", false));
    assert!(notes.contains("direct=1 is assumed"), "{notes}");
    let (options, is_cached, _) = with(&direct.replace("ios=23600", "ios=23"));
    assert_eq!((options.as_str(), is_cached), ("filename=/dev/nvme0n1", true));
    let short = direct.replace("10000msec", "900msec").replace("ios=23600", "ios=0");
    assert!(!with(&short).1, "fio reads the counters too rarely");
    let merged = direct.replace("ios=23600", "ios=23").replace("merge=0/1", "merge=23506/0");
    assert!(!with(&merged).1, "the kernel made large ones of adjacent ones");
    let command = "$ fio --name=x --filename=/dev/nvme7n1 --rw=read --size=1g --numjobs=2\n";
    let (options, _, notes) = with(&format!("{command}{direct}"));
    assert_eq!(options, "filename=/dev/nvme7n1 size=1g", "no direct");
    assert!(notes.contains("command line in the text"), "{notes}");
    let two = FioOutput::parse_all(format!("{command}{direct}$ fio --name=y --direct=1\n{direct}").as_bytes()).unwrap();
    assert_eq!(two.last().unwrap().global_options[0].0, "direct");
}

#[test]
fn a_client_prints_the_hosts() {
    let (banner, rest) = NEW.split_once('\n').unwrap();
    let results = rest.split_once("\n\n").unwrap().1;
    let all = results.replace("a job:", "All clients:");
    let text =
        format!("hostname=x, be=0\n<x> {banner}\n<y> {banner}\n<x> Starting\n<x> \n{results}<y> \n{results}{all}");
    let found = FioOutput::parse(text.as_bytes()).unwrap();
    let hosts: Vec<&str> = found.jobs.iter().map(|job| job.host.as_str()).collect();
    assert_eq!((hosts.as_slice(), found.disks.len()), (&["x", "y"][..], 2));
    assert!(found.jobs.iter().all(|job| job.options.len() == 7), "{:?}", found.jobs);
}

#[test]
fn older_texts_are_read() {
    let found = FioOutput::parse(OLD.as_bytes()).unwrap();
    let job = &found.jobs[0];
    assert_eq!((job.group, job.error, found.version.as_str()), (1, 5, "fio-2.1.11"));
    let read = &job.directions[0];
    assert_eq!((read.ios, read.iops, read.clat_ns), (256_001, 2560.01, Some(80_000.0)));
    assert_eq!(read.percentiles_ns, [(1.0, 73_000.0), (99.99, 2_000_000.0)]);
    assert_eq!(read.bandwidth_bps, 10_240.0 * 1024.0);
    assert!(job.options.contains(&("bs".to_owned(), "4096,8192,4096".to_owned())));
    let range = banner("c: (g=0): rw=read, bs=512-4K/4K-4K/4K-4K, ioengine=sync, iodepth=1").unwrap();
    assert!(range.options.contains(&("bsrange".to_owned(), "512-4096,4096-4096,4096-4096".to_owned())), "{range:?}");
    let new = banner("c: (g=0): rw=read, bs=(R) 4096B-64.0KiB, (W) 4096B-64.0KiB, ioengine=sync, iodepth=1").unwrap();
    assert!(new.options.contains(&("bsrange".to_owned(), "4096-65536".to_owned())), "{new:?}");
}

#[test]
fn rates_are_read_in_every_base() {
    for (text, expected) in [
        (" IOPS=1, BW=64.0MiB/s (67.1MB/s)(1MiB/1000msec)", 67_108_864.0),
        (" IOPS=1, BW=67.1MB/s (64.0MiB/s)(1MB/1000msec)", 67_108_864.0),
        (" IOPS=1, BW=537Mbit/s (512Mibit/s)(1MB/1000msec)", 67_108_864.0),
        (" io=8MB, bw=65536KB/s, iops=1, runt=  1000msec", 67_108_864.0),
    ] {
        let mut direction = Direction::default();
        begin(&mut direction, text);
        assert_eq!(direction.bandwidth_bps, expected, "{text}");
    }
}

#[test]
fn the_options_of_a_group_of_several_sections_are_not_those_of_all() {
    let (banner, rest) = NEW.split_once('\n').unwrap();
    let threads = |text: &str| {
        let job = FioOutput::parse(text.as_bytes()).unwrap().jobs.remove(0);
        (job.threads, job.options.iter().any(|(name, _)| name == "numjobs"))
    };
    let other = banner.replace("a job", "b").replace("randrw", "read");
    assert_eq!(threads(NEW), (Some(2.0), true));
    assert_eq!(threads(&format!("{banner}\n{other}\n{rest}")), (Some(2.0), false));
    let later = other.replace("(g=0)", "(g=1)");
    assert_eq!(threads(&format!("{banner}\n{later}\n{rest}")), (Some(2.0), true));
}

#[test]
fn of_several_runs_in_one_text_the_last_whole_one_is_read() {
    let disks = "Disk stats (read/write):\n  vda: ios=1/2, util=9%\n";
    let first = format!("{}{disks}", NEW.replace("23529", "11111"));
    let found = FioOutput::parse(format!("{first}{NEW}{disks}").as_bytes()).unwrap();
    assert_eq!((found.jobs.len(), found.jobs[0].directions[0].ios), (1, 23_529), "{found:?}");
    assert!(found.notes.contains(&"2 runs follow each other; the last is used".to_owned()), "{:?}", found.notes);
    let other = NEW.replace("rw=randrw", "rw=randread");
    let both = FioOutput::parse_all(format!("{first}{other}{disks}").as_bytes()).unwrap();
    let ios: Vec<u64> = both.iter().map(|run| run.jobs[0].directions[0].ios).collect();
    assert_eq!(ios, [11_111, 23_529]);
    assert!(both[1].notes.iter().any(|note| note.contains("of each of the same jobs")), "{:?}", both[1].notes);
    let cut = FioOutput::parse(format!("{first}{}", &NEW[..NEW.len() / 2]).as_bytes()).unwrap();
    assert_eq!(cut.jobs[0].directions[0].ios, 11_111);
    assert!(cut.notes.iter().any(|note| note.contains("the last whole one is used")), "{:?}", cut.notes);
}

#[test]
fn every_version_of_terse_is_read() {
    for version in ["2", "3", "4", "5"] {
        let found = FioOutput::parse(format!("fio: warning; x\n{}\n", line(version)).as_bytes()).unwrap();
        let job = &found.jobs[0];
        let [read, write, trim] = &job.directions;
        assert_eq!((job.name.as_str(), read.iops, write.ios, trim.ios), ("a", 1000.0, 10, 0), "{version}");
        assert_eq!((read.bandwidth_bps, read.runtime_ms), (4_096_000.0, 1000.0));
        assert_eq!((read.slat_ns, read.clat_ns, read.lat_ns), (Some(2500.0), Some(80_500.0), Some(83_000.0)));
        assert_eq!(read.percentiles_ns, [(1.0, 8000.0), (99.0, 90_000.0)]);
        assert_eq!((job.user_percent, job.system_percent, trim.clat_ns), (Some(5.5), Some(10.25), None), "{version}");
    }
}

#[test]
fn what_is_cut_off_has_no_made_up_numbers() {
    let old = OLD.replace("err= 5 (file:io_u.c:1, func=x)", "err= 0");
    for text in [NEW, &old, &line("3")] {
        for length in 0..text.len() {
            let found = parse(&text.as_bytes()[..length]);
            let jobs = found.iter().flatten().flat_map(|found| &found.jobs);
            let whole = parse(text.as_bytes()).unwrap();
            let [whole] = whole.as_slice() else { panic!("{whole:?}") };
            // The CPU's line stands behind all rates; fio's exact counts may be missing.
            let near =
                |at: usize, iops: f64| (iops / whole.jobs[0].directions[at].iops - 1.0).abs() < 0.01 || iops == 0.0;
            for job in jobs {
                assert!((0..3).all(|at| near(at, job.directions[at].iops)), "{length} of {text}");
            }
        }
    }
    assert_eq!(parse(b"3;fio-3.1;a;0;0;1;2"), None);
    assert_eq!(parse(b"a: (groupid=0, jobs=1): err= 0: pid=1\n"), None);
}

proptest! {
    #[test]
    fn any_damage_is_read_without_a_panic(at in 0..NEW.len(), bytes in proptest::collection::vec(any::<u8>(), 0..9)) {
        for text in [NEW, OLD, &line("5")] {
            let mut text = text.as_bytes().to_vec();
            let at = at % text.len();
            text.splice(at..(at + 4).min(text.len()), bytes.iter().copied());
            let _ = parse(&text);
        }
    }
}

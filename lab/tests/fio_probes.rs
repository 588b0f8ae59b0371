//! Small files with one odd thing each: real fio and `campanile lint` say the same of them. Skipped, with a line that says
//! so, where fio is not installed.

mod common;

use common::fio;
use lab::lint::lint;
use lab::scenario::Request;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Before the lines of a probe.
const HEAD: &str = "[a]\nioengine=libaio\nfilename=/dev/nvme0n1\n";

/// Lines that both take.
const TAKEN: &[&str] = &[
    "ioengine= libaio",
    "bssplit=",
    // Blanks, cases, comments.
    "rw =read",
    "\trw=read",
    "rw\t=read",
    "rw=read ",
    "rw=read \t\x0b",
    "\x0b rw=read",
    "rw=read;c",
    "rw=read # a ; b",
    "bs=4k#c",
    "description=a;b#c",
    "; \nrw=read ; c",
    "\x0c",
    "\x01",
    "bs = 4k",
    "bs= 4k",
    "iodepth = 4",
    "size = 1g",
    "filename = /dev/sdb",
    "direct = 1",
    "bs=4K",
    "size=1Gb",
    "runtime=10S",
    "startdelay=10MS",
    "thinktime=10US",
    // Units.
    "bs=4kb",
    "bs=4Kb",
    "bs=4ki",
    "bs=4kilo",
    "size=4096x",
    "size=4096b",
    "size=65536s",
    "iodepth=2/2",
    "iodepth=2*2",
    "iodepth=2e3",
    "number_ios=10ms",
    "runtime=3sec",
    "runtime=3min",
    "runtime=3hours",
    "runtime=1d",
    "runtime=3ms",
    "ramp_time=0s",
    "thinktime=5ms",
    "max_latency=9 s",
    "startdelay=2.5",
    "latency_window=7us",
    "bs=0x1000",
    "bs=4k,",
    "bs=4k,,8k",
    "bs=,4k",
    "bs=4k,8k,16k",
    "bs=4k,8k,16k,32k",
    "bs=4k,x",
    "bs=4k:8k",
    "bs=4k-8k",
    "bs=4096.5",
    // Sizes and shares.
    "size=50%",
    "size=100%",
    "size=150%",
    "size=1000%",
    "size=33%x",
    "offset=50%",
    "offset=150%",
    "io_size=100%",
    "offset_increment=150%\nnumjobs=5",
    "io_size=50%",
    "nrfiles=0",
    "nrfiles=65536",
    "iodepth_low=100k",
    "iodepth=4\niodepth_batch=100k",
    "iodepth_batch_complete_min=65537",
    "iodepth_batch_complete_max=4294967295",
    // Directions and what follows them.
    "rw=read:8k",
    "rw=read:-8k",
    "rw=read:8x",
    "rw=read:0",
    "rw=randread:0",
    "rw=randread:8",
    "rw=randread:8k",
    "rw=randread:x",
    "rw=randread:",
    "rw=randread:-1",
    "rw=randread: 4",
    "rw=randrw:0",
    "rw=randtrim:0",
    "rw=write:0",
    "rw=read,write",
    "rw=randread,8",
    "rw=read,",
    "rw=readwrite",
    "readwrite=randrw",
    "rw=trimwrite:4k",
    // Words with more behind them.
    "steadystate=iops:2%x",
    "steadystate=iops:2 %",
    "steadystate=iops:2%%",
    "steadystate=iops:2x",
    "steadystate=iops:2k",
    "steadystate=bw:10mx\nss_dur=5",
    "steadystate=bw_slope:10kb\nss_dur=5",
    "steadystate=bw:1.5%",
    "steadystate=iops:2%:3",
    "file_service_type=random:8",
    "file_service_type=roundrobin,8",
    "file_service_type=zipf:1.2x",
    "random_distribution=zipf:1.2x",
    "random_distribution=zipf,8",
    "random_distribution=zoned:50/5:30/15:20/",
    "random_distribution=pareto:0.3:0.5",
    "cpus_allowed_policy=split:8",
    "random_generator=lfsr,",
    "verify=md5:3",
    "unified_rw_reporting=both:1",
    "exit_what=all:1",
    "sync=dsync,",
    "rate_process=poisson:2\nrate_iops=10",
    "percentile_list=50:x:99",
    "percentile_list=50:0:99",
    "percentile_list=1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19:20:21",
    "latency_percentile=99:50",
    "bssplit=4k/50:8k",
    "bssplit=4k/x",
    "bssplit=4k/200",
    "bssplit=4k/50:8k/50,",
    "bsrange=8k-4k",
    "bsrange=4k:8k",
    "bsrange=4k-8k,",
    "bsrange=4k-8k,8k-16k,1k-2k",
    "filesize=4k-8k",
    // CPUs, flags, names.
    "cpus_allowed=0,",
    "cpus_allowed=0,,1",
    "cpus_allowed=0-",
    "cpus_allowed=0 1",
    "cpus_allowed= 0",
    "cpus_allowed=0-1-1",
    "cpumask=0x1",
    "time_based=1x",
    "stonewall",
    "group_reporting=0",
    "norandommap",
    "name=foo",
    "name=x y",
    "write_bw_log",
    "randrepeat=0x0",
    "iodepth=$ncpus",
    "iodepth=$ncpus*2",
    "bs=$pagesize",
    "description=$jobname",
    "bs=4k${",
    // Included files.
    "include i.fio",
    "include  i.fio",
    "include\ti.fio",
    "include=i.fio",
    "include i.fio ; c",
    "include deep0.fio",
    "include nested.fio",
    "include twice.fio",
    "include folder/nested.fio",
    "include no-newline.fio",
    "include crlf.fio",
    "include ./i.fio\nrw=read",
];

/// Whole files that both take.
const TAKEN_FILES: &[&str] = &[
    "[a]",
    "[a]\nfilename=/dev/nvme0n1",
    "[a]\r\nioengine=libaio\r\nfilename=/dev/nvme0n1\r\n",
    "  [a]  \nrw=read\n",
    "\t[a]\t\nrw=read\n",
    "[a] ; c\nrw=read\n",
    "[a];c\nrw=read\n",
    "[a b]\nrw=read\n",
    "[ a ]\nrw=read\n",
    "[a]b]\nrw=read\n",
    "[[a]]\nrw=read\n",
    "[a/b:c]\nrw=read\n",
    "[%s]\nrw=read\n",
    "[\\\\pi{512}]\nrw=read\n",
    "[a]\nfilename=x\n[global]\nbs=8k\n[b]\n",
    "[GLOBAL]\nbs=8k\n[a]\nrw=read\n",
    "[global2]\nbs=4k\n[globalx y]\nrw=read\n[a]\n",
    "[a]\nrw=read\n[a]\nrw=read\n",
    "\n\n; c\n\n[a]\nrw=read\n",
    "#!/usr/bin/fio\n[a]\nrw=read\n",
    "[a]\nname=foo\n[b]\nwait_for=foo\n",
    "[global]\nname=foo\n[a]\nrw=read\n",
];

/// Lines that both refuse.
const REFUSED: &[&str] = &[
    "rw= read",
    "rw = read",
    "rw=\tread",
    "RW=read",
    "Direct=1",
    "rw=READ",
    "rw=Read",
    "rw=readx",
    "rw=rea",
    "rw==read",
    "rw read",
    "rw:read",
    "--rw=read",
    "'rw'=read",
    "rw=\"read\"",
    "rw=",
    "rw",
    "bs",
    "bs=",
    "bs=x",
    "bs=k",
    "bs=\"4k\"",
    "bs=4z",
    "numjobs=902b, ,6z",
    "bs=,",
    "iodepth=",
    "direct=yes",
    "direct=2",
    "direct",
    "=1",
    "a=b",
    "bs=½",
    "\x01rw=read",
    "io_size=150%",
    "steadystate=iops",
    "steadystate=iops:",
    "steadystate=iops:x%",
    "steadystate=bogus:1%",
    "file_service_type=bogus",
    "random_distribution=zipf:1",
    "random_distribution=zipf:x",
    "random_distribution=pareto:1",
    "random_distribution=normal:100",
    "random_distribution=zoned:60/10",
    "bssplit=x/50:4k/50",
    "bsrange=4k",
    "bsrange=x-y",
    "latency_percentile=x:50",
    "zone_reset_threshold=x:0",
    "percentile_list=x",
    "rwmixread=101",
    "size=18446744073709551616",
    "verify= md5",
    "verify=bogus",
    "!x",
    "// comment",
    "iodepth=$(nproc)",
];

/// Whole files that both refuse.
const REFUSED_FILES: &[&str] =
    &["bs=4k\n[a]\nrw=read\n", "\u{feff}[a]\nrw=read\n", "; c\n\u{feff}\n[a]\nrw=read\n", "include i.fio\n[a]\n"];

/// What fio takes, if only with a message, and what is refused here, with the reason.
const REFUSED_HERE: &[(&str, &str)] = &[
    ("[a]x\nrw=read\n", "a section's name has no `]` at its end"),
    ("[a;b]\nrw=read\n", "a section's name has no `]` at its end"),
    ("[]\nrw=read\n", "a section has no name"),
    ("[global]\nbs=4k\n", "must be given; valid: a section that is not [global]"),
    ("# nothing\n", "must be given"),
    ("[a]\nnrfiles=0\n", "does no I/O, and there is no other"),
    ("[a]\nrw=read:x\n", "`x` is not a number"),
    ("[a]\nwait_for=b\n[b]\n", "is no section before this one"),
    ("[a]\ncpus_allowed=all\n", "is no list of CPUs"),
    ("[a]\ncpumask=0\n", "names no CPU"),
    ("[a]\nbs=4%\n", "is a percentage"),
    ("[a]\nbs=-1\n", "is negative"),
    ("[a]\nbs=4k,2g\n", "is out of bounds"),
    ("[a]\nbs=4k,(8k)\n", "a sum in parentheses beside other parts"),
    ("[a]\nbs=(4096),8k\n", "a sum in parentheses beside other parts"),
    ("[a]\niodepth=x,4\n", "is not a number"),
    ("[a]\nthinktime=5d\n", "is out of bounds"),
    ("[a]\nnumjobs=0\n", "is out of bounds"),
    ("[a]\nbs=4k\0\n", "has a zero byte"),
    ("[a]\ninclude missing.fio\n", "cannot be read"),
    ("[a]\ninclude deep\n", "cannot be read"),
    ("[a]\ninclude section.fio\n", "begins a section"),
    ("[a]\ninclude cycle.fio\n", "nests deeper than 32 files"),
];

/// Files that probes include.
fn write_included(folder: &Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    std::fs::create_dir(folder.join("folder")).unwrap();
    write("i.fio", "\n; c\nbs=8k\n  thinktime=1\n");
    write("nested.fio", "include i.fio\niodepth=2\n");
    write("twice.fio", "include i.fio\ninclude i.fio\n");
    write("no-newline.fio", "bs=8k");
    write("crlf.fio", "bs=8k\r\niodepth=2\r\n");
    write("section.fio", "bs=8k\n[x]\n");
    write("cycle.fio", "include cycle.fio\n");
    write("folder/nested.fio", "include beside.fio\n");
    write("folder/beside.fio", "bs=2k\n");
    (0..11).for_each(|depth| write(&format!("deep{depth}.fio"), &format!("include deep{}.fio\n", depth + 1)));
    write("deep11.fio", "bs=16k\n");
}

/// Whether fio takes all of the files.
fn fio_takes(folder: &Path, files: &[PathBuf]) -> bool {
    let mut command = Command::new("fio");
    command.current_dir(folder).arg("--parse-only").args(files);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// What `campanile lint` says: the refusals.
fn refusals(path: &Path) -> Vec<String> {
    let lint = lint(&Request { platform: Some("emr".into()), ..Request::of(path.to_str().unwrap()) });
    let refused = lint.findings.into_iter().filter(|finding| finding.level == "refused");
    refused.map(|finding| format!("{}: {}", finding.option, finding.text)).collect()
}

fn files(folder: &Path, name: &str, lines: &[&str], whole: &[&str]) -> Vec<PathBuf> {
    let lines = lines.iter().map(|line| format!("{HEAD}{line}\n"));
    let write = |(number, text): (usize, String)| {
        let path = folder.join(format!("{name}{number}.fio"));
        std::fs::write(&path, text).unwrap();
        path
    };
    lines.chain(whole.iter().map(|text| (*text).to_owned())).enumerate().map(write).collect()
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

#[test]
fn what_fio_takes_is_taken() {
    if !fio::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_included(folder.path());
    let files = files(folder.path(), "taken", TAKEN, TAKEN_FILES);
    // fio reads many files at once, each with a `[global]` of its own; one that it refuses is found by asking for each.
    if !files.chunks(40).all(|files| fio_takes(folder.path(), files)) {
        let refused = files.iter().filter(|file| !fio_takes(folder.path(), std::slice::from_ref(*file)));
        panic!("fio refuses {:?}", refused.map(|file| text(file)).collect::<Vec<_>>());
    }
    let wrong: Vec<_> =
        files.iter().map(|file| (text(file), refusals(file))).filter(|(_, why)| !why.is_empty()).collect();
    println!("{} files that fio takes", files.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_fio_refuses_is_refused() {
    if !fio::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_included(folder.path());
    let files = files(folder.path(), "refused", REFUSED, REFUSED_FILES);
    let takes = |file: &&PathBuf| fio_takes(folder.path(), std::slice::from_ref(*file));
    let taken: Vec<_> = files.iter().filter(takes).map(|file| text(file)).collect();
    assert!(taken.is_empty(), "fio takes {taken:#?}");
    let wrong: Vec<_> = files.iter().filter(|file| refusals(file).is_empty()).map(|file| text(file)).collect();
    println!("{} files that fio refuses", files.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_refused_here_alone_says_why() {
    let folder = tempfile::tempdir().unwrap();
    write_included(folder.path());
    let (whole, whys): (Vec<&str>, Vec<&str>) = REFUSED_HERE.iter().copied().unzip();
    let files = files(folder.path(), "here", &[], &whole);
    if fio::is_there() {
        let refused = files.iter().filter(|file| !fio_takes(folder.path(), std::slice::from_ref(*file)));
        let refused: Vec<_> = refused.map(|file| text(file)).collect();
        assert!(refused.is_empty(), "fio refuses {refused:#?}");
    }
    for (file, why) in files.iter().zip(whys) {
        let refusals = refusals(file);
        assert!(refusals.iter().any(|refusal| refusal.contains(why)), "{:?}: {refusals:?}", text(file));
    }
}

/// Bytes that are no text, and lines longer than fio's.
#[test]
fn bytes_and_long_lines_are_read_as_by_fio() {
    if !fio::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let long = |bytes: usize| format!("{HEAD}description={}\nrw=read\n", "x".repeat(bytes - 12)).into_bytes();
    let probes: [(Vec<u8>, bool); 8] = [
        (b"[\xe9]\nfilename=/dev/nvme0n1\n".to_vec(), true),
        (b"[a]\nfilename=/dev/\xe9\xff\n".to_vec(), true),
        (b"[a]\ndescription=\xff\xfe\n".to_vec(), true),
        (b"[a]\n# \xff\xfe \0\nrw=read\n".to_vec(), true),
        (b"[a]\n\xff=1\n".to_vec(), false),
        ("[a]\nrw=read\n".encode_utf16().flat_map(u16::to_le_bytes).collect(), false),
        (long(4000), true),
        (long(8000), true),
    ];
    for (number, (bytes, is_taken)) in probes.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.fio"));
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(fio_takes(folder.path(), std::slice::from_ref(&path)), is_taken, "fio: {:?}", text(&path));
        assert_eq!(refusals(&path).is_empty(), is_taken, "{:?}: {:?}", text(&path), refusals(&path));
    }
}

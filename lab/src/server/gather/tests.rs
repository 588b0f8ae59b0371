use super::*;

const FIO: &str = r#"{"fio version": "fio-3.33", "global options": {"ioengine": "libaio", "rw": "randread"},
        "jobs": [{"jobname": "a[b]", "job options": {"name": "a", "filename": "/dev/nvme0n1"},
        "read": {"iops": 1000, "total_ios": 1000, "clat_ns": {"mean": 5000, "max": 9, "N": 1000}}}]}"#;

#[test]
fn a_job_without_its_file_is_made_of_fios_options() {
    let (found, notes) = Measurement::read("x", &Parts { fio: FIO.as_bytes(), ..Parts::default() }).unwrap();
    assert_eq!(found.job, "[global]\nioengine=libaio\nrw=randread\n[ab]\nfilename=/dev/nvme0n1\n");
    assert_eq!((found.delivery(), notes.len(), found.cpu), ("remapped", 0, None));
    let polled = Parts {
        fio: FIO.as_bytes(),
        job: Some(b"[a]\nioengine=io_uring\nhipri=1\ndirect=1\nfilename=/dev/nvme0n1\n"),
        ..Parts::default()
    };
    assert_eq!(Measurement::read("x", &polled).unwrap().0.delivery(), "polled");
}

#[test]
fn a_latency_is_of_reads_or_of_writes() {
    let of = |rw: &str, jobs: &str| {
        let fio = FIO.replace("randread", rw).replace(r#""read": {"iops": 1000, "#, jobs);
        let (found, _) = Measurement::read("x", &Parts { fio: fio.as_bytes(), ..Parts::default() }).unwrap();
        [false, true].map(|writes| found.clat_ns_of(writes))
    };
    let reads = r#""read": {"iops": 1000, "#;
    assert_eq!(of("randread", reads), [Some(5000.0), None]);
    assert_eq!(of("randwrite", &reads.replace("read", "write")), [None, Some(5000.0)]);
    let first = r#""write": {"iops": 9, "total_ios": 9, "clat_ns": {"mean": 700, "max": 9, "N": 9}}, "#;
    assert_eq!(of("randrw", &format!("{first}{reads}")), [Some(5000.0), Some(700.0)]);
    assert_eq!(of("randrw", &reads.replace("read", "mixed")), [None, None]);
    assert_eq!(of("randtrim", &reads.replace("read", "trim")), [None, None]);
}

#[test]
fn the_delivery_is_what_the_kernel_counts() {
    let of = |chip: &str, notifications: u32| {
        let at =
            |count: u32, pmn: u32| format!("CPU0 CPU1\n 40: 0 {count} {chip} 1-edge nvme0q1\n PMN: {pmn} 0 Posted\n");
        let (before, after) = (at(5, 9), at(2005, 9 + notifications));
        let parts = Parts {
            fio: FIO.as_bytes(),
            interrupts: Some([before.as_bytes(), after.as_bytes()]),
            uptime: Some([b"10.0 1", b"12.0 1"]),
            ..Parts::default()
        };
        Measurement::read("x", &parts).unwrap().0.interrupts.unwrap()
    };
    assert_eq!(of("IR-PCI-MSIX", 0), Delivered { per_second: Some(1000.0), vectors: 1, delivery: "remapped" });
    assert_eq!(of("PCI-MSIX", 0).delivery, "plain");
    assert_eq!(of("IR-PCI-MSIX", 7).delivery, "posted");
}

#[test]
fn threads_and_drives_are_those_of_the_sections() {
    // fio printed no options that could stand in for a wrong job file.
    let fio = FIO.replace("options", "remarks");
    let of = |job: &str| {
        let parts = Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() };
        Measurement::read("x", &parts).map(|(found, _)| (found.threads(), found.drives()))
    };
    let two = "[global]\nnumjobs=4\nfilename=/dev/a\n[a]\nrw=read\n[b]\nnumjobs = 2\nfilename=/dev/a:/dev/b\n";
    assert_eq!(of(two), Ok((6, 2)));
    assert!(of("[a]\nnumjobs=x\n").is_err_and(|error| error.starts_with("x: x.fio:2: numjobs: `x`")));
}

#[test]
fn readings_that_are_swapped_say_nothing() {
    let at = |count: u32| format!("CPU0\n 40: {count} IR-PCI-MSIX 1-edge nvme0q1\n");
    let (more, fewer) = (at(9), at(5));
    let interrupts = Some([more.as_bytes(), fewer.as_bytes()]);
    let parts = Parts { fio: FIO.as_bytes(), interrupts, ..Parts::default() };
    let (found, notes) = Measurement::read("x", &parts).unwrap();
    assert!(found.interrupts.is_none() && notes.len() == 1 && notes[0].contains("not in their order"), "{notes:?}");
}

#[test]
fn archives_are_found_below_a_folder_and_without_points() {
    let of = |files: &[(&str, &str)]| {
        let files: import::archive::Files =
            files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
        Server::of_archive(&Contents::from(files))
    };
    let lscpu = "CPU(s): 8\n";
    let below = of(&[("a/b/points/x/fio.json", FIO), ("a/b/static/lscpu", lscpu), ("other", "x")]);
    assert_eq!((below.measurements.len(), below.about.len(), below.notes.len()), (1, 1, 0), "{:?}", below.notes);
    let own = of(&[("run1/out.json", FIO), ("lscpu.txt", lscpu), ("notes.txt", "fio is fine")]);
    assert_eq!((own.measurements.len(), own.measurements[0].name.as_str()), (1, "run1-out"), "{:?}", own.notes);
    assert_eq!((own.about.len(), own.notes.len()), (1, 1), "{:?}", own.notes);
    assert!(of(&[]).notes[0].contains("no folder `points`"));
}

#[test]
fn runs_of_one_text_and_files_of_one_name_are_measurements_of_their_own() {
    let mut server = Server::default();
    let other = FIO.replace("randread", "read");
    let stat = Some([&b"cpu 1 1 1 1"[..], b"cpu 2 2 2 2"]);
    let both = [FIO, &other].concat();
    server.add("x", &Parts { fio: both.as_bytes(), stat, ..Parts::default() });
    server.add("a", &Parts { fio: FIO.as_bytes(), stat, ..Parts::default() });
    server.add("a", &Parts { fio: FIO.as_bytes(), ..Parts::default() });
    let names: Vec<(&str, bool)> =
        server.measurements.iter().map(|one| (one.name.as_str(), one.cpu.is_some())).collect();
    assert_eq!(names, [("x-a-b-", false), ("x-a-b--2", false), ("a", true), ("a-2", false)]);
    assert!(server.measurements[1].job.contains("rw=read\n"), "{}", server.measurements[1].job);
    assert!(server.notes[0].contains("2 runs of different jobs"), "{:?}", server.notes);
    let one = |name: &str| FIO.replace("a[b]", name);
    let both = [one("r"), one("w")].concat();
    let job = "[global]\nfilename=/dev/nvme0n1\n[r]\nrw=randread\n[w]\nrw=write\n";
    let mut with_job = Server::default();
    with_job.add("x", &Parts { fio: both.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() });
    let jobs: Vec<&str> = with_job.measurements.iter().map(|one| one.job.as_str()).collect();
    assert!(jobs.len() == 2 && !jobs[0].contains("[w]") && !jobs[1].contains("[r]"), "{jobs:?}");
}

#[test]
fn one_of_several_hosts_is_the_server() {
    let on = |host: &str, iops: u32| {
        format!(
            r#"{{"jobname": "a", "hostname": "{host}", "job options": {{"rw": "read", "filename": "/dev/nvme0n1"}},
                "read": {{"iops": {iops}, "total_ios": {iops}, "clat_ns": {{"mean": 5000, "max": 9, "N": 9}}}}}}"#
        )
    };
    let of = |hosts: &[&str], host: Option<&str>| {
        let jobs: Vec<String> = hosts.iter().zip(1..).map(|(host, iops)| on(host, iops * 100)).collect();
        let fio = format!("{{\"client_stats\": [{}]}}", jobs.join(","));
        let mut server = Server::on(host);
        server.add("x", &Parts { fio: fio.as_bytes(), ..Parts::default() });
        (server.measurements.first().map(|one| one.fio.iops()), server.notes.join("\n"))
    };
    let (none, notes) = of(&["n1", "n2"], None);
    assert!(none.is_none() && notes.contains("2 hosts") && notes.ends_with("--host with one of n1, n2"), "{notes}");
    let (none, notes) = of(&["n1", "n2"], Some("n3"));
    assert!(none.is_none() && notes.contains("\"n3\"; valid"), "{notes}");
    assert_eq!(of(&["n1", "n2"], Some("n2")).0, Some(200.0));
    assert_eq!((of(&["n1", "n1"], None).0, of(&["", ""], Some("n1")).0), (Some(300.0), Some(300.0)));
}

#[test]
fn failed_and_idle_jobs_are_notes() {
    let mut server = Server::default();
    server.add("bad/name", &Parts { fio: b"none", ..Parts::default() });
    let failed = FIO.replace("\"read\"", "\"error\": 5, \"read\"");
    server.add("e", &Parts { fio: failed.as_bytes(), ..Parts::default() });
    server.add("i", &Parts { fio: FIO.replace("1000", "0").as_bytes(), ..Parts::default() });
    assert!(server.measurements.is_empty());
    assert!(server.notes[0].starts_with("bad-name: fio's output holds no JSON"), "{:?}", server.notes);
    assert!(server.notes[1].contains("error 5") && server.notes[2].contains("no I/O"), "{:?}", server.notes);
}

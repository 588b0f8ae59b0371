//! Servers whose constants an import cannot know: the machine itself plays the server, with constants drawn from a third to
//! three times their own, and prints what fio and the kernel would.

pub(crate) mod judge;

use crate::common::mean;
use import::archive::Files;
use lab::input::Place;
use lab::interrupt::StopFlag;
use lab::outcome::{CpuTime, Outcome, Summary};
use lab::platform::{Platform, Unit};
use lab::run;
use lab::scenario::Request;
use lab::setting::Setting;
use std::path::Path;

/// A constant of emr's that is drawn beside all times and rates.
const DRAWN_TOO: &str = "drive.gen5.slots";

/// The platform whose constants are drawn: emr, with a `fetch` that limits some drives. Its own, 100 ns, never does.
pub(crate) fn base() -> Platform {
    let mut base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    base.drives[0].1.fetch.value = 400.0;
    base
}

/// Jobs as scripts/measure-server writes them: name, drives, options.
pub(crate) const JOBS: [(&str, usize, &str); 6] = [
    ("one-drive-depth-1", 1, "bs=4k\niodepth=1\ncpus_allowed=0"),
    ("one-drive-depth-32", 1, "bs=4k\niodepth=32\ncpus_allowed=0"),
    ("one-drive-full", 1, "bs=4k\niodepth=64\nnumjobs=8\ncpus_allowed=0-7\ncpus_allowed_policy=split"),
    ("one-drive-full-128k", 1, "bs=128k\niodepth=64\nnumjobs=8\ncpus_allowed=0-7\ncpus_allowed_policy=split"),
    ("one-cpu-all-drives", 4, "bs=4k\niodepth=32\ncpus_allowed=0"),
    ("all-drives-full", 4, "bs=4k\niodepth=64\nnumjobs=8\ncpus_allowed=0-31\ncpus_allowed_policy=split"),
];

/// CPUs of the server.
const CPUS: u64 = 32;

pub(crate) fn job((_, drives, options): (&str, usize, &str)) -> String {
    let head =
        format!("[global]\nioengine=libaio\ndirect=1\nrw=randread\nnorandommap=1\ngroup_reporting=1\n{options}\n");
    (0..drives).fold(head, |text, drive| text + &format!("[drive-{drive}]\nfilename=/dev/nvme{drive}n1\n"))
}

/// The server's own run of a job, with its secrets.
pub(crate) fn measured(folder: &Path, of: (&str, usize, &str), secrets: &[String]) -> Outcome {
    let path = folder.join(format!("{}.fio", of.0));
    std::fs::write(&path, job(of)).unwrap();
    let input = path.to_string_lossy().into_owned();
    let mut sets = secrets.to_vec();
    // Jobs that take turns on a CPU need many turns, and slow I/Os and large blocks take long to be many: fio runs for seconds.
    let is_large = of.0.ends_with("-128k");
    let is_long = of.0.ends_with("-1") || of.0.starts_with("one-cpu") || is_large;
    sets.extend(["cpus=32".into(), format!("duration={}", if is_long { "150ms" } else { "10ms" })]);
    // Before, the threads that share a CPU have had their turns, and CPUs that began in step no longer are.
    let ramp = if of.0.starts_with("one-cpu") || is_large { "64ms" } else { "10ms" };
    sets.push(format!("ramp={ramp}"));
    run_of(&Request { platform: Some("emr".into()), sets, ..Request::of(input) })
}

pub(crate) fn run_of(request: &Request) -> Outcome {
    let request = Request { deliveries: Some(vec!["remapped".into()]), ..request.clone() };
    let plan = request.plan().unwrap();
    let trials = plan.trials();
    run::run_one(&trials[0], 1, false, &StopFlag::default()).unwrap().outcome
}

/// What the server would have printed, each figure off by at most `noise`.
pub(crate) fn printed(outcome: &Outcome, random: &mut Random) -> Vec<(&'static str, String)> {
    let summary = Summary::over(std::slice::from_ref(outcome)).unwrap();
    let mut noise = || 1.0 + 0.03 * (2.0 * random.next() - 1.0);
    let mut noisy = |id: &str| mean(&summary, id) * noise();
    let (iops, clat) = (noisy("iops"), noisy("clat"));
    let fio = format!(
        "{{\"fio version\": \"fio-3.33\", \"jobs\": [{{\"jobname\": \"j\", \"error\": 0, \"read\": {{\"iops\": {iops}, \
         \"total_ios\": 1000, \"bw_bytes\": {bandwidth}, \"clat_ns\": {{\"mean\": {clat}, \"max\": 9, \"N\": 1000}}}}}}]}}",
        bandwidth = noisy("bandwidth")
    );
    // An outcome has the CPUs of the jobs; the others of the server are idle.
    let mut ticks = |of: fn(&CpuTime) -> u64| {
        let ns: u64 = outcome.cpus.iter().map(of).sum();
        (ns as f64 / (outcome.span_ns * CPUS) as f64 * 1e8 * noise()) as u64
    };
    let (user, system, irq) = (ticks(|cpu| cpu.user_ns), ticks(|cpu| cpu.system_ns), ticks(|cpu| cpu.irq_ns));
    let idle = 100_000_000u64.saturating_sub(user + system + irq);
    let stat = format!("cpu  {user} 0 {system} {idle} 0 {irq} 0\n");
    let in_100_s = outcome.interrupts.dispatched as f64 / outcome.span_ns as f64 * 1e11 * noise();
    // A column for each CPU: without lscpu, they are the server's CPUs.
    let columns: String = (0..CPUS).map(|cpu| format!(" CPU{cpu}")).collect();
    let others = " 0".repeat(CPUS as usize - 1);
    let interrupts = |count: f64| {
        format!(
            "    {columns}\n 99: {count:.0}{others} IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n\
             PMN: 0{others} Posted MSI notification event\n"
        )
    };
    vec![
        ("before/interrupts", interrupts(0.0)),
        ("after/interrupts", interrupts(in_100_s)),
        ("before/uptime", "1000.00 1.00\n".into()),
        ("after/uptime", "1100.00 1.00\n".into()),
        ("fio.json", fio),
        ("before/stat", "cpu  0 0 0 0 0 0 0\n".into()),
        ("after/stat", stat),
        ("job.fio", String::new()),
    ]
}

/// Splitmix64, for draws from a seed that is printed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Every time and rate of `base`, from a third to three times what it is.
pub(crate) fn secrets(base: &Platform, random: &mut Random) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut media_mean = f64::INFINITY;
    for (key, spec, constant) in base.constants() {
        let is_drawn = matches!(spec.unit, Unit::Time | Unit::ByteRate) || key == DRAWN_TOO;
        if !is_drawn || constant.value == 0.0 {
            continue;
        }
        let drawn = (constant.value * 3f64.powf(2.0 * random.next() - 1.0)).clamp(spec.min, spec.max);
        let value = match &key[..] {
            DRAWN_TOO => drawn.round(),
            // The smallest time is not above the mean.
            "drive.gen5.media_floor" => drawn.min(media_mean),
            _ => drawn,
        };
        if key == "drive.gen5.media_mean" {
            media_mean = value;
        }
        secrets.push(format!("{key}={}", spec.unit.format(value)));
    }
    secrets
}

/// The server's archive, and what of it is missing: each job with a chance of one in six, CPU times, interrupts and the list
/// of CPUs with one in four. Two jobs are always there.
pub(crate) fn archive(folder: &Path, secrets: &[String], random: &mut Random) -> (Files, Vec<String>) {
    let (mut files, mut missing) = (Files::new(), Vec::new());
    let mut may_miss = JOBS.len() - 2;
    for of in JOBS {
        if random.next() < 1.0 / 6.0 && may_miss > 0 {
            missing.push(of.0.to_owned());
            may_miss -= 1;
            continue;
        }
        let is_there = ["stat", "interrupts"].map(|file| (file, random.next() >= 0.25));
        let lost = |name: &str| is_there.iter().any(|(file, is_there)| name.ends_with(file) && !is_there);
        missing.extend(is_there.iter().filter(|(_, is)| !is).map(|(file, _)| format!("{}/{file}", of.0)));
        for (file, text) in printed(&measured(folder, of, secrets), random) {
            let text = if file == "job.fio" { job(of) } else { text };
            if !lost(file) {
                files.insert(format!("points/{}/{file}", of.0), text.into_bytes());
            }
        }
    }
    if random.next() >= 0.25 {
        files.insert("static/lscpu".into(), b"CPU(s): 32\nSocket(s): 1\n".to_vec());
    } else {
        missing.push("lscpu".into());
    }
    (files, missing)
}

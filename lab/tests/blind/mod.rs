//! The machine itself plays a server, and prints what fio and the kernel would.

use crate::common::mean;
use lab::interrupt::StopFlag;
use lab::outcome::{CpuTime, Outcome, Summary};
use lab::run;
use lab::scenario::Request;
use std::path::Path;

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

//! What was predicted and advised for one blind server, beside the truth.

use crate::blind::{JOBS, Random, job, measured, printed, run_of};
use crate::common::mean;
use import::archive::{Contents, Files};
use lab::advise::needs::Stated;
use lab::advise::rank::LEAST_THROUGHPUT;
use lab::advise::{self, Advice, Criterion, Question};
use lab::input::Place;
use lab::interrupt::StopFlag;
use lab::outcome::Summary;
use lab::platform::{Platform, Unit};
use lab::scenario::Request;
use lab::server::fit;
use lab::server::gather::Server;
use lab::setting::Setting;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// Jobs that were not measured, to predict: name, drives, options. The path of the interrupts limits some servers in the
/// second one.
pub(crate) const OTHERS: [(&str, usize, &str); 4] = [
    ("blocks-8k", 4, "bs=8k\niodepth=16\nnumjobs=4\ncpus_allowed=0-15\ncpus_allowed_policy=split"),
    ("small-full", 4, "bs=512\niodepth=64\nnumjobs=8\ncpus_allowed=0-31\ncpus_allowed_policy=split"),
    ("two-drives", 2, "bs=4k\niodepth=8\nnumjobs=4\ncpus_allowed=0-7\ncpus_allowed_policy=split"),
    ("shallow", 4, "bs=4k\niodepth=2\nnumjobs=1\ncpus_allowed=0-3\ncpus_allowed_policy=split"),
];

/// A constant of emr's that is drawn beside all times and rates.
const DRAWN_TOO: &str = "drive.gen5.slots";

/// The platform whose constants are drawn: emr, with a `fetch` that limits some drives. Its own, 100 ns, never does.
fn base() -> Platform {
    let mut base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    base.drives[0].1.fetch.value = 400.0;
    base
}

/// What one job gave.
pub(crate) struct Judged {
    /// The predicted IOPS against the true ones.
    pub error: f64,
    /// Whether the printed interval of today's IOPS holds the truth.
    pub inside: bool,
    /// The width of that interval against the prediction.
    pub width: f64,
    /// Whether the truth needs a remedy.
    pub needs: bool,
    /// Whether the right remedy came first or tied: of one that is not named, whether its interval reaches a gain that counts.
    pub advised: bool,
    /// Whether the advice named the right remedy as sure.
    pub named: bool,
    /// Whether it named the right remedy as likely.
    pub likely: bool,
    /// Whether it named a remedy, sure or likely, and none was needed.
    pub needless: bool,
    /// How, for people.
    pub how: String,
}

/// The advice on a job: what an administrator could switch on.
fn advised(request: Request, points: Option<u32>) -> Advice {
    let among = ["posted", "threaded"].map(String::from).to_vec();
    let request = Request { deliveries: Some(vec!["remapped".into()]), seeds: Some(2), ..request };
    let by = Criterion::Throughput;
    let question = Question { request, among, stated: Stated::default(), cpu_budget: None, by, points };
    advise::advise(&question, &StopFlag::default()).unwrap()
}

/// True if `ours` has the true server's first remedy first, or tied with its first. "None needed" ties with a remedy whose
/// interval reaches down to what does not count.
fn is_right(truth: &Advice, ours: &Advice) -> bool {
    let [truth, verdict] = [truth, ours].map(|advice| &advice.verdicts[0]);
    let gain = |name: &String| {
        let found = ours.candidates.iter().find(|candidate| candidate.name == *name);
        found.and_then(|candidate| candidate.changes.throughput)
    };
    match (&truth.first, &verdict.first) {
        (None, None) => true,
        (Some(right), Some(first)) => right == first || verdict.tied.contains(right) || truth.tied.contains(first),
        (None, Some(first)) => gain(first).is_some_and(|gain| gain.low <= LEAST_THROUGHPUT),
        (Some(right), None) => gain(right).is_some_and(|gain| gain.high >= LEAST_THROUGHPUT),
    }
}

/// The verdict on throughput, with the interval of its remedy.
fn shown(advice: &Advice) -> String {
    let gain = |name: &String| {
        let found = advice.candidates.iter().find(|candidate| candidate.name == *name);
        let change = found.and_then(|candidate| candidate.changes.throughput);
        change.map_or(String::new(), |gain| format!(" {:+.0} ({:+.0} to {:+.0}) %", gain.percent, gain.low, gain.high))
    };
    let first = &advice.verdicts[0].first;
    let perhaps = &advice.verdicts[0].perhaps;
    let likely = || perhaps.as_ref().map_or("none needed".into(), |one| format!("perhaps {one}{}", gain(one)));
    first.as_ref().map_or_else(likely, |first| format!("{first}{}", gain(first)))
}

/// Imports a server that `seed` draws, and predicts and advises on jobs that were not measured.
pub(crate) fn blind(seed: u64) -> (Vec<Judged>, String) {
    let mut random = Random(seed);
    let base = base();
    let secrets = secrets(&base, &mut random);
    let folder = tempfile::tempdir().unwrap();
    let (files, missing) = archive(folder.path(), &secrets, &mut random);
    let server = Server::of_archive(&Contents::from(files));
    let out = folder.path().join("mine");
    let (started, began) = (Instant::now(), cpu_seconds());
    let found = fit::import(server, &base, &out, &StopFlag::default()).unwrap();
    let (took, busy) = (started.elapsed().as_secs_f64(), cpu_seconds() - began);
    let mine = out.join("mine.toml").to_string_lossy().into_owned();
    let judged = OTHERS.iter().map(|of| judge(folder.path(), *of, &secrets, &mine)).collect();
    let how = format!(
        "import in {took:.1} s, {busy:.1} s of CPUs; without {missing:?}; {secrets:?} against {}",
        told(&found, &secrets)
    );
    (judged, how)
}

/// What the import found, beside the truth.
fn told(found: &fit::Imported, secrets: &[String]) -> String {
    let decided: Vec<String> = found
        .decision
        .decided
        .iter()
        .map(|d| format!("{} {} ±{:.0} %", d.key, d.unit.format(d.value), d.uncertainty * 100.0))
        .collect();
    let of_truth = truth_on(found, secrets);
    let errors: Vec<String> = found
        .rows
        .iter()
        .zip(found.decision.errors.iter().zip(&of_truth))
        .map(|(row, (e, truth))| {
            format!("{} {:.1} {:+.1} ({:+.1})", row.id, row.published.unwrap(), e * 100.0, truth * 100.0)
        })
        .collect();
    let spread: Vec<String> = found
        .ranges
        .iter()
        .map(|range| {
            let key = range.key.replace("drive.measured.", "drive.gen5.");
            let truth = secrets.iter().find_map(|set| set.strip_prefix(&format!("{key}=")));
            let factors: Vec<String> = range.factors.iter().map(|f| format!("{f:.2}")).collect();
            format!("{key} is {} of {:?} with {}", truth.unwrap_or("?"), range.ends, factors.join(" "))
        })
        .collect();
    let points = found.ranges.first().map_or(0, |range| range.factors.len());
    format!(
        "{decided:?}, kept {:?}; {points} points; errors (and the truth's) {errors:?}; spread {spread:#?}; notes {:?}",
        found.decision.kept, found.notes
    )
}

/// The CPU time of this process, where the kernel tells it: a host may be shared.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // utime and stime, in hundredths of a second.
    fields.iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The rows' errors with the true constants, in the runs of the import: what no fit can make smaller but by chance.
fn truth_on(found: &fit::Imported, secrets: &[String]) -> Vec<f64> {
    let sets: Vec<String> = secrets.iter().map(|set| set.replace("drive.gen5.", "drive.measured.")).collect();
    let names: BTreeSet<&String> = found.rows.iter().flat_map(|row| &row.scenarios).collect();
    let plan = |name: &String| Request { sets: sets.clone(), ..Request::of(name) }.plan().unwrap();
    let plans = names.into_iter().map(|name| (name.clone(), plan(name))).collect();
    lab::calibrate::errors(&found.rows, &plans, &StopFlag::default()).unwrap()
}

fn judge(folder: &Path, of: (&str, usize, &str), secrets: &[String], mine: &str) -> Judged {
    let truth = mean(&Summary::over(&[measured(folder, of, secrets)]).unwrap(), "iops");
    let path = folder.join(format!("{}.fio", of.0)).to_string_lossy().into_owned();
    let on = |platform: &str, sets: &[String], duration: &str| Request {
        platform: Some(platform.to_owned()),
        sets: [sets, &["cpus=32".to_owned(), format!("duration={duration}")]].concat(),
        ..Request::of(path.as_str())
    };
    let as_long = ["ramp=10ms".to_owned()];
    let predicted = mean(&Summary::over(&[run_of(&on(mine, &as_long, "10ms"))]).unwrap(), "iops");
    let right = advised(on("emr", secrets, "5ms"), Some(0));
    let ours = advised(on(mine, &[], "5ms"), None);
    let [low, high] = ours.today.throughput_range;
    let error = predicted / truth - 1.0;
    let [true_verdict, verdict] = [&right, &ours].map(|advice| &advice.verdicts[0]);
    let is_likely = |name: &String| true_verdict.first.as_ref() == Some(name) || true_verdict.tied.contains(name);
    Judged {
        error,
        inside: (low..=high).contains(&truth),
        width: (high - low) / predicted,
        needs: true_verdict.first.is_some(),
        advised: is_right(&right, &ours),
        named: true_verdict.first.is_some() && verdict.first.is_some() && is_right(&right, &ours),
        likely: verdict.perhaps.as_ref().is_some_and(is_likely),
        needless: true_verdict.first.is_none() && (verdict.first.is_some() || verdict.perhaps.is_some()),
        how: format!(
            "{}: {truth:.0} IOPS, predicted {:+.1} % ({:+.1} to {:+.1}); limited by {}, thought {}; right {}, advised {}",
            of.0,
            error * 100.0,
            (low / truth - 1.0) * 100.0,
            (high / truth - 1.0) * 100.0,
            right.today.bottleneck,
            ours.today.bottleneck,
            shown(&right),
            shown(&ours)
        ),
    }
}

/// Every time and rate of `base`, from a third to three times what it is.
fn secrets(base: &Platform, random: &mut Random) -> Vec<String> {
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
fn archive(folder: &Path, secrets: &[String], random: &mut Random) -> (Files, Vec<String>) {
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

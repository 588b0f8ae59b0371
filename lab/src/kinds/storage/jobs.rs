//! The tables of jobs: each job, or each group under `group_reporting`, with reads, writes and trims apart.

use super::detail::{DirectionFigures, JobFigures};
use crate::outcome::{Latency, Outcome, Unit};
use crate::report::html::{html_table, row};
use crate::report::plots::escape;
use crate::report::{RunReport, figure, table};

/// Most rows of a delivery on the terminal; files have all.
const ROWS_MAX: usize = 24;

const JOBS: [&str; 9] = ["delivery", "job", "", "I/Os", "IOPS", "bandwidth", "slat", "clat", "lat"];
const PERCENTILES: [&str; 7] = ["delivery", "job", "", "percentile", "slat", "clat", "lat"];

/// The figures of one direction of one job, averaged over the seeds.
struct Row<'a> {
    delivery: &'a str,
    job: String,
    direction: &'a str,
    /// One a seed.
    seeds: Vec<&'a DirectionFigures>,
}

impl Row<'_> {
    fn mean(&self, of: impl Fn(&DirectionFigures) -> f64) -> f64 {
        self.seeds.iter().map(|seed| of(seed)).sum::<f64>() / self.seeds.len() as f64
    }

    fn latency(&self, of: fn(&DirectionFigures) -> &Latency) -> String {
        match self.seeds.iter().any(|seed| of(seed).count > 0) {
            true => figure::value(Unit::Nanoseconds, self.mean(|seed| of(seed).mean_ns)),
            false => "–".into(),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.delivery.into(),
            self.job.clone(),
            self.direction.into(),
            format!("{:.0}", self.mean(|seed| seed.ios as f64)),
            figure::value(Unit::PerSecond, self.mean(|seed| seed.iops)),
            figure::value(Unit::BytesPerSecond, self.mean(|seed| seed.bandwidth)),
            self.latency(|seed| &seed.slat),
            self.latency(|seed| &seed.clat),
            self.latency(|seed| &seed.lat),
        ]
    }

    /// A row for each percentile of the job's list.
    fn percentiles(&self) -> Vec<Vec<String>> {
        let Some(first) = self.seeds.first() else { return Vec::new() };
        let row = |at: usize| {
            let value = |of: fn(&super::detail::PercentileRow) -> Option<u64>| {
                let values: Option<Vec<u64>> = self.seeds.iter().map(|seed| of(seed.percentiles.get(at)?)).collect();
                let mean = |values: Vec<u64>| values.iter().sum::<u64>() as f64 / values.len() as f64;
                values.map_or("–".into(), |values| figure::value(Unit::Nanoseconds, mean(values)))
            };
            let named = [self.delivery.into(), self.job.clone(), self.direction.into()];
            let percent = format!("{}", first.percentiles[at].percent);
            let values = [value(|row| row.slat_ns), value(|row| row.clat_ns), value(|row| row.lat_ns)];
            named.into_iter().chain([percent]).chain(values).collect()
        };
        (0..first.percentiles.len()).map(row).collect()
    }
}

/// The rows of a delivery.
fn rows<'a>(report: &'a RunReport, delivery: &'a str) -> Vec<Row<'a>> {
    let of_delivery = |outcome: &&Outcome| outcome.delivery == delivery;
    let jobs = |outcome: &'a Outcome| outcome.storage().map_or(&[][..], |own| &own.jobs);
    let seeds: Vec<&[JobFigures]> = report.outcomes.iter().filter(of_delivery).map(jobs).collect();
    let Some((first, _)) = seeds.split_first() else { return Vec::new() };
    let mut rows = Vec::new();
    for (at, job) in first.iter().enumerate() {
        let same = first.iter().filter(|other| other.name == job.name).count();
        let nth = first[..at].iter().filter(|other| other.name == job.name).count();
        for figures in &job.directions {
            let direction = figures.direction.as_str();
            let of_seed =
                |jobs: &&'a [JobFigures]| jobs.get(at)?.directions.iter().find(|other| other.direction == direction);
            rows.push(Row {
                delivery,
                job: if same > 1 { format!("{} #{}", job.name, nth + 1) } else { job.name.clone() },
                direction,
                seeds: seeds.iter().filter_map(of_seed).collect(),
            });
        }
    }
    rows
}

/// Whether the terminal shows jobs: there are several, or one asks for percentiles of its own.
fn is_shown(report: &RunReport) -> bool {
    let jobs = report.outcomes.first().and_then(Outcome::storage).map_or(&[][..], |own| &own.jobs);
    jobs.len() > 1 || has_own_percentiles(jobs)
}

fn has_own_percentiles(jobs: &[JobFigures]) -> bool {
    let mut rows = jobs.iter().flat_map(|job| &job.directions).flat_map(|direction| &direction.percentiles);
    let defaults = crate::fio::stat::PERCENTILES;
    rows.any(|row| !defaults.contains(&row.percent) || row.slat_ns.is_some() || row.lat_ns.is_some())
        || jobs.iter().flat_map(|job| &job.directions).any(|one| one.percentiles.len() != defaults.len())
}

/// The tables on the terminal.
pub(super) fn tables(report: &RunReport) -> String {
    let ended = ended(report);
    if !is_shown(report) {
        return ended;
    }
    let (mut all, mut percentiles, mut left_out) = (Vec::new(), Vec::new(), 0);
    for summary in &report.summaries {
        let rows = rows(report, &summary.delivery);
        left_out = left_out.max(rows.len().saturating_sub(ROWS_MAX));
        all.extend(rows.iter().take(ROWS_MAX).map(Row::cells));
        percentiles.extend(rows.iter().take(ROWS_MAX).flat_map(Row::percentiles));
    }
    let mut text = table::plain("Jobs; latencies are means", &JOBS, 3, &all);
    if left_out > 0 {
        text += &format!("{left_out} more rows a delivery are in --json.\n");
    }
    let jobs = report.outcomes.first().and_then(Outcome::storage).map_or(&[][..], |own| &own.jobs);
    if has_own_percentiles(jobs) {
        text += &table::plain("Percentiles that the jobs ask for", &PERCENTILES, 3, &percentiles);
    }
    text + &ended
}

/// Names the jobs that ended by an error, and those without an I/O, which no table has.
fn ended(report: &RunReport) -> String {
    let Some(own) = report.outcomes.first().and_then(Outcome::storage) else { return String::new() };
    let is_error = |reason: &str| ["rate_min", "max_latency", "latency_target_missed"].contains(&reason);
    let by_error = own.ends.iter().filter(|end| is_error(&end.reason));
    let mut lines: Vec<String> = by_error.map(|end| format!("{} ended by {}.", end.name, end.reason)).collect();
    let idle = own.jobs.iter().filter(|job| job.directions.is_empty() && job.sync.count == 0);
    lines.extend(idle.map(|job| format!("{} had no I/O in the measured span.", job.name)));
    lines.dedup();
    let more = lines.len().saturating_sub(ROWS_MAX);
    lines.truncate(ROWS_MAX);
    if more > 0 {
        lines.push(format!("{more} more jobs likewise."));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The table on the page.
pub(super) fn page(report: &RunReport) -> String {
    let all: Vec<Vec<String>> =
        report.summaries.iter().flat_map(|summary| rows(report, &summary.delivery)).map(|row| row.cells()).collect();
    if all.is_empty() {
        return String::new();
    }
    let header: Vec<(String, bool)> = JOBS.iter().enumerate().map(|(at, name)| ((*name).to_string(), at > 2)).collect();
    let body: String =
        all.iter().map(|cells| row(cells.iter().enumerate().map(|(at, cell)| (escape(cell), at > 2)))).collect();
    html_table(&header, &body)
}

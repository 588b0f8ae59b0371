//! Jobs one by one, as fio's users know them from its own output: directions with three latencies and their percentiles,
//! depths, batches, and classes of latency.

use super::detail::{DirectionFigures, JobFigures, PercentileRow};
use crate::outcome::{Latency, Outcome, Unit};
use crate::report::{RunReport, figure};
use std::fmt::Write;

/// Classes of depth, and of batches: the bounds that fio shows.
const DEPTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];
/// One of the three latencies of a percentile.
type Kind = fn(&PercentileRow) -> Option<u64>;

/// Percentiles in a line.
const IN_LINE: usize = 4;

/// The jobs of each delivery, of its first seed.
pub(crate) fn text(report: &RunReport) -> String {
    let firsts = report.summaries.iter().filter_map(|summary| report.first_outcome(&summary.delivery));
    firsts.map(of_delivery).collect()
}

fn of_delivery(outcome: &Outcome) -> String {
    let Some(storage) = outcome.storage() else { return String::new() };
    let mut text = format!("\n{}, seed {}\n", outcome.delivery, outcome.seed);
    for job in &storage.jobs {
        let threads = if job.threads > 1 { format!(", {} threads", job.threads) } else { String::new() };
        let _ = writeln!(text, "{}: group {}{threads}", job.name, job.group);
        job.directions.iter().for_each(|direction| text += &of_direction(direction));
        if job.sync.count > 0 {
            let _ = writeln!(text, "  sync: {} syncs\n    {}", job.sync.count, latency("lat", &job.sync));
        }
        text += &shares("I/O depths", &DEPTHS, &job.depths);
        text += &shares("submitted at once", &BATCHES, &job.submits);
        text += &shares("completed at once", &BATCHES, &job.completes);
        text += &classes(job);
    }
    text
}

fn of_direction(figures: &DirectionFigures) -> String {
    let DirectionFigures { direction, ios, iops, bandwidth, slat, clat, lat, percentiles, .. } = figures;
    let iops = figure::value(Unit::PerSecond, *iops);
    let bandwidth = figure::value(Unit::BytesPerSecond, *bandwidth);
    let mut text = format!("  {direction}: {ios} I/Os, IOPS {iops}, bandwidth {bandwidth}\n");
    for (name, latency_of) in [("slat", slat), ("clat", clat), ("lat", lat)] {
        let _ = writeln!(text, "    {}", latency(name, latency_of));
    }
    let kinds: [(&str, Kind); 3] =
        [("slat", |row| row.slat_ns), ("clat", |row| row.clat_ns), ("lat", |row| row.lat_ns)];
    for (name, of) in kinds {
        let time = |ns: u64| figure::value(Unit::Nanoseconds, ns as f64);
        let own: Vec<String> =
            percentiles.iter().filter_map(|row| Some(format!("p{} {}", row.percent, time(of(row)?)))).collect();
        for (at, line) in own.chunks(IN_LINE).enumerate() {
            let title = if at == 0 { format!("{name} percentiles") } else { String::new() };
            let _ = writeln!(text, "    {title:<16} {}", line.join(", "));
        }
    }
    text
}

fn latency(name: &str, latency: &Latency) -> String {
    let time = |ns: f64| figure::value(Unit::Nanoseconds, ns);
    let Latency { min_ns, max_ns, mean_ns, .. } = *latency;
    format!("{name:<4} least {}, mean {}, greatest {}", time(min_ns as f64), time(mean_ns), time(max_ns as f64))
}

/// The counts in per cent, those that are none left out.
fn shares(title: &str, names: &[&str], counts: &[u64]) -> String {
    let total: u64 = counts.iter().sum();
    let share = |count: u64| count as f64 * 100.0 / total.max(1) as f64;
    let of = |(name, &count): (&&str, &u64)| (count > 0).then(|| format!("{name}: {:.1} %", share(count)));
    let parts: Vec<String> = names.iter().zip(counts).filter_map(of).collect();
    if parts.is_empty() { String::new() } else { format!("  {title:<18} {}\n", parts.join(", ")) }
}

/// The share of the I/Os below each bound of completion latency.
fn classes(job: &JobFigures) -> String {
    let total: u64 = job.latency_classes.iter().map(|(_, count)| count).sum();
    let of = |(bound, count): &(Option<u64>, u64)| {
        let share = *count as f64 * 100.0 / total.max(1) as f64;
        let bound = bound.map_or("more".into(), |ns| format!("< {}", figure::value(Unit::Nanoseconds, ns as f64)));
        format!("{bound}: {share:.1} %")
    };
    let parts: Vec<String> = job.latency_classes.iter().map(of).collect();
    let line = |(at, line): (usize, &[String])| {
        format!("  {:<18} {}\n", if at == 0 { "completion latency" } else { "" }, line.join(", "))
    };
    parts.chunks(IN_LINE).enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_name_what_is_there_and_classes_their_bound() {
        assert_eq!(
            shares("I/O depths", &DEPTHS, &[1, 0, 3, 0, 0, 0, 0]),
            "  I/O depths         1: 25.0 %, 4: 75.0 %\n"
        );
        assert_eq!(shares("I/O depths", &DEPTHS, &[0; 7]), "");
        let job = JobFigures { latency_classes: vec![(Some(100_000), 3), (None, 1)], ..JobFigures::default() };
        let text = classes(&job);
        assert!(text.contains(": 75.0 %") && text.ends_with("more: 25.0 %\n"), "{text}");
    }
}

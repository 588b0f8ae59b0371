//! fio's lines for old scripts (`terse`, versions 2 to 5). Source: fio's HOWTO, "Terse output".

use crate::command_line::{self, CommandLine};
use crate::fio_banner::{Banner, banner};
use crate::fio_job::rest_of;
use crate::fio_json::{ALL_CLIENTS, Direction, FioJob, FioOutput};
use crate::text_options::add_options;

/// Lines of numbers. Each direction has a list of percentiles; what stands round it follows from the list's place.
///
/// They have no options: a command line before them, or a banner, tells those. Lines behind another command are another run.
pub(crate) fn parse(text: &str) -> Option<Vec<FioOutput>> {
    let mut runs: Vec<(Said, FioOutput)> = Vec::new();
    let mut said = Said::default();
    for line in command_line::lines(text) {
        if let Some(found) = CommandLine::of_line(line.trim()) {
            said = Said { command: Some(found), ..Said::default() };
        } else if let Some(found) = banner(line.trim()) {
            said.banners.push(found);
        }
        let Some((fields, name)) = fields(&line) else { continue };
        let Some(mut job) = job(&fields, name) else { continue };
        let is_new = said != Said::default();
        if runs.is_empty() || is_new {
            runs.push((std::mem::take(&mut said), FioOutput::default()));
        }
        let (said, output) = runs.last_mut()?;
        let of_name = said.banners.iter().find(|banner| banner.name == job.name);
        job.options = of_name.map(|banner| banner.options.clone()).unwrap_or_default();
        output.version = if name == 2 { fields[1].to_owned() } else { String::new() };
        output.jobs.push(job);
    }
    let runs = runs.into_iter().map(|(said, mut output)| {
        if output.jobs.len() > 1 {
            output.jobs.retain(|job| job.name != ALL_CLIENTS);
        }
        add_options(&mut output, said.command);
        output
    });
    Some(runs.collect()).filter(|runs: &Vec<FioOutput>| !runs.is_empty())
}

/// What stands before lines of numbers.
#[derive(PartialEq, Default)]
struct Said {
    command: Option<CommandLine>,
    banners: Vec<Banner>,
}

/// Marks round a line or a field that scripts and tables have put in quotes.
const QUOTES: [char; 3] = ['"', '\'', '`'];

/// The fields of a line and the place of the job's name. The line may stand in quotes, as may each field; scripts put commas
/// in place of the semicolons.
fn fields(line: &str) -> Option<(Vec<&str>, usize)> {
    let in_quotes = line.split_once(QUOTES).map(|(_, quoted)| quoted);
    [Some(line), in_quotes].into_iter().flatten().find_map(|line| {
        let between = if line.contains(';') { ';' } else { ',' };
        let of_quotes =
            |c: char| c.is_whitespace() || QUOTES.contains(&c) || matches!(c, ',' | '[' | ']' | '(' | ')' | '\\');
        let fields: Vec<&str> =
            line.trim_matches(of_quotes).split(between).map(|field| field.trim().trim_matches(QUOTES)).collect();
        let version = *fields.first()?;
        match version {
            "2" => Some((fields, 1)),
            "3" | "4" | "5" => Some((fields, 2)),
            _ => None,
        }
    })
}

fn job(fields: &[&str], name: usize) -> Option<FioJob> {
    let percentile = |field: &&str| -> Option<(f64, f64)> {
        let (percent, value) = field.split_once("%=")?;
        Some((percent.parse().ok()?, value.parse().ok()?))
    };
    let mut job = FioJob {
        name: (*fields.get(name)?).to_owned(),
        group: fields.get(name + 1)?.parse().ok()?,
        error: fields.get(name + 2)?.parse().ok()?,
        ..FioJob::default()
    };
    let (mut at, mut found) = (name + 3, 0);
    while found < job.directions.len() {
        let first = (at..fields.len()).find(|&at| percentile(&fields[at]).is_some());
        let Some(first) = first else { break };
        let behind = (first..fields.len()).find(|&at| percentile(&fields[at]).is_none())?;
        // KiB, KiB/s, I/Os a second, ms; then min, max, mean, deviation of slat and clat, and behind the list of lat: in us.
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok().filter(|number| (0.0..1e18).contains(number));
        let start = first.checked_sub(12)?;
        let mean_ns =
            |at: usize| Some(number(at)? * 1000.0).filter(|_| number(start + 2).is_some_and(|iops| iops > 0.0));
        let (iops, runtime_ms) = (number(start + 2)?, number(start + 3)?);
        let percentiles = fields[first..behind].iter().filter_map(percentile);
        job.directions[found] = Direction {
            ios: (iops * runtime_ms / 1000.0).round() as u64,
            iops,
            bandwidth_bps: number(start + 1)? * 1024.0,
            runtime_ms,
            slat_ns: mean_ns(start + 6),
            clat_ns: mean_ns(start + 10)
                .filter(|clat| *clat > 0.0)
                .or(rest_of(mean_ns(behind + 2), mean_ns(start + 6))),
            lat_ns: mean_ns(behind + 2),
            percentiles_ns: percentiles
                .filter(|(percent, us)| *percent > 0.0 && *us > 0.0)
                .map(|(p, us)| (p, us * 1e3))
                .collect(),
        };
        (at, found) = (behind, found + 1);
    }
    // Behind the last direction's bandwidth, whose share of all is the first per cent: user, then system.
    let mut percents =
        fields.get(at..)?.iter().filter_map(|field| field.strip_suffix('%')?.parse::<f64>().ok()).skip(1);
    (job.user_percent, job.system_percent) = (percents.next(), percents.next());
    // Without them the line is cut off, perhaps within a number.
    (found >= 2 && job.user_percent.is_some() && job.system_percent.is_some()).then_some(job)
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::fio_json::FioOutput;

    /// A terse line of version 3: 5 fields, then reads and writes.
    pub(crate) fn line(version: &str) -> String {
        let percentiles = "1.000000%=8;99.000000%=90;0%=0;";
        let direction = |iops: u32| {
            format!("400;4000;{iops};1000;1;9;2.5;1.0;2;99;80.5;3.0;{percentiles}9;99;83.0;4.0;1;2;57.5%;1.0;0.0")
        };
        let trims = if version == "3" { String::new() } else { format!(";{}", direction(0)) };
        let start = if version == "2" { "2;a".to_owned() } else { format!("{version};fio-3.33;a") };
        format!("{start};0;0;{};{}{trims};5.5%;10.25%;1;0;29;0.1%;0.1%", direction(1000), direction(10))
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
            assert_eq!(
                (job.user_percent, job.system_percent, trim.clat_ns),
                (Some(5.5), Some(10.25), None),
                "{version}"
            );
        }
    }

    #[test]
    fn what_stands_before_the_numbers_has_their_options() {
        let command = |rw: &str| format!("$ fio --name=a --rw={rw} --bs=4k \\\n> --filename=/dev/nvme0n1 --minimal");
        let runs = |text: &str| FioOutput::parse_all(text.as_bytes()).unwrap();
        let found = runs(&format!("{}\n{}\n{}\n{}\n", command("read"), line("3"), command("randread"), line("3")));
        let rw = |output: &FioOutput| output.global_options.iter().find(|(name, _)| name == "rw").unwrap().1.clone();
        assert_eq!(found.iter().map(rw).collect::<Vec<_>>(), ["read", "randread"]);
        assert_eq!(found[1].global_options.len(), 3, "{:?}", found[1].global_options);
        let banner =
            "a: (g=0): rw=read, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=4";
        let found = runs(&format!("{banner}\nfio-3.33\nStarting 1 process\n{}\n", line("3")));
        assert_eq!((found.len(), found[0].jobs[0].options.len()), (1, 4), "{found:?}");
        assert_eq!(runs(&format!("{}\n{}\n", line("3"), line("3")))[0].jobs.len(), 2);
    }

    #[test]
    fn the_sum_of_all_clients_is_no_job() {
        let all = line("3").replace(";a;", ";All clients;");
        let names = |text: &str| -> Vec<String> {
            let found = FioOutput::parse(text.as_bytes()).unwrap();
            found.jobs.into_iter().map(|job| job.name).collect()
        };
        let of_b = line("3").replace(";a;", ";b;");
        // A line of the disk stands between the jobs and the sum.
        assert_eq!(names(&format!("{}\n{of_b}\n;nvme0n1;932;853;0;0;68;59;127;1.68%\n{all}\n", line("3"))), ["a", "b"]);
        assert_eq!(names(&all), ["All clients"]);
    }

    #[test]
    fn quotes_and_commas_change_nothing() {
        let plain = FioOutput::parse(line("3").as_bytes()).unwrap();
        let of_fields: Vec<String> = line("3").split(';').map(|field| format!("\"{field}\"")).collect();
        for text in [
            format!("\"{}\"", line("3")),
            format!("REPORT = '{}',", line("3")),
            format!("  [\"{}\",", line("3")),
            of_fields.join(";"),
            of_fields.join(","),
            line("3").replace(';', ","),
        ] {
            let found = FioOutput::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(found.jobs, plain.jobs, "{text}");
        }
        assert!(FioOutput::parse(b"\"3;fio-3.33;a;0;0;1\"\n3,4,5\n").is_err());
    }
}

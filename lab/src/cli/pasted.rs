//! A command line of fio that is given to a command which reads job files.

use crate::fio::kind::ValueKind;
use crate::fio::options;
use std::fmt::Write as _;

/// The commands that read a job file.
const READERS: [&str; 4] = ["run", "lint", "irqs", "advise"];

/// What to do instead of the command line `line`, the command first; none if no option of fio's stands in it.
pub(super) fn advice(line: &[String]) -> Option<String> {
    let (command, words) = line.split_first().filter(|(command, _)| READERS.contains(&command.as_str()))?;
    let given = options_of(words);
    let (first, _) = given.first()?;
    let mut job = String::new();
    let has_section = given.iter().any(|(name, _)| *name == "name");
    if has_section && *first != "name" {
        job += "[global]\n";
    }
    for (name, value) in &given {
        match (*name, value) {
            ("name", value) => writeln!(job, "[{}]", value.unwrap_or("job")),
            (name, Some(value)) => writeln!(job, "{name}={value}"),
            (name, None) => writeln!(job, "{name}"),
        }
        .expect("a String takes all");
    }
    let (what, next) = match has_section {
        true => ("The same as a job file", format!("\nSaved as job.fio: campanile {command} job.fio")),
        false => ("The same in a section of the job file", String::new()),
    };
    Some(format!("--{first}: is an option of fio, and {command} reads job files. {what}:\n\n{job}{next}"))
}

/// The options of jobs among words of fio's command line, each with its value.
fn options_of(words: &[String]) -> Vec<(&str, Option<&str>)> {
    let mut found = Vec::new();
    let mut rest = words.iter().map(String::as_str).peekable();
    while let Some(word) = rest.next() {
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let Some(known) = options::find(name) else { continue };
        // fio takes the next word as the value, unless the option has a bare form.
        let is_apart = value.is_none() && known.kind != ValueKind::Set;
        let apart = if is_apart { rest.next_if(|next| !next.starts_with('-')) } else { None };
        found.push((name, value.or(apart)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        advice(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_line_of_fio_becomes_a_job_file() {
        let said = of("run fio --direct=1 --name=a --rw randread -group_reporting --eta=never --bs=4k").unwrap();
        let job = "[global]\ndirect=1\n[a]\nrw=randread\ngroup_reporting\nbs=4k\n";
        let expected = format!(
            "--direct: is an option of fio, and run reads job files. The same as a job file:\n\n{job}\n\
             Saved as job.fio: campanile run job.fio"
        );
        assert_eq!(said, expected);
        let said = of("lint j.fio --iodepth=8").unwrap();
        assert!(said.ends_with("The same in a section of the job file:\n\niodepth=8\n"), "{said}");
        for other in ["run j.fio --sets a=1", "sweep --name=a", "run", "check --rw=read"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

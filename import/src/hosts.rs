//! A text that a program collected from several hosts: each line with its host before it (`pdsh`, `clush`), or each host's
//! lines below a heading of their own (`dshbak`, `clush -b`, `ansible`).
//!
//! Sources: `dshbak(1)`; `clush(1)`, "Output"; Ansible, "minimal" callback.

use crate::encoding::plain;
use crate::fio_json::FioOutput;

/// Most hosts that are told apart.
const HOSTS_MAX: usize = 1000;

/// The text of each host, in the order in which they first come. None where all is of one; whether words before lines are
/// hosts, the caller may know.
pub fn by_host(text: &[u8]) -> Option<Vec<(String, String)>> {
    let text = plain(text);
    let text = String::from_utf8_lossy(&text);
    of_headings(&text).or_else(|| of_lines(&text))
}

/// The runs of fio's in the texts of several hosts, which ran the same jobs; each job has its host. None where it is not so:
/// headings may also tell one host's runs apart.
pub(crate) fn runs(text: &[u8], read: impl Fn(&[u8]) -> Option<Vec<FioOutput>>) -> Option<Vec<FioOutput>> {
    let (mut hosts, mut silent) = (Vec::new(), Vec::new());
    for (host, text) in by_host(text)? {
        match read(text.as_bytes()) {
            Some(runs) => hosts.push((host, runs)),
            None => silent.push(host),
        }
    }
    let jobs = |runs: &[FioOutput]| -> Vec<Vec<String>> {
        runs.iter().map(|run| run.jobs.iter().map(|job| job.name.clone()).collect()).collect()
    };
    let [(_, first), others @ ..] = hosts.as_slice() else { return None };
    let are_alike = !others.is_empty() && others.iter().all(|(_, runs)| jobs(runs) == jobs(first));
    are_alike.then(|| joined(hosts, &silent))
}

/// Each run with the jobs of all hosts.
fn joined(hosts: Vec<(String, Vec<FioOutput>)>, silent: &[String]) -> Vec<FioOutput> {
    let mut joined: Vec<FioOutput> = Vec::new();
    for (host, mut runs) in hosts {
        for run in &mut runs {
            run.jobs.iter_mut().for_each(|job| job.host.clone_from(&host));
            run.disks.iter_mut().for_each(|disk| disk.host.clone_from(&host));
        }
        if joined.is_empty() {
            joined = runs;
            continue;
        }
        for (all, run) in joined.iter_mut().zip(runs) {
            all.jobs.extend(run.jobs);
            all.disks.extend(run.disks);
        }
    }
    if let Some(run) = joined.last_mut().filter(|_| !silent.is_empty()) {
        run.notes.push(format!("no output of fio's is in the lines of {}", silent.join(", ")));
    }
    joined
}

/// The texts of hosts under way.
#[derive(Default)]
struct Hosts(Vec<(String, String)>);

impl Hosts {
    /// Adds a line. False if there are too many hosts.
    fn add(&mut self, host: &str, line: &str) -> bool {
        let at = self.0.iter().position(|(name, _)| name == host).unwrap_or_else(|| {
            self.0.push((host.to_owned(), String::new()));
            self.0.len() - 1
        });
        self.0[at].1 += line;
        self.0[at].1.push('\n');
        self.0.len() <= HOSTS_MAX
    }

    fn several(self) -> Option<Vec<(String, String)>> {
        (self.0.len() > 1).then_some(self.0)
    }
}

/// `node1: text`: all lines but those of the program itself.
fn of_lines(text: &str) -> Option<Vec<(String, String)>> {
    let mut hosts = Hosts::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (host, rest) = line.split_once(':')?;
        if ["pdsh@", "clush"].iter().any(|program| host.starts_with(program)) {
            continue;
        }
        let line = if rest.is_empty() { "" } else { rest.strip_prefix(' ')? };
        if !is_host(host) || !hosts.add(host, line) {
            return None;
        }
    }
    hosts.several()
}

/// A line of dashes, the host, and a line of dashes; or `node1 | CHANGED | rc=0 >>`.
fn of_headings(text: &str) -> Option<Vec<(String, String)>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule =
        |line: Option<&&str>| line.is_some_and(|line| line.len() >= 5 && line.bytes().all(|byte| byte == b'-'));
    let (mut hosts, mut host, mut at) = (Hosts::default(), None, 0);
    while let Some(line) = lines.get(at) {
        let is_heading = is_rule(Some(line)) && is_rule(lines.get(at + 2));
        let framed = lines.get(at + 1).filter(|_| is_heading).and_then(|name| name.split(' ').next());
        let status = line.ends_with(">>").then(|| line.split_once(" | ")).flatten().map(|(name, _)| name);
        let found = framed.or(status).filter(|name| names_hosts(name));
        match (found, host) {
            (Some(_), _) => host = found,
            (None, Some(host)) if !hosts.add(host, line) => return None,
            _ => {}
        }
        at += if framed.is_some() && found.is_some() { 3 } else { 1 };
    }
    hosts.several()
}

/// Whether a word can be a host's name or address (RFC 1123, 2.1). The number of an interrupt is none.
fn is_host(word: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    word.bytes().all(is_sign) && word.bytes().any(|byte| !byte.is_ascii_digit())
}

/// Whether a word can be a list of names, with ranges in brackets: hosts whose lines are the same have one heading.
fn names_hosts(word: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[],".contains(&byte);
    !word.is_empty() && word.bytes().all(is_sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fio(iops: u32) -> String {
        format!(
            "{{\n\"fio version\": \"fio-3.33\",\n\"jobs\": [{{\n\"jobname\": \"a\", \"read\": {{\"iops\": {iops}, \"total_ios\": 9}}\n}}]\n}}\n"
        )
    }

    fn of(host: &str, text: &str) -> Vec<String> {
        text.lines().map(|line| format!("{host}: {line}")).collect()
    }

    /// The rates by host.
    fn rates(text: &str) -> Vec<(String, f64)> {
        let run = FioOutput::parse(text.as_bytes()).unwrap();
        run.jobs.iter().map(|job| (job.host.clone(), job.directions[0].iops)).collect()
    }

    #[test]
    fn jobs_of_several_hosts_in_one_text_are_told_apart() {
        let both = [("node1".to_owned(), 5.0), ("node2".to_owned(), 7.0)];
        let [first, second] = [of("node1", &fio(5)), of("node2", &fio(7))];
        assert_eq!(rates(&[first.join("\n"), second.join("\n")].join("\n")), both);
        // As the lines come.
        let mixed: Vec<String> = first.iter().zip(&second).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
        assert_eq!(rates(&(mixed.join("\n") + "\npdsh@head: node3: ssh exited with exit code 255\n")), both);
        let rule = "-".repeat(15);
        let headings = format!("{rule}\nnode1\n{rule}\n{}{rule}\nnode2\n{rule}\n{}", fio(5), fio(7));
        assert_eq!(rates(&headings), both);
        let ansible = format!("node1 | CHANGED | rc=0 >>\n{}node2 | CHANGED | rc=0 >>\n{}", fio(5), fio(7));
        assert_eq!(rates(&ansible), both);
        let failed = format!("{}\nnode3: bash: fio: command not found\nnode3: exit 127\n", mixed.join("\n"));
        assert_eq!(rates(&failed), both);
        assert!(FioOutput::parse(failed.as_bytes()).unwrap().notes.iter().any(|note| note.ends_with("lines of node3")));
    }

    #[test]
    fn what_is_of_one_host_stays_whole() {
        let one = of("node1", &fio(5)).join("\n");
        let interrupts = "128: 5 6 nvme0q1\n129: 7 8 nvme0q2\n128: 9 9 nvme0q1\n129: 9 9 nvme0q2\n";
        for text in [&one, &fio(5), interrupts, "", ":\n:\n", "a:b\nc:d\n"] {
            assert_eq!(by_host(text.as_bytes()), None, "{text}");
        }
        // Runs of other jobs below headings are runs.
        let rule = "-".repeat(15);
        let other = fio(7).replace("\"a\"", "\"b\"");
        let runs = format!("{rule}\nread\n{rule}\n{}{rule}\nwrite\n{rule}\n{other}", fio(5));
        assert_eq!(FioOutput::parse_all(runs.as_bytes()).unwrap().len(), 2);
    }
}

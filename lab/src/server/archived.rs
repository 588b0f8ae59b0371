//! The measurements of an archive: of `scripts/measure-server`, or of somebody's own.

use super::beside::{self, Counter, File};
use super::facts;
use super::gather::{Parts, Server};
use crate::report::figure::counted;
use import::archive::Contents;
use import::fio_json::FioOutput;
use import::kind::Kind;
use import::lscpu;
use std::collections::{BTreeMap, BTreeSet};

impl Server {
    /// The server of an archive of `scripts/measure-server`, whole or damaged.
    pub fn of_archive(contents: &Contents) -> Self {
        Self::default().with_archive(contents)
    }

    /// Adds what an archive holds; see [`Self::of_archive`].
    #[must_use]
    pub fn with_archive(self, contents: &Contents) -> Self {
        let mut server = self;
        server.notes.extend(contents.notes.iter().cloned());
        let mut points: BTreeMap<&str, BTreeMap<&str, &[u8]>> = BTreeMap::new();
        for bytes in contents.files.values() {
            server.links.read(bytes);
        }
        server.links.extend(&contents.links);
        let root = server.root(contents.files.keys());
        for (path, bytes) in &contents.files {
            let Some(path) = path.strip_prefix(root) else { continue };
            if let Some(path) = path.strip_prefix("static/") {
                server.about.insert(path.to_owned(), bytes.clone());
            } else if let Some((name, file)) = path.strip_prefix("points/").and_then(|path| path.split_once('/')) {
                points.entry(name).or_default().insert(file, bytes);
            }
        }
        if points.is_empty() {
            server.add_outputs(contents);
        }
        let cpus = facts::cpus(&facts::facts(&server.about));
        let links = server.links.clone();
        for (name, files) in points {
            let pair = |file: &str| -> Option<[&[u8]; 2]> {
                Some([*files.get(format!("before/{file}").as_str())?, *files.get(format!("after/{file}").as_str())?])
            };
            let lone = COUNTERS.iter().filter_map(|file| lone_reading(file, &files));
            server.notes.extend(lone.map(|note| format!("{name}: {note}")));
            let Some(fio) = files.get("fio.json") else {
                server.notes.push(format!("{name}: there is no fio.json"));
                continue;
            };
            if let Some(status) = failed(&files) {
                server.notes.push(format!(
                    "{name}: fio ended with status {status}, and its point is left out; valid: scripts/measure-server once more, \
                     with the same --work, which repeats this point"
                ));
                continue;
            }
            let parts = Parts {
                fio,
                job: files.get("job.fio").copied(),
                interrupts: pair("interrupts"),
                stat: pair("stat"),
                uptime: pair("uptime"),
                // scripts/measure-server reads twice while the job runs.
                is_enclosed: false,
                links: Some(&links),
                cpus,
            };
            server.add(name, &parts);
        }
        server
    }

    /// The folder of the server that is meant: of several, the one with the host's name, or the first. What is not below it is
    /// noted.
    fn root<'a>(&mut self, paths: impl Iterator<Item = &'a String> + Clone) -> &'a str {
        self.one_of(&paths.filter_map(|path| root_of(path)).collect())
    }

    /// Of the folders of several servers the one that is meant, see [`Self::root`]; empty if there is none.
    fn one_of<'a>(&mut self, roots: &BTreeSet<&'a str>) -> &'a str {
        let is_meant = |root: &&&str| self.host.as_deref().is_some_and(|host| root.split('/').any(|part| part == host));
        let named = roots.iter().find(is_meant);
        self.has_host |= named.is_some();
        let root = named.or(roots.first()).copied().unwrap_or_default();
        if roots.len() > 1 {
            let named: Vec<&str> = roots.iter().map(|root| root.trim_end_matches('/')).take(NAMED_MAX).collect();
            self.notes.push(format!(
                "the archive holds {} servers ({}), and {:?} is taken; valid: --host with the name of one's folder",
                roots.len(),
                named.join(", "),
                root.trim_end_matches('/')
            ));
        }
        root
    }

    /// Adds what looks like fio's outputs in files of somebody's own, each with the readings around it.
    fn add_outputs(&mut self, contents: &Contents) {
        let first = self.notes.len();
        let mut outputs: Vec<File<'_>> = Vec::new();
        let mut others: Vec<File<'_>> = Vec::new();
        let servers = own_servers(contents);
        let meant = self.one_of(&servers);
        let named = self.host.clone().filter(|host| contents.files.keys().any(|path| is_within(path, host)));
        self.has_host |= named.is_some();
        let is_of_other = |path: &str| {
            servers.iter().any(|other| *other != meant && path.starts_with(other))
                || named.as_deref().is_some_and(|host| !is_within(path, host))
        };
        for (path, bytes) in contents.files.iter().filter(|(path, _)| !is_of_other(path)) {
            let name = path.rsplit('/').next().unwrap_or(path);
            if name.starts_with("lscpu") {
                self.about.insert("lscpu".to_owned(), bytes.clone());
            } else if is_output(bytes) {
                match outputs.iter().find(|(_, other)| other == bytes) {
                    Some((same, _)) => {
                        self.notes.push(format!("{path} has the content of {same}, and is left out"));
                    }
                    None => outputs.push((path, bytes)),
                }
            } else if bytes.len() <= OTHER_BYTES_MAX || looks_like_interrupts(bytes) {
                others.push((path, bytes));
            }
        }
        self.notes.insert(first, of_somebodys_own(!outputs.is_empty(), contents.files.len()));
        if others.len() > OTHERS_MAX {
            self.notes.push(format!(
                "there are {} files beside the outputs; the first {OTHERS_MAX} are looked at for readings",
                others.len()
            ));
            others.truncate(OTHERS_MAX);
        }
        let counters: Vec<(Counter, File<'_>)> =
            others.iter().filter_map(|&(path, bytes)| Some((Counter::of(path, bytes)?, (path, bytes)))).collect();
        let mut used: Vec<&str> = Vec::new();
        let pairs = beside::pairs(&counters);
        let paths: Vec<&str> = outputs.iter().map(|(path, _)| *path).collect();
        self.notes.extend(perhaps_of_several(&outputs));
        let cpus = facts::cpus(&facts::facts(&self.about));
        let links = self.links.clone();
        for (path, fio) in outputs {
            let around = |counter| beside::around(&pairs, counter, path, &paths);
            let [interrupts, stat, uptime] = [Counter::Interrupts, Counter::Stat, Counter::Uptime].map(around);
            for pair in [interrupts, stat, uptime].into_iter().flatten() {
                let [before, after] = pair.files.map(|(path, _)| path);
                self.notes.push(if before == after {
                    format!(
                        "{before} holds several readings: its first and last are taken as those before and after {path}"
                    )
                } else {
                    format!("{before} and {after} are taken as readings before and after {path}")
                });
                used.extend([before, after]);
            }
            let [interrupts, stat, uptime] = [interrupts, stat, uptime].map(|pair| pair.map(|pair| pair.contents()));
            let name = path.rsplit_once('.').map_or(path, |(name, _)| name);
            let links = Some(&links);
            self.add(name, &Parts { fio, job: None, interrupts, stat, uptime, is_enclosed: true, links, cpus });
        }
        let left = others.iter().filter(|(path, _)| !used.contains(path));
        let missing = |path| beside::other_of(path).filter(|other| !contents.files.contains_key(other));
        self.notes.extend(left.filter_map(|(path, bytes)| not_used(path, bytes, missing(path))));
    }
}

/// What is said of files that scripts/measure-server did not make.
fn of_somebodys_own(has_output: bool, files: usize) -> String {
    match has_output {
        true => {
            "there is no folder `points`: scripts/measure-server did not make this; its fio outputs are read".into()
        }
        false => format!("it holds no output of fio's ({})", counted(files, "file")),
    }
}

/// The folders of servers in files of somebody's own, if there are several: each has an lscpu, of another machine than the others'.
fn own_servers(contents: &Contents) -> BTreeSet<&str> {
    let mut found: BTreeMap<_, &str> = BTreeMap::new();
    for (path, bytes) in &contents.files {
        let (folder, name) =
            path.rsplit_once('/').map_or(("", path.as_str()), |_| path.split_at(path.rfind('/').unwrap_or(0) + 1));
        if name.starts_with("lscpu") && !folder.is_empty() {
            let machine = (lscpu::cpus(bytes), lscpu::sockets(bytes), lscpu::field(bytes, &["Model name"]));
            found.entry(machine).or_insert(folder);
        }
    }
    let folders: BTreeSet<&str> = found.into_values().collect();
    if folders.len() > 1 { folders } else { BTreeSet::new() }
}

/// Whether a file lies in a folder of that name.
fn is_within(path: &str, folder: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(folders, _)| folders.split('/').any(|name| name == folder))
}

/// That outputs of one file name in several folders are of the same jobs: runs of one server, or of several.
fn perhaps_of_several(outputs: &[File<'_>]) -> Option<String> {
    let split = || outputs.iter().map(|(path, bytes)| (path.rsplit_once('/').unwrap_or((".", path)), bytes));
    let mut folders: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for ((folder, name), bytes) in split() {
        let is_only_one = split().filter(|((_, other), _)| *other == name).count() == 1;
        let run = if is_only_one { None } else { FioOutput::parse(bytes).ok() };
        let Some(run) = run else { continue };
        let jobs: Vec<_> = run.jobs.iter().map(|job| (&job.name, &job.options)).collect();
        folders.entry((name, format!("{:?} {jobs:?}", run.global_options))).or_default().push(folder);
    }
    let folders = folders.into_values().find(|folders| folders.len() > 1)?;
    Some(format!(
        "the jobs in {} are the same, and taken as runs of one server; where they are several, --host takes the name of one's folder",
        folders.into_iter().take(NAMED_MAX).collect::<Vec<_>>().join(", ")
    ))
}

/// Whether a file is what fio printed: by its own signs, or as some other system wrote it.
fn is_output(bytes: &[u8]) -> bool {
    let has = |sign: &&str| bytes.windows(sign.len()).take(SIGN_WITHIN).any(|window| window == sign.as_bytes());
    // `fio version` alone may stand between other quotes; a wide character's other bytes are zero.
    let is_likely = || {
        ["fio version", "\"jobname\"", ";fio-", "f\0i\0o\0", "\0f\0i\0o"].iter().any(has)
            || bytes.starts_with(b"f\0\0\0")
    };
    ["\"fio version\"", "): err="].iter().any(has)
        || bytes.len() <= OTHER_BYTES_MAX && is_likely() && Kind::Fio.is(bytes)
}

/// Whether a file begins as `/proc/interrupts` does, which has some megabytes on a large machine.
fn looks_like_interrupts(bytes: &[u8]) -> bool {
    let begin = &bytes[..bytes.len().min(SIGN_WITHIN)];
    ["CPU0", "C\0P\0U\0", "nvme"].iter().any(|sign| begin.windows(sign.len()).any(|window| window == sign.as_bytes()))
}

/// fio's status where it ended with an error.
fn failed<'a>(files: &BTreeMap<&str, &'a [u8]>) -> Option<&'a str> {
    let status = std::str::from_utf8(files.get("status")?).ok()?.trim();
    (status != "0" && status.parse::<u8>().is_ok()).then_some(status)
}

/// A note on a counter of which there is one reading alone.
fn lone_reading(file: &str, files: &BTreeMap<&str, &[u8]>) -> Option<String> {
    let [before, after] = ["before", "after"].map(|folder| format!("{folder}/{file}"));
    let (there, missing) = match [&before, &after].map(|path| files.contains_key(path.as_str())) {
        [true, false] => (before, after),
        [false, true] => (after, before),
        [true, true] | [false, false] => return None,
    };
    Some(format!("there is no {missing}, and {there} alone tells nothing of the run; valid: both"))
}

/// A note on a file that tells of a server, but not of which run: of two readings, perhaps, the `missing` one was lost.
fn not_used(path: &str, bytes: &[u8], missing: Option<String>) -> Option<String> {
    // A number alone may be anything.
    let kind = Kind::of(bytes).filter(|kind| *kind != Kind::Lscpu || bytes.len() > NUMBER_BYTES_MAX)?;
    let valid = kind.usage().map(|usage| format!("; valid: {usage} beside --fio-json FILE")).unwrap_or_default();
    let is_reading = matches!(kind, Kind::Interrupts | Kind::Stat);
    let why = match missing.filter(|_| is_reading) {
        Some(missing) => format!("there is no {missing} beside it"),
        None => "nothing says which run it belongs to".to_owned(),
    };
    Some(format!("{path} is {kind}, and not used: {why}{valid}"))
}

/// The counters that `scripts/measure-server` reads twice, and that are used.
const COUNTERS: [&str; 3] = ["interrupts", "stat", "uptime"];

/// Most servers of an archive that a note names.
const NAMED_MAX: usize = 8;

/// Files beside the outputs that are looked at: most of them, and their most bytes.
const OTHERS_MAX: usize = 2_000;
/// See [`OTHERS_MAX`].
const OTHER_BYTES_MAX: usize = 1 << 20;
/// A text of so many bytes may be a number alone.
const NUMBER_BYTES_MAX: usize = 16;

/// What fio's outputs begin with stands within so many bytes.
const SIGN_WITHIN: usize = 64 << 10;

/// The folder of a path that holds `points` and `static`, with a slash behind it; empty if they are the archive's own.
fn root_of(path: &str) -> Option<&str> {
    let starts = path.match_indices('/').map(|(at, _)| at + 1);
    let mut starts = std::iter::once(0).chain(starts);
    starts.find(|&at| path[at..].starts_with("points/") || path[at..].starts_with("static/")).map(|at| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::super::gather::tests::FIO;
    use super::*;

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
        let failed = of(&[("points/x/fio.json", FIO), ("points/x/status", "1\n"), ("points/y/fio.json", FIO)]);
        assert_eq!((failed.measurements.len(), failed.notes.len()), (1, 1), "{:?}", failed.notes);
        assert!(failed.notes[0].starts_with("x: fio ended with status 1"), "{:?}", failed.notes);
        let own = of(&[("run1/out.json", FIO), ("lscpu.txt", lscpu), ("notes.txt", "fio is fine")]);
        assert_eq!((own.measurements.len(), own.measurements[0].name.as_str()), (1, "run1-out"), "{:?}", own.notes);
        assert_eq!((own.about.len(), own.notes.len()), (1, 1), "{:?}", own.notes);
        let interrupts = "      CPU0\n 34: 7 PCI-MSI 1-edge nvme0q1\n";
        let beside = of(&[("out.json", FIO), ("before.txt", interrupts), ("x.fio", "[a]\nrw=read\n"), ("n", "8\n")]);
        assert_eq!(beside.measurements.len(), 1, "{:?}", beside.notes);
        let notes = beside.notes.join("\n");
        assert!(
            notes.contains("before.txt is /proc/interrupts, and not used") && notes.contains("x.fio is a job file"),
            "{notes}"
        );
        assert!(notes.contains("valid: --interrupts BEFORE AFTER beside --fio-json FILE"), "{notes}");
        assert_eq!(beside.notes.len(), 3, "{notes}");
        let later = interrupts.replace("34: 7", "34: 107");
        let paired = of(&[("out.json", FIO), ("interrupts_before.txt", interrupts), ("interrupts_after.txt", &later)]);
        let notes = paired.notes.join("\n");
        assert!(
            notes.contains("interrupts_before.txt and interrupts_after.txt are taken as readings before"),
            "{notes}"
        );
        assert!(paired.measurements[0].interrupts.is_some() && !notes.contains("and not used"), "{notes}");
        let half = of(&[("points/x/fio.json", FIO), ("points/x/before/interrupts", interrupts)]);
        assert!(
            half.notes[0].starts_with("x: there is no after/interrupts, and before/interrupts alone"),
            "{:?}",
            half.notes
        );
        let half = of(&[("out.json", FIO), ("run/Interrupts-after.txt", interrupts)]);
        let missing =
            "run/Interrupts-after.txt is /proc/interrupts, and not used: there is no run/Interrupts-before.txt";
        assert!(half.notes.iter().any(|note| note.starts_with(missing)), "{:?}", half.notes);
        let two = of(&[("a/points/x/fio.json", FIO), ("b/points/y/fio.json", FIO)]);
        assert!(two.measurements.len() == 1 && two.notes[0].contains("2 servers (a, b), and \"a\""), "{:?}", two.notes);
        let lscpu = |cpus: u32| format!("CPU(s): {cpus}\nSocket(s): 1\n");
        let (small, large) = (lscpu(4), lscpu(64));
        let of_two = [("a/fio.json", FIO), ("a/lscpu", &small), ("b/fio.json", FIO), ("b/lscpu.txt", &large)];
        let two = of(&of_two);
        assert!(two.measurements.len() == 1 && two.notes[1].contains("2 servers (a, b), and \"a\""), "{:?}", two.notes);
        assert_eq!(two.about["lscpu"], small.as_bytes());
        let same = of(&[("a/fio.json", FIO), ("a/lscpu", &small), ("b/lscpu", &small)]);
        assert!(!same.notes.iter().any(|note| note.contains("servers")), "{:?}", same.notes);
        let both = format!("{interrupts}{later}");
        let one_file = of(&[("out.json", FIO), ("irqs.log", &both)]);
        assert!(one_file.measurements[0].interrupts.is_some(), "{:?}", one_file.notes);
        let note = "irqs.log holds several readings: its first and last are taken as those before and after out.json";
        assert!(one_file.notes.iter().any(|found| found == note), "{:?}", one_file.notes);
        let twice = of(&[("a.json", FIO), ("copy of a.json", FIO)]);
        assert!(
            twice.measurements.len() == 1 && twice.notes[1].contains("has the content of a.json"),
            "{:?}",
            twice.notes
        );
        assert!(of(&[]).notes[0].contains("holds no output of fio's (0 files)"));
    }

    /// Two servers' files, none of which tells the servers apart.
    #[test]
    fn a_folder_can_be_a_server() {
        let of = |host| {
            let rates = [("alpha", "1000"), ("beta", "2000")];
            let files =
                rates.map(|(folder, iops)| (format!("{folder}/fio.json"), FIO.replace("1000", iops).into_bytes()));
            let mut contents = Contents::default();
            contents.files.extend(files);
            contents.files.insert("other.json".to_owned(), FIO.replace("a[b]", "c").into_bytes());
            let server = Server::on(host).with_archive(&contents);
            let rates: Vec<f64> = server.measurements.iter().map(|one| one.fio.iops()).collect();
            (rates, server.has_host(), server.notes.join("\n"))
        };
        let (both, _, notes) = of(None);
        assert_eq!(both, [1000.0, 2000.0, 1000.0], "{notes}");
        assert!(notes.contains("the jobs in alpha, beta are the same, and taken as runs of one server"), "{notes}");
        assert_eq!((of(Some("beta")).0, of(Some("beta")).1), (vec![2000.0], true));
        assert!(!of(Some("gamma")).1);
    }
}

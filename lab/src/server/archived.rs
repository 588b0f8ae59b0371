//! The measurements of an archive: of `scripts/measure-server`, or of somebody's own.

use super::facts;
use super::gather::{Parts, Server};
use import::archive::Contents;
use import::kind::Kind;
use std::collections::BTreeMap;

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
        let root = root(contents.files.keys());
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
        for (name, files) in points {
            let pair = |file: &str| -> Option<[&[u8]; 2]> {
                Some([*files.get(format!("before/{file}").as_str())?, *files.get(format!("after/{file}").as_str())?])
            };
            let Some(fio) = files.get("fio.json") else {
                server.notes.push(format!("{name}: there is no fio.json"));
                continue;
            };
            let parts = Parts {
                fio,
                job: files.get("job.fio").copied(),
                interrupts: pair("interrupts"),
                stat: pair("stat"),
                uptime: pair("uptime"),
                cpus,
            };
            server.add(name, &parts);
        }
        server
    }

    /// Adds what looks like fio's outputs in files of somebody's own.
    fn add_outputs(&mut self, contents: &Contents) {
        self.notes.push(
            "there is no folder `points`: scripts/measure-server did not make this; its fio outputs are read".into(),
        );
        let mut looked_at = 0;
        for (path, bytes) in &contents.files {
            let is_output = ["\"fio version\"", "): err="]
                .iter()
                .any(|sign| bytes.windows(sign.len()).take(SIGN_WITHIN).any(|window| window == sign.as_bytes()));
            if path.rsplit('/').next().is_some_and(|name| name.starts_with("lscpu")) {
                self.about.insert("lscpu".to_owned(), bytes.clone());
            } else if is_output {
                let cpus = facts::cpus(&facts::facts(&self.about));
                let name = path.rsplit_once('.').map_or(path.as_str(), |(name, _)| name);
                self.add(name, &Parts { fio: bytes, cpus, ..Parts::default() });
            } else if bytes.len() <= OTHER_BYTES_MAX && looked_at < OTHERS_MAX {
                looked_at += 1;
                self.notes.extend(not_used(path, bytes));
            }
        }
    }
}

/// A note on a file that tells of a server, but not of which run.
fn not_used(path: &str, bytes: &[u8]) -> Option<String> {
    // A number alone may be anything.
    let kind = Kind::of(bytes).filter(|kind| *kind != Kind::Lscpu || bytes.len() > NUMBER_BYTES_MAX)?;
    let valid =
        kind.option().map(|option| format!("; valid: {option} FILE beside --fio-json FILE")).unwrap_or_default();
    Some(format!("{path} is {kind}, and not used: nothing says which run it belongs to{valid}"))
}

/// Files beside the outputs that are looked at: most of them, and their most bytes.
const OTHERS_MAX: usize = 100;
/// See [`OTHERS_MAX`].
const OTHER_BYTES_MAX: usize = 1 << 20;
/// A text of so many bytes may be a number alone.
const NUMBER_BYTES_MAX: usize = 16;

/// What fio's outputs begin with stands within so many bytes.
const SIGN_WITHIN: usize = 64 << 10;

/// The folder of the archive that holds `points` and `static`, with a slash behind it; empty if they are the archive's own.
fn root<'a>(mut paths: impl Iterator<Item = &'a String>) -> &'a str {
    let of = |path: &'a String| {
        let starts = path.match_indices('/').map(|(at, _)| at + 1);
        let mut starts = std::iter::once(0).chain(starts);
        starts.find(|&at| path[at..].starts_with("points/") || path[at..].starts_with("static/")).map(|at| &path[..at])
    };
    paths.find_map(of).unwrap_or("")
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
        assert_eq!(beside.notes.len(), 3, "{notes}");
        assert!(of(&[]).notes[0].contains("no folder `points`"));
    }
}

//! What begins a job in what fio prints for people: its banner before the run, and the head of its results.

use crate::fio_json::FioJob;
use crate::fio_text::bytes;

/// The banner of a job.
#[derive(PartialEq, Debug)]
pub(crate) struct Banner {
    /// Empty, unless a client of fio's names it.
    pub(crate) host: String,
    pub(crate) name: String,
    pub(crate) group: i64,
    pub(crate) options: Vec<(String, String)>,
}

/// `name: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) …, ioengine=libaio, iodepth=32`
pub(crate) fn banner(line: &str) -> Option<Banner> {
    let (name, rest) = line.split_once(": (g=")?;
    let name = without_tags(name);
    let (host, name) = name.strip_prefix('<').and_then(|name| name.split_once("> ")).unwrap_or(("", name));
    let (group, rest) = rest.split_once("): ")?;
    let value = |key: &str| rest.split(", ").find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    // One without them is damaged: fio's defaults would stand for what it lacks.
    let mut options = ["rw", "ioengine", "iodepth"]
        .iter()
        .map(|key| Some(((*key).to_owned(), value(key)?.to_owned())))
        .collect::<Option<Vec<(String, String)>>>()?;
    // Reads, writes, trims: `bs=(R) 4096B-64.0KiB, (W) …` or, before version 2.99, `bs=4K-4K/4K-4K/4K-4K`.
    let sizes = rest.split_once("bs=")?.1.split(", ioengine").next()?;
    let sizes = sizes.split([',', '/']).map(|size| size.trim().trim_start_matches(|c: char| !c.is_ascii_digit()));
    let mut sizes: Vec<Vec<String>> = sizes.filter(|size| !size.is_empty()).map(ends).collect();
    if sizes.iter().all(|size| *size == sizes[0]) {
        sizes.truncate(1);
    }
    let is_fixed = sizes.iter().all(|size| size.first() == size.last());
    let text =
        |size: &Vec<String>| if is_fixed { size[0].clone() } else { format!("{}-{}", size[0], size[size.len() - 1]) };
    let key = if is_fixed { "bs" } else { "bsrange" };
    options.push((key.to_owned(), sizes.iter().map(text).collect::<Vec<_>>().join(",")));
    Some(Banner { host: host.to_owned(), name: name.to_owned(), group: group.parse().unwrap_or(0), options })
}

/// Most lines of a banner, which mail or a terminal may break.
const LINES_MAX: usize = 5;

/// A text with the banners that mail or a terminal has broken on a line each.
pub(crate) fn joined(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut whole, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(line) = lines.get(at) {
        let (banner, count) = first_whole(&lines[at..lines.len().min(at + LINES_MAX)]);
        whole.push_str(banner.as_deref().unwrap_or(line));
        whole.push('\n');
        at += count;
    }
    whole
}

/// The banner of the first lines if it is a broken one, and how many lines are one.
fn first_whole(lines: &[&str]) -> (Option<String>, usize) {
    if !lines[0].contains(": (g=") {
        return (None, 1);
    }
    let mut joined = String::new();
    for (at, line) in lines.iter().enumerate() {
        // Mail breaks lines behind a word, a terminal anywhere.
        let is_between = joined.ends_with([',', ')', ':']);
        joined.push_str(if is_between { " " } else { "" });
        joined.push_str(if at == 0 { line.trim_end() } else { line.trim() });
        let is_number = |rest: &&str| !rest.trim().is_empty() && rest.trim().bytes().all(|byte| byte.is_ascii_digit());
        if banner(joined.trim()).is_some() && !lines.get(at + 1).is_some_and(is_number) {
            return (Some(joined).filter(|_| at > 0), at + 1);
        }
    }
    (None, 1)
}

/// The bytes of `4096B-64.0KiB`, which no job file would say so.
fn ends(size: &str) -> Vec<String> {
    size.split('-').map(|end| bytes(end).map_or(end.to_owned(), |bytes| format!("{bytes:.0}"))).collect()
}

/// `name: (groupid=0, jobs=4): err= 0: pid=123: …`
pub(crate) fn head(line: &str, host: &str, banners: &[Banner]) -> Option<FioJob> {
    let (name, rest) = line.split_once(": (groupid=")?;
    // The line that tells how far the run is may have no end.
    let name = name.rsplit_once("[eta ").and_then(|(_, rest)| rest.split_once(']')).map_or(name, |(_, name)| name);
    let name = without_tags(name);
    let (group, rest) = rest.split_once("): err=")?;
    let (group, jobs) = group.split_once("jobs=")?;
    let (group, jobs) = (group.trim().trim_end_matches(',').parse().unwrap_or(0), jobs.trim().parse::<u32>().ok());
    let error = rest.trim_start().split(|c: char| !c.is_ascii_digit() && c != '-').next()?.parse().ok()?;
    let of_host = || banners.iter().filter(|banner| banner.host == host);
    let first = of_host().find(|banner| banner.name == name);
    let mut options = first.map(|banner| banner.options.clone()).unwrap_or_default();
    // Other sections of the group have banners of their own: these options are then not those of all its threads.
    let is_section = first.is_some_and(|first| of_host().all(|one| one.group != first.group || one == first));
    if let Some(jobs) = jobs.filter(|jobs| *jobs > 1 && is_section) {
        options.push(("numjobs".to_owned(), jobs.to_string()));
        options.push(("group_reporting".to_owned(), "1".to_owned()));
    }
    let threads = jobs.map(f64::from);
    Some(FioJob { name: name.to_owned(), host: host.to_owned(), group, error, options, threads, ..FioJob::default() })
}

/// A name without what a page of the web has before the text.
fn without_tags(mut name: &str) -> &str {
    while let Some(rest) = ["<pre>", "<code>", "<p>", "<samp>"].iter().find_map(|tag| name.strip_prefix(tag)) {
        name = rest;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banners_that_were_broken_are_whole() {
        let line = "a: (g=0): rw=randrw, bs=(R) 512B-64.0KiB, (W) 512B-64.0KiB, (T) 512B-64.0KiB, ioengine=libaio, iodepth=128";
        let whole = banner(line).unwrap();
        assert_eq!(whole.options.len(), 4);
        let of = |text: &str| {
            let text = joined(&format!("$ fio\n{text}\n...\nfio-3.33\n"));
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines.len(), lines[0], lines[3]), (4, "$ fio", "fio-3.33"), "{text}");
            banner(lines[1]).unwrap()
        };
        // A name or a group cut in two is no banner any more.
        for at in (line.find(": rw").unwrap() + 2)..line.len() {
            assert_eq!(of(&format!("{}\n{}", &line[..at], &line[at..])), whole, "cut at {at}");
        }
        for (at, _) in line.match_indices(' ').skip(2) {
            assert_eq!(of(&format!("{}\n{}", &line[..at], &line[at + 1..])), whole, "mail at {at}");
        }
        let damaged = &line[..line.find(", iodepth").unwrap()];
        assert!(banner(damaged).is_none(), "its depth is not 1");
        assert_eq!(joined(&format!("{damaged}\nx\n")), format!("{damaged}\nx\n"));
    }

    #[test]
    fn what_stands_before_a_name_is_not_its_own() {
        let found = banner("<pre><code>a b: (g=0): rw=read, bs=4K-4K/4K-4K/4K-4K, ioengine=sync, iodepth=1").unwrap();
        assert_eq!((found.host.as_str(), found.name.as_str()), ("", "a b"));
        let line =
            "Jobs: 1 (f=1): [r(1)][100.0%][r=9MiB/s][r=2k IOPS][eta 00m:00s]a b: (groupid=0, jobs=1): err= 0: pid=7";
        let job = head(line, "", &[found]).unwrap();
        assert_eq!((job.name.as_str(), job.options.len()), ("a b", 4));
    }
}

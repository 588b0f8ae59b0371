//! What tells about the command line: `campanile list`, `campanile completions`, `campanile man`.

use crate::cli::{self, Cli, CompletionsArgs, Failure, ListArgs, Listed, ManArgs};
use crate::document::Document;
use crate::input::{InputError, Place, Problem};
use crate::platform::{EMBEDDED, Platform};
use crate::report::narrow::width;
use crate::scenario;
use crate::scenario::key::Described;
use crate::setting::Setting;
use clap::CommandFactory;
use serde::Serialize;

/// A scenario or a platform that the program carries.
#[derive(Serialize)]
struct Carried {
    name: String,
    about: String,
}

/// Everything that can be listed; what was not asked for is absent.
#[derive(Serialize, Default)]
struct List {
    #[serde(skip_serializing_if = "Option::is_none")]
    scenarios: Option<Vec<Carried>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    platforms: Option<Vec<Carried>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<Vec<Described>>,
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let platform = Platform::load(&Setting::new(Place::option("--platform"), "", &args.platform))?;
    let is_asked = |what| args.what.is_none_or(|asked| asked == what);
    let list = List {
        scenarios: is_asked(Listed::Scenarios).then(scenarios),
        platforms: is_asked(Listed::Platforms).then(platforms),
        keys: is_asked(Listed::Keys).then(|| scenario::all_keys(&platform)),
    };
    if args.json {
        return cli::print(&(serde_json::to_string_pretty(&list).expect("plain data") + "\n"));
    }
    let mut text = String::new();
    for (title, carried) in [("Scenarios", &list.scenarios), ("Platforms", &list.platforms)] {
        let Some(carried) = carried else { continue };
        text += &format!("{title}\n");
        carried.iter().for_each(|one| text += &entry(&one.name, &[&one.about]));
    }
    if let Some(keys) = &list.keys {
        text += &format!("Keys of --set, with the constants of platform {}\n", platform.name);
        for Described { key, about, default, valid, .. } in keys {
            let default = default.as_ref().map(|value| format!("now {value}")).unwrap_or_default();
            text += &entry(key, &[about, &default, valid]);
        }
    }
    cli::print(&text)
}

/// A name, and what there is to say under it, within the terminal's width.
fn entry(name: &str, lines: &[&str]) -> String {
    let mut text = format!("  {name}\n");
    for line in lines.iter().filter(|line| !line.is_empty()) {
        for part in wrapped(line, usize::from(width()).saturating_sub(6).max(20)) {
            text += &format!("      {part}\n");
        }
    }
    text
}

/// Cuts a text at blanks. A longer word stays whole.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("one line at least");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > columns {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

fn scenarios() -> Vec<Carried> {
    let about = |name: &str| {
        let text = scenario::text(name)?;
        let document = Document::parse(name, text).ok()?;
        Some(document.root().scalar("about", "").ok()?.text)
    };
    scenario::names().map(|name| Carried { name: name.to_owned(), about: about(name).unwrap_or_default() }).collect()
}

fn platforms() -> Vec<Carried> {
    let about = |name: &str, file: &str, text: &str| Platform::read(name, file, text).map(|platform| platform.about);
    EMBEDDED
        .iter()
        .map(|(name, file, text)| Carried {
            name: (*name).to_owned(),
            about: about(name, file, text).unwrap_or_default(),
        })
        .collect()
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "campanile", &mut bytes);
    cli::print(&String::from_utf8_lossy(&bytes))
}

pub(super) fn man(args: &ManArgs) -> Result<(), Failure> {
    let place = Place::file(args.folder.display().to_string());
    let io = |error: std::io::Error| InputError::new(&place, "", Problem::Io(format!("cannot be written: {error}")));
    std::fs::create_dir_all(&args.folder).map_err(io)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.folder).map_err(io)?;
    let pages = std::fs::read_dir(&args.folder).map_err(io)?.count();
    cli::print(&format!("{pages} pages in {}\n", args.folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_meaning_and_says_what_is_valid() {
        let platform = Platform::load(&Setting::new(Place::option("--platform"), "", "emr")).unwrap();
        let keys = scenario::all_keys(&platform);
        for Described { key, about, valid, .. } in &keys {
            assert!(!about.is_empty() && !valid.is_empty(), "{key}: {about}: {valid}");
        }
        let of = |key: &str| keys.iter().find(|known| known.key == key).unwrap_or_else(|| panic!("{key}"));
        let dispatch = of("fabric.dispatch");
        assert_eq!((dispatch.unit, dispatch.min.is_some()), (Some("ns"), true));
        assert_eq!(of("duration").valid, "a time with ns, us, ms or s, from 1 us to 10 s");
        assert_eq!(of("options.rq_affinity").valid, "0, 1, 2");
        assert!(of("drives.queues").valid.starts_with("a whole number, from 1 to "));
        assert!(of("job.iodepth").valid.starts_with("a number"));
        for prefix in ["network.", "rdma.", "stream.", "threaded.", "cpu.", "drive."] {
            assert!(keys.iter().any(|known| known.key.starts_with(prefix)), "{prefix}");
        }
    }

    #[test]
    fn lines_are_cut_at_blanks() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("extraordinary", 8), ["extraordinary"]);
    }
}

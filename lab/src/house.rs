//! The TOML files that are ours: which of them a text is. People give one where another is meant.

use crate::document::{Document, Table};
use crate::input::{InputError, Problem};

/// A TOML file of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum House {
    /// What `campanile run` reads.
    Scenario,
    /// What `campanile sweep` reads.
    Sweep,
    /// What `--platform` names.
    Platform,
}

impl House {
    const ALL: [Self; 3] = [Self::Scenario, Self::Sweep, Self::Platform];

    /// Keys of its root that the others do not have.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Scenario => &["platform", "workload", "jobs"],
            Self::Sweep => &["scenario", "points", "grid", "platforms"],
            Self::Platform => &["base", "cpu", "fabric", "drive"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Scenario => "a scenario",
            Self::Sweep => "a sweep",
            Self::Platform => "a platform",
        }
    }

    /// Where `file` belongs.
    fn place(self, file: &str) -> String {
        match self {
            Self::Scenario => format!("campanile run {file}, or scenario = \"{file}\" in a sweep"),
            Self::Sweep => format!("campanile sweep {file}"),
            Self::Platform => format!("--platform {file} beside a scenario or a job file"),
        }
    }

    /// Refuses a file that is another of ours, by keys that only that has.
    ///
    /// # Errors
    /// It says which it is, and where that belongs.
    pub fn check(self, root: &Table<'_, '_>) -> Result<(), InputError> {
        match of(root) {
            Some(other) if other != self => Err(other.misplaced(root, self.name())),
            _ => Ok(()),
        }
    }

    fn misplaced(self, root: &Table<'_, '_>, wanted: &str) -> InputError {
        let wanted = wanted.trim_start_matches("a ");
        let why = format!("is {}, and no {wanted}; valid: {}", self.name(), self.place(&root.place.file));
        InputError::new(&root.place, "", Problem::Syntax(why))
    }
}

/// Which file it is. None if it has keys of several, or of none.
fn of(root: &Table<'_, '_>) -> Option<House> {
    let has = |house: &House| root.iter().any(|(key, _)| house.keys().contains(&key));
    let mut found = House::ALL.into_iter().filter(has);
    found.next().filter(|_| found.next().is_none())
}

/// The error of a file of ours where a job file of fio's is wanted.
pub fn in_place_of_a_job_file(file: &str, bytes: &[u8]) -> Option<InputError> {
    let document = Document::parse(file, std::str::from_utf8(bytes).ok()?).ok()?;
    let root = document.root();
    of(&root).map(|house| house.misplaced(&root, "job file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(house: House, text: &str) -> Result<(), String> {
        let document = Document::parse("x.toml", text).unwrap();
        house.check(&document.root()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_of_another_kind_is_told_where_it_belongs() {
        let (scenario, sweep, platform) =
            ("platform = \"emr\"\n[job]\n", "scenario = \"a.fio\"\n[grid]\n", "base = \"emr\"\n[cpu]\n");
        assert_eq!(
            checked(House::Scenario, sweep),
            Err("x.toml: is a sweep, and no scenario; valid: campanile sweep x.toml".into())
        );
        let told = checked(House::Sweep, scenario).unwrap_err();
        assert!(told.ends_with(
            "is a scenario, and no sweep; valid: campanile run x.toml, or scenario = \"x.toml\" in a sweep"
        ));
        let told = checked(House::Scenario, platform).unwrap_err();
        assert!(told.contains("is a platform, and no scenario; valid: --platform x.toml"), "{told}");
        assert!(checked(House::Platform, scenario).unwrap_err().contains("is a scenario, and no platform"));
        // A key too many, or none: the reader of the file names it.
        for text in [scenario, "", "typo = 1\n", "platform = \"emr\"\ngrid = 1\n"] {
            assert_eq!(checked(House::Scenario, text), Ok(()), "{text}");
        }
        assert!(in_place_of_a_job_file("x.toml", sweep.as_bytes()).is_some());
        assert!(in_place_of_a_job_file("x.fio", b"[a]\nrw=read\n").is_none());
    }
}

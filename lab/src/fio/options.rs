//! Every option of fio 3.33 and its meaning in a simulated run: the table `options.txt`.

use super::kind::ValueKind;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The meaning of an option here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// The model follows it. The text says how.
    Modelled(&'static str),
    /// The result does not depend on it. The text gives the reason.
    NoEffect(&'static str),
    /// Not modelled; the text gives the consequence for the result.
    Ignored {
        /// These values change nothing.
        unless: Vec<&'static str>,
        /// The consequence.
        consequence: &'static str,
    },
    /// Cannot be honoured.
    Refused {
        /// These values change nothing.
        unless: Vec<&'static str>,
        /// The reason, as the rest of "`value` …".
        why: &'static str,
        /// A valid alternative.
        valid: &'static str,
    },
    /// Only engines that are not modelled have it.
    Foreign,
}

/// One option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FioOption {
    /// Its main name.
    pub name: &'static str,
    /// Its other name.
    pub alias: Option<&'static str>,
    /// The engines that have it; none if every job has it.
    pub engines: Vec<&'static str>,
    /// The values that it takes.
    pub kind: ValueKind,
    /// What it is here.
    pub meaning: Meaning,
}

impl FioOption {
    /// True if a job of `engine` has this option.
    pub fn is_of(&self, engine: &str) -> bool {
        self.engines.is_empty() || self.engines.contains(&engine)
    }
}

/// The table, in its order.
pub fn all() -> &'static [FioOption] {
    &TABLE.options
}

/// The option of this name or alias; none if fio 3.33 has no such option.
pub fn find(name: &str) -> Option<&'static FioOption> {
    TABLE.by_name.get(name).map(|&index| &TABLE.options[index])
}

/// The option's main name: `name` itself, or the name that it is an alias of.
pub fn canonical(name: &str) -> &str {
    find(name).map_or(name, |option| option.name)
}

/// Every known name.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().iter().flat_map(|option| std::iter::once(option.name).chain(option.alias))
}

/// Options that later versions have, and that change the I/Os. Version 3.33, which this follows, has none of them.
pub fn is_newer(name: &str) -> bool {
    NEWER.split_whitespace().any(|newer| newer == name)
}

/// Options that later versions have, and that change no I/O of a drive that stores what it is given: logs, seeds of
/// verification, hints, placement, protection information.
pub fn is_newer_aside(name: &str) -> bool {
    NEWER_ASIDE.split_whitespace().any(|newer| newer == name)
}

const NEWER_ASIDE: &str = "log_issue_time log_window_value log_entries_max verify_header_seed verify_write_sequence \
                           verify_pattern_interval runtime_reports prio_hint priohint prio_class_hint cmdprio_hint \
                           cmdprio_bssplit_hint md_per_io_size pi_act pi_chk apptag apptag_mask fdp fdp_pli fdp_pli_select plids \
                           plid_select dp_type dp_scheme data_placement dataplacement job_start_clock_id replay_check";

const NEWER: &str = "num_range sprandom spr_op spr_num_regions cmdprio_split steadystate_check_interval ss_interval \
                     fua rwf_atomic writefua_percentage write_mode verify_mode readfua_percentage nowait_poll \
                     filetype rate_write_only thinkcycles trim_write deac cdb_len end_syncfs libaio_vectored \
                     no_completion_thread ramp_size random_sequence_stride read_mode recover_zbd_write_error spr_cs \
                     verify_bytchk verify_policy write_zone_remainder";

struct Table {
    options: Vec<FioOption>,
    by_name: HashMap<&'static str, usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let lines = include_str!("options.txt").lines().filter(|line| !line.starts_with('#'));
    let options: Vec<FioOption> = lines.filter_map(row).collect();
    let mut by_name = HashMap::new();
    for (index, option) in options.iter().enumerate() {
        std::iter::once(option.name).chain(option.alias).for_each(|name| {
            by_name.entry(name).or_insert(index);
        });
    }
    Table { options, by_name }
});

/// One line of the table. The tests read every line, so none is skipped.
fn row(line: &'static str) -> Option<FioOption> {
    let mut columns = line.split(" | ").map(str::trim);
    let (name, alias, engines, kind) = (columns.next()?, columns.next()?, columns.next()?, columns.next()?);
    let (meaning, unless) = columns.next()?.split_once(" unless ").unwrap_or_else(|| {
        let word = line.split(" | ").nth(4).unwrap_or_default().trim();
        (word, "")
    });
    let unless: Vec<&str> = unless.split(',').filter(|value| !value.is_empty()).collect();
    let meaning = match meaning {
        "modelled" => Meaning::Modelled(columns.next()?),
        "noeffect" => Meaning::NoEffect(columns.next()?),
        "ignored" => Meaning::Ignored { unless, consequence: columns.next()? },
        "refused" => Meaning::Refused { unless, why: columns.next()?, valid: columns.next()? },
        "foreign" => Meaning::Foreign,
        _ => return None,
    };
    Some(FioOption {
        name,
        alias: (alias != "-").then_some(alias),
        engines: if engines == "any" { Vec::new() } else { engines.split(',').collect() },
        kind: ValueKind::read(kind)?,
        meaning,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = include_str!("options.txt").lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            assert!(row(line).is_some(), "{line}");
        }
        assert!(all().len() > 290, "{}", all().len());
    }

    #[test]
    fn every_name_of_the_modelled_engines_stands_once() {
        let mut seen = std::collections::HashSet::new();
        for option in all().iter().filter(|option| option.meaning != Meaning::Foreign) {
            assert!(seen.insert(option.name), "{}", option.name);
            assert!(option.alias.is_none_or(|alias| seen.insert(alias)), "{}", option.name);
        }
    }

    #[test]
    fn an_alias_is_its_option() {
        assert_eq!(canonical("blocksize"), "bs");
        assert_eq!(canonical("wait_for_previous"), "stonewall");
        assert_eq!(canonical("nonsense"), "nonsense");
    }
}

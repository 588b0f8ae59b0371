//! Metamorphic checks: one history in several forms, whose load must come to the same.
//!
//! No checker knows what a form should do. The relation between the forms is the oracle: the same commands complete, none
//! fails, and reads find the same data. What may differ: times, the order of completions, the number of interrupts, the CPUs
//! that take them, and what interrupt lines went through on the way.
//!
//! The load of these histories is the same whatever time its commands take ([`Build::comparable`](crate::subject::Build)),
//! no fault is injected, and no step ends commands ([`Subject::is_comparable`](crate::subject::Subject::is_comparable)).

use crate::campaign::replay_line;
use crate::cli::{self, CheckArgs, CheckError};
use crate::history::Recipe;
use crate::parallel::{self, Progress};
use crate::report;
use crate::run::{COMPARABLE, Outcome, Scenario};
use crate::verdict::{Failure, Kind};
use machine::time::Ps;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use serde::Serialize;
use std::fmt;
use std::time::Instant;

/// Histories of a family, unless another number is given.
const SEEDS_DEFAULT: u64 = 100;

/// Forms of one history.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What the forms vary.
    pub about: &'static str,
    /// Settings of all of them, as `--set` takes them.
    pub common: &'static str,
    /// Scenario and settings of each form.
    pub forms: &'static [(&'static str, &'static str)],
}

/// All families. What a form sets is what the family varies; everything else is drawn, and the same in all.
pub static FAMILIES: [Family; 10] = [
    Family {
        name: "delivery",
        about: "messages plain, remapped and posted",
        common: "load=100",
        forms: &[("pc-plain", ""), ("pc-remapped", ""), ("pc-posted", "")],
    },
    Family {
        name: "pc-cpus",
        about: "a PC with one CPU and with many",
        common: "load=100,queues=1,managed=0",
        forms: &[("pc-posted", "cpus=1"), ("pc-posted", "cpus=8"), ("pc-plain", "cpus=8")],
    },
    Family {
        name: "pc-threads",
        about: "handlers of a PC in interrupts and in threads",
        common: "load=100",
        forms: &[("pc-posted", "threads=0"), ("pc-posted", "threads=1"), ("pc-remapped", "threads=1")],
    },
    Family {
        name: "secret",
        about: "drives that coalesce in secret, and that do not",
        common: "load=100",
        forms: &[("pc-posted", "secret_us=0"), ("pc-posted", "secret_us=200,secret_entries=8")],
    },
    Family {
        name: "gic-version",
        about: "GICv2 and GICv3, messages by v2m and by the ITS",
        common: "",
        forms: &[
            ("gicv2", "messages_by=v2m"),
            ("gicv3", "messages_by=v2m,pseudo_nmi=0"),
            ("gicv3", "messages_by=its,pseudo_nmi=0"),
        ],
    },
    Family {
        name: "eoimode",
        about: "EOImode 0 and 1, handlers in interrupts and in threads",
        common: "",
        forms: &[
            ("gicv3", "eoimode=0,threads=0"),
            ("gicv3", "eoimode=1,threads=0"),
            ("gicv3", "eoimode=0,threads=1"),
            ("gicv3", "eoimode=1,threads=1"),
        ],
    },
    Family {
        name: "gic-cpus",
        about: "an Arm system with one CPU and with many",
        common: "ppis=0",
        forms: &[("gicv3", "cpus=1"), ("gicv3", "cpus=4"), ("gicv3", "cpus=4,eoimode=1")],
    },
    Family {
        name: "virtio-vectors",
        about: "a disk with one interrupt and with several, over MMIO and PCI",
        common: "load=1200",
        forms: &[
            ("virtio", "disk_bus=level,disk_vectors=1"),
            ("virtio", "disk_bus=edge,disk_vectors=1"),
            ("virtio", "disk_bus=edge,disk_vectors=4"),
            ("virtio", "disk_bus=level,disk_vectors=4"),
            ("virtio", "disk_bus=pci,disk_vectors=4"),
        ],
    },
    Family {
        name: "virtio-ring",
        about: "split and packed rings, one CPU and many",
        common: "load=1200",
        forms: &[("virtio", "packed=0"), ("virtio", "packed=1"), ("virtio", "packed=1,cpus=1"), ("virtio", "cpus=4")],
    },
    Family {
        name: "moderation",
        about: "consumers that controllers tune, and that none tunes, on one CPU and on many",
        common: "load=1000",
        forms: &[
            ("moderation", "untuned=255"),
            ("moderation", "untuned=0"),
            ("moderation", "untuned=0,cpus=1"),
            ("moderation", "untuned=0,cpus=4"),
        ],
    },
];

/// A form of a history that broke the relation, or failed by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    family: &'static str,
    /// What is wrong.
    pub text: String,
    /// The lines that run the first form and this one again.
    pub replay: [String; 2],
    #[serde(skip)]
    kind: Option<Kind>,
}

impl Broken {
    /// As a failure of a campaign.
    pub(crate) fn failure(&self) -> Failure {
        let text = format!("{}: {}; {} against {}", self.family, self.text, self.replay[1], self.replay[0]);
        Failure::new(self.kind.unwrap_or(Kind::Correctness), "forms", Ps(0), text)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FAILED {}: {}\nreplay: {}\nreplay: {}", self.family, self.text, self.replay[0], self.replay[1])
    }
}

impl Family {
    /// The recipe of each form of the history of `common`'s seed.
    fn recipes(&self, common: &Recipe) -> Vec<(&'static str, Recipe)> {
        let of = |&(scenario, set): &(&'static str, &'static str)| {
            let mut recipe = Recipe { faults: Some([].into()), ..common.clone() };
            let pairs = [self.common, set].into_iter().flat_map(|list| list.split(',')).filter(|pair| !pair.is_empty());
            let pairs = pairs.map(|pair| pair.split_once('=').expect("NAME=VALUE"));
            recipe.set.extend(pairs.chain([(COMPARABLE, "1")]).map(|(name, value)| (name.into(), value.into())));
            (scenario, recipe)
        };
        self.forms.iter().map(of).collect()
    }

    /// Runs the forms of one history.
    ///
    /// # Errors
    /// A form's scenario is not among `scenarios`, or has no knob of this name.
    pub fn run(&self, scenarios: &[&'static dyn Scenario], common: &Recipe) -> Result<Option<Broken>, CheckError> {
        let mut first: Option<(String, Outcome)> = None;
        for (name, recipe) in self.recipes(common) {
            let missing = || CheckError::Input(format!("--metamorphic {}: there is no scenario {name}", self.name));
            let scenario = scenarios.iter().find(|scenario| scenario.name() == name).ok_or_else(missing)?;
            let run = scenario.run(&recipe).map_err(|error| CheckError::Input(error.to_string()))?;
            let line = replay_line(name, &recipe);
            let base = first.as_ref().map_or(&line, |(line, _)| line).clone();
            let broken = |text, kind| Broken { family: self.name, text, replay: [base, line.clone()], kind };
            let outcome = match (run.failure, run.outcome) {
                (None, Some(outcome)) => outcome,
                (Some(failure), _) => return Ok(Some(broken(failure.to_string(), Some(failure.kind)))),
                (None, None) => return Ok(Some(broken("the load has no end".into(), None))),
            };
            match &first {
                Some((_, expected)) if *expected != outcome => {
                    return Ok(Some(broken(differs(*expected, outcome), None)));
                }
                Some(_) => {}
                None if outcome.failed > 0 => {
                    return Ok(Some(broken(
                        format!("{} commands failed, and nothing ends them", outcome.failed),
                        None,
                    )));
                }
                None => first = Some((line, outcome)),
            }
        }
        Ok(None)
    }
}

fn differs(first: Outcome, other: Outcome) -> String {
    let parts = [
        ("commands completed", first.completed, other.completed),
        ("commands failed", first.failed, other.failed),
        ("digest of their numbers", first.numbers, other.numbers),
        ("digest of what they found", first.found, other.found),
    ];
    let different = parts.iter().filter(|(_, first, other)| first != other);
    let text: Vec<_> = different.map(|(what, first, other)| format!("{what}: {first:#x} and {other:#x}")).collect();
    format!("two forms of one history come to different ends; {}", text.join("; "))
}

/// What a family was found to do.
#[derive(Serialize)]
struct Verdict {
    family: &'static str,
    #[serde(skip)]
    about: &'static str,
    /// Those that were asked for: none behind one that is broken is needed.
    histories: u64,
    forms: usize,
    broken: Option<Broken>,
}

/// `campanile check --metamorphic`.
pub(crate) fn execute(
    args: &CheckArgs,
    scenarios: &[&'static dyn Scenario],
    recipe: Recipe,
    wanted: &str,
) -> Result<u8, CheckError> {
    let families: Vec<_> = FAMILIES.iter().filter(|family| family.name.contains(wanted)).collect();
    if families.is_empty() {
        let known: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
        return Err(CheckError::Input(format!("--metamorphic {wanted}: valid is of {}, or a part", known.join(", "))));
    }
    let (first_seed, seeds) = (cli::first_seed(args), args.seeds.unwrap_or(SEEDS_DEFAULT));
    report::say(format_args!(
        "metamorphic: {} families, {seeds} histories of each from seed {first_seed:#x}, {} jobs",
        families.len(),
        cli::jobs(args)
    ));
    let start = Instant::now();
    let of = |seed: u64| Recipe { seed: first_seed.wrapping_add(seed), ..recipe.clone() };
    let verdicts = all(&families, scenarios, seeds, cli::jobs(args), of)?;
    for Verdict { family, about, histories, forms, broken } in &verdicts {
        report::say(format_args!("{family:<16} {histories:>6} histories in {forms} forms: {about}"));
        if let Some(broken) = broken {
            report::say(format_args!("{broken}"));
        }
    }
    let failed = verdicts.iter().filter_map(|verdict| verdict.broken.as_ref());
    let took_s = start.elapsed().as_secs_f64();
    report::say(format_args!("{} families failed; {took_s:.1} s (measured)", failed.clone().count()));
    #[derive(Serialize)]
    struct Document<'a> {
        first_seed: u64,
        metamorphic: &'a [Verdict],
    }
    cli::write_json(args, &cli::document(&Document { first_seed, metamorphic: &verdicts }, None))?;
    let kind = failed.map(|broken| broken.kind.unwrap_or(Kind::Correctness)).next();
    Ok(kind.map_or(0, Kind::exit_code))
}

/// Runs the histories of all families. A family ends with the first that breaks its relation: the one of the least seed.
fn all(
    families: &[&'static Family],
    scenarios: &[&'static dyn Scenario],
    seeds: u64,
    jobs: usize,
    recipe: impl Fn(u64) -> Recipe + Sync,
) -> Result<Vec<Verdict>, CheckError> {
    let pool = parallel::pool(jobs);
    let progress = Progress::new(seeds.saturating_mul(families.len() as u64), "histories");
    let one = |family: &Family, seed| {
        progress.step();
        family.run(scenarios, &recipe(seed)).transpose()
    };
    let verdict = |&family: &&'static Family| {
        let broken = pool.install(|| (0..seeds).into_par_iter().find_map_first(|seed| one(family, seed)));
        let Family { name, about, forms, .. } = family;
        Ok(Verdict { family: name, about, histories: seeds, forms: forms.len(), broken: broken.transpose()? })
    };
    families.iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios;

    #[test]
    fn every_form_of_every_family_comes_to_the_same() {
        for family in &FAMILIES {
            for seed in 1..=4 {
                let broken = family.run(scenarios::all(), &Recipe::of(seed)).expect("knobs of its scenarios");
                assert!(broken.is_none(), "{}", broken.expect("looked at"));
            }
        }
    }

    /// An item counted as done an instant before it was marked, and the history was judged just then.
    #[test]
    fn what_is_done_is_marked() {
        let family = FAMILIES.iter().find(|family| family.name == "moderation").expect("a family");
        let broken = family.run(scenarios::all(), &Recipe::of(0xc15c_2ea5_d9e5)).expect("knobs of its scenarios");
        assert!(broken.is_none(), "{}", broken.expect("looked at"));
    }

    #[test]
    fn another_load_comes_to_another_end() {
        static TWO: Family =
            Family { name: "two", about: "", common: "load=100", forms: &[("pc-plain", ""), ("pc-plain", "load=101")] };
        // Users divide the load among them.
        let set = [("users".into(), "1".into())].into();
        let broken = TWO.run(scenarios::all(), &Recipe { set, ..Recipe::of(1) }).expect("a scenario");
        let text = broken.expect("one command more").to_string();
        assert!(text.contains("commands completed: 0x"), "{text}");
        assert!(text.contains("--replay 0x1 --faults none --set comparable=1,load=101"), "{text}");
    }

    #[test]
    fn what_differs_is_named_alone() {
        let first = Outcome { completed: 5, failed: 0, numbers: 7, found: 9 };
        assert_eq!(
            differs(first, Outcome { found: 10, ..first }),
            "two forms of one history come to different ends; digest of what they found: 0x9 and 0xa"
        );
    }
}

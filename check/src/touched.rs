//! Which scenarios run a file, so that a search can spend its time where a change is.

/// Folders and files of the stack, and the scenarios that run them. The longest that fits counts.
const RUN_BY: &[(&str, &[&str])] = &[
    ("irq/src/moderation", &["moderation", "parts"]),
    ("irq/src/moderation.rs", &["moderation", "parts"]),
    ("irq/src/poll", &["moderation", "parts"]),
    ("irq/src/poll.rs", &["moderation", "parts"]),
    ("irq/src/posted", &["pc-posted"]),
    ("irq/src/posted.rs", &["pc-posted"]),
    ("irq/src", ALL_STACKS),
    ("drivers/src/apic", PC),
    ("drivers/src/dsa", PC),
    ("drivers/src/gic", &["gicv2", "gicv3"]),
    ("drivers/src/gic/its", &["gicv3"]),
    ("drivers/src/gic/lpi.rs", &["gicv3"]),
    ("drivers/src/gic/v2.rs", &["gicv2"]),
    ("drivers/src/gic/v3.rs", &["gicv3"]),
    ("drivers/src/hpet.rs", &["pc-plain", "pc-remapped", "pc-posted", "firmware"]),
    ("drivers/src/ioapic.rs", PC),
    ("drivers/src/nvme", &["pc-plain", "pc-remapped", "pc-posted", "moderation"]),
    ("drivers/src/pci", &["pc-plain", "pc-remapped", "pc-posted", "firmware"]),
    ("drivers/src/posting", &["pc-plain", "firmware"]),
    ("drivers/src/rdma", &["moderation"]),
    ("drivers/src/virtio", &["virtio", "firmware"]),
    ("drivers/src/virtio/discovery", &["firmware", "virtio"]),
    ("drivers/src/virtio/net", &["virtio", "moderation"]),
    ("drivers/src/virtio/queue", &["virtio", "parts"]),
    ("drivers/src/virtio/queue.rs", &["virtio", "parts"]),
    ("drivers/src/nvme/features.rs", &["firmware", "parts", "moderation"]),
    ("drivers/src/nvme/tuning.rs", &["parts", "moderation"]),
    ("drivers/src/nvme/controller", &["firmware", "pc-plain", "pc-remapped", "pc-posted"]),
    ("drivers/src/vtd", &["pc-remapped", "pc-posted"]),
    ("drivers/src", ALL_STACKS),
    ("systems/src/arm", &["gicv2", "gicv3"]),
    ("systems/src/pc", PC),
    ("systems/src", ALL_STACKS),
    ("sched/src", &["scheduler"]),
    ("machine/src/gic", &["gicv2", "gicv3"]),
    ("machine/src/nvme", &["pc-plain", "pc-remapped", "pc-posted", "moderation"]),
    ("machine/src/rdma", &["moderation"]),
    ("machine/src/virtio", &["virtio"]),
    ("machine/src", ALL_STACKS),
    ("hal/src", ALL_STACKS),
    ("spec/src", ALL_STACKS),
];

const PC: &[&str] = &["pc-plain", "pc-remapped", "pc-posted"];
const ALL_STACKS: &[&str] = &["pc-plain", "pc-remapped", "pc-posted", "gicv2", "gicv3", "virtio", "moderation"];

/// How much more time a scenario gets that runs what is touched.
const WEIGHT: u32 = 4;

/// Whether `file`, a path from the root of the tree, is this file or in this folder.
pub(crate) fn is_below(file: &str, place: &str) -> bool {
    let rest = file.strip_prefix("./").unwrap_or(file).strip_prefix(place);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The scenarios that run `file`, a path from the root of the tree; none: no history runs it.
fn run_by(file: &str) -> Option<&'static [&'static str]> {
    let fitting = RUN_BY.iter().filter(|(place, _)| is_below(file, place));
    fitting.max_by_key(|(place, _)| place.len()).map(|(_, scenarios)| *scenarios)
}

/// The weight of a scenario if these files are touched. Those that run none of them still get a part: what a change breaks may
/// show elsewhere. Files that no history runs (documents, say) change nothing.
pub(crate) fn weight(scenario: &str, touched: &[String]) -> u32 {
    let is_touched = |file: &String| run_by(file).is_some_and(|scenarios| scenarios.contains(&scenario));
    if touched.iter().any(is_touched) { WEIGHT } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_file_of_the_stack_is_run_by_a_scenario_that_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("check is a room of the house");
        for (place, scenarios) in RUN_BY {
            assert!(root.join(place).exists(), "{place} is not there");
            for name in *scenarios {
                assert!(crate::scenarios::all().iter().any(|scenario| scenario.name() == *name), "{place}: {name}");
            }
        }
        for room in ["irq/src/line.rs", "drivers/src/slots.rs", "systems/src/alarm.rs", "sched/src/queue.rs"] {
            assert!(root.join(room).is_file() && run_by(room).is_some(), "{room}");
        }
    }

    #[test]
    fn the_longest_place_counts() {
        assert_eq!(run_by("drivers/src/gic/v2.rs"), Some(&["gicv2"][..]));
        assert_eq!(run_by("drivers/src/gic/chip.rs"), Some(&["gicv2", "gicv3"][..]));
        assert_eq!(run_by("./drivers/src/vtd/unit.rs"), Some(&["pc-remapped", "pc-posted"][..]));
        assert_eq!((run_by("docs/check.md"), run_by("irq/srcs")), (None, None));
        let touched = ["docs/check.md".to_owned(), "drivers/src/rdma/pair.rs".to_owned()];
        assert_eq!([weight("moderation", &touched), weight("gicv2", &touched)], [WEIGHT, 1]);
    }
}

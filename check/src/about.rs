//! What some files of the stack are about, so that a search for a change in one of them meets it often: a device that only
//! some machines have, or a mode that only some histories draw.

/// What a search of one scenario turns to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Focus {
    /// Its small machines ([`crate::subject::Bench`]).
    pub(crate) benches: &'static [&'static str],
    /// Knobs of half of its random histories.
    pub(crate) set: &'static [(&'static str, &'static str)],
}

/// A folder or file, scenarios, and what to turn to there. The longest that fits counts.
const ABOUT: &[(&str, &[&str], Focus)] = &[
    ("drivers/src/dsa", PC, of(&["accelerator", "filling"], &[("accelerator", "2"), ("beside", "20")])),
    ("drivers/src/gic", &["gicv2"], of(&["neighbours", "private"], &[])),
    ("drivers/src/gic", &["gicv3"], of(&["neighbours", "nmi-neighbours", "private"], &[])),
    ("drivers/src/gic/frame.rs", GIC, of(&["v2m"], &[("messages_by", "v2m")])),
    ("drivers/src/gic/its", &["gicv3"], of(ITS, &[("messages_by", "its")])),
    ("drivers/src/gic/lpi.rs", &["gicv3"], of(ITS, &[("messages_by", "its")])),
    ("drivers/src/hpet.rs", PC, of(&["timers"], &[("timers", "1"), ("accelerator", "0"), ("beside", "40")])),
    ("drivers/src/ioapic", PC, of(&["threads"], &[])),
    ("drivers/src/nvme/controller.rs", PC, of(&["narrow"], &[("tuned", "1")])),
    ("drivers/src/nvme/reap.rs", PC, of(&["aborts", "narrow"], &[("entries", "2")])),
    ("drivers/src/nvme/slots.rs", PC, of(&["aborts", "narrow"], &[("entries", "2")])),
    ("drivers/src/nvme/tuning.rs", PC, of(&[], &[("tuned", "1")])),
    (
        "drivers/src/posting",
        &["pc-plain"],
        of(&["poster"], &[("poster", "1"), ("accelerator", "0"), ("timers", "0"), ("beside", "40")]),
    ),
    ("drivers/src/rdma", &["moderation"], of(&["rdma"], &[("pairs", "2")])),
    ("drivers/src/virtio/mmio.rs", &["virtio"], of(&["wires", "levels", "wires-queues", "levels-queues"], &[])),
    ("drivers/src/virtio/net", &["virtio"], of(&["commands"], &[("beside", "20")])),
    ("drivers/src/virtio/pci.rs", &["virtio"], of(&["pci", "pci-queues"], &[("disk_bus", "pci"), ("net_bus", "pci")])),
    ("irq/src/poll", &["moderation"], of(&["polled"], &[])),
    ("drivers/src/vtd", REMAPS, of(&["forgetting", "lending", "leaving", "wrap"], &[("cache_places", "1")])),
    ("irq/src/affinity.rs", REMAPS, of(&["forgetting", "leaving"], &[])),
    ("irq/src/request.rs", GIC, of(&["oneshot"], &[])),
    ("irq/src/hotplug.rs", PC, of(&[], &[("count_vectors", "1")])),
    ("irq/src/vectors.rs", PC, of(&[], &[("count_vectors", "1")])),
    ("irq/src/posted/limited", &["pc-posted"], of(&[], &[("limit_ns", "400")])),
    ("irq/src/posted/limited.rs", &["pc-posted"], of(&[], &[("limit_ns", "400")])),
    ("irq/src/storm.rs", PC, of(&[], &[("strict_storms", "1")])),
    ("irq/src/storm.rs", GIC, of(&[], &[("strict_storms", "1")])),
    ("irq/src/thread.rs", PC, of(&["threads"], &[("threads", "1")])),
    ("irq/src/thread.rs", GIC, of(&["oneshot", "its-oneshot"], &[("threads", "1")])),
];

const PC: &[&str] = &["pc-plain", "pc-remapped", "pc-posted"];
const REMAPS: &[&str] = &["pc-remapped", "pc-posted"];
const GIC: &[&str] = &["gicv2", "gicv3"];
const ITS: &[&str] = &["its", "its-oneshot", "its-maskless", "its-wrap"];

const fn of(benches: &'static [&'static str], set: &'static [(&'static str, &'static str)]) -> Focus {
    Focus { benches, set }
}

/// What a search of `scenario` turns to if these files are touched, the first that tells; none: to nothing.
pub(crate) fn focus(scenario: &str, touched: &[String]) -> Option<Focus> {
    let of_file = |file: &String| {
        let fits = |(place, scenarios, _): &&(&str, &[&str], Focus)| {
            super::touched::is_below(file, place) && scenarios.contains(&scenario)
        };
        ABOUT.iter().filter(fits).max_by_key(|(place, ..)| place.len()).map(|(_, _, focus)| *focus)
    };
    touched.iter().find_map(of_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Recipe;
    use std::path::Path;

    #[test]
    fn each_place_is_there_with_its_machines_and_knobs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("check is a room of the house");
        for (place, scenarios, focus) in ABOUT {
            assert!(root.join(place).exists() || root.join(format!("{place}.rs")).exists(), "{place} is not there");
            let all = crate::scenarios::all().iter().filter(|scenario| scenarios.contains(&scenario.name()));
            let all: Vec<_> = all.collect();
            assert_eq!(all.len(), scenarios.len(), "{place}");
            for bench in focus.benches {
                let has = |names: &crate::systematic::BenchNames| names.name() == *bench;
                assert!(all.iter().any(|scenario| scenario.benches().iter().any(has)), "{place}: {bench}");
            }
            let set = focus.set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let recipe = Recipe { set, ..Recipe::of(1) };
            for scenario in all {
                assert!(scenario.run(&recipe).is_ok_and(|run| run.failure.is_none()), "{place}, {}", scenario.name());
            }
        }
    }

    #[test]
    fn the_longest_place_of_a_scenario_counts() {
        let focus = |scenario, file: &str| focus(scenario, &["docs/check.md".into(), file.into()]);
        assert_eq!(focus("pc-posted", "drivers/src/hpet.rs").map(|focus| focus.benches), Some(&["timers"][..]));
        assert_eq!(focus("gicv3", "drivers/src/gic/its/queue.rs").map(|focus| focus.benches), Some(ITS));
        assert_eq!(focus("gicv2", "drivers/src/gic/its/queue.rs"), focus("gicv2", "drivers/src/gic/v2.rs"));
        assert_eq!(focus("gicv2", "irq/src/flow.rs"), None);
    }
}

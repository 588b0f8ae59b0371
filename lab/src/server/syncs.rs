//! What a measurement's syncs (fsync, fdatasync, sync_file_range) say of the drive's cache.
//!
//! The simulated drive is sent a Flush for a sync only if its cache is volatile. Most platforms assume that it is not, and
//! then a sync takes no time in the drive. Where the measured syncs did take time, that assumption does not hold for the
//! run: its rates have the syncs in them, and tell nothing of writes.

use super::DRIVE;
use super::fit::NOISE;
use super::gather::Measurement;
use super::shape::GUESS;
use super::starts::SOFTWARE_NS;
use super::write::Own;
use crate::input::Warning;
use crate::platform::Platform;
use std::collections::BTreeMap;

/// What a measurement's syncs say of the drive's cache.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Syncs {
    /// Nothing: there were none, or the drive has a volatile cache, or the kernel states that it has none.
    #[default]
    Told,
    /// That the drive has no volatile cache is assumed, and they do not contradict it.
    Assumed,
    /// They took so long on average, in ns, that something was flushed.
    Flushed(f64),
}

impl Syncs {
    /// True if they took time that the simulated ones do not take.
    pub fn contradict(self) -> bool {
        matches!(self, Self::Flushed(_))
    }
}

/// What the syncs of a measurement say, on a server with these stated constants.
pub(super) fn said(measurement: &Measurement, started: &BTreeMap<String, Own>, base: &Platform) -> Syncs {
    let stated = started.get(&format!("drive.{DRIVE}.volatile_cache")).filter(|own| own.reason != GUESS);
    let of_base = base.drives.first().is_some_and(|(_, drive)| drive.volatile_cache.is_set());
    let is_volatile = stated.map_or(of_base, |own| own.value > 0.0);
    match longer(measurement) {
        _ if is_volatile => Syncs::Told,
        Some(mean_ns) => Syncs::Flushed(mean_ns),
        None if stated.is_some() => Syncs::Told,
        None => Syncs::Assumed,
    }
}

/// The mean time of its syncs in ns, if each took longer than what software adds to a command, and all of them more of the
/// threads' time than the noise. A sync that sends no command waits for nothing.
fn longer(measurement: &Measurement) -> Option<f64> {
    let jobs = &measurement.fio.jobs;
    let of_syncs = || jobs.iter().filter_map(|job| Some((job.syncs.count as f64, job.syncs.lat_ns?)));
    let (count, total_ns) = of_syncs().fold((0.0, 0.0), |(count, sum), (ios, ns)| (count + ios, sum + ios * ns));
    let longest_ms = jobs.iter().flat_map(|job| &job.directions).map(|one| one.runtime_ms).fold(1.0, f64::max);
    let threads_ns = longest_ms * 1e6 * f64::from(measurement.threads());
    let mean_ns = total_ns / count;
    (mean_ns > SOFTWARE_NS && total_ns > threads_ns * NOISE).then_some(mean_ns)
}

/// The notes of a plan's warnings. That there is nothing to flush is the platform's word, and stands there as such.
pub(super) fn notes(measurement: &Measurement, warnings: &[Warning]) -> Vec<String> {
    let name = &measurement.name;
    let is_of_syncs = |warning: &&Warning| ["fsync", "fdatasync"].contains(&warning.key.as_str());
    let of_others = warnings.iter().filter(|warning| !is_of_syncs(warning));
    let mut notes: Vec<String> = of_others.map(|warning| format!("{name}: {warning}")).collect();
    let of_syncs = warnings.iter().filter(is_of_syncs);
    match measurement.syncs {
        Syncs::Flushed(mean_ns) => notes.push(format!(
            "{name}: its syncs took {:.1} us on average, so something was flushed; the simulated drive has no volatile cache, \
             and a sync takes no time in it. The run's rates and CPU times are compared, and not fitted; valid: a run without \
             syncs, or an archive of scripts/measure-server if the drive has a volatile cache",
            mean_ns / 1000.0
        )),
        Syncs::Assumed => notes.extend(of_syncs.map(|warning| {
            format!("{name}: {warning}; that it has none is assumed, and the drive's queue/write_cache would say")
        })),
        Syncs::Told => notes.extend(of_syncs.map(|warning| format!("{name}: {warning}"))),
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::gather::Parts;
    use super::super::{misses, write};
    use super::*;
    use crate::input::Place;
    use crate::setting::Setting;

    /// Writes of 15 us for 10 s, with as many syncs.
    fn measurement(ios: u32, sync_ns: u32) -> Measurement {
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", "job options": {{"rw": "randwrite", "fsync": "1", "direct": "1", "filename": "/dev/nvme0n1"}},
            "write": {{"iops": {}, "total_ios": {ios}, "runtime": 10000, "clat_ns": {{"mean": 15000, "max": 90000, "N": {ios}}}}},
            "sync": {{"total_ios": {ios}, "lat_ns": {{"min": 1, "max": 2, "mean": {sync_ns}, "N": {ios}}}}}}}]}}"#,
            ios / 10
        );
        Measurement::read("x", &Parts { fio: fio.as_bytes(), ..Parts::default() }).unwrap().0
    }

    fn base() -> Platform {
        Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap()
    }

    fn stated(value: f64) -> BTreeMap<String, Own> {
        let own = Own { value, reason: "stated: queue/write_cache".to_owned(), ..Own::default() };
        [(format!("drive.{DRIVE}.volatile_cache"), own)].into()
    }

    #[test]
    fn syncs_that_took_time_contradict_a_cache_that_nothing_flushes() {
        let base = base();
        let of = |ios, sync_ns, started| said(&measurement(ios, sync_ns), &started, &base);
        let untold = BTreeMap::new;
        assert_eq!(of(50_000, 170_000, untold()), Syncs::Flushed(170_000.0));
        assert_eq!(of(50_000, 170_000, stated(0.0)), Syncs::Flushed(170_000.0), "whatever the kernel states");
        assert_eq!(of(50_000, 170_000, stated(1.0)), Syncs::Told, "the fit has a flush for them");
        assert_eq!(of(400_000, 1_500, untold()), Syncs::Assumed, "a call that sends nothing");
        assert_eq!(of(400_000, 1_500, stated(0.0)), Syncs::Told);
        assert_eq!(of(10, 170_000, untold()), Syncs::Assumed, "so few move no rate");
    }

    #[test]
    fn rates_with_syncs_in_them_are_not_fitted() {
        let base = base();
        let table = |sync_ns| {
            let mut one = measurement(50_000, sync_ns);
            one.syncs = said(&one, &BTreeMap::new(), &base);
            let table = write::rows("mine", std::slice::from_ref(&one), &[true], None);
            let usage = |line: &str| line.split(',').nth(7).map(str::to_owned);
            let uses: Vec<String> = table.lines().skip(1).filter_map(usage).collect();
            (uses.join(" "), misses::reasons(&one).join("; ").contains("its syncs took time"))
        };
        assert_eq!(table(170_000), ("report fit".to_owned(), true));
        assert_eq!(table(1_500), ("fit fit".to_owned(), false));
    }

    #[test]
    fn an_assumption_is_named_as_such() {
        let warning = |key: &str| Warning {
            place: Place::option("test"),
            key: key.to_owned(),
            meaning: "there is nothing to flush".to_owned(),
        };
        let warnings = [warning("iodepth"), warning("fsync")];
        let of = |syncs| notes(&Measurement { syncs, ..measurement(50_000, 170_000) }, &warnings);
        let [others, flushed] = &of(Syncs::Flushed(170_000.0))[..] else { panic!() };
        assert!(others.contains("iodepth"), "{others}");
        assert!(
            flushed.starts_with("x: its syncs took 170.0 us") && !flushed.contains("nothing to flush"),
            "{flushed}"
        );
        assert!(of(Syncs::Assumed)[1].contains("there is nothing to flush; that it has none is assumed"));
        assert!(of(Syncs::Told)[1].ends_with("there is nothing to flush"));
    }
}

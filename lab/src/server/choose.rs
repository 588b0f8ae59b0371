//! Which of many measurements are used: the time of a fit grows with their number.

use super::gather::Measurement;

/// Most measurements that are fitted. `scripts/measure-server` makes about thirty; an archive of somebody's own may hold
/// thousands.
pub const FITTED_MAX: usize = 32;

/// Most measurements that are used at all; of more, those are left out that are most like the others.
pub const USED_MAX: usize = 128;

/// The indices of measurements, as many as may be used, each as unlike those before it as there are.
pub(super) fn order(measurements: &[Measurement]) -> Vec<usize> {
    let places: Vec<[f64; PLACE]> = measurements.iter().map(place).collect();
    apart(&places, USED_MAX)
}

const PLACE: usize = 6;

/// Where a measurement stands among others: what it measured and what it asked for, each as a logarithm.
fn place(measurement: &Measurement) -> [f64; PLACE] {
    let sections = &measurement.sections;
    let depth: f64 = sections.iter().map(|section| f64::from(section.iodepth) * f64::from(section.numjobs)).sum();
    let block = sections.iter().map(|section| section.block_bytes).max().unwrap_or(0);
    let clat = measurement.fio.clat_ns().unwrap_or(0.0);
    let threads = f64::from(measurement.threads());
    [measurement.fio.iops(), clat, depth, f64::from(block), threads, measurement.drives() as f64]
        .map(|value| (value + 1.0).ln())
}

/// The indices of `most` places that lie far apart: first the one with the least latency, then always the one that is
/// furthest from those that are chosen.
fn apart(places: &[[f64; PLACE]], most: usize) -> Vec<usize> {
    if places.is_empty() {
        return Vec::new();
    }
    let first = (0..places.len()).min_by(|&a, &b| places[a][1].total_cmp(&places[b][1])).unwrap_or(0);
    let distance = |a: usize, b: usize| places[a].iter().zip(&places[b]).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let mut nearest: Vec<f64> = (0..places.len()).map(|at| distance(at, first)).collect();
    let mut chosen = vec![first];
    while chosen.len() < most.min(places.len()) {
        let left = (0..places.len()).filter(|at| !chosen.contains(at));
        let Some(next) = left.max_by(|&a, &b| nearest[a].total_cmp(&nearest[b])) else { break };
        chosen.push(next);
        nearest.iter_mut().enumerate().for_each(|(at, least)| *least = least.min(distance(at, next)));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::gather::Parts;
    use super::*;

    #[test]
    fn of_thousands_a_bounded_number_is_used() {
        let measurement = |index: usize| {
            let fio = format!(
                r#"{{"jobs": [{{"jobname": "a", "read": {{"iops": {}, "total_ios": 9, "clat_ns": {{"mean": {}, "max": 9}}}}}}]}}"#,
                100 + index,
                5_000_000 / (100 + index)
            );
            let parts = Parts { fio: fio.as_bytes(), job: Some(b"[a]\nfilename=/dev/nvme0n1\n"), ..Parts::default() };
            Measurement::read(&format!("m{index}"), &parts).unwrap().0
        };
        let all: Vec<Measurement> = (0..300).map(measurement).collect();
        let mut chosen = order(&all);
        assert_eq!((chosen.len(), chosen[0]), (USED_MAX, 299), "the least latency comes first");
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), USED_MAX);
    }

    #[test]
    fn places_that_lie_apart_are_chosen() {
        let of = |iops: f64, clat: f64| [iops, clat, 0.0, 0.0, 0.0, 0.0];
        let places = [of(1.0, 5.0), of(1.0, 4.0), of(1.1, 4.0), of(9.0, 6.0), of(5.0, 5.0), of(9.1, 6.0)];
        assert_eq!(apart(&places, 3), [1, 5, 4]);
        assert_eq!(apart(&places[..2], 3), [1, 0]);
        assert_eq!(apart(&[of(1.0, 1.0); 4], 2).len(), 2);
        assert!(apart(&[], 3).is_empty());
    }
}

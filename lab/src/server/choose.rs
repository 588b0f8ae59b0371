//! Which of many measurements a fit uses: its time grows with their number.

use super::gather::Measurement;

/// Most measurements that are fitted. `scripts/measure-server` makes about thirty; an archive of somebody's own may hold
/// thousands.
pub const FITTED_MAX: usize = 32;

/// For each measurement, whether it is fitted: as many as may be, as unlike each other as there are. The others are only
/// compared.
pub(super) fn fitted(measurements: &[Measurement]) -> Vec<bool> {
    let places: Vec<[f64; PLACE]> = measurements.iter().map(place).collect();
    let chosen = apart(&places, FITTED_MAX);
    (0..measurements.len()).map(|at| chosen.contains(&at)).collect()
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
    if places.len() <= most {
        return (0..places.len()).collect();
    }
    let first = (0..places.len()).min_by(|&a, &b| places[a][1].total_cmp(&places[b][1])).unwrap_or(0);
    let distance = |a: usize, b: usize| places[a].iter().zip(&places[b]).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let mut nearest: Vec<f64> = (0..places.len()).map(|at| distance(at, first)).collect();
    let mut chosen = vec![first];
    while chosen.len() < most {
        let left = (0..places.len()).filter(|at| !chosen.contains(at));
        let Some(next) = left.max_by(|&a, &b| nearest[a].total_cmp(&nearest[b])) else { break };
        chosen.push(next);
        nearest.iter_mut().enumerate().for_each(|(at, least)| *least = least.min(distance(at, next)));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_lie_apart_are_chosen() {
        let of = |iops: f64, clat: f64| [iops, clat, 0.0, 0.0, 0.0, 0.0];
        let places = [of(1.0, 5.0), of(1.0, 4.0), of(1.1, 4.0), of(9.0, 6.0), of(5.0, 5.0), of(9.1, 6.0)];
        assert_eq!(apart(&places, 3), [1, 5, 4]);
        assert_eq!(apart(&places[..2], 3), [0, 1]);
        assert_eq!(apart(&[of(1.0, 1.0); 4], 2).len(), 2);
        assert!(apart(&[], 3).is_empty());
    }
}

//! The ways of drawn servers to ones that give the rows back: what they keep, and what needs no runs.

use super::explain::PRIOR;
use super::linear::dot;

/// Places at which slopes are measured for those that begin again.
const LEADERS: usize = 4;
/// A value below this share of the measured one counts as this share.
const LEAST: f64 = 0.01;
/// The greatest change of a constant in one step.
pub(super) const STEP_MAX: f64 = 0.7;

/// The rows' change with each constant.
pub(super) type Slopes = Vec<Vec<f64>>;

/// A server on its way: where it is, and the rows' errors there.
#[derive(Clone)]
pub(super) struct Place {
    pub at: Vec<f64>,
    pub errors: Vec<f64>,
}

/// A server to find: where it was drawn, and the rows' errors that it is to have.
pub(super) struct Drawn {
    pub home: Vec<f64>,
    pub target: Vec<f64>,
}

/// The way of a drawn server to one that gives the rows back.
pub(super) struct Way {
    pub drawn: Drawn,
    /// It began at the centre.
    pub is_central: bool,
    /// Where it is; none where it was drawn, before it ran there.
    pub place: Option<Place>,
    /// What its short runs are off by.
    pub shift: Vec<f64>,
    /// The rows' change with each constant where it is, if it has slopes.
    pub slopes: Slopes,
    pub has_slopes: bool,
    /// The greatest change of a constant in its next step.
    pub most: f64,
    /// The places at which it was run in full.
    pub checked: Vec<Place>,
    /// It has come near to what it seeks.
    pub is_done: bool,
    /// It went on with slopes that were measured where it, or one that is near to it, gives the rows back.
    pub is_settled: bool,
    /// It does not go on in this round.
    pub is_idle: bool,
}

impl Way {
    /// From the centre with its slopes, or from where it was drawn.
    pub(super) fn new(drawn: Drawn, centre: Option<(&Place, &Slopes)>, seen: &[bool]) -> Self {
        let (size, rows) = (seen.len(), drawn.target.len());
        let (place, slopes) = match centre {
            Some((centre, slopes)) => {
                // What no row sees is where it was drawn.
                let at = |index: usize| if seen[index] { centre.at[index] } else { drawn.home[index] };
                (Some(Place { at: (0..size).map(at).collect(), errors: centre.errors.clone() }), slopes.clone())
            }
            None => (None, vec![vec![0.0; rows]; size]),
        };
        let is_central = place.is_some();
        let most = if is_central { 2.0 * PRIOR } else { STEP_MAX };
        let (shift, checked) = (vec![0.0; rows], Vec::new());
        Self {
            drawn,
            is_central,
            place,
            shift,
            slopes,
            has_slopes: is_central,
            most,
            checked,
            is_done: false,
            is_settled: false,
            is_idle: false,
        }
    }
}

/// How far two places are from each other in what the rows see.
pub(super) fn distance(a: &[f64], b: &[f64], seen: &[bool]) -> f64 {
    let seen = a.iter().zip(b).zip(seen).filter(|(_, seen)| **seen);
    seen.map(|((a, b), _)| (a - b).powi(2)).sum()
}

/// The indices of a few places that lie far apart.
pub(super) fn apart(places: &[(Place, Vec<f64>)], seen: &[bool]) -> Vec<usize> {
    let mut chosen = vec![0];
    while chosen.len() < LEADERS.min(places.len()) {
        let nearest = |index: &usize| {
            let to = |other: &usize| distance(&places[*index].0.at, &places[*other].0.at, seen);
            chosen.iter().map(to).fold(f64::INFINITY, f64::min)
        };
        let left = (0..places.len()).filter(|index| !chosen.contains(index));
        chosen.extend(left.max_by(|a, b| nearest(a).total_cmp(&nearest(b))));
    }
    chosen
}

/// Relative errors as logarithms: a row that is a product of constants is then linear in theirs.
pub(super) fn logs(errors: &[f64]) -> Vec<f64> {
    errors.iter().map(|error| (1.0 + error).max(LEAST).ln()).collect()
}

/// Changes slopes by as little as makes them right for a step that was run.
pub(super) fn mend(slopes: &mut Slopes, from: &Place, to: &Place) {
    let step: Vec<f64> = to.at.iter().zip(&from.at).map(|(to, from)| to - from).collect();
    let length = dot(&step, &step);
    if length < 1e-6 {
        return;
    }
    for row in 0..from.errors.len() {
        let expected: f64 = slopes.iter().zip(&step).map(|(slope, step)| slope[row] * step).sum();
        let missed = to.errors[row] - from.errors[row] - expected;
        slopes.iter_mut().zip(&step).for_each(|(slope, step)| slope[row] += missed * step / length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_lie_apart_in_what_the_rows_see() {
        let place = |at: [f64; 2]| (Place { at: at.to_vec(), errors: Vec::new() }, Vec::new());
        let places = [[0.0, 0.0], [0.1, 9.0], [1.0, 0.0], [0.5, 0.0], [-0.2, 0.0], [0.9, 0.0]].map(place);
        assert_eq!(apart(&places, &[true, false]), [0, 2, 3, 4]);
        assert_eq!(apart(&places[..1], &[true, false]), [0]);
    }

    #[test]
    fn mended_slopes_are_right_along_the_step() {
        let place = |at: [f64; 2], error: f64| Place { at: at.to_vec(), errors: vec![error] };
        let mut slopes = vec![vec![1.0], vec![0.5]];
        mend(&mut slopes, &place([0.0, 0.0], 0.0), &place([0.2, 0.0], 0.6));
        assert!((slopes[0][0] - 3.0).abs() < 1e-9 && slopes[1][0] == 0.5, "{slopes:?}");
        assert!((logs(&[0.5])[0] - 1.5f64.ln()).abs() < 1e-12 && logs(&[-1.0])[0] == LEAST.ln());
    }
}

//! A region that linear limits enclose: `normals · x <= limits`, the origin inside.

use machine::Stream;

/// The region. Its limits are not negative, so the origin belongs to it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Polytope {
    size: usize,
    normals: Vec<Vec<f64>>,
    limits: Vec<f64>,
}

/// Numbers below this are zero: the limits are relative errors and logarithms, near 0.01.
const TINY: f64 = 1e-12;
/// Most steps of the simplex. Bland's rule ends it long before.
const PIVOTS_MAX: u32 = 10_000;

impl Polytope {
    /// The box in which coordinate `i` is between the two numbers of `bounds[i]`, which enclose zero.
    pub(super) fn of_box(bounds: &[[f64; 2]]) -> Self {
        let mut polytope = Self { size: bounds.len(), normals: Vec::new(), limits: Vec::new() };
        for (at, [low, high]) in bounds.iter().enumerate() {
            let unit = |value: f64| (0..bounds.len()).map(|other| if other == at { value } else { 0.0 }).collect();
            polytope.limit(unit(1.0), *high);
            polytope.limit(unit(-1.0), -low);
        }
        polytope
    }

    /// Adds a limit: `normal · x <= limit`. A negative limit counts as zero.
    pub(super) fn limit(&mut self, normal: Vec<f64>, limit: f64) {
        self.normals.push(normal);
        self.limits.push(limit.max(0.0));
    }

    /// The point of the region that lies furthest in `direction`: the simplex method from the origin, with Bland's
    /// rule, on x = u - v with u and v not negative.
    pub(super) fn furthest(&self, direction: &[f64]) -> Vec<f64> {
        let (size, count) = (self.size, self.normals.len());
        let width = 2 * size + count;
        let row = |at: usize| {
            let normal = &self.normals[at];
            let slack = (0..count).map(move |other| if other == at { 1.0 } else { 0.0 });
            normal.iter().copied().chain(normal.iter().map(|x| -x)).chain(slack).chain([self.limits[at]]).collect()
        };
        let mut table: Vec<Vec<f64>> = (0..count).map(row).collect();
        let costs = direction.iter().map(|x| -x).chain(direction.iter().copied());
        table.push(costs.chain(std::iter::repeat_n(0.0, count + 1)).collect());
        let mut basis: Vec<usize> = (2 * size..width).collect();
        for _ in 0..PIVOTS_MAX {
            let Some(entering) = (0..width).find(|&column| table[count][column] < -TINY) else { break };
            let ratio = |row: usize| table[row][width] / table[row][entering];
            let candidates = (0..count).filter(|&row| table[row][entering] > TINY);
            let first = |&a: &usize, &b: &usize| ratio(a).total_cmp(&ratio(b)).then(basis[a].cmp(&basis[b]));
            let Some(leaving) = candidates.min_by(first) else { break };
            pivot(&mut table, leaving, entering);
            basis[leaving] = entering;
        }
        let value = |column: usize| basis.iter().position(|&b| b == column).map_or(0.0, |row| table[row][width]);
        (0..size).map(|at| value(at) - value(size + at)).collect()
    }

    /// From a point inside, the distances in `direction` and against it at which the region ends.
    fn chord(&self, from: &[f64], direction: &[f64]) -> [f64; 2] {
        let mut ends = [f64::NEG_INFINITY, f64::INFINITY];
        for (normal, limit) in self.normals.iter().zip(&self.limits) {
            let (speed, left) = (dot(normal, direction), (limit - dot(normal, from)).max(0.0));
            if speed > TINY {
                ends[1] = ends[1].min(left / speed);
            } else if speed < -TINY {
                ends[0] = ends[0].max(left / speed);
            }
        }
        ends
    }

    /// `count` points of the region by hit and run: each step goes to a random place on a random chord. `widths`, the
    /// sizes of the region along each coordinate, scale the directions. Every second point lies near the end of a
    /// chord, since an interval is made by its ends.
    pub(super) fn draw(&self, count: usize, widths: &[f64], random: &mut Stream) -> Vec<Vec<f64>> {
        let mut at = vec![0.0; self.size];
        let mut points = Vec::with_capacity(count);
        for index in 0..count {
            for _ in 0..MIXING {
                let share = unit(random);
                at = self.on_chord(&at, widths, share, random);
            }
            points.push(if index % 2 == 0 { self.on_chord(&at, widths, NEAR_END, random) } else { at.clone() });
        }
        points
    }

    /// The point at `share` of the length of a random chord through `from`.
    fn on_chord(&self, from: &[f64], widths: &[f64], share: f64, random: &mut Stream) -> Vec<f64> {
        let direction: Vec<f64> = widths.iter().map(|width| width * (2.0 * unit(random) - 1.0)).collect();
        let [low, high] = self.chord(from, &direction);
        let along = if low.is_finite() && high.is_finite() { low + share * (high - low) } else { 0.0 };
        from.iter().zip(&direction).map(|(x, d)| x + along * d).collect()
    }
}

/// Steps between two points, so that neighbours have little in common.
const MIXING: u32 = 20;
/// Where on its chord a point near the end lies: inside, because the limits are linear and the rows are not.
const NEAR_END: f64 = 0.97;

/// From 0 to 1.
pub(super) fn unit(random: &mut Stream) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// Solves a system by Gaussian elimination with pivots. Each line ends with its right side. The system has one solution.
pub(super) fn eliminate(mut lines: Vec<Vec<f64>>) -> Vec<f64> {
    let size = lines.len();
    for pivot in 0..size {
        let best = (pivot..size).max_by(|&a, &b| lines[a][pivot].abs().total_cmp(&lines[b][pivot].abs()));
        lines.swap(pivot, best.unwrap_or(pivot));
        let of_pivot = lines[pivot].clone();
        for (index, line) in lines.iter_mut().enumerate() {
            let factor = if index == pivot { 0.0 } else { line[pivot] / of_pivot[pivot] };
            line.iter_mut().zip(&of_pivot).for_each(|(value, of_pivot)| *value -= factor * of_pivot);
        }
    }
    (0..size).map(|row| lines[row][size] / lines[row][row]).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Makes `column` a unit vector with its one in `row`.
fn pivot(table: &mut [Vec<f64>], row: usize, column: usize) {
    let by = table[row][column];
    table[row].iter_mut().for_each(|value| *value /= by);
    let line = table[row].clone();
    for (at, other) in table.iter_mut().enumerate() {
        let factor = if at == row { 0.0 } else { other[column] };
        other.iter_mut().zip(&line).for_each(|(value, of_line)| *value -= factor * of_line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// |x + y| <= 1 and |x - y| <= 3 within |x|, |y| <= 10: corners (2, -1), (-1, 2), (1, -2), (-2, 1).
    fn diamond() -> Polytope {
        let mut region = Polytope::of_box(&[[-10.0, 10.0]; 2]);
        for (normal, limit) in [([1.0, 1.0], 1.0), ([-1.0, -1.0], 1.0), ([1.0, -1.0], 3.0), ([-1.0, 1.0], 3.0)] {
            region.limit(normal.to_vec(), limit);
        }
        region
    }

    #[test]
    fn the_furthest_point_is_a_corner() {
        let found = |direction: [f64; 2]| diamond().furthest(&direction);
        let is_near = |point: Vec<f64>, x: f64, y: f64| (point[0] - x).abs() < 1e-9 && (point[1] - y).abs() < 1e-9;
        assert!(is_near(found([1.0, 0.1]), 2.0, -1.0), "{:?}", found([1.0, 0.1]));
        assert!(is_near(found([-1.0, -0.1]), -2.0, 1.0));
        assert!(is_near(found([0.1, 1.0]), -1.0, 2.0));
        let open = Polytope::of_box(&[[-10.0, 4.0]]);
        assert_eq!((open.furthest(&[1.0]), open.furthest(&[-1.0])), (vec![4.0], vec![-10.0]));
    }

    #[test]
    fn a_region_without_size_is_its_origin() {
        let mut region = Polytope::of_box(&[[-1.0, 1.0]]);
        region.limit(vec![1.0], 0.0);
        region.limit(vec![-1.0], -0.5);
        assert_eq!(region.furthest(&[1.0]), [0.0]);
        assert!(region.draw(4, &[1.0], &mut Stream::new(1, 0)).iter().all(|point| point == &[0.0]));
    }

    #[test]
    fn drawn_points_are_inside_reach_the_ends_and_are_the_same_each_time() {
        let region = diamond();
        let points = region.draw(200, &[2.0, 2.0], &mut Stream::new(1, 0));
        let is_inside = |p: &Vec<f64>| (p[0] + p[1]).abs() <= 1.0 + 1e-9 && (p[0] - p[1]).abs() <= 3.0 + 1e-9;
        assert!(points.iter().all(is_inside));
        let greatest = points.iter().map(|point| point[0]).fold(0.0, f64::max);
        assert!(greatest > 1.8, "{greatest}");
        assert_eq!(points, region.draw(200, &[2.0, 2.0], &mut Stream::new(1, 0)));
        assert_ne!(points, region.draw(200, &[2.0, 2.0], &mut Stream::new(2, 0)));
    }
}

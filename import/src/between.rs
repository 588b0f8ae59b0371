//! What came between two readings of `/proc/interrupts`, and which of them was first.

use crate::interrupt_line::Line;
use crate::interrupts::Interrupts;
use std::collections::BTreeMap;

impl Interrupts {
    /// True if `later` was read before `self`: more of its counts are lower than higher, of the CPUs that both have. A count
    /// that wrapped at 32 bits is higher.
    pub fn is_behind(&self, later: &Self) -> bool {
        let columns: BTreeMap<u32, usize> = self.cpus.iter().enumerate().map(|(column, &cpu)| (cpu, column)).collect();
        let mine: BTreeMap<&str, &Line> = self.lines.iter().map(|line| (line.id.as_str(), line)).collect();
        let (mut rises, mut falls) = (0, 0);
        for line in &later.lines {
            let Some(earlier) = mine.get(line.id.as_str()) else { continue };
            let of_both = line.counts.iter().zip(&later.cpus).filter_map(|(&count, cpu)| {
                let before = *earlier.counts.get(*columns.get(cpu)?)?;
                Some(change(before, count))
            });
            match of_both.fold(0i64, i64::saturating_add).signum() {
                1 => rises += 1,
                -1 => falls += 1,
                _ => {}
            }
        }
        falls > rises
    }

    /// True if `later` can be a later reading of the same machine, and something happened in between: the same lines, and
    /// no count lower.
    pub fn only_rises_to(&self, later: &Self) -> bool {
        let is_same = |(one, other): (&Line, &Line)| {
            one.id == other.id && one.text == other.text && one.counts.len() == other.counts.len()
        };
        let lines = || self.lines.iter().zip(&later.lines);
        let counts = || lines().flat_map(|(one, other)| one.counts.iter().zip(&other.counts));
        self.cpus == later.cpus
            && self.lines.len() == later.lines.len()
            && lines().all(is_same)
            && counts().all(|(before, after)| before <= after)
            && counts().any(|(before, after)| before < after)
    }

    /// The line with that id.
    pub fn line(&self, id: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.id == id)
    }

    /// Each interrupt's count of each CPU from `self` to `later`. CPUs are matched by number, since CPUs come and go;
    /// interrupts by id and actions, since a number may have got another device. A count that fell has wrapped at 32 bits
    /// (kernels count in `unsigned int`), or its CPU or interrupt was set up anew: then the later count holds.
    pub fn until(&self, later: &Self) -> Vec<Difference> {
        // Of a queue, what stands behind its name is not its own.
        let key = |line: &Line| {
            (
                line.id.clone(),
                line.nvme_queue(),
                line.nvme_queue().map_or_else(|| line.actions().join(","), |_| String::new()),
            )
        };
        let mine: BTreeMap<_, &Line> = self.lines.iter().map(|line| (key(line), line)).collect();
        let columns: BTreeMap<u32, usize> = self.cpus.iter().enumerate().map(|(column, &cpu)| (cpu, column)).collect();
        let mut differences = Vec::new();
        for line in &later.lines {
            let earlier = mine.get(&key(line));
            let mut counts = Vec::with_capacity(line.counts.len());
            let mut is_anew = false;
            for (column, &count) in line.counts.iter().enumerate() {
                let cpu = later.cpus.get(column).copied();
                let before = earlier.and_then(|earlier| {
                    let column = match cpu {
                        Some(cpu) => *columns.get(&cpu)?,
                        None => column,
                    };
                    earlier.counts.get(column).copied()
                });
                let rise = rise(before.unwrap_or(0), count);
                is_anew |= rise.is_none();
                counts.push((cpu.unwrap_or(column as u32), rise.unwrap_or(count)));
            }
            differences.push(Difference { line: line.clone(), counts, is_anew });
        }
        differences
    }
}

/// How often an interrupt came between two readings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The line of the later reading.
    pub line: Line,
    /// CPU and count.
    pub counts: Vec<(u32, u64)>,
    /// A count fell and did not wrap: the interrupt was set up anew, and what came before that is missing.
    pub is_anew: bool,
}

impl Difference {
    /// All CPUs together.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }
}

/// Kernels count in `unsigned int`.
const WRAP: u64 = 1 << 32;

/// From `before` to `after`; none if the count fell and did not wrap. See [`Interrupts::until`].
fn rise(before: u64, after: u64) -> Option<u64> {
    // A wrap within a measurement begins near the top and ends near the bottom.
    let has_wrapped = before < WRAP && before.saturating_sub(after) > WRAP / 2;
    after.checked_sub(before).or_else(|| has_wrapped.then(|| after + WRAP - before))
}

/// The change of a count that may have wrapped: of the two ways round, the shorter.
fn change(before: u64, after: u64) -> i64 {
    let difference = after.wrapping_sub(before);
    if before < WRAP && after < WRAP { i64::from(difference as u32 as i32) } else { difference as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupts::tests::X86;

    #[test]
    fn a_difference_follows_cpus_and_wraps() {
        let before = Interrupts::parse(X86.as_bytes());
        let later = "CPU0 CPU3 CPU4\n 34: 4 11 2 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n PMN: 6 8 9 Posted\n";
        let differences = before.until(&Interrupts::parse(later.as_bytes()));
        assert_eq!(differences[0].counts, [(0, 10), (3, 10), (4, 2)], "a wrap, a rise, a new CPU");
        assert_eq!(differences[1].total(), 1 + 1 + 9);
        assert!(differences.iter().all(|one| !one.is_anew));
        let anew = before.until(&Interrupts::parse(b"CPU1\n 34: 3 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n"));
        assert_eq!((anew[0].total(), anew[0].is_anew), (3, true));
    }

    #[test]
    fn counts_that_wrapped_are_in_their_order() {
        let at = |count: u64| {
            let lines: String = (1..4).map(|at| format!(" 4{at}: 0 {count} PCI-MSI {at}-edge nvme0q{at}\n")).collect();
            Interrupts::parse(format!("CPU0 CPU1\n{lines} LOC: 7 7 Local\n").as_bytes())
        };
        let (before, later) = (at(WRAP - 1000), at(23_000));
        assert!(!before.is_behind(&later) && later.is_behind(&before));
        assert_eq!(before.until(&later)[0].counts, [(0, 0), (1, 24_000)]);
        // Wider counters do not wrap there.
        assert!(at(WRAP + 9).is_behind(&at(5)) && !at(5).is_behind(&at(WRAP + 9)));
        // From the middle to the bottom is too far for a wrap.
        assert!(at(WRAP / 2 + 9).until(&at(WRAP / 2 - 9))[0].is_anew);
    }

    #[test]
    fn an_interrupt_that_went_to_another_device_counts_from_nothing() {
        let before = Interrupts::parse(b"CPU0\n 34: 100 PCI-MSI 1-edge eth0\n");
        let later = Interrupts::parse(b"CPU0\n 34: 130 PCI-MSI 1-edge nvme0q1\n");
        assert_eq!(before.until(&later)[0].total(), 130);
    }
}

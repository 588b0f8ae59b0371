//! What Linux's forced-threaded lines cost at distributor and redistributor.

use super::{Linux, traced, virt};
use crate::matrix::Case;
use crate::process::Answer;
use crate::run::{READS, WRITES};
use crate::{BootError, Row, trace};
use std::path::Path;

/// Interrupts of the two runs that are subtracted.
const ROUNDS: [u64; 2] = [20, 200];
/// The SPI that our image raises too.
const UNUSED_SPI: u32 = 100;
/// Our reads beside those of the second baseline.
const POLLING_READS: &str = "GIC reads an interrupt, beside Linux that polls as before 5.19";

/// A kernel of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kernel {
    /// Debian's cloud kernel.
    Debian,
    /// The judges' kernel, which can raise an interrupt.
    Judges,
    /// That kernel, with RWP polled after each write to a line, as Linux did before 5.19.
    Polling,
}

impl Kernel {
    /// The file in the folder of the judges.
    pub(super) fn file(self) -> Option<&'static str> {
        match self {
            Self::Debian => None,
            Self::Judges => Some("Image"),
            Self::Polling => Some("Image-polling"),
        }
    }
}

/// Writes and reads of an interrupt, or the guest's failure.
pub(super) type Counted = Result<(f64, f64), String>;

/// The kernels whose figures stand beside a case. Only a GICv3 has RWP.
pub(super) fn kernels(case: Case, gic: u8) -> &'static [Kernel] {
    match (case, gic) {
        (Case::Serial, 2) => &[Kernel::Debian],
        (Case::Serial, _) => &[Kernel::Debian, Kernel::Polling],
        (_, 2) => &[Kernel::Judges],
        _ => &[Kernel::Judges, Kernel::Polling],
    }
}

/// The writes and reads that an interrupt must make: mask and unmask, the write that raises, and the polls of RWP.
pub(super) fn expected(case: Case, kernel: Kernel, gic: u8) -> (f64, f64) {
    let writes = if case == Case::Raise { 3.0 } else { 2.0 };
    let reads = match (gic, kernel) {
        (2, _) => 0.0,
        (_, Kernel::Polling) => writes,
        // Only after the mask.
        _ => 1.0,
    };
    (writes, reads)
}

/// The difference between a long and a short run.
///
/// # Errors
/// [`BootError`].
pub(super) fn measure(linux: &Linux, kernel: &Path, case: Case, gic: u8, level: u8) -> Result<Counted, BootError> {
    let mut sums = Vec::new();
    for rounds in ROUNDS {
        let spi = if case == Case::Raise { format!(" irq_raise.spi={UNUSED_SPI}") } else { String::new() };
        let options = format!("console=ttyAMA0 threadirqs case={case} rounds={rounds}{spi}");
        let mut qemu = linux.command_with(kernel, 1, &options);
        qemu.args(virt(gic, level));
        let folder = tempfile::tempdir().map_err(|error| BootError::Io("a temporary folder".into(), error))?;
        let mark = trace::linux_mark(gic);
        let (ended, events) = match traced(qemu, trace::accesses(gic), mark, folder.path(), Answer::Typed(b"x"))? {
            Ok(ran) => ran,
            Err(failure) => return Ok(Err(failure)),
        };
        let interrupts = ended.counts().get("interrupts").copied().unwrap_or(0);
        sums.push((trace::sum(&events, "_write"), trace::sum(&events, "_read"), interrupts as i64));
    }
    let [short, long] = sums[..] else { unreachable!("two runs") };
    let interrupts = (long.2 - short.2) as f64;
    Ok(Ok(((long.0 - short.0) as f64 / interrupts, (long.1 - short.1) as f64 / interrupts)))
}

/// Linux's writes and reads beside ours; those of the second baseline in a row of their own.
pub(super) fn put(rows: &mut Vec<Row>, peer: &Counted, kernel: Kernel, expected: (f64, f64)) {
    if kernel == Kernel::Polling {
        let Some(ours) = rows.iter().find(|row| row.quantity == READS) else { return };
        let mut row = Row { quantity: POLLING_READS.into(), policy: None, ..ours.clone() };
        let reads = peer.as_ref().map(|&(_, reads)| reads);
        join(&mut row, reads, peer.as_ref().is_ok_and(|&counted| counted == expected));
        rows.push(row);
        return;
    }
    for row in rows {
        let (value, expected) = match row.quantity.as_str() {
            WRITES => (peer.as_ref().map(|&(writes, _)| writes), expected.0),
            READS => (peer.as_ref().map(|&(_, reads)| reads), expected.1),
            _ => continue,
        };
        join(row, value, value == Ok(expected));
    }
}

fn join(row: &mut Row, value: Result<f64, &String>, is_right: bool) {
    match value {
        Ok(value) => row.peer_value = Some(value),
        Err(failure) => row.note = Some(format!("Linux: {failure}")),
    }
    row.pass &= is_right;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(peer: Counted, kernel: Kernel) -> Vec<(Option<f64>, bool)> {
        let row = |quantity: &str| Row { quantity: quantity.into(), pass: true, ..Row::default() };
        let mut rows = vec![row(WRITES), row(READS), row("interrupts")];
        put(&mut rows, &peer, kernel, expected(Case::Serial, kernel, 3));
        rows.iter().map(|row| (row.peer_value, row.pass)).collect()
    }

    #[test]
    fn a_peer_that_costs_something_else_fails() {
        let none = (None, true);
        assert_eq!(judged(Ok((2.0, 1.0)), Kernel::Debian), [(Some(2.0), true), (Some(1.0), true), none]);
        assert_eq!(judged(Ok((2.5, 1.0)), Kernel::Debian), [(Some(2.5), false), (Some(1.0), true), none]);
        assert_eq!(judged(Err("hung".into()), Kernel::Debian), [(None, false), (None, false), none]);
    }

    #[test]
    fn the_second_baseline_has_a_row_of_its_own() {
        let none = (None, true);
        assert_eq!(judged(Ok((2.0, 2.0)), Kernel::Polling), [none, none, none, (Some(2.0), true)]);
        assert_eq!(judged(Ok((2.0, 1.0)), Kernel::Polling), [none, none, none, (Some(1.0), false)]);
        assert_eq!(judged(Ok((3.0, 2.0)), Kernel::Polling), [none, none, none, (Some(2.0), false)]);
        assert_eq!(judged(Err("hung".into()), Kernel::Polling), [none, none, none, (None, false)]);
    }

    #[test]
    fn a_raise_costs_a_write_more_and_a_gicv2_is_not_polled() {
        let kernels_of = |case, gic| kernels(case, gic).iter().map(move |&kernel| expected(case, kernel, gic));
        assert_eq!(kernels_of(Case::Raise, 3).collect::<Vec<_>>(), [(3.0, 1.0), (3.0, 3.0)]);
        assert_eq!(kernels_of(Case::Serial, 3).collect::<Vec<_>>(), [(2.0, 1.0), (2.0, 2.0)]);
        assert_eq!(kernels_of(Case::Raise, 2).collect::<Vec<_>>(), [(3.0, 0.0)]);
    }
}

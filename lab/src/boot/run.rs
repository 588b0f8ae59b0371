//! What a setting is judged by.

use super::image::Image;
use super::matrix::{Machine, Setting};
use super::qemu::{self, Run};
use super::{BootError, Row};

/// The shorter of the two runs whose difference is taken.
const SHORT_ROUNDS: u64 = 20;
/// A trace of more reads would fill disks.
const TRACED_READS_MAX: u64 = 100_000;

/// Runs a setting, and says what was counted.
///
/// # Errors
/// [`BootError`].
pub(super) fn measure(setting: &Setting, image: &Image) -> Result<Vec<Row>, BootError> {
    let traced = setting.rounds <= TRACED_READS_MAX;
    let run = qemu::run(setting, image, traced)?;
    let mut rows = Rows { case: setting.to_string(), rows: Vec::new() };
    if let Some(failure) = run.failure {
        let (case, quantity) = (setting.to_string(), "failures".into());
        return Ok(vec![Row { case, quantity, value: 1.0, pass: false, note: Some(failure) }]);
    }
    rows.is_what_was_asked(setting, &run);
    if let Some(wanted) = setting.accesses() {
        let short = qemu::run(&Setting { rounds: SHORT_ROUNDS, ..*setting }, image, traced)?;
        let interrupts = |run: &Run| run.counts.get("interrupts").map_or(0.0, |&count| count as f64);
        let more = interrupts(&run) - interrupts(&short);
        let each = |which: &str| difference(&run, &short, which) as f64 / more;
        let (writes, reads) = (each("_write"), each("_read"));
        rows.push("GIC writes an interrupt", writes, writes == wanted.writes as f64);
        rows.push("GIC reads an interrupt", reads, reads == wanted.reads as f64);
    }
    if let Some(&remapped) = run.events.get("vtd_ir_remap_msi") {
        // Messages that find their vector requested already become one interrupt with it.
        rows.push("MSIs that QEMU remapped", remapped as f64, remapped >= run.counts["interrupts"]);
    }
    Ok(rows.rows)
}

/// How many more events of a kind the longer run has.
fn difference(long: &Run, short: &Run, which: &str) -> i64 {
    let sum = |run: &Run| {
        let events = run.events.iter().filter(|(event, _)| event.ends_with(which));
        events.map(|(_, &count)| count as i64).sum::<i64>()
    };
    sum(long) - sum(short)
}

struct Rows {
    case: String,
    rows: Vec<Row>,
}

impl Rows {
    fn push(&mut self, quantity: &str, value: f64, pass: bool) {
        self.rows.push(Row { case: self.case.clone(), quantity: quantity.into(), value, pass, note: None });
    }

    /// The image's figures, which it has judged itself, and those by which it is seen to run where it should.
    fn is_what_was_asked(&mut self, setting: &Setting, run: &Run) {
        for (name, &value) in &run.counts {
            let wanted = match (name.as_str(), setting.machine) {
                ("exception_level", Machine::Virt { level, .. }) => Some(u64::from(level)),
                ("gic_version", Machine::Virt { gic, .. }) => Some(gic.into()),
                ("remapping", Machine::Q35 { remapping }) => Some(remapping.into()),
                ("cpus", _) => Some(setting.cpus.into()),
                _ => None,
            };
            match wanted {
                // Told in the name of the case already.
                Some(wanted) if wanted == value => {}
                _ => self.push(&name.replace('_', " "), value as f64, wanted.is_none()),
            }
        }
    }
}

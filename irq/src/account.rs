//! Counts, printed as `/proc/interrupts` prints them.

use crate::Irq;
use crate::delivery::IrqCore;
use crate::line::LineState;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use hal::{CpuId, Hal, Word};

/// One row: its label, one count per CPU, and the description at its end.
struct Row {
    label: String,
    counts: Vec<u64>,
    rest: String,
}

/// The counts of all online CPUs at one moment. Displays as `/proc/interrupts` of x86 Linux (`show_interrupts`,
/// `arch_show_interrupts`).
pub struct Interrupts {
    cpus: Vec<CpuId>,
    label_width: usize,
    rows: Vec<Row>,
    strays: u64,
}

impl fmt::Display for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.label_width;
        write!(f, "{:1$}", "", width + 8)?;
        for cpu in &self.cpus {
            write!(f, "CPU{:<8}", cpu.0)?;
        }
        writeln!(f)?;
        for Row { label, counts, rest } in &self.rows {
            write!(f, "{label:>width$}: ")?;
            for count in counts {
                write!(f, "{count:>10} ")?;
            }
            writeln!(f, "{rest}")?;
        }
        writeln!(f, "{:>width$}: {:>10}", "ERR", self.strays)
    }
}

impl Interrupts {
    /// Adds stray interrupts that a controller ended itself because no line owned them.
    pub fn with_strays(mut self, strays: u64) -> Self {
        self.strays += strays;
        self
    }
}

impl<H: Hal> IrqCore<H> {
    /// How many times `irq` was delivered on `cpu`. Returns 0 if either does not exist.
    pub fn count(&self, irq: Irq, cpu: CpuId) -> u64 {
        self.lines.get(irq.0 as usize).and_then(|line| line.counts.get(cpu.index())).map_or(0, |count| count.get())
    }

    /// The counts of all lines that have a handler or a nonzero count, and of all system vectors.
    pub fn interrupts(&self) -> Interrupts {
        let cpus: Vec<CpuId> = self.matrix.lock().online().iter().collect();
        // As in Linux: the label has three columns, and more when there may be more than a thousand lines.
        let label_width = self.config.lines_max.checked_ilog10().map_or(3, |log| log as usize + 1).max(3);
        let on = |counts: &[H::Word]| cpus.iter().map(|cpu| counts[cpu.index()].get()).collect::<Vec<_>>();
        let mut rows = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let counts = on(&line.counts);
            let state = line.state.lock();
            if !state.entries.is_empty() || counts.iter().any(|&count| count != 0) {
                rows.push(Row { label: format!("{index}"), counts, rest: describe(&state, label_width) });
            }
        }
        let system = self.systems.iter().map(|system| Row {
            label: system.abbreviation.into(),
            counts: on(&system.counts),
            rest: format!("  {}", system.description),
        });
        rows.extend(system);
        Interrupts { cpus, label_width, rows, strays: self.strays.iter().map(Word::get).sum() }
    }
}

/// Chip, hardware number, flow, and the names of the handlers.
fn describe(state: &LineState, width: usize) -> String {
    let Some(hardware) = state.hardware() else { return String::new() };
    let level = &hardware.levels[0];
    let flow = format!("{}", state.flow);
    let mut text = format!(" {:>8} {:>width$}-{flow:<8}", level.chip.name(), level.hwirq.0);
    for (index, entry) in state.entries.iter().enumerate() {
        text += if index == 0 { "  " } else { ", " };
        text += &entry.name;
    }
    text
}

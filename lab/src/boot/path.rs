//! Instructions of NVMe reads, ours and Linux's: of a read altogether, and of its interrupt.
//!
//! The same machine (q35, one CPU, a null drive behind QEMU's NVMe model), reads of 4 KiB, QEMU's time counted in
//! instructions; counted between two marks that the guest makes around the reads, so that boot is not in it.
//!
//! - **instructions a read**: of ours all that the CPU executes, whatever for: submission by a thread, interrupt,
//!   completion, the thread's way into and out of HLT. Of Linux's all in the kernel's half of the address space: system
//!   calls, block layer, interrupt, completion, scheduler, idling; without the program's own, which checks the data.
//! - **instructions an interrupt**: from the first at the gate to IRETQ, all of them. Linux's hold the block layer's and the
//!   asynchronous I/O's completion of the reads, ours the end of the commands and their user's callback.
//! - **without completion**: ours without the functions of [`COMPLETION`], which end a command, give its slot back and
//!   tell the user; Linux's in [`PATH`] alone: entry, flow, `nvme_irq`, `nvme_poll_cq`.
//! - **gate to EOI**: from the first instruction at the gate to the write of the local APIC's EOI register, that one
//!   included. Both kernels end an edge before they call its handler.
//! - **instructions of the check**: what a completion check after a submission adds to `submit`, outside of interrupts. The
//!   reaping after a look that finds something is a function of its own, and not in it.

use super::image::Image;
use super::peer::{self, Linux};
use super::plugin::{Instructions, OUTSIDE, Plugin};
use super::process::Ended;
use super::symbols::Symbols;
use super::{BootError, Row, process};
use std::process::Command;

/// Linux's functions from the gate to the return, without what completes a request. Locks and `ktime_get` are used by
/// completion too, which makes the sum some six instructions too large.
const PATH: [&str; 30] = [
    "irq_entries_start",
    "asm_common_interrupt",
    "error_entry",
    "irqentry_enter",
    "common_interrupt",
    "irq_enter_rcu",
    "__common_interrupt",
    "handle_edge_irq",
    "_raw_spin_lock",
    "_raw_spin_unlock",
    "apic_ack_edge",
    "irq_chip_ack_parent",
    "native_apic_mem_eoi",
    "handle_irq_event",
    "__handle_irq_event_percpu",
    "note_interrupt",
    "add_interrupt_randomness",
    "fast_mix",
    "nvme_irq",
    "nvme_poll_cq",
    "irq_exit_rcu",
    "__irq_exit_rcu",
    "idle_cpu",
    "irqentry_exit",
    "irqentry_exit_to_user_mode",
    "error_return",
    "swapgs_restore_regs_and_return_to_usermode",
    "restore_regs_and_return_to_kernel",
    "early_xen_iret_patch",
    "native_irq_return_iret",
];

/// Parts of the names of our functions that complete a command.
const COMPLETION: [&str; 2] = ["end_command", "path..Done"];
/// Part of the name of our submission, which the look of the completion check is in.
const SUBMISSION: [&str; 1] = ["QueuePair$LT$H$GT$6submit17h"];
/// Where Linux's half of the address space begins.
const KERNEL: u64 = 1 << 63;

/// Reads that are counted; whole rounds of either depth.
const READS: u64 = 1280;
/// What ours may take at a depth: instructions of a read, and of an interrupt. An interrupt's repeat to an instruction with
/// one compiler; a read's vary by one per cent, with the moment at which the host's thread sends the message. The bounds
/// leave three per cent more for the next compiler.
const BUDGETS: [(u64, [f64; 2]); 2] = [(1, [1118.0, 694.0]), (32, [373.0, 3667.0])];
/// What the completion check may add to a submission.
const CHECK_BUDGET: f64 = 34.0;

/// What a kernel executes for a depth.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    interrupts_a_read: f64,
    a_read: f64,
    an_interrupt: f64,
    without_completion: f64,
    to_eoi: f64,
}

/// Counts everything. The name of each run is told as it begins.
///
/// # Errors
/// [`BootError`]; a run that fails is a row that does not pass.
pub(super) fn measure(image: &Image, tell: impl Fn(&str)) -> Result<Vec<Row>, BootError> {
    let symbols = Symbols::of_image(&image.file)?;
    let lab = Lab { image, symbols, linux: Linux::new("x86_64", "amd64")?, plugin: Plugin::build()? };
    match lab.rows(tell) {
        Err(Stop::Failed(why)) => {
            let (case, quantity) = ("path".into(), "failures".into());
            Ok(vec![Row { case, quantity, value: 1.0, note: Some(why), ..Row::default() }])
        }
        Err(Stop::Error(error)) => Err(error),
        Ok(rows) => Ok(rows),
    }
}

/// Why there are no figures.
enum Stop {
    Failed(String),
    Error(BootError),
}

impl From<BootError> for Stop {
    fn from(error: BootError) -> Self {
        Self::Error(error)
    }
}

/// A run, and what was counted in it, a pair of marks after the other.
type Counted = (Ended, Vec<Instructions>);

struct Lab<'a> {
    image: &'a Image,
    /// The image's.
    symbols: Symbols,
    linux: Linux,
    plugin: Plugin,
}

impl Lab<'_> {
    fn rows(&self, tell: impl Fn(&str)) -> Result<Vec<Row>, Stop> {
        tell("path, Linux: instructions of reads");
        let (linux, counted) = self.linux()?;
        let mut rows = Vec::new();
        for ((depth, budgets), instructions) in BUDGETS.into_iter().zip(&counted) {
            let peer = linux_figures(&linux, instructions, depth)?;
            tell(&format!("path QD {depth}: instructions of reads"));
            let (ended, plain) = self.ours(depth, 0)?;
            rows.extend(compare(depth, budgets, &self.figures(&ended, &plain)?, &peer));
            if depth == 1 {
                let submission = |counted: &Instructions| {
                    let is_in = |address| self.symbols.is_in(&SUBMISSION, address);
                    counted.in_interrupts(OUTSIDE, is_in) as f64 / READS as f64
                };
                let added = submission(&self.ours(depth, 1)?.1) - submission(&plain);
                rows.push(row(depth, "instructions of the check, a submission", added, None, added <= CHECK_BUDGET));
            }
        }
        Ok(rows)
    }

    /// The image's case `path`.
    fn ours(&self, depth: u64, check: u64) -> Result<(Ended, Instructions), Stop> {
        let mut qemu = Command::new(&self.image.qemu);
        qemu.args(["-m", "256M", "-smp", "1", "-display", "none", "-nodefaults", "-no-reboot"]);
        qemu.args([
            "-serial",
            "stdio",
            "-monitor",
            "none",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=4",
            "-kernel",
        ]);
        qemu.arg(&self.image.file).args(["-append", &format!("path rounds={READS} depth={depth} check={check}")]);
        self.prepare(&mut qemu);
        let (ended, counted) = self.counted(process::run(qemu, b"", |status, lines| {
            status.code() == Some(1) && lines.iter().any(|line| line == "pass")
        })?)?;
        let counted = counted.into_iter().next().ok_or(Stop::Failed("the image makes no marks".into()))?;
        Ok((ended, counted))
    }

    /// Of the image's: the busiest gate is the drive's.
    fn figures(&self, ended: &Ended, counted: &Instructions) -> Result<Figures, Stop> {
        if !self.symbols.have(&COMPLETION) || !self.symbols.have(&SUBMISSION) {
            return Err(Stop::Failed(format!("the image has not all of the functions {COMPLETION:?}, {SUBMISSION:?}")));
        }
        let is_path = |address| !self.symbols.is_in(&COMPLETION, address);
        figures(ended, counted, "interrupts", |_| true, is_path, |_| true)
    }

    /// The guest, at each depth.
    fn linux(&self) -> Result<Counted, Stop> {
        let loads = BUDGETS.map(|(depth, _)| format!("{depth}:{READS}")).join(",");
        let options =
            format!("console=ttyS0 nokaslr mitigations=off case=nvme loads={loads} symbols={}", PATH.join(","));
        let mut qemu = self.linux.command(&options);
        self.prepare(&mut qemu);
        self.counted(peer::run(qemu, b"")?)
    }

    /// The machine, the same for both.
    fn prepare(&self, qemu: &mut Command) {
        qemu.args(["-M", "q35,kernel-irqchip=off", "-cpu", "max"]);
        qemu.args([
            "-blockdev",
            "null-co,node-name=d,size=1073741824,read-zeroes=on",
            "-device",
            "nvme,serial=1,drive=d",
        ]);
        self.plugin.load(qemu);
    }

    fn counted(&self, ended: Ended) -> Result<Counted, Stop> {
        match ended.failure {
            Some(failure) => Err(Stop::Failed(failure)),
            None => Ok((ended, self.plugin.counted()?)),
        }
    }
}

/// Linux's: the drive's gate is that in whose interrupts `nvme_irq` ran.
fn linux_figures(ended: &Ended, counted: &Instructions, depth: u64) -> Result<Figures, Stop> {
    let symbols = Symbols::told(&ended.lines);
    let is_handler = |address| symbols.is_in(&["nvme_irq"], address);
    let is_path = |address| symbols.contain(address);
    figures(ended, counted, &format!("interrupts_{depth}"), is_handler, is_path, |address| address >= KERNEL)
}

/// What was counted, by reads and interrupts. The drive's gate is that in whose interrupts the handler ran most, and the
/// kernel's own count must be the same.
fn figures(
    ended: &Ended,
    counted: &Instructions,
    interrupts: &str,
    is_handler: impl Fn(u64) -> bool,
    is_path: impl Fn(u64) -> bool,
    is_kernel: impl Fn(u64) -> bool,
) -> Result<Figures, Stop> {
    let gate = counted.gate_of(is_handler).ok_or(Stop::Failed("no interrupt came".into()))?;
    let told = ended.counts().get(interrupts).copied();
    let seen = counted.interrupts.get(&gate).copied().unwrap_or(0);
    if told != Some(seen) || seen == 0 {
        return Err(Stop::Failed(format!(
            "the kernel tells of {told:?} interrupts, and {seen} came through gate {gate:x}"
        )));
    }
    let to_eoi =
        counted.to_eoi(gate).ok_or(Stop::Failed(format!("not one EOI for each interrupt of gate {gate:x}")))?;
    let (reads, seen) = (READS as f64, seen as f64);
    Ok(Figures {
        interrupts_a_read: seen / reads,
        a_read: counted.anywhere(is_kernel) as f64 / reads,
        an_interrupt: counted.in_interrupts(gate, |_| true) as f64 / seen,
        without_completion: counted.in_interrupts(gate, is_path) as f64 / seen,
        to_eoi,
    })
}

fn row(depth: u64, quantity: &str, value: f64, peer_value: Option<f64>, pass: bool) -> Row {
    Row { case: format!("path QD {depth}"), quantity: quantity.into(), value, peer_value, pass, note: None }
}

/// Ours beside Linux's: ours within the budgets, an interrupt of ours at most half of one of Linux's, and none of them
/// more than Linux's.
fn compare(depth: u64, [a_read, an_interrupt]: [f64; 2], ours: &Figures, linux: &Figures) -> Vec<Row> {
    let row = |quantity, value: f64, peer: f64, pass| row(depth, quantity, value, Some(peer), pass);
    let no_more = |quantity, value: f64, peer: f64| row(quantity, value, peer, value <= peer);
    let expected = 1.0 / depth as f64;
    let is_half = ours.an_interrupt * 2.0 <= linux.an_interrupt;
    vec![
        row("interrupts a read", ours.interrupts_a_read, linux.interrupts_a_read, ours.interrupts_a_read == expected),
        row("instructions a read", ours.a_read, linux.a_read, ours.a_read <= a_read && ours.a_read <= linux.a_read),
        row(
            "instructions an interrupt",
            ours.an_interrupt,
            linux.an_interrupt,
            ours.an_interrupt <= an_interrupt && is_half,
        ),
        no_more("the same without completion", ours.without_completion, linux.without_completion),
        row("of them, gate to EOI", ours.to_eoi, linux.to_eoi, true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_drives_gate() {
        let lines = vec!["count interrupts_1 1280".into(), "symbol nvme_irq 10 20".into(), "symbol other 40 50".into()];
        let ended = Ended { lines, failure: None };
        let parse = |text: &str| super::super::plugin::parse(text).expect("the plugin's form").remove(0);
        let busy = "at b 40 90000\nat 0 ffffffff80000000 12800";
        let counted = format!("path a 1280\npath b 9\neoi a 1280 2560\nat a 12 2560\nat a 30 1280\n{busy}\nend");
        let Ok(figures) = linux_figures(&ended, &parse(&counted), 1) else { panic!("they are whole") };
        assert_eq!((figures.interrupts_a_read, figures.a_read, figures.to_eoi), (1.0, 10.0, 2.0));
        assert_eq!((figures.an_interrupt, figures.without_completion), (3.0, 2.0));
        let fails = |from, to| linux_figures(&ended, &parse(&counted.replace(from, to)), 1).is_err();
        assert!(fails("path a 1280", "path a 1279"), "an interrupt less");
        assert!(fails("eoi a 1280", "eoi a 1279"), "an EOI less");
    }

    #[test]
    fn more_than_the_budget_or_than_half_of_linux_fails() {
        let figures = |a_read, an_interrupt| Figures {
            interrupts_a_read: 1.0,
            a_read,
            an_interrupt,
            without_completion: an_interrupt / 2.0,
            to_eoi: 1.0,
        };
        let failing = |ours, linux| {
            let rows = compare(1, [100.0, 10.0], &ours, &linux);
            rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect::<Vec<_>>()
        };
        assert!(failing(figures(100.0, 10.0), figures(500.0, 20.0)).is_empty());
        assert_eq!(failing(figures(101.0, 10.0), figures(500.0, 20.0)), ["instructions a read"]);
        assert_eq!(failing(figures(100.0, 10.5), figures(500.0, 30.0)), ["instructions an interrupt"]);
        assert_eq!(failing(figures(100.0, 10.0), figures(500.0, 19.0)), ["instructions an interrupt"]);
        assert_eq!(failing(figures(100.0, 10.0), figures(99.0, 20.0)), ["instructions a read"]);
        let flat = Figures { without_completion: 4.0, ..figures(500.0, 20.0) };
        assert_eq!(failing(figures(100.0, 10.0), flat), ["the same without completion"]);
    }
}

//! Instruction counts of NVMe reads, ours and Linux's: of a whole read, and of its interrupt.
//!
//! Both run on the same machine: q35, one CPU, a null drive behind QEMU's NVMe model, reads of 4 KiB. QEMU's time is
//! counted in instructions. The guest makes a mark before and after the reads, and only the span between them counts.
//!
//! - **instructions a read**: for ours, all instructions of the CPU: submission by a thread, interrupt, completion, and
//!   the thread's way into and out of HLT. For Linux, all in the kernel's half of the address space: system calls, block
//!   layer, interrupt, completion, scheduler, idling. The guest program's own, which check the data, do not count.
//! - **instructions an interrupt**: all from the first at the gate to IRETQ. Linux's include the completion of the reads by
//!   block layer and asynchronous I/O. Ours include the end of the commands and their user's callback.
//! - **without completion**: for ours, all but the functions of [`COMPLETION`], which end a command, give its slot back
//!   and tell the user. For Linux, those in [`PATH`] alone: entry, flow, `nvme_irq`, `nvme_poll_cq`.
//! - **gate to EOI**: from the first instruction at the gate to the write of the local APIC's EOI register, including that
//!   write. Both kernels end an edge before they call its handler.
//! - **instructions of the look**: the instructions that a completion look after a submission adds to `submit`, outside
//!   interrupts. If the look finds completions, a separate function reaps them; its instructions do not count.

use crate::image::Image;
use crate::peer::{self, Linux};
use crate::plugin::{Instructions, OUTSIDE, Plugin};
use crate::process::{Answer, Ended};
use crate::symbols::Symbols;
use crate::{BootError, Row, process};
use std::process::Command;

/// Linux's functions from the gate to the return, without those that complete a request. Completion also uses locks
/// and `ktime_get`, which makes the sum about six instructions too large.
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
/// Part of the name of our submission function, which contains the completion look.
const SUBMISSION: [&str; 1] = ["QueuePair$LT$H$GT$6submit17h"];
/// Start of Linux's half of the address space.
const KERNEL: u64 = 1 << 63;

/// Counted reads: a whole number of rounds at either depth.
const READS: u64 = 1280;
/// Our budgets at each depth: instructions per read, and per interrupt. With one compiler, an interrupt's count
/// repeats exactly. A read's count varies by one per cent with the moment at which the host's thread sends the
/// message. The budgets leave three per cent more for the next compiler.
const BUDGETS: [(u64, [f64; 2]); 2] = [(1, [1118.0, 686.0]), (32, [373.0, 3660.0])];
/// The most instructions that the completion look may add to a submission.
const LOOK_BUDGET: f64 = 34.0;

/// A kernel's figures at one depth.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    interrupts_a_read: f64,
    a_read: f64,
    an_interrupt: f64,
    without_completion: f64,
    to_eoi: f64,
}

/// Counts everything. `tell` gets the name of each run as it begins.
///
/// # Errors
/// [`BootError`]; a run that fails is a row that does not pass.
pub(crate) fn measure(image: &Image, tell: impl Fn(&str)) -> Result<Vec<Row>, BootError> {
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

/// The reason why there are no figures.
enum Stop {
    Failed(String),
    Error(BootError),
}

impl From<BootError> for Stop {
    fn from(error: BootError) -> Self {
        Self::Error(error)
    }
}

/// A run, and its counts for each pair of marks in order.
type Counted = (Ended, Vec<Instructions>);

struct Lab<'a> {
    image: &'a Image,
    /// Functions of the image.
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
                rows.push(row(depth, "instructions of the look, a submission", added, None, added <= LOOK_BUDGET));
            }
        }
        Ok(rows)
    }

    /// Runs the image's case `path`.
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
        let (ended, counted) = self.counted(process::run(qemu, Answer::None, |status, lines| {
            status.code() == Some(1) && lines.iter().any(|line| line == "pass")
        })?)?;
        let counted = counted.into_iter().next().ok_or(Stop::Failed("the image makes no marks".into()))?;
        Ok((ended, counted))
    }

    /// The image's figures. The drive's gate is the busiest one.
    fn figures(&self, ended: &Ended, counted: &Instructions) -> Result<Figures, Stop> {
        if !self.symbols.have(&COMPLETION) || !self.symbols.have(&SUBMISSION) {
            return Err(Stop::Failed(format!("the image has not all of the functions {COMPLETION:?}, {SUBMISSION:?}")));
        }
        let is_path = |address| !self.symbols.is_in(&COMPLETION, address);
        figures(ended, counted, "interrupts", |_| true, is_path, |_| true)
    }

    /// Runs the guest at each depth.
    fn linux(&self) -> Result<Counted, Stop> {
        let loads = BUDGETS.map(|(depth, _)| format!("{depth}:{READS}")).join(",");
        let options =
            format!("console=ttyS0 nokaslr mitigations=off case=nvme loads={loads} symbols={}", PATH.join(","));
        let mut qemu = self.linux.command(&options);
        self.prepare(&mut qemu);
        self.counted(peer::run(qemu, Answer::None)?)
    }

    /// The machine, the same for both kernels.
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

/// Linux's figures. The drive's gate is the one whose interrupts ran `nvme_irq`.
fn linux_figures(ended: &Ended, counted: &Instructions, depth: u64) -> Result<Figures, Stop> {
    let symbols = Symbols::told(&ended.lines);
    let is_handler = |address| symbols.is_in(&["nvme_irq"], address);
    let is_path = |address| symbols.contain(address);
    figures(ended, counted, &format!("interrupts_{depth}"), is_handler, is_path, |address| address >= KERNEL)
}

/// Figures per read and per interrupt. The drive's gate is the one whose interrupts ran the handler most. The kernel's
/// own count of interrupts must be the same.
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
            "the kernel counts {told:?} interrupts, but {seen} came through gate {gate:x}"
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
    Row { case: format!("path QD {depth}"), quantity: quantity.into(), value, peer_value, pass, ..Row::default() }
}

/// Puts our figures beside Linux's. Ours must stay within the budgets and must not exceed Linux's; our interrupt may
/// take at most half the instructions of Linux's. The count from gate to EOI is shown but not judged.
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
        let parse = |text: &str| crate::plugin::parse(text).expect("the plugin's form").remove(0);
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

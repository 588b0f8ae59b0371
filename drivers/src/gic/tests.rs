//! Order, offset and value of every access, against literal offsets of the manuals.

mod its;
mod v2;
mod v3;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::host::{HostHal, HostRegs};
use hal::{CpuSet, Regs};
use irq::{
    Action, AllocRequest, CoreConfig, Flow, Irq, IrqChip, IrqCore, IrqDomain, IrqReturn, Level, LevelData, RequesterId,
    Target,
};
use std::string::String;
use std::sync::Mutex;

std::thread_local! {
    static HAL: HostHal = HostHal::manual(2);
}

/// The test's world, of two CPUs.
fn hal() -> HostHal {
    HAL.with(|hal| *hal)
}

/// Accesses to several windows, in one common order.
#[derive(Default)]
struct Log {
    accesses: Mutex<Vec<String>>,
    answers: Mutex<BTreeMap<(char, u32), VecDeque<u64>>>,
}

impl Log {
    /// A window that records into this log under a letter.
    fn window(self: &Arc<Self>, letter: char) -> HostRegs {
        HostRegs::new(Arc::new(Window { letter, log: self.clone() }))
    }

    /// Reads return these values in turn, then the last one for ever. Other registers read 0.
    fn answer(&self, letter: char, offset: u32, values: &[u64]) {
        self.answers.lock().unwrap().insert((letter, offset), values.iter().copied().collect());
    }

    /// Accesses since the last call: `r` or `w`, window, offset, value written.
    fn take(&self) -> Vec<String> {
        core::mem::take(&mut self.accesses.lock().unwrap())
    }

    fn read(&self, letter: char, offset: u32) -> u64 {
        self.accesses.lock().unwrap().push(std::format!("r{letter} {offset:x}"));
        let mut answers = self.answers.lock().unwrap();
        let Some(values) = answers.get_mut(&(letter, offset)) else { return 0 };
        if values.len() > 1 { values.pop_front().unwrap() } else { values[0] }
    }

    fn write(&self, letter: char, offset: u32, value: u64) {
        self.accesses.lock().unwrap().push(std::format!("w{letter} {offset:x} {value:x}"));
    }
}

struct Window {
    letter: char,
    log: Arc<Log>,
}

impl Regs for Window {
    fn read32(&self, offset: u32) -> u32 {
        self.log.read(self.letter, offset) as u32
    }
    fn write32(&self, offset: u32, value: u32) {
        self.log.write(self.letter, offset, value.into());
    }
    fn read64(&self, offset: u32) -> u64 {
        self.log.read(self.letter, offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        self.log.write(self.letter, offset, value);
    }
}

fn request(index: u32) -> AllocRequest {
    AllocRequest::fixed(RequesterId(0x0100), index, CpuSet::first(2))
}

/// A line's levels, allocated and activated as the core does.
fn line(domain: Arc<dyn IrqDomain>, index: u32, target: Target) -> Vec<LevelData> {
    let domains: Vec<_> = core::iter::successors(Some(domain), |domain| domain.parent()).collect();
    let mut levels: Vec<_> = domains.iter().rev().map(|domain| domain.allocate(&request(index)).unwrap()).collect();
    levels.reverse();
    for (index, domain) in domains.iter().enumerate().rev() {
        domain.activate(&Level::new(Irq(0), &levels[index..]), target).unwrap();
    }
    levels
}

struct Quiet;

impl Action for Quiet {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        IrqReturn::Handled
    }
}

/// A core with one line in `domain` that has a handler.
fn core_with_line(domain: Arc<dyn IrqDomain>, index: u32, flow: Flow) -> (IrqCore<HostHal>, Irq) {
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    let irq = core.alloc_line(domain, &request(index), flow).unwrap();
    core.request(irq, "quiet", Default::default(), Arc::new(Quiet)).unwrap();
    (core, irq)
}

fn chip(levels: &[LevelData]) -> (&IrqChip, Level<'_>) {
    (&*levels[0].chip, Level::new(Irq(0), levels))
}

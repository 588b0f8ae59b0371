//! Numbers that a driver gives out and takes back: in the end there must be as many as in the beginning.

use crate::verdict::violate;
use hal::{CpuId, CpuSet};
use irq::{
    AllocRequest, Flow, HardwareIrq, IrqChip, IrqCore, IrqDomain, IrqError, Level, LevelData, RequesterId, Target,
};
use machine::SimHal;
use std::sync::Arc;

/// More than any domain has.
const NUMBERS_MAX: usize = 1 << 17;

/// The numbers of `domain` that can be allocated until it refuses. All are given back. The domain's own level alone: neither its
/// parents nor the core take part, and nothing is activated.
pub(crate) fn numbers(domain: &dyn IrqDomain, request: &AllocRequest) -> Vec<u64> {
    let taken: Vec<_> = std::iter::from_fn(|| domain.allocate(request).ok()).take(NUMBERS_MAX).collect();
    let mut numbers: Vec<_> = taken.iter().map(|level| level.hwirq.0).collect();
    taken.iter().for_each(|level| domain.release(level.hwirq));
    numbers.sort_unstable();
    if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        violate("fullness", format!("{} gives {:#x} out twice", domain.name(), twice[0]));
    }
    numbers
}

/// How many there are.
pub(crate) fn free_numbers(domain: &dyn IrqDomain, request: &AllocRequest) -> usize {
    numbers(domain, request).len()
}

/// The domain has as many free numbers as it must.
pub(crate) fn check_free(domain: &dyn IrqDomain, request: &AllocRequest, expected: usize) {
    let free = free_numbers(domain, request);
    if free != expected {
        violate("fullness", format!("{} numbers of {} are free, and {expected} must be", free, domain.name()));
    }
}

/// Lines without hardware.
struct Hollow(Arc<IrqChip>);

impl Hollow {
    fn new() -> Self {
        Self(IrqChip::of("HOLLOW", &Arc::new(())).eoi(|_, _| ()).build())
    }
}

impl IrqDomain for Hollow {
    fn name(&self) -> &str {
        "HOLLOW"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }
    fn needs_identity(&self) -> bool {
        false
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.0.clone(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, _: &Level<'_>, _: Target) -> Result<(), IrqError> {
        Ok(())
    }
    fn release(&self, _: HardwareIrq) {}
}

/// A core for `lines_max` lines has room for as many as do not live. No line is being freed.
pub(crate) fn check_lines(core: &IrqCore<SimHal>, lines_max: usize) {
    let expected = lines_max - core.views().len();
    let domain: Arc<dyn IrqDomain> = Arc::new(Hollow::new());
    let request = AllocRequest::fixed(RequesterId(0), 0, CpuSet::of(CpuId(0)));
    let alloc = || core.alloc_line(domain.clone(), &request, Flow::FastEoi).ok();
    let lines: Vec<_> = std::iter::from_fn(alloc).take(expected + 1).collect();
    for &line in &lines {
        if let Err(error) = core.free_line(line) {
            violate("fullness", format!("line {line} cannot be freed: {error}"));
        }
    }
    if lines.len() != expected {
        violate("fullness", format!("{} lines can be allocated, and {expected} must be", lines.len()));
    }
}

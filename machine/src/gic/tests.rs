//! Tests of the GIC with literal offsets and words: IHI 0048B and IHI 0069H are the oracle, not `spec`.

mod faults;
mod late;
mod machine;
mod message;
mod random;
mod timer;
mod v2;
mod v3;

use super::{GicConfig, GicWindows};
use crate::Interrupts;
use crate::time::Ps;
use crate::{Machine, MachineConfig};

/// A machine with a GIC and `cpus` CPUs, whose handler does nothing.
fn bare(interrupts: Interrupts, cpus: u32) -> (Machine, GicWindows) {
    let config = MachineConfig { cpus, memory_bytes: 4 << 20, interrupts, ..MachineConfig::default() };
    let machine = Machine::new(config);
    let gic = machine.gic().expect("it was asked for");
    (machine, gic)
}

/// Runs `test` on CPU 0 with interrupts off, because the test only accesses registers. Expects these faults.
fn with_registers(
    interrupts: Interrupts,
    cpus: u32,
    test: impl FnOnce(GicWindows) + Send + 'static,
) -> Vec<(&'static str, u64)> {
    let (mut machine, gic) = bare(interrupts, cpus);
    let end = machine.run_boot(Ps::from_ns(1_000_000), move || {
        // Interrupts stay off: a signalled interrupt would find no handler.
        let _off = hal::Hal::irq_save(crate::SimHal);
        test(gic);
    });
    assert_eq!(end, Ok(()));
    machine.faults().0.iter().map(|fault| (fault.kind, fault.count)).collect()
}

fn v2() -> Interrupts {
    Interrupts::GicV2(GicConfig { spis: 32, ..GicConfig::default() })
}

fn v3() -> Interrupts {
    Interrupts::GicV3(GicConfig { spis: 32, ..GicConfig::default() })
}

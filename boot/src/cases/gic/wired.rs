//! Wires: an SPI that software raises, the UART's receive interrupt, and the private interrupts.

use super::Fixture;
use crate::arch;
use crate::cases::{Options, count, expect, wait};
use crate::kernel::Bare;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use hal::{Affinity, CpuId, Regs, ThreadId, ThreadSpec, Threads};
use irq::{IrqChipState, IrqReturn, Trigger};
use spec::gic::IntId;

/// An SPI that no device of the machine uses.
const UNUSED: u32 = 32 + 100;
/// The UART's SPI.
const UART: u32 = 32 + 1;
/// The physical timer (PPI), which the kernel does not use.
const PHYSICAL_TIMER: u32 = 30;
/// The first SGI that the kernel does not use. Each sender uses its own SGI, because on a GICv3 the same SGI from two
/// senders would share one pending bit.
const SOFTWARE: u32 = 4;
/// The loop of the published benchmark: a thread sets an unused interrupt pending through the irqchip state, and waits
/// until its forced-threaded handler completes it. Runs `rounds` times, all on one CPU.
pub(super) fn raise(system: &Fixture, options: &Options) -> Result<(), String> {
    let rounds = options.number("rounds", 1000)?;
    let handled = Arc::new(AtomicU64::new(0));
    let (counted, waiter) = (handled.clone(), Bare.current_thread());
    let irq = system.shared(UNUSED, Trigger::EdgeRising, CpuId(0), "raised", move |_| {
        counted.fetch_add(1, SeqCst);
        Bare.wake(waiter);
        IrqReturn::Handled
    })?;
    crate::println!("begin");
    for round in 0..rounds {
        system.core.set_irqchip_state(irq, IrqChipState::Pending, true).map_err(|error| error.to_string())?;
        while handled.load(SeqCst) <= round {
            Bare.park();
        }
    }
    crate::println!("end");
    count("handled", handled.load(SeqCst));
    count("interrupts", system.core.count(irq, CpuId(0)));
    quiet(system, irq)?;
    expect("handled", handled.load(SeqCst), rounds)
}

/// At the end the line is neither active nor pending, and no interrupt was a stray.
fn quiet(system: &Fixture, irq: irq::Irq) -> Result<(), String> {
    for which in [IrqChipState::Active, IrqChipState::Pending] {
        let left = || system.core.irqchip_state(irq, which);
        wait("the end of the line", || !left().unwrap_or(true))?;
    }
    count("strays", system.strays());
    expect("strays", system.strays(), 0)
}

/// The PL011's input, a forced-threaded line. Each byte raises the receive interrupt, a level that stays until the
/// handler's thread reads the byte. The program that runs the image types `rounds` bytes.
pub(super) fn serial(system: &Fixture, options: &Options) -> Result<(), String> {
    let rounds = options.number("rounds", 200)?;
    let uart = arch::UART;
    let received = Arc::new(AtomicU64::new(0));
    let counted = received.clone();
    let irq = system.shared(UART, Trigger::LevelHigh, CpuId(0), "uart", move |_| {
        // FR (18h) bit 4: the receive FIFO is empty.
        if uart.read32(0x18) & 1 << 4 != 0 {
            return IrqReturn::None;
        }
        uart.read32(0x00);
        counted.fetch_add(1, SeqCst);
        IrqReturn::Handled
    })?;
    // LCR_H (2ch): 8 bits, no FIFOs, so that each byte interrupts; CR (30h): on, both directions; IMSC (38h): receive.
    uart.write32(0x2c, 0x60);
    uart.write32(0x30, 0x301);
    uart.write32(0x38, 1 << 4);
    crate::println!("ready for {rounds} bytes");
    wait("the input", || received.load(SeqCst) >= rounds)?;
    uart.write32(0x38, 0);
    count("received", received.load(SeqCst));
    let interrupts = system.core.count(irq, CpuId(0));
    count("interrupts", interrupts);
    quiet(system, irq)?;
    expect("bytes received", received.load(SeqCst), rounds)
}

/// Private interrupts: the physical timer fires on each CPU, and each CPU sends an SGI to each.
pub(super) fn private(system: &Fixture, options: &Options) -> Result<(), String> {
    let rounds = options.number("rounds", 10)?;
    let cpus = u64::from(system.platform.cpus());
    let (ticks, software) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counted = ticks.clone();
    let timer = system.private(PHYSICAL_TIMER, "physical timer", move |_| {
        metal::Timer::Physical.arm(None);
        counted.fetch_add(1, SeqCst);
    })?;
    let mut private = Vec::from([timer]);
    for sender in 0..cpus as u32 {
        let counted = software.clone();
        private.push(system.private(SOFTWARE + sender, "software", move |_| _ = counted.fetch_add(1, SeqCst))?);
    }
    let (ready, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for cpu in 0..cpus as u32 {
        let (core, arm) = (system.core.clone(), system.arm.clone());
        let (ready, ended, software, ticks) = (ready.clone(), ended.clone(), software.clone(), ticks.clone());
        let private = private.clone();
        let body = move || {
            let enabled = private.into_iter().try_for_each(|irq| core.enable_percpu(irq));
            enabled.unwrap_or_else(|error| panic!("private interrupts of CPU {cpu}: {error}"));
            ready.fetch_add(1, SeqCst);
            while ready.load(SeqCst) < cpus {
                Bare.yield_now();
            }
            for round in 0..rounds {
                // Each CPU waits for all others, so that two SGIs of one sender do not meet either.
                for to in 0..cpus as u32 {
                    arm.send(IntId(SOFTWARE + cpu), CpuId(to)).unwrap_or_else(|why| panic!("SGI to CPU {to}: {why}"));
                }
                while software.load(SeqCst) < (round + 1) * cpus * cpus {
                    Bare.yield_now();
                }
                metal::Timer::Physical.arm(Some(20_000));
                while ticks.load(SeqCst) < (round + 1) * cpus {
                    Bare.yield_now();
                }
            }
            ended.fetch_add(1, SeqCst);
        };
        let spec = ThreadSpec { name: "private", affinity: Affinity::Cpu(CpuId(cpu)), urgent: false };
        let _: ThreadId = Bare.spawn(spec, Box::new(body)).map_err(|error| error.to_string())?;
    }
    let waited = wait("the private interrupts", || ended.load(SeqCst) == cpus);
    count("cpus_ready", ready.load(SeqCst));
    count("timer_interrupts", ticks.load(SeqCst));
    count("software_interrupts", software.load(SeqCst));
    waited?;
    expect("timer interrupts", ticks.load(SeqCst), rounds * cpus)?;
    expect("software interrupts", software.load(SeqCst), rounds * cpus * cpus)
}

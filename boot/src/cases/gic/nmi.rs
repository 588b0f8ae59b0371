//! Pseudo-NMIs: interrupts that are taken while others are held back by the priority mask.

use super::Fixture;
use crate::arch::CLOCK;
use crate::cases::{Options, count, expect, wait};
use crate::kernel::{Bare, cpu};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use hal::{Affinity, CpuId, ThreadSpec, Threads};
use irq::{IrqReturn, Trigger};
use spec::gic::Priority;

/// SPIs that no device of the machine uses: for CPU n a pseudo-NMI at 2·n from here, and an ordinary interrupt behind it.
const UNUSED: u32 = 32 + 180;
/// The longest that a pseudo-NMI may take.
const LIMIT_NS: u64 = 10_000_000_000;

/// One CPU's interrupts.
#[derive(Default)]
struct Seen {
    /// Pseudo-NMIs, and those of them that came while ordinary interrupts were held back.
    nmis: AtomicU64,
    masked: AtomicU64,
    /// Ordinary interrupts, and those of them that came in spite of the mask.
    ordinary: AtomicU64,
    broke_in: AtomicU64,
}

impl Seen {
    /// Waits without turning interrupts off.
    fn wait_for(&self, nmis: u64) -> Result<(), String> {
        let deadline_ns = CLOCK.now_ns() + LIMIT_NS;
        while self.nmis.load(SeqCst) < nmis {
            if CLOCK.now_ns() > deadline_ns {
                return Err(format!("pseudo-NMI {nmis} did not come"));
            }
            core::hint::spin_loop();
        }
        Ok(())
    }
}

/// Holds ordinary interrupts of this CPU back by the priority mask, or lets them in. The exception itself stays open.
fn hold_ordinary(system: &Fixture, held: bool) {
    metal::interrupts_off();
    cpu::this().held_by_priority.store(held, SeqCst);
    system.set_priority_mask(if held { Priority::DEFAULT } else { Priority::UNMASKED });
    metal::interrupts_on();
}

/// A round on this CPU: both interrupts become pending behind the mask, and then again without it.
fn round(system: &Fixture, seen: &Seen, nmi: u32, number: u64) -> Result<(), String> {
    hold_ordinary(system, true);
    // By the distributor's register, as a device does it: the core's own call would turn interrupts on again.
    [nmi + 1, nmi].into_iter().for_each(|intid| system.set_pending(intid));
    let taken = seen.wait_for(2 * number + 1);
    let early = seen.ordinary.load(SeqCst) - 2 * number;
    hold_ordinary(system, false);
    taken?;
    expect("ordinary interrupts behind the mask", early, 0)?;
    wait("the interrupt that was held back", || seen.ordinary.load(SeqCst) > 2 * number)?;
    [nmi + 1, nmi].into_iter().for_each(|intid| system.set_pending(intid));
    let all = || seen.nmis.load(SeqCst) > 2 * number + 1 && seen.ordinary.load(SeqCst) > 2 * number + 1;
    wait("both interrupts", all)
}

/// `rounds` rounds on every CPU at the same time.
///
/// # Errors
/// An interrupt that was lost, doubled, or taken in spite of the mask.
pub(super) fn nmi(system: &Arc<Fixture>, options: &Options) -> Result<(), String> {
    let (rounds, cpus) = (options.number("rounds", 100)?, system.platform.cpus());
    let (extended_spis, extended_ppis) = system.extended_ranges();
    count("extended_spi_range", extended_spis.into());
    count("extended_ppi_number", extended_ppis.into());
    let all: Vec<Arc<Seen>> = (0..cpus).map(|_| Arc::new(Seen::default())).collect();
    let ended = Arc::new(AtomicU64::new(0));
    let failed = Arc::new(spin::Once::<String>::new());
    for (seen, at) in all.iter().zip(0..) {
        let (nmi, own) = (UNUSED + 2 * at, CpuId(at));
        let (first, second) = (seen.clone(), seen.clone());
        system.nmi(nmi, own, move || {
            first.masked.fetch_add(cpu::this().held_by_priority.load(SeqCst).into(), SeqCst);
            first.nmis.fetch_add(1, SeqCst);
        })?;
        system.shared(nmi + 1, Trigger::EdgeRising, own, "ordinary", move |_| {
            second.broke_in.fetch_add(cpu::this().held_by_priority.load(SeqCst).into(), SeqCst);
            second.ordinary.fetch_add(1, SeqCst);
            IrqReturn::Handled
        })?;
        let (system, seen, ended, failed) = (system.clone(), seen.clone(), ended.clone(), failed.clone());
        let body = move || {
            let done = (0..rounds).try_for_each(|number| round(&system, &seen, nmi, number));
            if let Err(why) = done {
                failed.call_once(|| format!("CPU {at}: {why}"));
            }
            ended.fetch_add(1, SeqCst);
        };
        let spec = ThreadSpec { name: "nmi", affinity: Affinity::Cpu(own), urgent: false };
        Bare.spawn(spec, Box::new(body)).map_err(|error| format!("a thread on CPU {at}: {error}"))?;
    }
    let waited = wait("the rounds", || ended.load(SeqCst) == u64::from(cpus));
    let sum = |which: fn(&Seen) -> &AtomicU64| all.iter().map(|seen| which(seen).load(SeqCst)).sum::<u64>();
    let [nmis, masked] = [sum(|seen| &seen.nmis), sum(|seen| &seen.masked)];
    let [ordinary, broke_in] = [sum(|seen| &seen.ordinary), sum(|seen| &seen.broke_in)];
    count("pseudo_nmis", nmis);
    count("pseudo_nmis_behind_the_mask", masked);
    count("ordinary_interrupts", ordinary);
    count("ordinary_interrupts_behind_the_mask", broke_in);
    count("strays", system.strays());
    failed.get().map_or(Ok(()), |why| Err(why.clone()))?;
    waited?;
    let each = rounds * u64::from(cpus);
    expect("pseudo-NMIs", nmis, 2 * each)?;
    expect("pseudo-NMIs behind the mask", masked, each)?;
    expect("ordinary interrupts", ordinary, 2 * each)?;
    expect("ordinary interrupts behind the mask", broke_in, 0)?;
    expect("strays", system.strays(), 0)
}

//! Managers' steps on the stack.

use super::accelerator;
use super::beliefs::{self, When};
use super::drive::{BindError, Bound, Drive, Slot, claim, replace_handler};
use super::intruder;
use super::load::disrupt;
use super::poster;
use super::removal;
use super::stack::PcStack;
use super::step::{LEVEL_LINE, PcStep};
use super::timers;
use crate::checkers::queues;
use crate::checkers::truth::marks;
use crate::deeds::Deed;
use crate::server::{GUEST_NOTIFICATION, Path};
use crate::verdict::violate;
use drivers::nvme::{
    Coalescing, CoalescingThreshold, CoalescingTime, CompletionLook, Controller, NvmeError, VectorCoalescing,
};
use drivers::vtd::GuestPosting;
use hal::{CpuId, CpuSet, Dma as _, Hal as _, Regs as _};
use irq::posted::{Deliverable, Descriptor, Notification};
use irq::{Action as _, HardwareIrq, Irq, IrqDomain as _, IrqError, Vector};
use machine::peek64;
use machine::{Regs, SimHal};
use spec::vtd::registers::IRTA;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use systems::pc::RESCHEDULE;

/// The vector that a guest gives a lent line.
const GUEST_VECTOR: Vector = Vector(0x66);

/// An interrupt is waited for by so many looks, so far apart.
const FIRE_LOOKS: u32 = 30;
const FIRE_LOOK_NS: u64 = 100;
/// An impatient driver's looks for old commands, the time between them, and the age that only slow commands reach.
const ABORTS: u32 = 6;
const ABORT_GAP_NS: u64 = 15_000;
const SLOW_NS: u64 = 40_000;
/// Between two retriggers of one step: longer than an interrupt of a line alone.
const RETRIGGERED_NS: u64 = 1_000;
/// A kick comes within this time, however busy its CPU is: longer than an invalidation queue that fails takes.
const KICKED_NS: u64 = 25_000_000;

/// Does one step, and compares beliefs. Two managers never run conflicting operations on one queue at once.
pub(super) fn apply(stack: &Arc<PcStack>, step: &PcStep) {
    if !matches!(step, PcStep::Check { .. } | PcStep::Coalesce { .. } | PcStep::Abort { .. } | PcStep::Reset { .. })
        && !matches!(step, PcStep::Ring { .. } | PcStep::Fire | PcStep::Raise { .. } | PcStep::Burst { .. })
        && !matches!(step, PcStep::FirePin { .. })
    {
        marks::disturbed();
    }
    let slot = |index: u32| &stack.slots[index as usize % stack.slots.len()];
    let drive = |index: u32| &stack.drives[index as usize % stack.drives.len()];
    match *step {
        PcStep::Move { line, cpus } => move_line(stack, line, cpus),
        PcStep::Disable { line, depth, ns } => disable(stack, line, depth, ns),
        PcStep::Offline { cpu, ns } => offline(stack, CpuId(cpu % stack.host.cpus()), ns),
        PcStep::Retrigger { line, count } => retrigger(stack, line, count),
        PcStep::Replace { queue } => replace(stack, slot(queue)),
        PcStep::Synchronize { line } => with_line(stack, line, |line| stack.host.core().synchronize(line)),
        PcStep::Recreate { queue, ns } => recreate(stack, slot(queue), ns),
        PcStep::Redeliver { queue } => redeliver(stack, slot(queue)),
        PcStep::Reset { drive: index } => reset(stack, drive(index)),
        PcStep::Intrude { drive: index } => intruder::intrude(drive(index)),
        PcStep::Rebind { drive: index, lines_first, ns } => rebind(stack, drive(index), lines_first, ns),
        PcStep::Remove { drive: index, removal } => removal::remove(stack, drive(index), removal),
        PcStep::Coalesce { drive: index, entries, us, excludes } => {
            coalesce(stack, drive(index), entries, us, excludes)
        }
        PcStep::Abort { queue, age_ns } => abort(stack, slot(queue), age_ns),
        PcStep::Check { queue, policy } => check(slot(queue), policy),
        PcStep::Lend { queue, ns } => lend(stack, slot(queue), ns),
        PcStep::Ring { count, period_ns } => stack.rings.ring(count, period_ns),
        PcStep::Fire => {
            stack.rings.ring(1, 500);
            wait_for(|| stack.rings.is_idle());
        }
        PcStep::FirePin { function } => {
            let function = &stack.functions[function as usize % stack.functions.len()];
            function.raise();
            wait_for(|| function.is_idle());
        }
        PcStep::Chase { line, moves, ns } => chase(stack, line, moves, ns),
        PcStep::Raise { function } => stack.functions[function as usize % stack.functions.len()].raise(),
        PcStep::Quiet { cpu, ns } => quiet(stack, CpuId(cpu % stack.host.cpus()), ns),
        PcStep::Kick { cpu } => kick(stack, CpuId(cpu % stack.host.cpus())),
        PcStep::Burst { queue, count, depth } => slot(queue).load.carry(count, depth),
        PcStep::Accelerator(ref step) if !accelerator::apply(stack, step) => return,
        PcStep::Timer(ref step) if !timers::apply(stack, step) => return,
        PcStep::Poster(ref step) if !poster::apply(stack, step) => return,
        PcStep::Accelerator(_) | PcStep::Timer(_) | PcStep::Poster(_) => {}
    }
    // A directed schedule is about the step, not about the look at every line.
    machine::end_agent();
    beliefs::check(stack, When::Loaded);
}

/// From now on handlers of the ringing device do things to lines.
pub(super) fn begin_deeds(stack: &Arc<PcStack>) {
    let weak = Arc::downgrade(stack);
    stack.rings.deeds.begin(move |deed| {
        // Where lines are delivered is judged in the last load.
        let Some(stack) = weak.upgrade().filter(|stack| !stack.proving.load(Relaxed)) else { return };
        marks::disturbed();
        match deed {
            Deed::Move { line, cpus } => move_line(&stack, line, cpus),
            Deed::Disable { line, ns } => disable_at_once(&stack, line, ns),
            Deed::Retrigger { line } => retrigger(&stack, line, 1),
        }
        stack.saw("handler: did something to a line");
    });
}

/// An operation on a line. Another manager may have freed the line meanwhile.
fn with_line(stack: &PcStack, line: u32, body: impl FnOnce(Irq) -> Result<(), IrqError>) {
    let Some(line) = stack.line(line) else { return };
    match body(line) {
        Ok(()) | Err(IrqError::NoLine(_) | IrqError::NotDisabled(_)) => {}
        Err(IrqError::NoCpu(_) | IrqError::Managed(_)) => {}
        Err(error) => complain(stack, &error),
    }
}

fn complain(stack: &PcStack, error: &dyn std::fmt::Display) {
    if !stack.promises.faulty {
        violate("operations", format!("{error}, and no fault explains it"));
    }
}

fn move_line(stack: &PcStack, line: u32, cpus: u64) {
    let wanted: CpuSet = (0..stack.host.cpus()).filter(|cpu| cpus & 1 << (cpu % 8) != 0).map(CpuId).collect();
    if wanted.is_empty() {
        return;
    }
    with_line(stack, line, |line| {
        if stack.host.core().view(line).is_some_and(|view| view.pending) {
            stack.saw("move: with a vector pending");
        }
        stack.host.core().set_affinity(line, &wanted)?;
        if !(0..stack.host.cpus()).any(|cpu| stack.host.is_away(CpuId(cpu))) {
            marks::moved(stack.host.core(), line);
        }
        let waits = stack.host.core().view(line).is_some_and(|view| view.move_wanted);
        stack.saw(if waits { "move: waits for an earlier one" } else { "move: at once" });
        Ok(())
    });
}

fn disable(stack: &PcStack, line: u32, depth: u32, ns: u64) {
    // Not beside a replacement: a request forgets the disables of the previous handler.
    let Some(_claim) = stack.claim_line(line) else { return };
    with_line(stack, line, |line| {
        for _ in 0..depth {
            stack.host.core().disable(line)?;
        }
        beliefs::check_promises(stack);
        SimHal.delay_ns(ns);
        if stack.host.core().view(line).is_some_and(|view| view.pending) {
            stack.saw("disable: something came meanwhile");
        }
        (0..depth).try_for_each(|_| stack.host.core().enable(line))
    });
}

/// The same without a wait for handlers, as a handler may do it.
fn disable_at_once(stack: &PcStack, line: u32, ns: u64) {
    let Some(_claim) = stack.claim_line(line) else { return };
    with_line(stack, line, |line| {
        stack.host.core().disable_nosync(line)?;
        SimHal.delay_ns(ns);
        stack.host.core().enable(line)
    });
}

fn offline(stack: &Arc<PcStack>, cpu: CpuId, ns: u64) {
    let Some(_claim) = claim(&stack.hotplug) else { return };
    if stack.host.cpus() == 1 || stack.promises.stale {
        return;
    }
    if stack.host.any_device_request(cpu) {
        stack.saw("CPU: went offline with a vector pending");
    }
    if let Err(error) = stack.host.offline_for(cpu, ns) {
        complain(stack, &error);
        if !stack.host.has_tick(cpu, KICKED_NS) {
            violate("ticks", format!("CPU {cpu} could not go offline, and its tick has not come since"));
        }
    }
}

/// Waits for a handler for a while. Looks on the way are points of the seam, so a directed schedule can stop anywhere between the
/// message and its handler.
pub(super) fn wait_for(is_served: impl Fn() -> bool) {
    for _ in 0..FIRE_LOOKS {
        if is_served() {
            return;
        }
        SimHal.delay_ns(FIRE_LOOK_NS);
    }
}

/// Moves that follow each other are put off until an interrupt, so the line often moves while its interrupt is in service, and
/// masked if its handler is a thread. The old vectors leave the mark of a level at each CPU.
fn chase(stack: &PcStack, line: u32, moves: u32, ns: u64) {
    for turn in 0..moves {
        if line == LEVEL_LINE {
            stack.functions[turn as usize % stack.functions.len()].raise();
        }
        SimHal.delay_ns(ns);
        move_line(stack, line, 1 << (turn % stack.host.cpus()));
    }
}

fn quiet(stack: &Arc<PcStack>, cpu: CpuId, ns: u64) {
    let Some(_claim) = claim(&stack.hotplug) else { return };
    if !stack.host.without_tick(cpu, ns) {
        violate("ticks", format!("CPU {cpu} wants no tick, and one came"));
    }
    stack.saw("tick: none for a while");
}

/// A kicked CPU takes its reschedule vector.
fn kick(stack: &PcStack, cpu: CpuId) {
    let Some(_claim) = claim(&stack.hotplug) else { return };
    let before = stack.host.taken(cpu, RESCHEDULE);
    if let Err(error) = stack.host.pc.kick(cpu) {
        violate("operations", format!("kick CPU {cpu}: {error}"));
    }
    let end_ns = SimHal.now_ns() + KICKED_NS;
    while stack.host.taken(cpu, RESCHEDULE) == before {
        if SimHal.now_ns() > end_ns {
            violate("waits", format!("the kick of CPU {cpu} has not come for {KICKED_NS} ns"));
        }
        SimHal.delay_ns(500);
    }
    stack.saw("kick: sent and came");
}

/// Many of them are a storm of any line, also of one whose device never sends so often.
fn retrigger(stack: &PcStack, line: u32, count: u32) {
    for more in (0..count).rev() {
        with_line(stack, line, |own| match stack.resend(line, || stack.host.core().retrigger(own)) {
            // The level line's chips resend nothing while its CPU goes offline.
            Err(IrqError::NotSupported(_)) => Ok(()),
            result => result,
        });
        if more > 0 {
            SimHal.delay_ns(RETRIGGERED_NS);
        }
    }
}

fn replace(stack: &PcStack, slot: &Slot) {
    let Some(_claim) = slot.claim() else { return };
    match replace_handler(&stack.host, slot, &stack.numbers) {
        Ok(()) => stack.saw("handler: replaced"),
        Err(error) => complain(stack, &error),
    }
}

fn recreate(stack: &PcStack, slot: &Slot, ns: u64) {
    let drive = stack.drive_of(slot);
    let (Some(_whole), Some(_claim)) = (claim(&drive.busy), slot.claim()) else { return };
    stack.lines_freed.store(true, Relaxed);
    let unbound = drive.unbind(&stack.host, slot, ns.is_multiple_of(2));
    stack.saw("line: freed under load");
    SimHal.delay_ns(ns);
    let bound = unbound.and_then(|()| drive.bind(&stack.host, slot, &stack.numbers));
    match bound {
        Ok(()) => stack.saw("queue: deleted and made"),
        Err(error) => stack.fails("making of a queue", drive, &error),
    }
}

fn redeliver(stack: &PcStack, slot: &Slot) {
    if stack.delivery != Path::Posted {
        return;
    }
    let Some(_claim) = slot.claim() else { return };
    stack.lines_freed.store(true, Relaxed);
    slot.unposted.fetch_xor(true, Relaxed);
    match stack.drive_of(slot).reconnect(&stack.host, slot, &stack.numbers) {
        Ok(()) => stack.saw("entry: posted to remapped and back"),
        Err(error) => complain(stack, &error),
    }
}

fn reset(stack: &PcStack, drive: &Drive) {
    if let Some(_claim) = claim(&drive.busy) {
        stack.reset(drive);
    }
}

fn rebind(stack: &PcStack, drive: &Drive, lines_first: bool, ns: u64) {
    let Some(_claim) = claim(&drive.busy) else { return };
    let slots: Vec<&Slot> = stack.slots_of(drive).collect();
    let claims: Vec<_> = slots.iter().map_while(|slot| slot.claim()).collect();
    if claims.len() < slots.len() {
        return;
    }
    stack.lines_freed.store(true, Relaxed);
    match unbind_all(stack, drive, &slots, lines_first, ns) {
        Ok(()) => stack.saw("drive: unbound and bound"),
        Err(error) => stack.fails("binding", drive, &error),
    }
}

fn unbind_all(stack: &PcStack, drive: &Drive, slots: &[&Slot], lines_first: bool, ns: u64) -> Result<(), BindError> {
    if lines_first {
        slots.iter().try_for_each(|slot| drive.unbind(&stack.host, slot, true))?;
    }
    let down = disrupt(&stack.loads_of(drive), || drive.stop());
    slots.iter().try_for_each(|slot| drive.unbind(&stack.host, slot, false))?;
    down?;
    SimHal.delay_ns(ns);
    drive.start()?;
    slots.iter().try_for_each(|slot| drive.bind(&stack.host, slot, &stack.numbers))
}

fn coalesce(stack: &PcStack, drive: &Drive, entries: u16, us: u32, excludes: bool) {
    // Whoever tunes a device does so whatever else happens to it: every other setting keeps only settings away, and a reset or
    // a new queue may come upon it.
    let is_alone = entries.is_multiple_of(2);
    let whole = is_alone.then(|| claim(&drive.busy)).flatten();
    let Some(_own) = drive.claim_setting().filter(|_| whole.is_some() || !is_alone) else { return };
    let Some(controller) = drive.controller() else { return };
    let fails = |what: &str, error: NvmeError| match error {
        NvmeError::Stopped | NvmeError::Lost(..) | NvmeError::Gone if !is_alone => {
            stack.saw("tuning: a setting met a reset")
        }
        error => stack.fails(what, drive, &error),
    };
    let coalescing = match entries {
        0 => Coalescing::OFF,
        _ => Coalescing {
            time: CoalescingTime::from_us(us).expect("a multiple of 100 µs"),
            threshold: CoalescingThreshold::entries(entries).expect("1 to 256"),
        },
    };
    if let Err(error) = controller.set_coalescing(coalescing) {
        return fails("coalescing", error);
    }
    let slot = stack.slots_of(drive).next().filter(|_| excludes);
    if let Some(bound) = slot.and_then(Slot::bound)
        && let Err(error) = exclude(stack, drive, &controller, &bound)
    {
        fails("coalescing of a vector", error);
    }
}

/// Excludes a queue's vector from coalescing (NVMe Base, "Interrupt Vector Configuration"), and its queue from the tuning; or takes it
/// back.
fn exclude(stack: &PcStack, drive: &Drive, controller: &Controller<SimHal>, bound: &Bound) -> Result<(), NvmeError> {
    let Some(vector) = bound.pair.vector() else { return Ok(()) };
    stack.loads_of(drive).iter().for_each(|load| load.was_disrupted.store(true, Relaxed));
    let wanted = match controller.vector_coalescing(vector)? {
        VectorCoalescing::Coalesced => VectorCoalescing::Immediate,
        VectorCoalescing::Immediate => VectorCoalescing::Coalesced,
    };
    controller.set_vector_coalescing(vector, wanted)?;
    stack.saw("tuning: a vector excluded, or taken back");
    Ok(())
}

fn abort(stack: &PcStack, slot: &Slot, age_ns: u64) {
    let drive = stack.drive_of(slot);
    // A driver's timeout strikes whatever else its drive is doing: every other Abort keeps only its queue from deletion, since
    // an Abort of a deleted queue's command may meet a command of the next queue of that number. A reset may come upon it.
    let is_alone = !age_ns.is_multiple_of(2);
    let whole = is_alone.then(|| claim(&drive.busy)).flatten();
    let own = (!is_alone).then(|| slot.claim()).flatten();
    if whole.is_none() && own.is_none() {
        return;
    }
    // Where Aborts get no answer, a driver's timer that strikes again and again finds the slow commands, and what is left of them.
    let (aborts, age_ns) = if stack.promises.impatient { (ABORTS, age_ns.max(SLOW_NS)) } else { (1, age_ns) };
    for more in (0..aborts).rev() {
        abort_old(stack, slot, age_ns, is_alone);
        if more > 0 {
            SimHal.delay_ns(ABORT_GAP_NS);
        }
    }
}

fn abort_old(stack: &PcStack, slot: &Slot, age_ns: u64, is_alone: bool) {
    let drive = stack.drive_of(slot);
    let (Some(controller), Some(bound)) = (drive.controller(), slot.bound()) else { return };
    let now_ns = SimHal.now_ns();
    slot.load.may_be_aborted(now_ns.saturating_sub(age_ns));
    let old = slot.load.old(now_ns.saturating_sub(age_ns));
    match controller.abort_expired(&bound.pair, now_ns, age_ns) {
        Ok(report) if report.aborted > 0 => stack.saw("command: aborted"),
        Ok(report) if report.not_aborted > 0 => stack.saw("command: over before its Abort"),
        Ok(_) => {}
        // The drive was reset, is down, or was pulled out.
        Err(NvmeError::Stopped | NvmeError::Lost(..) | NvmeError::Gone) if !is_alone => {
            stack.saw("command: its Abort met a reset")
        }
        Err(NvmeError::Timeout(..)) if stack.promises.faulty => {
            check_stuck(&controller, slot, &bound, &old);
            stack.fails("an Abort", drive, &"it got no answer");
        }
        // A drive that refuses an Abort goes on with the command, and with all others.
        Err(NvmeError::Command(..)) if stack.promises.faulty => stack.saw("command: its Abort was refused"),
        Err(error) => stack.fails("an Abort", drive, &error),
    }
}

/// An Abort got no answer. If no command ended that it may have named, one of them is in flight behind its Abort.
fn check_stuck(controller: &Controller<SimHal>, slot: &Slot, bound: &Bound, old: &[u64]) {
    let report = controller.abort_expired(&bound.pair, SimHal.now_ns(), u64::MAX);
    if report.as_ref().is_ok_and(|report| report.stuck == 0) && old.iter().all(|&tag| slot.load.is_in_flight(tag)) {
        let text = format!(
            "an Abort got no answer, none of the commands {old:x?} has ended, and their driver says {report:?}"
        );
        violate("commands", text);
    }
}

fn check(slot: &Slot, policy: u32) {
    let Some(bound) = slot.bound() else { return };
    let policies = [CompletionLook::Auto, CompletionLook::Off, CompletionLook::On];
    bound.pair.set_completion_look(policies[policy as usize % policies.len()]);
}

/// Lends a queue's line to a guest for a while; this thread is the guest's virtual CPU. The host's own format may be either, and
/// then the entry changes from one to the other and back.
fn lend(stack: &PcStack, slot: &Slot, ns: u64) {
    let Some(_claim) = slot.claim() else { return };
    let Some(remap) = stack.host.remap() else { return };
    let Some(bound) = slot.bound() else { return };
    let is_posted = remap.is_posted() && !slot.unposted.load(Relaxed);
    let Some(view) = stack.host.core().view(bound.line) else { return };
    let entry = view.levels[1].hwirq;
    let Ok(memory) = SimHal.dma_alloc(64, 64) else { return };
    queues::disrupted(slot.load.index(), true);
    let guest = Descriptor::new(memory.words());
    guest.initialise(Notification { vector: GUEST_NOTIFICATION, destination: 0 });
    let serve = || {
        let reap = |_| _ = bound.pair.handle(bound.line);
        guest.serve(1, &Deliverable::ALL, |_| (), reap)
    };
    let posting = GuestPosting { descriptor: memory.device_address(), vector: GUEST_VECTOR, urgent: false };
    let lent = remap.lend_to_guest(entry, posting);
    let end_ns = if lent.is_ok() { SimHal.now_ns() + ns } else { 0 };
    lent.unwrap_or_else(|error| complain(stack, &error));
    while SimHal.now_ns() < end_ns {
        SimHal.delay_ns(2_000.min(ns));
        serve();
        if table_entry(stack, entry) != Some((true, memory.device_address().0)) {
            violate("entries", format!("entry {} is lent to a guest, and posts to another descriptor", entry.0));
        }
    }
    let is_owed = || stack.host.unit().and_then(|unit| unit.belief(entry.0)).is_some_and(|belief| belief.owed);
    let owed = is_owed();
    // Until then the unit may post there, even if lending failed.
    while let Err(error) = remap.take_back(entry) {
        complain(stack, &error);
        SimHal.delay_ns(20_000);
        serve();
    }
    serve();
    if owed && is_owed() {
        violate("beliefs", format!("entry {} came back from a guest, and its invalidation is owed", entry.0));
    }
    // No line exists while its CPUs are offline.
    if table_entry(stack, entry).is_some_and(|(posts, _)| posts != is_posted) {
        violate("entries", format!("entry {} came back from a guest in another format than the host's", entry.0));
    }
    stack.saw(if is_posted { "entry: posted to a guest and back" } else { "entry: remapped, a guest's, and back" });
    drop(memory);
}

/// Whether entry `hwirq` of the remapping table, if it is present, is posted, and to which descriptor (VT-d, "Interrupt
/// Remapping Table Entry (IRTE) for Posted Interrupts": P is bit 0, IM bit 15, the address's bits 31:6 are at 63:38, 63:32
/// at 127:96).
fn table_entry(stack: &PcStack, HardwareIrq(hwirq): HardwareIrq) -> Option<(bool, u64)> {
    let table = Regs::Model { model: stack.host.models.iommu, region: 0 }.read64(IRTA.offset()) & !0xfff;
    let word = |half: u64| peek64(table + 16 * hwirq + 8 * half).unwrap_or(0);
    let (low, high) = (word(0), word(1));
    (low & 1 != 0).then_some((low >> 15 & 1 != 0, low >> 38 << 6 | high >> 32 << 32))
}

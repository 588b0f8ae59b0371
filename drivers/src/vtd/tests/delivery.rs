//! The whole path inside the CPU: core, posted delivery and chips together.

use super::unit::{POSTING, Trouble};
use super::{Setup, request};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use hal::{CpuId, CpuSet};
use irq::{
    Action, AllocRequest, DeliveryKind, Flow, Irq, IrqCore, IrqReturn, RequestFlags, RequesterId, Target, Vector,
};

type Hal = hal::host::HostHal;

#[derive(Default)]
struct Count(AtomicU32);

impl Action for Count {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        self.0.fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

struct Host {
    setup: Setup,
    core: IrqCore<Hal>,
    irq: Irq,
    count: Arc<Count>,
}

impl Host {
    /// A posted line on CPU 0, requested.
    fn new() -> Self {
        let setup = Setup::new(POSTING);
        let mut core = IrqCore::new(setup.hal, crate::apic::core_config(2, 8)).unwrap();
        let (posted, lapic) = (setup.posted.clone(), setup.lapic.clone());
        let notification = Arc::new(move |core: &IrqCore<Hal>| {
            posted.handle(|vector| _ = core.dispatch(vector), || lapic.eoi());
        });
        core.set_system_vector(Vector(0xeb), "PMN", "Posted MSI notification event", notification).unwrap();
        core.set_root_chip(setup.vectors.chip().clone());
        let affinity = CpuSet::of(CpuId(0));
        let irq = core
            .alloc_line(
                Arc::new(setup.posted()),
                &AllocRequest { affinity, ..request(DeliveryKind::Fixed) },
                Flow::Edge,
            )
            .unwrap();
        let count = Arc::new(Count::default());
        core.request(irq, "test", RequestFlags::default(), count.clone()).unwrap();
        setup.apic.writes();
        Self { setup, core, irq, count }
    }

    fn target(&self) -> Target {
        self.core.view(self.irq).unwrap().effective.expect("the line has a vector")
    }

    /// The unit posts to where the entry points; whether a notification was sent.
    fn post(&self, target: Target) -> bool {
        self.setup.posted.descriptor(target.cpu).unwrap().post(target.vector().unwrap(), false).is_some()
    }

    fn take(&self, cpu: u32, vector: u8) {
        self.setup.hal.interrupt(CpuId(cpu), || self.core.handle_vector(Vector(vector)));
    }

    fn handled(&self) -> u32 {
        self.count.0.load(Relaxed)
    }
}

#[test]
fn a_posted_message_reaches_its_handler_with_one_eoi() {
    let host = Host::new();
    let target = host.target();
    assert_eq!(host.setup.device.entry(0), host.setup.posted_words(target));
    assert!(host.post(target) && !host.post(target));
    host.take(0, 0xeb);
    assert_eq!(host.handled(), 1, "two messages of one vector are one interrupt");
    assert_eq!(host.setup.apic.writes(), [(0x80b, 64, 0)]);
    assert_eq!(host.setup.posted.statistics(CpuId(0)).notifications, 1);
}

/// Defect: the posted chip's ack was a dummy, and a move that waited for it never came.
#[test]
fn a_line_that_moves_with_a_post_pending_loses_nothing() {
    let host = Host::new();
    let old = host.target();
    host.post(old);
    host.core.set_affinity(host.irq, &CpuSet::of(CpuId(1))).unwrap();
    let new = host.target();
    assert_eq!(new.cpu, CpuId(1));
    assert_eq!(host.setup.device.entry(0), host.setup.posted_words(new));
    // The message that was posted before the move is still delivered where it lies; later ones at the new place.
    host.setup.hal.advance_ns(10_000_000);
    host.take(0, 0xeb);
    assert_eq!(host.handled(), 1);
    host.post(new);
    host.take(1, 0xeb);
    assert_eq!(host.handled(), 2);
    // Moves go on: the old vector was given back once nothing was pending.
    host.setup.hal.advance_ns(10_000_000);
    host.setup.hal.interrupt(CpuId(0), || host.core.housekeep());
    host.core.set_affinity(host.irq, &CpuSet::of(CpuId(0))).unwrap();
    assert_eq!(host.target().cpu, CpuId(0));
}

#[test]
fn a_retriggered_line_does_not_block_its_cpu() {
    let host = Host::new();
    let vector = host.target().vector().unwrap().0;
    host.core.retrigger(host.irq).unwrap();
    assert_eq!(host.setup.apic.writes(), [(0x83f, 64, u64::from(vector))]);
    host.take(0, vector);
    assert_eq!(host.handled(), 1);
    assert_eq!(host.setup.apic.writes(), [(0x80b, 64, 0)], "taken directly, it ends directly");
}

#[test]
fn what_is_posted_to_a_cpu_that_goes_fires_at_the_next() {
    let host = Host::new();
    host.post(host.target());
    host.setup.hal.interrupt(CpuId(0), || _ = host.core.cpu_offline().unwrap());
    let new = host.target();
    assert_eq!(new.cpu, CpuId(1));
    let ipi = 0x0000_0123_0000_4000 | u64::from(new.vector().unwrap().0);
    assert!(host.setup.apic.writes().contains(&(0x830, 64, ipi)), "retriggered on the CPU of APIC id 0x123");
    host.take(1, new.vector().unwrap().0);
    assert_eq!(host.handled(), 1);
}

/// Defect: the entry of a line that could not be allocated was lost for good, and its vector went to another line at once.
#[test]
fn an_entry_whose_first_invalidation_failed_comes_back_with_its_vector() {
    let host = Host::new();
    let affinity = CpuSet::of(CpuId(1));
    let request = AllocRequest { index: 1, affinity, ..request(DeliveryKind::Fixed) };
    let again = || host.core.alloc_line(Arc::new(host.setup.posted()), &request, Flow::Edge);
    let used = || host.core.identities_of(CpuId(1)).unwrap().used;
    let after_a_while = || {
        host.setup.hal.advance_ns(10_000_000);
        host.setup.hal.interrupt(CpuId(1), || host.core.housekeep());
        (used(), host.setup.unit.belief(1).is_some())
    };
    host.setup.device.state.lock().unwrap().trouble = Some(Trouble::Dead);
    again().unwrap_err();
    assert_eq!(host.setup.device.entry(1), [0, 0]);
    assert_eq!(after_a_while(), (1, true), "the unit may still post to the vector");
    host.setup.device.recover();
    assert_eq!(after_a_while(), (0, false));
    assert_eq!(host.setup.unit.allocate(RequesterId(0)), Ok(1), "the entry is used again");
}

/// The handler of one line moves another, whose old vector the notification handler has harvested and not dispatched.
#[test]
fn a_vector_in_the_hands_of_the_notification_handler_is_still_pending() {
    let host = Arc::new(Host::new());
    let affinity = CpuSet::of(CpuId(0));
    let request = AllocRequest { index: 1, affinity, ..request(DeliveryKind::Fixed) };
    let second = host.core.alloc_line(Arc::new(host.setup.posted()), &request, Flow::Edge).unwrap();
    let (came, mover) = (Arc::new(Count::default()), Arc::downgrade(&host));
    host.core.request(second, "second", RequestFlags::default(), came.clone()).unwrap();
    let first = Mover(Box::new(move || {
        let host = mover.upgrade().unwrap();
        host.core.set_affinity(second, &CpuSet::of(CpuId(1))).unwrap();
    }));
    let action: Arc<dyn Action> = host.count.clone();
    host.core.free(host.irq, &action).unwrap();
    host.core.request(host.irq, "first", RequestFlags::default(), Arc::new(first)).unwrap();
    let old = host.core.view(second).unwrap().effective.unwrap();
    host.post(old);
    host.core.set_affinity(second, &CpuSet::of(CpuId(1))).unwrap();
    host.post(host.target());
    host.setup.hal.advance_ns(10_000_000);
    host.take(0, 0xeb);
    assert_eq!((came.0.load(Relaxed), host.core.stray_vectors(CpuId(0))), (1, 0));
}

struct Mover(Box<dyn Fn() + Send + Sync>);

impl Action for Mover {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        (self.0)();
        IrqReturn::Handled
    }
}

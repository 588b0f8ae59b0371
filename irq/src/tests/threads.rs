//! Threaded handlers, call by call. A test decides when threads run.

use super::*;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use hal::Hal as _;
use std::sync::Condvar;
use std::thread::yield_now;

/// The operations of a GIC with EOImode = 1.
pub(super) const GIC: Ops = Ops { automasks_flow: true, eoi_threaded: true, ..ALL_OPS };
pub(super) const ONESHOT: RequestFlags =
    RequestFlags { shared: false, start_disabled: false, oneshot: true, no_thread: false };

/// Lets a thread function end, one call at a time.
#[derive(Default)]
pub(super) struct Gate {
    permits: Mutex<u32>,
    changed: Condvar,
    /// Calls that have begun.
    begun: AtomicU32,
    /// Calls that have ended.
    passed: AtomicU32,
}

impl Gate {
    pub(super) fn open(&self) {
        *self.permits.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    pub(super) fn begun(&self) -> u32 {
        self.begun.load(SeqCst)
    }

    /// True if no thread waits here.
    pub(super) fn is_passed(&self) -> bool {
        self.begun() == self.passed.load(SeqCst)
    }

    pub(super) fn pass(&self) {
        self.begun.fetch_add(1, SeqCst);
        let permits = self.changed.wait_while(self.permits.lock().unwrap(), |permits| *permits == 0);
        *permits.unwrap() -= 1;
        self.passed.fetch_add(1, SeqCst);
    }
}

/// Waits until a thread has done its part.
pub(super) fn wait_until(done: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed().as_secs() < 30, "a thread did not do what the test waits for");
        yield_now();
    }
}

impl Bench {
    /// A handler that wakes its thread, and the thread function, which ends when the test lets it. Both log their ends.
    pub(super) fn threaded(&self, irq: Irq, flags: RequestFlags) -> (Arc<Gate>, Arc<dyn Action>) {
        let primary_log = self.log.clone();
        let primary = handler(move |_| {
            primary_log.add("handle");
            IrqReturn::WakeThread
        });
        let (gate, thread) = self.gated("thread");
        self.core.request_threaded(irq, "test", flags, Some(primary.clone()), thread).unwrap();
        self.log.take();
        (gate, primary)
    }

    pub(super) fn gated(&self, name: &'static str) -> (Arc<Gate>, Arc<dyn Action>) {
        let (log, gate) = (self.log.clone(), Arc::new(Gate::default()));
        let passed = gate.clone();
        let thread = handler(move |_| {
            passed.pass();
            log.add(name);
            IrqReturn::Handled
        });
        (gate, thread)
    }

    /// Lets one call of the thread function end. Then this many threads are at work.
    pub(super) fn end_thread(&self, irq: Irq, gate: &Gate, left: u32) {
        gate.open();
        wait_until(|| *gate.permits.lock().unwrap() == 0 && self.view(irq).threads_working == left);
    }

    pub(super) fn view(&self, irq: Irq) -> LineView {
        self.core.view(irq).unwrap()
    }
}

pub(super) fn oneshot(ops: Ops, flow: Flow) -> (Bench, Irq, Arc<Gate>, Arc<dyn Action>) {
    let bench = Bench::new(ops);
    let irq = bench.alloc(flow);
    let (gate, primary) = bench.threaded(irq, ONESHOT);
    (bench, irq, gate, primary)
}

#[test]
fn a_controller_that_masks_the_flow_itself_is_not_told_to_mask() {
    let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
    for _ in 0..3 {
        bench.fire(irq);
        assert_eq!(bench.said(), "ack handle");
        let view = bench.view(irq);
        assert!(view.active && view.flow_masked && view.oneshot && !view.masked && !view.in_progress, "{view}");
        bench.end_thread(irq, &gate, 0);
        assert_eq!(bench.said(), "thread eoi");
        assert!(!bench.view(irq).active);
    }
    bench.core.free(irq, &primary).unwrap();
}

/// The baseline of the experiment.
#[test]
fn any_other_is_masked_until_the_thread_is_done() {
    let cases = [
        (ALL_OPS, Flow::FastEoi, "mask handle eoi", "thread unmask"),
        (ALL_OPS, Flow::Level, "mask ack handle", "thread unmask"),
        (ALL_OPS, Flow::Strict, "mask ack handle eoi", "thread unmask"),
        (Ops { eoi_threaded: true, ..ALL_OPS }, Flow::FastEoi, "mask handle", "thread eoi unmask"),
        (Ops { eoi_threaded: true, ..ALL_OPS }, Flow::Strict, "mask ack handle", "thread eoi unmask"),
        // An edge is not held back: its handler runs again.
        (ALL_OPS, Flow::Edge, "ack handle", "thread"),
    ];
    for (ops, flow, interrupt, thread) in cases {
        let (bench, irq, gate, primary) = oneshot(ops, flow);
        bench.fire(irq);
        assert_eq!(bench.said(), interrupt, "{flow}");
        bench.end_thread(irq, &gate, 0);
        assert_eq!(bench.said(), thread, "{flow}");
        bench.core.free(irq, &primary).unwrap();
    }
}

#[test]
fn without_a_thread_woken_the_line_ends_and_opens_at_once() {
    for (ops, said) in [(GIC, "ack eoi"), (ALL_OPS, "mask ack eoi unmask")] {
        let bench = Bench::new(ops);
        let irq = bench.alloc(Flow::Strict);
        let thread = handler(|_| panic!("not woken"));
        let primary = handler(|_| IrqReturn::Handled);
        bench.core.request_threaded(irq, "test", ONESHOT, Some(primary.clone()), thread).unwrap();
        bench.said();
        bench.fire(irq);
        assert_eq!(bench.said(), said);
        bench.core.free(irq, &primary).unwrap();
    }
}

/// The eoi is given although the line is disabled. Without it the line would stay active for ever.
#[test]
fn a_line_that_was_disabled_meanwhile_ends_and_stays_masked() {
    let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
    bench.fire(irq);
    bench.core.disable_nosync(irq).unwrap();
    assert_eq!(bench.said(), "ack handle mask");
    bench.end_thread(irq, &gate, 0);
    assert_eq!(bench.said(), "thread eoi");
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "unmask");
    // A line that is enabled before its thread is done is unmasked only afterwards.
    bench.fire(irq);
    bench.core.disable_nosync(irq).unwrap();
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "ack handle mask");
    bench.end_thread(irq, &gate, 0);
    assert_eq!(bench.said(), "thread eoi unmask");
    bench.core.free(irq, &primary).unwrap();
}

/// The line is taken on another CPU, as after a move. One eoi can be left to the thread, the other is given at once.
#[test]
fn an_interrupt_that_comes_while_its_thread_works_is_ended_once_too() {
    let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
    bench.fire(irq);
    wait_until(|| gate.begun() == 1);
    bench.fire(irq);
    assert_eq!(bench.said(), "ack handle ack handle eoi");
    gate.open();
    wait_until(|| gate.begun() == 2);
    assert_eq!(bench.said(), "thread", "it was woken again");
    bench.end_thread(irq, &gate, 0);
    assert_eq!(bench.said(), "thread eoi");
    bench.core.free(irq, &primary).unwrap();
}

#[test]
fn a_primary_handler_that_fires_again_makes_its_thread_run_again() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::Edge);
    let (gate, primary) = bench.threaded(irq, RequestFlags::default());
    bench.fire(irq);
    wait_until(|| gate.begun() == 1);
    bench.fire(irq);
    bench.fire(irq);
    assert_eq!(bench.said(), "ack handle ack handle ack handle");
    gate.open();
    gate.open();
    wait_until(|| bench.view(irq).threads_working == 0);
    assert_eq!(bench.said(), "thread thread");
    bench.core.free(irq, &primary).unwrap();
}

#[test]
fn a_shared_line_opens_when_the_last_thread_is_done() {
    let bench = Bench::new(GIC);
    let irq = bench.alloc(Flow::Strict);
    let flags = RequestFlags { shared: true, ..ONESHOT };
    let (first_gate, first) = bench.gated("first");
    let (second_gate, second) = bench.gated("second");
    bench.core.request_threaded(irq, "first", flags, None, first.clone()).unwrap();
    bench.core.request_threaded(irq, "second", flags, None, second.clone()).unwrap();
    let lone = RequestFlags { shared: true, ..RequestFlags::default() };
    let refused = bench.core.request(irq, "third", lone, handler(|_| IrqReturn::None));
    assert_eq!(refused, Err(IrqError::NotShared(irq)), "not ONESHOT as the others");
    bench.said();
    bench.fire(irq);
    assert_eq!(bench.said(), "ack");
    bench.end_thread(irq, &second_gate, 1);
    assert_eq!(bench.said(), "second");
    bench.end_thread(irq, &first_gate, 0);
    assert_eq!(bench.said(), "first eoi");
    // With one of them gone while the line is held, the other one ends it.
    bench.fire(irq);
    first_gate.open();
    bench.core.free(irq, &first).unwrap();
    assert_eq!(bench.view(irq).handlers, ["second"]);
    assert_eq!(bench.said(), "ack first");
    bench.end_thread(irq, &second_gate, 0);
    assert_eq!(bench.said(), "second eoi");
    bench.core.free(irq, &second).unwrap();
    assert_eq!(bench.said(), "mask");
}

#[test]
fn a_line_takes_sixteen_threads() {
    let bench = Bench::new(GIC);
    let irq = bench.alloc(Flow::Strict);
    let flags = RequestFlags { shared: true, ..ONESHOT };
    let request = || {
        let action = handler(|_| IrqReturn::Handled);
        bench.core.request_threaded(irq, "one of many", flags, None, action.clone()).map(|()| action)
    };
    let actions: Vec<_> = (0..16).map(|_| request().unwrap()).collect();
    assert!(matches!(request(), Err(IrqError::Exhausted(_, 16))));
    bench.said();
    bench.fire(irq);
    wait_until(|| !bench.view(irq).active);
    assert_eq!(bench.said(), "ack eoi");
    bench.core.free(irq, &actions[7]).unwrap();
    let again = request().unwrap();
    for action in actions.iter().filter(|action| !Arc::ptr_eq(action, &actions[7])).chain([&again]) {
        bench.core.free(irq, action).unwrap();
        assert_eq!(Arc::strong_count(action), 1, "its thread has gone");
    }
}

#[test]
fn a_thread_alone_needs_oneshot_unless_the_chip_says_otherwise() {
    let request = |ops, flow, flags| {
        let bench = Bench::new(ops);
        let irq = bench.alloc(flow);
        let (_, thread) = bench.gated("thread");
        let result = bench.core.request_threaded(irq, "test", flags, None, thread.clone());
        if result.is_ok() {
            assert_eq!(bench.view(irq).oneshot, !ops.oneshot_safe);
            bench.core.free(irq, &thread).unwrap();
        }
        result
    };
    let (irq, safe) = (Irq(0), Ops { oneshot_safe: true, ..ALL_OPS });
    assert_eq!(request(ALL_OPS, Flow::Edge, RequestFlags::default()), Err(IrqError::NeedsOneshot(irq)));
    assert_eq!(request(safe, Flow::Edge, RequestFlags::default()), Ok(()));
    assert_eq!(request(safe, Flow::Edge, ONESHOT), Ok(()));
    assert_eq!(request(ALL_OPS, Flow::Edge, ONESHOT), Ok(()));
    let refused = request(ALL_OPS, Flow::PerCpu, ONESHOT);
    assert_eq!(refused, Err(IrqError::Flow(Flow::PerCpu, "a handler without a thread")));
    let unmaskable = Ops { mask: false, ..ALL_OPS };
    let refused = request(unmaskable, Flow::FastEoi, ONESHOT);
    assert_eq!(refused, Err(IrqError::Flow(Flow::FastEoi, "mask, for ONESHOT,")));
    assert_eq!(request(Ops { mask: false, ..GIC }, Flow::Strict, ONESHOT), Ok(()), "its active state holds it");
}

#[test]
fn forced_threading_moves_what_can_be_moved() {
    let forced = |flow, flags, action: fn(&Bench) -> Arc<dyn Action>| {
        let bench = Bench::forced(GIC);
        let irq = bench.alloc(flow);
        let action = action(&bench);
        bench.core.request(irq, "test", flags, action.clone()).unwrap();
        let view = bench.view(irq);
        bench.core.free(irq, &action).unwrap();
        (view.threads, view.oneshot)
    };
    let plain = |_: &Bench| handler(|_| IrqReturn::Handled);
    assert_eq!(forced(Flow::Strict, RequestFlags::default(), plain), (1, true));
    assert_eq!(forced(Flow::Strict, RequestFlags { no_thread: true, ..Default::default() }, plain), (0, false));
    assert_eq!(forced(Flow::Strict, ONESHOT, plain), (0, false), "without a thread nothing is held back");
    assert_eq!(forced(Flow::PerCpu, RequestFlags::default(), plain), (0, false));
}

#[test]
fn a_forced_handler_and_its_thread_function_run_in_one_thread() {
    let bench = Bench::forced(GIC);
    let irq = bench.alloc(Flow::Strict);
    let (gate, primary) = bench.threaded(irq, RequestFlags::default());
    bench.fire(irq);
    bench.end_thread(irq, &gate, 0);
    assert_eq!(bench.said(), "ack handle thread eoi");
    bench.core.free(irq, &primary).unwrap();
}

/// Also for the end that the thread gives to the controller: a wait used to be over when the thread function was.
#[test]
fn free_and_synchronize_wait_for_threads_but_not_inside_one() {
    let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
    *bench.domain.0.ends_slowly.lock().unwrap() = true;
    let core = bench.core.clone();
    let inside = handler(move |irq| {
        assert_eq!(core.synchronize(irq), Err(IrqError::InHandler(irq)));
        assert_eq!(core.disable(irq), Err(IrqError::InHandler(irq)));
        IrqReturn::Handled
    });
    bench.fire(irq);
    let opener = {
        let (gate, log) = (gate.clone(), bench.log.clone());
        std::thread::spawn(move || {
            wait_until(|| log.has("mask"));
            // The other thread begins to wait.
            std::thread::sleep(core::time::Duration::from_millis(5));
            gate.open();
        })
    };
    bench.core.disable(irq).unwrap();
    assert_eq!(bench.said(), "ack handle mask thread end begun eoi");
    opener.join().unwrap();
    bench.core.free(irq, &primary).unwrap();
    assert_eq!(Arc::strong_count(&primary), 1);
    bench.core.request_threaded(irq, "inside", ONESHOT, None, inside.clone()).unwrap();
    bench.fire(irq);
    bench.core.synchronize(irq).unwrap();
    bench.core.free(irq, &inside).unwrap();
    assert_eq!(bench.view(irq).unhandled, 0);
    bench.core.free_line(irq).unwrap();
}

/// It is a thread of the line until it ends. It used to wait for itself, and the free for it.
#[test]
fn a_thread_whose_handler_is_being_freed_may_not_wait_for_itself() {
    let (bench, irq, _gate, primary) = oneshot(GIC, Flow::Strict);
    bench.core.free(irq, &primary).unwrap();
    let (core, answers) = (bench.core.clone(), Arc::new(Mutex::new(Vec::new())));
    let said = answers.clone();
    let inside = handler(move |irq| {
        wait_until(|| core.view(irq).is_some_and(|view| view.handlers.is_empty()));
        *said.lock().unwrap() = Vec::from([core.synchronize(irq), core.disable(irq), core.free_line(irq)]);
        IrqReturn::Handled
    });
    bench.core.request_threaded(irq, "inside", ONESHOT, None, inside.clone()).unwrap();
    bench.fire(irq);
    bench.core.free(irq, &inside).unwrap();
    assert_eq!(*answers.lock().unwrap(), [Err(IrqError::InHandler(irq)); 3]);
    bench.core.free_line(irq).unwrap();
}

/// Freed while its thread holds the line, the line is ended and not left active.
#[test]
fn a_handler_freed_while_its_thread_works_leaves_nothing_active() {
    let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
    bench.fire(irq);
    gate.open();
    bench.core.free(irq, &primary).unwrap();
    let said = bench.said();
    assert!(
        said == "ack handle mask thread eoi"
            || said == "ack handle thread mask eoi"
            || said == "ack handle thread eoi mask",
        "{said}"
    );
    assert!(!bench.view(irq).active);
}

#[test]
fn threads_run_where_their_line_is_delivered() {
    let bench = Bench::new(GIC);
    let irq = bench.alloc(Flow::Strict);
    let hal = bench.hal;
    let log = bench.log.clone();
    let thread = handler(move |_| {
        log.add(if hal.cpu() == CPU0 { "on 0" } else { "on 1" });
        IrqReturn::Handled
    });
    bench.core.request_threaded(irq, "test", ONESHOT, None, thread.clone()).unwrap();
    bench.said();
    let cycle = || {
        bench.fire(irq);
        wait_until(|| !bench.view(irq).active);
        bench.said()
    };
    assert_eq!(cycle(), "ack on 0 eoi");
    bench.core.set_affinity(irq, &CpuSet::of(CPU1)).unwrap();
    assert_eq!(cycle(), "set_affinity ack on 1 eoi");
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert_eq!(cycle(), "set_affinity ack on 0 eoi");
    bench.core.free(irq, &thread).unwrap();
}

#[test]
fn a_thread_that_finds_nothing_counts_towards_a_storm() {
    let storm = StormConfig { burst: 10, burst_ns_min: 0, unhandled_max: 8, throttle_ns: 500 };
    let bench = Bench::with(GIC, |config| config.storm = storm);
    let irq = bench.alloc(Flow::Strict);
    let thread = handler(|_| IrqReturn::None);
    bench.core.request_threaded(irq, "test", ONESHOT, None, thread.clone()).unwrap();
    for _ in 0..10 {
        bench.fire(irq);
        wait_until(|| !bench.view(irq).active);
    }
    let view = bench.view(irq);
    assert_eq!((view.storms, view.unhandled, view.masked), (1, 10, true));
    bench.core.free(irq, &thread).unwrap();
}

#[test]
fn the_debug_view_shows_what_holds_the_line() {
    let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
    bench.fire(irq);
    let text = bench.view(irq).to_string();
    assert!(text.contains("flags active flow-masked oneshot\n"), "{text}");
    assert!(text.contains("threads 1 of which 1 at work\n"), "{text}");
    gate.open();
    bench.core.free(irq, &primary).unwrap();
}

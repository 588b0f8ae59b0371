//! The RDMA driver against the model of the NIC.

mod rdma_rig;

use drivers::rdma::{
    CqConfig, CqContext, CqUse, Device, DeviceConfig, Missed, PostReceive, PostSend, QpConfig, RdmaError, Refusal,
    Worker,
};
use hal::{Affinity, CpuId, Dma as _, Hal as _, ThreadSpec, Threads, Word as _};
use irq::moderation::{Controller, Found, Next, Outcome, Setting, Step, Tuner, TuningView};
use irq::{Action, Irq, IrqReturn};
use machine::SimHal;
use machine::rdma::{Config, ModerationAnswer};
use rdma_rig::{End, Host, host, memory};
use spec::rdma::{Operation, Status};
use std::sync::{Arc, Mutex};

#[test]
fn a_message_fills_a_receive_and_completes_at_both_ends() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        a.memory.words()[0].set(0x1122_3344_5566_7788);
        a.memory.words()[7].set(42);
        b.receives(10, 1);
        a.sends(20, 1);
        host.wait_ns(10_000);
        assert_eq!((a.queue.poll(16), b.queue.poll(16)), (1, 1));
        let (sent, received) = (a.seen.take()[0], b.seen.take()[0]);
        assert_eq!((sent.id, sent.operation, sent.status), (20, Operation::SEND, Status::SUCCESS));
        assert_eq!((received.id, received.operation, received.bytes), (10, Operation::RECEIVE, 64));
        let place = (4096 + 10 * 64) / 8;
        assert_eq!((b.memory.words()[place].get(), b.memory.words()[place + 7].get()), (0x1122_3344_5566_7788, 42));
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn a_write_lands_in_lent_memory_and_completes_at_the_sender_alone() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        let lent = memory(4096);
        let other = memory(4096);
        b.device.lend(other.device_address(), 4096).expect("a region");
        let key = b.device.lend(lent.device_address(), 4096).expect("another");
        b.device.lend(other.device_address(), 4096).expect("a third");
        a.memory.words()[63].set(0xfeed);
        let remote = Some((key, lent.device_address().offset(512)));
        a.pair.post_send(&PostSend { remote, ..a.send(1, 512) }).expect("room");
        a.pair.ring_sends();
        host.wait_ns(10_000);
        assert_eq!((a.queue.poll(16), b.queue.poll(16)), (1, 0));
        assert_eq!(lent.words()[127].get(), 0xfeed);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn a_completion_with_an_error_is_counted() {
    host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        let events = a.device.event_queue(1).expect("open").clone();
        host.msix_on(0);
        host.serve(0, 1, events.clone());
        let lent = memory(4096);
        let key = b.device.lend(lent.device_address(), 4096).expect("a region");
        // One byte beyond its end.
        let remote = Some((key, lent.device_address().offset(4096 - 511)));
        a.pair.post_send(&PostSend { remote, ..a.send(1, 512) }).expect("room");
        a.pair.ring_sends();
        host.wait_ns(10_000);
        assert_eq!(a.queue.poll(16), 1);
        assert_ne!(a.seen.take()[0].status, Status::SUCCESS);
        assert_eq!((a.queue.counters().completions, a.queue.counters().errors), (1, 1));
        assert_eq!(events.counters().qp_errors, 1, "the queue pair stopped");
    });
}

#[test]
fn polling_takes_batches_of_16_within_the_budget() {
    host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        b.receives(0, 100);
        a.sends(0, 100);
        host.wait_ns(50_000);
        assert_eq!(b.queue.poll(40), 40);
        assert_eq!(b.queue.poll(256), 60);
        assert_eq!(*b.seen.batches.lock().expect("one host thread"), [16, 16, 8, 16, 16, 16, 12]);
        let ids: Vec<u64> = b.seen.take().iter().map(|done| done.id).collect();
        assert_eq!(ids, (0..100).collect::<Vec<_>>());
        let counters = b.queue.counters();
        assert_eq!((counters.completions, counters.batches, counters.errors), (100, 7, 0));
    });
}

#[test]
fn completions_go_round_the_queue_many_times() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        for round in 0..20 {
            b.receives(round * 100, 100);
            a.sends(round * 100, 100);
            host.wait_ns(50_000);
            assert_eq!((a.queue.poll(1_000), b.queue.poll(1_000)), (100, 100));
            a.pair.sends_ended(100);
            b.pair.receives_ended(100);
        }
        assert_eq!(b.seen.count(), 2_000);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn arming_reports_what_came_before_and_would_raise_nothing() {
    host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        b.receives(0, 2);
        assert_eq!(b.queue.arm(), Missed::No);
        a.sends(0, 1);
        host.wait_ns(10_000);
        assert_eq!(b.queue.arm(), Missed::Yes);
        assert_eq!(b.queue.poll(16), 1);
        assert_eq!(b.queue.counters().missed, 1);
    });
}

#[test]
fn events_that_nobody_takes_yet_do_not_outgrow_their_queue() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        b.receives(0, 301);
        for round in 0..300 {
            // The queue is polled and armed again and again, and its event queue is not looked at.
            assert_eq!(b.queue.arm(), Missed::No);
            a.sends(round, 1);
            host.wait_ns(5_000);
            assert_eq!((a.queue.poll(16), b.queue.poll(16)), (1, 1));
            a.pair.sends_ended(1);
        }
        // Two of them wait. Once they are taken, the queue reports events as usual.
        let soft = host.soft_poll(1, &b);
        let events = b.device.event_queue(1).expect("open");
        events.handle(Irq(0));
        host.wait_ns(5_000);
        assert_eq!((events.counters().completions, b.seen.count()), (2, 300));
        a.sends(300, 1);
        host.wait_ns(5_000);
        assert_eq!((events.counters().completions, b.seen.count()), (3, 301));
        assert_eq!((events.counters().interrupts, events.counters().empty), (2, 0));
        assert_eq!(events.handle(Irq(0)), IrqReturn::None);
        assert_eq!(events.counters().empty, 1);
        drop(soft);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn a_handler_in_a_thread_has_the_queue_polled_too() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        let soft = host.soft_poll(1, &b);
        // No interrupt comes, so no end of an interrupt polls the queue.
        host.serve(1, 1, Arc::new(Unheard));
        b.receives(0, 1);
        a.sends(0, 1);
        host.wait_ns(5_000);
        b.device.event_queue(1).expect("open").handle(Irq(0));
        SimHal.yield_now();
        assert_eq!(b.seen.count(), 1);
        drop(soft);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

struct Unheard;

impl Action for Unheard {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        IrqReturn::Handled
    }
}

#[test]
fn every_completion_is_polled_at_the_end_of_interrupts() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        let soft = host.soft_poll(1, &b);
        b.receives(0, 500);
        for round in 0..5 {
            a.sends(round * 100, 100);
            host.wait_ns(20_000);
            a.queue.poll(1_000);
            a.pair.sends_ended(100);
        }
        host.wait_ns(100_000);
        assert_eq!(b.seen.count(), 500);
        drop(soft);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
    assert!(after.counter(1, "events") > 10, "{}", after.counter(1, "events"));
}

#[test]
fn a_thread_polls_with_a_budget_of_its_own() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        let spec = ThreadSpec { name: "cq", affinity: Affinity::Cpu(CpuId(0)), urgent: true };
        b.receives(0, 400);
        host.msix_on(1);
        let events = b.device.event_queue(1).expect("open").clone();
        host.serve(1, 1, events.clone());
        let worker = Worker::start(SimHal, spec, b.queue.clone()).expect("a thread");
        events.attach(&b.queue, CqContext::Workqueue(worker.clone()));
        for round in 0..4 {
            a.sends(round * 100, 100);
            host.wait_ns(30_000);
            a.queue.poll(1_000);
            a.pair.sends_ended(100);
        }
        host.wait_ns(100_000);
        assert_eq!(b.seen.count(), 400);
        worker.stop();
        host.wait_ns(1_000);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

/// Ten messages 2 µs apart; when the second end's user was told, in batches.
fn moderated(config: Config, setting: Setting) -> (Result<Setting, RdmaError>, usize, u64) {
    let after = host(config, move |host| {
        let [a, b] = host.connected(None);
        let has = b.queue.set_moderation(setting);
        let _soft = host.soft_poll(1, &b);
        b.receives(0, 16);
        for id in 0..10 {
            a.sends(id, 1);
            host.wait_ns(2_000);
        }
        host.wait_ns(200_000);
        let batches = b.seen.batches.lock().expect("one host thread").len();
        assert_eq!(b.seen.count(), 10);
        (has, batches)
    });
    let period_events = after.counter(1, "period_events");
    (after.result.0, after.result.1, period_events)
}

#[test]
fn moderation_waits_for_a_count_or_a_period() {
    assert_eq!(moderated(Config::default(), Setting::OFF), (Ok(Setting::OFF), 10, 0));
    // Five at a time.
    let setting = Setting::new(1_000, 5);
    assert_eq!(moderated(Config::default(), setting), (Ok(setting), 2, 0));
    // 7 µs from the first: four.
    let setting = Setting::new(7, 100);
    assert_eq!(moderated(Config::default(), setting), (Ok(setting), 3, 3));
}

/// Completions that were polled before their period ended are not announced again; the next one starts a new period.
#[test]
fn a_period_ends_with_the_entry_that_began_it() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        let told = || b.device.event_queue(1).expect("open").counters().completions;
        b.queue.set_moderation(Setting::new(20, 100)).expect("exclusive");
        let soft = host.soft_poll(1, &b);
        b.receives(0, 2);
        a.sends(0, 1);
        host.wait_ns(10_000);
        assert_eq!((b.queue.poll_direct(16), b.queue.arm(), told()), (1, Missed::No, 0));
        a.sends(1, 1);
        host.wait_ns(17_000);
        assert_eq!((b.seen.count(), told()), (1, 0), "the first one's period is over");
        host.wait_ns(10_000);
        assert_eq!((b.seen.count(), told()), (2, 1));
        drop(soft);
    });
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

/// A user posts more than its completion queue holds: the queue stops, its entries can be taken, the event queue
/// reports it, and no other object is touched.
#[test]
fn a_completion_queue_that_overruns_keeps_what_it_has_and_says_so() {
    let after = host(Config::default(), |host| {
        let [a, b] = host.connected(None);
        let events = a.device.event_queue(1).expect("open").clone();
        host.msix_on(0);
        host.serve(0, 1, events.clone());
        let small = CqConfig { entries: 16, event_queue: 1, owner: CqUse::Exclusive };
        let seen = Arc::new(rdma_rig::Seen::default());
        let queue = a.device.open_cq(small, seen.clone(), None).expect("a queue");
        let config = QpConfig { sends: 16, receives: 16 };
        let refused = a.device.open_qp(config, &queue, &queue).err();
        assert_eq!(refused, Some(drivers::rdma::RdmaError::Capacity(32, 16)));
        let pairs = [a.device.open_qp(config, &queue, &a.queue), b.device.open_qp(config, &b.queue, &b.queue)];
        let [ours, theirs] = pairs.map(|pair| pair.expect("a queue pair"));
        ours.connect(theirs.number()).expect("connected");
        theirs.connect(ours.number()).expect("connected");
        for round in 0..2 {
            for id in 0..16 {
                theirs.post_receive(&PostReceive { id, local: b.at(0), bytes: 64 }).expect("room");
                ours.post_send(&a.send(16 * round + id, 64)).expect("room");
            }
            theirs.ring_receives();
            ours.ring_sends();
            host.wait_ns(50_000);
            // The user counts wrong: no completion was taken.
            ours.sends_ended(16);
            theirs.receives_ended(16);
        }
        assert_eq!((queue.poll(100), queue.poll(100)), (16, 0));
        let ids: Vec<u64> = seen.take().iter().map(|done| done.id).collect();
        assert_eq!(ids, (0..16).collect::<Vec<_>>());
        assert_eq!(events.counters().cq_errors, 1);
        let _ = queue.arm();
        b.queue.poll(100);
        b.receives(0, 1);
        a.sends(99, 1);
        host.wait_ns(20_000);
        assert_eq!((a.queue.poll(16), b.queue.poll(16)), (1, 1), "the others go on");
    });
    assert!(after.faulted("completion queue overrun"), "{:?}", after.faults);
}

#[test]
fn a_device_may_round_or_refuse_a_moderation() {
    let rounds = ModerationAnswer::Rounds { count: 4, period_us: 50 };
    let config = Config { moderation: rounds, ..Config::default() };
    let (has, batches, _) = moderated(config, Setting::new(64, 5));
    assert_eq!((has, batches), (Ok(Setting::new(100, 8)), 2));
    let config = Config { moderation: ModerationAnswer::Refuses, ..Config::default() };
    let (has, batches, _) = moderated(config, Setting::new(64, 5));
    assert_eq!((has, batches), (Err(RdmaError::ModerationRefused(Setting::new(0, 0))), 10));
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    host(Config { completion_queues: 2, queue_pairs: 1, memory_regions: 1, ..Config::default() }, |host| {
        let device = host.sides[0].device();
        let seen = Arc::new(rdma_rig::Seen::default());
        let config = CqConfig { entries: 64, event_queue: 0, owner: CqUse::Shared };
        let shared = device.open_cq(config, seen.clone(), None).expect("a queue");
        let error = shared.set_moderation(Setting::new(16, 16)).expect_err("shared");
        assert_eq!(error, RdmaError::Shared);
        assert!(error.to_string().contains("shared"));
        let tuning = irq::moderation::Tuning {
            algorithm: irq::moderation::Algorithm::Adaptive,
            table: irq::moderation::LevelTable::new(irq::moderation::LevelTable::RDMA_DIM).expect("sorted"),
            nr_events: 64,
        };
        let tuner = tuning.tuner(SimHal).expect("events");
        assert_eq!(device.open_cq(config, seen.clone(), Some(tuner)).err(), Some(RdmaError::Shared));
        let own = CqConfig { owner: CqUse::Exclusive, ..config };
        for entries in [0, 8, 48, 1 << 20] {
            let config = CqConfig { entries, ..own };
            assert_eq!(device.open_cq(config, seen.clone(), None).err(), Some(RdmaError::Entries(entries, 1 << 14)));
        }
        let elsewhere = CqConfig { event_queue: 9, ..own };
        assert_eq!(device.open_cq(elsewhere, seen.clone(), None).err(), Some(RdmaError::NoEventQueue(9, 4)));
        let queue = device.open_cq(own, seen.clone(), None).expect("the second");
        assert_eq!(device.open_cq(own, seen, None).err(), Some(RdmaError::Exhausted("completion queues", 2)));
        let far = Setting::new(40_000, 1);
        assert_eq!(queue.set_moderation(far), Err(RdmaError::Moderation(far)));
        let pair = device.open_qp(QpConfig { sends: 16, receives: 16 }, &queue, &queue).expect("a pair");
        let send = PostSend { id: 0, local: hal::DeviceAddress(0), bytes: 8, remote: None, signalled: true };
        assert_eq!(pair.post_send(&send), Err(Refusal::NotConnected));
        pair.connect(0).expect("connected");
        assert_eq!(pair.post_send(&PostSend { bytes: 7, ..send }), Err(Refusal::Length(7)));
        for id in 0..16 {
            pair.post_receive(&PostReceive { id, local: hal::DeviceAddress(0), bytes: 8 }).expect("room");
        }
        let receive = PostReceive { id: 16, local: hal::DeviceAddress(0), bytes: 8 };
        assert_eq!(pair.post_receive(&receive), Err(Refusal::Full(16)));
        let lent = memory(64);
        device.lend(lent.device_address(), 64).expect("the first");
        assert_eq!(device.lend(lent.device_address(), 64), Err(RdmaError::Exhausted("memory regions", 1)));
        let config = DeviceConfig { event_queues: 0, ready_timeout_ns: 1 };
        let none = Device::new(SimHal, host.sides[1].regs(), host.sides[1].doorbells(), config);
        assert_eq!(none.err(), Some(RdmaError::NoEventQueue(0, 64)));
        assert_eq!(SimHal.cpu(), CpuId(0));
    });
}

/// A tuner whose controller adds up its inputs, by kind.
fn counting() -> (Arc<Tuner<SimHal>>, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    (Arc::new(Tuner::new(SimHal, Box::new(Counting(told.clone())))), told)
}

#[derive(Clone, Copy, Default)]
struct Told {
    by_interrupt: u32,
    polled: u32,
    depth: Option<u32>,
}

struct Counting(Arc<Mutex<Told>>);

impl Controller for Counting {
    fn interrupt(&mut self, _now_ns: u64, found: Found) -> Next {
        let mut told = self.0.lock().expect("one host thread");
        (told.by_interrupt, told.depth) = (told.by_interrupt + found.completions, found.in_flight);
        Next::Measure
    }
    fn polled(&mut self, _now_ns: u64, found: Found) -> Next {
        let mut told = self.0.lock().expect("one host thread");
        (told.polled, told.depth) = (told.polled + found.completions, found.in_flight);
        Next::Measure
    }
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    fn elapsed(&mut self, _now_ns: u64) -> Next {
        Next::Measure
    }
    fn step(&self) -> Option<Step> {
        None
    }
    fn programmed(&mut self, _now_ns: u64, _id: u32, _outcome: Outcome) -> Next {
        Next::Measure
    }
    fn level(&self) -> usize {
        0
    }
    fn view(&self) -> TuningView {
        unreachable!("nobody programs")
    }
}

/// The reports to a controller about 100 messages, which the second end takes in the context that `start` gives it.
fn told(start: fn(&Host, &End)) -> Told {
    host(Config::default(), move |host| {
        let (tuner, told) = counting();
        let [a, b] = host.connected(Some(tuner));
        b.receives(0, 100);
        start(host, &b);
        for round in 0..10 {
            a.sends(round * 10, 10);
            host.wait_ns(20_000);
        }
        b.queue.poll_direct(256);
        assert_eq!(b.seen.count(), 100);
        let told = *told.lock().expect("one host thread");
        assert_eq!((told.by_interrupt + told.polled, told.depth), (100, Some(7)));
        told
    })
    .result
}

#[test]
fn every_context_tells_the_tuning_what_it_found() {
    assert_eq!(told(|_, _| {}).polled, 100, "direct polling alone");
    let soft = told(|host, end| {
        host.soft_poll(1, end);
    });
    assert!(soft.by_interrupt >= 30, "{}", soft.by_interrupt);
    let worker = told(|host, end| {
        let spec = ThreadSpec { name: "cq", affinity: Affinity::Cpu(CpuId(0)), urgent: true };
        host.msix_on(1);
        let events = end.device.event_queue(1).expect("open").clone();
        host.serve(1, 1, events.clone());
        let worker = Worker::start(SimHal, spec, end.queue.clone()).expect("a thread");
        events.attach(&end.queue, CqContext::Workqueue(worker));
        // It arms the queue before the load begins.
        host.wait_ns(10_000);
    });
    assert!(worker.by_interrupt >= 30, "{}", worker.by_interrupt);
}

//! The driver against the model: the model executes what the driver writes.

mod nvme_rig;

use drivers::nvme::{
    BatchDone, Coalescing, CoalescingThreshold, CoalescingTime, Completed, Controller, DeviceFault, IoError, IoOp,
    IoRequest, NvmeError, QueueConfig, QueuePair, Refusal, VectorCoalescing,
};
use hal::{Dma as _, Hal as _, Regs as _};
use machine::SimHal;
use machine::nvme::{Config, FaultPlan, StorageKind};
use machine::outage::Outage;
use machine::time::Ps;
use nvme_rig::{DmaBuffer, Host, config, host, memory, unreliable};
use spec::nvme::Status;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Records completions.
#[derive(Default)]
struct Done(Mutex<Vec<Completed>>);

impl BatchDone for Done {
    fn batch_done(&self, batch: &[Completed]) {
        self.0.lock().expect("one host thread").extend_from_slice(batch);
    }
}

impl Done {
    fn take(&self) -> Vec<Completed> {
        core::mem::take(&mut self.0.lock().expect("one host thread"))
    }
    /// (tag, error) of the completions, in the order of tags.
    fn results(&self) -> Vec<(u64, Option<IoError>)> {
        let mut results: Vec<_> = self.take().iter().map(|done| (done.tag, done.result.err())).collect();
        results.sort_unstable_by_key(|&(tag, _)| tag);
        results
    }
}

struct Queue {
    pair: Arc<QueuePair<SimHal>>,
    done: Arc<Done>,
}

fn controller(host: &Host) -> Controller<SimHal> {
    host.msix_on(5);
    let config = drivers::nvme::Config { queue_pairs: 4, ..Default::default() };
    Controller::new(SimHal, host.bar0, config).expect("the controller starts")
}

/// A pair of 16 entries whose vector is served.
fn queue(host: &Host, controller: &Controller<SimHal>, vector: Option<u16>) -> Queue {
    let done = Arc::new(Done::default());
    let config = QueueConfig { entries: 16, vector, transfer_bytes_max: 128 << 10 };
    let pair = controller.create_queue_pair(config, done.clone()).expect("a queue pair");
    if let Some(vector) = vector {
        host.serve(vector, pair.clone());
    }
    Queue { pair, done }
}

fn request(op: IoOp, tag: u64, lba: u64, buffer: &DmaBuffer, len_bytes: u32) -> IoRequest {
    IoRequest { tag, op, lba, buffer: buffer.device_address(), len_bytes }
}

fn flush(tag: u64) -> IoRequest {
    IoRequest { tag, op: IoOp::Flush, lba: 0, buffer: hal::DeviceAddress(0), len_bytes: 0 }
}

fn flushes(tags: core::ops::Range<u64>) -> Vec<IoRequest> {
    tags.map(flush).collect()
}

#[test]
fn the_driver_finds_what_the_model_says() {
    let after = host(config(), |host| {
        let controller = controller(host);
        let (info, namespace) = (controller.info().clone(), controller.namespace());
        assert_eq!(
            (info.model.as_str(), info.namespaces_max, info.transfer_bytes_max),
            ("Campanile:nvme", 1, 128 << 10)
        );
        assert_eq!((namespace.nsid, namespace.blocks, namespace.block_bytes()), (1, 0x1_0000, 512));
        assert_eq!((controller.queue_pairs_max(), controller.queue_entries_max()), (4, 64));
        controller.shutdown().expect("it shuts down");
        host.bar0.read32(0x1c)
    });
    assert_eq!(after.result & 1, 0, "not ready");
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn data_comes_back_over_several_queues() {
    let after = host(Config { storage: StorageKind::Memory, ..config() }, |host| {
        let controller = controller(host);
        let queues: Vec<_> = (1..=4).map(|vector| queue(host, &controller, Some(vector))).collect();
        for (index, queue) in queues.iter().enumerate() {
            // One page, two pages, lists; from the beginning of the buffer.
            for (round, len) in [512u32, 4096, 8192, 12 << 10, 128 << 10].into_iter().enumerate() {
                let (from, to) = (memory(128 << 10), memory(128 << 10));
                for at in (0..len as usize).step_by(4) {
                    from.write32(at, (at as u32 + round as u32 + 1).wrapping_mul(0x85eb_ca6b));
                }
                let lba = 1000 * (index as u64 + 1);
                for (op, buffer) in [(IoOp::Write, &from), (IoOp::Read, &to)] {
                    let submitted = queue.pair.submit(&[request(op, round as u64, lba, buffer, len)]);
                    assert_eq!((submitted.accepted, submitted.refused), (1, None));
                    host.wait_ns(100_000);
                    assert_eq!(queue.done.results(), [(round as u64, None)], "{len} bytes");
                }
                let differs = (0..len as usize).step_by(4).find(|&at| from.read32(at) != to.read32(at));
                assert_eq!(differs, None, "{len} bytes");
            }
        }
        controller.shutdown().expect("it shuts down");
    });
    assert_eq!((after.counter("reads"), after.counter("writes"), after.counter("errors")), (20, 20, 0));
    assert!(after.by_vector[1..].iter().all(|&messages| messages == 10), "{:?}", after.by_vector);
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn a_full_queue_refuses_and_the_phase_goes_round() {
    let after = host(config(), |host| {
        let controller = controller(host);
        let queue = queue(host, &controller, Some(1));
        for batch in 0..100 {
            let submitted = queue.pair.submit(&flushes(batch * 20..batch * 20 + 20));
            assert_eq!((submitted.accepted, submitted.refused), (15, Some(Refusal::Full)));
            host.wait_ns(20_000);
            let expected: Vec<_> = (batch * 20..batch * 20 + 15).map(|tag| (tag, None)).collect();
            assert_eq!(queue.done.results(), expected);
        }
        let snapshot = queue.pair.snapshot();
        assert_eq!((snapshot.completion.device_faults, snapshot.in_flight), (0, 0));
    });
    assert_eq!((after.counter("flushes"), after.counter("doorbell_errors")), (1500, 0));
}

#[test]
fn a_polled_queue_has_no_interrupts() {
    let after = host(config(), |host| {
        let controller = controller(host);
        let queue = queue(host, &controller, None);
        assert_eq!(queue.pair.submit(&flushes(0..10)).accepted, 10);
        let mut taken = 0;
        let deadline = SimHal.now_ns() + 100_000;
        while taken < 10 && queue.pair.wait_for_completion(deadline) {
            taken += queue.pair.poll(4);
        }
        assert_eq!(queue.done.results().len(), 10);
    });
    assert_eq!(after.by_vector[1..].iter().sum::<u64>(), 0);
}

/// Messages for 160 flushes, 10 µs apart.
fn messages_with(coalescing: Coalescing, vector: VectorCoalescing) -> u64 {
    let after = host(config(), move |host| {
        let controller = controller(host);
        let queue = queue(host, &controller, Some(2));
        controller.set_coalescing(coalescing).expect("feature 08h");
        controller.set_vector_coalescing(2, vector).expect("feature 09h");
        assert_eq!(controller.coalescing().expect("feature 08h"), coalescing);
        assert_eq!(controller.vector_coalescing(2).expect("feature 09h"), vector);
        for tag in 0..160 {
            assert_eq!(queue.pair.submit(&[flush(tag)]).accepted, 1);
            host.wait_ns(10_000);
        }
        host.wait_ns(1_000_000);
        assert_eq!(queue.done.results().len(), 160);
    });
    after.by_vector[2]
}

#[test]
fn coalescing_makes_fewer_interrupts() {
    let eight = Coalescing {
        time: CoalescingTime::from_us(1000).expect("ten steps"),
        threshold: CoalescingThreshold::entries(8).expect("in range"),
    };
    assert_eq!(messages_with(Coalescing::OFF, VectorCoalescing::Coalesced), 160);
    assert_eq!(messages_with(eight, VectorCoalescing::Coalesced), 20);
    assert_eq!(messages_with(eight, VectorCoalescing::Immediate), 160);
}

#[test]
fn a_masked_vector_waits_for_its_mask_to_go() {
    host(config(), |host| {
        let controller = controller(host);
        let queue = queue(host, &controller, Some(1));
        host.msix.write32(16 + 12, 1);
        assert_eq!(queue.pair.submit(&flushes(0..5)).accepted, 5);
        host.wait_ns(100_000);
        assert_eq!(queue.done.results(), []);
        host.msix.write32(16 + 12, 0);
        host.wait_ns(1_000);
        assert_eq!(queue.done.results().len(), 5);
        assert_eq!(queue.pair.snapshot().completion.interrupts, 1);
    });
}

#[test]
fn a_failure_and_a_reset_end_every_command_once() {
    let faults = FaultPlan { fatal_at: Some(Ps::from_ns(2_000_000)), ..FaultPlan::default() };
    let after = host(Config { faults, ..config() }, |host| {
        let controller = controller(host);
        let queue = queue(host, &controller, Some(1));
        let now = SimHal.now_ns();
        host.wait_ns(1_995_000 - now);
        assert_eq!(queue.pair.submit(&flushes(0..10)).accepted, 10);
        let buffer = memory(4096);
        assert_eq!(queue.pair.submit(&[request(IoOp::Read, 10, 0, &buffer, 512)]).accepted, 1);
        host.wait_ns(100_000);
        assert_eq!(controller.check_health(), Err(NvmeError::Fatal));
        controller.reset().expect("it comes back");
        let results = queue.done.results();
        assert_eq!(results.iter().map(|&(tag, _)| tag).collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
        assert!(results.iter().all(|(_, error)| matches!(error, None | Some(IoError::ControllerReset))));
        assert_eq!(results[10].1, Some(IoError::ControllerReset));
        assert_eq!(controller.check_health(), Ok(()));
        assert_eq!(queue.pair.submit(&flushes(20..30)).accepted, 10);
        host.wait_ns(100_000);
        assert_eq!(queue.done.results(), (20..30).map(|tag| (tag, None)).collect::<Vec<_>>());
    });
    assert_eq!(after.slots_in_use, 0);
}

#[test]
fn deleting_a_queue_ends_its_commands_once() {
    host(config(), |host| {
        let controller = controller(host);
        let queues = [queue(host, &controller, Some(1)), queue(host, &controller, Some(2))];
        let buffer = memory(4096);
        let reads: Vec<_> = (0..12).map(|tag| request(IoOp::Read, tag, tag, &buffer, 512)).collect();
        for queue in &queues {
            assert_eq!(queue.pair.submit(&reads).accepted, 12);
        }
        controller.delete_queue_pair(1).expect("it is deleted");
        let results = queues[0].done.results();
        assert_eq!(results.iter().map(|&(tag, _)| tag).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
        let aborted = |error: Option<IoError>| match error {
            Some(IoError::QueueDeleted) => true,
            Some(IoError::Device { status, .. }) => status == Status::ABORTED_SQ_DELETION,
            _ => false,
        };
        assert!(results.iter().all(|&(_, error)| aborted(error)), "{results:?}");
        assert_eq!(queues[0].pair.submit(&flushes(0..1)).refused, Some(Refusal::Stopped));
        host.wait_ns(1_000_000);
        assert_eq!(queues[0].done.results(), []);
        assert_eq!(queues[1].done.results(), (0..12).map(|tag| (tag, None)).collect::<Vec<_>>());
    });
}

#[test]
fn hostile_entries_are_recorded_and_end_no_other_command() {
    let plans = [
        FaultPlan { unknown_cid_at_entry: Some(3), ..FaultPlan::default() },
        FaultPlan { duplicate_at_entry: Some(3), ..FaultPlan::default() },
        FaultPlan { unknown_sq_at_entry: Some(3), ..FaultPlan::default() },
        FaultPlan { wrong_phase_at_entry: Some(3), ..FaultPlan::default() },
    ];
    for faults in plans {
        host(Config { faults, ..config() }, move |host| {
            let controller = controller(host);
            let queue = queue(host, &controller, Some(1));
            for tag in 0..6 {
                assert_eq!(queue.pair.submit(&[flush(tag)]).accepted, 1);
                host.wait_ns(50_000);
            }
            let before = queue.done.results();
            assert!(before.iter().all(|(_, error)| error.is_none()));
            let fault = queue.pair.snapshot().last_fault;
            match fault {
                Some(DeviceFault::UnknownCommand(..)) => assert!(faults.unknown_cid_at_entry.is_some()),
                Some(DeviceFault::NotInFlight(_)) => assert!(faults.duplicate_at_entry.is_some()),
                Some(DeviceFault::WrongQueue(0xffff, 1)) => assert!(faults.unknown_sq_at_entry.is_some()),
                None => assert!(faults.wrong_phase_at_entry.is_some(), "an entry that cannot be seen"),
                other => panic!("{other:?} with {faults:?}"),
            }
            controller.reset().expect("it comes back");
            let mut all = before;
            all.extend(queue.done.results());
            all.sort_unstable_by_key(|&(tag, _)| tag);
            assert_eq!(all.iter().map(|&(tag, _)| tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "{faults:?}");
        });
    }
}

#[test]
fn a_drive_that_is_pulled_ends_every_command_once() {
    let outage = Outage { gone_at: Some(Ps::from_ns(2_000_000)), ..Outage::default() };
    unreliable(config(), outage, |host| {
        let controller = controller(host);
        let queue = queue(host, &controller, Some(1));
        let now = SimHal.now_ns();
        host.wait_ns(1_999_000 - now);
        assert_eq!(queue.pair.submit(&flushes(0..5)).accepted, 5);
        host.wait_ns(100_000);
        assert_eq!(controller.check_health(), Err(NvmeError::Gone));
        assert_eq!(controller.reset(), Err(NvmeError::Gone));
        assert_eq!(queue.done.results(), (0..5).map(|tag| (tag, Some(IoError::ControllerReset))).collect::<Vec<_>>());
    });
}

/// `check` found this: the drive had made the submission queue although its doorbell was lost at first, refused to delete the completion
/// queue below it, and the driver gave both back.
#[test]
fn a_queue_pair_that_the_drive_may_have_keeps_its_memory() {
    let impatient = |host: &Host| {
        host.msix_on(5);
        let config = drivers::nvme::Config { queue_pairs: 4, admin_timeout_ns: 1_000_000, ..Default::default() };
        Controller::new(SimHal, host.bar0, config).expect("the controller starts")
    };
    let times = host(config(), move |host| {
        let controller = impatient(host);
        let begins = SimHal.now_ns();
        queue(host, &controller, None);
        (begins, SimHal.now_ns())
    });
    let (begins, ends) = times.result;
    let mut failed = 0;
    for at in (begins..ends).step_by(2) {
        let (from, until) = (Ps::from_ns(at), Ps::from_ns(at + 2));
        let outage = Outage { refuses_at: Some(from), refuses_until: Some(until), ..Outage::default() };
        let after = unreliable(config(), outage, move |host| {
            let controller = impatient(host);
            let config = QueueConfig { entries: 16, vector: None, transfer_bytes_max: 128 << 10 };
            let made = controller.create_queue_pair(config, Arc::new(Done::default())).is_ok();
            host.wait_ns(1_000);
            controller.reset().expect("it accepts accesses again");
            let queue = queue(host, &controller, Some(1));
            assert_eq!(queue.pair.submit(&flushes(0..5)).accepted, 5);
            host.wait_ns(100_000);
            assert_eq!(queue.done.results(), (0..5).map(|tag| (tag, None)).collect::<Vec<_>>());
            controller.shutdown().expect("it works");
            made
        });
        failed += u32::from(!after.result);
        assert!(after.given_back.is_empty(), "accesses were refused from {at} ns on: {:x?}", after.given_back);
    }
    assert!(failed >= 2, "{failed} of two doorbells were lost");
}

/// A failed reset leaves it disabled. Announcing a shutdown to it then stopped it from executing anything ever after.
#[test]
fn a_drive_that_failed_in_its_reset_is_shut_down_and_comes_up_again() {
    let faults = FaultPlan { fatal_at: Some(Ps::from_ns(10_000_000)), ..FaultPlan::default() };
    let mut slow = Config { faults, ..config() };
    slow.timing.enable = Ps::from_ns(1_000_000);
    host(slow, |host| {
        let first = controller(host);
        let now = SimHal.now_ns();
        host.wait_ns(9_500_000 - now);
        assert_eq!(first.reset(), Err(NvmeError::Fatal));
        first.shutdown().expect("it is disabled already");
        let second = controller(host);
        let queue = queue(host, &second, Some(1));
        assert_eq!(queue.pair.submit(&flushes(0..5)).accepted, 5);
        host.wait_ns(100_000);
        assert_eq!(queue.done.results(), (0..5).map(|tag| (tag, None)).collect::<Vec<_>>());
    });
}

/// `check` found this: only clearing an EN that was set clears CFS. The start failed because of the earlier failure.
#[test]
fn a_drive_that_failed_while_it_was_disabled_comes_up() {
    let faults = FaultPlan { fatal_at: Some(Ps::from_ns(10_000_000)), ..FaultPlan::default() };
    host(Config { faults, ..config() }, |host| {
        let first = controller(host);
        first.shutdown().expect("it works");
        let now = SimHal.now_ns();
        host.wait_ns(10_000_001 - now);
        assert_eq!((first.check_health(), host.bar0.read32(0x1c)), (Err(NvmeError::Fatal), 2), "CFS");
        let second = controller(host);
        assert_eq!(second.check_health(), Ok(()));
    });
}

/// The driver used to wait for it as long as a healthy drive may take.
#[test]
fn a_drive_that_fails_in_its_shutdown_is_not_waited_for() {
    let faults = FaultPlan { fatal_at: Some(Ps::from_ns(10_000_000)), ..FaultPlan::default() };
    let mut slow = Config { faults, ..config() };
    slow.timing.shutdown = Ps::from_ns(4_000_000);
    host(slow, |host| {
        let controller = controller(host);
        let now = SimHal.now_ns();
        host.wait_ns(9_000_000 - now);
        assert_eq!(controller.shutdown(), Err(NvmeError::Fatal));
        assert!(SimHal.now_ns() < 12_000_000, "at {} ns", SimHal.now_ns());
    });
}

/// Asks for control operations as each command ends.
#[derive(Default)]
struct Intruder {
    controller: OnceLock<Weak<Controller<SimHal>>>,
    answers: Mutex<Vec<[Option<NvmeError>; 4]>>,
}

impl BatchDone for Intruder {
    fn batch_done(&self, _: &[Completed]) {
        let controller = self.controller.get().and_then(Weak::upgrade).expect("the test keeps it");
        let config = QueueConfig { entries: 2, vector: None, transfer_bytes_max: 4096 };
        let made = controller.create_queue_pair(config, Arc::new(Done::default())).err();
        let others = [controller.delete_queue_pair(1).err(), controller.reset().err(), controller.shutdown().err()];
        let [deleted, reset, shut_down] = others;
        self.answers.lock().expect("one host thread").push([made, deleted, reset, shut_down]);
    }
}

#[test]
fn control_operations_are_one_at_a_time() {
    type Operation = fn(&Controller<SimHal>) -> Result<(), NvmeError>;
    let delete: Operation = |controller| controller.delete_queue_pair(1);
    for operation in [Controller::reset, delete, Controller::shutdown] {
        host(config(), move |host| {
            let (controller, intruder) = (Arc::new(controller(host)), Arc::new(Intruder::default()));
            assert!(intruder.controller.set(Arc::downgrade(&controller)).is_ok());
            let config = QueueConfig { entries: 16, vector: None, transfer_bytes_max: 4096 };
            let pair = controller.create_queue_pair(config, intruder.clone()).expect("a queue pair");
            assert_eq!(pair.submit(&flushes(0..3)).accepted, 3);
            operation(&controller).expect("it works");
            let answers = core::mem::take(&mut *intruder.answers.lock().expect("one host thread"));
            assert!(!answers.is_empty(), "the commands ended within");
            assert!(answers.iter().flatten().all(|answer| *answer == Some(NvmeError::Busy)), "{answers:?}");
        });
    }
}

/// A transfer may be as long as one PRP list describes, and no longer.
#[test]
fn transfers_have_a_longest_length() {
    host(config(), |host| {
        let controller = controller(host);
        let made = |transfer_bytes_max| {
            let config = QueueConfig { entries: 16, vector: None, transfer_bytes_max };
            controller.create_queue_pair(config, Arc::new(Done::default())).err()
        };
        let Some(NvmeError::TransferLength(u32::MAX, most)) = made(u32::MAX) else { panic!("no drive takes that") };
        assert_eq!(made(most + 4096), Some(NvmeError::TransferLength(most + 4096, most)));
        assert_eq!(made(0), Some(NvmeError::TransferLength(0, most)));
        assert_eq!(made(most), None);
    });
}

/// A drive that is shut down refuses what was never sent to it. The queue is not made by the next reset either.
#[test]
fn a_queue_pair_that_was_never_asked_for_is_not_there_behind_a_reset() {
    host(config(), |host| {
        let controller = controller(host);
        controller.shutdown().expect("it works");
        let config = QueueConfig { entries: 16, vector: Some(999), transfer_bytes_max: 4096 };
        for _ in 0..8 {
            let made = controller.create_queue_pair(config, Arc::new(Done::default()));
            assert_eq!(made.err(), Some(NvmeError::Stopped));
        }
        controller.reset().expect("it comes back, without queues");
        assert!(controller.queue_pair(1).is_none());
        let queue = queue(host, &controller, Some(1));
        assert_eq!(queue.pair.submit(&flushes(0..5)).accepted, 5);
        host.wait_ns(100_000);
        assert_eq!(queue.done.results(), (0..5).map(|tag| (tag, None)).collect::<Vec<_>>());
    });
}

/// Its buffers are not safe, whatever went wrong first.
#[test]
fn the_error_of_a_drive_that_does_not_stop_outweighs_what_went_wrong_before() {
    let prepared = |host: &Host| {
        host.msix_on(5);
        let config = drivers::nvme::Config { queue_pairs: 4, admin_timeout_ns: 1_000_000, ..Default::default() };
        let controller = Controller::new(SimHal, host.bar0, config).expect("the controller starts");
        let queue = queue(host, &controller, None);
        (controller, queue)
    };
    for operation in [Controller::reset, Controller::shutdown] {
        let times = host(config(), move |host| {
            let (controller, _queue) = prepared(host);
            let begins = SimHal.now_ns();
            operation(&controller).expect("it works");
            (begins, SimHal.now_ns())
        });
        let (begins, ends) = times.result;
        for part in [1, 4, 8, 12, 15] {
            // It hears nothing any more, and its registers read as before.
            let silent_at = Some(Ps::from_ns(begins + (ends - begins) * part / 16));
            let error = unreliable(config(), Outage { silent_at, ..Outage::default() }, move |host| {
                let (controller, _queue) = prepared(host);
                operation(&controller).expect_err("it is silent")
            });
            let NvmeError::Timeout(what, _) = error.result else { panic!("{:?}", error.result) };
            assert!(["CSTS.RDY = 0", "CSTS.RDY = 1"].contains(&what), "silent in part {part}: {what}");
        }
    }
}

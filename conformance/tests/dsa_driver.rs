//! The driver against the model: bring-up, fills, streams, errors, recovery, shutdown.

mod dsa_rig;

use drivers::dsa::{
    BatchDone, Completed, Config, Device, DsaError, Fill, GroupConfig, Next, QueueConfig, Refusal, TransferError,
};
use dsa_rig::{Host, bytes, config, host, memory};
use hal::{DeviceAddress, Dma as _, Regs as _, Word as _};
use irq::Action as _;
use machine::SimHal;
use machine::time::Ps;
use spec::dsa::CompletionStatus;
use std::sync::{Arc, Mutex};

/// Records completions, and answers with as many fills as a stream has left.
struct Stream {
    done: Mutex<Vec<Completed>>,
    left: Mutex<u64>,
    fill: Mutex<Option<Fill>>,
}

impl Stream {
    fn silent() -> Arc<Self> {
        Arc::new(Self { done: Mutex::default(), left: Mutex::new(0), fill: Mutex::new(None) })
    }
    fn of(fill: Fill, left: u64) -> Arc<Self> {
        Arc::new(Self { done: Mutex::default(), left: Mutex::new(left), fill: Mutex::new(Some(fill)) })
    }
    fn taken(&self) -> Vec<Completed> {
        std::mem::take(&mut *self.done.lock().expect("one host thread"))
    }
}

impl BatchDone for Stream {
    fn batch_done(&self, done: &[Completed], next: &mut Next) {
        self.done.lock().expect("one host thread").extend_from_slice(done);
        let mut left = self.left.lock().expect("one host thread");
        let Some(fill) = *self.fill.lock().expect("one host thread") else { return };
        for _ in done {
            if *left > 0 && next.push(Fill { tag: *left, ..fill }).is_ok() {
                *left -= 1;
            }
        }
    }
}

fn queue(index: u8, interrupt: Option<u16>) -> QueueConfig {
    QueueConfig { index, entries: 8, interrupt, priority: 1, transfer_bytes_max: 4096 }
}

fn open(host: &Host, interrupt: Option<u16>) -> Arc<Device<SimHal>> {
    let groups = vec![GroupConfig { queues: vec![queue(0, interrupt), queue(3, interrupt)], engines: vec![0, 1] }];
    let config = Config { groups, command_timeout_ns: 100_000 };
    Arc::new(Device::new(SimHal, host.bar0, host.bar2, config).expect("a device"))
}

fn fill_at(destination: DeviceAddress, bytes: u32, tag: u64) -> Fill {
    Fill { pattern: 0x0807_0605_0403_0201, destination, bytes, tag }
}

#[test]
fn a_polled_queue_fills_memory() {
    let after = host(config(), |host| {
        let device = open(host, None);
        assert_eq!(device.capabilities().entries, 128);
        let stream = Stream::silent();
        let queue = device.open_queue(3, stream.clone()).expect("a queue");
        let data = memory(4096);
        let submitted = queue.submit(&[fill_at(data.device_address().offset(1), 10, 7)]);
        assert_eq!((submitted.accepted, submitted.refusal), (1, None));
        assert_eq!(queue.poll(), 0, "not yet");
        host.wait_ns(2_000);
        assert_eq!(queue.poll(), 1);
        assert_eq!(stream.taken()[0].result, Ok(10));
        assert_eq!(bytes(&data, 0..12), [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 0]);
        assert_eq!(device.close_queue(3), Ok(()));
        assert_eq!(queue.submit(&[fill_at(data.device_address(), 8, 0)]).refusal, Some(Refusal::Stopped));
        assert_eq!(device.shutdown(), Ok(()));
        let counters = queue.snapshot().counters;
        assert_eq!((counters.submitted, counters.completed, counters.bytes), (1, 1, 10));
        assert_eq!((counters.polls, counters.empty_polls), (2, 1));
    });
    assert_eq!(after.in_flight, 0);
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

/// The stream keeps itself going: each interrupt's handler submits as much as it took.
#[test]
fn streams_of_two_queues_go_from_interrupt_to_interrupt() {
    const TOTAL: u64 = 2_000;
    let after = host(config(), |host| {
        let device = open(host, Some(2));
        host.msix_on(9);
        let data = memory(8192);
        let mut streams = Vec::new();
        for (index, vector) in [(0, 2), (3, 2)] {
            let fill = fill_at(data.device_address().offset(u64::from(index) * 512), 512, 0);
            let stream = Stream::of(fill, TOTAL - 8);
            let queue = device.open_queue(index, stream.clone()).expect("a queue");
            streams.push((queue, stream, fill, vector));
        }
        // Both queues share the vector: the handler of one calls that of the other.
        let both = (streams[0].0.clone(), streams[1].0.clone());
        host.serve(2, Arc::new(Both(both.0, both.1)));
        for (queue, _, fill, _) in &streams {
            assert_eq!(queue.submit(&[*fill; 8]).accepted, 8);
        }
        let mut waited_ns = 0;
        while streams.iter().any(|(queue, ..)| queue.snapshot().counters.completed < TOTAL) {
            assert!(waited_ns < 10_000_000, "the streams stand still");
            host.wait_ns(10_000);
            waited_ns += 10_000;
        }
        for (queue, stream, ..) in &streams {
            let snapshot = queue.snapshot();
            let counters = snapshot.counters;
            assert_eq!((snapshot.in_flight, counters.submitted, counters.errors), (0, TOTAL, 0));
            assert_eq!(counters.resubmitted, TOTAL - 8);
            assert_eq!(counters.interrupt_completions, TOTAL);
            assert_eq!(stream.taken().len() as u64, TOTAL);
        }
        assert_eq!(bytes(&data, 510..514), [7, 8, 0, 0], "queue 0 filled its own 512 bytes");
        device.shutdown()
    });
    assert_eq!(after.result, Ok(()));
    assert_eq!(after.counter("submitted"), 2 * TOTAL);
    assert_eq!(after.counter("msis"), 2 * TOTAL, "a message for each descriptor");
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

/// Two queues on one vector.
struct Both(Arc<drivers::dsa::WorkQueue<SimHal>>, Arc<drivers::dsa::WorkQueue<SimHal>>);

impl irq::Action for Both {
    fn handle(&self, irq: irq::Irq) -> irq::IrqReturn {
        let (first, second) = (self.0.handle(irq), self.1.handle(irq));
        if first == irq::IrqReturn::None { second } else { first }
    }
}

#[test]
fn what_the_driver_knows_to_be_wrong_never_reaches_the_device() {
    let after = host(config(), |host| {
        let device = open(host, None);
        let stream = Stream::silent();
        let queue = device.open_queue(0, stream.clone()).expect("a queue");
        let at = memory(64).device_address();
        let refusal = |fill| queue.submit(&[fill]).refusal;
        assert_eq!(refusal(fill_at(at, 0, 0)), Some(Refusal::Length(0, 4096)));
        assert_eq!(refusal(fill_at(at, 4097, 0)), Some(Refusal::Length(4097, 4096)));
        assert_eq!(refusal(fill_at(DeviceAddress(u64::MAX - 6), 8, 0)), Some(Refusal::Wraps(u64::MAX - 6, 8)));
        let nine = queue.submit(&[fill_at(at, 8, 0); 9]);
        assert_eq!((nine.accepted, nine.refusal), (8, Some(Refusal::Full)));
        assert_eq!(device.open_queue(0, stream.clone()).err(), Some(DsaError::Open(0)));
        assert_eq!(device.open_queue(1, stream.clone()).err(), Some(DsaError::NoQueue(1)));
        assert_eq!(device.close_queue(3), Err(DsaError::NotOpen(3)));
        device.shutdown()
    });
    assert_eq!(after.result, Ok(()));
    assert_eq!(after.counter("submitted"), 8);
    assert_eq!(after.counter("refused"), 0);
}

/// A destination outside memory is an error of the descriptor, and so is a vector that the device lacks.
#[test]
fn the_devices_errors_reach_the_caller() {
    host(config(), |host| {
        let device = open(host, Some(9));
        let stream = Stream::silent();
        let queue = device.open_queue(0, stream.clone()).expect("a queue");
        queue.submit(&[fill_at(memory(64).device_address(), 8, 1)]);
        host.wait_ns(2_000);
        queue.poll();
        let error = |status, bytes_completed, fault_address| {
            Err(TransferError::Device { status, bytes_completed, fault_address })
        };
        assert_eq!(stream.taken()[0].result, error(CompletionStatus::INTERRUPT_HANDLE, 0, 0));
        assert_eq!(queue.snapshot().counters.errors, 1);
        device.shutdown().expect("it stops");

        let device = open(host, None);
        let stream = Stream::silent();
        let queue = device.open_queue(0, stream.clone()).expect("a queue");
        let end = 0x1_0000_0000 + (64 << 20);
        queue.submit(&[fill_at(DeviceAddress(0x1000), 8, 2), fill_at(DeviceAddress(end - 16), 64, 3)]);
        host.wait_ns(2_000);
        queue.poll();
        let mut done = stream.taken();
        done.sort_by_key(|completed| completed.tag);
        assert_eq!(done[0].result, error(CompletionStatus::PAGE_FAULT, 0, 0x1000));
        assert_eq!(done[1].result, error(CompletionStatus::PAGE_FAULT, 16, end));
        assert_eq!(queue.snapshot().counters.bytes, 16);
    });
}

/// Another party disables the queue without the driver's knowledge: descriptors vanish, the error interrupt reports
/// it, and recovery ends them.
#[test]
fn lost_descriptors_end_by_recovery() {
    let mut config = config();
    config.timing.service = Ps::from_ns(1_000_000);
    let after = host(config, |host| {
        let device = open(host, None);
        host.msix_on(9);
        host.serve(0, device.clone());
        let stream = Stream::silent();
        let queue = device.open_queue(0, stream.clone()).expect("a queue");
        let at = memory(64).device_address();
        queue.submit(&[fill_at(at, 8, 0); 4]);
        assert_eq!(device.recover_queue(0, 1_000_000), Ok(false), "nothing is overdue");
        host.wait_ns(10_000);
        // Two descriptors are in engines that take a millisecond: the command times out, the queue stays stopped, and
        // all descriptors have ended.
        let timeout = device.recover_queue(0, 5_000);
        assert!(matches!(timeout, Err(DsaError::Timeout(..))), "{timeout:?}");
        assert_eq!(stream.taken().len(), 4);
        assert_eq!(queue.submit(&[fill_at(at, 8, 0)]).refusal, Some(Refusal::Stopped));
        host.wait_ns(3_000_000);
        device.close_queue(0).expect("the device has finished meanwhile");

        let queue = device.open_queue(0, stream.clone()).expect("again");
        assert_eq!(host.command(10, 1), 0, "Reset WQ, by a stranger");
        queue.submit(&[fill_at(at, 8, 5); 2]);
        host.wait_ns(10_000);
        let errors = device.errors();
        assert_eq!(errors.software_errors + errors.overflows, 2, "{errors:?}");
        let last = errors.last.expect("an error");
        assert_eq!((last.error, last.queue, last.opcode), (0x51, Some(0), Some(4)));
        assert_eq!(queue.poll(), 0);
        let refused = device.recover_queue(0, 5_000);
        assert!(matches!(refused, Err(DsaError::Command(..))), "{refused:?}");
        let results: Vec<_> = stream.taken().iter().map(|completed| completed.result).collect();
        assert_eq!(results, [Err(TransferError::Aborted); 2]);
        device.shutdown()
    });
    assert_eq!(after.result, Ok(()));
    assert_eq!(after.in_flight, 0);
}

/// "INTCAUSE" and "SWERROR": a cause without a software error, here a command's end, is handled and cleared, and so is an error
/// without a cause.
#[test]
fn a_cause_and_an_error_are_each_handled() {
    host(config(), |host| {
        let device = open(host, None);
        assert_eq!(device.handle(irq::Irq(0)), irq::IrqReturn::None, "no cause");
        // Drain All, which requests the interrupt of its completion.
        host.bar0.write32(0xa0, 1 << 31 | 3 << 20);
        host.wait_ns(100_000);
        assert_eq!(host.bar0.read32(0x98), 2, "INTCAUSE");
        assert_eq!(device.handle(irq::Irq(0)), irq::IrqReturn::Handled);
        assert_eq!((host.bar0.read32(0x98), device.errors().software_errors), (0, 0));
        // An error whose cause somebody else has cleared: a descriptor for a queue that is not enabled.
        host.submit(2, [4 << 56, 0, 0, 0, 64, 0, 0, 0]);
        host.wait_ns(2_000);
        host.bar0.write32(0x98, 1);
        assert_eq!(device.handle(irq::Irq(0)), irq::IrqReturn::Handled);
        assert_eq!(device.errors().software_errors, 1);
    });
}

/// What a device does not do in time it does once this is over.
fn late<T>(command: impl FnOnce() -> Result<T, DsaError>) {
    machine::begin_setback(machine::setback::Setback::Stall, 0);
    let late = command().err();
    assert!(matches!(late, Some(DsaError::Timeout(..))), "{late:?}");
    assert!(machine::end_setback().struck);
}

/// Defect: a queue whose Enable WQ or Disable WQ took effect behind its time limit could not be opened or closed again (CMDSTATUS
/// 21h and 32h: it is enabled, or not).
#[test]
fn a_queue_that_was_enabled_or_disabled_late_can_be_opened() {
    host(config(), |host| {
        let device = open(host, None);
        let stream = Stream::silent();
        late(|| device.open_queue(0, stream.clone()));
        device.open_queue(0, stream.clone()).expect("it is nobody else's");
        late(|| device.close_queue(0));
        assert_eq!(device.close_queue(0), Ok(()), "it is disabled");
        let queue = device.open_queue(0, stream.clone()).expect("it is nobody else's");
        let data = memory(64);
        assert_eq!(queue.submit(&[fill_at(data.device_address(), 8, 0)]).accepted, 1);
        host.wait_ns(10_000);
        assert_eq!(queue.poll(), 1);
        assert_eq!(stream.taken()[0].result, Ok(8));
        device.shutdown()
    })
    .result
    .expect("it stops");
}

/// Only what this driver disabled late may be found disabled: otherwise somebody else commands the device.
#[test]
fn a_queue_that_somebody_else_disabled_is_an_error_to_close() {
    host(config(), |host| {
        let device = open(host, None);
        device.open_queue(0, Stream::silent()).expect("free");
        // Disable WQ, of queue 0 by its bit.
        assert_eq!(host.command(7, 1), 0);
        let refused = device.close_queue(0);
        assert!(matches!(refused, Err(DsaError::Command(_, error)) if error.0 == 0x32), "{refused:?}");
        device.shutdown()
    })
    .result
    .expect("it stops");
}

#[test]
fn recovery_of_a_healthy_device_opens_the_queue_again() {
    let mut config = config();
    config.timing.service = Ps::from_ns(20_000);
    host(config, |host| {
        let device = open(host, None);
        let stream = Stream::silent();
        let queue = device.open_queue(0, stream.clone()).expect("a queue");
        let data = memory(64);
        queue.submit(&[fill_at(data.device_address(), 8, 0); 6]);
        host.wait_ns(6_000);
        assert_eq!(device.recover_queue(0, 5_000), Ok(true));
        let done = stream.taken();
        let aborted = done.iter().filter(|completed| completed.result == Err(TransferError::Aborted)).count();
        assert_eq!((done.len(), aborted), (6, 4), "two were in the engines");
        assert_eq!(queue.submit(&[fill_at(data.device_address(), 8, 9)]).accepted, 1);
        host.wait_ns(40_000);
        assert_eq!(queue.poll(), 1);
        assert_eq!(stream.taken()[0].result, Ok(8));
        assert_eq!(data.words()[0].get(), 0x0807_0605_0403_0201);
        device.shutdown()
    })
    .result
    .expect("it stops");
}

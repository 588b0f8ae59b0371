//! The block driver against the model: data, outcomes, several queues, hostile devices, recovery.

mod virtio_rig;

use drivers::virtio::block::{BatchDone, Block, BlockConfig, BlockError, BlockOp, BlockRequest, Completed};
use drivers::virtio::{QueueFault, Refusal, Rung, VectorPolicy, VirtioError};
use hal::{DeviceAddress, Dma as _, Hal as _};
use machine::SimHal;
use machine::time::Ps;
use machine::virtio::{Trigger, block as model, code, jump_arg};
use proptest::prelude::*;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use virtio_rig::{Bus, Rig, bytes, memory, rig};

/// Queue, tag, result.
type Ended = (u16, u64, Result<(), BlockError>);

/// Records completions, and which queues broke.
#[derive(Default)]
struct Done {
    completed: Mutex<Vec<Ended>>,
    broken: Mutex<Vec<(u16, QueueFault)>>,
}

impl BatchDone for Done {
    fn batch_done(&self, queue: u16, batch: &[Completed]) {
        let mut completed = self.completed.lock().expect("one host thread");
        completed.extend(batch.iter().map(|done| (queue, done.tag, done.result)));
    }
    fn queue_broken(&self, queue: u16, fault: QueueFault) {
        self.broken.lock().expect("one host thread").push((queue, fault));
    }
}

impl Done {
    fn take(&self) -> Vec<Ended> {
        let mut taken = std::mem::take(&mut *self.completed.lock().expect("one host thread"));
        taken.sort_by_key(|&(queue, tag, _)| (queue, tag));
        taken
    }
}

type Driver = Arc<Block<SimHal>>;

fn device() -> model::BlockConfig {
    model::BlockConfig {
        sectors: 256,
        queues: 2,
        queue_entries: 16,
        latency: Ps::from_ns(20_000),
        ..Default::default()
    }
}

/// The device with split virtqueues, or with packed ones.
fn rings(packed: bool) -> model::BlockConfig {
    model::BlockConfig { packed, ..device() }
}

fn driven(bus: Bus, device: model::BlockConfig, policy: VectorPolicy) -> (Rig, Driver, Arc<Done>) {
    let mut rig = rig(bus, model::Block::new(device));
    let done = Arc::new(Done::default());
    let kept = done.clone();
    let driver = rig.boot(move |host| {
        let config = BlockConfig { queues: 4, entries: 16, policy };
        let driver = Block::open(SimHal, host.transport(), &config, done).expect("a device");
        host.install(driver.handlers());
        driver.start();
        driver
    });
    (rig, driver, kept)
}

fn request(tag: u64, op: BlockOp, sector: u64, buffer: DeviceAddress, len_bytes: u32) -> BlockRequest {
    BlockRequest { tag, op, sector, buffer, len_bytes }
}

/// Submits, waits until all requests have ended, and returns the buffer's bytes.
fn run(rig: &mut Rig, driver: &Driver, queue: u16, op: BlockOp, sector: u64, data: &[u8]) -> Vec<u8> {
    let (driver, data) = (driver.clone(), data.to_vec());
    rig.boot(move |_| {
        let buffer = memory(data.len());
        for (at, &byte) in data.iter().enumerate() {
            buffer.write8(at, byte);
        }
        let submitted = driver.submit(queue, &[request(9, op, sector, buffer.device_address(), data.len() as u32)]);
        assert_eq!((submitted.accepted, submitted.refused), (1, None));
        SimHal.delay_ns(200_000);
        bytes(&buffer, 0..data.len())
    })
}

#[test]
fn what_is_written_is_read_and_the_device_has_a_name() {
    let buses = [Bus::edges(3), Bus::edges(1), Bus::Mmio(vec![Trigger::Level; 3], true), Bus::Pci(3)];
    for (bus, packed) in buses.into_iter().flat_map(|bus| [(bus.clone(), false), (bus, true)]) {
        let (mut rig, driver, done) = driven(bus, rings(packed), VectorPolicy::Ladder);
        assert_eq!((driver.queues(), driver.info().sectors), (2, 256));
        let data: Vec<u8> = (0..1024_u32).map(|at| (at * 7) as u8).collect();
        run(&mut rig, &driver, 0, BlockOp::Write, 5, &data);
        assert_eq!(run(&mut rig, &driver, 1, BlockOp::Read, 5, &[0; 1024]), data);
        assert_eq!(run(&mut rig, &driver, 1, BlockOp::Read, 6, &[0; 512]), data[512..]);
        assert_eq!(run(&mut rig, &driver, 0, BlockOp::GetId, 0, &[0xee; 20]), b"campanile\0\0\0\0\0\0\0\0\0\0\0");
        run(&mut rig, &driver, 0, BlockOp::Flush, 0, &[0]);
        let ok: Vec<_> = [0, 0, 0, 1, 1].map(|queue| (queue, 9, Ok(()))).into();
        assert_eq!((done.take(), rig.faults()), (ok, vec![]));
    }
}

#[test]
fn what_a_device_cannot_do_is_refused_before_it_is_asked() {
    let read_only = model::BlockConfig { read_only: true, flush: false, ..device() };
    let (mut rig, driver, done) = driven(Bus::edges(3), read_only, VectorPolicy::Ladder);
    let refused = rig.boot(move |_| {
        let at = DeviceAddress(0);
        [
            request(0, BlockOp::Write, 0, at, 512),
            request(0, BlockOp::Flush, 0, at, 0),
            request(0, BlockOp::Read, 255, at, 1024),
            request(0, BlockOp::Read, u64::MAX, at, 512),
            request(0, BlockOp::Read, 0, at, 100),
            request(0, BlockOp::Read, 0, at, 0),
        ]
        .map(|request| driver.submit(0, &[request]).refused)
    });
    let expected = [
        Refusal::NotSupported,
        Refusal::NotSupported,
        Refusal::Range(255, 256),
        Refusal::Range(u64::MAX, 256),
        Refusal::Length(100),
        Refusal::Length(0),
    ];
    assert_eq!((refused, done.take()), (expected.map(Some), vec![]));
}

#[test]
fn a_full_queue_says_so_and_loses_nothing() {
    let (mut rig, driver, done) = driven(Bus::edges(2), device(), VectorPolicy::Ladder);
    assert_eq!(driver.vectors().rung, Rung::Shared);
    let block = driver.clone();
    let submitted = rig.boot(move |_| {
        let buffer = memory(512 * 20);
        let requests: Vec<_> = (0..20).map(|n| request(n, BlockOp::Read, n, buffer.device_address(), 512)).collect();
        let submitted = block.submit(1, &requests);
        SimHal.delay_ns(1_000_000);
        submitted
    });
    assert_eq!((submitted.accepted, submitted.refused), (16, Some(Refusal::Full)), "a descriptor each: indirect");
    assert_eq!(done.take(), (0..16).map(|tag| (1, tag, Ok(()))).collect::<Vec<_>>());
    assert_eq!((driver.in_flight(1), driver.oldest_ns(1)), (0, None));
}

/// After a jump of its used index a queue stops, is reset alone, and works again on its old vector; the other queue
/// never stopped.
#[test]
fn a_broken_queue_recovers_alone() {
    let (ladder, single) = (VectorPolicy::Ladder, VectorPolicy::Single);
    for (policy, packed) in [(ladder, false), (single, false), (ladder, true), (single, true)] {
        let (mut rig, driver, done) = driven(Bus::edges(3), rings(packed), policy);
        let vectors = rig.boot(|host| host.queue_vectors(2));
        let block = driver.clone();
        rig.boot(move |_| {
            // Slow enough that the jump comes first.
            let buffer = memory(1024);
            let requests = [0, 1].map(|n| request(n, BlockOp::Read, n, buffer.device_address(), 512));
            assert_eq!(block.submit(0, &requests).accepted, 2);
        });
        let now = rig.machine.now();
        // Half a lap of a packed ring: after a whole one the device would write over its own lie.
        rig.machine.poke(rig.device, now, code::JUMP_USED, jump_arg(0, if packed { 8 } else { 300 }));
        rig.settle();
        run(&mut rig, &driver, 1, BlockOp::Read, 0, &[0; 512]);
        assert_eq!(done.take(), [(1, 9, Ok(()))], "the other queue works");
        let broken = std::mem::take(&mut *done.broken.lock().expect("one host thread"));
        match broken[..] {
            [(0, QueueFault::Id(16, 16))] => assert!(packed, "a packed ring has no used index"),
            [(0, QueueFault::UsedIndex(..))] => assert!(!packed),
            _ => panic!("{broken:?}"),
        }
        assert_eq!(driver.in_flight(0), 2);

        let block = driver.clone();
        rig.boot(move |_| {
            assert_eq!(
                block.submit(0, &[request(5, BlockOp::Flush, 0, DeviceAddress(0), 0)]).refused,
                Some(Refusal::Stopped)
            );
            block.recover(0).expect("queues can be reset by themselves");
        });
        let reset = Err(BlockError::QueueReset);
        assert_eq!(done.take(), [(0, 0, reset), (0, 1, reset)], "none is lost");
        run(&mut rig, &driver, 0, BlockOp::Read, 0, &[0; 512]);
        assert_eq!(done.take(), [(0, 9, Ok(()))]);
        assert_eq!(rig.boot(|host| host.queue_vectors(2)), vectors, "mapped again");
    }
}

/// `check` found this: where the rings were the last memory that there was, the device had started on them before the driver found
/// that it had none for the requests' headers, and gave the rings back.
#[test]
fn a_queue_without_memory_for_its_requests_is_not_started() {
    let (mut rig, driver, _) = driven(Bus::edges(3), device(), VectorPolicy::Ladder);
    let block = driver.clone();
    rig.boot(move |_| {
        let mut all: Vec<_> = std::iter::from_fn(|| SimHal.dma_alloc(4096, 4096).ok()).collect();
        all.truncate(all.len() - 4);
        let mut rest: Vec<_> = std::iter::from_fn(|| SimHal.dma_alloc(64, 64).ok()).collect();
        // Room for a little more each time, up to what a queue needs.
        let mut refused = 0;
        while let Err(error) = block.recover(0) {
            assert!(matches!(error, VirtioError::Dma(_)), "{error:?}");
            refused += 1;
            assert!(rest.pop().is_some(), "a queue needs less than four pages");
        }
        assert!(refused > 2, "{refused}");
        drop(all);
    });
    let given_back = rig.given_back.addresses();
    assert!(given_back.is_empty(), "{given_back:x?}");
    run(&mut rig, &driver, 0, BlockOp::Read, 0, &[0; 512]);
}

/// MULTI_IRQ 3.1, rule 6: a queue's reset takes its mapping alone.
#[test]
fn a_queues_reset_clears_its_vector() {
    let (mut rig, _driver, _) = driven(Bus::edges(3), device(), VectorPolicy::Ladder);
    let vectors = rig.boot(|host| {
        use hal::Regs as _;
        let before = host.queue_vectors(2);
        // QueueSel 030h, QueueReset 0c0h.
        let registers = host.registers();
        registers.write32(0x30, 0);
        registers.write32(0xc0, 1);
        assert_eq!(registers.read32(0xc0), 0);
        (before, host.queue_vectors(2), registers.read32(0xd4))
    });
    assert_eq!(vectors, (vec![1, 2], vec![0xffff, 2], 0));
}

#[test]
fn a_shutdown_ends_what_is_in_flight() {
    let slow = model::BlockConfig { latency: Ps::from_ns(50_000_000), ..device() };
    let (mut rig, driver, done) = driven(Bus::edges(3), slow, VectorPolicy::Ladder);
    let block = driver.clone();
    rig.boot(move |_| {
        let buffer = memory(512);
        for queue in 0..2 {
            assert_eq!(block.submit(queue, &[request(3, BlockOp::Read, 0, buffer.device_address(), 512)]).accepted, 1);
        }
        block.shut_down().expect("a reset");
        SimHal.delay_ns(100_000_000);
    });
    let ended = Err(BlockError::Shutdown);
    assert_eq!(done.take(), [(0, 3, ended), (1, 3, ended)]);
}

/// Asks for control operations as each request ends.
#[derive(Default)]
struct Intruder {
    block: OnceLock<Weak<Block<SimHal>>>,
    answers: Mutex<Vec<[Result<(), VirtioError>; 2]>>,
}

impl BatchDone for Intruder {
    fn batch_done(&self, _: u16, _: &[Completed]) {
        let block = self.block.get().and_then(Weak::upgrade).expect("the test keeps it");
        self.answers.lock().expect("one host thread").push([block.recover(1), block.shut_down()]);
    }
    fn queue_broken(&self, _: u16, _: QueueFault) {}
}

/// Two at once would give the device rings, each its own, and free those of the other.
#[test]
fn control_operations_are_one_at_a_time_and_a_shutdown_is_the_last() {
    let slow = model::BlockConfig { latency: Ps::from_ns(50_000_000), ..device() };
    let mut rig = rig(Bus::edges(3), model::Block::new(slow));
    rig.boot(|host| {
        let config = BlockConfig { queues: 4, entries: 16, policy: VectorPolicy::Ladder };
        let intruder = Arc::new(Intruder::default());
        let block = Block::open(SimHal, host.transport(), &config, intruder.clone()).expect("a device");
        assert!(intruder.block.set(Arc::downgrade(&block)).is_ok());
        host.install(block.handlers());
        block.start();
        let buffer = memory(512);
        let read = |tag| request(tag, BlockOp::Read, 0, buffer.device_address(), 512);
        for operation in [|block: &Block<SimHal>| block.recover(0), Block::shut_down] {
            assert_eq!(block.submit(0, &[read(1), read(2)]).accepted, 2);
            operation(&block).expect("it works");
        }
        let answers = core::mem::take(&mut *intruder.answers.lock().expect("one host thread"));
        assert_eq!(answers, [[Err(VirtioError::Busy); 2]; 4]);
        assert_eq!([block.recover(0), block.shut_down()], [Err(VirtioError::ShutDown); 2]);
        assert_eq!(block.submit(0, &[read(3)]).refused, Some(Refusal::Stopped));
    });
}

/// A buffer outside memory stops the device (VIRTIO 2.1.2): nothing completes, nothing hangs, a reset ends it.
#[test]
fn a_buffer_outside_memory_is_the_devices_to_refuse() {
    let (mut rig, driver, done) = driven(Bus::edges(3), device(), VectorPolicy::Ladder);
    let block = driver.clone();
    rig.boot(move |_| {
        assert_eq!(block.submit(0, &[request(1, BlockOp::Read, 0, DeviceAddress(1 << 60), 512)]).accepted, 1);
        SimHal.delay_ns(200_000);
    });
    let (status, changes) = (rig.boot(|host| host.read(0x70)), driver.configuration_changes());
    assert_eq!((status & 0x40, changes), (0x40, 1), "DEVICE_NEEDS_RESET, and a configuration interrupt");
    let block = driver.clone();
    assert_eq!(rig.boot(move |_| block.shut_down()), Ok(()));
    assert_eq!(done.take(), [(0, 1, Err(BlockError::Shutdown))]);
}

#[derive(Clone, Debug)]
struct Io {
    queue: u16,
    write: bool,
    sector: u64,
    sectors: u32,
    fill: u8,
}

fn io() -> impl Strategy<Value = Io> {
    (0..2_u16, any::<bool>(), 0..60_u64, 1..5_u32, any::<u8>()).prop_map(|(queue, write, sector, sectors, fill)| Io {
        queue,
        write,
        sector,
        sectors,
        fill,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a plain array: every read returns the last write, on either queue and by any interrupt.
    #[test]
    fn data_survive(ios in prop::collection::vec(io(), 1..30), lines in 1_usize..4, level: bool, packed: bool) {
        let trigger = if level { Trigger::Level } else { Trigger::Edge };
        let bus = Bus::Mmio(vec![trigger; lines], lines > 1);
        let (mut rig, driver, done) = driven(bus, rings(packed), VectorPolicy::Ladder);
        let mut disk = vec![0_u8; 64 * 512];
        for io in &ios {
            let place = io.sector as usize * 512..(io.sector as usize + io.sectors as usize) * 512;
            if io.write {
                let data: Vec<u8> = place.clone().map(|at| io.fill.wrapping_add((at / 3) as u8)).collect();
                run(&mut rig, &driver, io.queue, BlockOp::Write, io.sector, &data);
                disk[place].copy_from_slice(&data);
            } else {
                let read = run(&mut rig, &driver, io.queue, BlockOp::Read, io.sector, &vec![io.fill; place.len()]);
                prop_assert_eq!(read, &disk[place]);
            }
        }
        prop_assert_eq!(done.take().len(), ios.len());
        prop_assert!(rig.faults().is_empty());
    }
}

#[derive(Clone, Debug)]
enum Act {
    Submit(u16, u8),
    Jump(u16, u16),
    Raise(u16),
    Recover(u16),
    Wait,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..2_u16, 1..10_u8).prop_map(|(queue, count)| Act::Submit(queue, count)),
        1 => (0..2_u16, any::<u16>()).prop_map(|(queue, by)| Act::Jump(queue, by)),
        1 => (0..3_u16).prop_map(Act::Raise),
        1 => (0..2_u16).prop_map(Act::Recover),
        3 => Just(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Jumps, interrupts without reason, resets at any time: every accepted request ends exactly once, and once healed
    /// both queues serve again.
    #[test]
    fn every_request_ends_once_whatever_the_device_does(acts in prop::collection::vec(act(), 1..25), packed: bool) {
        let (mut rig, driver, done) = driven(Bus::edges(3), rings(packed), VectorPolicy::Ladder);
        let mut accepted = 0_u64;
        let mut ended = Vec::new();
        for act in acts {
            match act {
                Act::Submit(queue, count) => {
                    let block = driver.clone();
                    let first = accepted;
                    accepted += rig.boot(move |_| {
                        let buffer = memory(512);
                        let tags = first..first + u64::from(count);
                        let read = |tag| request(tag, BlockOp::Read, tag % 64, buffer.device_address(), 512);
                        block.submit(queue, &tags.map(read).collect::<Vec<_>>()).accepted as u64
                    });
                }
                Act::Jump(queue, by) => {
                    let now = rig.machine.now();
                    rig.machine.poke(rig.device, now, code::JUMP_USED, jump_arg(queue, by));
                }
                Act::Raise(vector) => rig.raise(vector),
                Act::Recover(queue) => {
                    let block = driver.clone();
                    prop_assert_eq!(rig.boot(move |_| block.recover(queue)), Ok(()));
                }
                Act::Wait => rig.settle(),
            }
            ended.extend(done.take());
        }
        for queue in 0..2 {
            let block = driver.clone();
            prop_assert_eq!(rig.boot(move |_| block.recover(queue)), Ok(()));
        }
        rig.settle();
        ended.extend(done.take());
        let mut tags: Vec<_> = ended.iter().map(|&(_, tag, _)| tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..accepted).collect::<Vec<_>>());
        for queue in 0..2 {
            run(&mut rig, &driver, queue, BlockOp::Read, 0, &[0; 512]);
            prop_assert_eq!(done.take(), [(queue, 9, Ok(()))]);
        }
    }
}

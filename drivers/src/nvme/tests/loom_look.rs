//! A submission's check against the interrupt of the same queue, in every order with up to three preemptions: no
//! completion is lost, none is taken twice.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p campanile-drivers --lib loom_look`
//!
//! The queue pair is the driver's own, over words that Loom watches: `submit` with its look, its attempt at the lock and
//! its reap, and the interrupt handler. Round it stands a device that writes each entry's phase last and then requests
//! the interrupt.

use super::{BLOCKS, Parts, entry, read};
use crate::loom_world::{CPU, Doorbells, LoomHal};
use crate::nvme::{BatchDone, Completed, CompletionLook, Namespace, QueuePair};
use hal::{Dma, Word};
use irq::{Action, Irq};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Commands in flight from the start: tags and ids 0 and 1. The check follows a third, which stays in flight.
const POSTED: usize = 2;

/// How often each command was told of. Relaxed, so that telling orders nothing that the driver does not.
struct Told([AtomicU64; POSTED]);

impl BatchDone for Told {
    fn batch_done(&self, batch: &[Completed]) {
        for done in batch {
            assert_eq!(done.result, Ok(done.tag as u32 + 100), "an entry before its content");
            self.0[done.tag as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct World {
    pair: QueuePair<LoomHal>,
    told: std::sync::Arc<Told>,
    /// The message waits in the CPU's local APIC.
    requested: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        let told = std::sync::Arc::new(Told([AtomicU64::new(0), AtomicU64::new(0)]));
        let pair = QueuePair::new(Parts {
            hal: LoomHal,
            regs: std::sync::Arc::new(Doorbells),
            dstrd: 0,
            qid: 3,
            entries: 4,
            vector: Some(5),
            namespace: Namespace { nsid: 1, blocks: BLOCKS, block_shift: 9 },
            deallocates: true,
            transfer_bytes_max: 4096,
            done: told.clone(),
        });
        let pair = pair.unwrap();
        pair.restart();
        pair.open();
        for tag in 0..POSTED as u64 {
            assert_eq!(pair.submit(&[read(tag, 0, 0x1000, 4096)]).accepted, 1);
        }
        pair.set_completion_look(CompletionLook::On);
        Arc::new(Self { pair, told, requested: AtomicU64::new(0) })
    }

    fn post(&self) {
        for cid in 0..POSTED {
            let words = &self.pair.cq.words()[2 * cid..];
            words[0].set(cid as u64 + 100);
            words[1].set(entry(0, cid as u64, 1, 0));
            self.requested.fetch_or(1, Ordering::AcqRel);
        }
    }

    fn interrupt(&self, handler: fn(&QueuePair<LoomHal>)) {
        if self.requested.swap(0, Ordering::AcqRel) != 0 {
            handler(&self.pair);
        }
    }
}

fn run(handler: fn(&QueuePair<LoomHal>)) {
    let mut model = loom::model::Builder::new();
    // Without a bound the driver's many words make it take hours.
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(move || {
        let world = World::new();
        let device = thread::spawn({
            let world = world.clone();
            move || world.post()
        });
        let submitter = thread::spawn({
            let world = world.clone();
            move || {
                CPU.with(|cpu| cpu.set(1));
                assert_eq!(world.pair.submit(&[read(2, 0, 0x1000, 4096)]).accepted, 1);
            }
        });
        world.interrupt(handler);
        device.join().unwrap();
        world.interrupt(handler);
        submitter.join().unwrap();
        let told = world.told.0.each_ref().map(|times| times.load(Ordering::Relaxed));
        assert_eq!(told, [1, 1], "a completion that no interrupt will tell of");
        assert_eq!(world.pair.snapshot().completion.device_faults, 0);
    });
}

#[test]
fn every_completion_is_taken_once() {
    run(|pair| {
        pair.handle(Irq(5));
    });
}

/// Wrong: the interrupt leaves the queue to the lock's holder, which may already have made its last look.
#[test]
#[should_panic(expected = "a completion that no interrupt will tell of")]
fn an_interrupt_that_only_tries_loses_one() {
    run(QueuePair::reap_after_submission);
}

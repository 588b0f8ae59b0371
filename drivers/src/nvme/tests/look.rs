//! The check after a submission, step by step.

use super::*;
use hal::CpuId;
use irq::{Action, Irq, IrqReturn};

fn counts(rig: &Rig) -> (u64, u64, u64, u64) {
    let now = rig.pair.snapshot();
    (now.submission.looks, now.submission.look_hits, now.completion.look_reaps, now.completion.look_entries)
}

#[test]
fn a_batch_is_followed_by_what_came_meanwhile() {
    let rig = Rig::new(8, 4096);
    rig.pair.set_completion_look(CompletionLook::On);
    assert_eq!(rig.submit_reads(70, 2).accepted, 2);
    assert_eq!(rig.log.take(), [Event::Doorbell(SQ_DOORBELL, 2)]);
    rig.post(0, [0, entry(2, 1, 1, 0)]);
    rig.post(1, [0, entry(2, 0, 1, 0)]);
    assert_eq!(rig.submit_reads(80, 1).accepted, 1);
    let batch = Event::Batch([done(71, Ok(0)), done(70, Ok(0))].into());
    assert_eq!(rig.log.take(), [Event::Doorbell(SQ_DOORBELL, 3), Event::Doorbell(CQ_DOORBELL, 2), batch]);
    assert_eq!(counts(&rig), (2, 1, 1, 2));

    // Their interrupt is empty and handled; the next one nobody can explain.
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::None);
    let counters = rig.pair.snapshot().completion;
    assert_eq!((counters.interrupts, counters.empty_interrupts, counters.overtaken_interrupts), (2, 2, 1));
}

/// Control operations take entries too. The handler used to disown their interrupts, which then counted as strays.
#[test]
fn an_interrupt_of_what_a_control_operation_took_is_the_queues_own() {
    let rig = Rig::new(8, 4096);
    assert_eq!(rig.submit_reads(70, 2).accepted, 2);
    rig.post(0, [0, entry(1, 0, 1, 0)]);
    rig.pair.take_completions();
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::None);

    rig.post(1, [0, entry(2, 1, 1, 0)]);
    rig.pair.fail_all(IoError::QueueDeleted);
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::None);
}

#[test]
fn nothing_accepted_is_nothing_to_look_after() {
    let rig = Rig::new(2, 4096);
    rig.pair.set_completion_look(CompletionLook::On);
    assert_eq!(rig.submit_reads(70, 2).accepted, 1);
    rig.post(0, [0, entry(1, 0, 1, 0)]);
    assert_eq!(rig.submit_reads(80, 1).refused, Some(Refusal::Full));
    assert_eq!(counts(&rig), (1, 0, 0, 0));
    assert!(rig.pair.completion_pending());
}

#[test]
fn a_queue_of_one_cpu_is_left_alone_unless_told() {
    let rig = Rig::new(8, 4096);
    rig.post(0, [0, entry(0, 7, 1, 0)]);
    for (policy, looks) in [(CompletionLook::Auto, 0), (CompletionLook::Off, 0), (CompletionLook::On, 1)] {
        rig.pair.set_completion_look(policy);
        assert_eq!(rig.pair.completion_look(), policy);
        assert_eq!(rig.submit_reads(1, 1).accepted, 1);
        assert_eq!(rig.pair.snapshot().submission.looks, looks, "{policy:?}");
    }
}

#[test]
fn a_second_cpu_makes_it_a_shared_queue() {
    let rig = Rig::on(HostHal::manual(2), 8, 4096);
    assert_eq!(rig.submit_reads(1, 1).accepted, 1);
    rig.hal.on_cpu(CpuId(1), || assert_eq!(rig.submit_reads(2, 1).accepted, 1));
    assert_eq!(counts(&rig).0, 1);
    // CPU 0 takes what CPU 1 submitted, and its own.
    rig.post(0, [0, entry(2, 1, 1, 0)]);
    rig.post(1, [0, entry(2, 0, 1, 0)]);
    assert_eq!(rig.submit_reads(3, 1).accepted, 1);
    let counters = rig.pair.snapshot().completion;
    assert_eq!((counters.look_entries, counters.remote, counters.local()), (2, 1, 1));
}

/// What the submitter of [`Again`] finds out inside its completion.
#[derive(Default)]
struct Again(Mutex<Option<Submitted>>, std::sync::OnceLock<std::sync::Weak<QueuePair<HostHal>>>);

impl BatchDone for Again {
    fn batch_done(&self, _: &[Completed]) {
        let pair = self.1.get().unwrap().upgrade().unwrap();
        // The device is not idle meanwhile: the second look sees this one.
        pair.cq.words()[3].set(entry(2, 1, 1, 0));
        *self.0.lock().unwrap() = Some(pair.submit(&[read(9, 0, 0x10_0000, 4096)]));
    }
}

/// A batch's user submits from inside its completion, which a submission's check runs: the second check finds the
/// completion side taken by this very CPU, and goes on.
#[test]
fn a_submission_inside_a_completion_inside_a_submission() {
    let hal = HostHal::manual(1);
    let again = Arc::new(Again::default());
    let pair = QueuePair::new(Parts {
        hal,
        regs: Arc::new(HostRegs::new(Arc::new(Log::default()))),
        dstrd: 0,
        qid: 3,
        entries: 8,
        vector: Some(5),
        namespace: Namespace { nsid: 1, blocks: BLOCKS, block_shift: 9 },
        deallocates: true,
        transfer_bytes_max: 4096,
        done: again.clone(),
    });
    let pair = Arc::new(pair.unwrap());
    assert!(again.1.set(Arc::downgrade(&pair)).is_ok());
    pair.restart();
    pair.open();
    pair.set_completion_look(CompletionLook::On);
    assert_eq!(pair.submit(&[read(1, 0, 0x10_0000, 4096), read(2, 0, 0x10_0000, 4096)]).accepted, 2);
    let queue = hal.dma_at(pair.cq_address()).unwrap();
    queue.words()[1].set(entry(2, 0, 1, 0));
    assert_eq!(pair.submit(&[read(3, 0, 0x10_0000, 4096)]).accepted, 1);
    assert_eq!(again.0.lock().unwrap().take(), Some(Submitted { accepted: 1, refused: None }));
    let now = pair.snapshot();
    assert_eq!((now.submission.looks, now.submission.look_hits, now.completion.completed), (3, 2, 1));
    assert_eq!((now.look_lock_failures(), pair.completion_pending()), (1, true));
    assert!(hal.interrupts_on());
}

#[test]
fn another_that_reaps_is_not_waited_for() {
    let rig = Rig::on(HostHal::manual(2), 8, 4096);
    rig.pair.set_completion_look(CompletionLook::On);
    assert_eq!(rig.submit_reads(1, 1).accepted, 1);
    rig.post(0, [0, entry(1, 0, 1, 0)]);
    let reaping = rig.pair.completion.lock();
    rig.hal.on_cpu(CpuId(1), || assert_eq!(rig.submit_reads(2, 1).accepted, 1));
    drop(reaping);
    assert_eq!(counts(&rig), (2, 1, 0, 0));
    assert_eq!(rig.pair.snapshot().look_lock_failures(), 1);
    assert!(rig.pair.completion_pending(), "its interrupt will take it");
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
}

/// Posts `count` entries for commands of a queue of 16 and takes them by an interrupt, every `interval_ns`.
fn interrupts(rig: &Rig, times: usize, count: usize, interval_ns: u64) {
    for _ in 0..times {
        assert_eq!(rig.submit_reads(0, count).accepted, count);
        let now = rig.pair.snapshot();
        for n in 0..count {
            let at = usize::from(now.cq_head) + n;
            let (index, phase) = (at % 16, u64::from(now.phase) ^ (at / 16) as u64);
            let submitted = (usize::from(now.sq_tail) + 16 - count + n) % 16;
            rig.post(index, [0, entry(0, rig.command(submitted)[0] >> 16 & 0xffff, phase, 0)]);
        }
        rig.hal.advance_ns(interval_ns);
        assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
    }
}

#[test]
fn a_device_that_coalesces_undeclared_is_found_out_and_forgiven() {
    let rig = Rig::new(16, 4096);
    interrupts(&rig, 32, 8, 74_000);
    assert!(rig.pair.seen_to_coalesce());
    // It stops: 64 looks that find nothing are enough.
    assert_eq!(rig.pair.snapshot().submission.looks, 0);
    interrupts(&rig, 64, 1, 74_000);
    assert!(!rig.pair.seen_to_coalesce());
    assert_eq!(rig.pair.snapshot().submission.looks, 64);
    interrupts(&rig, 64, 1, 74_000);
    assert_eq!(rig.pair.snapshot().submission.looks, 64);
    assert_eq!(rig.pair.snapshot().completion.device_faults, 0);
}

#[test]
fn a_device_that_was_told_to_coalesce_is_no_liar() {
    let rig = Rig::new(16, 4096);
    rig.pair.declare_coalescing(true);
    interrupts(&rig, 64, 8, 74_000);
    assert!(!rig.pair.seen_to_coalesce());
    rig.pair.declare_coalescing(false);
    interrupts(&rig, 32, 8, 74_000);
    assert!(rig.pair.seen_to_coalesce());
}

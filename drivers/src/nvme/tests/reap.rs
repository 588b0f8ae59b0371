use super::super::reap::AbortEnd;
use super::*;
use alloc::collections::BTreeSet;
use hal::Threads;
use irq::{Action, Irq, IrqReturn};
use proptest::prelude::*;
use spec::nvme::Status;

#[test]
fn the_doorbell_comes_before_the_batch_is_told() {
    let rig = Rig::new(4, 4096);
    assert_eq!(rig.submit_reads(70, 3).accepted, 3);
    rig.log.take();
    assert!(!rig.pair.completion_pending());
    rig.post(0, [0, entry(2, 1, 1, 0)]);
    // SCT 2h, SC 81h: Unrecovered Read Error; DNR is bit 63.
    rig.post(1, [0xab, 1 << 63 | entry(3, 0, 1, 0x281)]);
    assert!(rig.pair.completion_pending());
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
    let error = IoError::Device { status: Status::UNRECOVERED_READ_ERROR, do_not_retry: true };
    let batch = [done(71, Ok(0)), done(70, Err(error))];
    assert_eq!(rig.log.take(), [Event::Doorbell(CQ_DOORBELL, 2), Event::Batch(batch.into())]);
    assert!(!rig.pair.completion_pending());
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::None);
    assert_eq!(rig.log.take(), []);
    let now = rig.pair.snapshot();
    assert_eq!((now.in_flight, now.sq_head, now.cq_head, now.completion.errors), (1, 3, 2, 1));
    assert_eq!((now.completion.interrupts, now.completion.empty_interrupts), (2, 1));
    assert_eq!(now.completion.per_interrupt[..3], [1, 0, 1]);
}

/// The primary handler of a threaded queue looks and takes nothing.
#[test]
fn the_check_wakes_the_thread_for_a_new_entry_only() {
    let rig = Rig::new(4, 4096);
    assert_eq!(rig.submit_reads(70, 1).accepted, 1);
    rig.log.take();
    rig.post(0, [0, entry(1, 0, 1, 0)]);
    let (log, pair) = (rig.log, Arc::new(rig.pair));
    let check = EntryCheck::new(pair.clone());
    assert_eq!(check.handle(Irq(9)), IrqReturn::WakeThread);
    assert_eq!(log.take(), []);
    assert_eq!(pair.handle(Irq(9)), IrqReturn::Handled);
    assert_eq!(check.handle(Irq(9)), IrqReturn::None);
}

#[test]
fn a_poll_takes_no_more_than_it_is_told() {
    let rig = Rig::new(8, 4096);
    assert_eq!(rig.submit_reads(0, 3).accepted, 3);
    rig.log.take();
    (0..3).for_each(|i| rig.post(i as usize, [0, entry(3, i, 1, 0)]));
    assert_eq!(rig.pair.poll(2), 2);
    assert_eq!(rig.pair.poll(2), 1);
    assert_eq!(rig.pair.poll(2), 0);
    let doorbells: Vec<_> = rig.log.take().into_iter().filter(|event| matches!(event, Event::Doorbell(..))).collect();
    assert_eq!(doorbells, [Event::Doorbell(CQ_DOORBELL, 2), Event::Doorbell(CQ_DOORBELL, 3)]);
    let counters = rig.pair.snapshot().completion;
    assert_eq!((counters.polls, counters.empty_polls, counters.completed), (3, 1, 3));
}

#[test]
fn a_wait_ends_with_an_entry_or_its_deadline() {
    let rig = Rig::new(4, 4096);
    assert!(!rig.pair.wait_for_completion(5_000));
    rig.post(0, [0, entry(0, 0, 1, 0)]);
    assert!(rig.pair.wait_for_completion(u64::MAX));
}

/// Every fault is recorded and passed over; the commands in flight complete all the same, once.
#[test]
fn what_a_device_invents_harms_nobody() {
    let rig = Rig::new(8, 4096);
    assert_eq!(rig.submit_reads(70, 2).accepted, 2);
    rig.log.take();
    let cases = [
        (entry(1, 7, 1, 0), Some(DeviceFault::UnknownCommand(7, 7)), None),
        (entry(1, 0xffff, 1, 0), Some(DeviceFault::UnknownCommand(0xffff, 7)), None),
        (entry(1, 5, 1, 0), Some(DeviceFault::NotInFlight(5)), None),
        (1 | 4 << 16 | 1 << 48, Some(DeviceFault::WrongQueue(4, 3)), None),
        (entry(1, 0, 1, 0), None, Some(70)),
        (entry(1, 0, 1, 0), Some(DeviceFault::NotInFlight(0)), None),
        (entry(8, 1, 1, 0), Some(DeviceFault::HeadOutOfRange(8, 8)), Some(71)),
    ];
    let mut faults = 0;
    for (index, (word, fault, tag)) in cases.into_iter().enumerate() {
        rig.post(index, [0, word]);
        assert_eq!(rig.pair.poll(usize::MAX), 1);
        faults += u64::from(fault.is_some());
        let now = rig.pair.snapshot();
        assert_eq!(now.completion.device_faults, faults);
        if fault.is_some() {
            assert_eq!(now.last_fault, fault);
        }
        let batch = tag.map(|tag| Event::Batch([done(tag, Ok(0))].into()));
        let doorbell = Event::Doorbell(CQ_DOORBELL, index as u32 + 1);
        assert_eq!(rig.log.take(), core::iter::once(doorbell).chain(batch).collect::<Vec<_>>());
    }
    assert_eq!(rig.pair.snapshot().in_flight, 0);
    assert_eq!(rig.submit_reads(0, 7).accepted, 7);
}

/// A device that fills the ring for ever is left after one ring's worth.
#[test]
fn one_call_takes_one_ring_at_most() {
    let rig = Rig::new(4, 4096);
    (0..4).for_each(|i| rig.post(i, [0, entry(0, 0, 1, 0)]));
    assert_eq!(rig.pair.poll(usize::MAX), 4);
    assert_eq!(rig.pair.snapshot().completion.device_faults, 4);
    assert!(!rig.pair.completion_pending());
}

#[test]
fn a_reset_ends_each_command_once() {
    let rig = Rig::new(8, 4096);
    assert_eq!(rig.submit_reads(70, 3).accepted, 3);
    rig.log.take();
    rig.post(0, [0, entry(3, 1, 1, 0)]);
    rig.pair.stop();
    rig.pair.fail_all(IoError::ControllerReset);
    let reset = Err(IoError::ControllerReset);
    let events = [
        Event::Doorbell(CQ_DOORBELL, 1),
        Event::Batch([done(71, Ok(0))].into()),
        Event::Batch([done(70, reset), done(72, reset)].into()),
    ];
    assert_eq!(rig.log.take(), events);
    // The interrupt of the entry that the reset took is the queue's own.
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
    // Too late, and looked at no more.
    rig.post(1, [0, entry(3, 0, 1, 0)]);
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::None);
    rig.pair.fail_all(IoError::ControllerReset);
    assert_eq!(rig.log.take(), []);

    rig.pair.restart();
    rig.pair.open();
    assert!(!rig.pair.completion_pending());
    assert_eq!(rig.submit_reads(80, 8), Submitted { accepted: 7, refused: Some(Refusal::Full) });
    rig.post(0, [0, entry(7, rig.command(6)[0] >> 16 & 0xffff, 1, 0)]);
    rig.log.take();
    assert_eq!(rig.pair.poll(usize::MAX), 1);
    assert_eq!(rig.log.take()[1], Event::Batch([done(86, Ok(0))].into()));
}

/// `pc-remapped --replay 0xebc0d7c88eb61b75`: the line was disabled over the reset, and delivers when it is enabled.
#[test]
fn an_interrupt_of_what_a_reset_took_may_come_after_the_restart() {
    let rig = Rig::new(8, 4096);
    assert_eq!(rig.submit_reads(70, 1).accepted, 1);
    rig.post(0, [0, entry(1, 0, 1, 0)]);
    rig.pair.stop();
    rig.pair.fail_all(IoError::ControllerReset);
    rig.pair.restart();
    rig.pair.open();
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::Handled);
    assert_eq!(rig.pair.handle(Irq(9)), IrqReturn::None, "one interrupt was owed");
}

#[test]
fn an_id_stays_its_own_while_an_abort_names_it() {
    let rig = Rig::new(3, 4096);
    assert_eq!(rig.submit_reads(70, 2).accepted, 2);
    rig.hal.advance_ns(1_000);
    assert_eq!(rig.pair.begin_abort(1_000, 1_001), None);
    let abort = rig.pair.begin_abort(1_000, 1_000).unwrap();
    assert_eq!(abort.cid, 0);
    rig.post(0, [0, entry(2, 0, 1, 0x007)]);
    assert_eq!(rig.pair.poll(usize::MAX), 1);
    assert_eq!(rig.pair.snapshot().in_flight, 1);
    assert_eq!(rig.submit_reads(80, 1).refused, Some(Refusal::Full));
    rig.pair.end_abort(abort, AbortEnd::Answered);
    assert_eq!(rig.submit_reads(80, 1).refused, None);

    // The other survives its Abort: not tried again, but counted.
    let abort = rig.pair.begin_abort(1_000, 1_000).unwrap();
    assert_eq!(abort.cid, 1);
    rig.pair.end_abort(abort, AbortEnd::Answered);
    assert_eq!((rig.pair.begin_abort(1_000, 1_000), rig.pair.count_aborted()), (None, 1));
    rig.post(1, [0, entry(2, 1, 1, 0)]);
    assert_eq!(rig.pair.poll(usize::MAX), 1);
    assert_eq!((rig.pair.snapshot().in_flight, rig.pair.count_aborted()), (1, 0));
}

#[test]
fn an_id_whose_abort_got_no_answer_comes_back_with_a_reset() {
    let rig = Rig::new(3, 4096);
    assert_eq!(rig.submit_reads(70, 2).accepted, 2);
    for completes_first in [true, false] {
        let abort = rig.pair.begin_abort(1_000, 1_000).unwrap();
        let complete = || {
            let index = rig.pair.snapshot().cq_head.into();
            rig.post(index, [0, entry(2, abort.cid.into(), 1, 0)]);
            assert_eq!(rig.pair.poll(usize::MAX), 1);
        };
        if completes_first {
            complete();
            rig.pair.end_abort(abort, AbortEnd::Unanswered);
        } else {
            rig.pair.end_abort(abort, AbortEnd::Unanswered);
            complete();
        }
    }
    assert_eq!(rig.pair.snapshot().in_flight, 0);
    assert_eq!(rig.submit_reads(80, 1).refused, Some(Refusal::Full));
    rig.pair.stop();
    rig.pair.fail_all(IoError::ControllerReset);
    rig.pair.restart();
    rig.pair.open();
    assert_eq!(rig.submit_reads(80, 3).accepted, 2);
}

/// `pc-posted --systematic pc/abort+reset --schedule ab,a6b`
#[test]
fn an_id_stays_its_own_over_a_reset_while_an_abort_names_it() {
    let rig = Rig::new(3, 4096);
    assert_eq!(rig.submit_reads(70, 2).accepted, 2);
    let abort = rig.pair.begin_abort(1_000, 0).unwrap();
    rig.pair.stop();
    rig.pair.fail_all(IoError::ControllerReset);
    rig.pair.restart();
    rig.pair.open();
    assert_eq!(rig.submit_reads(80, 2), Submitted { accepted: 1, refused: Some(Refusal::Full) });
    rig.pair.end_abort(abort, AbortEnd::Refused);
    assert_eq!(rig.submit_reads(90, 2), Submitted { accepted: 1, refused: Some(Refusal::Full) });
    rig.log.take();
    rig.pair.stop();
    rig.pair.fail_all(IoError::ControllerReset);
    let reset = Err(IoError::ControllerReset);
    assert_eq!(rig.log.take(), [Event::Batch([done(90, reset), done(80, reset)].into())]);
}

/// Whoever waits for an Abort gives up, and ends it only when another has reset the controller: the id comes back with that.
#[test]
fn an_abort_that_is_given_up_before_a_reset_and_ended_behind_it_keeps_no_id() {
    let rig = Rig::new(3, 4096);
    for is_started_again in [true, false] {
        assert_eq!(rig.submit_reads(70, 3).accepted, 2);
        let abort = rig.pair.begin_abort(1_000, 0).unwrap();
        rig.pair.stop();
        rig.pair.fail_all(IoError::ControllerReset);
        if is_started_again {
            rig.pair.restart();
            rig.pair.open();
        }
        rig.pair.end_abort(abort, AbortEnd::Unanswered);
        if !is_started_again {
            rig.pair.restart();
            rig.pair.open();
        }
    }
    assert_eq!(rig.submit_reads(80, 3).accepted, 2);
}

/// A device that takes and completes commands in any order, by the rules of Base 3.3.1 and nothing else.
struct Device {
    entries: u16,
    head: u16,
    tail: u16,
    posted: u64,
    acknowledged: u64,
    taken: Vec<u64>,
}

impl Device {
    fn new(entries: u16) -> Self {
        Self { entries, head: 0, tail: 0, posted: 0, acknowledged: 0, taken: Vec::new() }
    }

    fn hear(&mut self, events: &[Event]) {
        for event in events {
            match *event {
                Event::Doorbell(SQ_DOORBELL, tail) => self.tail = tail as u16,
                Event::Doorbell(_, head) => {
                    let entries = u64::from(self.entries);
                    self.acknowledged += (entries + u64::from(head) - self.acknowledged % entries) % entries;
                    assert!(self.acknowledged <= self.posted);
                }
                Event::Batch(_) => {}
            }
        }
    }

    /// Fetches one command.
    fn fetch(&mut self, rig: &Rig) {
        if self.head != self.tail {
            let cid = rig.command(self.head.into())[0] >> 16 & 0xffff;
            assert!(!self.taken.contains(&cid), "command id {cid} is in flight twice");
            self.taken.push(cid);
            self.head = (self.head + 1) % self.entries;
        }
    }

    /// Completes one of the fetched commands.
    fn complete(&mut self, rig: &Rig, which: usize) {
        if !self.taken.is_empty() {
            assert!(self.posted - self.acknowledged < u64::from(self.entries), "the completion queue overflows");
            let cid = self.taken.swap_remove(which % self.taken.len());
            let phase = (self.posted / u64::from(self.entries) + 1) % 2;
            let index = (self.posted % u64::from(self.entries)) as usize;
            rig.post(index, [0, entry(self.head.into(), cid, phase, 0)]);
            self.posted += 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit(usize),
    Fetch,
    Complete(usize),
    Poll(usize),
    Interrupt,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1_usize..6).prop_map(Step::Submit),
        4 => Just(Step::Fetch),
        4 => any::<usize>().prop_map(Step::Complete),
        1 => (1_usize..4).prop_map(Step::Poll),
        1 => Just(Step::Interrupt),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    /// Over many turns of both rings: every accepted tag completes exactly once, none is invented, ids are unique
    /// among commands in flight, and neither ring overflows.
    #[test]
    fn every_command_completes_exactly_once(entries in 2_u16..9, check in any::<bool>(), steps in steps()) {
        let rig = Rig::new(entries, 4096);
        rig.pair.set_completion_look(if check { CompletionLook::On } else { CompletionLook::Off });
        let mut device = Device::new(entries);
        let (mut next, mut open) = (0_u64, BTreeSet::new());
        let drain = (0..20).flat_map(|_| [Step::Fetch, Step::Complete(0), Step::Interrupt]);
        for step in steps.into_iter().chain(drain) {
            match step {
                Step::Submit(count) => {
                    let room = usize::from(rig.pair.depth()) - open.len();
                    let submitted = rig.submit_reads(next, count);
                    prop_assert!(submitted.accepted <= count.min(room));
                    prop_assert_eq!(submitted.refused.is_some(), submitted.accepted < count);
                    open.extend(next..next + submitted.accepted as u64);
                    next += submitted.accepted as u64;
                }
                Step::Fetch => device.fetch(&rig),
                Step::Complete(which) => device.complete(&rig, which),
                Step::Poll(max) => prop_assert!(rig.pair.poll(max) <= max),
                Step::Interrupt => _ = rig.pair.handle(Irq(0)),
            }
            let events = rig.log.take();
            device.hear(&events);
            for event in events {
                let Event::Batch(batch) = event else { continue };
                for completed in batch {
                    prop_assert!(open.remove(&completed.tag), "tag {} twice or never submitted", completed.tag);
                }
            }
            prop_assert_eq!(usize::from(rig.pair.snapshot().in_flight), open.len());
        }
        prop_assert!(open.is_empty());
        let snapshot = rig.pair.snapshot();
        prop_assert_eq!(snapshot.completion.device_faults, 0);
        let (sent, ended) = (snapshot.submission, snapshot.completion);
        prop_assert_eq!(sent.looks, if check { sent.doorbells } else { 0 });
        // One thread: who sees an entry gets it.
        prop_assert_eq!((sent.look_hits, snapshot.look_lock_failures()), (ended.look_reaps, 0));
        prop_assert!(ended.look_entries >= ended.look_reaps);
    }
}

#[test]
fn sides_do_not_disturb_each_other() {
    several_threads(CompletionLook::Off);
}

/// The submitters reap too, by the try-lock.
#[test]
fn submitters_that_reap_disturb_nobody() {
    let snapshot = several_threads(CompletionLook::On);
    assert_eq!(snapshot.submission.looks, snapshot.submission.doorbells);
    let taken = snapshot.submission.look_hits - snapshot.look_lock_failures();
    assert_eq!(taken, snapshot.completion.look_reaps);
}

/// Two CPUs submit to one queue: that is what the look is for, and nobody has to say so.
#[test]
fn a_shared_queue_is_checked_by_itself() {
    assert!(several_threads(CompletionLook::Auto).submission.looks > 0);
}

/// Two threads submit, two reap, a fifth is the device: each tag comes back once.
fn several_threads(check: CompletionLook) -> QueueSnapshot {
    const EACH: u64 = 2_000;
    let hal = HostHal::monotonic(4);
    let rig = Rig::on(hal, 8, 4096);
    rig.pair.set_completion_look(check);
    let tally = Mutex::new((BTreeSet::new(), Device::new(8)));
    let finished = || tally.lock().unwrap().0.len() as u64 == 2 * EACH;
    std::thread::scope(|scope| {
        for cpu in 0..2_u32 {
            let rig = &rig;
            scope.spawn(move || {
                hal.set_cpu(hal::CpuId(cpu));
                let mut sent = 0;
                while sent < EACH {
                    sent +=
                        rig.submit_reads(u64::from(cpu) * EACH + sent, (EACH - sent).min(3) as usize).accepted as u64;
                    hal.yield_now();
                }
            });
        }
        for cpu in 2..4 {
            let (rig, finished) = (&rig, &finished);
            scope.spawn(move || {
                hal.set_cpu(hal::CpuId(cpu));
                while !finished() {
                    rig.pair.poll(3);
                    hal.yield_now();
                }
            });
        }
        while !finished() {
            let mut tally = tally.lock().unwrap();
            let events = rig.log.take();
            tally.1.hear(&events);
            for event in events {
                let Event::Batch(batch) = event else { continue };
                batch.iter().for_each(|done| assert!(tally.0.insert(done.tag), "tag {} twice", done.tag));
            }
            tally.1.fetch(&rig);
            tally.1.complete(&rig, 1);
            drop(tally);
            std::thread::yield_now();
        }
    });
    let snapshot = rig.pair.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.completion.completed), (0, 2 * EACH));
    snapshot
}

/// The device posts more while the user is told of what was there: the interrupt's own bound leaves it for the next.
#[test]
fn an_unbounded_interrupt_goes_on_while_entries_come() {
    for (bound, first) in [(ReapBound::Ring, 1), (ReapBound::None, 2)] {
        let hal = HostHal::manual(1);
        let posts_on = Arc::new(PostsOn(Mutex::new(None)));
        let pair = Arc::new(
            QueuePair::new(Parts {
                hal,
                regs: Arc::new(HostRegs::new(Arc::new(Log::default()))),
                dstrd: 0,
                qid: 3,
                entries: 8,
                vector: Some(5),
                namespace: Namespace { nsid: 1, blocks: BLOCKS, block_shift: 9 },
                deallocates: true,
                transfer_bytes_max: 4096,
                done: posts_on.clone(),
            })
            .unwrap(),
        );
        pair.restart();
        pair.open();
        pair.set_reap_bound(bound);
        assert_eq!(pair.submit(&[read(0, 0, 0x1000, 4096), read(1, 0, 0x1000, 4096)]).accepted, 2);
        let queue = hal.dma_at(pair.cq_address()).unwrap();
        queue.words()[1].set(entry(2, 0, 1, 0));
        *posts_on.0.lock().unwrap() = Some((hal, pair.cq_address()));
        pair.handle(Irq(5));
        assert_eq!(pair.snapshot().completion.interrupt_entries, first, "{bound:?}");
        pair.handle(Irq(5));
        assert_eq!(pair.snapshot().completion.interrupt_entries, 2, "{bound:?}");
    }
}

/// A user during whose first batch the device posts the second entry.
struct PostsOn(Mutex<Option<(HostHal, DeviceAddress)>>);

impl BatchDone for PostsOn {
    fn batch_done(&self, _: &[Completed]) {
        if let Some((hal, queue)) = self.0.lock().unwrap().take() {
            hal.dma_at(queue).unwrap().words()[3].set(entry(2, 1, 1, 0));
        }
    }
}

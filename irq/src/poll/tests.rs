use super::*;
use proptest::prelude::*;
use std::string::ToString;
use std::vec;

fn list(weights: &[u32]) -> PollList {
    let mut list = PollList::new(PollConfig::default()).expect("a budget");
    for &weight in weights {
        list.add(weight).expect("a weight");
    }
    list
}

#[test]
fn a_full_weight_goes_to_the_tail_and_less_completes() {
    let (a, b) = (PollId(0), PollId(1));
    let mut list = list(&[64, 64]);
    assert_eq!(list.schedule(a), Ok(Scheduled::Raise));
    assert_eq!(list.schedule(b), Ok(Scheduled::Queued));
    assert_eq!(list.schedule(b), Ok(Scheduled::Queued), "twice is once");
    list.begin(0);
    assert_eq!(list.next(0), Turn::Poll(a, 64));
    assert_eq!(list.polled(a, 64), Ok(After::Requeued));
    assert_eq!(list.next(0), Turn::Poll(b, 64));
    assert_eq!(list.next(0), Turn::Poll(b, 64), "until it is reported");
    assert_eq!(list.polled(b, 63), Ok(After::Complete));
    assert_eq!(list.next(0), Turn::Poll(a, 64));
    assert_eq!(list.polled(a, 0), Ok(After::Complete));
    assert_eq!(list.next(0), Turn::Idle);
    assert_eq!(list.schedule(b), Ok(Scheduled::Raise), "the work has ended");
    assert_eq!(list.overruns(), 0, "a full weight is no overrun");
}

#[test]
fn the_budget_of_256_ends_a_run_and_the_rest_waits() {
    let a = PollId(0);
    let mut list = list(&[64]);
    assert_eq!(list.schedule(a), Ok(Scheduled::Raise));
    list.begin(0);
    for _ in 0..4 {
        assert_eq!(list.next(0), Turn::Poll(a, 64));
        assert_eq!(list.polled(a, 64), Ok(After::Requeued));
    }
    assert_eq!(list.next(0), Turn::Spent);
    assert_eq!(list.schedule(a), Ok(Scheduled::Queued), "the caller has queued the work again");
    list.begin(0);
    assert_eq!(list.next(0), Turn::Poll(a, 64));
}

#[test]
fn time_ends_a_run_too() {
    let mut list = list(&[1, 1]);
    assert_eq!(list.schedule(PollId(1)), Ok(Scheduled::Raise));
    list.begin(10);
    assert_eq!(list.next(2_000_009), Turn::Poll(PollId(1), 1));
    assert_eq!(list.polled(PollId(1), 1), Ok(After::Requeued));
    assert_eq!(list.next(2_000_010), Turn::Spent);
}

/// With a limit of 0, or when the work is late for its own run, `Spent` would come for ever.
#[test]
fn a_run_has_its_first_turn_however_late_it_is() {
    let mut list = PollList::new(PollConfig { time_ns_max: 0, ..PollConfig::default() }).expect("a budget");
    let id = list.add(1).expect("a weight");
    assert_eq!(list.schedule(id), Ok(Scheduled::Raise));
    for _ in 0..2 {
        list.begin(10);
        assert_eq!(list.next(11), Turn::Poll(id, 1));
        assert_eq!(list.polled(id, 1), Ok(After::Requeued));
        assert_eq!(list.next(11), Turn::Spent);
    }
}

#[test]
fn scheduled_while_polled_is_polled_again() {
    let a = PollId(0);
    let mut list = list(&[64]);
    assert_eq!(list.schedule(a), Ok(Scheduled::Raise));
    list.begin(0);
    assert_eq!(list.next(0), Turn::Poll(a, 64));
    assert_eq!(list.schedule(a), Ok(Scheduled::Queued));
    assert_eq!(list.polled(a, 3), Ok(After::Requeued), "what came after its last look is not lost");
    assert_eq!(list.next(0), Turn::Poll(a, 64));
    assert_eq!(list.polled(a, 0), Ok(After::Complete));
}

#[test]
fn a_disabled_instance_gets_no_turn() {
    let (a, b) = (PollId(0), PollId(1));
    let mut list = list(&[8, 8]);
    assert_eq!(list.schedule(a), Ok(Scheduled::Raise));
    assert_eq!(list.schedule(b), Ok(Scheduled::Queued));
    assert_eq!(list.disable(a), Ok(true));
    list.begin(0);
    assert_eq!(list.next(0), Turn::Poll(b, 8));
    assert_eq!(list.disable(b), Ok(false), "its turn has to end first");
    assert_eq!(list.polled(b, 8), Ok(After::Disabled));
    assert_eq!(list.next(0), Turn::Idle);
    assert_eq!(list.schedule(a), Ok(Scheduled::Disabled));
    assert_eq!(list.enable(a), Ok(()));
    assert_eq!(list.schedule(a), Ok(Scheduled::Raise));
}

#[test]
fn mistakes_have_names() {
    let none = PollConfig { budget: 0, ..PollConfig::default() };
    assert_eq!(PollList::new(none).err(), Some(PollError::Budget));
    let mut list = list(&[4]);
    assert_eq!(list.add(0), Err(PollError::Weight));
    let stranger = list.schedule(PollId(7)).unwrap_err();
    assert_eq!(stranger.to_string(), "no poll instance 7 among the 1 of this list");
    assert_eq!(list.polled(PollId(0), 1), Err(PollError::NotPolled(PollId(0))));
    assert_eq!(list.schedule(PollId(0)), Ok(Scheduled::Raise));
    list.begin(0);
    assert_eq!(list.next(0), Turn::Poll(PollId(0), 4));
    assert_eq!(list.polled(PollId(0), u32::MAX), Ok(After::Requeued));
    assert_eq!((list.overruns(), list.next(0)), (1, Turn::Spent));
}

/// Devices with waiting completions. A device's interrupt is masked while the device is scheduled.
struct Rig {
    list: PollList,
    weights: vec::Vec<u32>,
    waiting: vec::Vec<u32>,
    enabled: vec::Vec<bool>,
    disabled: vec::Vec<bool>,
    raised: bool,
}

impl Rig {
    /// Raises a device's interrupt line, unless it is masked.
    fn interrupt(&mut self, device: usize) {
        if self.waiting[device] > 0 && self.enabled[device] {
            match self.list.schedule(PollId(device as u32)).expect("one of the list") {
                Scheduled::Raise => {
                    assert!(!self.raised, "raised twice");
                    self.raised = true;
                    self.enabled[device] = false;
                }
                Scheduled::Queued => self.enabled[device] = false,
                Scheduled::Disabled => assert!(self.disabled[device]),
            }
        }
    }

    /// One run of the deferred work. Completions for `late` arrive while it polls.
    fn run(&mut self, late: usize) {
        if !std::mem::take(&mut self.raised) {
            return;
        }
        self.list.begin(0);
        let (mut done, mut last) = (0, None);
        loop {
            match self.list.next(0) {
                Turn::Idle => break,
                Turn::Spent => {
                    assert!(done >= 256);
                    self.raised = true;
                    break;
                }
                Turn::Poll(id, weight) => {
                    let device = id.0 as usize;
                    assert_eq!(weight, self.weights[device]);
                    assert!(!self.disabled[device]);
                    assert!(done < 256, "a turn begins only within the budget");
                    let others = (0..self.waiting.len()).any(|other| other != device && self.is_listed(other));
                    assert!(last != Some(id) || !others, "two turns in a row while others wait");
                    last = Some(id);
                    let work = weight.min(self.waiting[device]);
                    self.waiting[device] -= work;
                    done += work;
                    self.waiting[late] += u32::from(done % 3 == 0);
                    self.interrupt(late);
                    if self.list.polled(id, work).expect("its turn") == After::Complete {
                        self.enabled[device] = true;
                        self.interrupt(device);
                    }
                }
            }
        }
    }

    fn is_listed(&self, device: usize) -> bool {
        self.list.queue.contains(&PollId(device as u32))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Arrive(usize, u32),
    Run(usize),
    Disable(usize),
    Enable(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let device = 0usize..3;
    prop_oneof![
        4 => (device.clone(), 1u32..500).prop_map(|(device, count)| Op::Arrive(device, count)),
        3 => device.clone().prop_map(Op::Run),
        1 => device.clone().prop_map(Op::Disable),
        1 => device.prop_map(Op::Enable),
    ]
}

proptest! {
    /// Budget, weights and turns are kept, and no completion stays behind.
    #[test]
    fn nothing_is_lost_and_everybody_gets_a_turn(
        ops in proptest::collection::vec(op(), 1..60),
        weights in proptest::collection::vec(1u32..80, 3),
    ) {
        let mut rig = Rig {
            list: list(&weights),
            weights,
            waiting: vec![0; 3],
            enabled: vec![true; 3],
            disabled: vec![false; 3],
            raised: false,
        };
        for op in ops {
            match op {
                Op::Arrive(device, count) => {
                    rig.waiting[device] += count;
                    rig.interrupt(device);
                }
                Op::Run(late) => rig.run(late),
                Op::Disable(device) => {
                    prop_assert_eq!(rig.list.disable(PollId(device as u32)), Ok(true), "no turn is under way");
                    rig.disabled[device] = true;
                    rig.enabled[device] = false;
                }
                Op::Enable(device) => {
                    rig.list.enable(PollId(device as u32)).expect("one of the list");
                    if std::mem::take(&mut rig.disabled[device]) {
                        rig.enabled[device] = true;
                        rig.interrupt(device);
                    }
                }
            }
        }
        for device in 0..3 {
            rig.list.enable(PollId(device as u32)).expect("one of the list");
            if std::mem::take(&mut rig.disabled[device]) {
                rig.enabled[device] = true;
                rig.interrupt(device);
            }
        }
        let mut runs = 0;
        while rig.raised {
            rig.run(0);
            runs += 1;
            prop_assert!(runs < 1_000, "polling ends");
        }
        prop_assert_eq!(&rig.waiting, &[0, 0, 0]);
        prop_assert_eq!(&rig.enabled, &[true, true, true]);
    }
}

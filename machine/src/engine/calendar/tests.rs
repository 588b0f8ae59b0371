use super::*;
use proptest::prelude::*;

/// The reference for the calendar: std's heap.
#[derive(Default)]
struct Oracle {
    heap: BinaryHeap<core::cmp::Reverse<(Ps, u64, u32)>>,
}

impl Oracle {
    fn push(&mut self, at: Ps, sequence: u64, payload: u32) {
        self.heap.push(core::cmp::Reverse((at, sequence, payload)));
    }

    fn next_key(&self) -> Option<(Ps, u64)> {
        self.heap.peek().map(|next| (next.0.0, next.0.1))
    }

    fn pop(&mut self) -> Option<(Ps, u64, u32)> {
        self.heap.pop().map(|next| next.0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Push this long after the present.
    Push(u64),
    /// Push several at one instant.
    PushTied(u64, u8),
    /// Reserve a number; push it later.
    Reserve(u64),
    /// Push the oldest reserved one.
    PushReserved,
    Pop(u8),
    /// Pop if the next is before the present plus this.
    PopBefore(u64),
}

/// Delays of every scale: the same instant, the same bucket, near, at the ring's end, far beyond it.
fn delay_ps() -> impl Strategy<Value = u64> {
    let bucket = 1 << BUCKET_BITS;
    prop_oneof![
        Just(0),
        1..bucket,
        bucket..bucket * 50,
        bucket * (RING - 3)..bucket * (RING + 3),
        bucket * RING..bucket * RING * 5,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => delay_ps().prop_map(Step::Push),
        1 => (delay_ps(), 1..60_u8).prop_map(|(delay, count)| Step::PushTied(delay, count)),
        1 => delay_ps().prop_map(Step::Reserve),
        1 => Just(Step::PushReserved),
        4 => (1..8_u8).prop_map(Step::Pop),
        2 => delay_ps().prop_map(Step::PopBefore),
    ]
}

/// The calendar beside the oracle, with the numbers reserved but not yet pushed.
#[derive(Default)]
struct Pair {
    calendar: Calendar<u32>,
    oracle: Oracle,
    reserved: std::collections::VecDeque<(Ps, u64)>,
    present: (Ps, u64),
    payload: u32,
}

impl Pair {
    fn push(&mut self, at: Ps) {
        self.payload += 1;
        self.oracle.push(at, self.calendar.next_sequence, self.payload);
        // By turns the quick way first, so that the two ways are mixed.
        if self.payload.is_multiple_of(2) || !self.calendar.push_behind(at, self.payload) {
            self.calendar.push(at, self.payload);
        }
    }

    fn pop(&mut self) {
        let popped = self.calendar.pop();
        assert_eq!(popped, self.oracle.pop());
        if let Some((at, sequence, _)) = popped {
            self.present = (at, sequence);
        }
    }

    fn apply(&mut self, step: Step) {
        let now = self.present.0;
        match step {
            Step::Push(delay) => self.push(now + Ps(delay)),
            Step::PushTied(delay, count) => (0..count).for_each(|_| self.push(now + Ps(delay))),
            Step::Reserve(delay) => self.reserved.push_back((now + Ps(delay), self.calendar.reserve_sequence())),
            Step::PushReserved => {
                if let Some((at, sequence)) = self.reserved.pop_front()
                    && (at, sequence) > self.present
                {
                    self.payload += 1;
                    self.oracle.push(at, sequence, self.payload);
                    self.calendar.push_with_sequence(at, sequence, self.payload);
                }
            }
            Step::Pop(count) => (0..count).for_each(|_| self.pop()),
            Step::PopBefore(delay) => {
                let limit = (now + Ps(delay), self.calendar.next_sequence);
                if self.oracle.next_key().is_some_and(|next| next < limit) {
                    let expected = self.oracle.pop();
                    assert_eq!(self.calendar.pop_before(limit), expected);
                    self.present = expected.map_or(self.present, |(at, sequence, _)| (at, sequence));
                } else {
                    assert_eq!(self.calendar.pop_before(limit), None);
                }
            }
        }
        assert_eq!(self.calendar.next_key(), self.oracle.next_key());
        assert_eq!(self.calendar.len(), self.oracle.heap.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn events_come_in_the_order_of_a_heap(steps in proptest::collection::vec(step(), 1..300)) {
        let mut pair = Pair::default();
        steps.into_iter().for_each(|step| pair.apply(step));
        while pair.oracle.next_key().is_some() {
            pair.pop();
        }
        prop_assert!(pair.calendar.is_empty());
        prop_assert_eq!(pair.calendar.pop(), None);
    }

    /// Crowds of one bucket, pushed in any order, as the distribution sort meets them.
    #[test]
    fn a_crowded_bucket_comes_in_order(
        offsets in proptest::collection::vec(0..1_u64 << BUCKET_BITS, 0..3000),
        coarse in 0..BUCKET_BITS,
    ) {
        let mut pair = Pair::default();
        pair.push(Ps(0));
        offsets.iter().for_each(|offset| pair.push(Ps((5 << BUCKET_BITS) + (offset >> coarse << coarse))));
        (0..=offsets.len()).for_each(|_| pair.pop());
    }
}

#[test]
fn equal_times_keep_the_order_of_their_numbers_not_of_their_pushes() {
    let mut calendar = Calendar::new();
    let early = calendar.reserve_sequence();
    calendar.push(Ps(100), "second");
    calendar.push_with_sequence(Ps(100), early, "first");
    assert_eq!(calendar.pop(), Some((Ps(100), 0, "first")));
    assert_eq!(calendar.pop(), Some((Ps(100), 1, "second")));
}

#[test]
fn an_event_pushed_before_a_distant_next_one_comes_first() {
    let mut calendar = Calendar::new();
    calendar.push(Ps::from_ns(1_000_000_000), 'c');
    calendar.push(Ps::from_ns(900), 'b');
    calendar.push(Ps::from_ns(5), 'a');
    let order: Vec<char> = core::iter::from_fn(|| calendar.pop()).map(|(_, _, name)| name).collect();
    assert_eq!(order, ['a', 'b', 'c']);
}

#[test]
fn the_last_instant_is_a_time_like_any_other() {
    let mut calendar = Calendar::new();
    calendar.push(Ps::MAX, 'z');
    calendar.push(Ps(Ps::MAX.0 - 1), 'y');
    assert_eq!(calendar.pop().map(|event| event.2), Some('y'));
    calendar.push(Ps::MAX, '!');
    assert_eq!(calendar.pop().map(|event| event.2), Some('z'));
    assert_eq!(calendar.pop().map(|event| event.2), Some('!'));
}

#[test]
#[should_panic(expected = "event 1 pushed at 0.009 ns, before the present: event 0 at 0.010 ns")]
fn an_event_before_the_present_is_a_bug() {
    let mut calendar = Calendar::new();
    calendar.push(Ps(10), ());
    calendar.pop();
    calendar.push(Ps(9), ());
}

/// A steady load reuses its buckets' storage: the kept storage stops growing after the first turns of the ring.
#[test]
fn storage_stays_bounded_under_a_steady_load() {
    let mut calendar = Calendar::new();
    let held = |calendar: &Calendar<u64>| -> usize {
        let buckets = calendar.ring.iter().chain(&calendar.spare).chain([&calendar.head]);
        buckets.map(Vec::capacity).sum::<usize>() + calendar.far.capacity()
    };
    (0..512).for_each(|id| calendar.push(Ps(id * 977), id));
    let turn = |calendar: &mut Calendar<u64>, events: u64| {
        for _ in 0..events {
            let (at, sequence, id) = calendar.pop().expect("every event pushes its successor");
            calendar.push(at + Ps(9_000_000 + sequence * 7919 % 2_000_000), id);
        }
    };
    turn(&mut calendar, 200_000);
    let early = held(&calendar);
    turn(&mut calendar, 400_000);
    assert!(held(&calendar) <= early * 2, "{early} entries held early, {} later", held(&calendar));
    assert!(held(&calendar) <= 512 * 64, "{} entries held for 512 pending", held(&calendar));
}

use super::super::testing::says;
use super::*;

const STORM: StormConfig = StormConfig { burst: 4, burst_ns_min: 3_500, unhandled_max: 2, throttle_ns: 4_500 };
const LINE: u64 = 5 << 48;

fn mark(tag: u32, rest: u64) -> Fact {
    Fact::Mark { cpu: 0, tag, value: LINE | rest }
}

fn answers(answers: &[u64]) -> Vec<Fact> {
    answers.iter().map(|&answer| mark(0x300, answer)).collect()
}

fn exit() -> Fact {
    Fact::Worked { cpu: 0, depth: 1, work: Work::IrqExit, count: 1 }
}

fn claim(which: u32, number: u64) -> Fact {
    mark(0x308 + which, number)
}

fn of(storm: StormConfig, parts: &[&[Fact]]) -> Vec<String> {
    says(Truth::new(storm, (false, false), [Known { line: 5, handlers: 1 }]), &parts.concat())
}

/// A mark a microsecond: four rounds take 3 µs, and no storm is one of them.
const SLOW: StormConfig = StormConfig { burst_ns_min: 10, ..STORM };

#[test]
fn what_no_handler_knew_is_counted() {
    let all = [mark(0x301, 0), mark(0x302, 0)];
    let rounds = answers(&[1, 0, 1, 1]);
    let claims = |number| [exit(), claim(0, number), claim(1, 0), claim(2, 0), claim(3, 4)];
    assert!(of(SLOW, &[&all, &rounds, &claims(1)]).is_empty());
    let wrong = of(SLOW, &[&all, &rounds, &claims(2)]);
    assert_eq!(wrong, ["line 5: the core counts 2 interrupts that were not handled, and 1 were not"]);
}

#[test]
fn a_round_asks_every_handler_of_a_shared_line() {
    let all = [mark(0x301, 0), mark(0x302, 0), mark(0x302, 0)];
    let claims = [exit(), claim(0, 1), claim(1, 0), claim(2, 0), claim(3, 3)];
    assert!(of(SLOW, &[&all, &answers(&[1, 0, 0, 1, 0, 0]), &claims]).is_empty());
}

#[test]
fn a_storm_is_throttled_and_nothing_else_is() {
    let storm = [answers(&[0, 0, 0, 0]), vec![exit()]].concat();
    let soon = of(SLOW, &[&storm, &answers(&[0])]);
    assert_eq!(soon, ["line 5 stormed at 4000 ns and has an answer at 6000 ns: it was not throttled"]);
    let pause: Vec<Fact> = (0..5).map(|_| exit()).collect();
    assert!(of(SLOW, &[&storm, &pause, &answers(&[0]), &[claim(1, 1)]]).is_empty());
    let never = of(SLOW, &[&answers(&[1, 1, 1, 1]), &[exit(), claim(1, 1)]]);
    assert_eq!(never, ["line 5: the core has throttled it 1 times, and it stormed 0 to 0 times"]);
}

/// The first burst may have begun long before its first answer, so only the second one is surely too fast.
#[test]
fn a_burst_is_a_storm_if_it_is_too_fast_at_its_longest() {
    let storm = StormConfig { burst_ns_min: 6_500, ..STORM };
    let calm = vec![exit(); 10];
    let facts = [calm, answers(&[1, 1, 1, 1]), vec![exit()], answers(&[1, 1, 1, 1]), vec![exit()]].concat();
    assert_eq!(of(storm, &[&facts, &[claim(1, 0)]]).len(), 1);
    assert!(of(storm, &[&facts, &[claim(1, 1)]]).is_empty());
}

/// Neither a thread's answer nor an interrupt of the handlers shows that the core has looked at its clock.
#[test]
fn a_burst_lasts_until_its_own_interrupt_is_left() {
    let storm = StormConfig { burst_ns_min: 7_500, ..STORM };
    let deeper = Fact::Worked { cpu: 0, depth: 2, work: Work::IrqExit, count: 1 };
    let entry = Fact::Worked { cpu: 0, depth: 1, work: Work::IrqEntry, count: 1 };
    let bursts = |between: &[Fact]| {
        let first = [vec![exit(); 10], vec![entry], answers(&[1, 1, 1, 1]), vec![exit(), entry]].concat();
        let second = [answers(&[1, 1, 1, 1]), between.to_vec(), vec![exit()]].concat();
        of(storm, &[&first, &second, &[claim(1, 0)]])
    };
    assert_eq!(bursts(&[]).len(), 1, "the second burst takes 7 us");
    assert!(bursts(&[mark(0x300, 3); 3]).is_empty());
    assert!(bursts(&[deeper; 3]).is_empty());
}

#[test]
fn a_count_is_not_less_than_the_runs_and_equal_where_nothing_disturbs() {
    let count = |before: &[Fact], number| of(SLOW, &[before, &answers(&[1, 1]), &[claim(2, 0), claim(3, number)]]);
    assert!(count(&[], 2).is_empty());
    assert_eq!(count(&[], 1), ["line 5: the core counts 1 interrupts, and its handlers ran for 2"]);
    assert_eq!(count(&[], 3), ["line 5: the core counts 3 interrupts, and its handlers ran for 2"]);
    let disturbed = [Fact::Mark { cpu: 0, tag: 0x304, value: 0 }];
    assert!(count(&disturbed, 3).is_empty());
    assert_eq!(count(&disturbed, 1).len(), 1);
}

/// Where a chip keeps nothing while its line is masked, a handler runs once more for what may have come.
#[test]
fn a_line_that_forgets_has_more_runs_than_interrupts_if_somebody_unmasked_it() {
    let runs = [answers(&[0, 0]), vec![exit(), mark(0x304, 0)]].concat();
    let counts = [claim(0, 2), claim(1, 0), claim(2, 0), claim(3, 1)];
    assert_eq!(of(SLOW, &[&runs, &counts]), ["line 5: the core counts 1 interrupts, and its handlers ran for 2"]);
    assert!(of(SLOW, &[&runs, &[mark(0x312, 0)], &counts]).is_empty());
}

#[test]
fn a_line_is_served_where_the_core_says() {
    let placed = |cpu| [mark(0x305, cpu)];
    assert!(of(SLOW, &[&placed(0), &answers(&[1])]).is_empty());
    let astray = of(SLOW, &[&placed(2), &answers(&[1])]);
    assert_eq!(astray, ["line 5 is delivered at CPU 2, and its handler ran on CPU 0"]);
    assert!(of(SLOW, &[&placed(2), &answers(&[3])]).is_empty(), "a thread may run where it was");
    let free = [Fact::Mark { cpu: 0, tag: 0x306, value: 0 }];
    assert!(of(SLOW, &[&placed(2), &free, &answers(&[1])]).is_empty());
}

#[test]
fn a_stray_is_explained_by_what_is_gone() {
    let strays = [Fact::Mark { cpu: 0, tag: 0x307, value: 1 }];
    assert_eq!(of(SLOW, &[&strays]), ["1 interrupts had no line, and every line has lived all the time"]);
    assert!(of(SLOW, &[&[mark(0x301, 0)], &strays]).is_empty());
    assert!(of(SLOW, &[&[Fact::Declared { cpu: 1, online: false }], &strays]).is_empty());
    let faulty = |keep| says(Truth::new(SLOW, (false, true), []).messages_keep(keep), &strays);
    assert_eq!((faulty(false).len(), faulty(true).len()), (0, 1));
}

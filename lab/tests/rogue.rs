//! A message from the wrong requester is not delivered. It is recorded and shown, and the other devices lose nothing.

mod common;

use lab::kinds::storage::StorageVariant;
use lab::outcome::{Outcome, Summary};
use lab::report::{self, Class, RunReport};

fn outcome(scenario: &str, delivery: StorageVariant, sets: &[&str]) -> Outcome {
    let plan = common::plan(scenario, &[&["duration=2ms", "ramp=1ms"], sets].concat());
    common::outcomes(&plan, delivery, 1).remove(0)
}

#[test]
fn a_strangers_messages_are_refused_and_recorded_and_cost_the_others_nothing() {
    for delivery in [StorageVariant::Remapped, StorageVariant::Posted] {
        let (alone, attacked) =
            (outcome("emr-4-drives", delivery, &[]), outcome("emr-4-drives", delivery, &["options.rogue_msi=50us"]));
        assert_eq!(alone.faults, []);
        let [fault] = &attacked.faults[..] else { panic!("one kind of fault: {:?}", attacked.faults) };
        assert_eq!(fault.requester_name(), "ff:1f.7");
        assert!(fault.kind.contains("wrong requester"), "{}", fault.kind);
        // 3 ms of ramp and span, one in 50 us.
        assert!((30..=100).contains(&fault.count), "{delivery}: {} messages", fault.count);
        let iops = |of: &Outcome| Summary::over(std::slice::from_ref(of)).unwrap().estimate("iops").unwrap().mean;
        let change = iops(&attacked) / iops(&alone) - 1.0;
        assert!(change.abs() < 0.015, "{delivery}: IOPS {:+.2} %", change * 100.0);
        let errors: u64 = attacked.storage().unwrap().drives.iter().map(|drive| drive.errors).sum();
        assert_eq!(errors, 0);
        let text = report::table::run(&RunReport::new("attacked", "emr", Class::Predicted, vec![attacked]));
        assert!(text.contains("Faults, all seeds together") && text.contains("ff:1f.7"), "{text}");
    }
}

#[test]
fn a_polled_run_has_no_message_to_copy() {
    assert_eq!(outcome("emr-polled", StorageVariant::Polled, &["options.rogue_msi=50us"]).faults, []);
}

//! The parts that need no machine; everything else is driven through registers in `conformance/tests/nvme_*.rs`.

use super::config::{Config, HiddenCoalescing, Spread};
use super::faults::FaultPlan;
use super::prp::DataPointer;
use super::queues::{CompletionQueue, SubmissionQueue};
use crate::time::Ps;
use spec::nvme::Completion;

#[test]
fn a_tail_that_adds_more_than_fits_is_refused() {
    let mut sq = SubmissionQueue::new(0, 4, 1);
    assert!(!sq.advance(0), "the old tail");
    assert!(!sq.advance(4), "outside");
    assert!(sq.advance(2));
    assert!(!sq.advance(1), "two waiting, three more");
    assert!(sq.advance(3), "full: three of four");
    assert!(!sq.advance(0), "one more would read as empty");
}

#[test]
fn a_head_acknowledges_only_what_was_posted() {
    let mut cq = CompletionQueue::new(0, 4, None);
    assert_eq!(cq.acknowledge(1), None, "nothing was posted");
    assert_eq!(cq.acknowledge(4), None, "outside");
    assert!(!cq.is_full());
}

#[test]
fn data_pointers_follow_the_offset_rules() {
    let page = 4096;
    // (PRP1, PRP2, bytes, right)
    let cases = [
        (0x1_0000, 0, 4096, true, "one page needs no PRP2"),
        (0x1_0000, 0x123, 4096, true, "and ignores it"),
        (0x1_0004, 0x2_0000, 4096, true, "dword aligned"),
        (0x1_0002, 0x2_0000, 512, false, "not dword aligned"),
        (0x1_0000, 0x2_0008, 8192, false, "a second page has no offset"),
        (0x1_0800, 0x2_0000, 4096, true, "two halves"),
        (0x1_0000, 0x2_0008, 12288, true, "a list may begin inside its page"),
        (0x1_0000, 0x2_0004, 12288, false, "but on 8 bytes"),
    ];
    for (prp1, prp2, bytes, right, why) in cases {
        assert_eq!(DataPointer { prp1, prp2, bytes }.validate(page).is_ok(), right, "{why}");
    }
}

#[test]
fn configurations_are_checked_by_field() {
    assert_eq!(Config::default().validate(), Ok(()));
    let field = |config: Config| config.validate().expect_err("wrong").field;
    assert_eq!(field(Config { vectors: 0, ..Config::default() }), "vectors");
    assert_eq!(field(Config { block_shift: 10, ..Config::default() }), "block_shift");
    assert_eq!(field(Config { io_queues_max: 1024, ..Config::default() }), "io_queues_max");
    assert_eq!(field(Config { blocks: 0, ..Config::default() }), "blocks");
    let hidden_coalescing = Some(HiddenCoalescing { entries: 8, time: Ps(0) });
    assert_eq!(field(Config { hidden_coalescing, ..Config::default() }), "hidden_coalescing.time");
    let mut config = Config::default();
    config.timing.read.spread = Spread::Uniform { percent: 101 };
    assert_eq!(
        config.validate().expect_err("wrong").to_string(),
        "NVMe drive: spread percent is 101, valid is 0 to 100"
    );
}

#[test]
fn faults_have_their_turn_once() {
    let mut plan = FaultPlan { unknown_cid_at_entry: Some(2), fatal_at: Some(Ps(10)), ..FaultPlan::default() };
    let mut entry = Completion { cid: 5, ..Completion::default() };
    plan.spoil(1, &mut entry);
    assert_eq!(entry.cid, 5);
    plan.spoil(2, &mut entry);
    assert_eq!(entry.cid, 0xfffa);
    assert!(!plan.take_fatal(Ps(9)));
    assert!(plan.take_fatal(Ps(10)));
    assert!(!plan.take_fatal(Ps(11)));
}

use super::*;
use crate::kinds::storage::load::Amount;
use crate::kinds::storage::{IoEngine, Pattern};
use std::collections::BTreeSet;

fn plan(random: bool, read_percent: u8, trims: Trims) -> JobPlan {
    JobPlan {
        name: "a".into(),
        source: crate::input::Place::file("j.fio"),
        drive: 0,
        cpus: hal::CpuSet::first(1),
        engine: IoEngine::Libaio,
        pattern: Pattern { random, read_percent, trims },
        block_bytes: 4096,
        fsync: 0,
        fdatasync: 0,
        iodepth: 1,
        batch_submit: 1,
        batch_complete_min: 1,
        batch_complete_max: 1,
        load: None,
    }
}

fn load(bytes: u64) -> Load {
    let mut load = Load::of_block(4096);
    load.files.size = Some(Amount::Bytes(bytes));
    load
}

/// All I/Os of a pass, at most `bytes` of them.
fn pass(plan: &JobPlan, load: &Load, number: u64) -> Vec<Next> {
    let extent = Extent { target: 0, base: 0, real: None };
    let mut walk = Walk::new(plan, load, &[extent], &Seeds::of(load.order.seed, number));
    let (mut all, mut bytes) = (Vec::new(), 0);
    let twice = if plan.pattern.trims == Trims::ThenWrite { 2 } else { 1 };
    while bytes < walk.size * twice {
        let direction = walk.direction();
        let Some(next) = walk.next(direction) else { break };
        bytes += next.bytes;
        all.push(next);
    }
    all
}

/// The counts that fio 3.33 gives for the first job of a file: `rw=randrw size=1m bs=4k`.
#[test]
fn a_mix_has_the_reads_and_writes_that_fio_has() {
    let all = pass(&plan(true, 50, Trims::None), &load(1 << 20), 1);
    let reads = all.iter().filter(|next| next.direction == READ).count();
    assert_eq!((reads, all.len() - reads), (132, 124));
}

#[test]
fn a_random_pass_has_each_block_once() {
    let all = pass(&plan(true, 100, Trims::None), &load(1 << 20), 1);
    let offsets: BTreeSet<u64> = all.iter().map(|next| next.offset).collect();
    assert_eq!((all.len(), offsets.len()), (256, 256));
    let mut free = load(1 << 20);
    free.order.map = false;
    let all = pass(&plan(true, 100, Trims::None), &free, 1);
    let offsets: BTreeSet<u64> = all.iter().map(|next| next.offset).collect();
    assert!(all.len() == 256 && offsets.len() < 256);
}

#[test]
fn sequential_directions_have_positions_of_their_own() {
    let all = pass(&plan(false, 50, Trims::None), &load(64 << 10), 1);
    for direction in [READ, WRITE] {
        let offsets: Vec<u64> = all.iter().filter(|n| n.direction == direction).map(|n| n.offset).collect();
        let expected: Vec<u64> = (0..offsets.len() as u64).map(|block| block * 4096).collect();
        assert_eq!(offsets, expected);
    }
}

#[test]
fn trims_come_before_the_writes_of_their_blocks() {
    for random in [false, true] {
        let all = pass(&plan(random, 0, Trims::ThenWrite), &load(64 << 10), 1);
        assert_eq!(all.len(), 32);
        for pair in all.chunks(2) {
            assert_eq!((pair[0].direction, pair[1].direction), (TRIM, WRITE));
            assert_eq!(pair[0].offset, pair[1].offset);
        }
    }
}

#[test]
fn holes_and_repeated_offsets_are_fios() {
    let mut holes = load(64 << 10);
    holes.order.skip_bytes = 4096;
    let offsets: Vec<u64> = pass(&plan(false, 100, Trims::None), &holes, 1).iter().map(|n| n.offset).collect();
    assert_eq!(offsets[..4], [0, 8192, 16384, 24576]);
    let mut every = load(64 << 10);
    every.order.offset_every = 4;
    let all = pass(&plan(true, 100, Trims::None), &every, 1);
    let follow = all.windows(2).filter(|pair| pair[1].offset == pair[0].offset + 4096).count();
    assert!(follow >= 8, "three of four follow: {follow} of {}", all.len());
}

#[test]
fn splits_keep_their_shares() {
    let mut split = load(64 << 20);
    split.sizes[READ] =
        crate::kinds::storage::load::Sizes { min: 4096, max: 16384, split: vec![(4096, 70), (16384, 30)], align: 4096 };
    split.order.map = false;
    let all = pass(&plan(true, 100, Trims::None), &split, 1);
    let small = all.iter().filter(|next| next.bytes == 4096).count() as f64 / all.len() as f64;
    assert!((0.67..0.73).contains(&small), "{small}");
}

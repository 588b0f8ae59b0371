//! A history leaves no memory allocated: a search may last for days.

use campanile_check::history::Recipe;
use campanile_check::scenarios;

/// The resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc tells");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4
}

/// Resident memory varies by the memory that the allocator keeps for later: one long history can raise it by megabytes, once, so the
/// largest rise of a block does not count. A driver with its queues is hundreds of KiB.
const MOST_KIB: u64 = 4 << 10;
const BLOCKS: u64 = 4;
const HISTORIES_A_BLOCK: u64 = 80;

#[test]
fn histories_leave_nothing_behind() {
    if !cfg!(target_os = "linux") {
        return;
    }
    for &scenario in scenarios::all() {
        let run = |seeds: std::ops::Range<u64>| {
            seeds.for_each(|seed| _ = scenario.run(&Recipe::of(seed)).expect("nothing is set wrongly"));
            resident_kib()
        };
        let mut resident = run(9_000..9_040);
        let rises: Vec<u64> = (0..BLOCKS)
            .map(|block| {
                let first = 9_040 + block * HISTORIES_A_BLOCK;
                let after = run(first..first + HISTORIES_A_BLOCK);
                after.saturating_sub(std::mem::replace(&mut resident, after))
            })
            .collect();
        println!("{}: {resident} KiB; {HISTORIES_A_BLOCK} histories raised it by {rises:?} KiB", scenario.name());
        let rise = rises.iter().sum::<u64>() - rises.iter().max().copied().unwrap_or(0);
        assert!(rise < MOST_KIB, "{}: {rises:?} KiB", scenario.name());
    }
}

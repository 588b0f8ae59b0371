//! A history leaves no memory allocated: a search may last for days.

use campanile_check::history::Recipe;
use campanile_check::scenarios;

/// The resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc tells");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4
}

/// Resident memory varies by the memory that the allocator keeps for later; a driver with its queues is hundreds of
/// KiB.
const MOST_KIB: u64 = 4 << 10;

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
        let (before, after) = (run(9_000..9_040), run(9_040..9_200));
        println!("{}: {before} KiB, 160 histories later {after} KiB", scenario.name());
        assert!(after < before + MOST_KIB, "{}: {before} KiB grew to {after} KiB", scenario.name());
    }
}

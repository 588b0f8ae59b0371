use super::*;

fn workload(drives: u32, depth: u32, end_us: u64) -> Workload {
    Workload { drives, depth, end: Ps::from_ns(end_us * 1000) }
}

/// Both engines handle the same events in the same order.
#[test]
fn the_engine_agrees_with_the_baseline() {
    for (drives, depth, end_us) in [(1, 1, 500), (1, 64, 2000), (3, 7, 500), (64, 64, 60), (200, 8, 60)] {
        let workload = workload(drives, depth, end_us);
        let expected = workload.run_baseline();
        let outcome = workload.run_engine().expect("stacks for 200 CPUs");
        assert_eq!(Outcome { switches: 0, ..outcome }, expected, "{workload:?}");
        assert!(expected.ios > 0, "{workload:?} is too short");
        assert_eq!(outcome.switches == 1, drives == 1, "{workload:?}: one CPU never switches, several do");
    }
}

/// The published results of the full workloads.
#[test]
fn the_results_are_those_expected() {
    for (drives, end_us, ios, checksum) in [
        (1, 800_000, 4_447_739, 0x0006_5214_6dfb_1942),
        (64, 12_500, 4_445_060, 0x0000_1948_5225_e8ad),
        (1024, 800, 4_337_212, 0x0000_01a7_082f_e51c),
    ] {
        let outcome = workload(drives, 64, end_us).run_engine().expect("stacks for 1,024 CPUs");
        assert_eq!((outcome.ios, outcome.checksum), (ios, checksum), "{drives} drives");
    }
}

//! `campanile import` on servers whose constants it cannot know: the machine plays the server, with constants drawn from a third to
//! three times their own. A server takes two minutes of CPU time, so this is no part of `cargo test`, but of `make test-all`.

mod blind;
mod common;
#[path = "blind/judge.rs"]
mod judge;

use judge::{Judged, OTHERS, blind};

/// Of each job that was not measured, nine of ten servers are predicted within 10 % or have the truth in their interval,
/// and of nine of ten the right remedy comes first or tied. `BLIND=50` for many, `BLIND=9..50` for those servers.
#[test]
fn servers_with_secrets_are_predicted() {
    let asked = std::env::var("BLIND").unwrap_or_else(|_| "1".to_owned());
    let (first, last) = asked.split_once("..").unwrap_or(("1", &asked));
    let [first, last]: [u64; 2] = [first, last].map(|seed| seed.parse().expect("BLIND=50, or BLIND=9..50"));
    let count = (last + 1 - first) as usize;
    let mut of_jobs: Vec<Vec<(u64, Judged)>> = OTHERS.iter().map(|_| Vec::new()).collect();
    for seed in first..=last {
        let (judged, how) = blind(seed);
        println!("server {seed}:");
        for (of_job, judged) in of_jobs.iter_mut().zip(judged) {
            println!("  {}", judged.how);
            of_job.push((seed, judged));
        }
        if std::env::var_os("BLIND").is_some() {
            println!("  {how}");
        }
    }
    let mut failed = Vec::new();
    for ((name, ..), mut of_job) in OTHERS.into_iter().zip(of_jobs) {
        let number = |is_meant: fn(&Judged) -> bool| of_job.iter().filter(|(_, one)| is_meant(one)).count();
        let (near, needs) = (number(|one| one.error.abs() <= 0.10), number(|one| one.needs));
        let [named, likely, needless] = [number(|one| one.named), number(|one| one.likely), number(|one| one.needless)];
        let missed = number(|one| one.error.abs() > 0.10 && !one.inside);
        let wrong = number(|one| !one.advised);
        let inside = number(|one| one.inside);
        for (seed, one) in of_job.iter().filter(|(_, one)| one.error.abs() > 0.10 && !one.inside || !one.advised) {
            println!("miss: server {seed}: {}", one.how);
        }
        of_job.sort_by(|a, b| a.1.width.total_cmp(&b.1.width));
        println!(
            "{name}: {near} of {count} within 10 %, {inside} inside their interval, {missed} missed; {needs} need a remedy, \
             {named} have it named and {likely} as likely, {needless} have one named that need none, {wrong} advised \
             otherwise; median width of the interval {:.0} %",
            of_job[count / 2].1.width * 100.0
        );
        if missed * 10 > count.max(10) || wrong * 10 > count.max(10) {
            failed.push(format!("{name}: {missed} missed, {wrong} advised otherwise"));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

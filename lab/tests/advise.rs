//! `campanile advise` beside the published works: each work's remedy comes first among those that can be switched on there
//! and do not poll, and where nothing gains, none is needed.

use lab::advise::needs::Stated;
use lab::advise::{self, Advice, Budget, Candidate, Criterion, Question};
use lab::interrupt::StopFlag;
use lab::scenario::Request;

/// A question about a carried scenario, with few seeds.
fn question(scenario: &str, sets: &[&str]) -> Question {
    let sets = sets.iter().map(ToString::to_string).collect();
    Question {
        request: Request { sets, seeds: Some(2), ..Request::of(scenario) },
        among: Vec::new(),
        stated: Stated::default(),
        cpu_budget: None,
        by: Criterion::Throughput,
        points: Some(1),
    }
}

fn advice(question: &Question) -> Advice {
    advise::advise(question, &StopFlag::default()).unwrap()
}

fn family<'a>(advice: &'a Advice, name: &str) -> &'a Candidate {
    advice.candidates.iter().find(|candidate| candidate.name == name).unwrap()
}

/// The families that are first or tied with the first.
fn first(advice: &Advice) -> Vec<&'static str> {
    let verdict = advice.verdicts.iter().find(|verdict| verdict.by == Criterion::Throughput).unwrap();
    let names = verdict.first.iter().chain(&verdict.tied);
    names.map(|name| family(advice, name).remedy).collect()
}

#[test]
fn four_drives_behind_one_iommu_want_posted_msi() {
    let found = advice(&question("emr-4-drives", &["duration=3ms"]));
    assert_eq!(first(&found), ["posted"], "{}", advise::text(&found, 160));
    assert!(found.today.bottleneck.contains("remapping unit"), "{}", found.today.bottleneck);
    let verdict = &found.verdicts[0];
    assert!(verdict.unless.as_ref().is_some_and(|name| name.starts_with("coalescing")), "{verdict:?}");
    assert_eq!(verdict.polling.as_deref(), Some("polled queues"));
    let polled = family(&found, "polled queues");
    assert!(polled.changes.throughput.unwrap().percent > 50.0);
}

#[test]
fn where_an_update_is_dear_posting_is_not_first() {
    let among = ["posted", "rq_affinity", "threaded"].map(String::from).to_vec();
    let dear = Question { among, ..question("emr-4-drives", &["duration=3ms", "fabric.posted_update=150ns"]) };
    let found = advice(&dear);
    let posted = family(&found, "posted").changes.throughput.unwrap();
    assert!(posted.high < -5.0, "{posted:?}");
    assert_eq!(found.verdicts[0].first, None, "{}", advise::text(&found, 160));
}

#[test]
fn one_job_on_drives_that_coalesce_secretly_wants_the_completion_check() {
    let found = advice(&question("azure-one-job", &["duration=60ms"]));
    assert_eq!(first(&found), ["check"], "{}", advise::text(&found, 160));
    let why = found.refused.iter().find(|refused| refused.name == "posted").unwrap();
    assert!(why.why.contains("bit 59"), "{why:?}");
}

#[test]
fn a_threaded_line_wants_eoimode_1() {
    for scenario in ["gic-altra", "gic-emag", "gic-juno"] {
        let found = advice(&question(scenario, &[]));
        assert_eq!(first(&found)[0], "eoimode1", "{}", advise::text(&found, 160));
    }
}

/// Threaded NAPI gives the queues CPUs of their own without further interrupts: the two are tied.
#[test]
fn eight_flows_want_several_interrupts() {
    let among = ["interrupts", "threads"].map(String::from).to_vec();
    let found =
        advice(&Question { among, points: Some(0), ..question("virtio-irqs", &["ramp=60ms", "duration=40ms"]) });
    let (families, text) = (first(&found), advise::text(&found, 160));
    assert!(families.contains(&"interrupts"), "{text}");
    let names: Vec<&String> = found.verdicts[0].first.iter().chain(&found.verdicts[0].tied).collect();
    assert!(names.iter().any(|name| **name == "8 IRQs"), "{text}");
}

#[test]
fn a_deep_load_wants_moderation() {
    let found = advice(&Question { points: Some(0), ..question("rdma-vm", &["duration=200ms"]) });
    assert_eq!(first(&found)[0], "moderation", "{}", advise::text(&found, 160));
}

#[test]
fn an_idle_server_needs_none() {
    let found = advice(&question("emr-low-qd1", &["duration=30ms"]));
    assert!(found.is_none_needed(), "{}", advise::text(&found, 160));
    assert!(advise::text(&found, 100).contains("None needed"));
}

#[test]
fn kernel_and_budget_bound_what_is_ranked() {
    let among = ["posted", "polled"].map(String::from).to_vec();
    let stated = Stated { kernel: Some((6, 8)), device: None };
    let cpu_budget = Some(Budget::Cpus(24.0));
    let found = advice(&Question { among, stated, cpu_budget, ..question("emr-4-drives", &["duration=2ms"]) });
    assert!(found.candidates.is_empty(), "{found:?}");
    assert!(found.refused.iter().any(|refused| refused.why.contains("Linux 6.8 lacks it")), "{:?}", found.refused);
    assert_eq!(found.over_budget[0].name, "polled queues");
    assert!(found.over_budget[0].busy_cpus > 31.0, "a polling CPU is busy");
    assert!(advise::text(&found, 160).contains("no remedy that can be tried keeps within the budget"));
    assert_eq!(found.warnings.iter().filter(|warning| warning.contains("above the budget of")).count(), 0);
}

/// A job of 10 I/Os a second is simulated for longer than was planned.
#[test]
fn the_span_is_the_one_that_was_simulated() {
    let job =
        "[a]\nfilename=/dev/nvme0n1\nioengine=libaio\ndirect=1\nrw=randread\nruntime=10\ntime_based\nthinktime=100ms\n";
    let mut file = tempfile::Builder::new().suffix(".fio").tempfile().unwrap();
    std::io::Write::write_all(&mut file, job.as_bytes()).unwrap();
    let asked = question(file.path().to_str().unwrap(), &[]);
    let found = advice(&Question { among: vec!["posted".into()], cpu_budget: Some(Budget::Cpus(0.0)), ..asked });
    assert!(found.span_ns >= 1_000_000_000, "{}", found.span_ns);
    let text = advise::text(&found, 160);
    assert!(text.contains("Nothing was judged") && !text.contains("one needed"), "{text}");
}

#[test]
fn what_was_not_tried_is_not_called_needless() {
    // A remedy for other loads, on a server whose own load is above the budget.
    let among = vec!["interrupts".to_owned()];
    let asked = question("emr-4-drives", &["duration=2ms"]);
    let found = advice(&Question { among, cpu_budget: Some(Budget::Cpus(0.5)), ..asked });
    let text = advise::text(&found, 160);
    assert!(text.contains("Nothing was tried") && !text.contains("None needed"), "{text}");
    assert!(found.warnings.iter().any(|warning| warning.contains("CPUs are busy today, above the budget of 0.5")));
}

/// Such remedies were left out without a word, and a server that posts was never compared with one that does not.
#[test]
fn a_server_that_posts_and_coalesces_is_compared_with_one_that_does_not() {
    let sets = ["duration=2ms", "drives.coalescing_entries=8", "drives.coalescing_time=100us"];
    let among = ["posted", "coalescing", "threads", "eoimode1", "rq_affinity"].map(String::from).to_vec();
    let mut asked = Question { among, points: Some(0), ..question("emr-4-drives", &sets) };
    asked.request.deliveries = Some(vec!["posted".into()]);
    let found = advice(&asked);
    let text = advise::text(&found, 160);
    let names: Vec<&str> = found.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    let is_told = |name: &str| names.contains(&name) || found.without_effect.iter().any(|other| other == name);
    assert!(is_told("remapped") && is_told("coalescing off") && is_told("coalescing 32, 400 µs"), "{text}");
    let why = |name: &str| found.not_applicable.iter().find(|other| other.name == name).map(|other| other.why.as_str());
    assert_eq!(why("coalescing 8, 100 µs"), Some("it is so today"));
    assert_eq!(why("eoimode1"), Some("it is for threaded interrupts behind a GIC"));
    assert!(
        text.contains("Does not apply\n") && text.contains("  threads: it is for a virtio network card\n"),
        "{text}"
    );
    let json = serde_json::to_value(&found).unwrap();
    assert!(
        json["not_applicable"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "threads")),
        "{json}"
    );
    assert!(advise::page(&found).contains("Does not apply"));
}

#[test]
fn the_same_question_has_the_same_bytes_and_a_page_needs_no_file() {
    let asked = question("gic-altra", &[]);
    let json = |advice: &Advice| serde_json::to_string(advice).unwrap();
    let (one, other) = (advice(&asked), advice(&asked));
    assert_eq!(json(&one), json(&other));
    let page = advise::page(&one);
    assert!(page.contains("EOImode 1") && !page.contains("src="), "{page}");
    assert!(page.split("href=").skip(1).all(|link| link.starts_with("\"data:")), "{page}");
}

#[test]
fn forty_columns_are_enough() {
    let among = ["posted", "polled", "coalescing"].map(String::from).to_vec();
    let found = advice(&Question { among, ..question("emr-4-drives", &["duration=2ms"]) });
    let text = advise::text(&found, 40);
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 40).collect();
    assert!(long.iter().all(|line| line.split_whitespace().count() == 1), "{long:?}");
}

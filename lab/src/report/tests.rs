use super::*;
use crate::outcome::samples;

pub(crate) fn report() -> RunReport {
    let mut report = RunReport::new("two small drives <4 KiB>", "emr", Class::Predicted, samples::outcomes());
    report.published = rows();
    report.constants = vec![ConstantRow {
        name: "fabric.remapping".into(),
        value: "53 ns".into(),
        reason: "fitted to A1 & H3".into(),
        free: true,
    }];
    report.load = [("remapped", 1.0), ("posted", 1.5)]
        .iter()
        .flat_map(|&(delivery, gain)| [(8, 0.1), (64, 0.6), (256, 1.0)].map(|(n, share)| (delivery, n, share * gain)))
        .map(|(delivery, in_flight, share)| LoadPoint {
            delivery: delivery.into(),
            in_flight,
            iops: 2e6 * share,
            mean_ns: 60_000.0 + 200_000.0 * share,
            p99_ns: 90_000.0 + 500_000.0 * share,
        })
        .collect();
    report
}

pub(crate) fn rows() -> Vec<Row> {
    let reference = |id: &str, quantity: &str, unit: &str, published, class| Reference {
        id: id.into(),
        platform: "emr".into(),
        scenario: "4 drives".into(),
        delivery: "posted".into(),
        quantity: quantity.into(),
        unit: unit.into(),
        published,
        class,
        from: None,
    };
    let estimate = |mean| Estimate { mean, ci95: Some(10.0), seeds: 3 };
    vec![
        Row::new(reference("H4", "iops_per_drive", "1/s", Some(2_000_000.0), Class::Fitted), estimate(2_020_000.0)),
        Row::new(reference("H7", "notifications", "%", Some(84.0), Class::Predicted), estimate(82.5)),
        Row::new(
            reference("A5", "iops_per_drive", "1/s", None, Class::Predicted),
            Estimate { mean: 1_000_000.0, ci95: None, seeds: 1 },
        ),
    ]
}

#[test]
fn errors_are_relative_and_of_shares_in_points() {
    let errors: Vec<_> = rows().iter().map(table::error).collect();
    assert_eq!(errors, ["+1.0 %", "-1.5 pt", "–"]);
    assert_eq!(Row::error_percent("1/s", 5.0, 0.0), None, "nothing is relative to zero");
    assert_eq!(Row::error_percent("%", 0.5, 0.0), Some(0.5));
}

#[test]
fn the_table_of_a_run() {
    assert_eq!(table::run(&report()), include_str!("tests/run.txt"));
}

#[test]
fn tables_keep_within_their_width() {
    let mut outcomes = samples::outcomes();
    outcomes.push(samples::outcome("polled", 1, 2.0));
    let report = RunReport::new("three", "emr", Class::Predicted, outcomes);
    for text in [table::run(&report), table::reproduce(&rows(), &[])] {
        for line in text.lines().filter(|line| line.contains("  ") || line.contains('─')) {
            assert!(line.chars().count() <= usize::from(table::WIDTH), "too wide: {line}");
        }
    }
}

#[test]
fn the_tables_of_reproduce() {
    let free = [table::FreeConstants { platform: "emr".into(), count: 4, fitted: 7 }];
    assert_eq!(table::reproduce(&rows(), &free), include_str!("tests/reproduce.txt"));
}

#[test]
fn one_seed_has_no_confidence_and_none_no_table() {
    let one = RunReport::new("one", "emr", Class::Predicted, vec![samples::outcome("posted", 1, 1.0)]);
    assert!(!table::run(&one).contains('±'));
    assert!(table::run(&one).contains("one seed: no confidence"));
    assert!(table::run(&RunReport::new("none", "emr", Class::Predicted, Vec::new())).contains("nothing was run"));
}

#[test]
fn an_interrupted_run_says_so() {
    let interrupted = RunReport { interrupted: true, ..report() };
    assert!(table::run(&interrupted).contains("INTERRUPTED"));
}

#[test]
fn json_of_a_run_has_everything() {
    let text = json::run(&report()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["summaries"].as_array().unwrap().len(), 2);
    assert_eq!(value["outcomes"].as_array().unwrap().len(), 6);
    assert_eq!(value["summaries"][0]["figures"][0]["id"], "iops");
    assert_eq!(value["summaries"][0]["figures"][0]["mean"], 2_000_000.0);
    assert_eq!(value["class"], "simulated, predicted");
    assert_eq!(value["outcomes"][0]["engine"]["host_ns"], serde_json::Value::Null, "no host time in a file");
    assert_eq!(text, json::run(&report()).unwrap(), "same input, same bytes");
}

#[test]
fn json_of_reproduce_has_the_published_keys_in_order() {
    let text = json::reproduce(&rows()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value.as_array().unwrap().len(), 3);
    assert_eq!((&value[2]["id"], &value[2]["published"]), (&"A5".into(), &serde_json::Value::Null));
    assert!(value[2]["ci95"].is_null() && value[2]["error_percent"].is_null());
    let first = text.split_once('}').unwrap().0;
    let keys: Vec<&str> = first.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect();
    let published =
        "id platform scenario delivery quantity unit value ci95 published error_percent class seeds from interval";
    assert_eq!(keys, published.split(' ').collect::<Vec<_>>());
}

/// Every opened element is closed in order; void and self-closing ones aside.
fn assert_balanced(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in html.split('<').skip(1) {
        let (inside, _) = tag.split_once('>').expect("every tag ends");
        let name = inside.split([' ', '\n']).next().unwrap();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "in <{inside}>"),
            None if name.starts_with('!') || name == "meta" || inside.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn the_page_is_whole_and_refers_to_nothing_outside() {
    let page = html::page(&report());
    assert_balanced(&page);
    // The only link holds its own content.
    let (before, rest) = page.split_once("<p class=\"data\">").unwrap();
    let (link, after) = rest.split_once("</p>").unwrap();
    assert!(link.starts_with("<a download=\"") && link.contains(" href=\"data:application/json;base64,"), "{link:.80}");
    for outside in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!before.contains(outside) && !after.contains(outside), "{outside}");
    }
    for section in ["against load", "time of an I/O", "Coalescing", "Interrupt table", "Constants", "How to read"] {
        assert!(page.contains(section), "{section}");
    }
    assert!(page.contains("two small drives &lt;4 KiB&gt;") && page.contains("fitted to A1 &amp; H3"), "escaped");
    assert!(page.contains("nvme0q1 &lt;&amp;&gt;") && !page.contains("NaN"));
    assert_eq!(page, html::page(&report()), "same input, same bytes");
}

#[test]
fn the_page_of_nothing_is_a_page() {
    let page = html::page(&RunReport::new("none", "emr", Class::Predicted, Vec::new()));
    assert_balanced(&page);
    assert!(page.contains("Nothing was run"));
}

#[test]
fn the_page_of_reproduce_is_whole_and_has_every_row() {
    let free = [table::FreeConstants { platform: "emr".into(), count: 4, fitted: 7 }];
    let page = rows_page(&rows(), &free);
    assert_balanced(&page);
    for row in rows() {
        assert!(page.contains(&format!("<th scope=\"row\">{}</th>", row.id)), "{}", row.id);
    }
    assert!(page.contains("emr: free constants 4, fitted rows 7.") && page.contains("1 of 1 within 2 %"));
    assert!(
        page.contains("1 of 1 predictions with a published value lie within 2 % of it (the furthest is H7, -1.5 pt)")
    );
    assert!(!page.contains("//") && !page.contains("NaN"));
    let none = rows_page(&[], &[]);
    assert_balanced(&none);
    assert!(none.contains("Nothing was run."));
}

#[test]
fn the_page_leaves_out_lines_that_never_came() {
    let mut report = report();
    for outcome in &mut report.outcomes {
        outcome.interrupt_table += "  34:          0          0  IR-PCI-MSI nvme0q2\n";
    }
    let page = html::page(&report);
    assert!(page.contains("nvme0q1") && !page.contains("nvme0q2") && page.contains("(1 lines that never came)"));
}

#[test]
fn a_long_figure_is_never_cut_in_two() {
    let mut row = rows().remove(0);
    (row.value, row.published) = (53_200_759_467.0, Some(53_200_000_000.0));
    let text = table::reproduce(std::slice::from_ref(&row), &[]);
    assert!(text.contains("53,200,759,467") && text.contains("53,200,000,000"), "{text}");
    row.interval = Some(Interval { low: 51_999_888_777.0, high: 54_111_222_333.0, points: 31 });
    let text = table::reproduce(&[row], &[]);
    assert!(text.contains("51,999,888,777") && text.contains("54,111,222,333"), "{text}");
}

#[test]
fn predictions_with_an_interval_show_its_ends_in_place_of_the_class() {
    let mut rows = rows();
    rows[2].interval = Some(Interval { low: 900_000.0, high: 1_100_000.0, points: 31 });
    let text = table::reproduce(&rows, &[]);
    assert!(text.contains("least") && text.contains("900,000  1,100,000"), "{text}");
    let page = rows_page(&rows, &[]);
    assert_balanced(&page);
    assert!(page.contains("900,000 to 1,100,000"));
    assert!(!rows_page(&self::rows(), &[]).contains("let the constants move"), "only where it was asked for");
    let value: serde_json::Value = serde_json::from_str(&json::reproduce(&rows).unwrap()).unwrap();
    assert_eq!((&value[2]["interval"]["points"], &value[1]["interval"]), (&31.into(), &serde_json::Value::Null));
}

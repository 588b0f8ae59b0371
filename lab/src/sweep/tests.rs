use super::store::{Content, Store};
use super::*;
use crate::interrupt::StopFlag;
use crate::scenario::Request;
use std::collections::BTreeMap;
use std::path::Path;

const JOB: &str = "[a]\nfilename=/dev/nvme0n1\ndirect=1\nioengine=libaio\ncpus_allowed=0-1\nrw=randread\n";
const SWEEP: &str = "about = \"small\"\nscenario = \"j.fio\"\ndeliveries = [\"remapped\", \"posted\"]\nseeds = 2\n\
                     [set]\nramp = \"20 us\"\nduration = \"60 us\"\ncpus = 2\n\
                     [grid]\n\"job.iodepth\" = [1, 4, 0]\n\"fabric.dispatch\" = { from = \"40 ns\", to = \"80 ns\", step = \"40 ns\" }\n";

fn parse(text: &str) -> Result<Definition, String> {
    Definition::parse("s.toml", text).map_err(|error| error.to_string())
}

/// The sweep in a folder of its own.
fn folder(text: &str) -> (tempfile::TempDir, Result<Sweep, String>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), JOB).unwrap();
    let path = folder.path().join("s.toml").to_string_lossy().into_owned();
    std::fs::write(&path, text).unwrap();
    let sweep = Sweep::read(&path, &["sweep".into(), path.clone()], Given::default());
    (folder, sweep.map_err(|error| error.to_string()))
}

fn run(sweep: &Sweep, shard: Shard, folder: &Path) -> Done {
    carry_out(sweep, shard, folder, &StopFlag::default()).unwrap()
}

/// What the files of a folder hold, without the stores.
fn results(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    ["results.csv", "results.parquet", "page.html", "manifest.json"]
        .map(|name| (name.to_owned(), std::fs::read(folder.join(name)).unwrap()))
        .into()
}

/// fio reads a number up to a blank, and whole ones alone.
#[test]
fn a_range_of_a_jobs_option_is_as_fio_reads_it() {
    let of = |range: &str| {
        parse(&format!("scenario = \"x\"\n[grid]\n\"job.bs\" = {range}\n")).map(|sweep| sweep.grid[0].values.clone())
    };
    assert_eq!(of("{ from = \"4k\", to = \"16k\", times = 2 }").unwrap(), ["4k", "8k", "16k"]);
    let error = of("{ from = \"1k\", to = \"3k\", step = \"0.5k\" }").unwrap_err();
    assert!(error.contains("part of a unit"), "{error}");
}

#[test]
fn a_range_counts_up_by_steps_or_by_factors() {
    let of = |range: &str| {
        parse(&format!("scenario = \"x\"\n[grid]\nk = {range}\n")).map(|sweep| sweep.grid[0].values.clone())
    };
    assert_eq!(of("{ from = 1, to = 64, times = 4 }").unwrap(), ["1", "4", "16", "64"]);
    assert_eq!(
        of("{ from = \"0.1 us\", to = \"0.3 us\", step = \"0.1 us\" }").unwrap(),
        ["0.1 us", "0.2 us", "0.3 us"]
    );
    assert_eq!(of("{ from = 1e0, to = 1.0e+1, step = 3 }").unwrap(), ["1", "4", "7", "10"]);
    assert_eq!(of("{ from = \"1e1 ns\", to = \"4e1ns\", times = 2 }").unwrap(), ["10 ns", "20 ns", "40 ns"]);
    for (range, why) in [
        ("{ from = 1, to = 64 }", "has neither step nor times"),
        ("{ from = 1, to = 64, times = 1 }", "does not grow"),
        ("{ from = 1, to = 64, step = 0 }", "has no step above zero"),
        ("{ from = 9, to = 1, step = 1 }", "ends before it begins"),
        ("{ from = 1, to = \"2 ns\", step = 1 }", "in another unit"),
        ("{ from = 0, to = \"x\", step = 1 }", "is no number"),
        ("{ from = 0, to = 1, step = 0.000001 }", "has too many values"),
        ("{ from = 1, to = 1e18, step = 1 }", "has too many values"),
    ] {
        assert!(of(range).unwrap_err().contains(why), "{range}: {:?}", of(range));
    }
}

/// The key of one platform ended the sweep as soon as another platform had no other point.
#[test]
fn a_key_that_one_platform_lacks_is_an_error_in_its_rows() {
    for platforms in ["[\"emr\", \"optane\"]", "[\"optane\", \"emr\"]"] {
        let text = format!(
            "scenario = \"emr-low-qd1\"\nplatforms = {platforms}\n[grid]\n\"drive.gen5.link\" = [\"10 GB/s\"]\n"
        );
        let grid = Grid::new(parse(&text).unwrap()).map_err(|error| error.to_string());
        assert!(grid.as_ref().is_ok_and(|grid| grid.runs() > 0), "{grid:?}");
    }
}

/// The value is wrong where the key is known, and the key unknown elsewhere: the first of the two was told.
#[test]
fn an_impossible_value_is_told_alike_wherever_its_scenario_stands() {
    let of = |scenarios: &str, deliveries: &str| {
        let text = format!("scenario = {scenarios}\n{deliveries}[grid]\n\"job.iodepth\" = [0, 100000]\n");
        Grid::new(parse(&text).unwrap()).map(|grid| grid.runs()).map_err(|error| error.to_string())
    };
    let expected = "s.toml:3: job.iodepth, in emr-low-qd1: `0` ";
    for scenarios in ["[\"emr-low-qd1\", \"rdma-qd1\"]", "[\"rdma-qd1\", \"emr-low-qd1\"]"] {
        let error = of(scenarios, "").unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    // With deliveries every point is planned before the first run.
    for scenarios in ["[\"j.fio\", \"rdma-qd1\"]", "[\"rdma-qd1\", \"j.fio\"]"] {
        let text = format!("scenario = {scenarios}\ndeliveries = [\"remapped\"]\n[grid]\n\"job.iodepth\" = [1, 0]\n");
        let (told, points) = impossible(&folder(&text).1.unwrap(), Shard::WHOLE, &StopFlag::default());
        let of = |text: &str| told.iter().find(|(error, _)| error.contains(text)).map(|(_, count)| *count);
        assert_eq!(
            (told.len(), points, of("job.iodepth, in j.fio: `0` "), of("in rdma-qd1: ")),
            (2, 4, Some(1), Some(2)),
            "{told:?}"
        );
    }
}

/// Only the first 64 points of a scenario were tried for its deliveries.
#[test]
fn a_scenario_has_the_deliveries_of_whichever_point_is_possible() {
    let wrong: Vec<String> = (0..70).map(|at| format!("[[points]]\ncpus = {}\n", 5000 + at)).collect();
    let text = format!("scenario = \"emr-low-qd1\"\n{}[[points]]\nduration = \"1 ms\"\n", wrong.concat());
    let grid = Grid::new(parse(&text).unwrap()).map_err(|error| error.to_string());
    assert!(grid.as_ref().is_ok_and(|grid| grid.runs() > 0), "{grid:?}");
}

#[test]
fn what_is_wrong_in_a_sweep_is_named_with_its_line() {
    for (text, error) in [
        ("seeds = 1\n", "s.toml: scenario: must be given; valid: the name of a scenario"),
        ("scenario = \"x\"\ngird = 1\n", "s.toml:2: gird: the name is unknown; valid: grid"),
        ("schema = 2\nscenario = \"x\"\n", "s.toml:1: schema: `2` is a form that only a newer program reads; valid: 1"),
        ("schema = \"1\"\nscenario = \"x\"\n", "s.toml:1: schema: `1` is a string; valid: 1, without quotes"),
        ("scenario = \"x\"\nseeds = 0\n", "s.toml:2: seeds: `0` is no number of seeds; valid: how many from 1"),
        ("scenario = \"x\"\n[grid]\na = [1, 1]\n", "s.toml:3: a: `1` stands there twice"),
        (
            "[global]\nrw=read\n[a]\n",
            "s.toml: is a job file of fio's, and no sweep; valid: a file with scenario = \"s.toml\"",
        ),
        ("scenario = \"x\"\n[grid]\na = []\n", "s.toml:3: a: `[]` is empty"),
        ("scenario = \"x\"\n[set]\na = 1\n[grid]\na = [1]\n", "s.toml: a: `grid` sets what [set] or a point sets too"),
        ("scenario = \"x\"\n[grid]\na_us = [1]\na_ms = [1]\n", "s.toml: a_ms: `a` is set by another key too"),
        ("scenario = \"x\"\n[set]\na = 1\na_ms = 1\n", "s.toml: a_ms: `a` is set by another key too"),
        (
            "scenario = \"x\"\n[[points]]\na = [1]\n",
            "points.a: `[…]` is a list; valid: one value; lists stand in [grid]",
        ),
    ] {
        let found = parse(text).unwrap_err();
        assert!(found.contains(error), "{found}\n{error}");
    }
}

#[test]
fn every_run_has_a_number_and_its_setting() {
    let (_folder, sweep) = folder(SWEEP);
    let grid = sweep.unwrap().grid;
    assert_eq!((grid.points(), grid.runs()), (6, 24));
    let setup = grid.setup(0);
    assert_eq!(
        (setup.delivery.as_str(), setup.seed, setup.values),
        ("remapped", 1, vec![Some("1".into()), Some("40 ns".into())])
    );
    let setup = grid.setup(23);
    assert_eq!((setup.point, setup.delivery.as_str(), setup.seed), (5, "posted", 2));
    assert_eq!(setup.values, [Some("0".into()), Some("80 ns".into())]);
    let distinct: std::collections::BTreeSet<String> = (0..24).map(|run| format!("{:?}", grid.setup(run))).collect();
    assert_eq!(distinct.len(), 24);
}

#[test]
fn each_scenario_has_its_own_deliveries() {
    let text = "scenario = [\"emr-low-qd1\", \"emr-polled\", \"rdma-qd1\"]\n[grid]\nduration = [\"1 ms\", \"2 ms\"]\n";
    let grid = Grid::new(parse(text).unwrap()).unwrap();
    let mut own: Vec<(String, Vec<String>)> = Vec::new();
    for run in 0..grid.runs() {
        let Setup { scenario, delivery, point, .. } = grid.setup(run);
        assert_eq!(point, grid.point_of(run));
        match own.last_mut().filter(|(last, _)| *last == scenario) {
            Some((_, deliveries)) => deliveries.push(delivery),
            None => own.push((scenario, vec![delivery])),
        }
    }
    for (scenario, deliveries) in own {
        let names = Request::of(&scenario).plan().unwrap().work.names();
        assert_eq!(deliveries, [&names[..], &names[..]].concat(), "{scenario}");
    }
}

#[test]
fn a_grid_that_is_too_large_is_refused_with_its_size() {
    let text = SWEEP.replace("[1, 4, 0]", "{ from = 1, to = 50000, step = 1 }").replace("seeds = 2", "seeds = 100");
    let error = folder(&text).1.unwrap_err();
    assert!(
        error.contains(
            "is too large: 50000 job.iodepth × 2 fabric.dispatch × 2 deliveries × 100 seeds make 20000000 runs"
        ),
        "{error}"
    );
}

#[test]
fn what_does_not_exist_ends_a_sweep() {
    for wrong in ["scenario = [\"j.fio\", \"typo\"]", "scenario = \"j.fio\"\nplatforms = [\"emr\", \"typo\"]"] {
        let error = folder(&SWEEP.replace("scenario = \"j.fio\"", wrong)).1.unwrap_err();
        assert!(error.contains("typo"), "{error}");
    }
    // The file is named, and no option of a command line that nobody gave.
    for (wrong, expected) in [
        ("scenario = \"typo\"", "s.toml: scenario: `typo` is neither"),
        ("scenario = \"j.fio\"\ndeliveries = [\"typo\"]", "s.toml: deliveries: `typo` is no delivery"),
        ("scenario = \"j.fio\"\n[set]\ntypo = 1", "s.toml:3: typo: the name is unknown"),
    ] {
        let text = format!("{wrong}\n");
        let error = folder(&text).1.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_key_that_no_scenario_has_ends_a_sweep() {
    let error = folder(&SWEEP.replace("fabric.dispatch", "fabric.dispach")).1.unwrap_err();
    let line = SWEEP.lines().position(|line| line.contains("fabric.dispatch")).unwrap() + 1;
    let expected = format!(":{line}: fabric.dispach: the name is unknown; valid: fabric.dispatch");
    assert!(error.contains(&expected), "{error}");
    // One platform has the drive, the other has not: its points say so in the table.
    let text = "scenario = \"emr-4-drives\"\nplatforms = [\"emr\", \"optane\"]\ndeliveries = [\"remapped\"]\n\
                [grid]\n\"drive.gen5.slots\" = [64, 128]\n";
    assert_eq!(folder(text).1.unwrap().grid.runs(), 4);
}

#[test]
fn a_file_whose_first_line_is_damaged_is_kept() {
    let (folder, sweep) = folder(SWEEP);
    let (sweep, out) = (sweep.unwrap(), folder.path().join("out"));
    let shard = Shard::WHOLE;
    run(&sweep, shard, &out);
    let path = out.join(shard.file_name());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = carry_out(&sweep, shard, &out, &StopFlag::default()).unwrap_err().to_string();
    assert!(error.contains("its first line is damaged"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn merged_shards_have_the_bytes_of_one_run() {
    let (folder, sweep) = folder(SWEEP);
    let (whole, parts, out) = (folder.path().join("whole"), folder.path().join("parts"), folder.path().join("out"));
    let sweep = sweep.unwrap();
    let done = run(&sweep, Shard::WHOLE, &whole);
    Results::new(sweep.clone(), done.records).unwrap().write(&whole).unwrap();
    for number in [3, 1] {
        run(&sweep, Shard { number, count: 3 }, &parts);
    }
    let error = Results::merge(std::slice::from_ref(&parts)).unwrap_err().to_string();
    assert!(error.contains("shard 2/3 is missing; valid: all shards of a sweep, each done"), "{error}");
    run(&sweep, Shard { number: 2, count: 3 }, &parts);
    Results::merge(std::slice::from_ref(&parts)).unwrap().write(&out).unwrap();
    assert!(results(&whole) == results(&out));
    let shard = parts.join(Shard { number: 2, count: 3 }.file_name());
    let text = std::fs::read_to_string(&shard).unwrap();
    let (cut, _) = text.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(&shard, format!("{cut}\n")).unwrap();
    let error = Results::merge(std::slice::from_ref(&parts)).unwrap_err().to_string();
    assert!(error.contains("shard 2/3 lacks 1 run; valid: "), "{error}");
    let table = String::from_utf8(results(&out).remove("results.csv").unwrap()).unwrap();
    assert!(table.starts_with("run,point,scenario,platform,delivery,seed,job.iodepth,fabric.dispatch,fabric.dispatch [ns],quantity,unit,value,error,steadiness\n"));
    // A setting that is not possible is a row with its error.
    let errors: Vec<&str> = table.lines().filter(|line| line.contains("iodepth: `0`")).collect();
    assert!(errors.len() == 8 && errors[0].contains(",0,40 ns,40,,,,"), "{errors:?}");
    assert!(table.lines().any(|line| line.contains(",4,80 ns,80,iops,1/s,")), "{table}");
}

#[test]
fn a_sweep_goes_on_where_it_was_stopped_and_a_torn_line_is_run_again() {
    let (folder, sweep) = folder(SWEEP);
    let (sweep, out) = (sweep.unwrap(), folder.path().join("out"));
    let first = run(&sweep, Shard::WHOLE, &out);
    assert_eq!((first.before, first.torn, first.records.len()), (0, 0, 24));
    let file = out.join(Shard::WHOLE.file_name());
    let mut lines: Vec<String> = std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
    // One line changed inside, one missing, the last one cut.
    lines[5] = lines[5].replacen("\"run\":", "\"run\": ", 1);
    lines.remove(9);
    let text = lines.join("\n");
    std::fs::write(&file, &text[..text.len() - 3]).unwrap();
    let again = run(&sweep, Shard::WHOLE, &out);
    assert_eq!((again.before, again.torn), (21, 2));
    assert_eq!(again.records, first.records);
    assert_eq!(Content::read(&file).unwrap().records, first.records);
    assert_eq!(run(&sweep, Shard::WHOLE, &out).before, 24, "nothing is run twice");
}

#[test]
fn a_file_of_another_sweep_is_refused() {
    let (folder, sweep) = folder(SWEEP);
    let (sweep, out) = (sweep.unwrap(), folder.path().join("out"));
    let (store, ..) = Store::open(&out, &sweep, Shard::WHOLE).unwrap();
    let error = Store::open(&out, &sweep, Shard::WHOLE).unwrap_err().to_string();
    assert!(error.contains("is being written by another process"), "{error}");
    drop(store);
    let path = folder.path().join("s.toml").to_string_lossy().into_owned();
    std::fs::write(&path, SWEEP.replace("seeds = 2", "seeds = 3")).unwrap();
    let other = Sweep::read(&path, &["sweep".into(), path.clone()], Given::default()).unwrap();
    let error = Store::open(&out, &other, Shard::WHOLE).unwrap_err().to_string();
    assert!(error.contains("holds runs of another sweep"), "{error}");
}

#[test]
fn a_shard_is_i_of_n() {
    assert_eq!("2/4".parse(), Ok(Shard { number: 2, count: 4 }));
    for text in ["0/4", "5/4", "4", "a/b", "1/0", "-1/2"] {
        assert!(text.parse::<Shard>().unwrap_err().contains("valid is i/n"), "{text}");
    }
    let shards = [1, 2, 3].map(|number| Shard { number, count: 3 });
    assert!((0..9).all(|run| shards.iter().filter(|shard| shard.has(run)).count() == 1));
}

#[test]
fn the_sweep_of_the_document_has_the_runs_that_it_names() {
    let document = include_str!("../../../docs/sweep.md");
    let block = document.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let grid = Grid::new(parse(block).unwrap()).unwrap();
    // 2 platforms, 7 depths, 3 costs, 3 places of completion, 2 deliveries, 3 seeds.
    assert_eq!((grid.points(), grid.runs()), (2 * 7 * 3 * 3, 2 * 7 * 3 * 3 * 2 * 3));
}

#[test]
fn listed_points_and_several_platforms() {
    let text = "scenario = [\"emr-uring\", \"emr-polled\"]\nplatforms = [\"emr\", \"optane\"]\nseeds = [7, 9]\n\
                deliveries = [\"posted\"]\n[[points]]\nduration = \"1 ms\"\n[[points]]\ncpus = 4\nduration = \"2 ms\"\n";
    let grid = Grid::new(parse(text).unwrap());
    // The second scenario's jobs name drives that the second platform has too.
    let grid = grid.unwrap();
    assert_eq!(
        (grid.keys.as_slice(), grid.points(), grid.runs()),
        (&["duration".to_owned(), "cpus".into()][..], 8, 16)
    );
    let setup = grid.setup(1);
    assert_eq!(
        (setup.platform.as_deref(), setup.seed, setup.values),
        (Some("emr"), 9, vec![Some("1 ms".into()), None])
    );
}

#[test]
fn parquet_is_read_with_the_same_values() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let (folder, sweep) = folder(SWEEP);
    let sweep = sweep.unwrap();
    let done = run(&sweep, Shard::WHOLE, &folder.path().join("out"));
    let results = Results::new(sweep, done.records).unwrap();
    let path = folder.path().join("out");
    let written = results.write(&path).unwrap();
    let file = std::fs::File::open(path.join("results.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows() as u64, written.rows);
    let manifest = reader.metadata().file_metadata().key_value_metadata().unwrap();
    assert!(manifest.iter().any(|pair| pair.key == "campanile"));
    let first = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
    assert_eq!((first.get_ulong(0).unwrap(), first.get_string(4).unwrap().as_str()), (0, "remapped"));
    let (id, _, value) = &results.records[0].values[0];
    assert_eq!((first.get_string(9).unwrap(), first.get_double(11).unwrap()), (id, *value));
    let csv = results.csv();
    assert!(csv.lines().nth(1).unwrap().contains(&format!(",{id},1/s,{value},")));
}

/// `run` says whether its span is steady; of a sweep's rows nothing said so.
#[test]
fn each_row_says_whether_its_span_is_steady() {
    let text = "scenario = \"j.fio\"\ndeliveries = [\"remapped\", \"posted\"]\nseeds = 2\n[set]\ncpus = 2\n\
                \"job.iodepth\" = 4\n[grid]\nduration = [\"60 us\", \"4 ms\", \"0 ms\"]\n";
    let (folder, sweep) = folder(text);
    let (sweep, out) = (sweep.unwrap(), folder.path().join("out"));
    let done = run(&sweep, Shard::WHOLE, &out);
    let results = Results::new(sweep, done.records).unwrap();
    let written = results.write(&out).unwrap();
    assert_eq!(written.unsteady, [1, 2], "a point that is not possible is not judged");
    let table = results.csv();
    for (duration, verdict) in [(",60 us,", ",too_few"), (",4 ms,", ",steady"), (",0 ms,", ",")] {
        let rows: Vec<&str> = table.lines().filter(|line| line.contains(duration)).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.ends_with(verdict)), "{duration}: {rows:?}");
    }
    let page = String::from_utf8(std::fs::read(out.join("page.html")).unwrap()).unwrap();
    assert!(page.contains("1 of 2 points is not steady"));
}

/// Both have one version where no commit is known. The older has no spans, and its rows would have no verdict.
#[test]
fn runs_in_an_older_form_are_refused_by_its_name() {
    let (folder, sweep) = folder(SWEEP);
    let (sweep, out) = (sweep.unwrap(), folder.path().join("out"));
    let mut header = serde_json::to_value(store::Header::new(&sweep, Shard::WHOLE)).unwrap();
    header.as_object_mut().unwrap().remove("form");
    let text = header.to_string();
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join(Shard::WHOLE.file_name()), format!("{} {text}\n", &sha256(text.as_bytes())[..16])).unwrap();
    let error = Store::open(&out, &sweep, Shard::WHOLE).unwrap_err().to_string();
    assert!(error.contains("holds runs in form 1, and this program writes form 2; valid: another --out"), "{error}");
}

#[test]
fn warnings_of_runs_are_told_once() {
    let (folder, sweep) = folder(&SWEEP.replace("[1, 4, 0]", "[1.4, 1.96]"));
    let done = run(&sweep.unwrap(), Shard::WHOLE, &folder.path().join("out"));
    let depths: Vec<&String> = done.warnings.iter().filter(|warning| warning.contains("iodepth")).collect();
    assert!(depths.len() == 2 && depths[0].contains("`1.4` as 1"), "{:?}", done.warnings);
}

#[test]
fn a_warning_of_many_lines_is_told_once() {
    let sweep = SWEEP.replace("\"job.iodepth\" = [1, 4, 0]\n", "");
    let (folder, _) = folder(&sweep);
    let job = |name: &str| JOB.replace("[a]", name) + "iodepth=1.4\n";
    std::fs::write(folder.path().join("j.fio"), job("[a]") + &job("[b]")).unwrap();
    let path = folder.path().join("s.toml").to_string_lossy().into_owned();
    let sweep = Sweep::read(&path, &["sweep".into(), path.clone()], Given::default()).unwrap();
    let done = run(&sweep, Shard::WHOLE, &folder.path().join("out"));
    let told: Vec<&String> = done.warnings.iter().filter(|warning| warning.contains("iodepth")).collect();
    assert!(told.len() == 1 && told[0].ends_with("(and 1 other line of this file)"), "{told:?}");
}

//! The published rows: values measured elsewhere, the scenario that reproduces each, and whether it may calibrate.

mod formula;

pub use formula::Formula;

use crate::input::{InputError, Place, Problem, read_file};
use crate::inputs;
use crate::scenario::files::Files;
use crate::setting::Setting;
use std::collections::BTreeSet;

/// One row of `scenarios/published.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its published id: `H4`.
    pub id: String,
    /// The platform, as in `platforms/`.
    pub platform: String,
    /// What was run, in words.
    pub scenario: String,
    /// The variant, as its scenario names it.
    pub delivery: String,
    /// If the published value is a change, the variant that it is compared with: "posted against remapped".
    pub against: Option<String>,
    /// The quantity, named as in the kind of its scenario. A change has `_change` or `_gain` behind the name.
    pub quantity: String,
    /// The published value; none where it is withheld.
    pub published: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// Its permitted use.
    pub usage: Usage,
    /// The carried scenarios that reproduce it. If there are several, the worst counts. None of a derived row.
    pub scenarios: Vec<String>,
    /// How it follows from other rows; of a derived row alone.
    pub formula: Option<Formula>,
    /// Where it was published.
    pub source: String,
}

impl Row {
    /// The quantity whose change the row states, or the quantity itself.
    pub fn base_quantity(&self) -> &str {
        match self.against {
            Some(_) => self.quantity.trim_end_matches("_change").trim_end_matches("_gain"),
            None => &self.quantity,
        }
    }

    /// The variants that it needs.
    pub fn variants(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.delivery).chain(&self.against)
    }
}

/// The permitted use of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Usage {
    /// Calibration.
    Fit,
    /// Comparison with the program's result.
    Report,
    /// Comparison, though a constant was set with sight of this value: no prediction.
    Informed,
    /// No use: its value is not known here.
    Predict,
    /// Computed from other rows. A published value, if there is one, is compared.
    Derive,
}

/// The file in the project.
const FILE: &str = "scenarios/published.csv";
const TEXT: &str = include_str!("../../scenarios/published.csv");
const HEADER: &str = "id,platform,scenario,delivery,quantity,value,unit,use,files,source";

/// Every row, in the file's order.
///
/// # Errors
/// The file is wrong, which a test excludes for the one that the program carries.
pub fn rows() -> Result<Vec<Row>, InputError> {
    inputs::note_file(FILE, TEXT.as_bytes(), true);
    parse(FILE, TEXT)
}

/// The rows of a file of one's own, in the same form. Its scenarios are files beside it, or carried ones.
///
/// # Errors
/// The file cannot be read, or is wrong.
pub fn read(path: &str) -> Result<Vec<Row>, InputError> {
    let io = |error| InputError::new(&Place::file(path), "", Problem::Io(format!("cannot be read: {error}")));
    let text = read_file(path).map_err(io)?;
    let text = String::from_utf8(text).map_err(|_| io("it is no UTF-8 text".into()))?;
    let mut rows = parse(path, &text)?;
    for scenario in rows.iter_mut().flat_map(|row| &mut row.scenarios) {
        if scenario.ends_with(".toml") || scenario.contains('/') {
            *scenario = Files::beside(scenario, path);
        }
    }
    Ok(rows)
}

/// Those of `rows` with these ids, in their order; all of them without any id.
///
/// # Errors
/// No row has that id.
pub fn select(rows: Vec<Row>, ids: &[String]) -> Result<Vec<Row>, InputError> {
    if let Some(unknown) = ids.iter().find(|id| rows.iter().all(|row| row.id != **id)) {
        return Err(InputError::unknown(&Place::option("reproduce"), unknown, rows.iter().map(|row| row.id.as_str())));
    }
    Ok(rows.into_iter().filter(|row| ids.is_empty() || ids.contains(&row.id)).collect())
}

/// `selected` published rows and those that their formulas need, in the file's order.
///
/// # Errors
/// As [`rows`].
pub fn with_sources(selected: &[Row]) -> Result<Vec<Row>, InputError> {
    Ok(with_sources_of(&rows()?, selected))
}

/// The same of the rows of any file.
pub fn with_sources_of(all: &[Row], selected: &[Row]) -> Vec<Row> {
    let mut needed: BTreeSet<&str> = selected.iter().map(|row| row.id.as_str()).collect();
    // A formula names derived rows only above its own, so one pass from below finds every source.
    for row in all.iter().rev().filter(|row| row.formula.is_some()) {
        if needed.contains(row.id.as_str()) {
            needed.extend(row.formula.iter().flat_map(Formula::rows));
        }
    }
    all.iter().filter(|row| needed.contains(row.id.as_str())).cloned().collect()
}

fn parse(file: &str, text: &str) -> Result<Vec<Row>, InputError> {
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, HEADER)) => {}
        _ => return Err(InputError::new(&Place::line(file, 1), "", Problem::Missing { valid: HEADER.into() })),
    }
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let lines: Vec<(u32, Vec<String>)> = lines.map(|(index, line)| (index as u32 + 1, fields(line))).collect();
    let rows: Result<Vec<Row>, InputError> = lines.iter().map(|(number, fields)| row(file, *number, fields)).collect();
    let mut rows = rows?;
    for (at, (number, fields)) in lines.iter().enumerate() {
        if rows[at].usage == Usage::Derive {
            rows[at].formula = Some(formula(file, *number, &fields[8], &rows, at)?);
        }
    }
    Ok(rows)
}

/// The formula of row `at`. It may name every row that has scenarios, and the derived rows above it.
fn formula(file: &str, number: u32, text: &str, rows: &[Row], at: usize) -> Result<Formula, InputError> {
    let may_name = |(index, row): &(usize, &Row)| row.usage != Usage::Derive || *index < at;
    let ids: Vec<&str> = rows.iter().enumerate().filter(may_name).map(|(_, row)| row.id.as_str()).collect();
    Formula::parse(text, &ids).map_err(|why| {
        let valid = "rows, numbers, + - * / and parentheses; derived rows must stand above";
        Setting::new(Place::line(file, number), "files", text).wrong(why, valid)
    })
}

/// A row, whose formula is still to be read.
fn row(file: &str, number: u32, fields: &[String]) -> Result<Row, InputError> {
    let place = Place::line(file, number);
    let [id, platform, scenario, delivery, quantity, value, unit, usage, files, source] = fields else {
        let why = format!("the row has {} fields; valid: {HEADER}", fields.len());
        return Err(InputError::new(&place, "", Problem::Syntax(why)));
    };
    let setting = |key: &str, text: &str| Setting::new(place.clone(), key, text);
    let (variant, against) = match delivery.split_once(" against ") {
        Some((variant, base)) => (variant.to_owned(), Some(base.to_owned())),
        None => (delivery.clone(), None),
    };
    let usage = match usage.as_str() {
        "fit" => Usage::Fit,
        "report" => Usage::Report,
        "informed" => Usage::Informed,
        "predict" => Usage::Predict,
        "derive" => Usage::Derive,
        _ => return Err(setting("use", usage).wrong("is no use", "fit, report, informed, predict, derive")),
    };
    let published = match (value.as_str(), usage) {
        ("", Usage::Predict | Usage::Derive) => None,
        (text, Usage::Fit | Usage::Report | Usage::Informed | Usage::Derive) => {
            let number = text.parse::<f64>().ok().filter(|value| value.is_finite());
            Some(number.ok_or_else(|| setting("value", text).wrong("is not a number", "a number"))?)
        }
        (text, Usage::Predict) => return Err(setting("value", text).wrong("stands in a prediction", "nothing")),
    };
    Ok(Row {
        id: id.clone(),
        platform: platform.clone(),
        scenario: scenario.clone(),
        delivery: variant,
        against,
        quantity: quantity.clone(),
        published,
        unit: unit.clone(),
        usage,
        scenarios: match usage {
            Usage::Derive => Vec::new(),
            _ => files.split_whitespace().map(str::to_owned).collect(),
        },
        formula: None,
        source: source.clone(),
    })
}

/// The fields of a line; one in quotes may hold commas.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("never empty").push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Request;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_is_given_by_carried_scenarios_of_its_platform() {
        let rows = rows().unwrap();
        let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len(), "an id stands twice");
        for row in &rows {
            assert_eq!(row.scenarios.is_empty(), row.usage == Usage::Derive, "{}: no scenario", row.id);
            assert_eq!(row.formula.is_some(), row.usage == Usage::Derive, "{}: no formula", row.id);
            for scenario in &row.scenarios {
                let plan = Request::of(scenario).plan().unwrap();
                assert_eq!(plan.platform.name, row.platform, "{}", row.id);
                for variant in row.variants() {
                    let known = plan.work.names().contains(variant);
                    assert!(known, "{}: {scenario} does not run {variant}", row.id);
                }
            }
        }
    }

    #[test]
    fn the_rows_are_those_that_were_published() {
        let rows = rows().unwrap();
        let find = |id: &str| rows.iter().find(|row| row.id == id).unwrap();
        assert_eq!(find("H4").published, Some(2_184_200.0));
        assert_eq!((find("H4").usage, find("H4").quantity.as_str()), (Usage::Fit, "iops_per_drive"));
        assert_eq!((find("C1").published, find("C1").unit.as_str()), (None, "ns"));
        assert_eq!(find("E14").scenarios.len(), 4);
        assert!(find("A1").scenario.contains("8 jobs a drive, QD 64"), "commas in quotes");
        let is_nvme = |row: &&Row| ["emr", "spr", "optane", "azure"].contains(&row.platform.as_str());
        let count = |usage| rows.iter().filter(is_nvme).filter(|row| row.usage == usage).count();
        assert_eq!((count(Usage::Fit), count(Usage::Report), count(Usage::Predict)), (17, 8, 46), "of NVMe");
    }

    #[test]
    fn rows_are_selected_by_id() {
        let ids: Vec<String> =
            select(rows().unwrap(), &["H4".into(), "A5".into()]).unwrap().into_iter().map(|row| row.id).collect();
        assert_eq!(ids, ["A5", "H4"]);
        assert_eq!(select(rows().unwrap(), &[]).unwrap().len(), rows().unwrap().len());
        let error = select(rows().unwrap(), &["Q77".into()]).unwrap_err().to_string();
        assert!(error.starts_with("reproduce: Q77: the name is unknown; valid: "), "{error}");
    }

    #[test]
    fn a_derived_row_has_a_formula_and_brings_its_sources() {
        let text = format!(
            "{HEADER}\nX1,emr,s,posted,iops,,1/s,predict,f,s\nX2,emr,s,posted,iops,9,1/s,fit,f,s\n\
             Y1,emr,s,gain,gain,25,%,derive,(X1/X2-1)*100,s\nY2,emr,s,half,gain,,%,derive,Y1/2,s\n"
        );
        let rows = parse(FILE, &text).unwrap();
        let formula = rows[3].formula.as_ref().unwrap();
        assert_eq!((formula.text(), formula.rows()), ("Y1/2", vec!["Y1"]));
        assert_eq!((rows[2].published, rows[3].published, rows[2].scenarios.len()), (Some(25.0), None, 0));
        let case = |rows: &str| parse(FILE, &format!("{HEADER}\n{rows}")).unwrap_err().to_string();
        assert_eq!(
            case("Y1,emr,s,gain,gain,,%,derive,Y2*2,s\nY2,emr,s,half,gain,,%,derive,Y1/2,s"),
            "scenarios/published.csv:2: files: `Y2*2` has `Y2*2` where a row or a number is expected; valid: rows, \
             numbers, + - * / and parentheses; derived rows must stand above"
        );
    }

    #[test]
    fn a_selected_row_brings_the_rows_of_its_formula() {
        for row in rows().unwrap().iter().filter(|row| row.usage == Usage::Derive) {
            let ids: Vec<String> =
                with_sources(std::slice::from_ref(row)).unwrap().into_iter().map(|row| row.id).collect();
            let sources = row.formula.as_ref().unwrap().rows();
            assert!(ids.contains(&row.id) && sources.iter().all(|id| ids.iter().any(|known| known == id)), "{ids:?}");
        }
    }

    #[test]
    fn a_wrong_row_says_where() {
        let case = |row: &str| parse(FILE, &format!("{HEADER}\n{row}\n")).unwrap_err().to_string();
        assert_eq!(
            case("X1,emr,s,remapped,iops,1,1/s,predict,f,s"),
            "scenarios/published.csv:2: value: `1` stands in a prediction; valid: nothing"
        );
        assert_eq!(case("X1,emr,s"), format!("scenarios/published.csv:2: the row has 3 fields; valid: {HEADER}"));
    }
}

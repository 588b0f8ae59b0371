//! The published rows: values measured elsewhere, the scenario that reproduces each, and whether it may calibrate.

mod formula;
mod units;

pub use formula::Formula;

use crate::input::{InputError, Place, Problem, read_file};
use crate::inputs;
use crate::scenario::files::Files;
use crate::setting::Setting;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Its line, for errors.
    pub place: Place,
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

/// The rows of a file of one's own, in the same form; a table program may have written it, with `;` or a tab between the
/// fields. Its scenarios are files beside it, or carried ones.
///
/// # Errors
/// The file cannot be read, or is wrong.
pub fn read(path: &str) -> Result<Vec<Row>, InputError> {
    let io = |error| InputError::new(&Place::file(path), "", Problem::Io(format!("cannot be read: {error}")));
    let text = read_file(path).map_err(io)?;
    let text = import::encoding::text(&text);
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

/// What may stand between the fields of a line.
const SEPARATORS: [char; 3] = [',', ';', '\t'];

fn parse(file: &str, text: &str) -> Result<Vec<Row>, InputError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map(|(_, line)| line).unwrap_or_default();
    let is_header =
        |separator: &&char| fields(header, **separator).iter().map(|field| field.trim()).eq(HEADER.split(','));
    let Some(&separator) = SEPARATORS.iter().find(is_header) else {
        let why = format!(
            "the first line is {:?}, and not the header; valid: {HEADER}, with commas, semicolons or tabs",
            header.chars().take(HEADER.len()).collect::<String>()
        );
        return Err(InputError::new(&Place::line(file, 1), "", Problem::Syntax(why)));
    };
    let lines = lines.filter(|(_, line)| line.contains(|c: char| !c.is_whitespace() && c != separator));
    let lines: Vec<(u32, Vec<String>)> =
        lines.map(|(index, line)| (index as u32 + 1, fields(line, separator))).collect();
    let rows: Result<Vec<Row>, InputError> = lines.iter().map(|(number, fields)| row(file, *number, fields)).collect();
    let mut rows = rows?;
    let mut known: BTreeMap<&str, u32> = BTreeMap::new();
    for ((number, _), row) in lines.iter().zip(&rows) {
        if let Some(first) = known.insert(&row.id, *number) {
            let setting = Setting::new(Place::line(file, *number), "id", &row.id);
            return Err(setting.wrong(format!("stands in line {first} too"), "an id of its own for each row"));
        }
    }
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
    if files.trim().is_empty() {
        return Err(
            setting("files", files).wrong("names nothing that gives the row", "a scenario, or s.toml beside this file")
        );
    }
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
    let conversion = units::conversion(quantity, unit, against.is_some())
        .map_err(|valid| setting("unit", unit).wrong(format!("is no unit of {quantity}"), valid))?;
    let published = match (value.as_str(), usage) {
        ("", Usage::Predict | Usage::Derive) => None,
        (text, Usage::Fit | Usage::Report | Usage::Informed | Usage::Derive) => {
            let wrong = |why: &str, valid: &str| setting("value", text).wrong(why, valid);
            let number = text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
            let number =
                number.ok_or_else(|| wrong("is not a number", "a number, with a point before its fraction"))?;
            // Errors are relative to the value; those of shares are in points, but a fit counts them so too.
            let is_share = conversion.unit == "%";
            if number == 0.0 && (!is_share || usage == Usage::Fit) || number < 0.0 && against.is_none() {
                return Err(wrong("is not above 0, and errors are relative to it", ABOVE_0));
            }
            let (value, size) = (number * conversion.factor, (number * conversion.factor).abs());
            if number != 0.0 && !(VALUE_MIN..=VALUE_MAX).contains(&size) {
                return Err(wrong(
                    "is no value that a server has",
                    &format!("{VALUE_MIN:e} to {VALUE_MAX:e}, in its unit"),
                ));
            }
            Some(value)
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
        unit: conversion.unit.to_owned(),
        usage,
        scenarios: match usage {
            Usage::Derive => Vec::new(),
            _ => files.split_whitespace().map(str::to_owned).collect(),
        },
        formula: None,
        source: source.clone(),
        place,
    })
}

/// The size of a value in the unit of its figures. A fit squares its errors, which are relative to it.
const VALUE_MIN: f64 = 1e-9;
/// See [`VALUE_MIN`].
const VALUE_MAX: f64 = 1e18;

/// What a value may be.
const ABOVE_0: &str =
    "a number above 0; a quantity that is 0, such as msi of a server that polls, is no row: leave its line out";

/// The fields of a line; one in quotes may hold the separator.
fn fields(line: &str, separator: char) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c == separator && !quoted => fields.push(String::new()),
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
        let near = |id: &str| select(rows().unwrap(), &[id.into()]).unwrap_err().to_string();
        assert_eq!(near("h4"), "reproduce: h4: the name is unknown; valid: H4");
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
    fn a_table_program_may_have_written_the_file() {
        let rows = format!("{HEADER}\r\nX1,emr,\"a, b\",remapped,iops,1.5,kIOPS,fit,f,s\r\n,,,,,,,,,\r\n");
        for separator in SEPARATORS {
            let text = rows.replace(',', &separator.to_string());
            let bytes: Vec<u8> = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
            for text in [
                text.clone(),
                import::encoding::text(format!("\u{feff}{text}").as_bytes()),
                import::encoding::text(&bytes),
            ] {
                let found = parse(FILE, &text).unwrap_or_else(|error| panic!("{error}: {text}"));
                assert_eq!(
                    (found.len(), found[0].published, found[0].unit.as_str()),
                    (1, Some(1500.0), "1/s"),
                    "{text}"
                );
                assert_eq!(found[0].scenario, format!("a{separator} b"));
            }
        }
        let error = parse(FILE, "X1|emr|s\n").unwrap_err().to_string();
        assert!(error.contains("the first line is \"X1|emr|s\", and not the header; valid: id,platform"), "{error}");
        assert!(error.ends_with("with commas, semicolons or tabs"), "{error}");
        assert!(parse(FILE, "").unwrap_err().to_string().contains("the first line is \"\""));
    }

    #[test]
    fn values_that_no_error_can_be_relative_to_are_refused() {
        let of = |delivery: &str, quantity: &str, value: &str, unit: &str, usage: &str| {
            let row = format!("{HEADER}\nX1,emr,s,{delivery},{quantity},{value},{unit},{usage},f,s\n");
            parse(FILE, &row).map(|rows| rows[0].published).map_err(|error| error.to_string())
        };
        for (quantity, value, unit, usage) in [
            ("msi", "0", "1/s", "fit"),
            ("iops", "-5", "1/s", "fit"),
            ("iops", "0.0", "1/s", "report"),
            ("loss", "0", "%", "fit"),
            ("loss", "-1", "%", "report"),
        ] {
            let error = of("remapped", quantity, value, unit, usage).unwrap_err();
            assert!(
                error.contains(&format!("value: `{value}` is not above 0")) && error.contains("leave its line out"),
                "{error}"
            );
        }
        assert_eq!(of("remapped", "loss", "0", "%", "report"), Ok(Some(0.0)));
        assert_eq!(of("posted against remapped", "iops_gain", "-3", "%", "fit"), Ok(Some(-3.0)));
        let error = of("remapped", "clat", "5", "parsec", "fit").unwrap_err();
        assert!(
            error.starts_with("scenarios/published.csv:2: unit: `parsec` is no unit of clat; valid: ns, us"),
            "{error}"
        );
        assert!(of("remapped", "clat", "5,5", "us", "fit").unwrap_err().contains("fields"));
    }

    #[test]
    fn a_wrong_row_says_where() {
        let case = |row: &str| parse(FILE, &format!("{HEADER}\n{row}\n")).unwrap_err().to_string();
        assert_eq!(
            case("X1,emr,s,remapped,iops,1,1/s,predict,f,s"),
            "scenarios/published.csv:2: value: `1` stands in a prediction; valid: nothing"
        );
        assert_eq!(
            case("X1,emr,s,remapped,iops,1,1/s,fit,,s"),
            "scenarios/published.csv:2: files: `` names nothing that gives the row; \
             valid: a scenario, or s.toml beside this file"
        );
        assert_eq!(
            case("X1,emr,s,remapped,iops,1e-300,1/s,fit,f,s"),
            "scenarios/published.csv:2: value: `1e-300` is no value that a server has; valid: 1e-9 to 1e18, in its unit"
        );
        assert_eq!(
            case(
                "X1,emr,s,remapped,iops,1,1/s,fit,f,s\nX2,emr,s,remapped,iops,1,1/s,fit,f,s\nX1,emr,s,remapped,clat,1,us,fit,f,s"
            ),
            "scenarios/published.csv:4: id: `X1` stands in line 2 too; valid: an id of its own for each row"
        );
        assert_eq!(case("X1,emr,s"), format!("scenarios/published.csv:2: the row has 3 fields; valid: {HEADER}"));
    }
}

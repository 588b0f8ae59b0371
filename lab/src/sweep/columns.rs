//! The columns of a sweep's table: the axes as numbers, and the table as Parquet.

use super::Grid;
use super::results::Results;
use crate::fio::kind::ValueKind;
use crate::fio::{self, options};
use crate::input::Place;
use crate::platform::Unit;
use crate::setting::Setting;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::sync::Arc;

/// Runs of a row group: some hundred thousand rows.
const RUNS_OF_GROUP: usize = 4096;

/// One key of the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AxisColumn {
    /// The key.
    pub(super) key: String,
    numbers: Option<Numbers>,
}

/// How the values of a key are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// As they stand.
    Plain,
    /// With units of this dimension.
    Unit(Unit, &'static str),
    /// As fio writes sizes: 4k is 4096.
    Fio,
}

/// The keys of a sweep. A key whose values are all numbers of one dimension has a column of numbers, in the base unit.
pub(super) fn axes(grid: &Grid) -> Vec<AxisColumn> {
    let kinds = [
        Numbers::Plain,
        Numbers::Unit(Unit::Time, "ns"),
        Numbers::Unit(Unit::ByteRate, "B/s"),
        Numbers::Unit(Unit::Size, "B"),
        Numbers::Unit(Unit::Percent, "%"),
        Numbers::Fio,
    ];
    let column = |key: &String| {
        let listed = grid.definition.points.iter().flatten().filter(|(known, _)| known == key).map(|(_, text)| text);
        let of_grid = grid.definition.grid.iter().filter(|axis| axis.key == *key).flat_map(|axis| &axis.values);
        let values: Vec<&String> = listed.chain(of_grid).collect();
        let is_number = |kind: &Numbers| values.iter().all(|text| kind.read(text).is_some());
        let numbers = kinds.into_iter().find(|kind| (*kind != Numbers::Fio || is_bytes(key)) && is_number(kind));
        AxisColumn { key: key.clone(), numbers }
    };
    grid.keys.iter().map(column).collect()
}

/// True if the key is an option of fio's that is a number of bytes: with others `1m` is a minute, or a million.
fn is_bytes(key: &str) -> bool {
    let option = key.strip_prefix("job.").filter(|name| !name.contains("iops")).and_then(options::find);
    option.is_some_and(|option| {
        matches!(option.kind, ValueKind::Size | ValueKind::Numbers { unit: fio::Unit::Bytes, .. })
    })
}

impl Numbers {
    fn read(self, text: &str) -> Option<f64> {
        let text = text.trim();
        let value = match self {
            Self::Plain => text.parse().ok(),
            Self::Unit(unit, _) => unit.read(&Setting::new(Place::option("axis"), "", text), f64::MIN, f64::MAX).ok(),
            Self::Fio => {
                let factor = |letter: char| {
                    [('k', 1024.0), ('m', 1_048_576.0), ('g', 1_073_741_824.0)]
                        .iter()
                        .find(|(known, _)| *known == letter)
                        .map(|(_, factor)| *factor)
                };
                let last = text.chars().last()?.to_ascii_lowercase();
                match factor(last) {
                    Some(factor) => text[..text.len() - 1].parse::<f64>().ok().map(|value| value * factor),
                    None => text.parse().ok(),
                }
            }
        };
        value.filter(|value: &f64| value.is_finite())
    }
}

impl AxisColumn {
    /// The name of its column of numbers, if that is another than the one with the values as set.
    pub(super) fn number_name(&self) -> Option<String> {
        match self.numbers? {
            Numbers::Plain => None,
            Numbers::Unit(_, unit) => Some(format!("{} [{unit}]", self.key)),
            Numbers::Fio => Some(format!("{} [B]", self.key)),
        }
    }

    /// Its axis in a plot: the key with the unit.
    pub(super) fn label(&self) -> String {
        self.number_name().unwrap_or_else(|| self.key.clone())
    }

    /// Whether its values are numbers.
    pub(super) fn is_numeric(&self) -> bool {
        self.numbers.is_some()
    }

    /// A value as a number in the base unit.
    pub(super) fn number(&self, text: &str) -> Option<f64> {
        self.numbers?.read(text)
    }
}

/// One column while it is filled. None is null.
enum Column {
    Whole(Vec<u64>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<Arc<str>>>),
}

/// The columns by name, with nothing in them.
fn columns(axes: &[AxisColumn]) -> Vec<(String, Column)> {
    let text = || Column::Text(Vec::new());
    let number = || Column::Number(Vec::new());
    let mut all = vec![("run", Column::Whole(Vec::new())), ("point", Column::Whole(Vec::new())), ("scenario", text())];
    all.extend([("platform", text()), ("delivery", text()), ("seed", Column::Whole(Vec::new()))]);
    let mut all: Vec<(String, Column)> = all.into_iter().map(|(name, column)| (name.to_owned(), column)).collect();
    for axis in axes {
        all.push((axis.key.clone(), if axis.numbers == Some(Numbers::Plain) { number() } else { text() }));
        all.extend(axis.number_name().map(|name| (name, number())));
    }
    all.extend(
        [("quantity", text()), ("unit", text()), ("value", number()), ("error", text()), ("steadiness", text())]
            .map(|(n, c)| (n.to_owned(), c)),
    );
    all
}

/// The table as Parquet, with the manifest under the key `campanile`.
pub(super) fn parquet(results: &Results) -> Result<Vec<u8>, ParquetError> {
    let axes = axes(results.grid());
    let fields = columns(&axes).iter().map(|(name, column)| field(name, column)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("sweep").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let verdicts = results.verdicts();
    let seeds = results.grid().definition.seeds.len();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let all: Vec<_> = results.with_setups().enumerate().collect();
    for runs in all.chunks(RUNS_OF_GROUP) {
        let mut filled = columns(&axes);
        for (at, (record, setup)) in runs {
            let shared = |text: &str| Some(Arc::<str>::from(text));
            let axis_values: Vec<(Option<Arc<str>>, Option<f64>)> = axes
                .iter()
                .zip(&setup.values)
                .map(|(axis, value)| {
                    (value.as_deref().and_then(shared), value.as_deref().and_then(|text| axis.number(text)))
                })
                .collect();
            let fixed = [shared(&setup.scenario), setup.platform.as_deref().and_then(shared), shared(&setup.delivery)];
            let mut row = |quantity: Option<(&str, &str, f64)>, error: Option<&str>| {
                let mut cells = filled.iter_mut().map(|(_, column)| column);
                let mut next = || cells.next().expect("a column for each cell");
                next().whole(record.run);
                next().whole(setup.point);
                fixed.iter().for_each(|text| next().text(text.clone()));
                next().whole(setup.seed);
                for (axis, (text, number)) in axes.iter().zip(&axis_values) {
                    match axis.numbers {
                        Some(Numbers::Plain) => next().number(*number),
                        _ => next().text(text.clone()),
                    }
                    if axis.number_name().is_some() {
                        next().number(*number);
                    }
                }
                next().text(quantity.and_then(|(id, ..)| shared(id)));
                next().text(quantity.and_then(|(_, unit, _)| shared(unit)));
                next().number(quantity.map(|(.., value)| value));
                next().text(error.and_then(shared));
                let verdict = verdicts[at / seeds].filter(|_| error.is_none());
                next().text(verdict.and_then(|verdict| shared(verdict.name())));
            };
            record.values.iter().for_each(|(id, unit, value)| row(Some((id, unit, *value)), None));
            if let Some(error) = &record.error {
                row(None, Some(error));
            }
        }
        let mut group = writer.next_row_group()?;
        for (_, column) in filled {
            let mut target = group.next_column()?.ok_or_else(|| ParquetError::General("a column is missing".into()))?;
            column.write(&mut target)?;
            target.close()?;
        }
        group.close()?;
    }
    writer.append_key_value_metadata(KeyValue::new("campanile".to_owned(), results.manifest().text()));
    writer.into_inner()
}

/// A column in the file's schema.
fn field(name: &str, column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, repetition, logical) = match column {
        Column::Whole(_) => (Physical::INT64, Repetition::REQUIRED, Some(LogicalType::integer(64, false))),
        Column::Number(_) => (Physical::DOUBLE, Repetition::OPTIONAL, None),
        Column::Text(_) => (Physical::BYTE_ARRAY, Repetition::OPTIONAL, Some(LogicalType::String)),
    };
    let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    Ok(Arc::new(builder.build()?))
}

impl Column {
    fn whole(&mut self, value: u64) {
        if let Self::Whole(values) = self {
            values.push(value);
        }
    }

    fn number(&mut self, value: Option<f64>) {
        if let Self::Number(values) = self {
            values.push(value);
        }
    }

    fn text(&mut self, value: Option<Arc<str>>) {
        if let Self::Text(values) = self {
            values.push(value);
        }
    }

    fn write(self, target: &mut parquet::file::writer::SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Whole(values) => {
                // The bits of an unsigned number, as the format has them.
                let values: Vec<i64> = values.into_iter().map(u64::cast_signed).collect();
                target.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
            Self::Number(values) => {
                let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                let values: Vec<f64> = values.into_iter().flatten().collect();
                target.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
            Self::Text(values) => {
                let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                let values: Vec<ByteArray> = values.into_iter().flatten().map(|text| ByteArray::from(&*text)).collect();
                target.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
            }
        }
        Ok(())
    }
}

//! Units of rows: each row's value is compared in the unit of its quantity's figures, and others are converted to it.

/// What a unit measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    Rate,
    Bytes,
    Time,
    Share,
    Number,
}

/// Units, what they measure, and how many of the measure's first unit they are.
const UNITS: [(&str, Measure, f64); 34] = [
    ("1/s", Measure::Rate, 1.0),
    ("/s", Measure::Rate, 1.0),
    ("k/s", Measure::Rate, 1e3),
    ("M/s", Measure::Rate, 1e6),
    ("Hz", Measure::Rate, 1.0),
    ("kHz", Measure::Rate, 1e3),
    ("MHz", Measure::Rate, 1e6),
    ("IOPS", Measure::Rate, 1.0),
    ("kIOPS", Measure::Rate, 1e3),
    ("MIOPS", Measure::Rate, 1e6),
    ("pps", Measure::Rate, 1.0),
    ("kpps", Measure::Rate, 1e3),
    ("Mpps", Measure::Rate, 1e6),
    ("B/s", Measure::Bytes, 1.0),
    ("kB/s", Measure::Bytes, 1e3),
    ("KB/s", Measure::Bytes, 1e3),
    ("MB/s", Measure::Bytes, 1e6),
    ("GB/s", Measure::Bytes, 1e9),
    ("KiB/s", Measure::Bytes, 1024.0),
    ("MiB/s", Measure::Bytes, 1_048_576.0),
    ("GiB/s", Measure::Bytes, 1_073_741_824.0),
    ("ns", Measure::Time, 1.0),
    ("us", Measure::Time, 1e3),
    ("µs", Measure::Time, 1e3),
    ("μs", Measure::Time, 1e3),
    ("usec", Measure::Time, 1e3),
    ("ms", Measure::Time, 1e6),
    ("msec", Measure::Time, 1e6),
    ("s", Measure::Time, 1e9),
    ("sec", Measure::Time, 1e9),
    ("nsec", Measure::Time, 1.0),
    ("%", Measure::Share, 1.0),
    ("percent", Measure::Share, 1.0),
    ("1", Measure::Number, 1.0),
];

/// The times whose figures are not in nanoseconds, as published tables have them.
const TIMES: [(&str, &str, f64); 6] = [
    ("clat", "us", 1e3),
    ("read_clat", "us", 1e3),
    ("write_clat", "us", 1e3),
    ("trim_clat", "us", 1e3),
    ("user_time", "s", 1e9),
    ("system_time", "s", 1e9),
];

/// Quantities whose unit follows from their name.
const RATES: [&str; 9] = [
    "iops",
    "iops_per_drive",
    "read_iops",
    "write_iops",
    "trim_iops",
    "msi",
    "msi_per_vector",
    "interrupts",
    "notifications",
];
/// See [`RATES`].
const BYTES: [&str; 4] = ["bandwidth", "read_bandwidth", "write_bandwidth", "trim_bandwidth"];

/// How a row's value becomes one of its quantity's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Conversion {
    /// The unit of the figures.
    pub unit: &'static str,
    /// The value times this is in it.
    pub factor: f64,
}

/// The conversion of a quantity's value from a unit. `is_change`: the row states a change in per cent.
///
/// # Errors
/// The unit is unknown, or another measure's; the text lists those that are valid.
pub(super) fn conversion(quantity: &str, unit: &str, is_change: bool) -> Result<Conversion, String> {
    let of_name = measure(quantity, is_change);
    // Case does not count among rates: a k is a thousand, and an M a million.
    let is_meant = |(name, measure, _): &&(&str, Measure, f64)| {
        *name == unit || *measure == Measure::Rate && name.eq_ignore_ascii_case(unit)
    };
    let found = UNITS.iter().find(is_meant).filter(|(_, measure, _)| of_name.is_none_or(|of_name| of_name == *measure));
    let Some(&(_, measure, in_first)) = found else {
        let is_valid = |(_, measure, _): &&(&str, Measure, f64)| of_name.is_none_or(|of_name| of_name == *measure);
        let valid: Vec<&str> = UNITS.iter().filter(is_valid).map(|(name, ..)| *name).collect();
        return Err(valid.join(", "));
    };
    let (unit, of_figures) = match measure {
        Measure::Rate => ("1/s", 1.0),
        Measure::Bytes => ("B/s", 1.0),
        Measure::Share => ("%", 1.0),
        Measure::Number => ("1", 1.0),
        Measure::Time => {
            TIMES.iter().find(|(name, ..)| *name == quantity).map_or(("ns", 1.0), |&(_, unit, ns)| (unit, ns))
        }
    };
    Ok(Conversion { unit, factor: in_first / of_figures })
}

/// What a quantity measures, where its name tells.
fn measure(quantity: &str, is_change: bool) -> Option<Measure> {
    let is_time = |quantity: &str| {
        TIMES.iter().any(|(name, ..)| *name == quantity)
            || ["clat_", "slat", "read_clat", "write_clat", "trim_clat", "flush_clat"]
                .iter()
                .any(|start| quantity.starts_with(start))
    };
    match () {
        () if is_change => Some(Measure::Share),
        () if RATES.contains(&quantity) => Some(Measure::Rate),
        () if BYTES.contains(&quantity) => Some(Measure::Bytes),
        () if is_time(quantity) => Some(Measure::Time),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Unit, samples};

    #[test]
    fn known_units_are_converted_and_others_are_refused() {
        for (quantity, unit, to, factor) in [
            ("iops", "kIOPS", "1/s", 1e3),
            ("iops", "KIOPS", "1/s", 1e3),
            ("msi", "1/s", "1/s", 1.0),
            ("clat", "ns", "us", 1e-3),
            ("clat", "µs", "us", 1.0),
            ("clat", "ms", "us", 1e3),
            ("clat_p99", "us", "ns", 1e3),
            ("slat", "us", "ns", 1e3),
            ("user_time", "s", "s", 1.0),
            ("system_time", "ms", "s", 1e-3),
            ("bandwidth", "GiB/s", "B/s", 1_073_741_824.0),
            ("loss", "%", "%", 1.0),
            ("latency", "us", "ns", 1e3),
        ] {
            let found = conversion(quantity, unit, false).unwrap();
            assert!(found.unit == to && (found.factor / factor - 1.0).abs() < 1e-12, "{quantity} {unit}: {found:?}");
        }
        for (quantity, unit, is_change) in
            [("iops", "us", false), ("clat", "furlong", false), ("clat", "", false), ("iops", "1/s", true)]
        {
            let valid = conversion(quantity, unit, is_change).unwrap_err();
            assert!(
                valid.contains(if is_change { "%" } else { "s" }) && !valid.is_empty(),
                "{quantity} {unit}: {valid}"
            );
        }
        assert!(conversion("clat", "kIOPS", false).unwrap_err().starts_with("ns, us, "));
    }

    /// The names here are those of the figures.
    #[test]
    fn the_units_are_those_of_the_figures() {
        let outcome = samples::outcome("remapped", 1, 1.0);
        let measured = outcome.section.measured();
        let published: Vec<&str> = measured.published().iter().map(|one| one.name).collect();
        for quantity in measured.quantities() {
            let of_name = measure(quantity.id, false);
            let of_figure = match quantity.unit {
                Unit::PerSecond => Measure::Rate,
                Unit::BytesPerSecond => Measure::Bytes,
                Unit::Percent => Measure::Share,
                Unit::Ratio => Measure::Number,
                Unit::Nanoseconds => Measure::Time,
            };
            assert!(of_name.is_none_or(|of_name| of_name == of_figure), "{}: {of_name:?}", quantity.id);
            let is_told = TIMES.iter().any(|(name, ..)| *name == quantity.id);
            assert_eq!(is_told, of_figure == Measure::Time && published.contains(&quantity.id), "{}", quantity.id);
        }
        for row in crate::published::rows().unwrap() {
            let found = conversion(&row.quantity, &row.unit, row.against.is_some());
            assert_eq!(found, Ok(Conversion { unit: found.as_ref().unwrap().unit, factor: 1.0 }), "{}", row.id);
            assert_eq!(found.unwrap().unit, row.unit, "{}", row.id);
        }
    }
}

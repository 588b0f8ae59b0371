//! Values with parts: by direction, ranges, splits, zones.

use crate::fio::Entry;
use crate::input::InputError;
use crate::setting::Setting;

/// A part of an entry's value as an entry of its own, for the readers of values and their errors.
pub(super) fn part(entry: &Entry, text: &str) -> Entry {
    Entry { setting: Setting { text: text.trim().to_owned(), ..entry.setting.clone() }, bare: false }
}

/// The parts of a value between commas: for reads, writes and trims.
pub(super) struct Parts<'a> {
    entry: &'a Entry,
    texts: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(entry: &'a Entry) -> Self {
        Self { entry, texts: entry.setting.text.split(',').map(str::trim).collect() }
    }

    /// Each part as a value; an empty one is left as it was.
    pub(super) fn whole<T>(
        &self,
        read: impl Fn(&Entry) -> Result<T, InputError>,
    ) -> Result<Vec<Option<T>>, InputError> {
        if self.texts.len() > 3 || self.texts.iter().all(|text| text.is_empty()) {
            return Err(self
                .entry
                .wrong("has no value, or more than three", "one value, or three: reads, writes, trims"));
        }
        let one = |text: &&str| match *text {
            "" => Ok(None),
            text => read(&part(self.entry, text)).map(Some),
        };
        self.texts.iter().map(one).collect()
    }
}

/// Sets the value of each direction: one value is for all, and of two the second is for writes and trims.
pub(super) fn spread<T: Clone>(parts: &[Option<T>], mut set: impl FnMut(usize, T)) {
    for direction in 0..3 {
        let part = parts.get(direction).or(parts.last()).cloned().flatten();
        if let Some(value) = part {
            set(direction, value);
        }
    }
}

/// `4k-8k`, or one value.
pub(super) fn range<T: PartialOrd + Copy>(
    entry: &Entry,
    read: impl Fn(&Entry) -> Result<T, InputError>,
) -> Result<(T, T), InputError> {
    let text = entry.setting.text.as_str();
    let Some((least, most)) = text.split_once(['-', ':']) else {
        let value = read(entry)?;
        return Ok((value, value));
    };
    let (least, most) = (read(&part(entry, least))?, read(&part(entry, most))?);
    // fio swaps the ends of a range that is the wrong way round.
    Ok(if least <= most { (least, most) } else { (most, least) })
}

/// `4k/60:8k/40`: values with their share in per cent. Those without one have the rest evenly.
pub(super) fn split(
    entry: &Entry,
    read: impl Fn(&Entry) -> Result<u64, InputError>,
) -> Result<Vec<(u64, u8)>, InputError> {
    let parts: Vec<(&str, &str)> =
        entry.setting.text.split(':').map(|item| item.split_once('/').unwrap_or((item, ""))).collect();
    let shares = shares(entry, &parts.iter().map(|(_, share)| *share).collect::<Vec<_>>())?;
    let values = parts.iter().map(|(value, _)| read(&part(entry, value)));
    values.zip(shares).map(|(value, share)| Ok((value?, share))).collect()
}

/// `60/10:40/90`: shares of the accesses in per cent, and the sizes of their zones.
pub(super) fn zones(
    entry: &Entry,
    read: impl Fn(&Entry) -> Result<u64, InputError>,
) -> Result<Vec<(u8, u64)>, InputError> {
    let parts: Vec<(&str, &str)> =
        entry.setting.text.split(':').map(|item| item.split_once('/').unwrap_or((item, ""))).collect();
    let shares = shares(entry, &parts.iter().map(|(share, _)| *share).collect::<Vec<_>>())?;
    let size = |(_, size): &(&str, &str)| match size.trim() {
        "" => Ok(None),
        size => read(&part(entry, size)).map(Some),
    };
    let sizes: Vec<Option<u64>> = parts.iter().map(size).collect::<Result<_, _>>()?;
    // A zone without a size has its part of what the others leave, in per cent.
    let given = sizes.iter().flatten().fold(0u64, |sum, size| sum.saturating_add(*size));
    let missing = sizes.iter().filter(|size| size.is_none()).count() as u64;
    let each = 100u64.saturating_sub(given).checked_div(missing).unwrap_or(0);
    Ok(shares.into_iter().zip(sizes.into_iter().map(|size| size.unwrap_or(each))).collect())
}

/// Shares in per cent; empty texts have the rest evenly.
fn shares(entry: &Entry, texts: &[&str]) -> Result<Vec<u8>, InputError> {
    let valid = "sizes with shares of 100 per cent together: 4k/60:8k/40";
    let read = |text: &&str| match text.trim() {
        "" => Ok(None),
        text => part(entry, text).number(0..=100, 1024).map(|share| Some(share as u32)),
    };
    let shares: Vec<Option<u32>> = texts.iter().map(read).collect::<Result<_, _>>()?;
    let given: u32 = shares.iter().flatten().sum();
    let missing = shares.iter().filter(|share| share.is_none()).count() as u32;
    if given > 100 || (missing == 0 && given != 100) {
        return Err(entry.wrong("has shares that do not add up to 100", valid));
    }
    let each = (100 - given).checked_div(missing).unwrap_or(0);
    Ok(shares.into_iter().map(|share| share.unwrap_or(each) as u8).collect())
}

/// The centre of a distribution as a fraction of the file; -1: none.
pub(super) fn centre(entry: &Entry, value: f64) -> Result<Option<f64>, InputError> {
    match value {
        -1.0 => Ok(None),
        value if (0.0..=1.0).contains(&value) => Ok(Some(value)),
        _ => Err(entry.wrong("has a centre out of bounds", "0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Place;

    fn entry(text: &str) -> Entry {
        Entry { setting: Setting::new(Place::file("j.fio"), "bs", text), bare: false }
    }

    fn number(entry: &Entry) -> Result<u64, InputError> {
        entry.number(0..=1 << 40, 1024)
    }

    #[test]
    fn values_by_direction_are_spread_as_fio_does() {
        let of = |text: &str| {
            let mut values = [0; 3];
            let entry = entry(text);
            spread(&Parts::of(&entry).whole(number).unwrap(), |direction, value| values[direction] = value);
            values
        };
        assert_eq!(of("4k"), [4096; 3]);
        assert_eq!(of("4k,8k"), [4096, 8192, 8192]);
        assert_eq!(of("4k,8k,16k"), [4096, 8192, 16384]);
        assert_eq!(of("4k,"), [4096, 0, 0]);
        assert_eq!(of(",8k"), [0, 8192, 8192]);
        assert!(Parts::of(&entry("1,2,3,4")).whole(number).is_err());
    }

    #[test]
    fn splits_fill_what_is_left_out() {
        assert_eq!(split(&entry("4k/60:8k/40"), number).unwrap(), [(4096, 60), (8192, 40)]);
        assert_eq!(split(&entry("4k/50:8k:16k"), number).unwrap(), [(4096, 50), (8192, 25), (16384, 25)]);
        assert_eq!(split(&entry("4k/50:8k/:16k/"), number).unwrap(), [(4096, 50), (8192, 25), (16384, 25)]);
        assert!(split(&entry("4k/60:8k/60"), number).is_err());
        assert_eq!(range(&entry("8k-4k"), number).unwrap(), (4096, 8192));
        assert_eq!(zones(&entry("60/10:40/90"), number).unwrap(), [(60, 10), (40, 90)]);
        assert_eq!(zones(&entry("50/5:30/15:20/"), number).unwrap(), [(50, 5), (30, 15), (20, 80)]);
        assert!(zones(&entry("60/10"), number).is_err());
    }
}

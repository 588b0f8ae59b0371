//! Values with parts: by direction, ranges, splits, zones.

use crate::fio::Entry;
use crate::fio::lines::is_blank;
use crate::input::InputError;
use crate::kinds::storage::load::Sizes;
use crate::setting::Setting;

/// A part of an entry's value as an entry of its own, for the readers of values and their errors.
pub(super) fn part(entry: &Entry, text: &str) -> Entry {
    Entry { setting: Setting { text: text.trim_matches(is_blank).to_owned(), ..entry.setting.clone() }, bare: false }
}

/// The parts of a value: for reads, writes and trims.
pub(super) struct Parts<'a> {
    entry: &'a Entry,
    texts: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    /// The parts between commas.
    pub(super) fn of(entry: &'a Entry) -> Self {
        Self { entry, texts: entry.setting.text.split(',').map(|text| text.trim_matches(is_blank)).collect() }
    }

    /// The parts of a list of numbers, which fio also divides at a `:` or a `-` once no comma follows.
    pub(super) fn of_numbers(entry: &'a Entry) -> Self {
        let mut rest = entry.setting.text.as_str();
        let mut texts = Vec::new();
        // A sum in parentheses, and a sign, are of the number.
        let end_of = |text: &str| match text.starts_with('(') {
            true => None,
            false => text.find(',').or_else(|| text.find(':')).or_else(|| text.find('-').filter(|&end| end > 0)),
        };
        while let Some(end) = end_of(rest) {
            texts.push(rest[..end].trim_matches(is_blank));
            rest = &rest[end + 1..];
        }
        texts.push(rest.trim_matches(is_blank));
        Self { entry, texts }
    }

    /// Each part as a value, up to three. An empty one, or a bad one beside a good one, is left as it was.
    pub(super) fn whole<T>(
        &self,
        read: impl Fn(&Entry) -> Result<T, InputError>,
    ) -> Result<Vec<Option<T>>, InputError> {
        if self.texts.iter().all(|text| text.is_empty()) {
            return Err(self.entry.wrong("has no value", "one value, or three: reads, writes, trims"));
        }
        let one = |text: &&str| match *text {
            "" => Ok(None),
            text => read(&part(self.entry, text)).map(Some),
        };
        let parts: Vec<Result<Option<T>, InputError>> = self.texts.iter().take(3).map(one).collect();
        // A number is out of this program's bounds, or of fio's: neither is left out in silence.
        if let Some(at) = parts.iter().zip(&self.texts).position(|(part, text)| part.is_err() && is_number(text)) {
            return parts.into_iter().nth(at).into_iter().collect();
        }
        let text = &self.entry.setting.text;
        if text.contains('(') && text.contains([',', ':']) {
            let valid = "one sum for all directions, or numbers for each";
            return Err(self.entry.wrong("has a sum in parentheses beside other parts", valid));
        }
        if parts.iter().any(|part| matches!(part, Ok(Some(_)))) {
            return Ok(parts.into_iter().map(|part| part.ok().flatten()).collect());
        }
        parts.into_iter().collect()
    }
}

/// True for digits with a unit or without.
fn is_number(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
    let is_unit = |unit: &str| matches!(unit, "" | "k" | "m" | "g" | "t" | "p");
    unit.len() < text.len()
        && (is_unit(&unit)
            || unit == "b"
            || is_unit(unit.trim_end_matches("ib"))
            || is_unit(unit.trim_end_matches('b')))
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

/// The sizes of a split. fio looks the smallest share up first; what the shares leave of 100 per cent has the largest,
/// and what they have beyond it is never drawn.
pub(super) fn split_sizes(split: &[(u64, u32)]) -> Sizes {
    let mut split: Vec<(u64, u8)> = split.iter().map(|&(bytes, share)| (bytes, share.min(100) as u8)).collect();
    split.sort_by_key(|(_, share)| *share);
    let mut left = 100;
    for (_, share) in &mut split {
        *share = left.min(*share);
        left -= *share;
    }
    if let Some((_, largest)) = split.last_mut() {
        *largest += left;
    }
    let bytes = || split.iter().map(|(bytes, _)| *bytes);
    let min = bytes().min().unwrap_or(4096);
    Sizes { min, max: bytes().max().unwrap_or(4096), align: min, split }
}

/// `60/10:40/90`: shares of the accesses in per cent, and the sizes of their zones. Zones without a size share what the
/// others leave of `whole`; without a whole they are one block.
pub(super) fn zones(
    entry: &Entry,
    whole: Option<u64>,
    read: impl Fn(&Entry) -> Result<u64, InputError>,
) -> Result<Vec<(u8, u64)>, InputError> {
    let parts: Vec<(&str, &str)> =
        entry.setting.text.split(':').map(|item| item.split_once('/').unwrap_or((item, ""))).collect();
    let shares = shares(entry, &parts.iter().map(|(share, _)| *share).collect::<Vec<_>>())?;
    let size = |(_, size): &(&str, &str)| match size.trim_matches(is_blank) {
        "" => Ok(None),
        size => read(&part(entry, size)).map(Some),
    };
    let sizes: Vec<Option<u64>> = parts.iter().map(size).collect::<Result<_, _>>()?;
    let given = sizes.iter().flatten().fold(0u64, |sum, size| sum.saturating_add(*size));
    let missing = sizes.iter().filter(|size| size.is_none()).count() as u64;
    let each = whole.and_then(|whole| whole.saturating_sub(given).checked_div(missing)).unwrap_or(0);
    Ok(shares.into_iter().zip(sizes.into_iter().map(|size| size.unwrap_or(each))).collect())
}

/// Shares in per cent; empty texts have the rest evenly.
fn shares(entry: &Entry, texts: &[&str]) -> Result<Vec<u8>, InputError> {
    let valid = "sizes with shares of 100 per cent together: 4k/60:8k/40";
    let read = |text: &&str| match text.trim_matches(is_blank) {
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
            spread(&Parts::of_numbers(&entry).whole(number).unwrap(), |direction, value| values[direction] = value);
            values
        };
        assert_eq!(of("4k"), [4096; 3]);
        assert_eq!(of("4k,8k"), [4096, 8192, 8192]);
        assert_eq!(of("4k,8k,16k"), [4096, 8192, 16384]);
        assert_eq!(of("4k,"), [4096, 0, 0]);
        assert_eq!(of(",8k"), [0, 8192, 8192]);
        // fio 3.33 writes I/Os of 8 KiB with `bs=4k:8k`.
        assert_eq!((of("4k:8k"), of("4k-8k:16k")), ([4096, 8192, 8192], [4096, 16384, 16384]));
        assert_eq!((of("4k,x"), of("x,8k"), of("1,2,3,4")), ([4096, 0, 0], [0, 8192, 8192], [1, 2, 3]));
        assert!(Parts::of_numbers(&entry("x,y")).whole(number).is_err());
    }

    #[test]
    fn splits_fill_what_is_left_out() {
        let shares = |split: &[(u64, u32)]| split_sizes(split).split;
        assert_eq!(shares(&[(4, 60), (8, 40)]), [(8, 40), (4, 60)]);
        assert_eq!(shares(&[(4, 33), (8, 33), (16, 33)]), [(4, 33), (8, 33), (16, 34)]);
        assert_eq!(shares(&[(4, 50), (8, 60)]), [(4, 50), (8, 50)]);
        assert_eq!(shares(&[(4, 50)]), [(4, 100)]);
        assert_eq!(split_sizes(&[(4, 90), (8, 70), (16, 0)]).mean(), (4 * 30 + 8 * 70) / 100);
        assert_eq!(range(&entry("8k-4k"), number).unwrap(), (4096, 8192));
        assert_eq!(zones(&entry("60/10:40/90"), Some(100), number).unwrap(), [(60, 10), (40, 90)]);
        assert_eq!(zones(&entry("50/5:30/15:20/"), Some(100), number).unwrap(), [(50, 5), (30, 15), (20, 80)]);
        assert_eq!(zones(&entry("60/8k:40"), None, number).unwrap(), [(60, 8192), (40, 0)]);
        assert!(zones(&entry("60/10"), Some(100), number).is_err());
    }
}

//! Values of NVMe's interrupt coalescing (Base 5.27.1.6): time in steps of 100 µs up to 255, a threshold of 1 to 256 entries.

use crate::draw::Draw;
use crate::trials::same;
use drivers::nvme::{Coalescing, CoalescingThreshold, CoalescingTime, FeatureValueError};
use irq::moderation::Setting;

pub(super) fn coalescing(draw: &mut Draw) -> Result<(), String> {
    let steps = draw.below(260) as u32;
    let us = 100 * steps + if draw.percent(30) { draw.within(1..=99) as u32 } else { 0 };
    let time = CoalescingTime::from_us(us);
    let valid = us <= 25_500 && us.is_multiple_of(100);
    let expected = if valid { Ok(us) } else { Err(FeatureValueError::TimeUs(us)) };
    same("time", &expected, &time.map(CoalescingTime::us))?;
    same("steps", &(steps as u8), &((CoalescingTime::steps(steps as u8).us() / 100) as u8))?;
    let entries = draw.below(260) as u16;
    let threshold = CoalescingThreshold::entries(entries);
    let expected = if (1..=256).contains(&entries) { Ok(entries) } else { Err(FeatureValueError::Entries(entries)) };
    same("threshold", &expected, &threshold.map(CoalescingThreshold::get))?;
    for error in [time.err(), threshold.err()].into_iter().flatten() {
        let number = match error {
            FeatureValueError::TimeUs(us) => us.to_string(),
            FeatureValueError::Entries(entries) => entries.to_string(),
        };
        if !error.to_string().contains(&number) {
            return Err(format!("{error:?} says only \"{error}\""));
        }
    }
    if let (Ok(time), Ok(threshold)) = (time, threshold) {
        let both = Coalescing { time, threshold };
        let on = us > 0 && entries > 1;
        same("on", &on, &both.is_on())?;
        let text = if on { format!("{entries} entries or {us} µs") } else { "off".into() };
        same("text", &text, &both.to_string())?;
        same("level", &Setting::new(us, entries.into()), &both.setting())?;
    }
    nearest(draw)
}

/// The nearest value that is not below what is wanted.
fn nearest(draw: &mut Draw) -> Result<(), String> {
    let delay_us = if draw.percent(10) { u32::MAX } else { draw.below(26_000) as u32 };
    let completions = if draw.percent(10) { u32::MAX } else { draw.below(300) as u32 };
    let (delay_us, completions) = match draw.below(6) {
        0 => (0, completions),
        1 => (delay_us, draw.below(2) as u32),
        2 => (100 * draw.within(1..=255) as u32, draw.within(2..=256) as u32),
        _ => (delay_us, completions),
    };
    let found = Coalescing::nearest(Setting::new(delay_us, completions));
    let found = found.map(|it| (it.time.us(), u32::from(it.threshold.get()))).ok();
    let us = u64::from(delay_us).div_ceil(100) * 100;
    let expected = match completions {
        _ if delay_us == 0 => Some((0, 1)),
        0 | 1 => Some((0, 1)),
        2..=256 if us <= 25_500 => Some((us as u32, completions)),
        _ => None,
    };
    same(&format!("nearest of {delay_us} µs, {completions}"), &expected, &found)
}

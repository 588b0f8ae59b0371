//! Tables of levels: each goes further than the one below it in one respect, and falls back in none.

use crate::draw::Draw;
use crate::trials::same;
use irq::moderation::{AdaptiveConfig, Algorithm, LevelError, LevelTable, Setting};

/// A table that is valid.
pub(super) fn draw_table(draw: &mut Draw) -> Vec<Setting> {
    match draw.below(4) {
        0 => LevelTable::RDMA_DIM.to_vec(),
        1 => LevelTable::NET_DIM_RX.to_vec(),
        _ => {
            let (mut delay_us, mut completions) = (draw.below(4) as u32, draw.within(1..=4) as u32);
            let mut table = Vec::new();
            for _ in 0..draw.within(1..=10) {
                table.push(Setting::new(delay_us, completions));
                let which = draw.below(3);
                delay_us += if which == 1 { 0 } else { draw.within(1..=64) as u32 };
                completions += if which == 2 { 0 } else { draw.within(1..=64) as u32 };
            }
            table
        }
    }
}

pub(super) fn levels(draw: &mut Draw) -> Result<(), String> {
    let mut table = draw_table(draw);
    let index = draw.below(table.len() as u64) as usize;
    let expected = match draw.below(6) {
        0 => {
            table.clear();
            Err(LevelError::Empty)
        }
        1 => {
            let levels = draw.within(LevelTable::LEVELS_MAX as u64 - 1..=LevelTable::LEVELS_MAX as u64 + 2) as u32;
            table = (0..levels).map(|level| Setting::new(level, 1)).collect();
            if levels <= 64 { Ok(()) } else { Err(LevelError::TooMany(levels as usize)) }
        }
        2 if index > 0 => {
            // The same again; or further in one respect and back in the other.
            let below = table[index - 1];
            let Setting { delay_us, completions } = below;
            let forms = [
                below,
                Setting::new(delay_us + 1, completions.wrapping_sub(1)),
                Setting::new(delay_us.wrapping_sub(1), completions + 1),
            ];
            let level = *draw.pick(&forms);
            let wraps = level.delay_us == u32::MAX || level.completions == u32::MAX;
            table[index] = level;
            if wraps {
                return Ok(());
            }
            Err(LevelError::Unsorted { index, level, below })
        }
        _ => Ok(()),
    };
    let built = LevelTable::new(table.clone());
    if let Err(error) = &built {
        let text = error.to_string();
        let named = match *error {
            LevelError::Empty => text.contains("empty"),
            LevelError::TooMany(count) => text.contains(&count.to_string()),
            LevelError::Unsorted { index, level, .. } => {
                text.contains(&format!("level {index}")) && text.contains(&level.to_string())
            }
            LevelError::Events => true,
        };
        if !named {
            return Err(format!("{error:?} says only {text:?}"));
        }
    }
    same(&format!("table {table:?}"), &expected, &built.as_ref().map(|_| ()).map_err(|&error| error))?;
    let Ok(built) = built else { return Ok(()) };
    let settings: Vec<_> = (0..=built.last()).map(|level| built.setting(level)).collect();
    same("settings", &table, &settings)?;
    let none = Algorithm::ALL.iter().find(|algorithm| algorithm.build(built.clone(), 0).is_ok());
    same("a sample of no events", &None, &none)?;
    let texts = (table[0].to_string(), format!("{} µs or {}", table[0].delay_us, table[0].completions));
    same("a setting's text", &texts.1, &texts.0)?;
    same("events of a sample", &64, &AdaptiveConfig::default().nr_events)
}

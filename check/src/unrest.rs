//! Chooses the kinds of unrest that disturb a history's schedule, and their strength.

use crate::draw::Draw;
use crate::history::Recipe;
use machine::time::Ps;
use machine::unrest::{Chance, Kind, Unrest};

/// Histories in a hundred without unrest: a failure that needs no unrest is then found without it.
const CALM_PERCENT: u64 = 15;
/// The chance, in a hundred, that one kind disturbs any other history.
const KIND_PERCENT: u64 = 60;

/// The names of the kinds, for `--without`.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    Kind::ALL.iter().map(|kind| kind.name())
}

/// The unrest of a history, up to `until`, and the names of its kinds. None: a calm one.
pub(crate) fn draw(recipe: &Recipe, until: Ps) -> (Option<Unrest>, Vec<&'static str>) {
    let seed = recipe.seed_of("unrest");
    let calm = Draw::new(seed, "calm", 0).percent(CALM_PERCENT);
    let wanted = |kind: &Kind| {
        let drawn = Draw::new(seed, kind.name(), 0).percent(KIND_PERCENT);
        !calm && drawn && !recipe.without.contains(kind.name())
    };
    let names: Vec<_> = Kind::ALL.iter().filter(|kind| wanted(kind)).map(|kind| kind.name()).collect();
    if names.is_empty() {
        return (None, names);
    }
    let mut unrest = Unrest { until, ..Unrest::new(seed) };
    for kind in Kind::ALL {
        let chance = if wanted(&kind) { scaled(seed, kind, &unrest) } else { Chance::default() };
        unrest = unrest.with(kind, chance);
    }
    (Some(unrest), names)
}

/// A kind's usual chance, from an eighth to twice.
fn scaled(seed: u64, kind: Kind, unrest: &Unrest) -> Chance {
    let usual = unrest.chances[kind as usize];
    let eighths = Draw::new(seed, kind.name(), 1).within(1..=16) as u32;
    Chance { per_mille: (usual.per_mille * eighths / 8).clamp(1, 1000), ..usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_switched_off_leaves_the_others() {
        let seed = (1..).find(|&seed| draw(&Recipe::of(seed), Ps::MAX).1.len() > 3).expect("some are restless");
        let (all, names) = draw(&Recipe::of(seed), Ps::MAX);
        let without = Recipe { without: [names[1].into()].into(), ..Recipe::of(seed) };
        let (less, fewer) = draw(&without, Ps::MAX);
        assert_eq!(fewer.len(), names.len() - 1);
        let (all, less) = (all.expect("restless"), less.expect("restless"));
        let different = all.chances.iter().zip(&less.chances).filter(|(one, other)| one != other).count();
        assert_eq!(different, 1);
    }
}

//! Sweeps: one experiment in many settings, on one machine or on many.
//!
//! A [`Definition`] (`read.rs`) is a file that names scenarios, platforms, settings, deliveries and seeds. Its [`Grid`]
//! (`grid.rs`) numbers every run. A [`Store`](store::Store) (`store.rs`) keeps finished runs in a file, a line each, so that
//! a sweep goes on where it was stopped. `run.rs` carries out the runs of a shard, `parts.rs` takes those that others carried out, `results.rs` writes them as CSV,
//! `columns.rs` as Parquet and `page.rs` as a page.

mod columns;
mod grid;
mod page;
mod parts;
mod read;
mod results;
mod run;
pub mod store;

pub use grid::{Grid, RUNS_MAX, Setup};
pub use parts::Parts;
pub use read::{Axis, Definition};
pub use results::{Results, Written};
pub use run::{Done, carry_out, carry_out_runs, impossible};
pub use store::{Record, Shard};

use crate::input::InputError;
use crate::inputs::{self, Given, Read, sha256};
use crate::manifest::Manifest;

/// A sweep whose inputs have been read: ready to run.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Every run.
    pub grid: Grid,
    /// What makes its results again.
    pub manifest: Manifest,
    /// The contents of its inputs. All points see the same, even if a file changes meanwhile.
    pub given: Given,
}

impl Sweep {
    /// Reads a sweep, its scenarios and its platforms.
    ///
    /// # Errors
    /// The file is wrong, the sweep is too large, or a scenario does not run in its first setting.
    pub fn read(path: &str, arguments: &[String], given: Given) -> Result<Self, InputError> {
        let (grid, read) = inputs::noted(given, || {
            let definition = Definition::read(path)?;
            definition.variables().into_iter().for_each(|name| _ = inputs::variable(&name));
            Grid::new(definition)
        });
        let (grid, read): (Grid, Read) = (grid?, read);
        let manifest = Manifest::new(arguments, &read)
            .with("scenarios", grid.definition.scenarios.clone())
            .with("platforms", grid.definition.platforms.iter().flatten().cloned().collect::<Vec<_>>())
            .with("deliveries", grid.deliveries())
            .with("seeds", grid.definition.seeds.len())
            .with("runs", grid.runs());
        Ok(Self { grid, manifest, given: read.given() })
    }

    /// What tells this sweep from others: the hash of its program and its inputs, without their paths. Shards with the
    /// same identity can be merged.
    pub fn identity(&self) -> String {
        let Manifest { version, commit, inputs, variables, .. } = &self.manifest;
        let mut hashes: Vec<&str> = inputs.iter().map(|input| input.sha256.as_str()).collect();
        hashes.sort_unstable();
        sha256(format!("{version} {commit:?} {hashes:?} {variables:?}").as_bytes())
    }
}

#[cfg(test)]
mod tests;

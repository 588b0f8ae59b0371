//! A sweep whose runs are carried out elsewhere, in parts of any size, by [`carry_out_runs`](super::carry_out_runs).

use super::run::pending;
use super::store::{Record, Store};
use super::{Results, Shard, Sweep};
use crate::input::{InputError, Place, Problem};
use std::collections::BTreeMap;
use std::path::Path;

/// The sweep, and the runs that are done.
#[derive(Debug)]
pub struct Parts {
    sweep: Sweep,
    store: Store,
    records: BTreeMap<u64, Record>,
}

impl Parts {
    /// Opens the file of finished runs in `folder`, or begins it: the one that a local sweep has.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(sweep: Sweep, folder: &Path) -> Result<Self, InputError> {
        let (store, mut records, _) = Store::open(folder, &sweep, Shard::WHOLE)?;
        records.retain(|&run, _| run < sweep.grid.runs());
        Ok(Self { sweep, store, records })
    }

    /// The sweep.
    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// The runs that are not done; each list shares a plan. They are in no order of cost.
    pub fn pending(&self) -> Vec<Vec<u64>> {
        pending(&self.sweep.grid, Shard::WHOLE, &self.records).into_iter().map(|(_, runs)| runs).collect()
    }

    /// Keeps finished runs.
    ///
    /// # Errors
    /// A line is damaged, or the file cannot be written.
    pub fn keep(&mut self, lines: &str) -> Result<(), InputError> {
        for line in lines.lines() {
            let record = Record::read(line).filter(|record| record.run < self.sweep.grid.runs()).ok_or_else(|| {
                let why = "was sent a damaged run".to_owned();
                InputError::new(&Place::option("sweep"), "", Problem::Syntax(why))
            })?;
            self.store.append(&record)?;
            self.records.insert(record.run, record);
        }
        Ok(())
    }

    /// The results, once all runs are done.
    ///
    /// # Errors
    /// Some are missing.
    pub fn finish(self) -> Result<Results, InputError> {
        Results::new(self.sweep, self.records)
    }
}

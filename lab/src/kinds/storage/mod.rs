//! Jobs on NVMe drives.

pub mod detail;
mod job_text;
mod jobs;
pub(crate) mod keys;
pub mod load;
mod outcome;
mod page;
mod plan;
mod rig;
mod variant;

pub(crate) use job_text::text as verbose_jobs;
pub use keys::{Coalescing, Detail, DrivePlan, RqAffinity, Storage};
pub use outcome::{DRIVE_LINK, DRIVE_MEDIA, Direction, Drive, JobEnd, Stages, StorageOutcome, Turns};
pub use plan::{DEVICE_VECTORS, IoEngine, JobPlan, Pattern, Trims, queue_cpus, topology};
pub use variant::StorageVariant;

use super::{Form, Kind};
use crate::document::Table;
use crate::input::InputError;
use crate::plan::{Load, Plan};
use crate::run::RunError;
use crate::scenario::draft::Draft;
use rig::StorageRig;

impl Kind for Storage {
    type Variant = StorageVariant;
    type Rig = StorageRig;
    type Outcome = StorageOutcome;

    const NAME: &'static str = "storage";
    const FORM: Form = Form {
        work: &["workload", "jobs"],
        work_valid: "workload = \"jobs/four-drives.fio\", or [[jobs]] tables with fio's options",
        tables: &["job", "options", "drives"],
    };

    fn draft(root: &Table<'_, '_>, valid: &str) -> Result<Box<dyn Draft>, InputError> {
        keys::of_scenario(root, valid)
    }

    fn validate(&self, plan: &Plan, variants: &[StorageVariant]) -> Result<(), InputError> {
        plan::validate(self, plan, variants)
    }

    fn rig(&self, plan: &Plan, variant: StorageVariant, seed: u64, traced: bool) -> Result<StorageRig, RunError> {
        StorageRig::new(plan, self, variant, seed, traced)
    }

    fn is_same(&self, other: &Self) -> bool {
        plan::is_same(self, other)
    }

    fn loads(&self) -> Vec<Load<Self>> {
        plan::loads(self)
    }
}

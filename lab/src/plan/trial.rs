//! One variant of a plan, ready to run.

use super::Plan;
use crate::interrupt::StopFlag;
use crate::kinds::Kind;
use crate::run::{self, Run, RunError};

/// A plan's experiment in one of its variants. A run needs only a seed in addition.
pub struct Trial<'p> {
    plan: &'p Plan,
    runner: Box<dyn Runner + 'p>,
}

impl<'p> Trial<'p> {
    /// `experiment` must be the plan's and valid with `variant`.
    pub(super) fn new<K: Kind>(plan: &'p Plan, experiment: &'p K, variant: K::Variant) -> Self {
        Self { plan, runner: Box::new(Typed { experiment, variant }) }
    }

    /// The plan.
    pub fn plan(&self) -> &'p Plan {
        self.plan
    }

    /// The variant's name.
    pub fn name(&self) -> String {
        self.runner.name()
    }

    pub(crate) fn run(&self, seed: u64, traced: bool, stop: &StopFlag) -> Result<Run, RunError> {
        self.runner.run(self.plan, seed, traced, stop)
    }

    pub(crate) fn lines(&self) -> Result<Vec<irq::LineView>, RunError> {
        self.runner.lines(self.plan)
    }
}

/// The operations that [`Trial`] needs of its experiment and variant.
trait Runner: Send + Sync {
    fn name(&self) -> String;
    fn run(&self, plan: &Plan, seed: u64, traced: bool, stop: &StopFlag) -> Result<Run, RunError>;
    fn lines(&self, plan: &Plan) -> Result<Vec<irq::LineView>, RunError>;
}

/// An experiment and one variant, of one kind.
struct Typed<'p, K: Kind> {
    experiment: &'p K,
    variant: K::Variant,
}

impl<K: Kind> Runner for Typed<'_, K> {
    fn name(&self) -> String {
        self.variant.to_string()
    }

    fn run(&self, plan: &Plan, seed: u64, traced: bool, stop: &StopFlag) -> Result<Run, RunError> {
        let rig = self.experiment.rig(plan, self.variant, seed, traced)?;
        let mut run = run::course(rig, plan, traced, stop)?;
        run.outcome.delivery = self.name();
        run.outcome.seed = seed;
        for phase in &mut run.outcome.phases {
            (phase.outcome.delivery, phase.outcome.seed) = (self.name(), seed);
        }
        if let Some(trace) = &mut run.trace {
            trace.delivery = self.name();
        }
        Ok(run)
    }

    fn lines(&self, plan: &Plan) -> Result<Vec<irq::LineView>, RunError> {
        run::lines_of(self.experiment.rig(plan, self.variant, 1, false)?)
    }
}

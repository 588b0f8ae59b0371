//! The workload of a plan: an experiment of some kind with variants of that kind.

use super::{Plan, Trial};
use crate::input::InputError;
use crate::kinds::{Kind, Variant};
use std::any::Any;
use std::fmt;

/// An experiment and the variants of it that are compared.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison<K: Kind> {
    /// The experiment, shared by all variants.
    pub experiment: K,
    /// The compared variants in order, each once; they are the columns of the table.
    pub variants: Vec<K::Variant>,
}

/// A [`Comparison`] of any kind. Its variants are of its experiment's kind by construction.
pub struct Work(Box<dyn AnyComparison>);

/// An experiment with fewer requests in flight than it asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Load<W> {
    /// Most requests that each source keeps in flight.
    pub depth: u32,
    /// Requests that all sources keep in flight together.
    pub in_flight: u64,
    /// The experiment at that depth.
    pub work: W,
}

impl Work {
    /// An experiment in these variants.
    pub fn new<K: Kind>(experiment: K, variants: Vec<K::Variant>) -> Self {
        Self(Box::new(Comparison { experiment, variants }))
    }

    /// The comparison, if it is of the kind `K`.
    pub fn of<K: Kind>(&self) -> Option<&Comparison<K>> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    /// As [`Self::of`], but mutable.
    pub fn of_mut<K: Kind>(&mut self) -> Option<&mut Comparison<K>> {
        let any: &mut dyn Any = &mut *self.0;
        any.downcast_mut()
    }

    /// True if `other` has the same experiment. The files that they come from and the compared variants may differ.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(other)
    }

    /// The names of the variants, in order.
    pub fn names(&self) -> Vec<String> {
        self.0.names()
    }

    /// The same variants under less load, in ascending order. Empty for a kind that is not swept.
    pub fn loads(&self) -> Vec<Load<Self>> {
        self.0.loads()
    }

    pub(super) fn validate(&self, plan: &Plan) -> Result<(), InputError> {
        self.0.validate(plan)
    }

    pub(super) fn trials<'p>(&'p self, plan: &'p Plan) -> Vec<Trial<'p>> {
        self.0.trials(plan)
    }

    /// The trial of one variant; it need not be among the compared ones.
    pub(super) fn trial<'p, V: Variant>(&'p self, plan: &'p Plan, variant: V) -> Result<Trial<'p>, InputError> {
        let Some(comparison) = self.of::<V::Kind>() else {
            let why = format!("is no way to run a {} experiment", self.0.kind());
            return Err(InputError::value(&plan.source, "deliveries", variant, why, "one of its own"));
        };
        comparison.experiment.validate(plan, &[variant])?;
        Ok(Trial::new(plan, &comparison.experiment, variant))
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        self.0.cloned()
    }
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The operations that [`Work`] needs of its comparison.
trait AnyComparison: Any + fmt::Debug + Send + Sync {
    fn kind(&self) -> &'static str;
    fn cloned(&self) -> Work;
    fn is_equal(&self, other: &Work) -> bool;
    fn is_same(&self, other: &Work) -> bool;
    fn names(&self) -> Vec<String>;
    fn loads(&self) -> Vec<Load<Work>>;
    fn validate(&self, plan: &Plan) -> Result<(), InputError>;
    fn trials<'p>(&'p self, plan: &'p Plan) -> Vec<Trial<'p>>;
}

impl<K: Kind> AnyComparison for Comparison<K> {
    fn kind(&self) -> &'static str {
        K::NAME
    }

    fn cloned(&self) -> Work {
        Work(Box::new(self.clone()))
    }

    fn is_equal(&self, other: &Work) -> bool {
        other.of::<K>() == Some(self)
    }

    fn is_same(&self, other: &Work) -> bool {
        other.of::<K>().is_some_and(|other| self.experiment.is_same(&other.experiment))
    }

    fn names(&self) -> Vec<String> {
        self.variants.iter().map(ToString::to_string).collect()
    }

    fn loads(&self) -> Vec<Load<Work>> {
        let erased = |load: Load<K>| Load {
            depth: load.depth,
            in_flight: load.in_flight,
            work: Work::new(load.work, self.variants.clone()),
        };
        self.experiment.loads().into_iter().map(erased).collect()
    }

    fn validate(&self, plan: &Plan) -> Result<(), InputError> {
        self.experiment.validate(plan, &self.variants)
    }

    fn trials<'p>(&'p self, plan: &'p Plan) -> Vec<Trial<'p>> {
        self.variants.iter().map(|&variant| Trial::new(plan, &self.experiment, variant)).collect()
    }
}

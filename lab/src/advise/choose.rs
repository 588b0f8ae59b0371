//! Which steps of which remedies are tried on a server, and why the others are not.

use super::needs::Possible;
use super::remedies::{REMEDIES, Remedy, Step, Subject};
use super::{Question, Refused};
use crate::plan::Plan;
use crate::scenario::Request;

/// A remedy's step with its plan.
pub(super) struct Tried {
    pub remedy: &'static Remedy,
    pub step: Step,
    pub possible: Possible,
    pub plan: Plan,
}

/// What is tried, and what is not.
#[derive(Default)]
pub(super) struct Choice {
    pub tried: Vec<Tried>,
    /// What cannot be switched on here.
    pub refused: Vec<Refused>,
    /// What has no meaning here, or changes nothing.
    pub not_applicable: Vec<Refused>,
}

/// Every step of every remedy that makes a difference and whose plan is valid; the others with their reasons.
pub(super) fn choose(question: &Question, today: &Plan) -> Choice {
    let name = today.work.names().swap_remove(0);
    let subject = Subject { plan: today, today: &name };
    let mut choice = Choice::default();
    let is_asked =
        |remedy: &&'static Remedy| question.among.is_empty() || question.among.iter().any(|id| id == remedy.id);
    for remedy in REMEDIES.iter().filter(is_asked) {
        match (remedy.steps)(&subject) {
            Ok(steps) => steps.into_iter().for_each(|step| choice.add(remedy, step, question, today)),
            Err(why) => choice.not_applicable.push(Refused { name: remedy.id.to_owned(), why }),
        }
    }
    choice
}

impl Choice {
    /// Adds a step of a remedy to what is tried, or to what is not.
    fn add(&mut self, remedy: &'static Remedy, step: Step, question: &Question, today: &Plan) {
        if let Some(why) = step.not_here {
            return self.not_applicable.push(Refused { name: step.name, why });
        }
        let possible = Possible::of(&step.needs, &today.platform, &question.stated);
        if let Possible::No(why) = possible {
            return self.refused.push(Refused { name: step.name, why });
        }
        let delivery = step.delivery.clone().unwrap_or_else(|| today.work.names().swap_remove(0));
        let sets = [question.request.sets.clone(), step.sets.clone()].concat();
        let request = Request { deliveries: Some(vec![delivery]), sets, ..question.request.clone() };
        let plan = match request.plan() {
            Ok(plan) => Plan { spans: today.spans, ..plan },
            Err(error) => return self.refused.push(Refused { name: step.name, why: error.to_string() }),
        };
        let is_same = |other: &Plan| other.work == plan.work && other.options == plan.options;
        let same = self.tried.iter().find(|earlier| is_same(&earlier.plan)).map(|earlier| &earlier.step.name);
        let why = match same {
            _ if is_same(today) => "it is so today".to_owned(),
            Some(same) => format!("it is the same here as {same}"),
            None => return self.tried.push(Tried { remedy, step, possible, plan }),
        };
        self.not_applicable.push(Refused { name: step.name, why });
    }
}

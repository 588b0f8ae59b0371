//! Driver against model, clause by clause (`tests/`), and the whole stack on a small server ([`server`]).

pub use check::server;

use machine::Machine;
use machine::observe::Fact;
use std::sync::{Arc, Mutex};

/// Addresses of memory that a driver has given back while its device used it ([`Fact::GivenBack`]).
#[derive(Clone, Default)]
pub struct GivenBack(Arc<Mutex<Vec<u64>>>);

impl GivenBack {
    /// Watches the whole machine from now on, as its only observer.
    pub fn of(machine: &mut Machine) -> Self {
        let found = Self::default();
        let told = found.clone();
        machine.set_observer(move |_, fact| {
            if let Fact::GivenBack { address, .. } = fact {
                told.0.lock().expect("one host thread").push(address);
            }
        });
        found
    }

    /// All so far.
    pub fn addresses(&self) -> Vec<u64> {
        self.0.lock().expect("one host thread").clone()
    }
}

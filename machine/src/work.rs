//! The machine's description of named work.

use hal::Work;

/// One kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkKind {
    /// Its name in traces.
    pub name: &'static str,
    /// The cost of a unit, in ps.
    pub ps: u64,
    /// It counts as user time, unless an interrupt handler does it. All other work is kernel time.
    pub is_user: bool,
}

/// Every kind of work. A kernel kind has its name from the start; a custom kind gets one when it is registered. A kind
/// that was never set costs nothing and is kernel time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkKinds(Box<[WorkKind; Work::COUNT]>);

impl Default for WorkKinds {
    fn default() -> Self {
        let mut kinds = Self(Box::new([WorkKind { name: "work", ps: 0, is_user: false }; Work::COUNT]));
        for work in Work::kernel() {
            kinds.0[work.index()].name = work.name();
        }
        kinds
    }
}

impl WorkKinds {
    /// Defines a kind.
    pub fn register(&mut self, work: Work, kind: WorkKind) {
        self.0[work.index()] = kind;
    }

    /// Sets the cost of a unit of `work`.
    pub fn set_ps(&mut self, work: Work, ps: u64) {
        self.0[work.index()].ps = ps;
    }

    /// The definition of a kind.
    #[inline]
    pub fn of(&self, work: Work) -> &WorkKind {
        &self.0[work.index()]
    }
}

//! Driver against model, clause by clause (`tests/`), and the whole stack on a small server ([`server`]).

pub use check::server;

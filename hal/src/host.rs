//! A [`crate::Hal`] on the host's own threads and atomics, for tests and benchmarks.

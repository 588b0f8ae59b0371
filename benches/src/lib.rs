//! Benchmarks; see docs/performance.md.

pub mod engine_workload;

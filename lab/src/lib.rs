//! The laboratory: joins machine, drivers and workloads, and reports what it measured.

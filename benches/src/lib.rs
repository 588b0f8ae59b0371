//! Programs whose instructions are counted, one for each figure of `benches/gates.toml`; see docs/performance.md. They
//! run [`lab::bench`], which `campanile bench` times.

//! Programs whose instructions are counted, one a figure of `benches/gates.toml`; see docs/performance.md.
//! What they run is [`lab::bench`], which `campanile bench` times.

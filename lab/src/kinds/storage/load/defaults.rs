//! Loads without any option.

use super::{Amount, DEFAULT_SEED, DIRECTIONS, Distribution, Ends, EndsOthers, Files, Generator, Order, Pace, Service};

impl Default for Order {
    fn default() -> Self {
        Self {
            random_percent: [100; DIRECTIONS],
            distribution: Distribution::Even,
            map: true,
            generator: Generator::Tausworthe,
            skip_bytes: 0,
            offset_every: 1,
            identical: false,
            unaligned: false,
            sizes_by_order: false,
            zones: None,
            seed: DEFAULT_SEED,
            repeats: true,
        }
    }
}

impl Default for Files {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            size: None,
            file_size: None,
            offset: Amount::Bytes(0),
            increment: Amount::Bytes(0),
            offset_align: 0,
            clone: 0,
            service: Service::RoundRobin,
            service_ios: 1,
        }
    }
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            io_size: None,
            number_ios: 0,
            loops: 1,
            time_based: false,
            runtime_ns: None,
            ramp_ns: 0,
            fill: false,
            steady: None,
            exitall: false,
            exits_on_error: false,
            exit_what: EndsOthers::Group,
            latency_ns_max: [0; DIRECTIONS],
            stand_in_ns: None,
            together_ns: None,
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            bytes: [0; DIRECTIONS],
            ios: [0; DIRECTIONS],
            bytes_min: [0; DIRECTIONS],
            ios_min: [0; DIRECTIONS],
            poisson: false,
            cycle_ns: 1_000_000_000,
            ignore_think: false,
            offloads: false,
            kernel_polls: false,
            think_ns: 0,
            think_spin_ns: 0,
            think_blocks: Some(1),
            think_by_issue: false,
            think_every_ns: 0,
            target: None,
            flow: None,
        }
    }
}

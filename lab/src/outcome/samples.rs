//! A small synthetic set of outcomes with round figures, shared by the report tests.

use super::{CpuTime, Engine, Fault, Interrupts, Latency, Outcome, Section, Server, ServerKind, Timeline};
use crate::kinds::storage::{Drive, Stages, StorageOutcome};

/// One second of two drives and two CPUs. `scale` multiplies throughput, so that seeds differ.
pub(crate) fn outcome(delivery: &str, seed: u64, scale: f64) -> Outcome {
    let posted = delivery == "posted";
    let ios = (1_000_000.0 * scale) as u64;
    let cpu =
        |cpu| CpuTime { cpu, user_ns: 200_000_000, system_ns: 300_000_000, irq_ns: 100_000_000, idle_ns: 400_000_000 };
    let server = |kind, busy| Server { kind, index: 0, busy };
    Outcome {
        phases: Vec::new(),
        delivery: delivery.into(),
        seed,
        span_ns: 1_000_000_000,
        interrupts: Interrupts {
            vectors: 4,
            msis: ios,
            notifications: if posted { ios * 3 / 4 } else { 0 },
            empty_notifications: if posted { ios / 100 } else { 0 },
            dispatched: ios,
            handlers: ios,
            empty_handlers: ios / 50,
            reaped_by_interrupt: 2 * ios,
            reaped_by_poll: 0,
            ..Interrupts::default()
        },
        cpus: vec![cpu(0), cpu(1)],
        servers: vec![
            server(ServerKind::RootPort, 0.4),
            server(ServerKind::Remapping, if posted { 0.3 } else { 0.98 }),
            server(ServerKind::Dispatch, 0.6),
        ],
        faults: if posted {
            Vec::new()
        } else {
            vec![Fault {
                kind: "source-id mismatch".into(),
                requester: 0x0318,
                count: 2,
                text: "MSI not delivered: IRTE 7 belongs to 02:00.0".into(),
            }]
        },
        policy: Some(if posted { "2 CPUs, messages posted" } else { "2 CPUs, messages remapped" }.into()),
        interrupt_table: "            CPU0       CPU1\n  33:     500000     500000  IR-PCI-MSI nvme0q1 <&>\n".into(),
        timeline: Timeline {
            bucket_ns: 250_000_000,
            counts: [
                ("ios", vec![ios / 2; 4]),
                ("msis", vec![ios / 4; 4]),
                ("notifications", if posted { vec![ios / 5, ios / 6, ios / 5, ios / 6] } else { vec![0; 4] }),
            ]
            .map(|(name, counts)| (name.into(), counts))
            .into(),
            ..Timeline::default()
        },
        engine: Engine { events: 12_000_000, switches: 8_000_000, host_ns: seed * 1_000_003, digest: 0xfeed },
        section: Section::Storage(storage(ios, posted)),
    }
}

fn storage(ios: u64, posted: bool) -> StorageOutcome {
    let drive = |name: &str| Drive {
        name: name.into(),
        ios,
        bytes: ios * 4096,
        errors: 0,
        msis: ios / 2,
        link_busy: 0.4,
        link_held: 0.1,
        media_busy: 0.25,
    };
    let latency = |mean_ns: f64| Latency {
        count: 2 * ios,
        mean_ns,
        min_ns: 1_000,
        max_ns: 900_000,
        percentiles_ns: [mean_ns as u64, 120_000, 250_000, 500_000, 800_000],
    };
    StorageOutcome {
        drives: vec![drive("nvme0"), drive("nvme1")],
        completion_latency: latency(100_000.0),
        directions: Vec::new(),
        submission_latency: latency(1_310.0),
        stages: Stages {
            user_ns: 482.0,
            submit_ns: 1_310.0,
            queue_ns: 2_000.0,
            media_ns: 80_000.0,
            link_ns: 9_000.0,
            post_to_msi_ns: 457.0,
            msi_to_handler_ns: if posted { 900.0 } else { 5_000.0 },
            handler_to_application_ns: 1_751.0,
        },
        ..StorageOutcome::default()
    }
}

/// Three seeds of remapped delivery, then three of posted delivery with 1.5 times its throughput.
pub(crate) fn outcomes() -> Vec<Outcome> {
    let seeds = |delivery: &'static str, scale: f64| {
        [(1, 0.99), (2, 1.0), (3, 1.01)].map(|(seed, noise)| outcome(delivery, seed, scale * noise))
    };
    [seeds("remapped", 1.0), seeds("posted", 1.5)].concat()
}

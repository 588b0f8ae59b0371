//! Results of the network experiment that must emerge from the model.

mod common;

use lab::interrupt::StopFlag;
use lab::kinds::network::NetworkVariant;
use lab::kinds::network::{Apart, Mapping};
use lab::kinds::network::{FlowOutcome, NetworkOutcome};
use lab::outcome::Outcome;
use lab::plan::Plan;
use lab::run;
use std::cell::Cell;

fn plan(settings: &[&str]) -> Plan {
    common::plan("virtio-irqs", settings)
}

fn mmio(irqs: u16) -> NetworkVariant {
    NetworkVariant::mmio(irqs)
}

fn run(plan: &Plan, variant: NetworkVariant) -> Outcome {
    let outcome = run::run_one(&plan.trial(variant).unwrap(), 1, false, &StopFlag::default()).expect("it runs").outcome;
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    outcome
}

fn network(outcome: &Outcome) -> &NetworkOutcome {
    outcome.network().expect("a network experiment")
}

/// Mean over flows.
fn mean(outcome: &Outcome, of: fn(&FlowOutcome) -> u64) -> f64 {
    let flows = &network(outcome).flows;
    flows.iter().map(of).sum::<u64>() as f64 / flows.len() as f64
}

/// One CPU serves eight queues: each flow gets an eighth of its capacity, and packets beyond that are lost.
#[test]
fn a_saturated_cpu_gives_every_flow_its_share_and_the_rest_is_lost() {
    let plan = plan(&["ramp=40ms", "duration=100ms"]);
    let one = run(&plan, mmio(1));
    let share = mean(&one, |flow| flow.returned);
    let capacity = Cell::new(0.0);
    for flow in &network(&one).flows {
        // The tolerance is one poll of 64 packets at either end of the span.
        assert!((flow.returned as f64 - share).abs() <= 128.0, "{flow:?} of {share}");
        let loss = flow.loss().expect("it sent") / 100.0;
        assert!((loss - (1.0 - share / flow.sent as f64)).abs() < 0.02, "{flow:?}");
        capacity.set(capacity.get() + flow.returned as f64);
    }
    assert!(one.cpus[0].busy() > 0.99 && one.cpus[1].busy() < 0.01, "{:?}", one.cpus);
    // Twice the CPUs, twice the capacity.
    let two = run(&plan, mmio(2));
    let grown = mean(&two, |flow| flow.returned) / share;
    assert!((grown - 2.0).abs() < 0.02, "{grown}");
    assert_eq!(network(&one).disordered + network(&two).disordered, 0);
}

/// Without the extension an interrupt costs two accesses besides its end. With it an interrupt costs none, unless
/// lines are levels.
#[test]
fn exits_of_an_interrupt_are_those_of_the_specification() {
    // The load is so light that there is about one interrupt per packet.
    let light = ["ramp=2ms", "duration=20ms", "vhost.send=60us"];
    let cost = |settings: &[&str], variant| {
        let outcome = run(&plan(&[&light[..], settings].concat()), variant);
        let NetworkOutcome { interrupts, status_reads, acknowledgements, packets, .. } = *network(&outcome);
        // One or two of either kind are under way where the span begins and ends.
        assert!(interrupts > 1000 && packets + 16 > interrupts, "{interrupts} interrupts, {packets} packets");
        [status_reads, acknowledgements].map(|count| (count as f64 / interrupts as f64 * 10.0).round() / 10.0)
    };
    assert_eq!(cost(&[], mmio(1)), [1.0, 1.0]);
    // Vector 0 is shared with the configuration: an eighth of the interrupts reads the status.
    assert_eq!(cost(&[], mmio(8)), [0.1, 0.0]);
    assert_eq!(cost(&[], mmio(9)), [0.0, 0.0]);
    let level = ["network.trigger=level", "network.resampler=true"];
    assert_eq!(cost(&level, mmio(9)), [0.0, 1.0]);
    assert_eq!(cost(&[], NetworkVariant::Pci), [0.0, 0.0]);
}

/// Light loads lose nothing, whatever the interrupts: no notification is lost by sharing, levels or resampling.
#[test]
fn a_light_load_comes_back_whole() {
    for settings in [
        &["network.trigger=edge"][..],
        &["network.trigger=level"],
        &["network.trigger=level", "network.resampler=true"],
        &["network.workers=device"],
    ] {
        let plan = plan(&[&["ramp=2ms", "duration=20ms", "vhost.send=100us"], settings].concat());
        let pairs = NetworkVariant::Mmio { irqs: 3, mapping: Mapping::Fixed, apart: Apart::Nothing };
        let ladder = NetworkVariant::Mmio { irqs: 4, mapping: Mapping::Ladder, apart: Apart::Nothing };
        for variant in [mmio(1), mmio(3), mmio(8), pairs, ladder, NetworkVariant::Pci] {
            let outcome = run(&plan, variant);
            for flow in &network(&outcome).flows {
                assert!(flow.sent > 150, "{settings:?} {variant}: {flow:?}");
                // Packets that are under way at either end of the span.
                assert!(flow.sent.abs_diff(flow.returned) <= 2, "{settings:?} {variant}: {flow:?}");
            }
        }
    }
}

/// A mapping that keeps an interrupt for the configuration has one CPU fewer for its queues. The series' fixed mapping
/// and the mapping that knows no device give the same result.
#[test]
fn the_mapping_decides_how_many_cpus_serve() {
    let plan = plan(&["ramp=20ms", "duration=60ms"]);
    let variant = |mapping| NetworkVariant::Mmio { irqs: 4, mapping, apart: Apart::Nothing };
    let rate = |mapping| mean(&run(&plan, variant(mapping)), |flow| flow.returned);
    let (spread, ladder, fixed) = (rate(Mapping::Spread), rate(Mapping::Ladder), rate(Mapping::Fixed));
    assert!((fixed / spread - 1.0).abs() < 0.01, "{spread} and {fixed}");
    assert!((ladder / spread - 0.75).abs() < 0.02, "{spread} and {ladder}");
}

fn apart(irqs: u16, apart: Apart) -> NetworkVariant {
    NetworkVariant::Mmio { irqs, mapping: Mapping::Spread, apart }
}

/// Under full load the gain of eight interrupts is the CPUs': one interrupt whose queues are polled on eight CPUs has
/// it too, and two more exits at each of the eight interrupts hardly cost any of it.
#[test]
fn at_full_load_the_gain_is_the_cpus_and_not_the_interrupts() {
    let plan = plan(&["ramp=40ms", "duration=60ms"]);
    let rate = |variant| mean(&run(&plan, variant), |flow| flow.returned);
    let (one, eight) = (rate(mmio(1)), rate(mmio(8)));
    let (spread, status) = (rate(apart(1, Apart::Polls)), rate(apart(8, Apart::Status)));
    println!("1 IRQ {one}, spread {spread}; 8 IRQs {eight}, with status {status}");
    assert!(eight > 4.0 * one, "{one} to {eight}");
    assert!(spread > 0.9 * eight, "{spread} of {eight}");
    assert!(status > 0.95 * eight, "{status} of {eight}");
}

/// At a low rate every packet has an interrupt of its own, and what an interrupt costs is in each packet's latency: two
/// exits more with the status.
#[test]
fn at_a_low_rate_the_exits_of_an_interrupt_are_latency() {
    let plan = common::plan("virtio-low", &["duration=100ms"]);
    let latency = |variant| {
        let outcome = run(&plan, variant);
        let sum = |of: fn(&FlowOutcome) -> u64| network(&outcome).flows.iter().map(of).sum::<u64>();
        assert!(sum(|flow| flow.returned).abs_diff(sum(|flow| flow.timed)) <= 8, "every packet is timed");
        sum(|flow| flow.under_way_ns) as f64 / sum(|flow| flow.timed) as f64
    };
    let [eight, status] = [Apart::Nothing, Apart::Status].map(|how| latency(apart(8, how)));
    let exits = status - eight;
    // vhost.exit is 2 us; one interrupt in eight reads the status anyway, because it is the configuration's too.
    assert!((3_400.0..4_100.0).contains(&exits), "{eight} and {status}");
    assert!(latency(mmio(1)) > status, "one CPU, behind the others' packets");
}

/// An interrupt a queue merges less: from some rate on, eight interrupts cost the guest more CPU time than one.
#[test]
fn several_interrupts_cost_more_cpu_time_where_one_merges() {
    let busy = |every: &str, irqs| {
        let plan =
            common::plan("virtio-low", &["ramp=20ms", "duration=60ms", &format!("network.packet_every={every}")]);
        run(&plan, mmio(irqs)).cpus.iter().map(|cpu| cpu.busy()).sum::<f64>()
    };
    assert!(busy("500us", 8) < 0.9 * busy("500us", 1), "fewer exits");
    assert!(busy("60us", 8) > 1.1 * busy("60us", 1), "more interrupts");
}

/// Packets under way = rate times latency, which counts them at both ends.
#[test]
fn the_latency_is_that_of_littles_law() {
    let plan = plan(&["ramp=300ms", "duration=60ms"]);
    let outcome = run(&plan, mmio(1));
    let flows = &network(&outcome).flows;
    for flow in flows {
        let latency_ns = flow.under_way_ns as f64 / flow.timed as f64;
        let under_way = latency_ns * flow.returned as f64 / outcome.span_ns as f64;
        // A full backlog of 500, and most of a receive queue of 256; at most a transmit queue besides.
        assert!((628.0..1_012.0).contains(&under_way), "{under_way} of {flow:?}");
    }
}

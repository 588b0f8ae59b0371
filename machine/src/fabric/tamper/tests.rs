//! A tamper between a talker and a listener.

use super::{Act, Rates, Tamper, TamperConfig, TamperCounts};
use crate::model::{Model, ModelId, Traffic, Upstream};
use crate::time::Ps;
use crate::world::World;
use crate::{Machine, MachineConfig};
use proptest::prelude::*;

/// On its event, sends a message with the event's argument as data, and then asks for a transfer of that number.
struct Talker(ModelId);

impl Model for Talker {
    fn name(&self) -> &str {
        "talker"
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        if code == 0 {
            world.upstream(self.0, Upstream::Message { requester: 7, address: 0xfee0_0000, data: arg as u32 });
            let (model, traffic) = (world.me(), Traffic::Read);
            world.upstream(self.0, Upstream::Transfer { model, requester: 0x100, traffic, bytes: 64, code: 1, arg });
        }
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Records arriving messages with their times.
#[derive(Default)]
struct Listener {
    messages: Vec<(u64, u32)>,
    transfers: Vec<(u64, u64)>,
}

impl Model for Listener {
    fn name(&self) -> &str {
        "listener"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, world: &mut World<'_>, _: ModelId, request: Upstream) {
        let now = world.now().as_ns();
        match request {
            Upstream::Message { requester, address, data } => {
                assert_eq!((requester, address), (7, 0xfee0_0000));
                self.messages.push((now, data));
            }
            Upstream::Transfer { arg, .. } => self.transfers.push((now, arg)),
        }
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Sends messages 0, 1, … of 4 different payloads, one every microsecond from 1 µs on. Returns the arrivals until 1 ms
/// later.
fn talk(count: u64, config: TamperConfig) -> (Vec<(u64, u32)>, TamperCounts) {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
    let listener = machine.add_model(|_| Box::new(Listener::default()));
    let tamper = machine.add_model(|_| Box::new(Tamper::new(listener, config)));
    let talker = machine.add_model(|_| Box::new(Talker(tamper)));
    for number in 0..count {
        machine.poke(talker, Ps::from_ns(1_000 * (number + 1)), 0, number % 4);
    }
    machine.run_until(Ps::from_ns(1_000 * count + 1_000_000));
    let (messages, transfers) = machine
        .with_model(listener, |listener: &mut Listener| (listener.messages.clone(), listener.transfers.clone()))
        .expect("it listens");
    let all: Vec<_> = (0..count).map(|number| (1_000 * (number + 1), number % 4)).collect();
    assert_eq!(transfers, all, "transfers pass as they are");
    assert_eq!(machine.faults().0, []);
    (messages, machine.with_model(tamper, |tamper: &mut Tamper| tamper.counts()).expect("it is one"))
}

fn planned(plan: &[(u64, Act)]) -> Vec<(u64, u32)> {
    talk(4, TamperConfig { plan: plan.to_vec(), ..TamperConfig::default() }).0
}

#[test]
fn each_act_does_what_it_says() {
    let ns = Ps::from_ns;
    assert_eq!(planned(&[]), [(1_000, 0), (2_000, 1), (3_000, 2), (4_000, 3)]);
    assert_eq!(planned(&[(2, Act::Drop)]), [(1_000, 0), (3_000, 2), (4_000, 3)]);
    assert_eq!(planned(&[(2, Act::Delay(ns(1_500)))]), [(1_000, 0), (3_000, 2), (3_500, 1), (4_000, 3)]);
    assert_eq!(planned(&[(4, Act::Double(ns(9)))]), [(1_000, 0), (2_000, 1), (3_000, 2), (4_000, 3), (4_009, 3)]);
    assert_eq!(planned(&[(1, Act::Swap(ns(5_000)))]), [(2_000, 1), (2_000, 0), (3_000, 2), (4_000, 3)]);
    assert_eq!(planned(&[(4, Act::Swap(ns(5_000)))]), [(1_000, 0), (2_000, 1), (3_000, 2), (9_000, 3)]);
    assert_eq!(planned(&[(1, Act::Redirect), (2, Act::Redirect)]), [(1_000, 0), (2_000, 0), (3_000, 2), (4_000, 3)]);
    let storm = Act::Storm { count: 2, gap: ns(10) };
    assert_eq!(planned(&[(4, storm)])[3..], [(4_000, 3), (4_010, 3), (4_020, 3)]);
}

#[test]
fn nothing_happens_outside_of_the_window() {
    let rates = Rates { drop: 1_000, ..Rates::default() };
    let config = TamperConfig { from: Ps::from_ns(2_000), until: Ps::from_ns(4_000), rates, ..TamperConfig::default() };
    let (messages, counts) = talk(6, config);
    assert_eq!(messages, [(1_000, 0), (4_000, 3), (5_000, 0), (6_000, 1)]);
    assert_eq!((counts.messages, counts.dropped), (6, 2));
}

#[test]
fn a_storm_ends_when_it_is_healed() {
    let plan = vec![(1, Act::Storm { count: u32::MAX, gap: Ps(0) })];
    let config = TamperConfig { plan, until: Ps(1_000_100), ..TamperConfig::default() };
    let (messages, counts) = talk(1, config);
    assert_eq!((messages.len(), counts.repeated), (100, 99));
}

proptest! {
    /// Every message is accounted for, none is early, and every message sent after the healing arrives on time.
    #[test]
    fn messages_are_conserved(seed: u64, until_ns in 1_000u64..250_000, rates in (0u32..200, 0u32..200, 0u32..200, 0u32..200)) {
        let rates = Rates { drop: rates.0, delay: rates.1, double: rates.2, swap: rates.3, redirect: 100, storm: 20 };
        let config = TamperConfig {
            seed,
            until: Ps::from_ns(until_ns),
            rates,
            longest: Ps::from_ns(5_000),
            storm_messages_max: 20,
            ..TamperConfig::default()
        };
        let (messages, counts) = talk(200, config.clone());
        prop_assert_eq!(messages.len() as u64, counts.messages - counts.dropped + counts.doubled + counts.repeated);
        let healed = (until_ns.div_ceil(1_000).max(1)..=200).filter(|number| number * 1_000 >= until_ns);
        for number in healed {
            prop_assert!(messages.contains(&(number * 1_000, ((number - 1) % 4) as u32)), "message {}", number);
        }
        let last = messages.last().map_or(0, |&(at, _)| at);
        prop_assert!(last <= 200_000.max(until_ns + 5_000), "the last came at {} ns", last);
        prop_assert_eq!(talk(200, config).0, messages, "a seed is a history");
    }
}

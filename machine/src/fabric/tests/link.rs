//! Transfers and messages on a port's link, in front of a real IOMMU.

use super::*;

/// Sends requested messages at once, and records the end times of its transfers.
#[derive(Default)]
struct Script {
    port: u32,
    requests: Vec<Upstream>,
    done: Vec<(u64, Ps)>,
}

impl Model for Script {
    fn name(&self) -> &str {
        "script"
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        if code == 1 {
            return self.done.push((arg, world.now()));
        }
        for request in self.requests.drain(..) {
            world.upstream(ModelId(self.port), request);
        }
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn scripted(bytes_per_second: u64, requests: Vec<Upstream>) -> (Machine, ModelId, ModelId) {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 1 << 16, ..MachineConfig::default() });
    let credits = Credits::default();
    let dispatch = Dispatch::new(DELIVER);
    let unit = machine.add_model(|_| Box::new(VtdUnit::new(unit_config(), dispatch, credits.clone())));
    let port = machine.add_model(|id| Box::new(RootPort::new(id, unit, port_config(bytes_per_second), &credits)));
    let script = machine.add_model(|_| Box::new(Script { port: port.0, requests, done: vec![] }));
    machine.poke(script, Ps(0), 0, 0);
    machine.run_until(Ps::from_ns(100_000));
    (machine, port, script)
}

fn transfer(bytes: u32, arg: u64) -> Upstream {
    // The script is the third model.
    let traffic = Traffic::Write { relaxed: false };
    Upstream::Transfer { model: ModelId(2), requester: 0x100, traffic, bytes, code: 1, arg }
}

fn message() -> Upstream {
    Upstream::Message { requester: 0x100, address: 0xfee0_0000, data: 0x31 }
}

fn done(machine: &mut Machine, script: ModelId) -> Vec<(u64, Ps)> {
    machine.with_model(script, |script: &mut Script| script.done.clone()).expect("the script")
}

#[test]
fn transfers_follow_each_other_on_the_link() {
    // A byte a nanosecond.
    let (mut machine, port, script) = scripted(1_000_000_000, vec![transfer(4096, 1), transfer(512, 2)]);
    assert_eq!(done(&mut machine, script), [(1, Ps::from_ns(4096)), (2, Ps::from_ns(4608))]);
    let counters = machine.with_any_model(port, |port| port.counters());
    assert_eq!(counters[0], ("bytes", 4608));
    assert_eq!(counters[2], ("link_ps", 4_608_000));
}

#[test]
fn a_message_keeps_later_transfers_back() {
    let requests = vec![transfer(1000, 1), message(), transfer(100, 2), transfer(100, 3)];
    let (mut machine, port, script) = scripted(1_000_000_000, requests);
    let expected = [(1, Ps::from_ns(1000)), (2, Ps::from_ns(1000 + 157 + 100)), (3, Ps::from_ns(1000 + 157 + 200))];
    assert_eq!(done(&mut machine, script), expected);
    assert_eq!(machine.with_any_model(port, |port| port.counters())[3], ("order_ps", 157_000));
}

/// Messages of plain format: they use the dispatch unit alone, 112 ns each. The first is taken at once, the second and
/// the third wait. The fourth finds the port blocked until the dispatch unit takes the second. The transfer behind it
/// waits for that, and for the order of four messages.
#[test]
fn the_third_waiting_message_blocks_the_port() {
    let requests = vec![message(), message(), message(), message(), transfer(100, 1)];
    let (mut machine, port, script) = scripted(1_000_000_000, requests);
    let counters = machine.with_any_model(port, |port| port.counters());
    assert_eq!(counters[4], ("blocked_ps", 112_000));
    assert_eq!(done(&mut machine, script), [(1, Ps::from_ns(4 * 157 + 100))]);
}

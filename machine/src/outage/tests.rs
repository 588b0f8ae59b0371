use super::*;
use crate::{Machine, MachineConfig};
use hal::Regs as _;

/// Counts its events and remembers its writes; register 0 reads how many events there were.
#[derive(Default)]
struct Probe {
    events: Vec<(Ps, u32)>,
    writes: Vec<(Ps, u64)>,
}

impl Model for Probe {
    fn name(&self) -> &str {
        "probe"
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, _arg: u64) {
        self.events.push((world.now(), code));
    }
    fn read(&mut self, _world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8) -> u64 {
        self.events.len() as u64
    }
    fn write(&mut self, world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8, value: u64) {
        self.writes.push((world.now(), value));
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

const fn ns(at: u64) -> Ps {
    Ps::from_ns(at)
}

/// The events and the writes that a model saw, each with its time.
type Seen = (Vec<(Ps, u32)>, Vec<(Ps, u64)>);

/// Events at 10, 20, 30, 40 and 50 ns, a write at about 20 ns, and a read at the end: what the model saw, and the
/// read.
fn after(outage: Outage) -> (Seen, u32) {
    let mut machine = Machine::new(MachineConfig::default());
    let outages = Outages::new(outage);
    let model = machine.add_model(|_| Box::new(Unreliable::new(Probe::default(), outages)));
    for code in 1..=5 {
        machine.poke(model, ns(10 * u64::from(code)), code, 0);
    }
    machine.run_until(ns(20));
    machine.regs(model, 0).write32(0, 7);
    machine.run_until(ns(100));
    let read = machine.regs(model, 0).read32(0);
    let seen = |probe: &mut Probe| (std::mem::take(&mut probe.events), std::mem::take(&mut probe.writes));
    let (events, writes) = machine.with_model(model, seen).expect("the inner model is found");
    ((events, writes), read)
}

#[test]
fn without_an_outage_nothing_is_changed() {
    let ((events, writes), read) = after(Outage::default());
    assert_eq!(events, [(ns(10), 1), (ns(20), 2), (ns(30), 3), (ns(40), 4), (ns(50), 5)]);
    assert_eq!((writes.len(), writes[0].1, read), (1, 7, 5));
}

#[test]
fn what_came_in_a_silence_is_taken_up_in_its_order() {
    let ((events, writes), read) =
        after(Outage { silent_at: Some(ns(15)), silent_until: Some(ns(45)), ..Outage::default() });
    assert_eq!(events, [(ns(10), 1), (ns(45), 2), (ns(45), 3), (ns(45), 4), (ns(50), 5)]);
    assert_eq!((writes, read), (vec![(ns(45), 7)], 5));
}

#[test]
fn a_silence_does_not_hold_configuration_back() {
    let silent = Outage { silent_at: Some(ns(15)), silent_until: Some(ns(45)), ..Outage::default() };
    let ((_, writes), _) = after(Outage { prompt_region: Some(0), ..silent });
    assert!(writes.len() == 1 && writes[0].0 < ns(30), "{writes:?}");
    let ((_, writes), _) = after(Outage { prompt_region: Some(1), ..silent });
    assert_eq!(writes, [(ns(45), 7)]);
}

#[test]
fn a_silence_without_an_end_still_reads() {
    let ((events, writes), read) = after(Outage { silent_at: Some(ns(15)), ..Outage::default() });
    assert_eq!((events.len(), writes.len(), read), (1, 0, 1));
}

#[test]
fn a_device_that_refuses_accesses_works_on() {
    let ((events, writes), read) = after(Outage { refuses_at: Some(ns(15)), ..Outage::default() });
    assert_eq!((events.len(), writes.len(), read), (5, 0, u32::MAX));
    let over = Outage { refuses_at: Some(ns(15)), refuses_until: Some(ns(90)), ..Outage::default() };
    assert_eq!(after(over).1, 5);
}

#[test]
fn a_device_that_was_pulled_out_reads_all_ones() {
    let ((events, writes), read) = after(Outage { gone_at: Some(ns(15)), ..Outage::default() });
    assert_eq!((events.len(), writes.len(), read), (1, 0, u32::MAX));
    let both =
        Outage { gone_at: Some(ns(25)), silent_at: Some(ns(15)), silent_until: Some(ns(45)), ..Outage::default() };
    assert_eq!(after(both).0.0, [(ns(10), 1)], "what a silence kept is lost with the device");
}

/// Pulled out at 15 ns, put in at 35 ns: what is written meanwhile is lost, and it begins anew when it is pulled.
#[test]
fn a_device_that_is_put_in_again_begins_anew() {
    let mut machine = Machine::new(MachineConfig::default());
    let forget = |probe: &mut Probe, _: &mut World<'_>| *probe = Probe::default();
    let silent = Outage { silent_at: Some(ns(5)), silent_until: Some(ns(90)), ..Outage::default() };
    let model = machine.add_model(|_| Box::new(Unreliable::removable(Probe::default(), Outages::new(silent), forget)));
    let put = |machine: &mut Machine, at, value| {
        machine.run_until(ns(at));
        machine.regs(model, 0).write32(0, value);
    };
    put(&mut machine, 10, 1);
    machine.poke(model, ns(15), PLUG, 0);
    put(&mut machine, 20, 2);
    assert_eq!(machine.regs(model, 0).read32(0), u32::MAX);
    machine.poke(model, ns(35), PLUG, 1);
    put(&mut machine, 40, 3);
    machine.run_until(ns(100));
    let written = |probe: &mut Probe| probe.writes.iter().map(|(_, value)| *value).collect::<Vec<_>>();
    assert_eq!(machine.with_model(model, written), Some(vec![3]), "the silence's first write went with the device");
    assert_eq!(machine.regs(model, 0).read32(0), 0, "its registers read again");
}

#[test]
fn a_short_silence_in_a_long_one_does_not_end_it() {
    let mut outage = Outage::default();
    let said = |outage: &Outage| (outage.silent_at, outage.silent_until);
    outage.silence(Ps(10), Ps(100));
    outage.silence(Ps(20), Ps(30));
    assert_eq!(said(&outage), (Some(Ps(10)), Some(Ps(100))));
    outage.silence(Ps(50), Ps(120));
    assert_eq!(said(&outage), (Some(Ps(10)), Some(Ps(120))));
    outage.silence(Ps(120), Ps(150));
    assert_eq!(said(&outage), (Some(Ps(120)), Some(Ps(150))));
}

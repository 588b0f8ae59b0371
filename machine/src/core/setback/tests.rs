use super::*;
use crate::model::Model;
use crate::time::Ps;
use crate::world::World;
use crate::{Machine, MachineConfig, SimHal};
use hal::{Dma as _, DmaError, Hal as _, Regs as _};
use std::sync::{Arc, Mutex};

const LIMIT: Ps = Ps::from_ns(1_000_000);

/// Register 0 holds the address of what the device uses, some time after it was written.
#[derive(Default)]
struct Probe {
    uses: Vec<u64>,
}

impl Model for Probe {
    fn name(&self) -> &str {
        "probe"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, address: u64) {
        self.uses.push(address);
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        self.uses.last().copied().unwrap_or_default()
    }
    fn write(&mut self, world: &mut World<'_>, _: u8, _: u32, _: u8, value: u64) {
        world.schedule(world.now() + Ps::from_ns(10), 0, value);
    }
    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        self.uses.last().copied().filter(|used| range.contains(used))
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// A CPU of a machine with a probe does this.
fn with_probe(act: impl FnOnce(crate::Regs) + Send + 'static) {
    let mut machine = Machine::new(MachineConfig::default());
    let model = machine.add_model(|_| Box::<Probe>::default());
    let regs = machine.regs(model, 0);
    machine.run_boot(LIMIT, move || act(regs)).expect("it ends");
}

#[test]
fn memory_runs_out_behind_what_is_spared_and_what_nobody_uses_is_told() {
    with_probe(|regs| {
        begin_setback(Setback::NoMemory, 3);
        let buffers = [64, 64, 64].map(|bytes| SimHal.dma_alloc(bytes, 64).expect("it is spared"));
        let fourth = SimHal.dma_alloc(64, 64).err();
        let address = |index: usize| buffers[index].device_address().0;
        regs.write64(0, address(0));
        SimHal.delay_ns(100);
        let unused = address(1)..address(1) + 64;
        let [used, kept, freed] = buffers;
        drop(freed);
        let endured = end_setback();
        assert_eq!(
            (fourth, endured),
            (Some(DmaError::Exhausted(64)), Endured { acts: 4, struck: true, unused: vec![unused] })
        );
        assert!(SimHal.dma_alloc(64, 64).is_ok(), "it is over");
        drop((used, kept));
    });
}

#[test]
fn what_stalled_happens_in_its_order_and_tells_of_memory_that_is_gone() {
    let mut machine = Machine::new(MachineConfig::default());
    let model = machine.add_model(|_| Box::<Probe>::default());
    let regs = machine.regs(model, 0);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let heard = lost.clone();
    machine.set_observer(move |_, fact| {
        if let Fact::GivenBack { address, .. } = fact {
            heard.lock().expect("one host thread").push(address);
        }
    });
    let boot = move || {
        begin_setback(Setback::Stall, 1);
        let buffer = SimHal.dma_alloc(64, 64).expect("memory");
        let address = buffer.device_address().0;
        for value in [5, address, 7] {
            regs.write64(0, value);
            SimHal.delay_ns(100);
        }
        assert_eq!(regs.read64(0), 5, "only the first was spared");
        drop(buffer);
        let endured = end_setback();
        assert_eq!(endured, Endured { acts: 3, struck: true, unused: Vec::new() });
        assert_eq!(regs.read64(0), 7);
        address
    };
    let address = machine.run_boot(LIMIT, boot).expect("it ends");
    let uses = machine.with_model(model, |probe: &mut Probe| std::mem::take(&mut probe.uses));
    assert_eq!(uses, Some(vec![5, address, 7]));
    assert_eq!(*lost.lock().expect("one host thread"), [address], "the device had it for a while");
}

#[test]
fn a_setback_that_does_not_strike_changes_nothing() {
    with_probe(|regs| {
        begin_setback(Setback::Stall, 1);
        regs.write64(0, 9);
        SimHal.delay_ns(100);
        assert_eq!(end_setback(), Endured { acts: 1, ..Endured::default() });
        assert_eq!((regs.read64(0), end_setback()), (9, Endured::default()));
    });
}

/// What waits for a stalled device would wait for ever if it came again and again.
#[test]
fn a_stall_ends_behind_very_many_acts() {
    with_probe(|regs| {
        begin_setback(Setback::Stall, 0);
        regs.write64(0, 1);
        SimHal.delay_ns(100);
        assert_eq!(regs.read64(0), 0, "it has not happened yet");
        (0..2_000).for_each(|value| regs.write64(0, value));
        SimHal.delay_ns(100);
        assert_eq!(regs.read64(0), 1_999);
        let endured = end_setback();
        assert!(endured.struck && endured.acts == 2_001, "{endured:?}");
    });
}

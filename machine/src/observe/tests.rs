//! The stream of facts, by whole sequences.

use super::{Arrival, Fact};
use crate::Interrupts;
use crate::gic::{GicConfig, IntState, PULSE, wire_arg};
use crate::model::Upstream;
use crate::time::Ps;
use crate::world::World;
use crate::{Machine, MachineConfig, Regs, SimHal};
use crate::{declare_cpu, mark, peek64};
use hal::{CpuId, Dma as _, Hal as _, Regs as _, Word as _, Work};
use std::cell::RefCell;
use std::rc::Rc;

type Facts = Rc<RefCell<Vec<(u64, Fact)>>>;

fn observed(machine: &mut Machine) -> Facts {
    let facts = Facts::default();
    let sink = facts.clone();
    machine.set_observer(move |at, fact| sink.borrow_mut().push((at.as_ns(), fact)));
    facts
}

fn plain(facts: &Facts) -> Vec<Fact> {
    facts.borrow().iter().map(|&(_, fact)| fact).collect()
}

/// A vector to itself twice before it is taken, and an EOI too many.
#[test]
fn a_vector_is_followed_from_the_ipi_to_its_end() {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
    machine.set_interrupt_entry(|_| {
        SimHal.work(Work::IrqHandler, 1);
        Regs::Lapic.write32(0x80b, 0);
    });
    let facts = observed(&mut machine);
    let end = machine.run_boot(Ps::from_ns(10_000), || {
        Regs::Lapic.write32(0x83f, 0x41);
        SimHal.delay_ns(100);
        Regs::Lapic.write32(0x80f, 0x1ff);
        let state = SimHal.irq_save();
        Regs::Lapic.write32(0x83f, 0x41);
        Regs::Lapic.write32(0x83f, 0x41);
        SimHal.delay_ns(100);
        assert_eq!(peek64(0x1000), None, "below memory there is nothing");
        SimHal.irq_restore(state);
        Regs::Lapic.write32(0x80b, 0);
        mark(7, 9);
        declare_cpu(0, false);
    });
    assert_eq!(end, Ok(()));
    machine.run_until(machine.now() + Ps(1));
    let sent = Fact::IpiSent { from: 0, to: 0, vector: 0x41 };
    let raised = |arrival| Fact::Raised { cpu: 0, vector: 0x41, level: false, arrival };
    let seen = plain(&facts);
    let from = seen.iter().position(|&fact| fact == sent).expect("an IPI was sent");
    assert_eq!(
        seen[from..],
        [
            sent,
            raised(Arrival::Refused),
            sent,
            sent,
            raised(Arrival::Pending),
            raised(Arrival::Merged),
            Fact::Accepted { cpu: 0, vector: 0x41 },
            Fact::Worked { cpu: 0, depth: 1, work: Work::IrqHandler, count: 1 },
            Fact::Ended { cpu: 0, vector: 0x41 },
            Fact::Returned { cpu: 0, depth: 0, in_service: None },
            Fact::IdleEoi { cpu: 0 },
            Fact::Fault { source: crate::model::ModelId(u32::MAX), kind: "EOI with nothing in service", requester: 0 },
            Fact::Mark { cpu: 0, tag: 7, value: 9 },
            Fact::Declared { cpu: 0, online: false },
            Fact::Halted { cpu: 0 },
        ]
    );
    assert_eq!(machine.lapic_vectors(CpuId(0)), Some([[0; 4]; 2]));
    assert_eq!(machine.lapic_vectors(CpuId(1)), None);
    assert!(machine.is_halted(CpuId(0)));
}

#[test]
fn an_entry_without_an_eoi_leaves_its_vector_in_service() {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
    machine.set_interrupt_entry(|_| {});
    let facts = observed(&mut machine);
    let end = machine.run_boot(Ps::from_ns(10_000), || {
        Regs::Lapic.write32(0x80f, 0x1ff);
        Regs::Lapic.write32(0x83f, 0x41);
        SimHal.delay_ns(100);
        Regs::Lapic.write32(0x83f, 0x31);
        SimHal.delay_ns(100);
    });
    assert_eq!(end, Ok(()));
    assert!(plain(&facts).contains(&Fact::Returned { cpu: 0, depth: 0, in_service: Some(0x41) }));
    let [requested, in_service] = machine.lapic_vectors(CpuId(0)).expect("CPU 0 exists");
    assert_eq!((requested[0], in_service[1]), (1 << 0x31, 1 << 1), "the lower class waits for ever");
}

#[test]
fn a_spi_is_followed_from_its_edge_to_its_deactivation() {
    let interrupts = Interrupts::GicV2(GicConfig { spis: 32, ..GicConfig::default() });
    let mut machine = Machine::new(MachineConfig { interrupts, memory_bytes: 4096, ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    machine.set_exception_entry(move |_| {
        let word = gic.cpu_interface.read32(0x00c);
        gic.cpu_interface.write32(0x010, word);
        gic.cpu_interface.write32(0x1000, word);
        gic.cpu_interface.write32(0x1000, word);
        gic.cpu_interface.read32(0x00c);
    });
    machine.poke(gic.model, Ps::from_ns(500), PULSE, wire_arg(40, 0, true));
    let facts = observed(&mut machine);
    let end = machine.run_boot(Ps::from_ns(10_000), move || {
        gic.cpu_interface.write32(0x004, 0xf0);
        gic.cpu_interface.write32(0x000, 0x201);
        gic.distributor.write32(0xc08, 0x0002_0000);
        gic.distributor.write32(0x828, 1);
        gic.distributor.write32(0x104, 1 << 8);
        gic.distributor.write32(0x000, 1);
        SimHal.delay_ns(1_000);
    });
    assert_eq!(end, Ok(()));
    let seen = plain(&facts);
    let pending = Fact::GicPending { cpu: None, intid: 40 };
    let from = seen.iter().position(|&fact| fact == pending).expect("it became pending");
    let ended = |was_active| Fact::GicDeactivated { cpu: 0, word: 40, was_active };
    assert_eq!(
        seen[from..],
        [
            pending,
            Fact::Exception { cpu: 0, pseudo_nmi: false },
            Fact::GicAcknowledged { cpu: 0, word: 40 },
            Fact::GicDropped { cpu: 0, word: 40, in_order: true },
            ended(true),
            ended(false),
            Fact::Fault {
                source: gic.model,
                kind: "GIC deactivation of an interrupt that is not active",
                requester: 0
            },
            Fact::GicAcknowledged { cpu: 0, word: 1023 },
            Fact::Returned { cpu: 0, depth: 0, in_service: None },
        ]
    );
    assert_eq!(machine.gic_state(CpuId(0), 40), Some(IntState { is_pending: false, is_active: false }));
    assert_eq!(machine.gic_state(CpuId(0), 64), None, "there are 32 SPIs");
}

/// Passes a message to itself, and writes memory.
struct Sender(u64);

impl crate::model::Model for Sender {
    fn name(&self) -> &str {
        "sender"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, _arg: u64) {
        let seen = peek64(self.0);
        world.upstream(crate::model::ModelId(1), Upstream::Message { requester: 5, address: self.0, data: 3 });
        assert_eq!(seen, Some(11));
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn a_message_is_told_at_each_step_with_the_models_time() {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
    let memory = SimHal.dma_alloc(8, 8).expect("room");
    memory.words()[0].set(11);
    let address = memory.device_address().0;
    let from = machine.add_model(|_| Box::new(Sender(address)));
    let to = machine.add_model(|_| Box::new(Sender(address)));
    let facts = observed(&mut machine);
    machine.poke(from, Ps::from_ns(70), 0, 0);
    machine.run_until(Ps::from_ns(100));
    let message = Fact::Message { from, to, requester: 5, address, data: 3 };
    // It is no bus, and says so.
    let kind = "upstream request to a model that is no bus";
    assert_eq!(*facts.borrow(), [(70, message), (70, Fact::Fault { source: to, kind, requester: 0 })]);
    assert_eq!(machine.peek64(address), Some(11));
    assert_eq!(machine.peek64(address + 4), None);
}

#[test]
#[should_panic(expected = "the observer called the machine")]
fn an_observer_that_calls_the_machine_is_told_so() {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
    machine.set_observer(|_, _| mark(1, 1));
    mark(0, 0);
}

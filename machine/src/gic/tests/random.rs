//! Compares the state machine with a separate oracle, and tries accesses of every kind.

use crate::Interrupts;
use crate::gic::{GicConfig, GicWindows, ItsConfig, PULSE, V2mConfig, WIRE, wire_arg};
use crate::model::{Model, ModelId};
use crate::time::Ps;
use crate::world::World;
use crate::{Machine, MachineConfig, Regs, SimHal};
use hal::{Hal as _, Regs as _};
use proptest::prelude::*;

/// Wires that a CPU can drive: a write of 1 or 0 at an INTID's offset.
struct Wires(ModelId);

impl Model for Wires {
    fn name(&self) -> &str {
        "wires"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, world: &mut World<'_>, _: u8, offset: u32, _: u8, value: u64) {
        let code = if value > 1 { PULSE } else { WIRE };
        world.schedule_for(self.0, world.now(), code, wire_arg(offset, 0, value == 1));
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

fn machine(interrupts: Interrupts) -> (Machine, GicWindows, Regs) {
    let config = MachineConfig { cpus: 2, memory_bytes: 1 << 20, interrupts, ..MachineConfig::default() };
    let mut machine = Machine::new(config);
    let gic = machine.gic().expect("it was asked for");
    let wires = machine.add_model(|_| Box::new(Wires(gic.model)));
    let wires = machine.regs(wires, 0);
    (machine, gic, wires)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Pend,
    Unpend,
    Raise,
    Lower,
    Acknowledge,
    End,
    Deactivate,
}

/// IHI 0048B, "Interrupt handling state machine", as four bits.
#[derive(Default)]
struct Oracle {
    edge: bool,
    eoi_mode: bool,
    line: bool,
    latch: bool,
    active: bool,
    running: bool,
}

impl Oracle {
    fn pending(&self) -> bool {
        self.latch || self.line && !self.edge
    }

    /// The value that the step reads, if it reads one.
    fn step(&mut self, step: Step) -> Option<u32> {
        match step {
            Step::Pend => self.latch = true,
            Step::Unpend => self.latch = false,
            Step::Raise => {
                self.latch |= self.edge && !self.line;
                self.line = true;
            }
            Step::Lower => self.line = false,
            Step::Acknowledge if self.pending() && !self.active && !self.running => {
                (self.latch, self.active, self.running) = (false, true, true);
                return Some(40);
            }
            Step::Acknowledge => return Some(1023),
            Step::End => {
                // An end of interrupt without an active interrupt changes nothing.
                self.active &= self.eoi_mode || !self.running;
                self.running = false;
            }
            Step::Deactivate => self.active &= !self.eoi_mode,
        }
        None
    }
}

/// SPI 40 through the registers of either version.
#[derive(Clone, Copy)]
struct Spi {
    gic: GicWindows,
    wires: Regs,
    v3: bool,
}

impl Spi {
    fn bring_up(self, edge: bool, eoi_mode: bool) {
        let Self { gic, v3, .. } = self;
        gic.distributor.write32(0xc08, u32::from(edge) << 17);
        if v3 {
            super::v3::bring_up(gic, u64::from(eoi_mode) << 1);
        } else {
            gic.cpu_interface.write32(0x004, 0xf0);
            gic.cpu_interface.write32(0x000, 1 | u32::from(eoi_mode) << 9);
            gic.distributor.write32(0x428, 0xc0);
            gic.distributor.write32(0x828, 1);
            gic.distributor.write32(0x104, 1 << 8);
            gic.distributor.write32(0x000, 1);
        }
    }

    fn step(self, step: Step) -> Option<u32> {
        let Self { gic, wires, v3 } = self;
        let [acknowledge, end, deactivate] = if v3 { [0xc660, 0xc661, 0xc659] } else { [0x00c, 0x010, 0x1000] };
        match step {
            Step::Pend => gic.distributor.write32(0x204, 1 << 8),
            Step::Unpend => gic.distributor.write32(0x284, 1 << 8),
            Step::Raise => wires.write32(40, 1),
            Step::Lower => wires.write32(40, 0),
            Step::Acknowledge => return Some(gic.cpu_interface.read32(acknowledge)),
            Step::End => gic.cpu_interface.write32(end, 40),
            Step::Deactivate => gic.cpu_interface.write32(deactivate, 40),
        }
        None
    }

    /// Pending, active, running priority.
    fn state(self) -> (bool, bool, u32) {
        SimHal.delay_ns(10);
        let bit = |offset| self.gic.distributor.read32(offset) >> 8 & 1 == 1;
        let running = self.gic.cpu_interface.read32(if self.v3 { 0xc65b } else { 0x014 });
        (bit(0x204), bit(0x304), running)
    }
}

fn against_oracle(v3: bool, edge: bool, eoi_mode: bool, steps: Vec<Step>) -> Result<(), String> {
    let config = GicConfig { spis: 32, ..GicConfig::default() };
    let interrupts = if v3 { Interrupts::GicV3(config) } else { Interrupts::GicV2(config) };
    let (mut machine, gic, wires) = machine(interrupts);
    let spi = Spi { gic, wires, v3 };
    let run = move || {
        let _off = SimHal.irq_save();
        spi.bring_up(edge, eoi_mode);
        let mut oracle = Oracle { edge, eoi_mode, ..Oracle::default() };
        for (index, &step) in steps.iter().enumerate() {
            let (read, expected) = (spi.step(step), oracle.step(step));
            let state = spi.state();
            let running = if oracle.running { 0xc0 } else { 0xff };
            let right = (oracle.pending(), oracle.active, running);
            if (read, state) != (expected, right) {
                return Err(format!("step {index}, {step:?}: {read:?} {state:x?}, not {expected:?} {right:x?}"));
            }
        }
        Ok(())
    };
    machine.run_boot(Ps::from_ns(10_000_000), run).expect("it ends")
}

/// An access: region, offset, a number for its width, value; writes have one.
type Access = (u8, u32, u8, Option<u64>);

fn access() -> impl Strategy<Value = Access> {
    let offset = prop_oneof![
        (0_u32..0x400).prop_map(|word| word * 4),
        Just(0xc660),
        Just(0xc661),
        Just(0xc659),
        Just(0xc65d),
        Just(0xc667),
        Just(0x1_0040),
        (0_u32..0x4000).prop_map(|half| half * 8),
        0_u32..0x5_0000,
        any::<u32>(),
    ];
    let value = prop_oneof![any::<u64>(), Just(u64::MAX), Just(1), Just(0x13), (0_u64..64).prop_map(|bit| 1 << bit)];
    (0_u8..6, offset, 0_u8..8, proptest::option::weighted(0.7, value))
}

fn perform(gic: GicWindows, wires: Regs, (region, offset, width, value): Access) {
    let windows = [gic.distributor, gic.cpu_interface, gic.redistributors, gic.its, gic.v2m];
    let Some(window) = windows.get(usize::from(region)) else {
        return wires.write32(offset & 0x3ff, value.unwrap_or(0) as u32 & 3);
    };
    match (value, width) {
        (Some(value), 0) => window.write8(offset, value as u8),
        (Some(value), 1) => window.write16(offset, value as u16),
        (Some(value), 2..5) => window.write32(offset, value as u32),
        (Some(value), _) => window.write64(offset, value),
        (None, 0) => _ = window.read8(offset),
        (None, 1) => _ = window.read16(offset),
        (None, 2..5) => _ = window.read32(offset),
        (None, _) => _ = window.read64(offset),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_state_machine_is_the_manuals(
        v3: bool,
        edge: bool,
        eoi_mode: bool,
        steps in proptest::collection::vec(
            proptest::sample::select(vec![
                Step::Pend, Step::Unpend, Step::Raise, Step::Lower, Step::Acknowledge, Step::End, Step::Deactivate,
            ]),
            1..60,
        ),
    ) {
        let result = against_oracle(v3, edge, eoi_mode, steps);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }

    /// Any access causes no panic and no hang, and a register that works still works afterwards.
    #[test]
    fn no_access_does_harm(v3: bool, accesses in proptest::collection::vec(access(), 1..80)) {
        let v2m = Some(V2mConfig { base: 0x0802_0000, first: 40, count: 8 });
        let its = v3.then(ItsConfig::default);
        let config = GicConfig { spis: 64, v2m, its, message_spis: v3, ..GicConfig::default() };
        let interrupts = if v3 { Interrupts::GicV3(config) } else { Interrupts::GicV2(config) };
        let (mut machine, gic, wires) = machine(interrupts);
        let run = move || {
            let _off = SimHal.irq_save();
            for access in accesses {
                perform(gic, wires, access);
            }
            SimHal.delay_ns(100_000);
            gic.distributor.write32(0x404 + 0x20, 0xf0f0_f0f0);
            gic.distributor.read32(0x404 + 0x20)
        };
        prop_assert_eq!(machine.run_boot(Ps::from_ns(100_000_000), run), Ok(0xf0f0_f0f0));
    }
}

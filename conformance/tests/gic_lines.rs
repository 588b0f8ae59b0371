//! Private interrupts, pseudo-NMIs, controllers in front of the GIC, and faults.

mod gic_rig;

use drivers::gic::{EoiMode, GicError};
use gic_rig::{ALL, Count, Do, Options, PULSE, Rig, Version, WIRE, request, wire_arg};
use hal::{CpuId, Hal as _, Regs as _};
use irq::{
    AllocRequest, ChipBehaviour, Flow, HardwareIrq, IrqChip, IrqChipState, IrqDomain, IrqError, IrqReturn, Level,
    LevelData, RequestFlags, Target, Trigger,
};
use machine::gic::{Gic, GicConfig, GicWindows};
use machine::{Machine, SimHal};
use spec::gic::{IntId, Priority};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// `check` found this: an earlier kernel never dropped the priority of its last interrupt, and EOImode must not change while one is
/// active (IHI 0069H, "ICC_CTLR_EL1", EOImode; IHI 0048B, "GICC_CTLR").
#[test]
fn eoi_mode_changes_behind_the_priorities_of_an_earlier_kernel() {
    for (version, mode) in ALL {
        let leave = |machine: &mut Machine, windows: GicWindows| {
            machine.with_model(windows.model, Gic::leave_priorities).expect("the GIC");
        };
        let mut rig = Rig::with(version, mode, Options { cpus: 2, ..Options::default() }, leave);
        let sgis = Arc::new(Count::default());
        let handler = sgis.clone();
        rig.run(move |system| {
            let sgi = system.private(5, handler);
            system.core.enable_percpu(sgi).expect("on CPU 0");
            system.arm.send(IntId(5), CpuId(0)).expect("a CPU that has started");
            SimHal.delay_ns(10_000);
        });
        assert_eq!(sgis.all(), 1, "{version:?} {mode:?}");
        rig.finish();
    }
}

/// A PPI or an SGI has one line for all CPUs; each CPU enables the line for itself and ends its own interrupts.
#[test]
fn private_interrupts_stay_with_their_cpu() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { cpus: 2, ..Options::default() });
        let (ppis, sgis) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let (ppi_handler, sgi_handler) = (ppis.clone(), sgis.clone());
        rig.run(move |system| {
            let ppi = system.private(27, ppi_handler);
            system.core.set_type(ppi, Trigger::EdgeRising).expect("the machine's PPIs can be edges");
            let sgi = system.private(5, sgi_handler);
            system.core.enable_percpu(sgi).expect("on CPU 0");
            let there = system.clone();
            system.on(1, move || {
                there.core.set_type(ppi, Trigger::EdgeRising).expect("each CPU's own register");
                there.core.enable_percpu(ppi).expect("on CPU 1 alone");
                there.core.enable_percpu(sgi).expect("on CPU 1");
            });
        });
        for cpu in 0..2 {
            for step in 1..=3 {
                rig.wire(step * 1_000, PULSE, wire_arg(27, cpu, true));
            }
        }
        rig.run(move |system| {
            SimHal.delay_ns(10_000);
            for cpu in [0, 1, 1] {
                system.arm.send(IntId(5), CpuId(cpu)).expect("a CPU that has started");
                SimHal.delay_ns(5_000);
            }
        });
        assert_eq!((ppis.on(0), ppis.on(1)), (0, 3), "{version:?} {mode:?}");
        assert_eq!((sgis.on(0), sgis.on(1)), (1, 2), "{version:?} {mode:?}");
        rig.finish();
    }
}

/// With interrupts off an ordinary interrupt waits; a pseudo-NMI does not.
#[test]
fn a_pseudo_nmi_comes_inside_a_masked_section() {
    for mode in [EoiMode::Together, EoiMode::Split] {
        let gic = GicConfig { pseudo_nmi: Some(Priority::DEFAULT.0), ..GicConfig::default() };
        let mut rig = Rig::new(Version::V3, mode, Options { gic, ..Options::default() });
        let log = Arc::new(Mutex::new(Vec::new()));
        let (ordinary_log, nmi_log, section_log) = (log.clone(), log.clone(), log.clone());
        rig.run(move |system| {
            let say = |log: Arc<Mutex<Vec<&'static str>>>, what| {
                Arc::new(Do(move || log.lock().expect("one host thread").push(what)))
            };
            let ordinary = system.spi(40);
            system.core.set_type(ordinary, Trigger::EdgeRising).expect("an SPI can be");
            let busy = Do(move || {
                ordinary_log.lock().expect("one host thread").push("ordinary");
                SimHal.delay_ns(5_000);
                ordinary_log.lock().expect("one host thread").push("ordinary ends");
            });
            system.core.request(ordinary, "ordinary", RequestFlags::default(), Arc::new(busy)).expect("a new line");
            let nmi = system.spi(41);
            system.core.set_type(nmi, Trigger::EdgeRising).expect("an SPI can be");
            system.core.request_nmi(nmi, "nmi", say(nmi_log, "nmi")).expect("a GICv3 can");
        });
        // Both in the masked section; and an NMI inside the ordinary handler.
        for (at_ns, intid) in [(2_000, 40), (3_000, 41), (22_000, 41)] {
            rig.wire(at_ns, PULSE, wire_arg(intid, 0, true));
        }
        rig.run(move |_| {
            let off = SimHal.irq_save();
            SimHal.delay_ns(20_000);
            section_log.lock().expect("one host thread").push("on");
            SimHal.irq_restore(off);
            SimHal.delay_ns(20_000);
        });
        let log = log.lock().expect("one host thread").clone();
        assert_eq!(log, ["nmi", "on", "ordinary", "nmi", "ordinary ends"], "{mode:?}");
        rig.finish();
    }
}

/// A power controller in front of the GIC: it wakes the domain when a line is unmasked, and leaves the rest to its
/// parent.
struct PowerController {
    parent: Arc<dyn IrqDomain>,
    chip: Arc<IrqChip>,
}

/// How a power controller treats ack and eoi.
#[derive(Clone, Copy)]
enum Ends {
    /// It has neither, and leaves both to the GIC.
    Inherits,
    /// It has both, and calls the GIC's.
    Forwards,
    /// It has both, and does not declare that it calls the GIC's.
    Keeps,
}

struct Power {
    awake: AtomicU32,
}

impl Power {
    fn up<R>(level: &Level<'_>, what: impl FnOnce(&IrqChip, &Level<'_>) -> R) -> R {
        let parent = level.parent().expect("the GIC");
        what(parent.chip(), &parent)
    }
    fn ack(&self, level: &Level<'_>) {
        Self::up(level, |chip, level| chip.ack(level));
    }
    fn eoi(&self, level: &Level<'_>) {
        Self::up(level, |chip, level| chip.eoi(level));
    }
    fn mask(&self, level: &Level<'_>) {
        self.awake.store(0, Relaxed);
        Self::up(level, |chip, level| chip.mask(level));
    }
    fn unmask(&self, level: &Level<'_>) {
        self.awake.store(1, Relaxed);
        Self::up(level, |chip, level| chip.unmask(level));
    }
}

impl IrqDomain for PowerController {
    fn name(&self) -> &str {
        "power"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, _: &Level<'_>, _: Target) -> Result<(), IrqError> {
        Ok(())
    }
    fn release(&self, _: HardwareIrq) {}
}

/// `mode` is the GIC's. A chip with an ack in front of a GIC without one does not forward it.
fn power_controller(parent: Arc<dyn IrqDomain>, ends: Ends, mode: EoiMode) -> Arc<PowerController> {
    let power = Arc::new(Power { awake: AtomicU32::new(0) });
    let forwards = matches!(ends, Ends::Forwards);
    let chip = IrqChip::of("power", &power)
        .behaviour(ChipBehaviour { forwards, ..ChipBehaviour::default() })
        .mask(Power::mask, Power::unmask);
    let chip = if matches!(ends, Ends::Inherits) { chip } else { chip.eoi(Power::eoi) };
    let has_ack = match ends {
        Ends::Inherits => false,
        Ends::Forwards => mode == EoiMode::Split,
        Ends::Keeps => true,
    };
    let chip = if has_ack { chip.ack(Power::ack) } else { chip };
    Arc::new(PowerController { parent, chip: chip.build() })
}

/// The published series failed on a nested chip without ack. Here a chip without ack and eoi inherits both, a chip
/// that forwards both works, and a chip that keeps either to itself is refused when the line is allocated.
#[test]
fn a_nested_power_controller_works_or_is_refused_at_allocation() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options { force_threads: true, ..Options::default() });
        let count = Arc::new(Count::default());
        let handler = count.clone();
        let (refused, active) = rig.run(move |system| {
            let gic = system.arm.domain();
            let flow = system.arm.flow();
            let refused = system.core.alloc_line(power_controller(gic.clone(), Ends::Keeps, mode), &request(42), flow);
            let lines = [(40, Ends::Inherits), (41, Ends::Forwards)].map(|(intid, ends)| {
                let line = system.line(power_controller(gic.clone(), ends, mode), intid, flow);
                system.core.request(line, "nested", RequestFlags::default(), handler.clone()).expect("a new line");
                line
            });
            for line in lines.into_iter().cycle().take(6) {
                system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("the GIC keeps it");
                SimHal.delay_ns(10_000);
            }
            let active = lines.map(|line| system.core.irqchip_state(line, IrqChipState::Active).expect("it keeps it"));
            (refused, active)
        });
        let end = if mode == EoiMode::Split { "ack" } else { "eoi" };
        assert_eq!(refused, Err(IrqError::KeepsToItself("power", end)), "{version:?} {mode:?}");
        assert_eq!((count.all(), active), (6, [false; 2]), "{version:?} {mode:?}");
        rig.finish();
    }
}

/// A GPIO block behind one line of the GIC: pins of its own, whose flow changes with their trigger.
struct Gpio {
    irq: AtomicU32,
    acks: AtomicU32,
    masks: AtomicU32,
}

impl Gpio {
    fn ack(&self, _: &Level<'_>) {
        self.acks.fetch_add(1, Relaxed);
    }
    fn mask(&self, _: &Level<'_>) {
        self.masks.fetch_add(1, Relaxed);
    }
    fn unmask(&self, _: &Level<'_>) {}
    fn retrigger(&self, _: &Level<'_>) -> bool {
        false
    }
    fn set_type(&self, _: &Level<'_>, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        Ok(Some(if trigger.is_level() { Flow::Level } else { Flow::Edge }))
    }
}

struct GpioDomain {
    gpio: Arc<Gpio>,
    chip: Arc<IrqChip>,
}

impl GpioDomain {
    fn new(gpio: &Arc<Gpio>) -> Self {
        let chip = IrqChip::of("gpio", gpio)
            .ack(Gpio::ack)
            .mask(Gpio::mask, Gpio::unmask)
            .retrigger(Gpio::retrigger)
            .set_type(Gpio::set_type);
        Self { gpio: gpio.clone(), chip: chip.build() }
    }
}

impl IrqDomain for GpioDomain {
    fn name(&self) -> &str {
        "gpio"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }
    fn needs_identity(&self) -> bool {
        false
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, level: &Level<'_>, _: Target) -> Result<(), IrqError> {
        self.gpio.irq.store(level.irq().0, Relaxed);
        Ok(())
    }
    fn release(&self, _: HardwareIrq) {}
}

#[test]
fn a_gpio_block_changes_its_pins_flow_and_the_gics_line_is_ended_all_the_same() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options::default());
        let count = Arc::new(Count::default());
        let handler = count.clone();
        let gpio = Arc::new(Gpio { irq: AtomicU32::new(0), acks: AtomicU32::new(0), masks: AtomicU32::new(0) });
        let block = gpio.clone();
        let active = rig.run(move |system| {
            let pin = system.line(Arc::new(GpioDomain::new(&block)), 3, Flow::Edge);
            system.core.request(pin, "pin", RequestFlags::default(), handler).expect("a new line");
            let parent = system.spi(40);
            let demultiplex = Arc::new(move |core: &irq::IrqCore<SimHal>| {
                let served = core.handle_irq(irq::Irq(block.irq.load(Relaxed)));
                if served { IrqReturn::Handled } else { IrqReturn::None }
            });
            system.core.request_chained(parent, "gpio", demultiplex).expect("a new line");
            for trigger in [Trigger::EdgeBoth, Trigger::LevelLow, Trigger::EdgeFalling, Trigger::LevelHigh] {
                system.core.set_type(pin, trigger).expect("a GPIO can");
                for _ in 0..2 {
                    system.core.set_irqchip_state(parent, IrqChipState::Pending, true).expect("the GIC keeps it");
                    SimHal.delay_ns(5_000);
                }
            }
            system.core.irqchip_state(parent, IrqChipState::Active)
        });
        assert_eq!((count.all(), gpio.acks.load(Relaxed)), (8, 8), "{version:?} {mode:?}");
        assert_eq!(active, Ok(false), "{version:?} {mode:?}: the parent was ended");
        rig.finish();
    }
}

/// An interrupt without a line is ended once and disabled, even if its wire stays raised.
#[test]
fn a_wire_without_a_line_is_no_storm() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options::default());
        let windows = rig.windows;
        rig.run(move |_| windows.distributor.write32(0x104, 1 << 13));
        rig.wire(1_000, WIRE, wire_arg(45, 0, true));
        let (strays, last, enabled) = rig.run(move |system| {
            SimHal.delay_ns(20_000);
            let enabled = windows.distributor.read32(0x104) & 1 << 13;
            (system.arm.strays(), system.arm.last_stray(), enabled)
        });
        assert_eq!((strays, last, enabled), (1, Some(IntId(45)), 0), "{version:?} {mode:?}");
        assert_eq!(rig.faults(), []);
    }
}

#[test]
fn a_number_out_of_range_is_an_error() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options::default());
        rig.run(move |system| {
            let flow = system.arm.flow();
            // The machine has INTIDs below 96.
            for index in [96, 1019, 1020, 1023, 8192, u32::MAX] {
                let refused = system.core.alloc_line(system.arm.domain(), &request(index), flow);
                assert_eq!(refused, Err(IrqError::Hardware("GIC", "the distributor has no such INTID")));
            }
            assert!(system.core.alloc_line(system.arm.domain(), &request(95), flow).is_ok());
            for intid in [16, 32, 1023] {
                let refused = system.arm.send(IntId(intid), CpuId(0));
                assert_eq!(refused, Err(GicError::NotSoftware(IntId(intid))));
            }
        });
        rig.finish();
    }
}

/// An access to an offset without a register, or of a wrong width: the machine records a fault, and goes on.
#[test]
fn a_wrong_access_is_a_recorded_fault() {
    for (version, mode) in ALL {
        let mut rig = Rig::new(version, mode, Options::default());
        let windows = rig.windows;
        let count = Arc::new(Count::default());
        let handler = count.clone();
        rig.run(move |system| {
            windows.distributor.write64(0x104, 1);
            windows.distributor.read32(0x0e0c);
            windows.cpu_interface.write32(0x0e0c, 1);
            let line = system.spi(40);
            system.core.request(line, "after", RequestFlags::default(), handler).expect("a new line");
            system.core.set_irqchip_state(line, IrqChipState::Pending, true).expect("the GIC keeps it");
            SimHal.delay_ns(5_000);
        });
        assert_eq!(rig.faults().len(), 3, "{version:?}: {:?}", rig.faults());
        assert_eq!(count.all(), 1, "{version:?} {mode:?}");
    }
}

/// The driver for the other version notices the wrong version.
#[test]
fn a_gicv2_is_no_gicv3() {
    let mut rig = Rig::new(Version::V2, EoiMode::Split, Options::default());
    let windows = rig.windows;
    let refused = rig.run(move |_| {
        let region = drivers::gic::Redistributors { regs: windows.redistributors, len_bytes: 0x2_0000, base: 0 };
        let affinity = [drivers::gic::Affinity(0)];
        let (distributor, interface) = (windows.distributor, windows.cpu_interface);
        let gic = drivers::gic::GicV3::new(SimHal, distributor, vec![region], interface, &affinity, EoiMode::Split, 0);
        gic.err()
    });
    assert_eq!(refused, Some(GicError::Revision(0)));
}

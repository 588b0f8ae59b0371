//! The embedded disk on the machine's model: each queue interrupts by its own line, and costs no register access.

use drivers::virtio::block::{BlockOp, BlockRequest};
use example_virtio_irqs::{Disk, DiskError, Requests};
use hal::{Dma as _, Hal as _, Regs as _};
use machine::model::Model;
use machine::virtio::block::{Block, BlockConfig};
use machine::virtio::{Exits, Irqfd, Line, MmioConfig, Trigger, VirtioMmio};
use machine::world::World;
use machine::{Machine, MachineConfig, Regs, SimHal, time::Ps};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Wires: pin n is gate 40h + n.
struct Wires;

impl Model for Wires {
    fn name(&self) -> &str {
        "wires"
    }
    fn event(&mut self, world: &mut World<'_>, _: u32, arg: u64) {
        if arg & 1 != 0 {
            world.interrupt(0, 0x40 + (arg >> 1) as u8, false);
        }
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        u64::MAX
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[derive(Clone, Default)]
struct Ended(Arc<AtomicU64>);

impl Requests for Ended {
    fn ended(&self, tag: u64, ok: bool) {
        assert!(ok, "request {tag}");
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn each_queue_has_its_line() {
    let mut machine = Machine::new(MachineConfig::default());
    let wires = machine.add_model(|_| Box::new(Wires));
    let line = |pin: u64| {
        let (asserted, released) = (pin << 1 | 1, pin << 1);
        Line { controller: wires, code: 0, asserted, released, trigger: Trigger::Edge }
    };
    let config = MmioConfig {
        name: "vda".into(),
        lines: (0..5).map(line).collect(),
        multi_irq: true,
        exits: Exits::default(),
        irqfd: Irqfd::default(),
    };
    let model = Block::new(BlockConfig { queues: 4, ..BlockConfig::default() });
    let model = VirtioMmio::new(config, model).expect("five edges");
    let device = machine.add_model(|_| Box::new(model));
    let regs = machine.regs(device, 0);

    let disk: Arc<OnceLock<Disk<SimHal>>> = Arc::default();
    let taken: Arc<[AtomicU64; 5]> = Arc::default();
    let (gate, counts) = (disk.clone(), taken.clone());
    machine.set_interrupt_entry(move |vector| {
        let vector = usize::from(vector - 0x40);
        counts[vector].fetch_add(1, Relaxed);
        assert!(gate.get().expect("started").interrupt(vector));
        Regs::Lapic.write64(0x80b, 0);
    });

    let ended = Ended::default();
    let requests = ended.clone();
    let boot = move || {
        let line = "root=/dev/vda virtio_mmio.device=4K@0xd0000000:40-44 quiet";
        let map = move |base, bytes| {
            assert_eq!((base, bytes), (0xd000_0000, 4096));
            regs
        };
        let found = Disk::found(SimHal, line, map, 4, requests).unwrap_or_else(|error| panic!("{error:?}"));
        let disk = disk.get_or_init(|| found);
        assert_eq!(disk.lines().iter().map(|line| line.number).collect::<Vec<_>>(), [40, 41, 42, 43, 44]);
        Regs::Lapic.write64(0x80f, 0x1ff);
        disk.start();
        let buffer = SimHal.dma_alloc(4096, 4096).expect("memory");
        for sector in 0..20_u16 {
            let read = BlockRequest {
                tag: sector.into(),
                op: BlockOp::Read,
                sector: sector.into(),
                buffer: buffer.device_address(),
                len_bytes: 512,
            };
            assert_eq!(disk.submit(sector % disk.queues(), &[read]).accepted, 1);
            SimHal.delay_ns(10_000);
        }
    };
    machine.run_boot(Ps::from_ns(1_000_000_000), boot).expect("the kernel boots");
    assert_eq!(ended.0.load(Relaxed), 20);
    assert_eq!(taken.each_ref().map(|count| count.load(Relaxed)), [0, 5, 5, 5, 5], "none of the configuration's");
    let counters = machine.with_any_model(device, |model| model.counters());
    assert!(counters.contains(&("status_reads", 0)) && counters.contains(&("acknowledgements", 0)), "{counters:?}");
}

#[test]
fn a_command_line_without_a_disk_is_an_error() {
    let map = |_, _| -> Regs { panic!("nothing to map") };
    let none = Disk::found(SimHal, "quiet", map, 1, Ended::default()).err();
    assert_eq!(none, Some(DiskError::Description(None)));
    let wrong = Disk::found(SimHal, "virtio_mmio.device=4K@0xd0000000:0", map, 1, Ended::default()).err();
    assert!(matches!(wrong, Some(DiskError::Description(Some(_)))));
}

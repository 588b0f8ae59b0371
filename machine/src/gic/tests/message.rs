//! Messages that raise SPIs and LPIs, and the ITS behind them: commands, tables, configuration, by the words of IHI 0069H.

use super::v3::bring_up;
use crate::Interrupts;
use crate::fabric::port::{RootPort, RootPortConfig};
use crate::gic::{GicConfig, GicWindows, ItsConfig, V2mConfig};
use crate::memory::Dma;
use crate::model::{Model, ModelId, Upstream};
use crate::observe::Fact;
use crate::time::Ps;
use crate::unrest::Unrest;
use crate::world::World;
use crate::{Machine, MachineConfig, SimHal};
use hal::{Dma as _, Hal as _, Regs as _, Word as _};
use std::sync::{Arc, Mutex};

/// Sends data `arg` to `address` as requester `code`.
struct Device {
    to: ModelId,
    address: u64,
}

impl Model for Device {
    fn name(&self) -> &str {
        "device"
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let message = Upstream::Message { requester: code as u16, address: self.address, data: arg as u32 };
        world.upstream(self.to, message);
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    /// Sends at once; the offset is the requester id.
    fn write(&mut self, world: &mut World<'_>, _: u8, offset: u32, _: u8, value: u64) {
        self.event(world, offset, value);
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// A machine whose device sends to `address` through a root port.
fn machine(config: GicConfig, cpus: u32, address: u64) -> (Machine, GicWindows, crate::Regs) {
    machine_with(config, cpus, address, None)
}

/// The same under unrest.
pub(super) fn machine_with(
    config: GicConfig,
    cpus: u32,
    address: u64,
    unrest: Option<Unrest>,
) -> (Machine, GicWindows, crate::Regs) {
    let interrupts = Interrupts::GicV3(config);
    let mut machine = Machine::new(MachineConfig { cpus, interrupts, unrest, ..MachineConfig::default() });
    let gic = machine.gic().expect("it was asked for");
    let credits = machine.gic_credits().clone();
    let port = RootPortConfig {
        name: "port0".into(),
        link_bytes_per_second: 1_000_000_000,
        message_order_time: Ps::from_ns(10),
        waiting_messages_max: 2,
        relaxed_ordering: false,
        id_based_ordering: false,
    };
    let port = machine.add_model(|id| Box::new(RootPort::new(id, gic.model, port, &credits)));
    let device = machine.add_model(|_| Box::new(Device { to: port, address }));
    let device = machine.regs(device, 0);
    (machine, gic, device)
}

fn kinds(machine: &Machine) -> Vec<(&'static str, u64)> {
    machine.faults().0.iter().map(|fault| (fault.kind, fault.count)).collect()
}

pub(super) fn run(mut machine: Machine, test: impl FnOnce() + Send + 'static) -> Vec<(&'static str, u64)> {
    let end = machine.run_boot(Ps::from_ns(1_000_000), move || {
        let _off = SimHal.irq_save();
        test();
    });
    assert_eq!(end, Ok(()));
    kinds(&machine)
}

/// Sends a message and waits until it arrives.
fn send(device: crate::Regs, requester: u32, data: u32) {
    device.write32(requester, data);
    SimHal.delay_ns(1_000);
}

#[test]
fn a_v2m_frame_turns_a_message_into_an_edge() {
    let v2m = Some(V2mConfig { base: 0x0802_0000, first: 40, count: 8 });
    let (machine, gic, device) = machine(GicConfig { spis: 32, v2m, ..GicConfig::default() }, 1, 0x0802_0040);
    let faults = run(machine, move || {
        gic.distributor.write32(0xc08, 0xaaaa_0000);
        bring_up(gic, 0);
        assert_eq!(gic.v2m.read32(0x008), 0x0028_0008);
        send(device, 0x100, 40);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
        gic.cpu_interface.write64(0xc661, 40);
        assert_eq!(gic.cpu_interface.read64(0xc660), 1023);
        // Not of this frame.
        send(device, 0x100, 48);
        assert_eq!(gic.distributor.read32(0x204), 0);
        gic.v2m.write32(0x040, 41);
        assert_eq!(gic.distributor.read32(0x204), 1 << 9);
        gic.v2m.write32(0x008, 0);
        assert_eq!(gic.v2m.read64(0x008), 0);
    });
    assert_eq!(
        faults,
        [
            ("message for an SPI that is not the frame's", 1),
            ("GIC write to a read-only register", 1),
            ("GIC access of a wrong width", 1)
        ]
    );
}

#[test]
fn a_level_sensitive_message_spi_is_pending_until_it_is_cleared() {
    let config = GicConfig { spis: 32, message_spis: true, ..GicConfig::default() };
    let (machine, gic, device) = machine(config, 1, 0x0800_0040);
    let faults = run(machine, move || {
        bring_up(gic, 2);
        assert_eq!(gic.distributor.read32(0x004) >> 16 & 1, 1, "MBIS");
        send(device, 0x100, 40);
        assert_eq!(gic.cpu_interface.read64(0xc660), 40);
        assert_eq!(gic.distributor.read32(0x204), 1 << 8, "still asserted");
        gic.distributor.write32(0x048, 40);
        assert_eq!(gic.distributor.read32(0x204), 0);
        send(device, 0x100, 1000);
        gic.distributor.write32(0x040, 64);
    });
    // INTIDs 1000 and 64 by two requesters.
    assert_eq!(faults, [("message for an SPI that does not exist", 1); 2]);
}

/// An ITS with its tables in memory: device table 64 KiB, collection table 4 KiB, command queue 4 KiB; LPIs of CPU 0 and 1.
pub(super) struct Bench {
    gic: GicWindows,
    queue: Dma,
    properties: Dma,
    pending: Dma,
    translations: Dma,
    devices: Dma,
    collections: Dma,
    next: usize,
}

impl Bench {
    pub(super) fn new(gic: GicWindows) -> Self {
        let memory = |bytes| SimHal.dma_alloc(bytes, 65_536).expect("there is memory");
        let (queue, devices, collections) = (memory(4096), memory(65_536), memory(4096));
        let (properties, pending, translations) = (memory(65_536), memory(2 * 65_536), memory(4096));
        bring_up(gic, 0);
        super::v3::wake(gic, 1);
        for cpu in 0..2 {
            let base = cpu * 0x2_0000;
            gic.redistributors.write64(base + 0x70, properties.device_address().0 | 15);
            gic.redistributors.write64(base + 0x78, pending.device_address().0 + u64::from(cpu) * 65_536);
            gic.redistributors.write32(base, 1);
        }
        gic.its.write64(0x0080, 1 << 63 | queue.device_address().0);
        gic.its.write64(0x0088, 0);
        // 16 pages of 4 KiB, one page of 4 KiB.
        gic.its.write64(0x0100, 1 << 63 | devices.device_address().0 | 15);
        gic.its.write64(0x0108, 1 << 63 | collections.device_address().0);
        gic.its.write32(0x0000, 1);
        Self { gic, queue, properties, pending, translations, devices, collections, next: 0 }
    }

    /// Writes a command.
    pub(super) fn begin(&mut self, words: [u64; 4]) {
        for (index, word) in words.into_iter().enumerate() {
            self.queue.words()[self.next * 4 + index].set(word);
        }
        self.next = (self.next + 1) % 128;
        self.gic.its.write64(0x0088, self.next as u64 * 32);
    }

    /// Writes a command and waits until it is done.
    pub(super) fn command(&mut self, words: [u64; 4]) {
        self.begin(words);
        for _ in 0..100 {
            if self.gic.its.read64(0x0090) == self.next as u64 * 32 {
                return;
            }
            SimHal.delay_ns(10);
        }
        panic!("GITS_CREADR stands at {:#x}", self.gic.its.read64(0x0090));
    }

    /// The configuration byte of an LPI: priority and enable.
    fn configure(&self, intid: usize, byte: u8) {
        self.properties.write8(intid - 8192, byte);
    }

    /// Device 0100h, 4 bits of event; event 5 is LPI 8200 of collection 2, which goes to CPU 0.
    pub(super) fn map(&mut self) {
        let translations = self.translations.device_address().0;
        self.configure(8200, 0xa1);
        self.command([0x0000_0100_0000_0008, 3, 1 << 63 | translations, 0]);
        self.command([9, 0, 0x8000_0000_0000_0002, 0]);
        self.command([0x0000_0100_0000_000a, 8200 << 32 | 5, 2, 0]);
    }
}

pub(super) fn with_its() -> GicConfig {
    GicConfig { spis: 32, its: Some(ItsConfig::default()), ..GicConfig::default() }
}

pub(super) const TRANSLATER: u64 = 0x0808_0000 + 0x1_0040;

#[test]
fn a_message_becomes_an_lpi_without_an_active_state() {
    let (machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        // Eight-byte entries, 16 bits of event, 16 of device.
        assert_eq!(gic.its.read64(0x0008), 0x0001_ef71);
        assert_eq!(gic.its.read32(0x0000), 0x8000_0000, "disabled and quiescent");
        assert_eq!(gic.its.read64(0x0100), 0x0107_0000_0000_0000);
        assert_eq!(gic.distributor.read32(0x004) >> 17 & 0x7d, 0x3d, "LPIs, 16 bits of INTID");
        let mut bench = Bench::new(gic);
        bench.map();
        send(device, 0x100, 5);
        assert_eq!(gic.cpu_interface.read64(0xc660), 8200);
        assert_eq!(gic.cpu_interface.read64(0xc65b), 0xa0);
        // The LPI can be pending again at once: only its priority is active.
        send(device, 0x100, 5);
        assert_eq!(gic.cpu_interface.read64(0xc660), 1023);
        gic.cpu_interface.write64(0xc661, 8200);
        assert_eq!(gic.cpu_interface.read64(0xc660), 8200);
        gic.cpu_interface.write64(0xc664, 0);
        gic.cpu_interface.write64(0xc661, 8200);
    });
    assert_eq!(faults, []);
}

#[test]
fn the_configuration_is_kept_until_inv() {
    let (machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        bench.map();
        bench.configure(8200, 0xa0);
        send(device, 0x100, 5);
        assert_eq!(gic.cpu_interface.read64(0xc660), 8200, "disabled in memory, enabled in the cache");
        gic.cpu_interface.write64(0xc661, 8200);
        bench.command([0x0000_0100_0000_000c, 5, 0, 0]);
        send(device, 0x100, 5);
        assert_eq!(gic.cpu_interface.read64(0xc660), 1023);
        // The LPI was pending all along. INVALL of the collection lets it be signalled.
        bench.configure(8200, 0xa1);
        bench.command([0xd, 0, 2, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc660), 8200);
    });
    assert_eq!(faults, []);
}

#[test]
fn int_clear_movi_movall_and_discard() {
    let (machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        bench.map();
        // INT, CLEAR.
        bench.command([0x0000_0100_0000_0003, 5, 0, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 8200);
        bench.command([0x0000_0100_0000_0004, 5, 0, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
        // Collection 3 goes to CPU 1: a pending LPI moves too. MOVALL brings it back.
        bench.command([9, 0, 0x8000_0000_0001_0003, 0]);
        bench.command([0x0000_0100_0000_0003, 5, 0, 0]);
        bench.command([0x0000_0100_0000_0001, 5, 3, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023, "gone with its event");
        bench.command([0xe, 0, 0x1_0000, 0x0_0000]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 8200);
        // MAPI: event 8193 does not fit in four bits. DISCARD also removes the pending state.
        bench.command([0x0000_0100_0000_0001, 5, 2, 0]);
        bench.command([0x0000_0100_0000_000f, 5, 0, 0]);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
        bench.command([5, 0, 0x1_0000, 0]);
        send(device, 0x100, 5);
    });
    assert_eq!(faults, [("message without a translation", 1)]);
}

/// Disabling LPIs writes the pending table, enabling reads it unless PTZ says that it is zero.
#[test]
fn the_pending_table_keeps_what_is_pending() {
    let (machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        bench.map();
        send(device, 0x100, 5);
        gic.redistributors.write32(0, 0);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
        assert_eq!(bench.pending.read8(8200 / 8), 1);
        let table = bench.pending.device_address().0;
        gic.redistributors.write32(0, 1);
        assert_eq!(gic.cpu_interface.read64(0xc662), 8200);
        gic.redistributors.write32(0, 0);
        gic.redistributors.write64(0x78, 1 << 62 | table);
        gic.redistributors.write32(0, 1);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
        gic.redistributors.write64(0x78, 0);
        assert_eq!(gic.redistributors.read64(0x78), 1 << 62 | table, "not while LPIs are enabled");
    });
    assert_eq!(faults, [("GIC write to a register while it is in use", 1)]);
}

#[test]
fn commands_and_messages_in_error_are_recorded_and_passed_over() {
    let (machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        let table = bench.translations.device_address().0;
        // No command; device ids beyond 16 bits; events of 17 bits; a table nowhere.
        bench.command([0xff, 0, 0, 0]);
        bench.command([0x0001_0000_0000_0008, 3, 1 << 63 | table, 0]);
        bench.command([0x0000_0100_0000_0008, 16, 1 << 63 | table, 0]);
        bench.command([0x0000_0100_0000_0008, 3, 1 << 63 | 0x100, 0]);
        // A redistributor that is not there; a collection beyond the table; a device that is not mapped.
        bench.command([9, 0, 0x8000_0000_0002_0002, 0]);
        bench.command([9, 0, 0x8000_0000_0000_0200, 0]);
        bench.command([0x0000_0200_0000_000a, 8200 << 32 | 5, 2, 0]);
        bench.map();
        // An event beyond 4 bits; an INTID that is no LPI; an event that is not mapped.
        bench.command([0x0000_0100_0000_000a, 8200 << 32 | 16, 2, 0]);
        bench.command([0x0000_0100_0000_000a, 40 << 32 | 6, 2, 0]);
        bench.command([0x0000_0100_0000_0003, 7, 0, 0]);
        // Messages of a stranger, and of an event without a mapping.
        send(device, 0x101, 5);
        send(device, 0x100, 7);
        send(device, 0x100, 5);
        assert_eq!(gic.cpu_interface.read64(0xc660), 8200, "what is right still works");
        // Registers: a pointer beyond the queue, tables while enabled, a read-only register, a register that does not
        // exist.
        gic.its.write64(0x0088, 4096);
        gic.its.write64(0x0080, 0);
        gic.its.write64(0x0090, 0);
        assert_eq!(gic.its.read64(0x00a0), 0);
        gic.its.write32(0x1_0040, 5);
        assert_eq!(gic.its.read64(0x0110), 0, "a table that is not implemented");
        gic.its.write32(0x0000, 0);
        send(device, 0x100, 5);
    });
    let errors: Vec<_> = faults.iter().filter(|(kind, _)| *kind == "ITS command error").collect();
    assert_eq!(errors.iter().map(|(_, count)| count).sum::<u64>(), 10);
    let others: Vec<_> = faults.iter().filter(|(kind, _)| *kind != "ITS command error").copied().collect();
    assert_eq!(
        others,
        [
            ("message without a translation", 1),
            ("message without a translation", 1),
            ("GITS_CWRITER beyond the queue", 1),
            ("GIC write to a register while it is in use", 1),
            ("GIC write to a read-only register", 1),
            ("GIC access of a wrong width", 1),
            ("GIC access to no register", 1),
            ("message for an ITS that is disabled", 1),
        ]
    );
}

/// If software writes into the ITS's tables, the worst result is an error.
#[test]
fn tables_that_software_spoils_are_recorded() {
    let (machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        bench.map();
        for word in [0, u64::MAX, 1 << 63 | 40, 1 << 63 | 0x3_0000_2008] {
            bench.translations.words()[5].set(word);
            send(device, 0x100, 5);
        }
        bench.translations.words()[5].set(1 << 63 | 2 << 32 | 8200);
        for word in [0, u64::MAX, 1 << 63 | 2] {
            bench.collections.words()[2].set(word);
            send(device, 0x100, 5);
        }
        for word in [0, u64::MAX, 1 << 63 | 0x1000] {
            bench.devices.words()[0x100].set(word);
            send(device, 0x100, 5);
        }
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
    });
    assert_eq!(faults, [("message without a translation", 10)]);
}

/// A queue outside of memory stalls; Retry begins again.
#[test]
fn a_queue_outside_of_memory_stalls() {
    let (machine, gic, _) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        gic.its.write64(0x0080, 1 << 63 | 0x1000);
        gic.its.write32(0x0000, 1);
        gic.its.write64(0x0088, 32);
        SimHal.delay_ns(1_000);
        assert_eq!(gic.its.read64(0x0090), 1, "stalled at the first command");
        gic.its.write64(0x0088, 32 | 1);
        SimHal.delay_ns(1_000);
        assert_eq!(gic.its.read64(0x0090), 1);
        gic.its.write32(0x0000, 0);
        assert_eq!(gic.its.read32(0x0000), 0x8000_0000);
    });
    assert_eq!(faults, [("ITS command queue outside of memory", 2)]);
}

/// LPIs of a redistributor with LPIs disabled are lost, and the loss is recorded.
#[test]
fn an_lpi_for_a_disabled_redistributor_is_recorded() {
    let (machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        bench.map();
        gic.redistributors.write32(0, 0);
        send(device, 0x100, 5);
        gic.redistributors.write32(0, 1);
        assert_eq!(gic.cpu_interface.read64(0xc662), 1023);
    });
    assert_eq!(faults, [("LPI for a redistributor that has them disabled", 1)]);
}

/// Three messages at once: the port has places for two at the GIC. None is lost.
#[test]
fn messages_wait_at_the_port_and_none_is_lost() {
    let (mut machine, gic, device) = machine(with_its(), 2, TRANSLATER);
    let end = machine.run_boot(Ps::from_ns(1_000_000), move || {
        let _off = SimHal.irq_save();
        let mut bench = Bench::new(gic);
        bench.map();
        for event in [6, 7] {
            bench.configure(8200 + event, 0xa1);
            let intid = (8200 + event as u64) << 32;
            bench.command([0x0000_0100_0000_000a, intid | event as u64, 2, 0]);
        }
        for event in [5, 6, 7] {
            device.write32(0x100, event);
        }
        SimHal.delay_ns(5_000);
        for intid in [8200, 8206, 8207] {
            assert_eq!(gic.cpu_interface.read64(0xc660), intid);
            gic.cpu_interface.write64(0xc661, intid);
        }
    });
    assert_eq!(end, Ok(()));
    assert_eq!(kinds(&machine), []);
}

/// Addresses that were given back while the GIC used them.
fn given_back_in_use(machine: &mut Machine) -> Arc<Mutex<Vec<u64>>> {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let heard = lost.clone();
    machine.set_observer(move |_, fact| {
        if let Fact::GivenBack { address, .. } = fact {
            heard.lock().expect("one host thread").push(address);
        }
    });
    lost
}

/// The ITS reads a device's table until it has executed the MAPD that unmaps the device, or has another.
#[test]
fn a_table_of_a_mapped_device_is_in_use() {
    let (mut machine, gic, _) = machine(with_its(), 2, TRANSLATER);
    let lost = given_back_in_use(&mut machine);
    let (tell, told) = std::sync::mpsc::channel();
    let faults = run(machine, move || {
        let mut bench = Bench::new(gic);
        let table = || SimHal.dma_alloc(256, 256).expect("there is memory");
        let mapd = |device: u64, table: &Dma| [device << 32 | 8, 3, 1 << 63 | table.device_address().0, 0];
        let (refused, replaced, kept, early) = (table(), table(), table(), table());
        // Devices 2 and 3; a command that the ITS refuses: device ids have 16 bits.
        bench.command(mapd(2, &replaced));
        bench.command(mapd(2, &kept));
        bench.command(mapd(3, &early));
        bench.command(mapd(0x1_0000, &refused));
        drop((refused, replaced));
        bench.begin([3 << 32 | 8, 0, 0, 0]);
        tell.send(early.device_address().0).expect("the test waits");
        drop(early);
        SimHal.delay_ns(1_000);
        bench.command([2 << 32 | 8, 0, 0, 0]);
        drop(kept);
        // The ITS goes on.
        std::mem::forget(bench);
    });
    assert_eq!(faults, [("ITS command error", 1)]);
    assert_eq!(*lost.lock().expect("one host thread"), [told.recv().expect("it ran")]);
}

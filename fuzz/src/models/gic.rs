//! GICv2 and GICv3 with all their parts: distributor, redistributors, CPU interfaces, ITS, message frames.

use super::host::{Bell, Host, Window, gic_costs, on_machine};
use hal::{Hal as _, Regs as _};
use machine::Interrupts;
use machine::gic::{GicConfig, ItsConfig, PULSE, V2mConfig, WIRE, wire_arg};
use machine::model::Upstream;
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, SimHal};

/// Pages of the host's memory: command queue, device table, collection table, translations; then, 64 KiB each,
/// configuration of the LPIs and pending bits of two CPUs.
const QUEUE: u64 = 0;
const DEVICES: u64 = 0x1000;
const COLLECTIONS: u64 = 0x2000;
const TRANSLATIONS: u64 = 0x3000;
const PROPERTIES: u64 = 0x1_0000;
const PENDING: u64 = 0x2_0000;
const ITS: u64 = 0x0808_0000;
const V2M: u64 = 0x0802_0000;

fn config() -> GicConfig {
    GicConfig {
        spis: 64,
        write_pending_time: Ps::from_ns(500),
        costs: gic_costs(),
        v2m: Some(V2mConfig { base: V2M, first: 40, count: 8 }),
        ..GicConfig::default()
    }
}

/// Distributor, CPU interface and v2m frame; after them wires and messages.
pub(crate) fn gicv2(data: &[u8]) {
    let build = |machine: &mut Machine| {
        let gic = machine.gic().expect("it was asked for");
        let mut windows = vec![
            Window::new(gic.distributor, &[0, 0x400, 0x800, 0xc00]),
            Window::new(gic.cpu_interface, &[0, 0x1000]),
            Window::new(gic.v2m, &[0, 0xc00]),
        ];
        windows.extend(outside(machine));
        windows
    };
    on_machine(data, Interrupts::GicV2(config()), build, |host| {
        if !host.input.one_in(8) {
            let (distributor, interface) = (host.windows[0].regs, host.windows[1].regs);
            distributor.write32(0x000, 1);
            interface.write32(0x004, 0xf0);
            interface.write32(0x000, 1 | u32::from(host.input.u8() & 2) << 8);
            distributor.write32(0x104, u32::MAX);
            distributor.write32(0x828, 0x0201_0301);
        }
        while host.goes_on() {
            match host.input.u8() % 4 {
                0 | 1 => host.step(),
                2 => outer(host, 3),
                _ => host.wait(),
            }
        }
    });
}

/// The same of GICv3, with redistributors, the ITS and its commands and tables in memory.
pub(crate) fn gicv3(data: &[u8]) {
    let its = ItsConfig {
        device_bits: 9,
        event_bits: 6,
        intid_bits: 14,
        command_time: Ps::from_ns(50),
        ..ItsConfig::default()
    };
    let config = GicConfig { its: Some(its), message_spis: true, pseudo_nmi: Some(0xa0), ..config() };
    let build = |machine: &mut Machine| {
        let gic = machine.gic().expect("it was asked for");
        let mut windows = vec![
            Window::new(gic.distributor, &[0, 0x400, 0xc00, 0x6000, 0x6100]),
            Window { stride: 1, ..Window::new(gic.cpu_interface, &[0xc230, 0xc640, 0xc658]) },
            Window::new(gic.redistributors, &[0, 0x1_0000, 0x1_0400, 0x2_0000, 0x3_0000]),
            Window::new(gic.its, &[0, 0x80, 0x100, 0x1_0040]),
            Window::new(gic.v2m, &[0, 0xc00]),
        ];
        windows.extend(outside(machine));
        windows
    };
    on_machine(data, Interrupts::GicV3(config), build, |host| {
        let mut next = 0;
        if !host.input.one_in(8) {
            bring_up(host);
            for words in [[8 | 1 << 32, 5, 1 << 63 | host.address(TRANSLATIONS), 0], [9, 0, 1 << 63 | 2, 0]] {
                command(host, &mut next, words);
            }
            for event in 0..4 {
                command(host, &mut next, [0xa | 1 << 32, (8192 + event) << 32 | event, 2, 0]);
            }
        }
        while host.goes_on() {
            match host.input.u8() % 8 {
                0..=2 => host.step(),
                3 | 4 => {
                    let words = any_command(host);
                    command(host, &mut next, words);
                }
                5 | 6 => outer(host, 5),
                _ => host.wait(),
            }
        }
    });
}

/// Groups, priorities and interfaces open; LPIs of both CPUs; the ITS enabled.
fn bring_up(host: &Host<'_>) {
    let [distributor, interface, redistributors, its] = [0, 1, 2, 3].map(|index| host.windows[index].regs);
    distributor.write32(0x000, 0x12);
    for cpu in 0..2 {
        let base = cpu * 0x2_0000;
        redistributors.write32(base + 0x14, 0);
        redistributors.write64(base + 0x70, host.address(PROPERTIES) | 13);
        redistributors.write64(base + 0x78, host.address(PENDING) + u64::from(cpu) * 0x1_0000);
        redistributors.write32(base, 1);
    }
    for (register, value) in [(0xc230, 0xf0), (0xc664, 0), (0xc667, 1)] {
        interface.write64(register, value);
    }
    distributor.write32(0x084, u32::MAX);
    distributor.write32(0x104, u32::MAX);
    host.put(PROPERTIES as usize / 8, &[0xa1a1_a1a1_a1a1_a1a1; 8]);
    its.write64(0x0080, 1 << 63 | host.address(QUEUE));
    its.write64(0x0088, 0);
    its.write64(0x0100, 1 << 63 | host.address(DEVICES));
    its.write64(0x0108, 1 << 63 | host.address(COLLECTIONS));
    its.write32(0x0000, 1);
    SimHal.delay_ns(1_000);
}

/// Writes a command at the next free place, and moves GITS_CWRITER behind it.
fn command(host: &Host<'_>, next: &mut u64, words: [u64; 4]) {
    host.put((QUEUE / 8 + *next * 4) as usize, &words);
    *next = (*next + 1) % 128;
    host.windows[3].regs.write64(0x0088, *next * 32);
}

/// A command that often is nearly right.
fn any_command(host: &mut Host<'_>) -> [u64; 4] {
    let opcode = u64::from(host.input.u8() % 18);
    let device = u64::from(host.input.u8() % 4) << 32;
    let event = u64::from(host.input.u8() % 8);
    let lpi = u64::from(8190 + u32::from(host.input.u8() % 8)) << 32;
    let valid = u64::from(!host.input.one_in(4)) << 63;
    let third = match host.input.u8() % 4 {
        0 => host.value(),
        1 => host.address(TRANSLATIONS) + u64::from(host.input.u8()) * 256,
        _ => u64::from(host.input.u8() % 4) | u64::from(host.input.u8() % 3) << 16,
    };
    let fourth = if host.input.flag() { u64::from(host.input.u8() % 3) << 16 } else { 0 };
    [opcode | device, event | lpi, third | valid, fourth]
}

/// Wires of the GIC, and a device that sends it messages.
fn outside(machine: &mut Machine) -> [Window; 2] {
    let gic = machine.gic().expect("it was asked for").model;
    let pull = move |world: &mut World<'_>, intid: u32, value: u64| {
        let code = if value & 2 != 0 { PULSE } else { WIRE };
        world.schedule_for(gic, world.now(), code, wire_arg(intid, (value >> 2 & 1) as u32, value & 1 != 0));
    };
    let send = move |world: &mut World<'_>, requester: u32, value: u64| {
        let message =
            Upstream::Message { requester: requester as u16, address: value & 0xffff_ffff, data: (value >> 32) as u32 };
        world.upstream(gic, message);
    };
    let wires = machine.add_model(|_| Box::new(Bell(pull)));
    let sender = machine.add_model(|_| Box::new(Bell(send)));
    [wires, sender].map(|model| Window { stride: 1, ..Window::new(machine.regs(model, 0), &[0]) })
}

/// A wire or a message; `wires` is the index of the first of their windows.
fn outer(host: &mut Host<'_>, wires: usize) {
    if host.input.flag() {
        let intid = u32::from(host.input.u8() % 104);
        host.windows[wires].regs.write32(intid, host.input.u8().into());
        return;
    }
    let address = match host.input.u8() % 5 {
        0 => host.value() & 0xffff_ffff,
        1 => V2M + 0x40,
        2 => 0x0800_0040,
        3 => 0x0800_0048,
        _ => ITS + 0x1_0040,
    };
    let data = u64::from(host.input.u8() % 64) << 32;
    host.windows[wires + 1].regs.write64((host.input.u8() % 4).into(), address | data);
}

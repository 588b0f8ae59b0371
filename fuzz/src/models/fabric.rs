//! The VT-d unit, and local APIC, I/O APIC and HPET in front of it.

use super::host::{Bell, Host, Window, on_machine};
use hal::{Hal as _, Regs as _};
use machine::Interrupts;
use machine::fabric::dispatch::Dispatch;
use machine::fabric::hpet::{Hpet, HpetConfig};
use machine::fabric::ioapic::{IoApic, IoApicConfig, PIN, pin_arg};
use machine::fabric::port::Credits;
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::model::{ModelId, Upstream};
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, Regs, SimHal};

/// Pages of the host's memory: remapping table, invalidation queue, posted descriptors.
const TABLE: u64 = 0;
const QUEUE: u64 = 0x1000;
const DESCRIPTORS: u64 = 0x2000;
const PINS: u8 = 24;

fn unit(machine: &mut Machine) -> ModelId {
    let config = VtdConfig {
        name: "dmar0".into(),
        posted_interrupts: true,
        extended_interrupt_mode: true,
        fault_records: 4,
        remap_time: Ps::from_ns(50),
        post_time: Ps::from_ns(100),
        command_time: Ps::from_ns(200),
        invalidation_time: Ps::from_ns(300),
        invalidation_fault: InvalidationFault::None,
    };
    machine.add_model(|_| Box::new(VtdUnit::new(config, Dispatch::new(Ps::from_ns(100)), Credits::default())))
}

/// A device that sends any message as any requester: offset is the requester, value the address and, above, the data.
fn sender(machine: &mut Machine, unit: ModelId) -> Regs {
    let send = move |world: &mut World<'_>, requester: u32, value: u64| {
        let message =
            Upstream::Message { requester: requester as u16, address: value & 0xffff_ffff, data: (value >> 32) as u32 };
        world.upstream(unit, message);
    };
    let bell = machine.add_model(|_| Box::new(Bell(send)));
    machine.regs(bell, 0)
}

/// Registers, invalidation queue, table and descriptors in memory, messages of every format.
pub(crate) fn vtd(data: &[u8]) {
    let build = |machine: &mut Machine| {
        let unit = unit(machine);
        let sender = sender(machine, unit);
        vec![Window::new(machine.regs(unit, 0), &[0, 0x80, 0x100]), Window { stride: 1, ..Window::new(sender, &[0]) }]
    };
    on_machine(data, Interrupts::X2Apic, build, |host| {
        if !host.input.one_in(8) {
            enable(host);
        }
        let mut tail = 1;
        while host.goes_on() {
            match host.input.u8() % 8 {
                0 | 1 => host.step(),
                2 => invalidate(host, &mut tail),
                3 | 4 => entry(host),
                5 => host.wait(),
                _ => message(host),
            }
        }
    });
}

/// Table of 256 entries, queue of a page, an invalidation of everything, remapping on.
fn enable(host: &Host<'_>) {
    let unit = host.windows[0].regs;
    let command = |value| {
        unit.write32(0x18, value);
        SimHal.delay_ns(1_000);
    };
    unit.write64(0xb8, host.address(TABLE) | 0x800 | 7);
    command(0x0100_0000);
    unit.write64(0x88, 0);
    unit.write64(0x90, host.address(QUEUE));
    command(0x0400_0000);
    host.put(QUEUE as usize / 8, &[0x4, 0]);
    unit.write64(0x88, 0x10);
    command(0x0600_0000);
}

/// A descriptor of the invalidation queue, and the tail behind it, or anywhere.
fn invalidate(host: &mut Host<'_>, tail: &mut u64) {
    let kind = u64::from(host.input.u8() % 8);
    let (low, high) = (host.value() & !0xf | kind, host.value());
    host.put((QUEUE / 8 + *tail * 2) as usize, &[low, high]);
    *tail = (*tail + 1) % 256;
    let place = if host.input.one_in(8) { host.value() } else { *tail << 4 };
    host.windows[0].regs.write64(0x88, place);
}

/// An entry of the table, often nearly right: remapped or posted, source checked or not.
fn entry(host: &mut Host<'_>) {
    let index = u64::from(host.input.u8() % 16);
    let flags = u64::from(host.input.u16()) & 0x7fff;
    let vector = u64::from(host.input.u8());
    let at = if host.input.one_in(4) {
        host.value()
    } else {
        host.address(DESCRIPTORS) + u64::from(host.input.u8() % 64) * 64
    };
    let posted = host.input.flag();
    let source = u64::from(host.input.u8() % 4) << 18 | u64::from(host.input.u8() & 3) << 16;
    let (low, high) = if posted {
        ((at & 0xffff_ffc0) << 32 | vector << 16 | 0x8000 | flags, at & 0xffff_ffff_0000_0000 | source)
    } else {
        (at << 40 | vector << 16 | flags & 0x1f, source)
    };
    let present = u64::from(!host.input.one_in(8));
    host.put((TABLE / 8 + index * 2) as usize, &[low | present, high]);
}

/// A message: remappable of some entry, compatible, or anything.
fn message(host: &mut Host<'_>) {
    let handle = u64::from(host.input.u8() % 24);
    let address = match host.input.u8() % 4 {
        0 => host.value() & 0xffff_ffff,
        1 => 0xfee0_0000 | u64::from(host.input.u16()) << 4,
        _ => 0xfee0_0010 | handle << 5 | u64::from(host.input.u8() & 1) << 3,
    };
    let data = u64::from(host.input.u8() % 4) << 32;
    host.windows[1].regs.write64((host.input.u8() & 3).into(), address | data);
}

/// Local APIC, I/O APIC and HPET: registers, pins, timers, and the unit behind them with remapping off.
pub(crate) fn interrupt_controllers(data: &[u8]) {
    let build = |machine: &mut Machine| {
        let unit = unit(machine);
        let ioapic = IoApicConfig { name: "ioapic".into(), requester: 0xf0f8, pins: PINS };
        let ioapic = machine.add_model(|_| Box::new(IoApic::new(unit, ioapic)));
        let hpet = HpetConfig { name: "hpet".into(), requester: 0xf0f0, period_fs: 100_000_000, timers: 1 };
        let hpet = machine.add_model(|_| Box::new(Hpet::new(unit, hpet)));
        let pull = move |world: &mut World<'_>, pin: u32, value: u64| {
            world.schedule_for(ioapic, world.now(), PIN, pin_arg(pin as u8, value & 1 != 0));
        };
        let pins = machine.add_model(|_| Box::new(Bell(pull)));
        vec![
            Window { stride: 1, ..Window::new(Regs::Lapic, &[0x800]) },
            Window::new(machine.regs(ioapic, 0), &[0]),
            Window::new(machine.regs(hpet, 0), &[0, 0x100]),
            Window { stride: 1, ..Window::new(machine.regs(pins, 0), &[0]) },
        ]
    };
    on_machine(data, Interrupts::X2Apic, build, |host| {
        while host.goes_on() {
            let choice = host.input.u8();
            match choice % 8 {
                0..=2 => host.step(),
                3 => {
                    // A redirection entry: the destination in the high half, the rest in the low half.
                    let pin = u32::from(host.input.u8() % PINS) * 2;
                    let (low, high) = (host.value() as u32, u32::from(host.input.u8() & 3) << 24);
                    for (register, value) in [(0x11 + pin, high), (0x10 + pin, low)] {
                        host.windows[1].regs.write32(0, register);
                        host.windows[1].regs.write32(0x10, value);
                    }
                }
                4 => {
                    let pin = (host.input.u8() % (PINS + 1)).into();
                    host.windows[3].regs.write32(pin, host.input.u8().into());
                }
                5 => {
                    // A timer: configuration, comparator, message; and the counter runs.
                    let hpet = host.windows[2].regs;
                    let timer = 0x100 + u32::from(host.input.u8() % 4) * 0x20;
                    hpet.write64(timer, host.input.u16().into());
                    hpet.write64(timer + 8, host.input.u16().into());
                    hpet.write64(timer + 0x10, 0xfee0_0000 << 32 | u64::from(host.input.u8()));
                    hpet.write64(0x10, 1);
                }
                6 => {
                    // IPIs, and the local timer.
                    let (register, value) =
                        (host.input.pick(&[0x830, 0x83f, 0x832, 0x838, 0x83e, 0x808, 0x80b]), host.value());
                    Regs::Lapic.write64(register, value);
                }
                _ => host.wait(),
            }
        }
    });
}

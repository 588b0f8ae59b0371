//! The accelerator (DSA): registers, tables, portals, descriptors that point anywhere.

use super::host::{Bus, Host, Window, on_machine};
use hal::{Hal as _, Regs as _};
use machine::Interrupts;
use machine::dsa::{Config, Dsa};
use machine::{Machine, SimHal};

/// Registers, commands, descriptors on every portal.
pub(crate) fn dsa(data: &[u8]) {
    let build = |machine: &mut Machine| {
        let bus = machine.add_model(|_| Box::new(Bus::default()));
        let config = Config { queues: 4, groups: 2, engines: 2, transfer_shift_max: 14, ..Config::default() };
        let device = machine.add_model(|_| Box::new(Dsa::new(bus, config).expect("valid")));
        let bases: [&'static [u32]; 3] = [&[0, 0x80, 0x400, 0x800, 0x2000], &[0, 0x4000, 0x8000], &[0, 0x40]];
        (0..3).map(|region| Window::new(machine.regs(device, region as u8), bases[region])).collect()
    };
    on_machine(data, Interrupts::X2Apic, build, |host| {
        if !host.input.one_in(8) {
            enable(host);
        }
        while host.goes_on() {
            match host.input.u8() % 8 {
                0 | 1 => host.step(),
                2 => {
                    let code = u32::from(host.input.u8() % 16) << 20;
                    let operand = host.input.pick(&[0, 1, 3, 0x8000_0000, 0x1_0001, 7]);
                    host.windows[0].regs.write32(0xa0, code | operand);
                }
                3 => host.wait(),
                _ => submit(host),
            }
        }
    });
}

fn command(host: &Host<'_>, code: u32, operand: u32) {
    host.windows[0].regs.write32(0xa0, code << 20 | operand);
    SimHal.delay_ns(1_500);
}

/// MSI-X, a group of two queues and an engine, all enabled.
fn enable(host: &Host<'_>) {
    let bar0 = host.windows[0].regs;
    for vector in 0..4 {
        for (field, value) in [(0, 0xfee0_0000), (8, 0x40 + vector), (12, 0)] {
            bar0.write32(0x2000 + vector * 16 + field, value);
        }
    }
    host.windows[2].regs.write32(0x40, 0x8000_0000);
    bar0.write64(0x400, 0b11);
    bar0.write64(0x420, 0b1);
    for queue in 0..2 {
        for (field, value) in [(0, 8), (8, 0x11), (12, 12)] {
            bar0.write32(0x800 + queue * 32 + field, value);
        }
    }
    command(host, 1, 0);
    command(host, 6, 0);
    command(host, 6, 1);
}

/// A descriptor that often is nearly right.
fn submit(host: &mut Host<'_>) {
    let opcode = host.input.pick(&[4, 4, 4, 0, 1, 0xff]) << 56;
    let flags = u64::from(host.input.u8() | 0x0c) << 32;
    let record = if host.input.one_in(4) { host.value() } else { host.place(0, 32) };
    let destination = if host.input.one_in(4) { host.value() } else { host.place(0x8000, 1) };
    let bytes = if host.input.one_in(8) { host.input.u32().into() } else { u64::from(host.input.u16() % 4200) };
    let handle = u64::from(host.input.u8() % 5) << 32;
    let words = [opcode | flags, record, host.value(), destination, bytes | handle, 0, 0, 0];
    let portal = u32::from(host.input.u8() % 3) * 0x4000 + u32::from(host.input.u8() % 4) * 0x1000;
    for (offset, word) in (0..).step_by(8).zip(words) {
        host.windows[1].regs.write64(portal + offset, word);
    }
}

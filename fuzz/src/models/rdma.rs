//! Two RDMA NICs on a wire: registers, doorbells, requests and records in memory.

use super::host::{Bus, Host, Window, on_machine};
use hal::{Hal as _, Regs as _};
use machine::Interrupts;
use machine::rdma::{Config, Nic, Wire};
use machine::{Machine, SimHal};

/// Pages of the host's memory for each NIC: sends, receives, completions, events, and data of requests.
const NIC_BYTES: u64 = 0x8000;
const DATA: u64 = 0x2_0000;

/// Registers of both ends, objects of any kind, requests that name any memory.
pub(crate) fn rdma(data: &[u8]) {
    let build = |machine: &mut Machine| {
        let bus = machine.add_model(|_| Box::new(Bus::default()));
        let wire = Wire::default();
        let config = || Config {
            queue_pairs: 4,
            completion_queues: 4,
            event_queues: 4,
            memory_regions: 4,
            entries_shift_max: 6,
            patience_10us: 2,
            ..Config::default()
        };
        let mut nic = || machine.add_model(|id| Box::new(Nic::new(id, bus, &wire, config()).expect("valid")));
        let nics = [nic(), nic()];
        let bases: [&'static [u32]; 4] =
            [&[0, 0x1000, 0x4000, 0x1_0000, 0x4_0000], &[0, 0x40_0000, 0x80_0000], &[0], &[0, 0x40]];
        let regions = nics.into_iter().flat_map(|nic| (0..4_usize).map(move |region| (nic, region)));
        regions.map(|(nic, region)| Window::new(machine.regs(nic, region as u8), bases[region])).collect()
    };
    on_machine(data, Interrupts::X2Apic, build, |host| {
        if !host.input.one_in(8) {
            (0..2).for_each(|nic| enable(host, nic));
        }
        while host.goes_on() {
            let nic = usize::from(host.input.u8() & 1);
            match host.input.u8() % 8 {
                0 | 1 => host.step(),
                2 | 3 => post(host, nic),
                4 => {
                    // A doorbell of any object, by any amount.
                    let kind = host.input.pick(&[0, 4, 0x40_0000, 0x80_0000]);
                    let (number, value) = (u32::from(host.input.u8() % 5), host.value() as u32);
                    host.windows[nic * 4 + 1].regs.write32(kind + number * 0x1000, value);
                }
                5 => host.wait(),
                _ => object(host, nic),
            }
        }
    });
}

/// A region of all memory, an event queue, a completion queue, and a queue pair connected to the other end's. The
/// control words follow the device's manual: enable is bit 0.
fn enable(host: &Host<'_>, nic: usize) {
    let registers = host.windows[nic * 4].regs;
    let at = host.address(nic as u64 * NIC_BYTES);
    host.windows[nic * 4 + 3].regs.write32(0x40, 0x8000_0000);
    for vector in 0..4 {
        for (field, value) in [(0, 0xfee0_0000), (8, 0x40 + vector), (12, 0)] {
            host.windows[nic * 4 + 2].regs.write32(vector * 16 + field, value);
        }
    }
    registers.write32(0x10, 1);
    SimHal.delay_ns(20_000);
    registers.write64(0x1000, host.address(0));
    registers.write64(0x1008, super::host::MEMORY_BYTES);
    registers.write64(0x1010, 0x0101);
    registers.write64(0x4000, at + 0x3000);
    registers.write32(0x4008, 0x0401);
    registers.write64(0x1_0000, at + 0x2000);
    registers.write64(0x1_0008, at + 0x4000);
    registers.write32(0x1_0010, 0x0401);
    registers.write64(0x4_0000, at);
    registers.write64(0x4_0008, at + 0x1000);
    registers.write64(0x4_0010, 0x0404_0000_0000);
    registers.write32(0x4_0018, 0);
    registers.write32(0x4_001c, 1);
    SimHal.delay_ns(1_000);
}

/// A request in the send queue, or a receive, and its doorbell.
fn post(host: &mut Host<'_>, nic: usize) {
    let entry = u64::from(host.input.u8() % 16);
    let at = nic as u64 * NIC_BYTES;
    let operation = u64::from(host.input.u8() % 4) | u64::from(host.input.u8() & 1) << 8;
    let length = if host.input.one_in(8) { host.input.u32().into() } else { u64::from(host.input.u8()) } << 32;
    let local = if host.input.one_in(4) { host.value() } else { host.place(DATA, 8) };
    let (remote, key) = (host.value(), u64::from(host.input.u16()));
    if host.input.flag() {
        host.put(((at + entry * 64) / 8) as usize, &[operation | length, local, remote, key, entry, 0, 0, 0]);
    } else {
        host.put(((at + 0x1000 + entry * 32) / 8) as usize, &[length >> 32, local, entry, 0]);
    }
    let doorbell = u32::from(host.input.u8() & 1) * 4;
    host.windows[nic * 4 + 1].regs.write32(doorbell, entry as u32 + 1);
}

/// Any of an object's registers, of any object, nearly right.
fn object(host: &mut Host<'_>, nic: usize) {
    let (base, stride) = host.input.pick(&[(0x1000, 0x20), (0x4000, 0x20), (0x1_0000, 0x40), (0x4_0000, 0x40)]);
    let offset = base + u32::from(host.input.u8() % 5) * stride + host.input.pick(&[0, 8, 0x10, 0x14, 0x18, 0x1c]);
    let value = match host.input.u8() % 4 {
        0 => host.value(),
        1 => u64::from(host.input.u8() % 8) << 8 | u64::from(host.input.u8()),
        2 => host.place(0, 0x1000),
        _ => u64::from(host.input.u16()),
    };
    let registers = host.windows[nic * 4].regs;
    if host.input.flag() { registers.write64(offset, value) } else { registers.write32(offset, value as u32) }
}

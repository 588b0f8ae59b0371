use super::*;
use crate::model::{ModelId, Upstream};
use crate::{Machine, MachineConfig};
use hal::Regs as _;

/// Keeps the messages that pass.
#[derive(Default)]
struct Link(Vec<(u16, u64, u32)>);

impl Model for Link {
    fn name(&self) -> &str {
        "link"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, _: &mut World<'_>, _: ModelId, request: Upstream) {
        if let Upstream::Message { requester, address, data } = request {
            self.0.push((requester, address, data));
        }
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// A device whose event `code` signals vector `arg`, and which remembers what is written.
struct Device {
    shell: Shell,
    writes: Vec<(u8, u32, u8, u64)>,
}

impl Function for Device {
    fn shell(&self) -> &Shell {
        &self.shell
    }
    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.shell
    }
    fn on_event(&mut self, world: &mut World<'_>, _code: u32, arg: u64) {
        self.shell.signal(world, arg as u16);
    }
    fn read_bar(&mut self, _: &mut World<'_>, region: u8, offset: u32, _: u8) -> u64 {
        u64::from(region) << 16 | u64::from(offset)
    }
    fn write_bar(&mut self, _: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        self.writes.push((region, offset, width_bytes, value));
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let MessageCounts { sent, pended, lost } = self.shell.message_counts();
        vec![("sent", sent), ("pended", pended), ("lost", lost)]
    }
}

struct Rig {
    machine: Machine,
    link: ModelId,
    device: ModelId,
}

/// A function with three vectors: registers and MSI-X share BAR 0, BAR 2 takes quadwords, BAR 4 any width.
fn rig() -> Rig {
    let identity = Identity {
        vendor: 0x1234,
        device: 0x5678,
        class: 0x01_02_03,
        bars: vec![
            Bar::new(0, 0x4000),
            Bar { writes: Widths::Qword, ..Bar::new(2, 0x1000) },
            Bar { wide: false, reads: Widths::Any, writes: Widths::Any, ..Bar::new(4, 0x100) },
        ],
        msix: MsixPlace { region: 0, table: 0x2000, pending: 0x3000 },
        capabilities: vec![
            Capability { offset: 0x50, words: vec![0x0008_ff09, 0xaa] },
            Capability { offset: 0x60, words: vec![0x0010_0009] },
        ],
    };
    let mut machine = Machine::new(MachineConfig::default());
    let link = machine.add_model(|_| Box::new(Link::default()));
    let place = Place { name: "device".into(), requester: 0x0310, port: link };
    let shell = Shell::new(place, &identity, 3);
    let device = machine.add_model(|_| Box::new(Device { shell, writes: Vec::new() }));
    Rig { machine, link, device }
}

impl Rig {
    fn settle(&mut self) {
        let later = self.machine.now() + crate::time::Ps::from_ns(1_000);
        self.machine.run_until(later);
    }
    fn write32(&mut self, region: u8, offset: u32, value: u32) {
        self.machine.regs(self.device, region).write32(offset, value);
        self.settle();
    }
    fn signal(&mut self, vector: u64) {
        let now = self.machine.now();
        self.machine.poke(self.device, now, 1, vector);
        self.settle();
    }
    fn sent(&mut self) -> Vec<(u16, u64, u32)> {
        self.machine.with_model(self.link, |link: &mut Link| std::mem::take(&mut link.0)).expect("a link")
    }
    fn writes(&mut self) -> Vec<(u8, u32, u8, u64)> {
        self.machine
            .with_model(self.device, |device: &mut Device| std::mem::take(&mut device.writes))
            .expect("a device")
    }
    fn faults(&self) -> Vec<(&'static str, u64, u64)> {
        self.machine.faults().0.iter().map(|fault| (fault.kind, fault.requester, fault.count)).collect()
    }
}

/// Literal words of a type 0 header (PCI 3.0, 6.1) and of the MSI-X capability (6.8.2).
#[test]
fn configuration_space_names_the_function_its_bars_and_its_capabilities() {
    let mut rig = rig();
    let config = rig.machine.regs(rig.device, 3);
    assert_eq!(
        (config.read32(0x00), config.read32(0x04), config.read32(0x08)),
        (0x5678_1234, 0x0010_0006, 0x0102_0300)
    );
    assert_eq!([0x10, 0x14, 0x18, 0x1c, 0x20, 0x24].map(|at| config.read32(at)), [4, 0, 4, 0, 0, 0]);
    assert_eq!((config.read32(0x34), config.read32(0x40)), (0x40, 0x0002_5011), "three vectors");
    assert_eq!((config.read32(0x44), config.read32(0x48)), (0x2000, 0x3000));
    assert_eq!((config.read32(0x50), config.read32(0x54), config.read32(0x60)), (0x0008_6009, 0xaa, 0x0010_0009));
    assert_eq!((config.read32(0xffc), config.read64(0x00)), (0, 0x0010_0006_5678_1234));
    rig.write32(3, 0x40, 0xffff_ffff);
    rig.write32(3, 0x10, 0xffff_ffff);
    assert_eq!((config.read32(0x40), config.read32(0x10)), (0xc002_5011, 4), "enable and function mask alone change");
    assert_eq!(rig.faults(), []);
}

#[test]
fn a_message_is_lost_pended_or_sent_as_the_masks_say() {
    let mut rig = rig();
    rig.signal(1);
    rig.write32(3, 0x40, 0x8000_0000);
    rig.machine.regs(rig.device, 0).write64(0x2010, 0x1_fee0_0000);
    rig.write32(0, 0x2018, 0x41);
    rig.signal(1);
    let bar = rig.machine.regs(rig.device, 0);
    assert_eq!((bar.read32(0x3000), bar.read64(0x2010), rig.sent().len()), (0b10, 0x1_fee0_0000, 0));
    rig.write32(0, 0x3000, 0);
    rig.write32(0, 0x201c, 0);
    assert_eq!((bar.read32(0x3000), rig.sent()), (0, vec![(0x0310, 0x1_fee0_0000, 0x41)]));
    rig.signal(1);
    assert_eq!(rig.sent().len(), 1);
    rig.signal(3);
    let counters = rig.machine.with_any_model(rig.device, |model| model.counters());
    assert_eq!(counters, [("sent", 2), ("pended", 1), ("lost", 2)], "MSI-X off; no such vector");
}

#[test]
fn the_device_gets_what_its_registers_take() {
    let mut rig = rig();
    rig.machine.regs(rig.device, 0).write64(0x1004, 0x2_0000_0001);
    rig.machine.regs(rig.device, 1).write64(0x8, 3);
    rig.machine.regs(rig.device, 2).write8(0x7, 4);
    // Behind the last entry of the table, which has three.
    rig.machine.regs(rig.device, 0).write32(0x2030, 5);
    rig.settle();
    assert_eq!(rig.writes(), [(0, 0x1004, 4, 1), (0, 0x1008, 4, 2), (1, 8, 8, 3), (2, 7, 1, 4), (0, 0x2030, 4, 5)]);
    let read = |region, at| rig.machine.regs(rig.device, region).read64(at);
    assert_eq!((read(0, 0x10), read(1, 8), read(2, 3)), (0x14_0000_0010, 0x1_000c_0001_0008, 0x2_0003));
    assert_eq!(rig.faults(), []);
}

#[test]
fn what_no_register_takes_is_recorded_and_does_nothing() {
    let mut rig = rig();
    let [bar0, bar2, bar4, config, none] = [0, 1, 2, 3, 4].map(|region| rig.machine.regs(rig.device, region));
    // The wrong width, or not aligned.
    bar0.write16(0x10, 1);
    bar0.write32(0x12, 1);
    bar2.write32(0x8, 1);
    bar2.write64(0x4, 1);
    config.write8(0x40, 0xff);
    assert_eq!((bar0.read32(0x12), bar0.read8(0)), (0, 0));
    let width = ("access to a PCI function in a wrong width or alignment", 0x0310);
    // Beyond the end, and where no BAR is.
    bar0.write32(0x4000, 1);
    bar0.write64(0x3ffc, 1);
    none.write32(0, 1);
    assert_eq!((bar0.read32(0x4000), bar4.read16(0xff), none.read64(0)), (u32::MAX, u16::MAX, u64::MAX));
    rig.settle();
    let outside = ("access outside the BARs of a PCI function", 0x0310);
    let mut faults = rig.faults();
    faults.sort_unstable();
    assert_eq!(faults, [(outside.0, outside.1, 6), (width.0, width.1, 7)]);
    assert_eq!(rig.writes(), []);
}

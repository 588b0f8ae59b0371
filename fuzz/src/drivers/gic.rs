//! The GIC drivers against registers that return any value.

use crate::input::Input;
use drivers::gic::its::{Its, ItsConfig, ItsDomain};
use drivers::gic::{Affinity, EoiMode, GicDomain, GicV2, GicV3, Lpis, MessageSpiDomain, Redistributors};
use hal::host::{HostHal, HostRegs};
use hal::{CpuId, CpuSet, Regs};
use irq::{AllocRequest, CoreConfig, Irq, IrqCore, IrqDomain, Level, LevelData, RequesterId, Target};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The input that both sides read from.
struct Script {
    bytes: Vec<u8>,
    at: usize,
}

/// Registers that keep written values, begin as a GIC's do, and sometimes read as something else.
struct Registers {
    script: Arc<Mutex<Script>>,
    values: Mutex<BTreeMap<u32, u64>>,
    len_bytes: u32,
    /// Offsets are numbers, not bytes.
    system: bool,
}

impl Registers {
    fn window(script: &Arc<Mutex<Script>>, len_bytes: u32, values: &[(u32, u64)]) -> HostRegs {
        let values = Mutex::new(values.iter().copied().collect());
        HostRegs::new(Arc::new(Self { script: script.clone(), values, len_bytes, system: false }))
    }

    /// System registers, by their encodings.
    fn system(script: &Arc<Mutex<Script>>, values: &[(u32, u64)]) -> HostRegs {
        let values = Mutex::new(values.iter().copied().collect());
        HostRegs::new(Arc::new(Self { script: script.clone(), values, len_bytes: 0x1_0000, system: true }))
    }

    fn check(&self, offset: u32, bytes: u32) {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.len_bytes);
        assert!(
            inside && (self.system || offset.is_multiple_of(bytes)),
            "{bytes} bytes at {offset:#x} of {:#x}",
            self.len_bytes
        );
    }

    fn read(&self, offset: u32, bytes: u32) -> u64 {
        self.check(offset, bytes);
        let honest = self.values.lock().expect("one thread").get(&offset).copied().unwrap_or(0);
        let mut script = self.script.lock().expect("one thread");
        let mut next = || {
            let byte = script.bytes.get(script.at).copied().unwrap_or(0);
            script.at += 1;
            byte
        };
        let value = match next() {
            0..=191 => honest,
            192..=223 => honest ^ 1 << (next() % 64),
            224..=239 => next().into(),
            _ => u64::from_le_bytes(std::array::from_fn(|_| next())),
        };
        value & (u64::MAX >> (64 - 8 * bytes))
    }

    fn write(&self, offset: u32, bytes: u32, value: u64) {
        self.check(offset, bytes);
        self.values.lock().expect("one thread").insert(offset, value);
    }
}

impl Regs for Registers {
    fn read8(&self, offset: u32) -> u8 {
        self.read(offset, 1) as u8
    }
    fn read16(&self, offset: u32) -> u16 {
        self.read(offset, 2) as u16
    }
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset, 4) as u32
    }
    fn read64(&self, offset: u32) -> u64 {
        self.read(offset, 8)
    }
    fn write8(&self, offset: u32, value: u8) {
        self.write(offset, 1, value.into());
    }
    fn write16(&self, offset: u32, value: u16) {
        self.write(offset, 2, value.into());
    }
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, 4, value.into());
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, 8, value);
    }
}

fn script(data: &[u8]) -> (Input<'_>, Arc<Mutex<Script>>) {
    let (user, device) = data.split_at(data.len() / 2);
    (Input::new(user), Arc::new(Mutex::new(Script { bytes: device.to_vec(), at: 0 })))
}

fn request(index: u32) -> AllocRequest {
    AllocRequest::fixed(RequesterId(index as u16), index, CpuSet::of(CpuId(0)))
}

fn has(level: &Level<'_>, operation: &str) -> bool {
    level.chip().operations().any(|name| name == operation)
}

/// Allocates lines of `domain`, and runs the operations of a core on them.
fn lines(input: &mut Input<'_>, domains: &[Arc<dyn IrqDomain>], handle: &dyn Fn()) {
    let mut taken: Vec<Vec<LevelData>> = Vec::new();
    for _ in 0..64 {
        if input.is_empty() {
            return;
        }
        let at = input.below(taken.len().max(1) as u32) as usize;
        match input.u8() % 8 {
            0 | 1 => {
                // From the CPU's level outwards, as the core does.
                let request = request(input.u16().into());
                let mut chain = vec![domains[input.below(domains.len() as u32) as usize].clone()];
                while let Some(parent) = chain[chain.len() - 1].parent() {
                    chain.push(parent);
                }
                let mut levels = Vec::new();
                for domain in chain.iter().rev() {
                    let Ok(level) = domain.allocate(&request) else { break };
                    levels.insert(0, level);
                }
                if levels.len() == chain.len() {
                    let level = Level::new(Irq(taken.len() as u32), &levels);
                    let _ = chain[0].activate(&level, Target::on(CpuId(0)));
                    taken.push(levels);
                }
            }
            2 if at < taken.len() => {
                let level = Level::new(Irq(at as u32), &taken[at]);
                if has(&level, "set_affinity") {
                    let _ = level.chip().set_affinity(&level, Target::on(CpuId(u32::from(input.u8() % 2))));
                }
                if has(&level, "compose_message") {
                    let _ = level.chip().compose_message(&level);
                }
            }
            3 if at < taken.len() => {
                let level = Level::new(Irq(at as u32), &taken[at]);
                if has(&level, "mask") {
                    level.chip().mask(&level);
                    level.chip().unmask(&level);
                }
            }
            _ => handle(),
        }
    }
}

/// GICv2, with a v2m frame.
pub(crate) fn driver_gicv2(data: &[u8]) {
    let (mut input, script) = script(data);
    let hal = HostHal::manual(2);
    // GICD_TYPER: 96 interrupts, 2 CPUs; ITARGETSR0: CPU 0. GICC_IAR: spurious.
    let distributor = Registers::window(&script, 0x1000, &[(0x004, 0x22), (0x800, 0x0101_0101)]);
    let interface = Registers::window(&script, 0x2000, &[(0x00c, 1023)]);
    let mode = input.pick(&[EoiMode::Together, EoiMode::Split]);
    let Ok(gic) = GicV2::new(hal, distributor, interface, 2, mode) else { return };
    let gic = Arc::new(gic);
    let core = IrqCore::new(hal, CoreConfig::new(2, 64)).expect("a configuration");
    let domain = Arc::new(GicDomain::new(gic.clone()));
    let frame = Registers::window(&script, 0x1000, &[(0x008, 40 << 16 | 8)]);
    let messages = MessageSpiDomain::v2m(gic.clone(), &frame, 0x0802_0000).ok();
    let mut domains: Vec<Arc<dyn IrqDomain>> = vec![domain];
    domains.extend(messages.map(|messages| Arc::new(messages) as Arc<dyn IrqDomain>));
    lines(&mut input, &domains, &|| hal.interrupt(CpuId(0), || gic.handle(&core)));
    let _ = (gic.strays(), gic.stop_cpu());
}

/// GICv3, with redistributors, LPIs and an ITS.
pub(crate) fn driver_gicv3(data: &[u8]) {
    let (mut input, script) = script(data);
    let hal = HostHal::manual(2);
    // GICD_TYPER: 96 interrupts, LPIs, MBIS, 16 bits of INTID. PIDR2: architecture 3.
    let distributor = Registers::window(&script, 0x1_0000, &[(0x004, 0x007b_0002), (0xffe8, 0x30)]);
    // GICR_TYPER: physical LPIs; the second is the last, of CPU 1, and the window has room for a third.
    let len_bytes = 0x6_0000;
    let redistributors = Registers::window(
        &script,
        len_bytes,
        &[(0x0008, 0x01), (0xffe8, 0x30), (0x2_0008, 0x1_0000_0111), (0x2_ffe8, 0x30)],
    );
    let redistributors = vec![Redistributors { regs: redistributors, len_bytes, base: 0x080a_0000 }];
    let interface = Registers::system(&script, &[(0xc660, 1023), (0xc665, 7)]);
    let affinities = [Affinity(0), Affinity(1)];
    let mode = input.pick(&[EoiMode::Together, EoiMode::Split]);
    let Ok(gic) = GicV3::new(hal, distributor, redistributors, interface, &affinities, mode, 16) else { return };
    let gic = Arc::new(gic);
    let core = IrqCore::new(hal, CoreConfig::new(2, 64)).expect("a configuration");
    let domain = Arc::new(GicDomain::new(gic.clone()));
    let mbi = MessageSpiDomain::mbi(gic.clone(), 0x0800_0000, spec::gic::IntId(40), 8).ok();
    let its = Lpis::new(hal, gic.clone()).ok().and_then(|lpis| {
        // GITS_TYPER: entries of 8 bytes, 16 bits of event and device; quiescent; BASER 0 devices, BASER 1 collections.
        let registers = [
            (0x0000, 1 << 31),
            (0x0008, 0x0001_ef71),
            (0x0100, 0x0107_0000_0000_0000),
            (0x0108, 0x0407_0000_0000_0000),
        ];
        let regs = Registers::window(&script, 0x2_0000, &registers);
        Its::new(hal, regs, Arc::new(lpis), ItsConfig { base: 0x0808_0000, events_per_device: 4 }).ok()
    });
    let its = its.map(|its| ItsDomain::new(Arc::new(its)));
    let mut domains: Vec<Arc<dyn IrqDomain>> = vec![domain];
    domains.extend(mbi.map(|mbi| Arc::new(mbi) as Arc<dyn IrqDomain>));
    domains.extend(its.map(|its| Arc::new(its) as Arc<dyn IrqDomain>));
    let handle = || hal.interrupt(CpuId(0), || gic.handle(&core));
    lines(&mut input, &domains, &handle);
    let _ = (gic.strays(), gic.late_writes(), gic.stop_cpu());
}

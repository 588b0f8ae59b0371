//! LPIs and the ITS (IHI 0069H, "The ITS register descriptions", "ITS commands"). `i` is the ITS, `r` the
//! redistributors. Unless a test says otherwise, the ITS has executed every command by the time a test looks.

mod left;
mod silent;
mod tables;

use super::*;
use crate::gic::its::{Its, ItsConfig, ItsDomain};
use crate::gic::{Affinity, EoiMode, GicError, GicV3, Lpis, Redistributors};
use hal::{CpuId, DeviceAddress, Dma, Word};
use irq::{IrqChipState, IrqError, MsiMessage};

const CONFIG: ItsConfig = ItsConfig { base: 0x0808_0000, events_per_device: 4 };
const STALLED: u64 = 1;

/// An ITS that follows CWRITER, and the words that the driver wrote to it.
struct FakeIts {
    log: Arc<Log>,
    /// Set: does nothing at all.
    frozen: Mutex<bool>,
    /// Freezes after so many commands.
    frozen_after: Mutex<Option<u32>>,
    /// Stops at the next commands of this opcode, so often.
    refuses: Mutex<(u8, u32)>,
    /// Of GITS_BASER0, the bits that are read-only, and what they hold.
    fixed: Mutex<(u64, u64)>,
    state: Mutex<(u64, u64, u64)>,
    commands: Mutex<Vec<[u64; 4]>>,
}

impl FakeIts {
    fn follow(&self, writer: u64) {
        if *self.frozen.lock().unwrap() {
            return;
        }
        let mut state = self.state.lock().unwrap();
        let (base, reader, _) = *state;
        let memory = hal().dma_at(DeviceAddress(base & 0xf_ffff_ffff_f000)).unwrap();
        let mut place = reader & !STALLED;
        while place != writer & !0x1f {
            let words = [0, 1, 2, 3].map(|word| memory.words()[place as usize / 8 + word].get());
            let mut refuses = self.refuses.lock().unwrap();
            if refuses.1 != 0 && refuses.0 == words[0] as u8 {
                refuses.1 -= 1;
                place |= STALLED;
                break;
            }
            if words[0] as u8 == 0x08 {
                let table = DeviceAddress(words[2] & 0x000f_ffff_ffff_ff00);
                assert!(hal().dma_at(table).is_some(), "MAPD: the ITS uses the table until then");
            }
            self.commands.lock().unwrap().push(words);
            place = (place + 32) % 4096;
            let mut left = self.frozen_after.lock().unwrap();
            *left = left.map(|left| left - 1);
            if *left == Some(0) {
                *self.frozen.lock().unwrap() = true;
                break;
            }
        }
        state.1 = place;
    }

    fn commands(&self) -> Vec<[u64; 4]> {
        core::mem::take(&mut self.commands.lock().unwrap())
    }

    fn refuse(&self, opcode: u8) {
        self.refuse_times(opcode, 1);
    }

    fn refuse_times(&self, opcode: u8, times: u32) {
        *self.refuses.lock().unwrap() = (opcode, times);
    }
}

impl Regs for FakeIts {
    fn read32(&self, offset: u32) -> u32 {
        self.log.read('i', offset) as u32
    }
    fn write32(&self, offset: u32, value: u32) {
        self.log.write('i', offset, value.into());
    }
    fn read64(&self, offset: u32) -> u64 {
        let state = *self.state.lock().unwrap();
        match offset {
            0x80 => state.0,
            0x90 => state.1,
            0x100 => state.2,
            _ => self.log.read('i', offset),
        }
    }
    fn write64(&self, offset: u32, value: u64) {
        match offset {
            0x80 => self.state.lock().unwrap().0 = value,
            0x100 => {
                let (mask, fixed) = *self.fixed.lock().unwrap();
                self.state.lock().unwrap().2 = value & !mask | fixed;
            }
            0x88 => return self.follow(value),
            _ => {}
        }
        self.log.write('i', offset, value);
    }
}

struct Rig {
    log: Arc<Log>,
    fake: Arc<FakeIts>,
    gic: Arc<GicV3<HostHal>>,
    lpis: Arc<Lpis<HostHal>>,
}

fn rig() -> Rig {
    let log = Arc::new(Log::default());
    log.answer('d', 0x0004, &[0x007b_0001]);
    log.answer('d', 0xffe8, &[0x30]);
    log.answer('r', 0x0_0008, &[0x0000_0000_0000_0000]);
    log.answer('r', 0x2_0008, &[0x0000_0001_0000_0110]);
    // PROPBASER keeps the attribute that the driver checks: inner shareable.
    log.answer('r', 0x0_0070, &[0x400]);
    log.answer('r', 0x2_0070, &[0x400]);
    log.answer('c', 0xc665, &[7]);
    // Quiet; 8 bytes an entry, 16 bits of event and device, 2 collections in hardware.
    log.answer('i', 0x00, &[0x8000_0000]);
    log.answer('i', 0x08, &[0x0201_ef71]);
    let region = Redistributors { regs: log.window('r'), len_bytes: 0x4_0000, base: 0x080a_0000 };
    let affinities = [Affinity(0), Affinity(1)];
    let gic =
        GicV3::new(hal(), log.window('d'), [region].into(), log.window('c'), &affinities, EoiMode::Split, 64).unwrap();
    let gic = Arc::new(gic);
    let lpis = Arc::new(Lpis::new(hal(), gic.clone()).unwrap());
    let fake = Arc::new(FakeIts {
        log: log.clone(),
        frozen: Mutex::new(false),
        frozen_after: Mutex::new(None),
        refuses: Mutex::new((0, 0)),
        state: Mutex::new((0, 0, 0x0107 << 48)),
        // Type 1 (devices), entries of 8 bytes.
        fixed: Mutex::new((0x71f << 48, 0x0107 << 48)),
        commands: Mutex::new(Vec::new()),
    });
    Rig { log, fake, gic, lpis }
}

impl Rig {
    fn its(&self) -> Result<Its<HostHal>, GicError> {
        Its::new(hal(), HostRegs::new(self.fake.clone()), self.lpis.clone(), CONFIG)
    }

    /// With both CPUs as targets.
    fn domain(&self) -> (Arc<Its<HostHal>>, Arc<ItsDomain<HostHal>>) {
        let its = Arc::new(self.its().unwrap());
        its.cpu_online(CpuId(1)).unwrap();
        self.fake.commands();
        (its.clone(), Arc::new(ItsDomain::new(its)))
    }
}

/// The lowest byte of each command: its opcode.
fn opcodes(commands: &[[u64; 4]]) -> Vec<u64> {
    commands.iter().map(|words| words[0] & 0xff).collect()
}

#[test]
fn lpis_are_enabled_when_their_tables_are_known() {
    let rig = rig();
    let log = rig.log.take();
    let enable = log.iter().position(|access| access == "wr 0 1").expect("EnableLPIs");
    let properties = log.iter().position(|access| access.starts_with("wr 70 ")).unwrap();
    let pending = log.iter().position(|access| access.starts_with("wr 78 ")).unwrap();
    assert!(properties < pending && pending < enable);
    assert!(log[properties].ends_with("78d"), "14 bits, inner shareable, write back: {}", log[properties]);
    assert!(log[pending].ends_with("0780") && log[pending].starts_with("wr 78 40"), "PTZ: {}", log[pending]);
}

#[test]
fn a_redistributor_that_others_use_is_refused() {
    let rig = rig();
    rig.log.answer('r', 0x0_0000, &[1]);
    assert_eq!(Lpis::new(hal(), rig.gic.clone()).err(), Some(GicError::LpisEnabled(0)));
    rig.log.answer('r', 0x0_0000, &[0]);
    rig.log.answer('r', 0x0_0070, &[0]);
    assert!(matches!(Lpis::new(hal(), rig.gic).err(), Some(GicError::Missing(_))), "it does not snoop");
}

#[test]
fn an_its_is_enabled_when_it_is_quiet_and_has_its_tables() {
    let rig = rig();
    rig.log.take();
    rig.its().unwrap();
    let writes: Vec<String> = rig.log.take().into_iter().filter(|access| access.starts_with("wi")).collect();
    assert_eq!(writes[0], "wi 0 0");
    assert!(writes[2].starts_with("wi 100 b907") && writes[2].ends_with("47f"), "128 pages: {}", writes[2]);
    assert!(writes[3].starts_with("wi 80 b8") && writes[3].ends_with("400"), "one page: {}", writes[3]);
    assert_eq!(writes[4], "wi 0 1");
    let commands = rig.fake.commands();
    assert_eq!(commands, [[9, 0, 1 << 63, 0], [0xd, 0, 0, 0], [5, 0, 0, 0]], "MAPC, INVALL, SYNC of CPU 0");
}

#[test]
fn an_its_that_does_not_get_quiet_is_an_error() {
    let rig = rig();
    rig.log.answer('i', 0x00, &[0]);
    assert_eq!(rig.its().err(), Some(GicError::Timeout("GITS_CTLR.Quiescent = 1", 10_000_000)));
    let config = ItsConfig { events_per_device: 3, ..CONFIG };
    let odd = Its::new(hal(), HostRegs::new(rig.fake.clone()), rig.lpis.clone(), config).err();
    assert!(matches!(odd, Some(GicError::TooLarge(_, 3, _))));
    // No collection in hardware, and no table for them either.
    rig.log.answer('i', 0x00, &[0x8000_0000]);
    rig.log.answer('i', 0x08, &[0x0001_ef71]);
    assert!(matches!(rig.its().err(), Some(GicError::TooLarge("CPU", 2, 0))));
}

/// Pages of 4 KiB only, for 2^16 devices: of 16 bytes each they fill the 256 pages that GITS_BASERn.Size can say, of 32
/// bytes twice as many.
#[test]
fn a_table_of_more_pages_than_the_register_can_say_is_refused() {
    let rig = rig();
    *rig.fake.fixed.lock().unwrap() = (0x71f << 48 | 3 << 8, 0x010f << 48);
    rig.fake.state.lock().unwrap().2 = 0x010f << 48;
    rig.log.take();
    rig.its().unwrap();
    let writes = rig.log.take();
    let table = writes.iter().rfind(|access| access.starts_with("wi 100 ")).unwrap();
    assert!(table.ends_with("4ff"), "256 pages: {table}");

    *rig.fake.fixed.lock().unwrap() = (0x71f << 48 | 3 << 8, 0x011f << 48);
    rig.fake.state.lock().unwrap().2 = 0x011f << 48;
    let refused = rig.its().err();
    assert_eq!(refused, Some(GicError::TooLarge("number of pages of an ITS table", 512, 257)));
}

#[test]
fn an_event_is_mapped_moved_and_forgotten() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let levels = line(domain.clone(), 9, Target::on(CpuId(0)));
    let commands = rig.fake.commands();
    assert_eq!(opcodes(&commands), [0x08, 0x0a, 0x0c, 0x05], "MAPD, MAPTI, INV, SYNC");
    assert_eq!((commands[0][0] >> 32, commands[0][1]), (0x100, 1), "device 01:00.0, two bits of event");
    assert_eq!(commands[1][1..], [0x2000 << 32, 0, 0], "event 0 is LPI 8192 of collection 0");
    let (chip, level) = chip(&levels);
    assert_eq!(chip.compose_message(&level), Ok(MsiMessage { address: 0x0809_0040, data: 0 }));
    chip.set_affinity(&level, Target::on(CpuId(1))).unwrap();
    assert_eq!(rig.fake.commands(), [[0x0100_0000_0001, 0, 1, 0], [5, 0, 0, 0], [5, 0, 0x1_0000, 0]]);
    assert!(chip.retrigger(&level));
    assert_eq!(opcodes(&rig.fake.commands()), [0x03, 0x05]);
    chip.mask(&level);
    assert_eq!(chip.state(&level, IrqChipState::Masked), Ok(true));
    chip.unmask(&level);
    assert_eq!(opcodes(&rig.fake.commands()), [0x0c, 0x05, 0x0c, 0x05]);
    assert!(matches!(chip.state(&level, IrqChipState::Active), Err(IrqError::NotSupported(_))));
    domain.release(levels[0].hwirq);
    domain.parent().unwrap().release(levels[1].hwirq);
    let commands = rig.fake.commands();
    assert_eq!(opcodes(&commands), [0x0f, 0x05, 0x08], "DISCARD, SYNC, MAPD");
    assert_eq!(commands[2][2] >> 63, 0, "not valid");
}

#[test]
fn the_events_of_a_device_are_counted() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    for _ in 0..4 {
        line(domain.clone(), 0, Target::on(CpuId(0)));
    }
    assert_eq!(domain.allocate(&request(0)).map(|_| ()), Err(IrqError::Exhausted("events of the device", 4)));
    let other = AllocRequest { requester: RequesterId(0x200), ..request(0) };
    assert!(domain.allocate(&other).is_ok());
}

#[test]
fn a_line_that_is_masked_before_it_is_mapped_stays_so() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    let irq = core.alloc_line(domain.clone(), &request(0), Flow::FastEoi).unwrap();
    assert_eq!(opcodes(&rig.fake.commands()), [0x08, 0x0a, 0x0c, 0x05], "no INV of what is not mapped");
    let base = rig.log.take();
    let table = base.iter().find_map(|access| access.strip_prefix("wr 70 ")).unwrap();
    let table = DeviceAddress(u64::from_str_radix(table, 16).unwrap() & 0xf_ffff_ffff_f000);
    let properties = hal().dma_at(table).unwrap();
    assert_eq!(properties.read8(0), 0xc2, "disabled, of the ordinary priority");
    core.request(irq, "quiet", Default::default(), Arc::new(Quiet)).unwrap();
    assert_eq!(properties.read8(0), 0xc3);
    assert_eq!(opcodes(&rig.fake.commands()), [0x0c, 0x05]);
    rig.log.answer('c', 0xc660, &[8192, 1023]);
    rig.log.take();
    rig.gic.handle(&core);
    assert_eq!(rig.log.take(), ["rc c660", "wc c661 2000", "rc c660"], "no DIR with EOImode 1 either");
}

#[test]
fn what_is_left_at_a_cpu_that_goes_moves_along() {
    let rig = rig();
    let (its, domain) = rig.domain();
    its.cpu_offline(CpuId(1), CpuId(0)).unwrap();
    let commands = rig.fake.commands();
    assert_eq!(opcodes(&commands), [0x09, 0x05, 0x0e, 0x05, 0x05]);
    assert_eq!(commands[0][2], 1 << 63 | 1, "collection 1 is at redistributor 0");
    assert_eq!(commands[2][2..], [0x1_0000, 0]);
    let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    let gone = Target::on(CpuId(1));
    assert_eq!(chip.set_affinity(&level, gone), Err(IrqError::Target("ITS", gone)));
    its.cpu_online(CpuId(1)).unwrap();
    assert_eq!(chip.set_affinity(&level, gone), Ok(()));
}

#[test]
fn a_refused_command_is_told_and_those_behind_it_are_done() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    rig.fake.commands();
    rig.fake.refuse(0x01);
    let moved = chip.set_affinity(&level, Target::on(CpuId(1)));
    assert_eq!(moved, Err(IrqError::Hardware("GIC", "the ITS refused a command")));
    assert_eq!(opcodes(&rig.fake.commands()), [5, 5, 5], "a SYNC in its place");
    assert_eq!(chip.set_affinity(&level, Target::on(CpuId(1))), Ok(()), "it runs on");
}

/// The event has moved before the ITS refuses the SYNC behind it, so the driver moves it back.
#[test]
fn an_event_whose_move_fails_half_way_is_where_the_driver_believes_it() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
    let (chip, level) = chip(&levels);
    rig.fake.commands();
    // SYNC.
    rig.fake.refuse(0x05);
    let moved = chip.set_affinity(&level, Target::on(CpuId(1)));
    assert_eq!(moved, Err(IrqError::Hardware("GIC", "the ITS refused a command")));
    let moves: Vec<_> = rig.fake.commands().into_iter().filter(|words| words[0] & 0xff == 0x01).collect();
    // MOVI: the collection is in bits 15:0 of the third word.
    assert_eq!(moves.iter().map(|words| words[2] & 0xffff).collect::<Vec<_>>(), [1, 0]);
}

/// Mask and unmask cannot fail: what the redistributor did not read again would stay as it was for ever.
#[test]
fn a_redistributor_reads_a_configuration_although_the_its_refuses_it_once() {
    for refused in [0x0c, 0x05] {
        let rig = rig();
        let (_its, domain) = rig.domain();
        let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
        let (chip, level) = chip(&levels);
        rig.fake.commands();
        rig.fake.refuse(refused);
        chip.unmask(&level);
        let done = opcodes(&rig.fake.commands());
        assert_eq!(
            done.iter().filter(|&&opcode| opcode == 0x0c).count(),
            1,
            "one INV, {refused:#x} refused: {done:x?}"
        );
        assert_eq!(done.last(), Some(&0x05), "SYNC");
    }
}

/// The ITS refuses INV for good: the CPU reads all of its configurations by INVALL, collection in bits 15:0 of the third word.
#[test]
fn a_redistributor_reads_all_configurations_where_the_its_refuses_one() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let levels = line(domain, 0, Target::on(CpuId(1)));
    let (chip, level) = chip(&levels);
    rig.fake.refuse_times(0x0c, u32::MAX);
    chip.mask(&level);
    let [.., all, sync] = rig.fake.commands()[..] else { panic!("two commands") };
    assert_eq!([all[0] & 0xff, all[2] & 0xffff, sync[0] & 0xff], [0x0d, 1, 0x05]);
}

/// What the ITS still maps would interrupt the next owner of the LPI's number.
/// Defect: INT was sent once, unlike masks: a pending interrupt did not come back.
#[test]
fn an_event_is_raised_although_the_its_refuses_it_once() {
    for refused in [0x03, 0x05] {
        let rig = rig();
        let (_its, domain) = rig.domain();
        let levels = line(domain, 0, Target::on(CpuId(0)));
        let (chip, level) = chip(&levels);
        rig.fake.commands();
        rig.fake.refuse(refused);
        assert!(chip.retrigger(&level), "{refused:#x} was refused");
        let done = opcodes(&rig.fake.commands());
        assert_eq!(done.iter().filter(|&&opcode| opcode == 0x03).count(), 1, "{refused:#x} was refused: {done:x?}");
    }
}

#[test]
fn an_event_is_unmapped_although_the_its_refuses_it_once() {
    for refused in [0x0f, 0x05, 0x08] {
        let rig = rig();
        let (_its, domain) = rig.domain();
        let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
        let (_, level) = chip(&levels);
        rig.fake.commands();
        rig.fake.refuse(refused);
        domain.release(level.hwirq());
        let done = opcodes(&rig.fake.commands());
        let count = |opcode| done.iter().filter(|&&other| other == opcode).count();
        // DISCARD, and MAPD without its table.
        assert_eq!((count(0x0f), count(0x08)), (1, 1), "{refused:#x} was refused: {done:x?}");
    }
}

/// A CPU that has left would keep its pending LPIs, and the events of lines that are shut down.
#[test]
fn a_cpu_leaves_although_the_its_refuses_a_command_once() {
    // MOVI, MAPC, MOVALL, SYNC.
    for refused in [0x01, 0x09, 0x0e, 0x05] {
        let rig = rig();
        let (its, domain) = rig.domain();
        line(domain, 0, Target::on(CpuId(1)));
        rig.fake.commands();
        rig.fake.refuse(refused);
        assert_eq!(its.cpu_offline(CpuId(1), CpuId(0)), Ok(()), "{refused:#x}");
        let commands = rig.fake.commands();
        let done = opcodes(&commands);
        assert!(done.contains(&0x09) && done.contains(&0x0e), "{refused:#x} was refused: {done:x?}");
        let moved = commands.iter().rfind(|words| words[0] & 0xff == 0x01).expect("MOVI");
        assert_eq!(moved[2] & 0xffff, 0, "the event is of collection 0, {refused:#x} was refused");
    }
}

/// An ITS that has mapped an event before it refuses what follows would interrupt the next owner of the LPI's number.
#[test]
fn an_event_whose_mapping_fails_half_way_is_not_mapped() {
    // INV, SYNC; or the ITS stops until the driver has given up.
    for refused in [Some(0x0c), Some(0x05), None] {
        let rig = rig();
        let (_its, domain) = rig.domain();
        let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
        // The device is known: only the event is mapped.
        core.alloc_line(domain.clone(), &request(1), Flow::FastEoi).unwrap();
        rig.fake.commands();
        refused.into_iter().for_each(|opcode| rig.fake.refuse(opcode));
        *rig.fake.frozen.lock().unwrap() = refused.is_none();
        let failed = core.alloc_line(domain.clone(), &request(0), Flow::FastEoi);
        assert!(matches!(failed, Err(IrqError::Hardware("GIC", _))), "{failed:?}");
        *rig.fake.frozen.lock().unwrap() = false;
        if refused.is_none() {
            let reader = rig.fake.state.lock().unwrap().1;
            rig.fake.follow(reader + 3 * 32);
        }
        let line = core.alloc_line(domain.clone(), &request(0), Flow::FastEoi).unwrap();
        assert_eq!(core.free_line(line), Ok(()));
        let mut mapped = std::collections::BTreeSet::new();
        for [opcode, event, ..] in rig.fake.commands() {
            let event = (opcode >> 32, event as u32);
            match opcode & 0xff {
                0x0a => assert!(mapped.insert(event), "{event:x?} was mapped already, {refused:x?} refused"),
                0x0f => assert!(mapped.remove(&event), "{event:x?} was not mapped"),
                _ => {}
            }
        }
        // What could not be discarded is nobody's, and is not given again.
        assert_eq!(mapped.is_empty(), refused.is_some(), "{refused:x?} refused: {mapped:x?}");
    }
}

/// An ITS that keeps the event goes on to send its LPI: neither is another line's.
#[test]
fn what_the_its_does_not_discard_is_given_to_nobody() {
    let rig = rig();
    let (_its, domain) = rig.domain();
    let core = IrqCore::new(hal(), CoreConfig::new(2, 4)).unwrap();
    let numbers = |irq| core.view(irq).unwrap().levels.iter().map(|level| level.hwirq).collect::<Vec<_>>();
    let first = core.alloc_line(domain.clone(), &request(0), Flow::FastEoi).unwrap();
    let kept = numbers(first);
    // DISCARD.
    rig.fake.refuse_times(0x0f, 2);
    core.free_line(first).unwrap();
    let second = core.alloc_line(domain.clone(), &request(0), Flow::FastEoi).unwrap();
    let given = numbers(second);
    assert!(kept.iter().zip(&given).take(2).all(|(kept, given)| kept != given), "{kept:?}, then {given:?}");
}

/// The CPU stays online, so its lines must find it again.
#[test]
fn a_cpu_that_the_its_keeps_is_a_target_still() {
    // MAPC, MOVALL; twice, so that the second try fails too.
    for refused in [0x09, 0x0e] {
        let rig = rig();
        let (its, domain) = rig.domain();
        let levels = line(domain.clone(), 0, Target::on(CpuId(0)));
        let (chip, level) = chip(&levels);
        rig.fake.commands();
        rig.fake.refuse_times(refused, 2);
        assert!(matches!(its.cpu_offline(CpuId(1), CpuId(0)), Err(GicError::Stalled(_))), "{refused:#x}");
        let commands = rig.fake.commands();
        let last = commands.iter().rfind(|words| words[0] & 0xff == 0x09).expect("MAPC");
        assert_eq!(last[2], 1 << 63 | 1 << 16 | 1, "collection 1 is at redistributor 1, {refused:#x} refused");
        assert_eq!(chip.set_affinity(&level, Target::on(CpuId(1))), Ok(()));
    }
}

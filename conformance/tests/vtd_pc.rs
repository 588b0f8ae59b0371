//! A unit with its PC. What an earlier kernel left in the unit: VT-d specification, "Fault Status Register", "Fault Event
//! Control Register"; the earlier kernel is the rig, in the manual's own numbers. And a device that posts by itself behind
//! it: docs/software-posting.md.

mod vtd_rig;

use check::server::poster::{BLOCK_BYTES, Poster, REGION_BLOCK, REGION_CONFIG};
use drivers::apic::{ApicId, ApicMode};
use drivers::posting::{PostingCapability, PostingError};
use hal::{Affinity, CpuId, Hal as _, Regs as _, ThreadSpec, Threads as _, Word as _};
use machine::setback::Setback;
use machine::{Regs, SimHal, Word};
use std::sync::{Arc, Mutex, OnceLock};
use systems::pc::{Apics, Fallback, Path, Pc, PcBuilder, PcCpus, PcError};
use vtd_rig::{CPUS, Options, Rig};

/// FSTS.
const FSTS: u32 = 0x34;
/// FSTS without FRI.
const STATUS: u32 = 0xff;
/// A message in the compatibility format, which a unit in extended mode blocks.
const COMPATIBILITY: u64 = 0xfee0_1000;

fn start(cpus: &Arc<PcCpus<SimHal>>) {
    for cpu in 0..CPUS {
        let done = Arc::new(<Word as hal::Word>::new(0));
        let (over, cpus) = (done.clone(), cpus.clone());
        let body = move || {
            cpus.start_cpu().expect("it comes for the first time");
            over.swap(1);
        };
        let spec = ThreadSpec { name: "start", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
        SimHal.spawn(spec, Box::new(body)).expect("the CPU exists");
        while done.load() == 0 {
            SimHal.relax_on(&done, 0, u64::MAX);
        }
    }
}

type Gates = Arc<OnceLock<Arc<PcCpus<SimHal>>>>;

/// Leads the CPUs' interrupts to the PC that [`try_on`] gives the gates of.
fn open_gates(rig: &mut Rig) -> Gates {
    let gates = Gates::default();
    let entry = gates.clone();
    // 0xfd is the scheduler's own.
    rig.set_handler(move |vector, _| {
        let cpus = entry.get().filter(|_| vector != 0xfd);
        cpus.into_iter().for_each(|cpus| cpus.interrupt(vector));
        cpus.is_some()
    });
    gates
}

/// Tries to bring up a PC that posts, on these units. The requesters whose faults it reports go to `seen`.
fn try_on(units: &[Regs], gates: &Gates, seen: &Faults) -> Result<Pc<SimHal>, PcError> {
    let ids = (0..CPUS).map(ApicId).collect();
    let apics = Apics { regs: Regs::Lapic, mode: ApicMode::X2Apic, ids, timer_hz: 1_000_000_000 };
    let seen = seen.clone();
    let observer = move |_, fault: drivers::vtd::Fault| seen.lock().expect("one thread").push(fault.requester.0);
    let builder = PcBuilder::new(SimHal, apics, 8).demand(Path::Posted).observe_faults(Arc::new(observer));
    units.iter().fold(builder, |builder, &regs| builder.unit(regs)).build(|cpus| {
        assert!(gates.set(cpus.clone()).is_ok(), "once");
        start(cpus);
        Ok::<(), PcError>(())
    })
}

type Faults = Arc<Mutex<Vec<u16>>>;

/// Brings up a PC on the rig's unit, and returns the list of requesters whose faults it reports.
fn bring_up(rig: &mut Rig) -> (Pc<SimHal>, Faults) {
    let (gates, faults, [regs, ..]) = (open_gates(rig), Faults::default(), rig.windows());
    let seen = faults.clone();
    let pc = rig.drive(move || try_on(&[regs], &gates, &seen));
    (pc.expect("the unit is sound"), faults)
}

/// What is left: its name, FSTS, the requesters of its records, and how it comes about.
type Leftover = (&'static str, u32, &'static [u16], fn(&mut Rig));

/// Defects: an old error of the queue failed the set-up; an old fault, or an overflow alone, held back every event.
#[test]
fn faults_of_an_earlier_kernel_hold_back_nothing() {
    let one_record = Options { fault_records: 1, ..Options::default() };
    let leave: [Leftover; 4] = [
        ("PPF, the event open", 0x2, &[0x100], |rig| {
            rig.write32(0x3c, 0x51);
            rig.write32(0x40, COMPATIBILITY as u32);
            rig.write32(0x38, 0);
            rig.message(0x100, COMPATIBILITY, 0x33);
        }),
        ("PFO and PPF", 0x3, &[0x100], |rig| {
            rig.message(0x100, COMPATIBILITY, 0x33);
            rig.message(0x200, COMPATIBILITY, 0x33);
        }),
        ("PFO alone", 0x1, &[], |rig| {
            rig.message(0x100, COMPATIBILITY, 0x33);
            rig.message(0x200, COMPATIBILITY, 0x33);
            // F, bit 127 of the only record.
            let record = (rig.read64(0x08) >> 24 & 0x3ff) as u32 * 16;
            rig.write32(record + 12, 0x8000_0000);
        }),
        // A descriptor of a reserved type.
        ("IQE", 0x10, &[], |rig| rig.invalidate(&[(0xf, 0)])),
    ];
    for (what, status, old, leave) in leave {
        let mut rig = Rig::enabled(one_record.clone());
        leave(&mut rig);
        assert_eq!(rig.read32(FSTS) & STATUS, status, "{what}");
        let (_pc, faults) = bring_up(&mut rig);
        let taken = || std::mem::take(&mut *faults.lock().expect("one thread"));
        assert_eq!((rig.read32(FSTS) & STATUS, taken()), (0, old.to_vec()), "{what}");
        rig.message(0x3a00, COMPATIBILITY, 0x33);
        assert_eq!((rig.read32(FSTS) & STATUS, taken()), (0, vec![0x3a00]), "{what}: the event was sent");
    }
}

/// Defect: it was let post, and the unit blocked every notification (reason 25h).
#[test]
fn no_device_posts_by_itself_behind_a_unit_that_remaps() {
    let (mut rig, poster) =
        Rig::with(Options::default(), |machine, unit| machine.add_model(|_| Box::new(Poster::new(unit, 0x100))));
    let (pc, faults) = bring_up(&mut rig);
    assert!(pc.units()[0].fault_line().is_some(), "somebody may want its count");
    let refused = rig.drive(move || {
        let region = |region| Regs::Model { model: poster, region };
        let capability = PostingCapability::find(&region(REGION_CONFIG)).expect("it posts");
        assert_eq!(capability.fits(BLOCK_BYTES), Ok(()));
        assert_eq!(capability.fits(BLOCK_BYTES - 1), Err(PostingError::Region(0, BLOCK_BYTES, BLOCK_BYTES - 1)));
        let block = pc.posting_block(region(REGION_BLOCK), capability).expect("a sound block");
        pc.posting_domain(0, block).err()
    });
    assert_eq!(refused, Some(PcError::PostsBehindUnit(0)));
    // What the device would send to notify CPU 1.
    rig.message(0x100, COMPATIBILITY, 0xeb);
    assert_eq!(*faults.lock().expect("one thread"), [0x100], "blocked");
}

/// Defect: units that were on when a later step failed stayed on, with their fault events, and their tables were freed.
/// GSTS (1Ch): IRES bit 25, QIES bit 26. FECTL (38h): IM bit 31.
#[test]
fn a_pc_that_does_not_come_up_leaves_its_units_off() {
    let cannot_post = || Options { posted_interrupts: false, ..Options::default() };
    let (mut rig, second) =
        Rig::with(Options::default(), |machine, _| machine.add_model(|_| Box::new(vtd_rig::unit(cannot_post()))));
    let [first, ..] = rig.windows();
    let units = [first, Regs::Model { model: second, region: 0 }];
    let (gates, faults) = (open_gates(&mut rig), Faults::default());
    let (refused, unused, rows) = rig.drive(move || {
        // It spares everything: it only notes memory.
        machine::begin_setback(Setback::NoMemory, u32::MAX);
        let refused = try_on(&units, &gates, &faults).err();
        let rows = gates.get().expect("the CPUs came up").core().interrupts().to_string();
        // The first unit's memory goes with its line, whose vector is kept for as long as a message may be under way.
        SimHal.delay_ns(10_000_000);
        (refused, machine::end_setback().unused, rows)
    });
    assert!(matches!(refused, Some(PcError::Fallback(1, Fallback::Posting(_)))), "{refused:?}");
    assert!(!rows.contains("dmar"), "{rows}");
    let unused: Vec<u64> = unused.iter().map(|range| range.end - range.start).collect();
    assert_eq!(unused, [64; CPUS as usize], "the CPUs, which are up, keep their descriptors, and no more is kept");
    for unit in units {
        let [status, event] = rig.drive(move || [0x1c, 0x38].map(|offset| unit.read32(offset)));
        assert_eq!((status & 0x0600_0000, event >> 31), (0, 1), "{unit:?}");
    }
    assert_eq!(rig.machine.faults().0, []);
}

/// Defect: plain messages were blocked where an earlier kernel had left remapping on (GSTS.IRES), and its unit could not be used, or was
/// not wished for.
#[test]
fn a_unit_that_an_earlier_kernel_left_on_does_not_block_plain_messages() {
    for wish in [Path::Plain, Path::Remapped] {
        let narrow = Options { extended_interrupt_mode: wish == Path::Plain, ..Options::default() };
        let mut rig = Rig::new(narrow);
        rig.enable(0);
        let (gates, [regs, ..]) = (open_gates(&mut rig), rig.windows());
        let policy = rig.drive(move || {
            let ids = (0..CPUS).map(ApicId).collect();
            let apics = Apics { regs: Regs::Lapic, mode: ApicMode::X2Apic, ids, timer_hz: 1_000_000_000 };
            let built = PcBuilder::new(SimHal, apics, 8).unit(regs).wish(wish).build(|cpus| {
                assert!(gates.set(cpus.clone()).is_ok(), "once");
                start(cpus);
                Ok::<(), PcError>(())
            });
            built.map(|pc| pc.policy().units[0].path)
        });
        assert_eq!(policy, Ok(Path::Plain));
        assert_eq!(rig.read32(0x1c) & 0x0200_0000, 0, "{wish:?}");
        rig.message(0x100, COMPATIBILITY, 0x33);
        assert_eq!(rig.read32(FSTS) & STATUS, 0, "{wish:?}: nothing was blocked");
    }
}

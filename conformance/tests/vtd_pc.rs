//! A unit with its PC. What an earlier kernel left in the unit: VT-d specification, "Fault Status Register", "Fault Event
//! Control Register"; the earlier kernel is the rig, in the manual's own numbers. And a device that posts by itself behind
//! it: docs/software-posting.md.

mod vtd_rig;

use check::server::poster::{BLOCK_BYTES, Poster, REGION_BLOCK, REGION_CONFIG};
use drivers::apic::{ApicId, ApicMode};
use drivers::posting::{PostingCapability, PostingError};
use hal::{Affinity, CpuId, Hal as _, ThreadSpec, Threads as _, Word as _};
use machine::{Regs, SimHal, Word};
use std::sync::{Arc, Mutex, OnceLock};
use systems::pc::{Apics, Path, Pc, PcBuilder, PcCpus, PcError};
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

/// Brings up a PC on the rig's unit, and returns the list of requesters whose faults it reports.
fn bring_up(rig: &mut Rig) -> (Pc<SimHal>, Arc<Mutex<Vec<u16>>>) {
    let gates: Arc<OnceLock<Arc<PcCpus<SimHal>>>> = Arc::default();
    let entry = gates.clone();
    // 0xfd is the scheduler's own.
    rig.set_handler(move |vector, _| {
        let cpus = entry.get().filter(|_| vector != 0xfd);
        cpus.into_iter().for_each(|cpus| cpus.interrupt(vector));
        cpus.is_some()
    });
    let faults: Arc<Mutex<Vec<u16>>> = Arc::default();
    let seen = faults.clone();
    let [regs, ..] = rig.windows();
    let ids = (0..CPUS).map(ApicId).collect();
    let pc = rig.drive(move || {
        let apics = Apics { regs: Regs::Lapic, mode: ApicMode::X2Apic, ids, timer_hz: 1_000_000_000 };
        let observer = move |_, fault: drivers::vtd::Fault| seen.lock().expect("one thread").push(fault.requester.0);
        let builder = PcBuilder::new(SimHal, apics, 8).unit(regs).demand(Path::Posted);
        builder.observe_faults(Arc::new(observer)).build(|cpus| {
            assert!(gates.set(cpus.clone()).is_ok(), "once");
            start(cpus);
            Ok::<(), PcError>(())
        })
    });
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

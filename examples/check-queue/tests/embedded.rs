//! The embedded driver on the machine's drive, which holds its interrupts back for 300 µs without reporting it.

use drivers::nvme::{CompletionLook, IoOp, IoRequest, QueueSnapshot};
use example_check_queue::{Disk, Requests, VECTOR};
use hal::{Dma as _, Hal as _, Regs as _};
use machine::model::{Model, ModelId, Upstream};
use machine::nvme::{Config, HiddenCoalescing, Nvme};
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, MachineConfig, Regs, SimHal};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The kernel's one gate.
const GATE: u8 = 0x40;
const BATCH: u64 = 16;
const ROUNDS: u64 = 200;

/// A slot without an IOMMU: data pass unchanged, messages go to LAPIC 0.
struct Slot;

impl Model for Slot {
    fn name(&self) -> &str {
        "slot"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        u64::MAX
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, world: &mut World<'_>, _: ModelId, request: Upstream) {
        match request {
            Upstream::Message { data, .. } => _ = world.interrupt(0, data as u8, false),
            Upstream::Transfer { model, code, arg, .. } => world.schedule_for(model, world.now(), code, arg),
        }
    }
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

struct Ended {
    count: AtomicU64,
    /// Ends by tag: each request must end once.
    seen: Vec<AtomicBool>,
}

impl Requests for Ended {
    fn ended(&self, tag: u64, ok: bool) {
        assert!(ok, "request {tag} failed");
        assert!(!self.seen[tag as usize].swap(true, Relaxed), "request {tag} ended twice");
        self.count.fetch_add(1, Relaxed);
    }
}

/// Reads in batches of 16, one batch every 40 µs while at most 48 reads are in flight. Returns the elapsed time and
/// the queue's snapshot.
fn run(check: CompletionLook) -> (u64, QueueSnapshot) {
    let mut machine = Machine::new(MachineConfig::default());
    let slot = machine.add_model(|_| Box::new(Slot));
    let hidden_coalescing = Some(HiddenCoalescing { entries: 0, time: Ps::from_ns(300_000) });
    let config = Config { vectors: 2, io_queues_max: 1, hidden_coalescing, ..Config::default() };
    let drive = machine.add_model(|_| Box::new(Nvme::new(slot, config).expect("a valid drive")));
    let [bar0, msix, pci] = [0, 1, 2].map(|region| machine.regs(drive, region));
    let disk: Arc<OnceLock<Disk<SimHal>>> = Arc::default();
    let handled = disk.clone();
    machine.set_interrupt_entry(move |_| {
        handled.get().expect("only this disk interrupts").interrupt();
        Regs::Lapic.write64(0x80b, 0);
    });
    let boot = move || {
        // The kernel's own work: enable the LAPIC, write the MSI-X entry with its gate, enable MSI-X.
        Regs::Lapic.write64(0x80f, 0x1ff);
        for (offset, value) in [(0, 0xfee0_0000), (4, 0), (8, u32::from(GATE)), (12, 0)] {
            msix.write32(u32::from(VECTOR) * 16 + offset, value);
        }
        pci.write32(0x40, 0x8000_0000);
        let ended = Arc::new(Ended {
            count: AtomicU64::new(0),
            seen: (0..BATCH * ROUNDS).map(|_| AtomicBool::new(false)).collect(),
        });
        let made = Disk::new(SimHal, bar0, ended.clone(), check).expect("the drive comes up");
        let disk = disk.get_or_init(|| made);
        let memory = SimHal.dma_alloc(4096, 4096).expect("memory");
        let begin_ns = SimHal.now_ns();
        for round in 0..ROUNDS {
            let request = |index| IoRequest {
                tag: round * BATCH + index,
                op: IoOp::Read,
                lba: index,
                buffer: memory.device_address(),
                len_bytes: disk.block_bytes(),
            };
            let batch: Vec<_> = (0..BATCH).map(request).collect();
            while (round + 1) * BATCH - ended.count.load(Relaxed) > 48 {
                SimHal.delay_ns(1_000);
            }
            assert_eq!(disk.submit(&batch).refused, None);
            SimHal.delay_ns(40_000);
        }
        while ended.count.load(Relaxed) < BATCH * ROUNDS {
            SimHal.delay_ns(10_000);
        }
        (SimHal.now_ns() - begin_ns, disk.snapshot())
    };
    let result = machine.run_boot(Ps::from_ns(1_000_000_000), boot).expect("every request ends");
    assert_eq!(machine.faults().0, []);
    result
}

#[test]
fn the_check_takes_what_the_drive_holds_back() {
    let (without_ns, off) = run(CompletionLook::Off);
    let (with_ns, auto) = run(CompletionLook::Auto);
    assert_eq!((off.submission.looks, off.completion.look_entries), (0, 0), "{off}");
    assert!(auto.completion.look_entries > BATCH * ROUNDS / 4, "{auto}");
    assert!(with_ns * 4 < without_ns * 3, "{with_ns} ns with the look, {without_ns} ns without");
}

//! The NVMe driver against a hostile drive.

use super::hostile::{Driver, Hostile, Ledger, against_hostile, memory};
use drivers::message::MessageSource as _;
use drivers::nvme::{BatchDone, Completed, Config, Controller, IoOp, IoRequest, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixTable};
use hal::Dma as _;
use irq::MsiMessage;
use machine::nvme::{self as model, Latency, Nvme, Spread, StorageKind};
use machine::time::Ps;
use machine::{Regs, SimHal};
use std::sync::Arc;

impl BatchDone for Ledger {
    fn batch_done(&self, batch: &[Completed]) {
        batch.iter().for_each(|done| self.ended(done.tag));
    }
}

const BUFFER_BYTES: usize = 64 << 10;

fn config() -> model::Config {
    let mut config = model::Config {
        blocks: 0x1000,
        io_queues_max: 2,
        vectors: 3,
        queue_entries_max: 64,
        storage: StorageKind::Memory,
        ..model::Config::default()
    };
    let fixed = |us: u64| Latency { mean: Ps::from_ns(us * 1000), spread: Spread::Fixed, tail: None };
    (config.timing.read, config.timing.write, config.timing.flush) = (fixed(5), fixed(3), fixed(1));
    config.timing.enable = Ps::from_ns(5_000);
    config.timing.admin = Ps::from_ns(500);
    config
}

/// Bring-up, I/O, queues that come and go, resets, while the device lies. Every request that was accepted ends exactly
/// once.
pub(crate) fn driver_nvme(data: &[u8]) {
    let build = |machine: &mut machine::Machine, bus, mischief: &_| {
        let drive = Nvme::new(bus, config()).expect("valid");
        let drive = machine.add_model(|_| Box::new(Hostile::new(drive, bus, mischief)));
        [0, 1, 2].map(|region| machine.regs(drive, region))
    };
    against_hostile(data, build, |driver, regs| {
        let _ = session(driver, regs);
    });
}

fn session(driver: &mut Driver<'_>, [bar, table, config]: [Regs; 3]) -> Option<()> {
    // The capability may declare 2,048 entries in 32 KiB.
    let capability = MsixCapability::find(&config).ok().filter(|capability| capability.fits(0x8000).is_ok())?;
    let table = MsixTable::enable(config, table, capability);
    for entry in 0..capability.entries.min(3) {
        table.write(entry, MsiMessage { address: 0xfee0_0000, data: 0x40 + entry });
        table.unmask(entry);
    }
    let config = Config { queue_pairs: 2, admin_timeout_ns: 2_000_000, admin_entries: 8, ..Config::default() };
    let controller = Controller::new(SimHal, bar, config).ok()?;
    let buffer = memory(BUFFER_BYTES);
    let ledger = Arc::new(Ledger::default());
    let mut pairs: Vec<Arc<QueuePair<SimHal>>> = Vec::new();
    while driver.goes_on() {
        match driver.input.u8() % 16 {
            0 => {
                let vector = driver.input.flag().then(|| u16::from(driver.input.u8() % 4));
                let config = QueueConfig { entries: 8, vector, transfer_bytes_max: 16 << 10 };
                if let Ok(pair) = controller.create_queue_pair(config, ledger.clone()) {
                    pairs.push(pair);
                    driver.serve(pairs.iter().map(|pair| pair.clone() as Arc<dyn irq::Action>).collect());
                }
            }
            1 => {
                let qid = u16::from(driver.input.u8() % 3);
                if controller.delete_queue_pair(qid).is_ok() {
                    pairs.retain(|pair| pair.qid() != qid);
                }
            }
            2 => {
                let _ = controller.reset();
            }
            3 => driver.wait(),
            4 => {
                let _ = (controller.check_health(), controller.snapshot().to_string());
            }
            5 => pairs.iter().for_each(|pair| _ = pair.snapshot().to_string()),
            _ => submit(driver, &pairs, &ledger, buffer.device_address()),
        }
    }
    // Whatever a reset returns, commands have ended.
    let _ = (controller.shutdown(), controller.reset());
    ledger.all_ended();
    Some(())
}

fn submit(driver: &mut Driver<'_>, pairs: &[Arc<QueuePair<SimHal>>], ledger: &Ledger, buffer: hal::DeviceAddress) {
    if pairs.is_empty() {
        return;
    }
    let pair = &pairs[driver.input.below(pairs.len() as u32) as usize];
    let count = usize::from(driver.input.u8() % 4) + 1;
    let first = ledger.offer(count);
    let requests: Vec<_> = (first..first + count as u64)
        .map(|tag| IoRequest {
            tag,
            op: driver.input.pick(&[IoOp::Read, IoOp::Write, IoOp::Flush, IoOp::Deallocate]),
            lba: driver.input.u16().into(),
            buffer: buffer.offset(u64::from(driver.input.u16()) & 0x3ffc),
            len_bytes: u32::from(driver.input.u8()) * 256,
        })
        .collect();
    ledger.accept(first, pair.submit(&requests).accepted);
}

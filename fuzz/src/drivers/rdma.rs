//! The RDMA driver against a hostile NIC at its end of the wire.

use super::hostile::{Driver, Hostile, against_hostile, memory};
use drivers::rdma::{
    Completion, CompletionQueue, CqConfig, CqContext, CqUse, CqUser, Device, DeviceConfig, PostReceive, PostSend,
    QpConfig, QueuePair,
};
use hal::{CpuId, Dma as _, Regs as _};
use irq::moderation::Setting;
use irq::poll::{PollConfig, SoftPoll};
use machine::rdma::{Config, Nic, Wire};
use machine::{Machine, Regs, SimHal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts requests that end.
#[derive(Default)]
struct Count(AtomicUsize);

impl CqUser for Count {
    fn completions(&self, batch: &[Completion]) {
        self.0.fetch_add(batch.len(), Relaxed);
    }
}

/// Both ends brought up and connected; sends, receives, polls, arming, moderation, events. A poll takes no more than its
/// budget, whatever the device has written.
pub(crate) fn driver_rdma(data: &[u8]) {
    let build = |machine: &mut Machine, bus, mischief: &_| {
        let wire = Wire::default();
        let nic = |id| Nic::new(id, bus, &wire, Config::default()).expect("valid");
        let hostile = machine.add_model(|id| Box::new(Hostile::new(nic(id), bus, mischief)));
        let honest = machine.add_model(|id| Box::new(nic(id)));
        [hostile, honest].map(|nic| [0, 1, 2, 3].map(|region| machine.regs(nic, region)))
    };
    against_hostile(data, build, |driver, regs| {
        let _ = session(driver, regs);
    });
}

struct End {
    device: Device<SimHal>,
    queue: Arc<CompletionQueue<SimHal>>,
    pair: Arc<QueuePair<SimHal>>,
}

fn end(regs: [Regs; 4]) -> Option<End> {
    let [registers, doorbells, table, config] = regs;
    config.write32(0x40, 0x8000_0000);
    for entry in 0..2 {
        for (field, value) in [(0, 0xfee0_0000), (8, 0x40 + entry), (12, 0)] {
            table.write32(entry * 16 + field, value);
        }
    }
    let ready = DeviceConfig { event_queues: 2, ready_timeout_ns: 100_000 };
    let device = Device::new(SimHal, registers, doorbells, ready).ok()?;
    let config = CqConfig { entries: 64, event_queue: 1, owner: CqUse::Exclusive };
    let queue = device.open_cq(config, Arc::new(Count::default()), None).ok()?;
    let pair = device.open_qp(QpConfig { sends: 16, receives: 16 }, &queue, &queue).ok()?;
    Some(End { device, queue, pair })
}

fn session(driver: &mut Driver<'_>, regs: [[Regs; 4]; 2]) -> Option<()> {
    let [ours, theirs] = regs.map(end);
    let (ours, theirs) = (ours?, theirs?);
    ours.pair.connect(theirs.pair.number()).ok()?;
    theirs.pair.connect(ours.pair.number()).ok()?;
    let buffer = memory(8192);
    let events = ours.device.event_queue(1)?.clone();
    let mut soft = SoftPoll::new(SimHal, 1, PollConfig::default()).expect("a budget");
    let id = soft.add(CpuId(0), 64, ours.queue.clone(), None).expect("a weight");
    let soft = Arc::new(soft);
    events.attach(&ours.queue, CqContext::SoftPoll(soft.clone(), id));
    driver.serve(vec![events.clone(), events.clone()]);
    while driver.goes_on() {
        let end = if driver.input.flag() { &ours } else { &theirs };
        let (count, id) = (driver.input.u8() % 4 + 1, driver.input.u8().into());
        let (local, bytes) =
            (buffer.device_address().offset(u64::from(driver.input.u8()) * 8), driver.input.u8().into());
        match driver.input.u8() % 8 {
            0 => {
                for _ in 0..count {
                    let _ = end.pair.post_receive(&PostReceive { id, local, bytes });
                }
                end.pair.ring_receives();
            }
            1 | 2 => {
                for _ in 0..count {
                    let _ = end.pair.post_send(&PostSend { id, local, bytes, remote: None, signalled: true });
                }
                end.pair.ring_sends();
            }
            3 => assert!(end.queue.poll_direct(count.into()) <= count.into(), "more than the budget"),
            4 => _ = end.queue.arm(),
            5 => _ = end.queue.set_moderation(Setting::new(bytes, count.into())),
            6 => {
                end.pair.sends_ended(count.into());
                end.pair.receives_ended(count.into());
            }
            _ => driver.wait(),
        }
        soft.interrupt(|| ());
        let _ = (events.counters(), ours.queue.counters(), ours.pair.has_failed());
    }
    ours.device.shutdown();
    theirs.device.shutdown();
    Some(())
}

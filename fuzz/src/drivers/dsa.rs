//! The accelerator's driver against a hostile device.

use super::hostile::{Driver, Hostile, Ledger, against_hostile, memory};
use drivers::dsa::{BatchDone, Completed, Config, Device, Fill, GroupConfig, Next, QueueConfig, WorkQueue};
use hal::Dma as _;
use irq::Action;
use machine::dsa::{self as model, Dsa};
use machine::{Regs, SimHal};
use std::sync::Arc;

impl BatchDone for Ledger {
    fn batch_done(&self, batch: &[Completed], _next: &mut Next) {
        batch.iter().for_each(|done| self.ended(done.tag));
    }
}

/// Bring-up, fills, queues that open and close, recovery. Every fill that was accepted ends exactly once.
pub(crate) fn driver_dsa(data: &[u8]) {
    let build = |machine: &mut machine::Machine, bus, mischief: &_| {
        let config = model::Config { transfer_shift_max: 16, ..model::Config::default() };
        let device = Dsa::new(bus, config).expect("valid");
        let device = machine.add_model(|_| Box::new(Hostile::new(device, bus, mischief)));
        [0, 1, 2].map(|region| machine.regs(device, region))
    };
    against_hostile(data, build, |driver, regs| {
        let _ = session(driver, regs);
    });
}

fn session(driver: &mut Driver<'_>, [bar0, bar2, config]: [Regs; 3]) -> Option<()> {
    hal::Regs::write32(&config, 0x40, 0x8000_0000);
    for entry in 0..4 {
        for (field, value) in [(0, 0xfee0_0000), (8, 0x40 + entry), (12, 0)] {
            hal::Regs::write32(&bar0, 0x2000 + entry * 16 + field, value);
        }
    }
    let queue = |index| {
        let interrupt = (index == 0).then_some(1);
        QueueConfig { index, entries: 8, interrupt, priority: 1, transfer_bytes_max: 4096 }
    };
    let groups = vec![GroupConfig { queues: vec![queue(0), queue(1)], engines: vec![0] }];
    let device = Arc::new(Device::new(SimHal, bar0, bar2, Config { groups, command_timeout_ns: 200_000 }).ok()?);
    let ledger = Arc::new(Ledger::default());
    let buffer = memory(8192);
    let mut queues: Vec<Arc<WorkQueue<SimHal>>> = Vec::new();
    while driver.goes_on() {
        let index = driver.input.u8() % 2;
        match driver.input.u8() % 16 {
            0 | 1 => {
                if let Ok(queue) = device.open_queue(index, ledger.clone()) {
                    queues.push(queue);
                    let served = |queue: &Arc<WorkQueue<SimHal>>| queue.clone() as Arc<dyn Action>;
                    driver.serve(std::iter::once(device.clone() as _).chain(queues.iter().map(served)).collect());
                }
            }
            2 => {
                if device.close_queue(index).is_ok() {
                    queues.retain(|queue| queue.index() != index);
                }
            }
            3 => _ = device.recover_queue(index, 1_000),
            4 => _ = device.errors(),
            5 => queues.iter().for_each(|queue| _ = queue.snapshot().to_string()),
            6 | 7 => queues.iter().for_each(|queue| _ = queue.poll()),
            8 | 9 => driver.wait(),
            _ => submit(driver, &queues, &ledger, buffer.device_address()),
        }
    }
    // Whatever a shutdown returns, the fills have ended. If it failed, the device still owns their memory.
    if device.shutdown().is_err() {
        std::mem::forget(device.clone());
    }
    ledger.all_ended();
    Some(())
}

fn submit(driver: &mut Driver<'_>, queues: &[Arc<WorkQueue<SimHal>>], ledger: &Ledger, buffer: hal::DeviceAddress) {
    if queues.is_empty() {
        return;
    }
    let queue = &queues[driver.input.below(queues.len() as u32) as usize];
    let count = usize::from(driver.input.u8() % 4) + 1;
    let first = ledger.offer(count);
    let fills: Vec<_> = (first..first + count as u64)
        .map(|tag| Fill {
            tag,
            pattern: u64::from(driver.input.u8()),
            destination: buffer.offset(u64::from(driver.input.u16()) % 4096),
            bytes: u32::from(driver.input.u16()) % 4200,
        })
        .collect();
    ledger.accept(first, queue.submit(&fills).accepted);
}

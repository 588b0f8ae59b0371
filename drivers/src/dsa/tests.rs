//! The words that the driver writes to the device, checked offset by offset against literal words. `conformance` tests
//! the data path against the model.

use super::*;
use crate::testing::Script;
use alloc::vec;
use hal::host::HostHal;
use hal::{Dma as _, Word as _};
use irq::{Action as _, Irq, IrqReturn};
use std::sync::Arc;

fn config() -> Config {
    let queue = QueueConfig { index: 2, entries: 16, interrupt: Some(3), priority: 10, transfer_bytes_max: 4096 };
    Config { groups: vec![GroupConfig { queues: vec![queue], engines: vec![1, 3] }], command_timeout_ns: 5_000 }
}

/// A device of 8 queues with 128 entries, 4 groups, 4 engines; GRPCFG at 400h, WQCFG at 500h.
fn script() -> (Arc<Script>, hal::host::HostRegs) {
    let (script, regs) = Script::new();
    script.answer(0x00, &[0x100]);
    script.answer(0x10, &[0x0000_0010_801f_0000]);
    script.answer(0x20, &[0x0002_0000_0008_0080]);
    script.answer(0x30, &[4]);
    script.answer(0x38, &[4]);
    script.answer(0x40, &[0x11]);
    script.answer(0x60, &[0x0000_0006_0005_0004]);
    (script, regs)
}

fn open(regs: hal::host::HostRegs, config: Config) -> Result<Device<HostHal>, DsaError> {
    let (_, portals) = Script::new();
    Device::new(HostHal::manual(1), regs, portals, config)
}

#[test]
fn bring_up_writes_the_manuals_words() {
    let (script, regs) = script();
    open(regs, config()).expect("a device");
    let expected = [
        // Reset Device.
        (0xa0, 32, 0x0050_0000),
        // Group 0: queue 2, engines 1 and 3.
        (0x400, 64, 0b100),
        (0x408, 64, 0),
        (0x410, 64, 0),
        (0x418, 64, 0),
        (0x420, 64, 0b1010),
        (0x428, 32, 0),
        // Queue 2: size, threshold, dedicated with priority 10, transfers of 2^12.
        (0x540, 32, 16),
        (0x544, 32, 16),
        (0x548, 32, 0xa1),
        (0x54c, 32, 12),
        // Errors and halts interrupt; Enable Device.
        (0x88, 32, 3),
        (0xa0, 32, 0x0010_0000),
    ];
    assert_eq!(script.writes(), expected);
}

#[test]
fn devices_that_cannot_be_driven_are_refused() {
    let cases: [(u32, u64, DsaError); 6] = [
        (0x00, 0xffff_ffff, DsaError::Gone),
        (0x00, 0x200, DsaError::Version(0x200)),
        (0x10, 0x001f_0000, DsaError::Lacks("a configuration that can be written (GENCAP bit 31)")),
        (0x20, 0x0001_0000_0008_0080, DsaError::Lacks("dedicated work queues (WQCAP bit 49)")),
        (0x40, 0x09, DsaError::Lacks("memory fill (OPCAP bit 4)")),
        (0xa8, 0xffff_ffff, DsaError::Gone),
    ];
    for (offset, value, expected) in cases {
        let (script, regs) = script();
        script.answer(offset, &[value]);
        assert_eq!(open(regs, config()).err(), Some(expected), "{offset:#x} reads {value:#x}");
    }
}

#[test]
fn a_command_that_fails_or_never_ends_is_an_error() {
    use spec::dsa::registers::{Command, CommandError};
    let (script, regs) = script();
    script.answer(0xa8, &[0, 0x8000_0000]);
    assert_eq!(open(regs, config()).err(), Some(DsaError::Timeout(Command::RESET_DEVICE, 5_000)));
    let (script, regs) = self::script();
    script.answer(0xa8, &[0, 0x8000_0000, 0, 0, 0x15]);
    assert_eq!(open(regs, config()).err(), Some(DsaError::Command(Command::ENABLE_DEVICE, CommandError(0x15))));
}

#[test]
fn a_wrong_configuration_is_refused_before_the_device_is_touched() {
    let change = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        let (script, regs) = script();
        let error = open(regs, config).err().expect("an error");
        assert_eq!(script.writes(), [], "{error}");
        error
    };
    let queue = |config: &mut Config| config.groups[0].queues[0].clone();
    assert_eq!(change(|c| c.groups[0].queues[0].index = 8), DsaError::TooMany("a queue's number", 8, 7));
    assert_eq!(change(|c| c.groups[0].queues[0].priority = 16), DsaError::TooMany("a queue's priority", 16, 15));
    assert_eq!(change(|c| c.groups[0].queues[0].priority = 0), DsaError::Zero("a queue's priority"));
    assert_eq!(change(|c| c.groups[0].queues[0].entries = 0), DsaError::Zero("a queue's number of entries"));
    assert_eq!(
        change(|c| c.groups[0].queues[0].entries = 129),
        DsaError::TooMany("the number of entries of all queues", 129, 128)
    );
    assert_eq!(
        change(|c| c.groups[0].queues[0].transfer_bytes_max = 0x8000_0001),
        DsaError::TooMany("a queue's longest transfer", 0x8000_0001, 0x8000_0000)
    );
    assert_eq!(change(|c| c.groups[0].engines[0] = 4), DsaError::TooMany("an engine's number", 4, 3));
    assert_eq!(change(|c| c.groups[0].engines[0] = 3), DsaError::Twice("engine", 3));
    assert_eq!(change(|c| c.groups[0].engines.clear()), DsaError::EmptyGroup(0));
    let twice = {
        let mut config = config();
        let queue = queue(&mut config);
        config.groups.push(GroupConfig { queues: vec![queue], engines: vec![0] });
        let (_, regs) = script();
        open(regs, config).err()
    };
    assert_eq!(twice, Some(DsaError::Twice("work queue", 2)));
}

/// A record's first byte is its status, 1 for success (DSA, "Completion Record").
#[test]
fn an_interrupt_that_a_poll_has_overtaken_is_the_queues_own_once() {
    struct Ignore;
    impl BatchDone for Ignore {
        fn batch_done(&self, _: &[Completed], _: &mut Next) {}
    }
    let (hal, (portal, portals)) = (HostHal::manual(1), Script::new());
    let config = QueueConfig { index: 0, entries: 4, interrupt: Some(3), priority: 1, transfer_bytes_max: 4096 };
    let queue = WorkQueue::new(hal, Arc::new(portals), &config, Arc::new(Ignore)).expect("memory");
    queue.set_open(true);
    let complete_one = || {
        let fill = Fill { tag: 0, destination: hal::DeviceAddress(0x1000), bytes: 64, pattern: 0 };
        assert_eq!(queue.submit(&[fill]).accepted, 1);
        let record = portal.writes()[1].2;
        hal.dma_at(hal::DeviceAddress(record)).expect("a record").words()[0].set(1);
    };
    let handle = || queue.handle(Irq(0));
    complete_one();
    assert_eq!(queue.poll(), 1);
    assert_eq!([handle(), handle()], [IrqReturn::Handled, IrqReturn::None], "its interrupt, and a stray");
    complete_one();
    assert_eq!(queue.poll() + queue.poll(), 1);
    complete_one();
    assert_eq!([handle(), handle()], [IrqReturn::Handled, IrqReturn::None], "one for both");
    let counters = queue.snapshot().counters;
    assert_eq!((counters.interrupts, counters.empty_interrupts, counters.overtaken_interrupts), (4, 3, 1));
}

//! Bring-up against a device that agrees to some things only.

use super::*;
use crate::virtio::{Cause, QueueMemory, Rung};
use alloc::vec;
use hal::host::HostHal;
use std::sync::Mutex;

/// What the device did, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Did {
    Status(u8),
    Accept(u64),
    MapConfiguration(u16),
    MapQueue(u16, u16),
    Start(u16, u16),
}

/// A device with `queues` queues that gives vectors below `gives` of the `vectors` that it says it has.
struct Fake {
    offered: Features,
    vectors: u16,
    gives: u16,
    has_single: bool,
    queues: u16,
    status: Mutex<u8>,
    /// The status reads back these bits only.
    keeps: u8,
    /// And these read as 1.
    stuck: u8,
    did: Mutex<Vec<Did>>,
    /// Of the interrupts that it raises.
    cause: Cause,
}

impl Fake {
    fn new(vectors: u16, gives: u16) -> Self {
        let offered = Features::of(&[Feature::VERSION_1, Feature::MULTI_IRQ, Feature::EVENT_IDX, Feature::IN_ORDER]);
        let (status, did) = (Mutex::new(0), Mutex::default());
        let cause = Cause::NONE;
        Self { offered, vectors, gives, has_single: true, queues: 3, status, keeps: 0xff, stuck: 0, did, cause }
    }

    fn note(&self, did: Did) {
        self.did.lock().unwrap().push(did);
    }

    fn did(&self) -> Vec<Did> {
        core::mem::take(&mut self.did.lock().unwrap())
    }
}

impl Transport for Fake {
    fn device_id(&self) -> DeviceId {
        DeviceId::BLOCK
    }
    fn features(&self) -> Features {
        self.offered
    }
    fn accept(&self, features: Features) {
        self.note(Did::Accept(features.0));
    }
    fn status(&self) -> Status {
        Status::from_bits(*self.status.lock().unwrap() & self.keeps | self.stuck)
    }
    fn set_status(&self, status: Status) {
        *self.status.lock().unwrap() = status.into_bits();
        self.note(Did::Status(status.into_bits()));
    }
    fn config8(&self, _: u32) -> u8 {
        0
    }
    fn config16(&self, _: u32) -> u16 {
        0
    }
    fn config32(&self, _: u32) -> u32 {
        0
    }
    fn config_generation(&self) -> u32 {
        self.did.lock().unwrap().push(Did::Status(0));
        self.did.lock().unwrap().len() as u32
    }
    fn queue_entries_max(&self, queue: u16) -> u16 {
        if queue < self.queues { 100 } else { 0 }
    }
    fn start_queue(&self, queue: u16, memory: &QueueMemory) -> Result<(), VirtioError> {
        self.note(Did::Start(queue, memory.entries));
        Ok(())
    }
    fn reset_queue(&self, _: u16) {}
    fn queue_is_reset(&self, _: u16) -> bool {
        false
    }
    fn notify(&self, _: u16) {}
    fn vector_feature(&self) -> Features {
        Features::of(&[Feature::MULTI_IRQ])
    }
    fn vectors(&self) -> u16 {
        self.vectors
    }
    fn has_single(&self) -> bool {
        self.has_single
    }
    fn map_configuration(&self, vector: u16) -> u16 {
        self.note(Did::MapConfiguration(vector));
        if vector < self.gives { vector } else { NO_VECTOR }
    }
    fn map_queue(&self, queue: u16, vector: u16) -> u16 {
        self.note(Did::MapQueue(queue, vector));
        if vector < self.gives { vector } else { NO_VECTOR }
    }
    fn interrupt(&self, _: Interrupt) -> Cause {
        self.cause
    }
}

fn open_fake(fake: &Fake, count: u16) -> Result<Session<HostHal>, VirtioError> {
    let wish = |queue| QueueWish { queue, entries: 4000, interrupts: true };
    let queues = |_: &dyn Transport, _| Ok((0..count).map(wish).collect());
    let wants =
        Wants { device: DeviceId::BLOCK, features: Features::NONE, policy: VectorPolicy::Ladder, queues: &queues };
    open(HostHal::manual(1), fake, &wants, Ok)
}

/// Counts what its driver is told: interrupts of queues, and changes of the configuration.
#[derive(Default)]
struct Told(Mutex<[u32; 2]>);

impl Served for Told {
    fn queue_interrupt(&self, _: u16) {
        self.0.lock().unwrap()[0] += 1;
    }
    fn configuration_changed(&self) {
        self.0.lock().unwrap()[1] += 1;
    }
}

/// VIRTIO 4.2.2.1: InterruptStatus names either cause, or both.
#[test]
fn an_interrupt_of_either_cause_is_the_devices_own() {
    for (queues, configuration) in [(true, false), (false, true), (true, true), (false, false)] {
        let transport: Arc<dyn Transport> =
            Arc::new(Fake { cause: Cause { queues, configuration }, ..Fake::new(0, 0) });
        let map =
            VectorMap { rung: Rung::Single, configuration: NO_VECTOR, queues: vec![(0, NO_VECTOR), (1, NO_VECTOR)] };
        let told = Arc::new(Told::default());
        let handled = handlers(HostHal::manual(1), &transport, &map, &told)[0].handle(Irq(7)) == IrqReturn::Handled;
        assert_eq!(handled, queues || configuration);
        assert_eq!(*told.0.lock().unwrap(), [2 * u32::from(queues), u32::from(configuration)]);
    }
}

/// VERSION_1 (32), EVENT_IDX (29), and MULTI_IRQ (44) or not; what nobody asked for (IN_ORDER, 35) is not accepted.
const PLAIN: u64 = 0x1_2000_0000;
const MULTI: u64 = 0x1001_2000_0000;

/// Reset, ACKNOWLEDGE, DRIVER, features, FEATURES_OK.
fn negotiated(features: u64) -> Vec<Did> {
    vec![Did::Status(0), Did::Status(1), Did::Status(3), Did::Accept(features), Did::Status(11)]
}

#[test]
fn queues_are_mapped_before_they_start_and_driver_ok_is_not_set_yet() {
    let fake = Fake::new(3, 3);
    let session = open_fake(&fake, 2).expect("a device");
    assert_eq!((session.map.rung, session.features.0), (Rung::Each, MULTI));
    let rest = [
        Did::MapConfiguration(0),
        Did::MapQueue(0, 1),
        // The largest power of two within the device's 100.
        Did::Start(0, 64),
        Did::MapQueue(1, 2),
        Did::Start(1, 64),
    ];
    assert_eq!(fake.did(), [&negotiated(MULTI)[..], &rest].concat());
    start(&fake);
    assert_eq!(fake.did(), [Did::Status(15)]);
}

/// MULTI_IRQ 3.2, rule 1: read back NO_VECTOR, go down one rung, from a reset.
#[test]
fn a_vector_refused_is_the_next_rung() {
    let fake = Fake::new(9, 2);
    assert_eq!(open_fake(&fake, 3).map(|session| session.map.rung), Ok(Rung::Shared));
    let did = fake.did();
    assert_eq!(did.iter().filter(|&&did| did == Did::Accept(MULTI)).count(), 2);
    assert_eq!(did.iter().rev().find(|did| matches!(did, Did::MapQueue(..))), Some(&Did::MapQueue(2, 1)));

    let fake = Fake::new(9, 0);
    let session = open_fake(&fake, 3).expect("one interrupt");
    assert_eq!((session.map.rung, session.features.0), (Rung::Single, PLAIN), "the feature is not accepted");
    let last = fake.did().split_off(12);
    let starts = [Did::Start(0, 64), Did::Start(1, 64), Did::Start(2, 64)];
    assert_eq!(last, [&negotiated(PLAIN)[..], &starts].concat(), "nothing is mapped");
}

/// MSI-X that is on takes the INTx line away: mapped to no vector, such a device would never interrupt.
#[test]
fn without_a_single_interrupt_beside_vectors_a_device_that_refuses_them_is_not_driven() {
    let fake = Fake { has_single: false, ..Fake::new(9, 2) };
    assert_eq!(open_fake(&fake, 3).map(|session| session.map.rung), Ok(Rung::Shared));
    let fake = Fake { has_single: false, ..Fake::new(9, 1) };
    assert_eq!(open_fake(&fake, 3).err(), Some(VirtioError::NoVector(Some(0))));
    assert_eq!(fake.did().last(), Some(&Did::Status(0x8b)), "FAILED");
}

#[test]
fn what_no_driver_can_work_with_is_marked_failed() {
    let legacy = Fake { offered: Features::NONE, ..Fake::new(1, 1) };
    let lacks = VirtioError::Lacks(Features::of(&[Feature::VERSION_1]));
    assert_eq!(open_fake(&legacy, 1).err(), Some(lacks));
    assert_eq!(legacy.did().last(), Some(&Did::Status(0x83)), "FAILED");

    let stubborn = Fake { keeps: 0xf7, ..Fake::new(1, 1) };
    assert_eq!(open_fake(&stubborn, 1).err(), Some(VirtioError::FeaturesRefused(Features(PLAIN))));

    let short = Fake::new(1, 1);
    assert_eq!(open_fake(&short, 4).err(), Some(VirtioError::NoQueue(3)));
    assert_eq!(short.did().last(), Some(&Did::Status(0x8b)));

    let other = Wants {
        device: DeviceId::NET,
        features: Features::NONE,
        policy: VectorPolicy::Ladder,
        queues: &|_, _| Ok(Vec::new()),
    };
    let untouched = Fake::new(1, 1);
    let found = open(HostHal::manual(1), &untouched, &other, Ok).err();
    assert_eq!(found, Some(VirtioError::Device(DeviceId::BLOCK, DeviceId::NET)));
    assert_eq!(untouched.did(), [], "it is for another driver");
}

/// VIRTIO 3.1.1: FAILED is bit 7.
#[test]
fn a_device_that_is_given_up_is_marked_as_failed_whatever_went_wrong() {
    let unstable = || VirtioError::ConfigUnstable(16);
    let wants =
        |queues| Wants { device: DeviceId::BLOCK, features: Features::NONE, policy: VectorPolicy::Single, queues };
    let fake = Fake::new(1, 1);
    let none: &WishList<'_> = &|_, _| Ok(Vec::new());
    let built = open(HostHal::manual(1), &fake, &wants(none), |_| Err::<(), _>(unstable()));
    assert_eq!((built.err(), fake.did().last()), (Some(unstable()), Some(&Did::Status(0x8b))));

    let fake = Fake::new(1, 1);
    let wished = open(HostHal::manual(1), &fake, &wants(&|_, _| Err(VirtioError::ConfigUnstable(16))), |_| Ok(()));
    assert_eq!((wished.err(), fake.did().last()), (Some(unstable()), Some(&Did::Status(0x8b))));

    // DEVICE_NEEDS_RESET for ever: it does not come out of its reset.
    let stuck = Fake { stuck: 0x40, ..Fake::new(1, 1) };
    let reset = open(HostHal::manual(1), &stuck, &wants(none), |_| Ok(()));
    assert_eq!(reset.err(), Some(VirtioError::ResetTimeout(1_000_000_000)));
    assert_eq!(stuck.did().last(), Some(&Did::Status(0xc0)));
}

#[test]
fn what_never_ends_has_a_deadline() {
    let hal = HostHal::manual(1);
    let hangs = Fake { status: Mutex::new(0xff), ..Fake::new(1, 1) };
    assert_eq!(wait(hal, || hangs.status() == Status::new()), Err(1_000_000_000));
    assert!(hal.now_ns() >= 1_000_000_000);
    // Its generation changes with every look.
    assert_eq!(read_config(&hangs, || 7), Err(VirtioError::ConfigUnstable(16)));
}

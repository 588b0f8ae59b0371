//! One block device on the MMIO transport: registers scripted by literal offsets, rings written by hand.

use super::*;
use crate::testing::Script;
use crate::virtio::tests::{EIGHT, mmio};
use hal::DeviceAddress;
use hal::host::HostHal;

struct Ends;

impl BatchDone for Ends {
    fn batch_done(&self, _: u16, _: &[Completed]) {}
}

struct Rig {
    hal: HostHal,
    script: Arc<Script>,
    block: Arc<Block<HostHal>>,
}

impl Rig {
    /// A device of 64 sectors with one queue of 8 entries. It offers VIRTIO_F_VERSION_1 (32) and VIRTIO_F_RING_RESET (40).
    fn new() -> Self {
        let (script, transport) = mmio(1 << 40 | 1 << 32, 0, 0, EIGHT);
        script.answer(0x008, &[2]);
        script.answer(0x034, &[8]);
        script.answer(0x100, &[64]);
        // It is negotiated twice. The status is 0 when the reset is over, and has FEATURES_OK at the end.
        script.answer(0x010, &[0, 0x101, 0, 0x101]);
        script.answer(0x070, &[0, 0x0b, 0, 0x0b]);
        script.answer(0x044, &[0, 1]);
        let hal = HostHal::manual(1);
        let config = BlockConfig { policy: VectorPolicy::Single, ..BlockConfig::default() };
        let block = Block::open(hal, Arc::new(transport), &config, Arc::new(Ends)).expect("a device");
        block.start();
        Self { hal, script, block }
    }

    /// The addresses that the device was told since the last call: descriptors, available ring, used ring.
    fn rings(&self) -> [DeviceAddress; 3] {
        let writes = self.script.writes();
        let last = |at| writes.iter().rfind(|&&(offset, ..)| offset == at).expect("it was told").2;
        [0x80, 0x90, 0xa0].map(|low| DeviceAddress(last(low + 4) << 32 | last(low)))
    }

    fn are_memory(&self, rings: [DeviceAddress; 3]) -> [bool; 3] {
        rings.map(|address| self.hal.dma_at(address).is_some())
    }

    /// Recovers the queue of a device whose QueueReady (44h) reads `ready` before the driver writes it, and behind that.
    fn recover(&self, ready: [u64; 2]) -> Result<(), VirtioError> {
        self.script.answer(0x044, &ready);
        self.block.recover(0)
    }
}

/// VIRTIO 2.6.1: only a queue whose reset is over uses no memory. QueueReady that reads 0 does not say so: the device may be
/// late, or wrong.
#[test]
fn rings_of_a_queue_that_did_not_become_ready_stay_until_its_next_reset() {
    let rig = Rig::new();
    let first = rig.rings();
    assert_eq!(rig.recover([0, 0]), Err(VirtioError::QueueNotReady(0)));
    let second = rig.rings();
    assert_eq!(rig.are_memory(second), [true; 3]);
    let request = BlockRequest { tag: 7, op: BlockOp::Read, sector: 0, buffer: DeviceAddress(0x4000), len_bytes: 512 };
    assert_eq!(rig.block.submit(0, &[request]).refused, Some(Refusal::Stopped));

    // It was late: the queue is ready by itself behind the next reset. The device is told nothing more.
    assert_eq!(rig.recover([1, 1]), Err(VirtioError::QueueInUse(0)));
    assert_eq!(rig.are_memory(second), [true; 3]);

    assert_eq!(rig.recover([0, 0]), Err(VirtioError::QueueNotReady(0)));
    let third = rig.rings();
    assert_eq!((rig.are_memory(second), rig.are_memory(third)), ([false; 3], [true; 3]));

    assert_eq!(rig.recover([0, 1]), Ok(()));
    assert_eq!(rig.are_memory(rig.rings()), [true; 3]);
    assert_eq!([first, second, third].map(|rings| rig.are_memory(rings)), [[false; 3]; 3], "nothing is kept for ever");
    assert_eq!(rig.block.submit(0, &[request]).refused, None);
}

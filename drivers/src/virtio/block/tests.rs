//! One block device on the MMIO transport: registers scripted by literal offsets, rings written by hand.

use super::*;
use crate::testing::Script;
use crate::virtio::tests::{EIGHT, mmio};
use hal::host::{HostDma, HostHal};
use hal::{DeviceAddress, Dma as _};
use std::sync::Mutex;

#[derive(Default)]
struct Ends(Mutex<Vec<Result<(), BlockError>>>);

impl BatchDone for Ends {
    fn batch_done(&self, _: u16, batch: &[Completed]) {
        self.0.lock().unwrap().extend(batch.iter().map(|ended| ended.result));
    }
}

struct Rig {
    hal: HostHal,
    script: Arc<Script>,
    block: Arc<Block<HostHal>>,
    ends: Arc<Ends>,
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
        let ends = Arc::new(Ends::default());
        let block = Block::open(hal, Arc::new(transport), &config, ends.clone()).expect("a device");
        block.start();
        Self { hal, script, block, ends }
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

    /// The memory at an address of the device's, and the offset in it.
    fn at(&self, address: DeviceAddress) -> (HostDma, usize) {
        let memory = self.hal.dma_at(address).expect("memory");
        let offset = (address.0 - memory.device_address().0) as usize;
        (memory, offset)
    }

    /// The device's part in the first request, a chain of three descriptors from 0 on: it writes the last one's status byte, and
    /// says that it wrote so many bytes. Returns how the driver ends the request.
    fn ended_with(&self, op: BlockOp, written_bytes: u32) -> Result<(), BlockError> {
        let [descriptors, _, used] = self.rings();
        let request = BlockRequest { tag: 7, op, sector: 0, buffer: DeviceAddress(0x4000), len_bytes: 512 };
        assert_eq!(self.block.submit(0, &[request]), Submitted { accepted: 1, refused: None });
        let (table, offset) = self.at(descriptors);
        let next = |index: u16| table.read16(offset + usize::from(index) * 16 + 14);
        let last = offset + usize::from(next(next(0))) * 16;
        let status = u64::from(table.read32(last + 4)) << 32 | u64::from(table.read32(last));
        let (memory, offset) = self.at(DeviceAddress(status));
        memory.write8(offset, 0);
        let (ring, offset) = self.at(used);
        ring.write32(offset + 4, 0);
        ring.write32(offset + 8, written_bytes);
        ring.write16(offset + 2, 1);
        assert_eq!(self.block.poll(0), 1);
        self.ends.0.lock().unwrap().pop().expect("it ended")
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

/// VIRTIO 2.7.8.3: behind the length that a used entry names, a driver assumes nothing about what the device wrote. The status
/// is the last byte of a request (5.2.6), so a length that ends before it does not say that the request is done.
#[test]
fn a_request_whose_used_length_ends_before_its_status_is_short() {
    for (op, whole) in [(BlockOp::Read, 513), (BlockOp::Write, 1)] {
        assert_eq!(Rig::new().ended_with(op, whole), Ok(()), "{op:?}");
        assert_eq!(Rig::new().ended_with(op, whole - 1), Err(BlockError::Short(whole - 1)), "{op:?}");
    }
}

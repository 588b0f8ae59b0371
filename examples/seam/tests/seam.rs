//! The seam keeps what its traits promise.

use example_seam::{Bare, Kernel, Seam};
use hal::{AtomicWord, Dma, Hal, Lock, Regs, Word};
use metal::{Mmio, Registers};

fn seam() -> Seam {
    Seam::new(Box::leak(Box::default()))
}

#[test]
fn a_lock_keeps_interrupts_off() {
    let seam = seam();
    let lock = Lock::new(seam, 5);
    {
        let mut value = lock.lock();
        assert!(!seam.interrupts_on());
        *value += 1;
    }
    assert!(seam.interrupts_on());
    assert_eq!(*lock.lock(), 6);
}

#[test]
fn memory_is_aligned_zeroed_and_narrow_writes_keep_their_neighbours() {
    let memory = seam().dma_alloc(100, 64).expect("memory");
    assert_eq!((memory.len_bytes(), memory.words().len(), memory.device_address().0 % 64), (100, 13, 0));
    memory.write32(4, 0x8899_aabb);
    memory.write8(1, 0x77);
    memory.write16(2, 0x5566);
    assert_eq!(memory.words()[0].get(), 0x8899_aabb_5566_7700);
    assert!(seam().dma_alloc(0, 8).is_err() && seam().dma_alloc(8, 3).is_err());
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let seam = seam();
    let begin_ns = seam.now_ns();
    seam.relax_on(&AtomicWord::new(1), 1, begin_ns + 10_000);
    let waited_ns = seam.now_ns() - begin_ns;
    assert!((10_000..11_000).contains(&waited_ns), "{waited_ns} ns");
}

#[test]
fn registers_are_reached_at_their_width() {
    let mut block = [0_u64; 2];
    // SAFETY: `block` outlives the window, is aligned to 8 bytes and reached through the window alone.
    #[allow(unsafe_code)]
    let regs = unsafe { Mmio::new(block.as_mut_ptr().expose_provenance(), 16) };
    regs.write64(8, 0x1122_3344_5566_7788);
    regs.write16(10, 0xbeef);
    assert_eq!((regs.read32(12), regs.read8(8), regs.read64(8)), (0x1122_3344, 0x88, 0x1122_3344_beef_7788));
    let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| regs.read32(16)));
    assert!(beyond.is_err(), "an access outside the window is a bug of the driver");
}

/// The seam needs only `Kernel`, which can be static.
static KERNEL: std::sync::LazyLock<Kernel> = std::sync::LazyLock::new(Kernel::default);

#[test]
fn a_static_kernel_will_do() {
    let seam = Seam::new(&KERNEL);
    assert!(seam.interrupt(|| !seam.interrupts_on()));
}

#[test]
fn the_seam_on_hardware_is_one_that_drivers_take() {
    fn takes<H: Hal<Regs = Registers>>(hal: H) -> usize {
        hal.dma_alloc(64, 64).map_or(0, |memory| memory.len_bytes())
    }
    assert_eq!(takes(Bare), 64);
}

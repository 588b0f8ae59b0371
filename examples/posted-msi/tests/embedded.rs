//! The embedded delivery in a kernel of its own, with a host thread as the remapping unit.

use example_posted_msi::PostedInterrupts;
use example_seam::{Kernel, Seam};
use hal::CpuId;
use irq::Vector;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

const DEVICES: usize = 4;
const MESSAGES: u64 = 50_000;

/// A device counts up, and has the unit post its vector each time. At the end the kernel must have seen the last count
/// of every device. The kernel may take a notification only when the unit has sent one.
#[test]
fn nothing_that_devices_post_is_lost() {
    let seam = Seam::new(Box::leak(Box::<Kernel>::default()));
    let ends = Arc::new(AtomicU64::new(0));
    let ended = ends.clone();
    let eoi = Box::new(move || _ = ended.fetch_add(1, SeqCst));
    let mut interrupts = PostedInterrupts::new(seam, &[0], eoi).expect("one CPU");
    let counts: Arc<[AtomicU64; DEVICES]> = Arc::default();
    let seen: Arc<[AtomicU64; DEVICES]> = Arc::default();
    for device in 0..DEVICES {
        let (counts, seen) = (counts.clone(), seen.clone());
        let handler = Box::new(move |_| seen[device].store(counts[device].load(SeqCst), SeqCst));
        interrupts.set_handler(Vector(0x40 + 0x20 * device as u8), handler);
    }
    assert_eq!(interrupts.descriptor_address(CpuId(0)).map(|address| address.0 % 64), Some(0));
    assert_eq!(interrupts.descriptor_address(CpuId(1)), None);

    // The LAPIC holds one notification; further notifications of the same vector merge with it.
    let (pending, sent, running) = (AtomicU64::new(0), AtomicU64::new(0), AtomicUsize::new(DEVICES));
    let mut taken = 0;
    std::thread::scope(|scope| {
        for device in 0..DEVICES {
            let (interrupts, counts, pending, sent, running) = (&interrupts, &counts, &pending, &sent, &running);
            scope.spawn(move || {
                let descriptor = interrupts.posted().descriptor(CpuId(0)).expect("a descriptor");
                for count in 1..=MESSAGES {
                    counts[device].store(count, SeqCst);
                    if let Some(notification) = descriptor.post(Vector(0x40 + 0x20 * device as u8), false) {
                        assert_eq!((notification.vector.0, notification.destination), (0xeb, 0));
                        sent.fetch_add(1, SeqCst);
                        pending.store(1, SeqCst);
                    }
                }
                running.fetch_sub(1, SeqCst);
            });
        }
        loop {
            let last = running.load(SeqCst) == 0;
            if pending.swap(0, SeqCst) == 1 {
                seam.interrupt(|| interrupts.notification());
                taken += 1;
            } else if last {
                break;
            } else {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(seen.each_ref().map(|count| count.load(SeqCst)), [MESSAGES; DEVICES]);
    let statistics = interrupts.posted().statistics(CpuId(0));
    assert_eq!((statistics.notifications, ends.load(SeqCst)), (taken, taken), "one EOI a notification");
    assert!(taken <= sent.load(SeqCst) && sent.load(SeqCst) <= MESSAGES * DEVICES as u64);
    assert!(statistics.vectors >= DEVICES as u64 && statistics.stray == 0, "{statistics:?}");
}

/// A handler can tell how its vector came, and a vector without a handler does not disturb the others.
#[test]
fn a_handler_knows_whether_its_vector_was_in_the_lapic() {
    static SEEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let seam = Seam::new(Box::leak(Box::<Kernel>::default()));
    let interrupts = Arc::new_cyclic(|own: &std::sync::Weak<PostedInterrupts<Seam>>| {
        let mut interrupts = PostedInterrupts::new(seam, &[0], Box::new(|| ())).expect("one CPU");
        let own = own.clone();
        let handler = Box::new(move |_| {
            let posted = own.upgrade().expect("alive").came_posted();
            SEEN[usize::from(posted)].fetch_add(1, SeqCst);
        });
        interrupts.set_handler(Vector(0x50), handler);
        interrupts
    });
    let descriptor = interrupts.posted().descriptor(CpuId(0)).expect("a descriptor");
    descriptor.post(Vector(0x4f), false);
    descriptor.post(Vector(0x50), false);
    let served = seam.interrupt(|| interrupts.notification());
    assert_eq!((served.vectors, SEEN[1].load(SeqCst)), (2, 1));
    seam.interrupt(|| interrupts.vector(Vector(0x50)));
    assert_eq!(SEEN[0].load(SeqCst), 1);
}

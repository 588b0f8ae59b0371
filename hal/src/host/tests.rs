use super::*;
use crate::{Affinity, CpuSet, DeviceAddress, Dma, DmaExchange128, Lock};
use alloc::sync::Arc;
use alloc::vec;

fn spec(affinity: Affinity) -> ThreadSpec {
    ThreadSpec { name: "test", affinity, urgent: false }
}

#[test]
fn narrow_accesses_are_little_endian_parts_of_a_word() {
    let dma = HostHal::manual(1).dma_alloc(20, 64).unwrap();
    dma.words()[1].set(0x1122_3344_5566_7788);
    assert_eq!((dma.read8(8), dma.read16(10), dma.read32(12)), (0x88, 0x5566, 0x1122_3344));
    dma.write16(14, 0xabcd);
    assert_eq!(dma.words()[1].get(), 0xabcd_3344_5566_7788);
    assert_eq!((dma.words().len(), dma.len_bytes()), (3, 20));
}

#[test]
fn buffers_are_aligned_on_the_bus_and_in_memory_and_found_by_address() {
    let hal = HostHal::manual(1);
    let first = hal.dma_alloc(8, 8).unwrap();
    let page = hal.dma_alloc(4096, 4096).unwrap();
    assert_eq!(page.device_address(), DeviceAddress(0x1_0000_1000));
    assert_eq!(page.words().as_ptr().addr() % 4096, 0);
    page.words()[511].set(7);
    assert_eq!(hal.dma_at(DeviceAddress(0x1_0000_1ff8)).unwrap().words()[511].get(), 7);
    assert!(hal.dma_at(first.device_address().offset(8)).is_none());
    let address = first.device_address();
    drop(first);
    assert!(hal.dma_at(address).is_none());
}

#[test]
fn a_wrong_buffer_is_refused() {
    let hal = HostHal::manual(1);
    assert_eq!(hal.dma_alloc(0, 8).err(), Some(DmaError::Empty));
    assert_eq!(hal.dma_alloc(8, 24).err(), Some(DmaError::Alignment(24)));
}

#[test]
fn the_128_bit_exchange_stores_only_what_it_expected() {
    let dma = HostHal::manual(1).dma_alloc(32, 16).unwrap();
    assert_eq!(dma.compare_exchange_128(16, 0, 5 << 64 | 9), Ok(0));
    assert_eq!(dma.compare_exchange_128(16, 0, 1), Err(5 << 64 | 9));
    assert_eq!((dma.words()[2].get(), dma.words()[3].get()), (9, 5));
}

#[test]
fn a_wait_with_a_deadline_ends_on_a_manual_clock() {
    let hal = HostHal::manual(1);
    let word = AtomicWord::new(3);
    while hal.now_ns() < 5_000 {
        hal.relax_on(&word, 3, 5_000);
    }
    assert_eq!(hal.now_ns(), 5_000);
}

#[test]
fn the_hook_runs_where_interrupts_come_on_and_off_means_off() {
    let hal = HostHal::manual(2);
    let taken = Rc::new(RefCell::new(vec![]));
    let log = taken.clone();
    hal.set_interrupt_hook(move || {
        hal.interrupt(CpuId(1), || log.borrow_mut().push((hal.cpu(), hal.interrupts_on())));
        hal.interrupt(CpuId(0), || log.borrow_mut().push((hal.cpu(), hal.interrupts_on())));
    });
    let outer = hal.irq_save();
    let inner = hal.irq_save();
    hal.irq_restore(inner);
    assert!(taken.borrow().is_empty());
    hal.irq_restore(outer);
    hal.clear_interrupt_hook();
    assert_eq!(*taken.borrow(), [(CpuId(1), false), (CpuId(0), false)]);
    assert!(hal.interrupts_on());
}

#[test]
#[should_panic(expected = "CPU 0 has interrupts off further down this thread's stack")]
fn a_cpu_with_interrupts_off_is_not_interrupted() {
    let hal = HostHal::manual(2);
    hal.interrupt(CpuId(0), || hal.on_cpu(CpuId(1), || hal.interrupt(CpuId(0), || ())));
}

#[test]
fn threads_of_one_cpu_share_a_lock_without_being_taken_for_recursion() {
    let hal = HostHal::monotonic(2);
    let sum = Arc::new(Lock::new(hal, 0u32));
    let rounds = if cfg!(miri) { 20 } else { 1_000 };
    for thread in 0..4 {
        let sum = sum.clone();
        let body = move || (0..rounds).for_each(|_| *sum.lock() += 1);
        hal.spawn(spec(Affinity::Cpu(CpuId(thread % 2))), Box::new(body)).unwrap();
    }
    hal.join_all();
    assert_eq!(*sum.lock(), 4 * rounds);
}

#[test]
fn a_wake_before_the_park_is_not_lost() {
    let hal = HostHal::monotonic(1);
    let me = hal.current_thread();
    hal.spawn(spec(Affinity::Any), Box::new(move || hal.wake(me))).unwrap();
    hal.join_all();
    hal.park();
}

#[test]
fn a_thread_without_a_cpu_is_refused() {
    let hal = HostHal::manual(2);
    let refused = hal.spawn(spec(Affinity::Cpu(CpuId(2))), Box::new(|| ()));
    assert_eq!(refused, Err(SpawnError::NoCpu(CpuSet::of(CpuId(2)), 2)));
}

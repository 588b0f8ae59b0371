//! Commands for the network by several managers at once. The driver has one buffer for them (`drivers/src/virtio/net/control.rs`): who
//! finds it in use is refused, and who gets an answer gets its own.

use super::stack::{ASKERS, VirtioStack};
use crate::gic::harness;
use crate::verdict::violate;
use drivers::virtio::VirtioError;
use drivers::virtio::net::Coalescing;
use hal::{Hal as _, Threads as _};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const CHECKER: &str = "commands";
/// A command is tried again while another's is under way: so often, so far apart. A line that storms keeps the other's CPU for a
/// whole burst, 75 ms.
const TRIES_MAX: u32 = 400_000;
const TRY_GAP_NS: u64 = 500;
/// The longest time that the device takes, in microseconds.
pub(super) const USECS_MAX: u32 = 50_000;

/// Sets when a transmit queue notifies, and reads it back. No other manager sets it meanwhile.
pub(super) fn ask(stack: &Arc<VirtioStack>, queue: u32, times: u32, ns: u64) {
    let asker = queue as usize % ASKERS;
    let Some(_claim) = stack.own_asker(asker) else { return };
    let Some(net) = stack.reflector.net() else { return };
    // Transmit queues have odd numbers (VIRTIO 1.3, 5.1.2), and each pair of the machine has one in the device.
    let queue = 2 * asker as u16 + 1;
    // What the device refuses changes nothing, and leaves the control queue free.
    let refused = Coalescing { max_packets: 1, max_usecs: USECS_MAX + 1 + ns as u32 };
    let before = answered(stack, "read", || net.coalescing_of(queue));
    answered(stack, "set", || match net.coalesce_queue(queue, refused) {
        Err(VirtioError::Refused(..)) => {
            stack.saw("network: a command was refused");
            Ok(())
        }
        Err(error) => Err(error),
        Ok(()) => violate(CHECKER, format!("transmit queue {queue} was set to {refused:?}, which its device refuses")),
    });
    let told = answered(stack, "read", || net.coalescing_of(queue));
    if told != before {
        violate(CHECKER, format!("transmit queue {queue} had {before:?}, and has {told:?} behind a refusal"));
    }
    for turn in 0..times {
        // Another answer than that of the other queue, and than the one before.
        let wanted = Coalescing { max_packets: 2 + u32::from(queue), max_usecs: 1 + turn % 8 };
        answered(stack, "set", || net.coalesce_queue(queue, wanted));
        let told = answered(stack, "read", || net.coalescing_of(queue));
        if told != wanted {
            violate(CHECKER, format!("transmit queue {queue} was set to {wanted:?}, and is read as {told:?}"));
        }
        SimHal.delay_ns(ns);
    }
}

/// The same for two queues at once: a helper on another CPU asks about the other one.
pub(super) fn ask_both(stack: &Arc<VirtioStack>, queue: u32, times: u32, ns: u64) {
    let cpu = (SimHal.cpu().0 + 1) % stack.system.cpus;
    let (own, waiter, is_done) = (stack.clone(), SimHal.current_thread(), Arc::new(AtomicBool::new(false)));
    let done = is_done.clone();
    let body = move || {
        ask(&own, queue.wrapping_add(1), times, ns / 2);
        done.store(true, Relaxed);
        SimHal.wake(waiter);
    };
    SimHal.spawn(harness::spec(cpu), Box::new(body)).expect("the CPU exists");
    ask(stack, queue, times, ns);
    while !is_done.load(Relaxed) {
        SimHal.park();
    }
}

/// The answer, behind those to the commands of other managers.
fn answered<T>(stack: &VirtioStack, what: &str, command: impl Fn() -> Result<T, VirtioError>) -> T {
    for _ in 0..TRIES_MAX {
        match command() {
            Ok(answer) => return answer,
            Err(VirtioError::NoControl) => stack.saw("network: a command found another under way"),
            Err(error) => violate(CHECKER, format!("{what} a queue's coalescing: {error}, and no fault explains it")),
        }
        SimHal.delay_ns(TRY_GAP_NS);
    }
    violate(CHECKER, format!("{what} a queue's coalescing: the control queue is busy for {TRIES_MAX} tries"))
}

//! The work that only the lab's loads name: [`hal::Work`] has the kinds of kernels.

use crate::platform::Platform;
use hal::Work;
use machine::{WorkKind, WorkKinds};

/// One I/O of an application in user mode, libaio.
pub const USER_AIO: Work = Work::custom(0);
/// One I/O submitted in the kernel, libaio.
pub const SUBMIT_AIO: Work = Work::custom(1);
/// One I/O completed in the kernel, libaio.
pub const COMPLETE_AIO: Work = Work::custom(2);
/// One I/O of an application in user mode, io_uring.
pub const USER_URING: Work = Work::custom(3);
/// One I/O submitted in the kernel, io_uring.
pub const SUBMIT_URING: Work = Work::custom(4);
/// One I/O completed in the kernel, io_uring.
pub const COMPLETE_URING: Work = Work::custom(5);
/// One I/O of an application in user mode, polled io_uring.
pub const USER_POLLED: Work = Work::custom(6);
/// One I/O submitted in the kernel, polled io_uring.
pub const SUBMIT_POLLED: Work = Work::custom(7);
/// One I/O completed in the kernel, polled io_uring.
pub const COMPLETE_POLLED: Work = Work::custom(8);
/// One descriptor of a stream: its user is notified, and makes the next.
pub const STREAM_ENTRY: Work = Work::custom(9);
/// One I/O submitted to a storage target over the network, application and kernel.
pub const FABRIC_SUBMIT: Work = Work::custom(10);
/// One I/O of a storage target over the network completed in the kernel.
pub const FABRIC_COMPLETE: Work = Work::custom(11);
/// One I/O served by a storage target over the network.
pub const FABRIC_SERVE: Work = Work::custom(12);
/// One interrupt raised by software, and the wait for its end prepared.
pub const RAISE: Work = Work::custom(13);
/// One more command of an I/O that is split: submitted in the kernel.
pub const SPLIT: Work = Work::custom(14);
/// One moderation of a completion queue programmed: a command of the NIC's firmware.
pub const FABRIC_PROGRAM: Work = Work::custom(15);
/// One command completed on another CPU than its submitter's that shares a cache with it.
pub const NEAR_COMPLETION: Work = Work::custom(16);
/// One interprocessor interrupt of the block layer, of its sender.
pub const IPI_SEND: Work = Work::custom(17);
/// One run of `BLOCK_SOFTIRQ`, without the I/Os that it completes.
pub const BLOCK_SOFTIRQ: Work = Work::custom(18);
/// One look of an application at its completion ring.
pub const RING_LOOK: Work = Work::custom(19);

/// Each kind, its name in traces, and whether it runs in user mode.
const KINDS: [(Work, &str, bool); 20] = [
    (USER_AIO, "user", true),
    (SUBMIT_AIO, "submit", false),
    (COMPLETE_AIO, "complete", false),
    (USER_URING, "user", true),
    (SUBMIT_URING, "submit", false),
    (COMPLETE_URING, "complete", false),
    (USER_POLLED, "user", true),
    (SUBMIT_POLLED, "submit", false),
    (COMPLETE_POLLED, "complete", false),
    (STREAM_ENTRY, "stream", false),
    (FABRIC_SUBMIT, "submit", false),
    (FABRIC_COMPLETE, "complete", false),
    (FABRIC_SERVE, "serve", false),
    (RAISE, "raise", false),
    (SPLIT, "split", false),
    (FABRIC_PROGRAM, "program", false),
    (NEAR_COMPLETION, "near completion", false),
    (IPI_SEND, "send IPI", false),
    (BLOCK_SOFTIRQ, "block softirq", false),
    (RING_LOOK, "poll", true),
];

/// Registers all work with a machine, with its cost on `platform`.
pub(crate) fn kinds(platform: &Platform) -> WorkKinds {
    let mut kinds = WorkKinds::default();
    for work in Work::kernel() {
        kinds.set_ps(work, platform.work_ps(work));
    }
    for (work, name, is_user) in KINDS {
        kinds.register(work, WorkKind { name, ps: platform.work_ps(work), is_user });
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_registered_once_under_its_own_number() {
        let numbers = KINDS.iter().map(|(work, ..)| work.index());
        assert!(numbers.eq((0..KINDS.len() as u8).map(|number| Work::custom(number).index())));
    }
}

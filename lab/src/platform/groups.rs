//! The constants that every platform has.

use super::Unit;
use super::constant::{Constant, Spec, constants};
use crate::work;
use hal::Work;

constants! {
    /// What a CPU takes for the work that the code names, and for reaching registers. Times are scaled by `scale`. Work that
    /// only one kind of experiment does is in that kind's own group.
    Cpu {
        /// Factor on every time of this group, so that one core can be stated as a multiple of another.
        scale: Ratio 0.1 10.0,
        /// [`Work::IrqEntry`].
        irq_entry: Time 0.0 1e6,
        /// [`Work::IrqExit`].
        irq_exit: Time 0.0 1e6,
        /// [`Work::IrqHandler`].
        irq_handler: Time 0.0 1e6,
        /// [`Work::ReapEntry`].
        reap_entry: Time 0.0 1e6 for Devices,
        /// [`Work::PirHarvest`].
        pir_harvest: Time 0.0 1e6 for Pci,
        /// [`Work::PidClearOn`].
        pid_clear_on: Time 0.0 1e6 for Pci,
        /// [`crate::work::USER_AIO`].
        user_aio: Time 0.0 1e6 for Drives,
        /// [`crate::work::SUBMIT_AIO`].
        submit_aio: Time 0.0 1e6 for Drives,
        /// [`crate::work::COMPLETE_AIO`].
        complete_aio: Time 0.0 1e6 for Drives,
        /// [`crate::work::USER_URING`].
        user_uring: Time 0.0 1e6 for Drives,
        /// [`crate::work::SUBMIT_URING`].
        submit_uring: Time 0.0 1e6 for Drives,
        /// [`crate::work::COMPLETE_URING`].
        complete_uring: Time 0.0 1e6 for Drives,
        /// [`crate::work::USER_POLLED`].
        user_polled: Time 0.0 1e6 for Drives,
        /// [`crate::work::SUBMIT_POLLED`].
        submit_polled: Time 0.0 1e6 for Drives,
        /// [`crate::work::COMPLETE_POLLED`].
        complete_polled: Time 0.0 1e6 for Drives,
        /// [`crate::work::SPLIT`].
        split: Time 0.0 1e6 for Drives,
        /// [`Work::PollLook`] and [`crate::work::RING_LOOK`]. Not zero: a poll that takes no time would never end.
        poll_look: Time 1.0 1e6 for Devices,
        /// [`Work::CompletionLook`].
        check_look: Time 0.0 1e6 for Drives,
        /// [`Work::RemoteCompletion`], between CPUs that share no cache.
        remote_completion: Time 0.0 1e6 for Drives,
        /// [`crate::work::NEAR_COMPLETION`].
        near_completion: Time 0.0 1e6 for Drives,
        /// [`crate::work::IPI_SEND`].
        ipi_send: Time 0.0 1e6 for Drives,
        /// [`crate::work::BLOCK_SOFTIRQ`].
        block_softirq: Time 0.0 1e6 for Drives,
        /// [`Work::ContextSwitch`].
        context_switch: Time 0.0 1e6,
        /// [`Work::ThreadWake`].
        thread_wake: Time 0.0 1e6 for Threads,
        /// From the interrupt's arrival at an idle CPU to its entry.
        idle_wake: Time 0.0 1e6,
        /// A write of the EOI register (x2APIC MSR).
        eoi: Time 0.0 1e6 for Devices,
        /// A posted write of a device's register: a doorbell.
        doorbell: Time 0.0 1e6 for Devices,
        /// A read of a device register: a round trip. Not zero: a poll that takes no time would never end.
        register_read: Time 1.0 1e6 for Devices,
        /// What a CPU waits for the cache line of a posted descriptor if another agent had it last.
        line_transfer: Time 0.0 1e6 for Devices,
    }
}

impl Cpu {
    /// What one unit of `work` takes, unscaled; none of work that only one kind of experiment does.
    pub(super) fn work(&self, work: Work) -> Option<&Constant> {
        Some(match work {
            Work::IrqEntry => &self.irq_entry,
            Work::IrqExit => &self.irq_exit,
            Work::IrqHandler => &self.irq_handler,
            Work::ReapEntry => &self.reap_entry,
            Work::PirHarvest => &self.pir_harvest,
            Work::PidClearOn => &self.pid_clear_on,
            work::USER_AIO => &self.user_aio,
            work::SUBMIT_AIO => &self.submit_aio,
            work::COMPLETE_AIO => &self.complete_aio,
            work::USER_URING => &self.user_uring,
            work::SUBMIT_URING => &self.submit_uring,
            work::COMPLETE_URING => &self.complete_uring,
            work::USER_POLLED => &self.user_polled,
            work::SUBMIT_POLLED => &self.submit_polled,
            work::COMPLETE_POLLED => &self.complete_polled,
            work::SPLIT => &self.split,
            Work::PollLook | work::RING_LOOK => &self.poll_look,
            Work::CompletionLook => &self.check_look,
            Work::RemoteCompletion => &self.remote_completion,
            work::NEAR_COMPLETION => &self.near_completion,
            work::IPI_SEND => &self.ipi_send,
            work::BLOCK_SOFTIRQ => &self.block_softirq,
            Work::ContextSwitch => &self.context_switch,
            Work::ThreadWake => &self.thread_wake,
            _ => return None,
        })
    }

    /// A time of this group (`platform.cpu.scaled_ps(&platform.cpu.eoi)`) times `scale`, in picoseconds.
    pub fn scaled_ps(&self, time: &Constant) -> u64 {
        (time.value * self.scale.value * 1000.0).round() as u64
    }
}

constants! {
    /// Root ports, IOMMUs and the dispatch of translated MSIs, and how devices hang on them: device n is behind root
    /// port n / `drives_per_port` and IOMMU n / `drives_per_iommu`, whose socket is its number /
    /// `iommus_per_socket`, wrapped at `sockets`.
    Fabric {
        /// Processor sockets.
        sockets: Count 1.0 16.0 for Pci,
        /// CPUs of the whole machine.
        cpus: Count 1.0 1024.0,
        /// CPUs of a memory node, numbered one after another.
        node_cpus: Count 1.0 1024.0 for Drives,
        /// CPUs that share a last-level cache, numbered one after another; at most those of a node.
        cache_cpus: Count 1.0 1024.0 for Drives,
        /// IOMMUs of a socket.
        iommus_per_socket: Count 1.0 64.0 for Pci,
        /// Drives, or other devices, behind one IOMMU.
        drives_per_iommu: Count 1.0 1024.0 for Pci,
        /// Drives, or other devices, behind one root port.
        drives_per_port: Count 1.0 64.0 for Pci,
        /// Remapping of one MSI, a server per IOMMU (r_s).
        remap_service: Time 0.0 1e6 for Pci,
        /// Dispatch of one interrupt to a CPU, a server per socket (g).
        dispatch: Time 0.0 1e6 for Pci,
        /// One atomic update of a posted descriptor whose cache line the IOMMU owns (p), serial per IOMMU and per cache
        /// line.
        posted_update: Time 0.0 1e6 for Pci,
        /// What that update takes longer if another agent had the line last.
        line_move: Time 0.0 1e6 for Pci,
        /// How long an MSI stalls later requests of its root port that may not pass it (t_ord).
        ordering_stall: Time 0.0 1e6 for Pci,
        /// MSIs of a root port at the IOMMU, of which each keeps its place until it is done with; one more blocks the port.
        port_queue_depth: Count 1.0 1024.0 for Pci,
        /// Data with the Relaxed Ordering attribute pass MSIs in a root port.
        relaxed_ordering: Flag 0.0 1.0 for Pci,
        /// Requests of one requester pass those of another in a root port (ID-based ordering).
        id_ordering: Flag 0.0 1.0 for Pci,
        /// Half-width of the seeded jitter on every hardware time.
        jitter: Percent 0.0 90.0,
        /// The IOMMU can post interrupts (VT-d capability register, bit 59).
        posted_capability: Flag 0.0 1.0 for Pci,
    }
}

constants! {
    /// One kind of NVMe drive.
    Drive {
        /// From a completion entry to its MSI, per vector; entries inside that window merge into it (t_msi).
        msi_interval: Time 0.0 1e7,
        /// Payload rate of its link.
        link: ByteRate 1e6 1e12,
        /// Fetch of one submission entry; serial, round robin over the queues.
        fetch: Time 0.0 1e6,
        /// Commands in service at once.
        slots: Count 1.0 65536.0,
        /// Mean time of one command in service.
        media_mean: Time 1.0 1e9,
        /// Smallest time of one command in service. What is between it and the mean is exponential; equal: fixed.
        media_floor: Time 0.0 1e9,
        /// Most entries of one queue (CAP.MQES + 1).
        queue_entries: Count 2.0 65536.0,
        /// MSI-X vectors; one belongs to the admin queue.
        vectors: Count 2.0 2048.0,
        /// Entries that make a message although no coalescing is declared; 0: the time alone counts.
        hidden_entries: Count 0.0 65536.0,
        /// From the first of them to the message at the latest; 0: the drive does not coalesce without declaring it.
        hidden_time: Time 0.0 1e9,
        /// The data that the drive writes carry the Relaxed Ordering attribute; its entries and MSIs never do.
        relaxed_ordering: Flag 0.0 1.0,
        /// Logical block.
        block: Size 512.0 65536.0,
        /// Longest transfer of one command (MDTS): a power of two of pages.
        transfer: Size 8192.0 2097152.0,
        /// When a vector sends another message: for each entry (those inside `msi_interval` share one), only if entries are
        /// unacknowledged, or not before the host's doorbell.
        resend: Resend 0.0 2.0,
        /// What the write cache holds; 0: none, a write ends on the media.
        write_cache: Size 0.0 1073741824.0,
        /// The cache loses its content with the power (VWC): hosts flush it.
        volatile_cache: Flag 0.0 1.0,
        /// From the data of a write in the drive to its end, when the cache has room.
        write_cached: Time 0.0 1e9,
        /// Programming one write on the media.
        write_media: Time 0.0 1e9,
        /// Rate at which the media take sequential streams.
        write_sequential: ByteRate 1e6 1e12,
        /// Rate at which the media take scattered writes, collection of garbage included.
        write_random: ByteRate 1e6 1e12,
        /// The media write scattered data in whole units of this size.
        write_unit: Size 512.0 65536.0,
        /// A flush that finds everything on the media.
        flush: Time 0.0 1e9,
        /// One Deallocate command (trim).
        deallocate: Time 0.0 1e9,
    }
}

constants! {
    /// A Data Streaming Accelerator, and what its user takes.
    Accelerator {
        /// An engine's time for one descriptor.
        service: Time 0.0 1e6,
        /// Payload rate of its link.
        link: ByteRate 1e6 1e12,
        /// Descriptors that an engine works on at once.
        engine_depth: Count 1.0 255.0,
        /// MOVDIR64B: 64 bytes posted to a portal. Scaled by `cpu.scale`.
        portal_write: Time 0.0 1e6,
        /// [`crate::work::STREAM_ENTRY`]. Scaled by `cpu.scale`.
        stream_entry: Time 0.0 1e6,
        /// MSI-X vectors; one belongs to the device's own errors.
        vectors: Count 2.0 2048.0,
    }
}

constants! {
    /// An RDMA NIC and its wire, and what software takes that reaches storage through them. Times of CPUs are scaled by
    /// `cpu.scale`.
    Nic {
        /// [`Work::SoftPass`].
        soft_pass: Time 0.0 1e6,
        /// [`crate::work::FABRIC_SUBMIT`].
        submit: Time 0.0 1e6,
        /// [`crate::work::FABRIC_COMPLETE`].
        complete: Time 0.0 1e6,
        /// [`crate::work::FABRIC_SERVE`].
        serve: Time 0.0 1e6,
        /// [`crate::work::FABRIC_PROGRAM`].
        program: Time 0.0 1e6,
        /// The NIC's time for one send request.
        service: Time 0.0 1e6,
        /// From the end of a packet on the wire to what it does at the other end.
        latency: Time 0.0 1e9,
        /// Payload rate of the wire.
        link: ByteRate 1e6 1e12,
    }
}

constants! {
    /// A host that gives its guest a virtio card: senders, the back end's threads, exits and event descriptors. Its own CPUs
    /// are not modelled: each sender and each thread has one.
    Vhost {
        /// A packet of a sender that finds room in the backlog.
        send: Time 1.0 1e6,
        /// One that does not, and is dropped.
        send_dropped: Time 1.0 1e6,
        /// A packet into the guest, of the back end's thread.
        receive: Time 0.0 1e6,
        /// A packet out of the guest, likewise.
        transmit: Time 0.0 1e6,
        /// From a kick or a packet to the first step of a thread that sleeps.
        wake: Time 0.0 1e6,
        /// Signalling an event descriptor that sends a message, of the signaller.
        signal_message: Time 0.0 1e6,
        /// Signalling one that drives a pin of the I/O APIC.
        signal_pin: Time 0.0 1e6,
        /// From the signal to the interrupt controller.
        inject: Time 0.0 1e6,
        /// An access of the guest to a register of the card.
        exit: Time 0.0 1e6,
        /// A notification of a queue by the guest.
        kick: Time 0.0 1e6,
        /// The end of a level-triggered interrupt, above cpu.eoi.
        level_eoi: Time 0.0 1e6,
        /// Entries of a queue.
        ring: Count 2.0 32768.0,
        /// Packets that wait for a receive queue on the host.
        backlog: Count 1.0 65535.0,
        /// Packets that are published to the guest together.
        batch: Count 1.0 65535.0,
        /// Packets after which a thread turns to its next queue.
        weight: Count 1.0 65535.0,
    }
}

constants! {
    /// Arm's interrupt controller, and what a threaded interrupt takes that software raises. Times of software are scaled by
    /// `cpu.scale`, those of the controller are not.
    Gic {
        /// Architecture version.
        version: Count 2.0 3.0,
        /// An access to a register of the distributor or a redistributor, read or write: the CPU waits until it has arrived.
        distributor: Time 0.0 1e6,
        /// One to the CPU interface: memory-mapped in version 2, a system register in version 3.
        interface: Time 0.0 1e6,
        /// How long RWP stays set after a write that disables something.
        write_pending: Time 0.0 1e6,
        /// [`crate::work::RAISE`].
        raise: Time 0.0 1e6,
    }
}

//! Facts of the hardware as they happen, for checkers that trust neither the code under test nor its own counters.
//!
//! An observer ([`crate::Machine::set_observer`]) hears every [`Fact`] in the order in which it takes effect. It is
//! called in the middle of things, so it must not call the machine: [`crate::peek64`] is all that it may use. Harness code
//! that runs on the machine's own CPUs puts its part of the history into the same stream with [`crate::mark`] and
//! [`crate::declare_cpu`].
//!
//! **Time.** A fact's time is that of its agent. A CPU with interrupts off runs ahead of the models by what it owes, so
//! times may step back from one fact to the next; the order is always that of effects.
//!
//! ```
//! use campanile_machine::observe::{Arrival, Fact};
//! use campanile_machine::time::Ps;
//! use campanile_machine::{Machine, MachineConfig, Regs};
//! use hal::Regs as _;
//! use std::cell::RefCell;
//! use std::rc::Rc;
//!
//! let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
//! let seen = Rc::new(RefCell::new(Vec::new()));
//! let sink = seen.clone();
//! machine.set_observer(move |_at, fact| sink.borrow_mut().push(fact));
//! machine.set_interrupt_entry(|_vector| Regs::Lapic.write32(0x80b, 0));
//! let end = machine.run_boot(Ps::from_ns(10_000), || {
//!     Regs::Lapic.write32(0x80f, 0x1ff);
//!     Regs::Lapic.write32(0x83f, 0x41);
//!     hal::Hal::delay_ns(campanile_machine::SimHal, 1_000);
//! });
//! assert_eq!(end, Ok(()));
//! let seen = seen.borrow();
//! assert!(seen.contains(&Fact::Raised { cpu: 0, vector: 0x41, level: false, arrival: Arrival::Pending }));
//! assert!(seen.contains(&Fact::Ended { cpu: 0, vector: 0x41 }));
//! ```

use crate::event::ModelId;
use crate::time::Ps;
use crate::unrest::Kind;
use hal::Work;
use std::cell::RefCell;

#[cfg(test)]
mod tests;

/// A callback that receives the facts.
pub(crate) type Observer = RefCell<Box<dyn FnMut(Ps, Fact)>>;

/// An action of the hardware.
///
/// CPUs are numbers from 0, equal to their APIC ids. The models name the sources of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fact {
    /// A PCI function sends the message of a vector. [`Fact::Message`] follows.
    Signalled {
        /// Which function.
        device: ModelId,
        /// Its MSI-X vector.
        vector: u16,
    },
    /// A message went one step: from a device to its port, from there to the IOMMU or the GIC, or through a model in
    /// between. If `from` is the device, the message was sent; if `to` is the IOMMU or the GIC, it arrived there.
    Message {
        /// The hop that passes it on.
        from: ModelId,
        /// To whom.
        to: ModelId,
        /// PCI requester id, as the link reports it.
        requester: u16,
        /// The address that it writes.
        address: u64,
        /// The payload.
        data: u32,
    },
    /// A message met an equal one that still waited, and became one with it: the device has one request a vector.
    MessageMerged {
        /// Where the earlier one waited: a port, an endpoint's way, or the IOMMU.
        at: ModelId,
        /// PCI requester id, as the link reports it.
        requester: u16,
        /// The address that it writes.
        address: u64,
        /// The payload.
        data: u32,
    },
    /// The IOMMU looked a message up and passes it on as its remapped entry says. The LAPIC's reaction follows as
    /// [`Fact::Raised`].
    Remapped {
        /// The message's requester.
        requester: u16,
        /// The interrupt index: which entry.
        index: u16,
        /// Destination as the entry has it: an APIC id, or a logical set.
        destination: u32,
        /// Vector of the entry.
        vector: u8,
    },
    /// The IOMMU passes a message on unchanged: compatibility format, or remapping off.
    Plain {
        /// The message's requester.
        requester: u16,
        /// Destination: an APIC id, or a logical set.
        destination: u32,
        /// Vector of the message.
        vector: u8,
    },
    /// Software wrote half of an I/O APIC's redirection entry.
    Redirected {
        /// Its pin.
        pin: u8,
        /// The entry before, and behind the write.
        old: u64,
        /// See `old`.
        new: u64,
    },
    /// The IOMMU updated a posted descriptor.
    Posted {
        /// The message's requester.
        requester: u16,
        /// Bus address of the descriptor.
        descriptor: u64,
        /// The bit of PIR.
        vector: u8,
        /// The bit was set already.
        again: bool,
        /// The effect on ON.
        post: Post,
    },
    /// The IOMMU dropped a message.
    Blocked {
        /// The message's requester.
        requester: u16,
        /// The interrupt index, where there is one.
        index: u16,
        /// VT-d's fault reason, 20h to 28h.
        reason: u8,
        /// True if a record for software was due. False: the entry forbids it (FPD).
        recorded: bool,
    },
    /// The IOMMU invalidated cached entries. Messages looked up earlier are drained when the next wait descriptor is
    /// executed.
    Invalidated {
        /// The first index.
        first: u16,
        /// Number of indices, rounded as in the request; 65,536 for all.
        count: u32,
    },
    /// A vector arrived at a LAPIC: by a message, an IPI or its timer.
    Raised {
        /// The LAPIC's CPU. A LAPIC that does not exist refuses.
        cpu: u32,
        /// The vector.
        vector: u8,
        /// Level-triggered.
        level: bool,
        /// The LAPIC's reaction.
        arrival: Arrival,
    },
    /// A CPU took a vector: from IRR to ISR.
    Accepted {
        /// Which CPU.
        cpu: u32,
        /// The vector.
        vector: u8,
    },
    /// A CPU enters the exception of a machine with a GIC. [`Fact::GicAcknowledged`] tells which interrupt it is.
    Exception {
        /// Which CPU.
        cpu: u32,
        /// True if it was taken although interrupts were off.
        pseudo_nmi: bool,
    },
    /// The interrupt entry returned.
    Returned {
        /// Which CPU.
        cpu: u32,
        /// Number of interrupted interrupt handlers that still run.
        depth: u32,
        /// The highest vector still in service at the LAPIC: at depth 0 there should be none.
        in_service: Option<u8>,
    },
    /// A write of EOI ended the highest vector in service.
    Ended {
        /// Which CPU.
        cpu: u32,
        /// The vector that ended.
        vector: u8,
    },
    /// A write of EOI without an interrupt in service.
    IdleEoi {
        /// Which CPU.
        cpu: u32,
    },
    /// An inter-processor interrupt is on its way. With a GIC it is the machine's own kick, `vector` 0.
    IpiSent {
        /// By whom.
        from: u32,
        /// To which CPU.
        to: u32,
        /// The vector.
        vector: u8,
    },
    /// A CPU halts: it found nothing to run and no interrupt to take.
    Halted {
        /// Which CPU.
        cpu: u32,
    },
    /// A CPU leaves its halt, before the interrupt that woke it is entered.
    Woken {
        /// Which CPU.
        cpu: u32,
    },
    /// A CPU did named work ([`hal::Hal::work`]), owed from now on.
    Worked {
        /// Which CPU.
        cpu: u32,
        /// Nesting depth in interrupt context.
        depth: u32,
        /// The kind of work.
        work: Work,
        /// How many units.
        count: u32,
    },
    /// An interrupt of a GIC became pending. Not reported if it was pending already.
    GicPending {
        /// The CPU of an SGI, PPI or LPI. An SPI has no CPU until it is acknowledged.
        cpu: Option<u32>,
        /// Which.
        intid: u32,
    },
    /// A CPU read its acknowledge register.
    GicAcknowledged {
        /// Which CPU.
        cpu: u32,
        /// The value that it read: an INTID, with GICv2 the sender of an SGI in bits 12:10; 1020 to 1023 for none.
        word: u32,
    },
    /// A CPU wrote its end-of-interrupt register for an existing interrupt: priority drop.
    GicDropped {
        /// Which CPU.
        cpu: u32,
        /// The written value.
        word: u32,
        /// True if it was the latest acknowledged interrupt without a drop, as required.
        in_order: bool,
    },
    /// A CPU deactivated an interrupt, by DIR, or by EOIR in EOImode 0.
    GicDeactivated {
        /// Which CPU.
        cpu: u32,
        /// The written value.
        word: u32,
        /// True if it was active there. Otherwise the write had no effect.
        was_active: bool,
    },
    /// A doorbell arrived at a device; at a DSA, the last word of a descriptor.
    Doorbell {
        /// At whom.
        device: ModelId,
        /// Which queue, of its kind.
        queue: u16,
        /// Tail, or head of a completion queue, or other content of a notification.
        value: u32,
        /// True for a completion or event queue.
        is_completion: bool,
    },
    /// A drive took a command into work.
    Fetched {
        /// Which drive.
        device: ModelId,
        /// Submission queue.
        sqid: u16,
        /// Command id.
        cid: u16,
    },
    /// A drive posted a completion entry.
    EntryPosted {
        /// Which drive.
        device: ModelId,
        /// Completion queue.
        cqid: u16,
        /// Submission queue that the entry names.
        sqid: u16,
        /// Command id that it names.
        cid: u16,
        /// The MSI-X vector of the queue, if it has interrupts.
        vector: Option<u16>,
        /// Its phase tag is that of the last pass, by the fault plan.
        wrong_phase: bool,
    },
    /// A wrong phase tag of an entry was corrected.
    EntryCorrected {
        /// Which drive.
        device: ModelId,
        /// Completion queue.
        cqid: u16,
        /// Command id of the entry.
        cid: u16,
    },
    /// A drive was done with a command and posted no entry for it, by the fault plan.
    EntryLost {
        /// Which drive.
        device: ModelId,
        /// Submission queue.
        sqid: u16,
        /// Command id.
        cid: u16,
    },
    /// A fault was recorded ([`crate::Machine::faults`]): wrongly programmed hardware, an access to an address without
    /// memory, a refused interrupt.
    Fault {
        /// The model that saw it; `u32::MAX` for a CPU.
        source: ModelId,
        /// The kind.
        kind: &'static str,
        /// The cause of the fault; its meaning depends on the kind.
        requester: u64,
    },
    /// The random schedule disturbed the machine ([`crate::unrest`]).
    Disturbed {
        /// The CPU concerned; None for a cache line, a message or a thread's place.
        cpu: Option<u32>,
        /// How.
        kind: Kind,
        /// Duration; 0 where there is none.
        by: Ps,
    },
    /// A tamper did something to a message.
    Tampered {
        /// Which tamper.
        model: ModelId,
        /// The message's requester.
        requester: u16,
        /// The tampering.
        act: Act,
    },
    /// A CPU has stored into watched memory of devices ([`crate::Machine::watch_stores`]), by a plain store: a device may see it with
    /// nothing of what follows. An exchange of several words is none.
    Stored {
        /// Which CPU.
        cpu: u32,
        /// The word's bus address.
        address: u64,
        /// What it held, and what it holds now.
        old: u64,
        /// See `old`.
        value: u64,
    },
    /// A driver has given back memory that a device still uses ([`crate::model::Model::given_back`]).
    GivenBack {
        /// The device.
        device: ModelId,
        /// The bus address of what it uses.
        address: u64,
    },
    /// A fault that the harness planned did something: it changed an entry, refused an access, held an event back. A plan
    /// that changes nothing is not told.
    Struck {
        /// The model; `u32::MAX` for the seam.
        source: ModelId,
        /// The fault.
        fault: &'static str,
    },
    /// The harness declared a CPU offline or online ([`crate::declare_cpu`]).
    Declared {
        /// Which CPU.
        cpu: u32,
        /// From now on.
        online: bool,
    },
    /// An entry that the harness adds ([`crate::mark`]).
    Mark {
        /// On which CPU it ran; the number of CPUs when it was the console.
        cpu: u32,
        /// The mark, in the harness's own numbering.
        tag: u32,
        /// The mark's argument.
        value: u64,
    },
    /// A device was pulled out or put in ([`crate::plug`]).
    Plugged {
        /// Which one.
        device: ModelId,
        /// From now on.
        present: bool,
    },
}

/// The reaction of a LAPIC to a vector that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Its IRR bit is set now.
    Pending,
    /// Its IRR bit was set already: the two interrupts merge.
    Merged,
    /// Refused: no such LAPIC, software-disabled, or an illegal vector.
    Refused,
}

/// The effect on ON of posting a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post {
    /// 0 to 1: a notification follows.
    Notified,
    /// ON was 1 already.
    Outstanding,
    /// ON stays 0, because SN is set and the entry is not urgent.
    Suppressed,
}

/// The fate of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// It never arrives.
    Drop,
    /// It arrives this much later. Other messages may overtake it.
    Delay(Ps),
    /// It arrives, and arrives again this much later.
    Double(Ps),
    /// It arrives behind the device's next message, or after this time if there was no next message.
    Swap(Ps),
    /// Another message arrives in its place, which the device sent earlier with other address or data: a stale vector.
    /// If there is no earlier one, the message passes.
    Redirect,
    /// It arrives, and is repeated this many times with that gap.
    Storm {
        /// Repetitions.
        count: u32,
        /// Between two; at least 1 ps.
        gap: Ps,
    },
}

impl Act {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "dropped",
            Self::Delay(_) => "delayed",
            Self::Double(_) => "doubled",
            Self::Swap(_) => "swapped",
            Self::Redirect => "redirected",
            Self::Storm { .. } => "stormed",
        }
    }
}

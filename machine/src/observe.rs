//! What the hardware did, as it happens: for checkers that trust neither the code under test nor its own counters.
//!
//! An observer ([`crate::Machine::set_observer`]) hears every [`Fact`] in the order in which it takes effect. It is
//! called in the middle of things, so it must not call the machine: [`peek64`] is all that it may use. Harness code that
//! runs on the machine's own CPUs puts its part of the history into the same stream with [`mark`] and [`declare_cpu`].
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

use crate::core::Core;
use crate::cpu::Account;
use crate::current;
use crate::fabric::tamper::Act;
use crate::model::ModelId;
use crate::time::Ps;
use crate::trace::{Track, work_name};
use crate::unrest::Kind;
use hal::Work;
use std::cell::RefCell;

#[cfg(test)]
mod tests;

/// Who listens.
pub(crate) type Observer = RefCell<Box<dyn FnMut(Ps, Fact)>>;

/// Something that the hardware did.
///
/// CPUs are numbers from 0 (and APIC ids with it). Sources of the rules behind them stand at the models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fact {
    /// A message went one step: from a device to its port, from there to the IOMMU or the GIC, or whatever stands
    /// between. `from` being the device, it was sent; `to` being the IOMMU or the GIC, it arrived there.
    Message {
        /// Who passes it on.
        from: ModelId,
        /// To whom.
        to: ModelId,
        /// PCI requester id, as the link reports it.
        requester: u16,
        /// Where it is written.
        address: u64,
        /// The payload.
        data: u32,
    },
    /// The IOMMU looked a message up and passes it on as its remapped entry says; what the LAPIC says of it follows as
    /// [`Fact::Raised`].
    Remapped {
        /// Whose message.
        requester: u16,
        /// The interrupt index: which entry.
        index: u16,
        /// Destination as the entry has it: an APIC id, or a logical set.
        destination: u32,
        /// Vector of the entry.
        vector: u8,
    },
    /// The IOMMU passes a message on as it is: compatibility format, or remapping off.
    Plain {
        /// Whose message.
        requester: u16,
        /// Destination: an APIC id, or a logical set.
        destination: u32,
        /// Vector of the message.
        vector: u8,
    },
    /// The IOMMU updated a posted descriptor.
    Posted {
        /// Whose message.
        requester: u16,
        /// Bus address of the descriptor.
        descriptor: u64,
        /// The bit of PIR.
        vector: u8,
        /// The bit was set already.
        again: bool,
        /// What became of ON.
        post: Post,
    },
    /// The IOMMU let a message go nowhere.
    Blocked {
        /// Whose message.
        requester: u16,
        /// The interrupt index, where there is one.
        index: u16,
        /// VT-d's fault reason, 20h to 28h.
        reason: u8,
        /// A record for software was due. False: the entry forbids it (FPD).
        recorded: bool,
    },
    /// The IOMMU forgot cached entries. Messages that were looked up before are drained when the next wait descriptor
    /// is executed.
    Invalidated {
        /// The first index.
        first: u16,
        /// How many indices, rounded to what was asked for; 65,536 for all.
        count: u32,
    },
    /// A vector arrived at a LAPIC: by a message, an IPI or its timer.
    Raised {
        /// Whose LAPIC. One that does not exist refuses.
        cpu: u32,
        /// The vector.
        vector: u8,
        /// Level-triggered.
        level: bool,
        /// What the LAPIC made of it.
        arrival: Arrival,
    },
    /// A CPU took a vector: from IRR to ISR.
    Accepted {
        /// Which CPU.
        cpu: u32,
        /// The vector.
        vector: u8,
    },
    /// A CPU enters the exception of a machine with a GIC; which interrupt it is, [`Fact::GicAcknowledged`] tells.
    Exception {
        /// Which CPU.
        cpu: u32,
        /// It came through although interrupts were off.
        pseudo_nmi: bool,
    },
    /// The interrupt entry returned.
    Returned {
        /// Which CPU.
        cpu: u32,
        /// Interrupts that it interrupted and that still run.
        depth: u32,
        /// The highest vector still in service at the LAPIC: at depth 0 there should be none.
        in_service: Option<u8>,
    },
    /// A write of EOI ended the highest vector in service.
    Ended {
        /// Which CPU.
        cpu: u32,
        /// What was ended.
        vector: u8,
    },
    /// A write of EOI with nothing in service.
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
    /// It leaves its halt, before the interrupt that woke it is entered.
    Woken {
        /// Which CPU.
        cpu: u32,
    },
    /// A CPU did named work ([`hal::Hal::work`]), owed from now on.
    Worked {
        /// Which CPU.
        cpu: u32,
        /// In interrupt context: how deep.
        depth: u32,
        /// What.
        work: Work,
        /// How many units.
        count: u32,
    },
    /// An interrupt of a GIC became pending; nothing when it was so already.
    GicPending {
        /// Whose: of an SGI, PPI or LPI. An SPI has none until it is acknowledged.
        cpu: Option<u32>,
        /// Which.
        intid: u32,
    },
    /// A CPU read its acknowledge register.
    GicAcknowledged {
        /// Which CPU.
        cpu: u32,
        /// What it read: an INTID, with GICv2 the sender of an SGI in bits 12:10; 1020 to 1023 for none.
        word: u32,
    },
    /// A CPU wrote its end-of-interrupt register, of an interrupt that exists: priority drop.
    GicDropped {
        /// Which CPU.
        cpu: u32,
        /// What it wrote.
        word: u32,
        /// It was the latest that was acknowledged and not dropped, as it must be.
        in_order: bool,
    },
    /// A CPU deactivated an interrupt, by DIR, or by EOIR in EOImode 0.
    GicDeactivated {
        /// Which CPU.
        cpu: u32,
        /// What it wrote.
        word: u32,
        /// It was active there; otherwise nothing happened.
        was_active: bool,
    },
    /// A doorbell arrived at a device; at a DSA, the last word of a descriptor.
    Doorbell {
        /// At whom.
        device: ModelId,
        /// Which queue, of its kind.
        queue: u16,
        /// Tail, or head of a completion queue; what else a notification carries.
        value: u32,
        /// Of a completion or event queue.
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
        /// Its phase is that of the last pass, by the fault plan.
        wrong_phase: bool,
    },
    /// The phase tag of an entry that was wrong is right now.
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
    /// Somebody recorded a fault ([`crate::Machine::faults`]): hardware that was programmed wrongly, an access to where
    /// no memory is, a refused interrupt.
    Fault {
        /// The model that saw it; `u32::MAX` for a CPU.
        source: ModelId,
        /// What kind.
        kind: &'static str,
        /// Whose fault, as the kind says.
        requester: u64,
    },
    /// The random schedule disturbed the machine ([`crate::unrest`]).
    Disturbed {
        /// Whose CPU; none of a line, a message or a thread's place.
        cpu: Option<u32>,
        /// How.
        kind: Kind,
        /// For how long; 0 where there is no such thing.
        by: Ps,
    },
    /// A tamper did something to a message.
    Tampered {
        /// Which tamper.
        model: ModelId,
        /// Whose message.
        requester: u16,
        /// What.
        act: Act,
    },
    /// The harness declared a CPU offline or online ([`declare_cpu`]).
    Declared {
        /// Which CPU.
        cpu: u32,
        /// From now on.
        online: bool,
    },
    /// The harness says something ([`mark`]).
    Mark {
        /// On which CPU it ran; the number of CPUs when it was the console.
        cpu: u32,
        /// What, in the harness's own numbering.
        tag: u32,
        /// Of what.
        value: u64,
    },
}

/// What a LAPIC made of a vector that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Its IRR bit is set now.
    Pending,
    /// Its IRR bit was set already: the two are one.
    Merged,
    /// Refused: no such LAPIC, software-disabled, or an illegal vector.
    Refused,
}

/// What became of ON when a bit was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post {
    /// 0 to 1: a notification follows.
    Notified,
    /// It was 1 already.
    Outstanding,
    /// It stays 0, because SN is set and the entry is not urgent.
    Suppressed,
}

impl Core {
    /// Tells the observer what a model did, if there is one.
    #[inline]
    pub(crate) fn tell(&self, fact: impl FnOnce() -> Fact) {
        if let Some(observer) = self.observer.get() {
            tell_observer(observer, self.now(), fact());
        }
    }

    /// Work of the running CPU while somebody listens or disturbs.
    #[cold]
    pub(crate) fn watched_work(&self, work: Work, count: u32, cost: u64, account: Account) {
        let cpu = self.cpu();
        if cost > 0 {
            self.trace(Track::Cpu(cpu.id.0), work_name(work), self.local_now(), Ps(cost), count.into());
        }
        self.tell_of_cpu(|id| Fact::Worked { cpu: id, depth: cpu.depth.get(), work, count });
        cpu.owe(cost, account);
        self.owed_point();
    }

    /// Tells the observer what the running CPU did, if there is one.
    #[inline]
    pub(crate) fn tell_of_cpu(&self, fact: impl FnOnce(u32) -> Fact) {
        if let Some(observer) = self.observer.get() {
            tell_observer(observer, self.local_now(), fact(self.cpu().id.0));
        }
    }
}

/// # Panics
/// When the observer itself caused the fact: it called the machine.
#[cold]
fn tell_observer(observer: &Observer, at: Ps, fact: Fact) {
    let Ok(mut observer) = observer.try_borrow_mut() else { panic!("the observer called the machine: {fact:?}") };
    observer(at, fact);
}

/// Puts a line of the harness's own into the observer's stream: a command submitted, a line freed. Nothing without an
/// observer, and nothing on a host thread without a machine. It takes no simulated time and is no point of the seam.
pub fn mark(tag: u32, value: u64) {
    current::try_with(|core| core.tell_of_cpu(|cpu| Fact::Mark { cpu, tag, value }));
}

/// Declares a CPU offline or online, for the observer: hardware has no such state, so that only the harness knows from
/// when on nothing may be delivered there.
pub fn declare_cpu(cpu: u32, online: bool) {
    current::try_with(|core| core.tell_of_cpu(|_| Fact::Declared { cpu, online }));
}

/// 64 bits of the memory of this host thread's machine, as they are; an observer may read them in the middle of
/// things. `None` without a machine, where no memory is, or for an address that is not a multiple of 8.
pub fn peek64(address: u64) -> Option<u64> {
    let mut seen = None;
    current::try_with(|core| seen = core.memory_word(address, 8).ok().map(hal::Word::get));
    seen
}

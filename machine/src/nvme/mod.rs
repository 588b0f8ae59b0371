//! An NVMe drive, down to its registers and queues: Base Specification 2.0 ("Base"), NVM Command Set 1.0 ("NVM"),
//! PCIe Transport 1.0 ("PCIe"), and MSI-X as in the PCI Express Base Specification ("PCI").
//!
//! | region | what |
//! |---|---|
//! | [`REGION_CONTROLLER`] | BAR 0: controller properties, doorbells |
//! | [`REGION_MSIX`] | BAR 4: the MSI-X table at 0, the pending-bit array at [`PBA_OFFSET`] |
//! | [`REGION_CONFIG`] | PCI configuration space with the MSI-X capability at [`MSIX_CAPABILITY_OFFSET`] |
//!
//! Time. The drive fetches one I/O command at a time, round robin over its submission queues, while it has a free slot.
//! A read then waits for the media, and its data pass the link. A write passes the link first, and a cache may end it
//! before the media do. Then the drive posts the entry, and sends one message a vector [`Timing::msi`] later. A command
//! keeps its slot from the fetch to the entry. An I/O takes at most four events: fetched, media, link, message. An admin
//! command takes one event and no slot.
//!
//! Not modelled: INTx and MSI, controller memory buffer, metadata and protection information, namespaces other than 1,
//! SGLs, fused commands, weighted arbitration, queues that are not contiguous (CAP.CQR), power states, error log
//! entries. The time to read PRP lists is part of the fetch.

mod admin;
mod async_event;
mod coalescing;
mod config;
mod controller;
mod doorbell;
mod faults;
mod features;
mod identify;
mod interrupt;
mod io;
mod latency;
mod media;
mod pci;
mod prp;
mod queues;
mod ready;
mod storage;
#[cfg(test)]
mod tests;

pub use crate::pci::{MSIX_CAPABILITY_OFFSET, PBA_OFFSET};
pub use config::{Config, ConfigError, HiddenCoalescing, Latency, Resend, Spread, StorageKind, Tail, Timing, Writes};
pub use faults::{FaultPlan, RandomFaults};
pub use queues::QueueState;
pub use storage::Blocks;

use crate::model::ModelId;
use crate::observe::Fact;
use crate::pci::{Function, MessageCounts, Place, Shell};
use crate::random::Stream;
use crate::time::Ps;
use crate::world::World;
use async_event::AsyncEvents;
use controller::Controller;
use core::ops::Range;
use features::Features;
use interrupt::Vector;
use io::Slots;
use media::Media;
use queues::Queues;
use ready::Ready;
use spec::nvme::AbortDw10;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::Storage;

/// BAR 0: controller properties and doorbells.
pub const REGION_CONTROLLER: u8 = 0;
/// BAR 4: MSI-X table and pending bits.
pub const REGION_MSIX: u8 = 1;
/// PCI configuration space.
pub const REGION_CONFIG: u8 = 2;

/// The drive's own events.
mod code {
    /// CC.EN or a shutdown takes effect. arg: epoch.
    pub(super) const READY: u32 = 0;
    /// CC.SHN takes effect. arg: epoch.
    pub(super) const SHUTDOWN: u32 = 1;
    /// An admin command is done. arg: epoch.
    pub(super) const ADMIN: u32 = 2;
    /// An I/O command is fetched. arg: epoch.
    pub(super) const FETCH: u32 = 3;
    /// The media are done. arg: slot ticket.
    pub(super) const MEDIA: u32 = 4;
    /// The data have passed the link. arg: slot ticket.
    pub(super) const LINK: u32 = 5;
    /// A vector's window ends. arg: epoch << 32 | vector.
    pub(super) const MESSAGE: u32 = 6;
    /// A vector's coalescing time ends. arg: generation << 32 | vector.
    pub(super) const COALESCED: u32 = 7;
    /// A wrong phase tag becomes right. arg: which.
    pub(super) const CORRECT: u32 = 8;
    /// A write of the cache is on the media. arg: its bytes.
    pub(super) const DRAINED: u32 = 9;
    /// An Abort that got no answer is done. arg: its dword 10.
    pub(super) const ABORT: u32 = 10;
}

/// Cumulative counts, in the order of [`Function::counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Read commands that ended well.
    pub reads: u64,
    /// Write commands that ended well.
    pub writes: u64,
    /// Flush commands that ended well.
    pub flushes: u64,
    /// Dataset Management commands that ended well.
    pub deallocates: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Admin commands executed.
    pub admin_commands: u64,
    /// Entries posted to I/O completion queues.
    pub completions: u64,
    /// Entries posted with a status other than success, all queues.
    pub errors: u64,
    /// Messages sent.
    pub msis: u64,
    /// Entries that share a message which was already on its way to their vector.
    pub msis_merged: u64,
    /// Entries held back by coalescing, declared or hidden.
    pub coalesced: u64,
    /// Messages not sent because the host had acknowledged everything.
    pub msis_spared: u64,
    /// Messages turned into a pending bit because the vector was masked.
    pub msis_pended: u64,
    /// Messages lost: MSI-X disabled, or a fault of the plan.
    pub msis_lost: u64,
    /// Entries that found their completion queue full and waited.
    pub queue_full_waits: u64,
    /// Doorbell writes that were refused.
    pub doorbell_errors: u64,
    /// I/O queues deleted by command, submission and completion queues both.
    pub queues_deleted: u64,
    /// Slots' busy time, summed over slots.
    pub slots_busy_ps: u64,
    /// Time that I/O commands waited to be fetched, summed over commands.
    pub fetch_wait_ps: u64,
    /// Time that I/O commands spent in the media, summed over commands.
    pub media_ps: u64,
    /// I/O commands in the media now.
    pub media_slots: u64,
    /// Ends less beginnings of the commands' stays in the media, modulo 2^64: with `media_slots` times the present it is
    /// the time that slots were in use until now.
    pub media_slot_ps: u64,
    /// Time that the media take for the writes that they accepted, one after another.
    pub media_write_ps: u64,
    /// When the media are through with these writes.
    pub media_write_end_ps: u64,
    /// Time that I/O commands spent waiting for the link and on it, summed over commands.
    pub link_ps: u64,
    /// Time from an entry to its vector's message, summed over entries; what coalescing adds is not in it.
    pub message_wait_ps: u64,
}

/// An entry whose phase tag will become right.
struct Correction {
    cqid: u16,
    /// Address of the entry's second word.
    address: u64,
    word: u64,
}

/// The drive.
pub struct Nvme {
    config: Config,
    pci: Shell,
    controller: Controller,
    queues: Queues,
    ready: Ready,
    slots: Slots,
    media: Media,
    /// A fetch is in progress.
    fetching: bool,
    /// Number of I/O commands that wait to be fetched, and the time of the last change of that number.
    backlog: (u64, Ps),
    /// An admin command is in progress.
    admin_busy: bool,
    features: Features,
    events: AsyncEvents,
    vectors: Vec<Vector>,
    storage: Storage,
    counters: Counters,
    /// Messages tried so far, for the fault plan.
    messages_tried: u64,
    /// Random stream of the plan's faults, once a number was drawn.
    fault_stream: Option<Stream>,
    corrections: BTreeMap<u64, Correction>,
    /// Aborts that got no answer and are not done yet.
    late_aborts: Vec<AbortDw10>,
    correction_next: u64,
}

impl Nvme {
    /// A drive behind `port`, which takes its [`crate::model::Upstream`] requests.
    ///
    /// # Errors
    /// [`ConfigError`] for a field that is out of range.
    pub fn new(port: ModelId, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let place = Place { name: config.name.clone(), requester: config.requester, port };
        Ok(Self {
            pci: Shell::new(place, &pci::identity(&config), config.vectors),
            controller: Controller::default(),
            queues: Queues::new(config.io_queues_max),
            ready: Ready::new(config.io_queues_max),
            slots: Slots::new(config.timing.slots),
            media: Media::new(),
            fetching: false,
            backlog: (0, Ps(0)),
            admin_busy: false,
            features: Features::new(&config),
            events: AsyncEvents::default(),
            vectors: vec![Vector::default(); config.vectors.into()],
            storage: Storage::new(config.storage),
            counters: Counters::default(),
            messages_tried: 0,
            fault_stream: None,
            corrections: BTreeMap::new(),
            late_aborts: Vec::new(),
            correction_next: 0,
            config,
        })
    }

    /// The same drive with blocks that the host keeps, in place of [`Config::storage`].
    pub fn with_blocks(self, blocks: Arc<dyn Blocks>) -> Self {
        Self { storage: Storage::Host(blocks, self.config.block_shift), ..self }
    }

    /// The drive's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The fault plan from now on.
    pub fn faults_mut(&mut self) -> &mut FaultPlan {
        &mut self.config.faults
    }

    /// Cumulative counts.
    pub fn counts(&self) -> Counters {
        let MessageCounts { sent, pended, lost } = self.pci.message_counts();
        Counters { msis: sent, msis_pended: pended, msis_lost: lost, ..self.counters }
    }

    /// Messages sent, by MSI-X vector.
    pub fn msis_by_vector(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.pci.sent_by_vector().iter().copied()
    }

    /// Address and data that the driver gave an MSI-X vector; zeros for a vector that the driver did not set up. None
    /// for a vector that does not exist.
    pub fn message(&self, vector: u16) -> Option<(u64, u32)> {
        self.pci.message(vector)
    }

    /// A vector's MSI-X entry: address, data, masked. None for a vector that does not exist.
    pub fn msix_entry(&self, vector: u16) -> Option<(u64, u32, bool)> {
        self.pci.entry(vector)
    }

    /// A register of the controller, 32 bits, as it is.
    pub fn held(&self, offset: u32) -> u32 {
        self.controller_read(offset)
    }

    /// A queue pair as the drive has it; none unless both queues exist.
    pub fn queue_state(&self, qid: u16) -> Option<QueueState> {
        self.queues.state(qid)
    }

    /// True if feature 08h lets the drive hold interrupts back.
    pub fn is_coalescing(&self) -> bool {
        self.features.coalescing.time() != 0 && self.features.coalescing.thr() != 0
    }

    /// Feature 08h, as dword 11 of Set Features has it.
    pub fn coalescing(&self) -> u32 {
        self.features.coalescing.into_bits()
    }

    /// Feature 09h, CD: the interrupts of `vector` are never held back. None if there is no such vector.
    pub fn is_immediate(&self, vector: u16) -> Option<bool> {
        self.features.coalescing_disabled.get(usize::from(vector)).copied()
    }

    /// I/O commands in work now.
    pub fn slots_in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Bytes in the write cache that are not on the media yet.
    pub fn cached_bytes(&self) -> u64 {
        self.media.cached()
    }

    /// The first 8 bytes of a block, as the storage has them.
    pub fn stored_word(&self, lba: u64) -> u64 {
        self.storage.first_word(lba)
    }

    /// A planned failure happens when it is first checked. Nobody can tell the difference.
    fn fail_if_due(&mut self, world: &mut World<'_>) {
        if self.config.faults.take_fatal(world.now()) {
            world.tell(|| Fact::Struck { source: world.me(), fault: "fatal" });
            self.fatal(world, "NVMe controller failure by the fault plan", String::new());
        }
    }
}

impl Function for Nvme {
    fn shell(&self) -> &Shell {
        &self.pci
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.pci
    }

    fn on_event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        self.fail_if_due(world);
        match code {
            code::READY => self.ready_changes(arg),
            code::SHUTDOWN => self.shutdown_ends(arg),
            code::ADMIN => self.admin_done(world, arg),
            code::FETCH => self.fetched(world, arg),
            code::MEDIA => self.media_done(world, arg),
            code::LINK => self.link_done(world, arg),
            code::MESSAGE => self.window_ends(world, arg),
            code::COALESCED => self.coalescing_ends(world, arg),
            code::CORRECT => self.correct(world, arg),
            code::DRAINED => self.drained(world, arg),
            code::ABORT => self.abort_late(world, arg),
            _ => world.fault("event that an NVMe drive does not know", code.into(), format!("argument {arg:#x}")),
        }
    }

    fn read_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8) -> u64 {
        self.fail_if_due(world);
        if region == REGION_CONTROLLER { self.controller_read(offset).into() } else { 0 }
    }

    fn write_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8, value: u64) {
        self.fail_if_due(world);
        if region == REGION_CONTROLLER {
            self.controller_write(world, offset, value as u32);
        }
    }

    /// Doorbells are independent of each other.
    fn write_order(&self, region: u8, offset: u32) -> u32 {
        if region == REGION_CONTROLLER && offset >= spec::nvme::registers::DOORBELLS { offset } else { 0 }
    }

    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        self.queues.bases().find(|base| range.contains(base))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = self.counts();
        vec![
            ("reads", c.reads),
            ("writes", c.writes),
            ("flushes", c.flushes),
            ("deallocates", c.deallocates),
            ("read_bytes", c.read_bytes),
            ("write_bytes", c.write_bytes),
            ("admin_commands", c.admin_commands),
            ("completions", c.completions),
            ("errors", c.errors),
            ("msis", c.msis),
            ("msis_merged", c.msis_merged),
            ("coalesced", c.coalesced),
            ("msis_spared", c.msis_spared),
            ("msis_pended", c.msis_pended),
            ("msis_lost", c.msis_lost),
            ("queue_full_waits", c.queue_full_waits),
            ("doorbell_errors", c.doorbell_errors),
            ("queues_deleted", c.queues_deleted),
            ("slots_busy_ps", c.slots_busy_ps),
            ("fetch_wait_ps", c.fetch_wait_ps),
            ("media_ps", c.media_ps),
            ("media_slots", c.media_slots),
            ("media_slot_ps", c.media_slot_ps),
            ("media_write_ps", c.media_write_ps),
            ("media_write_end_ps", c.media_write_end_ps),
            ("link_ps", c.link_ps),
            ("message_wait_ps", c.message_wait_ps),
        ]
    }
}

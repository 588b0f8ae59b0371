//! Controller properties, enable, reset, shutdown and failure (Base 3.1.3, 3.5, 3.6, 3.7).

use super::{Nvme, code};
use crate::time::Ps;
use crate::world::World;
use spec::nvme::registers::{self as reg, Aqa, Cap, Cc, Csts, ShutdownNotification, ShutdownStatus, Version};

// Offsets, as constants for `match` patterns. The upper half of a 64-bit register is four bytes later.
const CAP: u32 = reg::CAP.offset();
const CAP_HIGH: u32 = CAP + 4;
const VS: u32 = reg::VS.offset();
const INTMS: u32 = reg::INTMS.offset();
const INTMC: u32 = reg::INTMC.offset();
const CC: u32 = reg::CC.offset();
const CSTS: u32 = reg::CSTS.offset();
const AQA: u32 = reg::AQA.offset();
const ASQ: u32 = reg::ASQ.offset();
const ASQ_HIGH: u32 = ASQ + 4;
const ACQ: u32 = reg::ACQ.offset();
const ACQ_HIGH: u32 = ACQ + 4;

/// Largest memory page: `2^(12 + MPSMAX)`.
const MPSMAX: u8 = 4;
/// The unit of CAP.TO.
const TO_UNIT: Ps = Ps::from_ns(500_000_000);
/// Base 2.0.
pub(super) const VERSION: Version = Version::new().with_major(2);

/// The writable registers and the state behind them.
#[derive(Default)]
pub(super) struct Controller {
    pub(super) cc: Cc,
    pub(super) csts: Csts,
    aqa: Aqa,
    asq: u64,
    acq: u64,
    /// INTMS and INTMC: kept, but without effect: they are not for MSI-X (Base 3.1.3.3).
    interrupt_mask: u32,
    /// Counts resets and starts, so that earlier events are recognised as stale.
    pub(super) epoch: u32,
}

impl Controller {
    /// Memory page size in bytes.
    pub(super) fn page(&self) -> u64 {
        1 << (12 + self.cc.mps())
    }

    /// Whether commands are processed.
    pub(super) fn runs(&self) -> bool {
        self.cc.en() && self.csts.rdy() && !self.csts.cfs() && self.csts.shst() == ShutdownStatus::NORMAL.0
    }

    fn interrupt_write(&mut self, set: u32, clear: u32) {
        self.interrupt_mask = (self.interrupt_mask | set) & !clear;
    }
}

fn with_half(word: u64, high: bool, value: u32) -> u64 {
    if high { word & 0xffff_ffff | u64::from(value) << 32 } else { word & !0xffff_ffff | u64::from(value) }
}

impl Nvme {
    fn cap(&self) -> Cap {
        let slowest = self.config.timing.enable.max(self.config.timing.reset);
        Cap::new()
            .with_mqes((self.config.queue_entries_max - 1) as u16)
            .with_cqr(true)
            .with_to(slowest.0.div_ceil(TO_UNIT.0).clamp(1, 255) as u8)
            .with_dstrd(self.config.doorbell_stride)
            .with_css_nvm(true)
            .with_mpsmax(MPSMAX)
    }

    /// Reads 32 bits of BAR 0. Reserved offsets and doorbells read zero.
    pub(super) fn controller_read(&self, offset: u32) -> u32 {
        let controller = &self.controller;
        let cap = self.cap().into_bits();
        match offset {
            CAP => cap as u32,
            CAP_HIGH => (cap >> 32) as u32,
            VS => VERSION.into_bits(),
            INTMS | INTMC => controller.interrupt_mask,
            CC => controller.cc.into_bits(),
            CSTS => controller.csts.into_bits(),
            AQA => controller.aqa.into_bits(),
            ASQ => controller.asq as u32,
            ASQ_HIGH => (controller.asq >> 32) as u32,
            ACQ => controller.acq as u32,
            ACQ_HIGH => (controller.acq >> 32) as u32,
            _ => 0,
        }
    }

    /// Writes 32 bits of BAR 0. Read-only and reserved offsets ignore it.
    pub(super) fn controller_write(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        if offset >= reg::DOORBELLS {
            return self.doorbell(world, offset - reg::DOORBELLS, value);
        }
        let controller = &mut self.controller;
        match offset {
            INTMS => controller.interrupt_write(value, 0),
            INTMC => controller.interrupt_write(0, value),
            CC => self.configure(world, Cc::from_bits(value)),
            AQA => controller.aqa = Aqa::from_bits(value),
            ASQ | ASQ_HIGH => controller.asq = with_half(controller.asq, offset != ASQ, value),
            ACQ | ACQ_HIGH => controller.acq = with_half(controller.acq, offset != ACQ, value),
            _ => {}
        }
    }

    fn configure(&mut self, world: &mut World<'_>, cc: Cc) {
        let old = core::mem::replace(&mut self.controller.cc, cc);
        match (old.en(), cc.en()) {
            (false, true) => self.start(world),
            (true, false) => self.stop(world),
            _ => {}
        }
        if cc.shn() != ShutdownNotification::NONE.0 && old.shn() == ShutdownNotification::NONE.0 {
            self.controller.csts.set_shst(ShutdownStatus::OCCURRING.0);
            let at = world.now() + self.config.timing.shutdown;
            world.schedule(at, code::SHUTDOWN, self.controller.epoch.into());
        }
    }

    /// CC.EN 0 → 1. A configuration that cannot work makes the controller fail instead of getting ready.
    fn start(&mut self, world: &mut World<'_>) {
        let Controller { cc, aqa, asq, acq, .. } = self.controller;
        let page = self.controller.page();
        let wrong = if cc.css() != 0 {
            Some("CSS selects a command set that CAP does not offer")
        } else if cc.mps() > MPSMAX {
            Some("MPS is above CAP.MPSMAX")
        } else if cc.ams() != 0 {
            Some("AMS selects an arbitration that CAP does not offer")
        } else if aqa.asqs() == 0 || aqa.acqs() == 0 {
            Some("an admin queue of one entry; two is the least")
        } else if !asq.is_multiple_of(page) || !acq.is_multiple_of(page) {
            Some("an admin queue that does not begin on a memory page")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return self.fatal(world, "NVMe controller enabled with a wrong configuration", wrong.into());
        }
        self.queues.create_admin((asq, u32::from(aqa.asqs()) + 1), (acq, u32::from(aqa.acqs()) + 1));
        let at = world.now() + self.config.timing.enable;
        world.schedule(at, code::READY, self.controller.epoch.into());
    }

    /// CC.EN 1 → 0, a controller reset: every queue and command is gone; AQA, ASQ and ACQ stay (Base 3.7.2).
    fn stop(&mut self, world: &mut World<'_>) {
        self.controller.epoch = self.controller.epoch.wrapping_add(1);
        self.controller.interrupt_mask = 0;
        self.queues.clear();
        self.corrections.clear();
        self.late_aborts.clear();
        self.ready.clear();
        self.slots.clear(world.now(), &mut self.counters);
        (0..self.media.reset()).for_each(|_| self.counters.leave_media(world.now()));
        self.recount_backlog(world);
        (self.fetching, self.admin_busy) = (false, false);
        self.features.reset();
        self.events = Default::default();
        self.pci.forget_pending();
        self.vectors.iter_mut().for_each(super::Vector::reset);
        // Not at once: a driver must wait for RDY to fall (Base 3.1.3.5, EN).
        let at = world.now() + self.config.timing.reset;
        world.schedule(at, code::READY, self.controller.epoch.into());
    }

    /// The power goes: every register, queue, feature and MSI-X entry is as at first. The blocks keep their data, and what
    /// the cache holds reaches the media.
    pub fn lose_power(&mut self, world: &mut World<'_>) {
        self.stop(world);
        self.controller = Controller { epoch: self.controller.epoch, ..Controller::default() };
        self.pci.lose_power();
    }

    /// RDY follows EN.
    pub(super) fn ready_changes(&mut self, epoch: u64) {
        if epoch != u64::from(self.controller.epoch) {
            return;
        }
        let enabled = self.controller.cc.en();
        if !enabled {
            self.controller.csts = Csts::new();
        }
        self.controller.csts.set_rdy(enabled && !self.controller.csts.cfs());
    }

    pub(super) fn shutdown_ends(&mut self, epoch: u64) {
        if epoch == u64::from(self.controller.epoch) {
            self.controller.csts.set_shst(ShutdownStatus::COMPLETE.0);
        }
    }

    /// Controller Fatal Status: nothing more happens until a controller reset (Base 3.1.3.6, 9.5).
    pub(super) fn fatal(&mut self, world: &mut World<'_>, kind: &'static str, text: String) {
        self.controller.csts.set_cfs(true);
        world.fault(kind, self.config.requester.into(), text);
    }
}

//! The controller's registers: capabilities checked, enable, disable and shutdown, every poll with a deadline.

use super::NvmeError;
use super::prp::PAGE_BYTES;
use crate::register::Typed as _;
use alloc::sync::Arc;
use hal::{DeviceAddress, Hal};
use spec::nvme::registers::{self, Aqa, Cap, Cc, Csts, ShutdownNotification, ShutdownStatus};

/// Interval between two reads of CSTS.
const STATUS_POLL_NS: u64 = 10_000;
/// The unit of CAP.TO (Base 3.1.3.1).
const TIMEOUT_UNIT_MS: u64 = 500;
/// How long a shutdown may take when the controller does not say (RTD3E of 0): five seconds, as Linux waits.
const SHUTDOWN_MS_DEFAULT: u64 = 5_000;
/// CC.IOSQES: entries of 64 bytes.
const IOSQES: u8 = 6;
/// CC.IOCQES: entries of 16 bytes.
const IOCQES: u8 = 4;

/// The register window of a controller that this driver supports.
pub(super) struct Port<H: Hal> {
    pub(super) hal: H,
    pub(super) regs: Arc<H::Regs>,
    pub(super) cap: Cap,
}

impl<H: Hal> Port<H> {
    /// Reads the capabilities and rejects a controller that this driver does not support.
    pub(super) fn new(hal: H, regs: H::Regs) -> Result<Self, NvmeError> {
        let bits = regs.read(registers::CAP);
        if bits == u64::MAX {
            return Err(NvmeError::Gone);
        }
        let cap = Cap::from_bits(bits);
        if !cap.css_nvm() {
            return Err(NvmeError::NoNvmCommandSet);
        }
        let page_bytes = PAGE_BYTES << cap.mpsmin();
        if page_bytes != PAGE_BYTES {
            return Err(NvmeError::PageSize(page_bytes));
        }
        Ok(Self { hal, regs: Arc::new(regs), cap })
    }

    /// CSTS, or why it says nothing.
    pub(super) fn status(&self) -> Result<Csts, NvmeError> {
        match self.regs.read(registers::CSTS) {
            u32::MAX => Err(NvmeError::Gone),
            bits => Ok(Csts::from_bits(bits)),
        }
    }

    /// CSTS of a controller that works.
    pub(super) fn check_health(&self) -> Result<(), NvmeError> {
        if self.status()?.cfs() { Err(NvmeError::Fatal) } else { Ok(()) }
    }

    /// Clears CC.EN and waits for CSTS.RDY to follow: a controller reset (Base 3.7.2). Afterwards the device has no
    /// queues and touches no memory.
    pub(super) fn disable(&self) -> Result<(), NvmeError> {
        let cc = Cc::from_bits(self.regs.read(registers::CC));
        // Software should change EN only when RDY equals it (Base 3.1.3.5). If a controller never reaches that state,
        // the driver resets it anyway, because there is no other way left.
        if cc.en() && !self.status()?.rdy() {
            match self.wait("CSTS.RDY = 1", self.ready_ms(), |csts| csts.rdy() || csts.cfs()) {
                Ok(()) | Err(NvmeError::Timeout(..)) => {}
                Err(error) => return Err(error),
            }
        }
        let failed = cc.en() && self.status()?.cfs();
        self.regs.write(registers::CC, cc.with_en(false).with_shn(ShutdownNotification::NONE.0).into_bits());
        self.wait("CSTS.RDY = 0", self.ready_ms(), |csts| !csts.rdy())?;
        if !failed {
            return Ok(());
        }
        // A controller that failed before it was ready has had RDY at 0 all along. Its reset ends when CFS is cleared
        // too. If CFS stays set, the next start reports it again.
        match self.wait("CSTS.CFS = 0", self.ready_ms(), |csts| !csts.cfs()) {
            Err(NvmeError::Timeout(..)) => Ok(()),
            result => result,
        }
    }

    /// Gives a disabled controller its admin queue, with `entries` in each ring, and starts it (Base 3.5.1).
    pub(super) fn enable(&self, sq: DeviceAddress, cq: DeviceAddress, entries: u16) -> Result<(), NvmeError> {
        let aqa = Aqa::new().with_asqs(entries - 1).with_acqs(entries - 1);
        self.regs.write(registers::AQA, aqa.into_bits());
        self.regs.write(registers::ASQ, sq.0);
        self.regs.write(registers::ACQ, cq.0);
        let cc = Cc::new().with_en(true).with_iosqes(IOSQES).with_iocqes(IOCQES);
        if self.status()?.cfs() {
            // The controller failed while disabled. Only clearing an EN that was set clears the failure (Base 3.7.2).
            self.regs.write(registers::CC, cc.into_bits());
            self.disable()?;
        }
        self.regs.write(registers::CC, cc.into_bits());
        self.wait("CSTS.RDY = 1", self.ready_ms(), |csts| csts.rdy() || csts.cfs())?;
        self.check_health()
    }

    /// Announces a normal shutdown and waits for it (Base 3.6.1). A disabled controller has nothing to shut down. Its
    /// CSTS.SHST would also survive the next start, because only clearing CC.EN resets it.
    pub(super) fn shut_down(&self, rtd3e_us: u32) -> Result<(), NvmeError> {
        let cc = Cc::from_bits(self.regs.read(registers::CC));
        if !cc.en() {
            return Ok(());
        }
        self.regs.write(registers::CC, cc.with_shn(ShutdownNotification::NORMAL.0).into_bits());
        let limit_ms = match rtd3e_us {
            0 => SHUTDOWN_MS_DEFAULT,
            us => u64::from(us).div_ceil(1_000).max(self.ready_ms()),
        };
        // A controller that fails meanwhile completes no further command (Base 3.1.3.6, CFS).
        let is_over = |csts: Csts| csts.shst() == ShutdownStatus::COMPLETE.0 || csts.cfs();
        self.wait("CSTS.SHST = complete", limit_ms, is_over)?;
        self.check_health()
    }

    /// CAP.TO; a controller that says 0 is given one unit.
    fn ready_ms(&self) -> u64 {
        u64::from(self.cap.to().max(1)) * TIMEOUT_UNIT_MS
    }

    fn wait(&self, what: &'static str, limit_ms: u64, until: impl Fn(Csts) -> bool) -> Result<(), NvmeError> {
        let deadline_ns = self.hal.now_ns().saturating_add(limit_ms * 1_000_000);
        loop {
            // Reads the time first, so that one look at the device always follows the deadline.
            let late = self.hal.now_ns() >= deadline_ns;
            if until(self.status()?) {
                return Ok(());
            }
            if late {
                return Err(NvmeError::Timeout(what, limit_ms));
            }
            self.hal.delay_ns(STATUS_POLL_NS);
        }
    }
}

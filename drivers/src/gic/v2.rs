//! GICv2 (IHI 0048B): memory-mapped CPU interface, at most eight CPUs.

use super::GicError;
use super::distributor::reset;
use super::frame::Frame;
use super::version::{EoiMode, Version};
use alloc::boxed::Box;
use hal::{CpuId, Hal, Word};
use spec::gic::gicc::{self, Acknowledge};
use spec::gic::gicd::{self, TargetFilter, V2Control, V2SoftwareInterrupt};
use spec::gic::{IntId, Kind, Priority};

/// Maximum number of CPU interfaces.
const CPUS_MAX: usize = 8;
const SGIS: usize = 16;

/// A GICv2's registers.
pub struct V2<H: Hal> {
    hal: H,
    distributor: H::Regs,
    interface: H::Regs,
    /// Indexed by CPU: the bit of its interface; 0 until the interface has been started.
    masks: Box<[H::Word]>,
    /// Indexed by CPU and SGI: the value read from IAR. The EOI must repeat it, because it names the sender (IHI
    /// 0048B, "GICC_EOIR"). The CPU does not take an active SGI again from another sender.
    taken: Box<[H::Word]>,
}

impl<H: Hal> V2<H> {
    /// The GICv2 behind these two windows, for `cpus` CPUs.
    ///
    /// # Errors
    /// [`GicError::Cpus`].
    pub(super) fn new(hal: H, distributor: H::Regs, interface: H::Regs, cpus: u32) -> Result<Self, GicError> {
        let cpus = cpus as usize;
        if !(1..=CPUS_MAX).contains(&cpus) {
            return Err(GicError::Cpus(cpus));
        }
        let words = |count| (0..count).map(|_| H::Word::new(0)).collect();
        Ok(Self { hal, distributor, interface, masks: words(cpus), taken: words(cpus * SGIS) })
    }

    fn distributor(&self) -> Frame<'_, H::Regs> {
        Frame::new(&self.distributor, 0)
    }

    fn interface(&self) -> Frame<'_, H::Regs> {
        Frame::new(&self.interface, 0)
    }

    fn mask(&self, cpu: CpuId) -> Result<u8, GicError> {
        match self.masks.get(cpu.index()).map(|mask| mask.get() as u8) {
            None => Err(GicError::NoCpu(cpu)),
            Some(0) => Err(GicError::NoInterface(cpu)),
            Some(mask) => Ok(mask),
        }
    }

    /// In the first eight ITARGETSR every byte reads the bit of the reading CPU (IHI 0048B, "GICD_ITARGETSRn").
    fn own_mask(&self, cpu: CpuId) -> Result<u8, GicError> {
        let bytes = self.distributor().read(gicd::ITARGETSR.get(0)).to_le_bytes();
        match bytes.into_iter().find(|&byte| byte != 0) {
            Some(mask) => Ok(mask),
            // "In a uniprocessor implementation, all ... are RAZ/WI".
            None if self.masks.len() == 1 => Ok(1),
            None => Err(GicError::NoInterface(cpu)),
        }
    }

    fn taken(&self, intid: IntId) -> Option<&H::Word> {
        (intid.kind() == Kind::Sgi).then(|| &self.taken[self.hal.cpu().index() * SGIS + intid.0 as usize])
    }

    fn token(&self, intid: IntId) -> u32 {
        self.taken(intid).map_or(intid.0, |word| word.get() as u32)
    }
}

impl<H: Hal> Version<H> for V2<H> {
    const NAME: &'static str = "GICv2";
    const HAS_PSEUDO_NMI: bool = false;

    /// Private interrupts are banked: every CPU sees its own registers at the same offset.
    fn frame(&self, _intid: IntId) -> Frame<'_, H::Regs> {
        self.distributor()
    }

    /// Waits for nothing. A GICv2 has no register that tells when a disable has taken effect, and IHI 0048B states no
    /// time for it. A read of the distributor would show that the write has arrived there, not that the CPU interface has
    /// withdrawn the interrupt. Where that comes later, the interrupt is taken once more: the core leaves a masked line pending,
    /// and a freed INTID is ended and counted. Linux reads nothing back either (`irq-gic.c`, `gic_poke_irq`). The read would cost
    /// every forced-threaded interrupt of EOImode 0 an access, where it makes two. Where the distributor is mapped without early
    /// write acknowledgement (Device-nGnRnE), the write has arrived when the CPU goes on.
    fn wait_written(&self, _intid: IntId) -> Result<(), GicError> {
        Ok(())
    }

    fn start(&self, spi_end: u32) -> Result<(), GicError> {
        let distributor = self.distributor();
        distributor.write(gicd::CTLR, V2Control::new().into_bits());
        let boot = self.hal.cpu();
        let targets = u32::from(self.own_mask(boot)?) * 0x0101_0101;
        for first in (32..spi_end).step_by(32) {
            reset(&distributor, IntId(first));
            for register in first / 4..(first / 4 + 8).min(gicd::ITARGETSR.count()) {
                distributor.write(gicd::ITARGETSR.get(register), targets);
            }
            for register in first / 16..first / 16 + 2 {
                distributor.write(gicd::ICFGR.get(register), 0);
            }
        }
        distributor.write(gicd::CTLR, V2Control::new().with_enable(true).into_bits());
        Ok(())
    }

    fn start_cpu(&self, mode: EoiMode) -> Result<(), GicError> {
        let cpu = self.hal.cpu();
        let word = self.masks.get(cpu.index()).ok_or(GicError::NoCpu(cpu))?;
        word.set(u64::from(self.own_mask(cpu)?));
        let distributor = self.distributor();
        reset(&distributor, IntId(0));
        distributor.strobe(gicd::ISENABLER.get(0), (1 << SGIS) - 1);
        let interface = self.interface();
        interface.write(gicc::CTLR, gicc::Control::new().into_bits());
        interface.write(gicc::PMR, Priority::UNMASKED.0.into());
        // Active priorities that an earlier kernel never dropped would hold back interrupts for ever.
        for register in 0..gicc::APR.count() {
            interface.write(gicc::APR.get(register), 0);
        }
        interface.write(gicc::CTLR, control(mode).into_bits());
        Ok(())
    }

    fn stop_cpu(&self) -> Result<(), GicError> {
        self.interface().modify(gicc::CTLR, |bits| gicc::Control::from_bits(bits).with_enable(false).into_bits());
        Ok(())
    }

    fn acknowledge(&self) -> IntId {
        let token = self.interface().read(gicc::IAR);
        let intid = IntId(Acknowledge::from_bits(token).intid().into());
        if let Some(word) = self.taken(intid) {
            word.set(token.into());
        }
        intid
    }

    fn end(&self, intid: IntId) {
        self.interface().write(gicc::EOIR, self.token(intid));
    }

    fn deactivate(&self, intid: IntId) {
        self.interface().write(gicc::DIR, self.token(intid));
    }

    /// Never used: without pseudo-NMIs no interrupt has to pass the mask.
    fn without_ordinary(&self, body: impl FnOnce()) {
        body();
    }

    fn route(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError> {
        let mask = self.mask(cpu)?;
        self.distributor().modify_field(gicd::ITARGETSR, intid, 8, |_| mask.into());
        Ok(())
    }

    fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError> {
        let command = V2SoftwareInterrupt::new()
            .with_intid(intid.0 as u8)
            .with_targets(self.mask(cpu)?)
            .with_filter(TargetFilter::LIST.0);
        self.distributor().write(gicd::SGIR, command.into_bits());
        Ok(())
    }

    /// An SGI is pending separately for each sender, in its own registers (IHI 0048B, "GICD_SPENDSGIRn"). This
    /// function sets an SGI with this CPU as the sender, and clears it for all senders.
    fn set_pending(&self, intid: IntId, pending: bool) {
        let distributor = self.distributor();
        match (intid.kind(), pending) {
            (Kind::Sgi, _) => {
                let shift = intid.0 % 4 * 8;
                let own = u32::from(self.mask(self.hal.cpu()).unwrap_or(0));
                match pending {
                    true => distributor.strobe(gicd::SPENDSGIR.get(intid.0 / 4), own << shift),
                    false => distributor.strobe(gicd::CPENDSGIR.get(intid.0 / 4), 0xff << shift),
                }
            }
            (_, true) => distributor.strobe_one(gicd::ISPENDR, intid),
            (_, false) => distributor.strobe_one(gicd::ICPENDR, intid),
        }
    }
}

fn control(mode: EoiMode) -> gicc::Control {
    gicc::Control::new().with_enable(true).with_eoi_mode(mode.is_split())
}

//! Messages: device writes that raise interrupts, and their receivers. The v2m frame (Arm DEN 0029, "GICv2m
//! Architecture").

use super::access::{Outcome, Refusal};
use super::{Gic, MESSAGE, Version};
use crate::model::{ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;
use spec::gic::msi::{self, V2mType};
use spec::gic::{gicd, its};
use std::collections::VecDeque;

/// The message being served, and those that wait for it.
#[derive(Default)]
pub(super) struct Messages {
    waiting: VecDeque<Message>,
    pub(super) served: u64,
}

#[derive(Clone, Copy)]
struct Message {
    from: ModelId,
    requester: u16,
    address: u64,
    data: u32,
}

/// The receiver of a message.
enum Receiver {
    Its,
    V2m,
    SetSpi,
    ClearSpi,
    Memory,
}

impl Gic {
    /// A message arrives; or a transfer of a device inside the root complex, which has no link and is done at once.
    pub(super) fn receive(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        match request {
            Upstream::Transfer { model, code, arg, .. } => world.schedule_for(model, world.now(), code, arg),
            Upstream::Message { requester, address, data } => {
                self.messages.waiting.push_back(Message { from, requester, address, data });
                if self.messages.waiting.len() == 1 {
                    self.serve(world);
                }
            }
        }
    }

    /// Serves messages one after another. The ITS needs time to translate a message.
    fn serve(&mut self, world: &mut World<'_>) {
        let Some(&Message { address, .. }) = self.messages.waiting.front() else { return };
        let time = match (self.receiver(address), &self.its) {
            (Receiver::Its, Some(its)) => world.jitter(its.config.translation_time),
            _ => Ps::default(),
        };
        world.schedule(world.now() + time + world.message_delay(), MESSAGE, 0);
    }

    fn receiver(&self, address: u64) -> Receiver {
        let is = |base: u64, offset: u32| address == base + u64::from(offset);
        let messages = self.config.message_spis && self.version == Version::V3;
        if self.config.its.as_ref().is_some_and(|unit| is(unit.base, its::TRANSLATER.offset())) {
            Receiver::Its
        } else if self.config.v2m.as_ref().is_some_and(|frame| is(frame.base, msi::SETSPI_NS.offset())) {
            Receiver::V2m
        } else if messages && is(self.config.distributor_base, gicd::SETSPI_NSR.offset()) {
            Receiver::SetSpi
        } else if messages && is(self.config.distributor_base, gicd::CLRSPI_NSR.offset()) {
            Receiver::ClearSpi
        } else {
            Receiver::Memory
        }
    }

    /// The message that was being served has arrived.
    pub(super) fn served(&mut self, world: &mut World<'_>) {
        let Some(Message { from, requester, address, data }) = self.messages.waiting.pop_front() else { return };
        self.messages.served += 1;
        self.credits.release(world, from);
        match self.receiver(address) {
            Receiver::Its => self.its_message(world, requester.into(), data),
            Receiver::V2m => self.v2m_message(world, requester.into(), data),
            Receiver::SetSpi => self.message_spi(world, requester.into(), data, true),
            Receiver::ClearSpi => self.message_spi(world, requester.into(), data, false),
            Receiver::Memory => {
                if world.write32(address, data).is_err() {
                    let text = format!("message of {data:#x} to {address:#x}");
                    world.fault("write to where no memory is", requester.into(), text);
                }
            }
        }
        self.serve(world);
    }

    /// SETSPI and CLRSPI: an edge-triggered SPI is pending at a set; a level-sensitive one from a set to a clear (IHI
    /// 0069H, "Message-based SPIs").
    pub(super) fn message_spi(&mut self, world: &mut World<'_>, requester: u64, value: u32, is_set: bool) {
        let intid = value & 0x1fff;
        let changed = self.shared.change(intid, |interrupt| {
            if interrupt.edge {
                interrupt.latch = is_set;
            } else {
                interrupt.line = is_set;
            }
        });
        if changed.is_none() {
            world.fault("message for an SPI that does not exist", requester, format!("INTID {intid}"));
        }
    }

    /// MSI_SETSPI_NS: an edge on one of the frame's SPIs.
    fn v2m_message(&mut self, world: &mut World<'_>, requester: u64, data: u32) {
        let intid = data & 0x3ff;
        let is_own =
            self.config.v2m.as_ref().is_some_and(|frame| (frame.first..frame.first + frame.count).contains(&intid));
        let edge = |interrupt: &mut super::interrupt::Interrupt| {
            interrupt.set_line(true);
            interrupt.set_line(false);
        };
        if !is_own || self.shared.change(intid, edge).is_none() {
            world.fault("message for an SPI that is not the frame's", requester, format!("INTID {intid}"));
        }
    }

    pub(super) fn v2m_read(&self, offset: u32, width: u8) -> Outcome<u64> {
        let frame = self.config.v2m.as_ref().ok_or(Refusal::Reserved)?;
        if width != 4 {
            return Err(Refusal::Width);
        }
        match offset {
            _ if offset == msi::TYPER.offset() => {
                let typer = V2mType::new().with_first(frame.first as u16).with_count(frame.count as u16);
                Ok(typer.into_bits().into())
            }
            _ if offset == msi::IIDR.offset() => Ok(0),
            _ if offset == msi::SETSPI_NS.offset() => Err(Refusal::WriteOnly),
            _ => Err(Refusal::Reserved),
        }
    }

    /// A CPU may write this register too.
    pub(super) fn v2m_write(&mut self, world: &mut World<'_>, offset: u32, width: u8, value: u64) -> Outcome<()> {
        self.config.v2m.as_ref().ok_or(Refusal::Reserved)?;
        match offset {
            _ if width != 4 => Err(Refusal::Width),
            _ if offset == msi::SETSPI_NS.offset() => {
                self.v2m_message(world, 0, value as u32);
                Ok(())
            }
            _ if offset == msi::TYPER.offset() || offset == msi::IIDR.offset() => Err(Refusal::ReadOnly),
            _ => Err(Refusal::Reserved),
        }
    }
}

//! Drives that are pulled out without a word, and put in again as hardware that was just switched on.
//!
//! PCI Express, "Surprise Down Error" and "Hot-Plug": once the link is down, a read returns all ones, a write goes nowhere,
//! and the function sends no more. Its driver learns of it later, and must give back all that the function had.

use super::accelerator::Accelerator;
use super::audit;
use super::drive::{BindError, Drive, Slot, claim};
use super::load::disrupt;
use super::poster::Poster;
use super::stack::PcStack;
use crate::checkers::queues;
use crate::server::requester;
use crate::verdict::violate;
use drivers::nvme::NvmeError;
use hal::Hal as _;
use machine::fabric::vtd::VtdUnit;
use machine::{SimHal, inspect, peek64};
use std::sync::atomic::Ordering::Relaxed;

/// Entries of the remapping table.
pub(super) const ENTRIES: u64 = 1024;
/// After its return a drive serves its queues within this time.
const SERVED_NS: u64 = 20_000_000;
const LOOK_NS: u64 = 5_000;

/// A removal as it was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removal {
    /// So long the driver does not know.
    pub(super) unnoticed_ns: u64,
    pub(super) lines_first: bool,
    /// From then on until the drive is there again.
    pub(super) ns: u64,
    /// Its queues get other entries of its MSI-X table than before.
    pub(super) other_vectors: bool,
}

/// Pulls a drive out, and puts it in again.
pub(super) fn remove(stack: &PcStack, drive: &Drive, removal: Removal) {
    let Some(_claim) = claim(&drive.busy) else { return };
    let slots: Vec<&Slot> = stack.slots_of(drive).collect();
    let claims: Vec<_> = slots.iter().map_while(|slot| slot.claim()).collect();
    if claims.len() < slots.len() || drive.controller().is_none() {
        return;
    }
    pull_out(stack, drive, removal.unnoticed_ns);
    let gone = give_back(stack, drive, removal.lines_first);
    SimHal.delay_ns(removal.ns);
    // It comes back, whatever went wrong meanwhile.
    match gone.and(put_in(stack, drive, removal.other_vectors)) {
        Ok(()) => stack.saw("drive: pulled out and put in"),
        Err(error) => stack.fails("the return", drive, &error),
    }
}

/// A drive goes, and stays away until [`come_back`]. Its commands are under way.
pub(super) fn leave(stack: &PcStack, drive: &Drive) {
    stack.loads_of(drive).iter().for_each(|load| load.carry(8, 4));
    pull_out(stack, drive, 0);
    if let Err(error) = give_back(stack, drive, drive.index.is_multiple_of(2)) {
        violate("operations", format!("drive {} is gone, and its driver does not let go: {error}", drive.index));
    }
    stack.saw("drive: gone through the last load");
}

/// Nothing is left of a drive that is gone. It comes back, and works again.
pub(super) fn come_back(stack: &PcStack, drive: &Drive) {
    check_given_back(stack, drive);
    if let Err(error) = put_in(stack, drive, true) {
        violate("operations", format!("drive {} is there again and does not come up: {error}", drive.index));
    }
    audit::prove_slots(stack, stack.slots_of(drive));
    let end_ns = SimHal.now_ns() + SERVED_NS;
    while !stack.loads_of(drive).iter().all(|load| load.is_idle()) {
        if SimHal.now_ns() >= end_ns {
            violate("operations", format!("drive {} is there again and does not serve its queues", drive.index));
        }
        SimHal.delay_ns(LOOK_NS);
    }
}

fn pull_out(stack: &PcStack, drive: &Drive, unnoticed_ns: u64) {
    stack.lines_freed.store(true, Relaxed);
    stack.loads_of(drive).iter().for_each(|load| queues::disrupted(load.index(), false));
    drive.present.store(false, Relaxed);
    machine::plug(drive.model, false);
    SimHal.delay_ns(unnoticed_ns);
}

/// The driver learns that the drive is gone: all of it is freed, and its commands end.
fn give_back(stack: &PcStack, drive: &Drive, lines_first: bool) -> Result<(), BindError> {
    let release = |wanted| {
        let mut released = Ok(());
        for slot in stack.slots_of(drive).filter(|_| wanted) {
            released = released.and(drive.release(&stack.host, slot));
        }
        released
    };
    let released = release(lines_first);
    let lost = disrupt(&stack.loads_of(drive), || drive.lose());
    released.and(release(!lines_first))?;
    match lost {
        Err(NvmeError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => violate("operations", format!("the driver shut drive {} down, and it was gone", drive.index)),
    }
}

fn put_in(stack: &PcStack, drive: &Drive, other_vectors: bool) -> Result<(), BindError> {
    machine::plug(drive.model, true);
    let slots: Vec<&Slot> = stack.slots_of(drive).collect();
    if other_vectors {
        slots.iter().for_each(|slot| slot.turn_vector(slots.len() as u16));
    }
    drive.find(&stack.host);
    drive.present.store(true, Relaxed);
    drive.start()?;
    slots.iter().try_for_each(|slot| drive.bind(&stack.host, slot, &stack.numbers))
}

/// No line, entry of the remapping table or queue of the drive is left.
fn check_given_back(stack: &PcStack, drive: &Drive) {
    let bound = stack.slots.iter().filter(|slot| slot.bound().is_some()).count();
    let lines = stack.host.core().views().iter().filter(|line| line.levels[0].chip == "PCI-MSIX").count();
    let lines = lines - stack.accelerator.as_ref().map_or(0, Accelerator::lines_now);
    let lines = lines - stack.poster.as_ref().map_or(0, Poster::lines_now);
    if lines != bound {
        let text = format!("{lines} lines of drives exist for {bound} queues, and drive {} is gone", drive.index);
        violate("operations", text);
    }
    let table = inspect(stack.host.models.iommu, |unit: &VtdUnit, _| unit.table_address()).unwrap_or(0);
    let is_own = |index: &u64| {
        let word = |half: u64| peek64(table + 16 * index + 8 * half).unwrap_or(0);
        word(0) & 1 == 1 && word(1) as u16 == requester(drive.index)
    };
    if let Some(index) = (0..ENTRIES).find(is_own).filter(|_| stack.host.unit().is_some()) {
        violate("entries", format!("entry {index} is present for drive {}, which is gone", drive.index));
    }
}

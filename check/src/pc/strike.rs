//! Faults that strike the hardware, and their end.

use super::fault::{PcFault, WrongEntry};
use super::rig::PcRig;
use crate::server::ringer::RingerPort;
use machine::dsa::{CommandTrouble, Dsa};
use machine::fabric::tamper::{Rates, Tamper};
use machine::fabric::vtd::{COMPLETION, InvalidationFault, InvalidationTrouble, VtdUnit};
use machine::nvme::{FaultPlan, Nvme, REGION_CONTROLLER};
use machine::time::Ps;
use std::sync::atomic::Ordering::Relaxed;

impl PcRig {
    /// The fault begins.
    pub(super) fn strike(&mut self, fault: &PcFault) {
        let now = self.hardware.machine.now();
        match *fault {
            PcFault::Entry { drive, wrong, after } => self.spoil(drive, wrong, after),
            PcFault::Tampered { drive, act, per_mille } => self.tamper(drive, |rates| *act.rate(rates) = per_mille),
            PcFault::Silent { drive, ns } => {
                self.site(drive).outage.change(|outage| outage.silence(now, now + Ps::from_ns(ns)));
            }
            PcFault::LateInvalidation { ns } => self.trouble(InvalidationFault::Late(Ps::from_ns(ns))),
            PcFault::FailedInvalidation { again } => {
                let trouble =
                    if again { InvalidationTrouble::FetchFails } else { InvalidationTrouble::FirstFetchFails };
                self.trouble(InvalidationFault::Within { from: now, until: Ps::MAX, trouble });
            }
            PcFault::Fatal { drive } => self.drive(drive, |drive| drive.faults_mut().fatal_at = Some(now)),
            PcFault::Refused { drive } => self.refuse(drive, Some(now)),
            PcFault::AdminFails { drive, .. } => self.drive(drive, |drive| drive.faults_mut().admin_fails = true),
            PcFault::AbortsUnanswered { drive, late_ns } => {
                self.drive(drive, |drive| drive.faults_mut().aborts_unanswered = Some(Ps::from_ns(late_ns)));
            }
            PcFault::NoMemory => self.hardware.machine.set_memory_exhausted(true),
            PcFault::Command { trouble } => self.accelerator_trouble(trouble),
            PcFault::Storm { period_ns } => {
                self.up().rings.deaf.store(true, Relaxed);
                self.up().rings.ring(u64::MAX, period_ns);
            }
            PcFault::WrongAnswer { requester } => {
                let unit = self.hardware.models.iommu;
                self.hardware.machine.poke(unit, now, COMPLETION, requester.into());
            }
            PcFault::Stranger { drive, vector, interval_ns } => self.imitate(drive, vector, interval_ns),
            PcFault::Stuck { function } => {
                let functions = &self.up().functions;
                let function = &functions[function as usize % functions.len()];
                function.stuck.store(true, Relaxed);
                function.raise();
            }
        }
    }

    /// Its end.
    pub(super) fn mend(&mut self, fault: &PcFault) {
        match *fault {
            PcFault::Tampered { drive, act, .. } => self.tamper(drive, |rates| *act.rate(rates) = 0),
            PcFault::Entry { drive, .. } => {
                self.drive(drive, |drive| *drive.faults_mut() = FaultPlan::default());
            }
            PcFault::LateInvalidation { .. } | PcFault::FailedInvalidation { .. } => {
                self.trouble(InvalidationFault::None)
            }
            PcFault::Silent { drive, .. } => self.broken(drive),
            PcFault::Refused { drive } => {
                self.refuse(drive, None);
                self.broken(drive);
            }
            PcFault::AdminFails { drive, .. } => self.drive(drive, |drive| drive.faults_mut().admin_fails = false),
            PcFault::AbortsUnanswered { drive, .. } => {
                self.drive(drive, |drive| drive.faults_mut().aborts_unanswered = None);
                // The ids of what the driver wanted to abort come back with a reset.
                self.broken(drive);
            }
            PcFault::NoMemory => self.hardware.machine.set_memory_exhausted(false),
            PcFault::Command { .. } => self.accelerator_trouble(CommandTrouble::None),
            PcFault::Fatal { drive } => {
                // An unnoticed fatal error would break the next start, long after it was healed.
                self.drive(drive, |drive| drive.faults_mut().fatal_at = None);
                self.broken(drive);
            }
            PcFault::Storm { .. } => {
                self.up().rings.deaf.store(false, Relaxed);
                self.up().rings.ring(1, 500);
            }
            PcFault::WrongAnswer { .. } => {}
            PcFault::Stranger { .. } => RingerPort(self.stranger).ring(0, 0),
            PcFault::Stuck { function } => {
                let functions = &self.up().functions;
                functions[function as usize % functions.len()].stuck.store(false, Relaxed);
            }
        }
    }

    fn drive<R>(&mut self, index: u32, change: impl FnOnce(&mut Nvme) -> R) -> R {
        let model = self.site(index).drive;
        self.hardware.machine.with_model(model, change).expect("it is a drive")
    }

    fn tamper(&mut self, drive: u32, change: impl FnOnce(&mut Rates)) {
        let model = self.site(drive).tamper;
        let machine = &mut self.hardware.machine;
        machine
            .with_model(model, |tamper: &mut Tamper| change(&mut tamper.config_mut().rates))
            .expect("it is a tamper");
    }

    fn trouble(&mut self, fault: InvalidationFault) {
        let unit = self.hardware.models.iommu;
        let set = |unit: &mut VtdUnit| unit.set_invalidation_fault(fault);
        self.hardware.machine.with_model(unit, set).expect("it is the unit");
    }

    fn accelerator_trouble(&mut self, trouble: CommandTrouble) {
        let set = |dsa: &mut Dsa| dsa.set_command_trouble(trouble);
        if let Some(model) = self.accelerator {
            self.hardware.machine.with_model(model, set).expect("it is the accelerator");
        }
    }

    fn spoil(&mut self, drive: u32, wrong: WrongEntry, after: u64) {
        self.drive(drive, |drive| {
            let at = Some(drive.counts().completions + after);
            let faults = drive.faults_mut();
            match wrong {
                WrongEntry::UnknownCommand => faults.unknown_cid_at_entry = at,
                WrongEntry::Twice => faults.duplicate_at_entry = at,
                WrongEntry::WrongPhase => faults.wrong_phase_at_entry = at,
                WrongEntry::UnknownQueue => faults.unknown_sq_at_entry = at,
            }
        });
    }

    fn imitate(&mut self, drive: u32, vector: u32, interval_ns: u64) {
        let vectors = u32::from(self.shape.queues);
        let message = match vector % 4 {
            // In the format of a machine without remapping: vector 0x20 of CPU 0.
            0 => Some((0xfee0_0000, 0x20)),
            _ => self.drive(drive, |drive| drive.message((1 + vector % vectors) as u16)),
        };
        if let Some((address, data)) = message.filter(|(address, _)| *address != 0) {
            let stranger = RingerPort(self.stranger);
            stranger.forge(address, data);
            stranger.ring(u64::MAX, interval_ns);
        }
    }

    /// Accesses to the controller's registers are refused from `since` on; none: they are not. Its message table and its
    /// configuration stay: what is lost there comes back only when the function is found anew.
    fn refuse(&self, drive: u32, since: Option<Ps>) {
        self.site(drive).outage.change(|outage| {
            (outage.refuses_at, outage.refuses_region) = (since, Some(REGION_CONTROLLER));
        });
    }

    fn broken(&self, drive: u32) {
        let drives = &self.up().drives;
        drives[drive as usize % drives.len()].broken.store(true, Relaxed);
    }
}

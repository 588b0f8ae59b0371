//! Errors that no completion record reports: somebody writes to a portal whose queue is not open.

use super::super::guard::Guard;
use super::super::sources::Waiting;
use super::plan::STRANGER;
use super::{ERROR, GENSTS, INTCAUSE, SWERROR};
use crate::verdict::violate;
use drivers::dsa::{Device, DeviceErrors};
use hal::{Hal as _, Regs as _};
use irq::{Action, Irq, IrqReturn};
use machine::dsa::Dsa;
use machine::model::ModelId;
use machine::{Regs, SimHal, inspect, push_writes};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// An error that somebody provoked: its code, the descriptor's operation.
type Provoked = (u8, u8);

/// The line of the errors, and those that its handler owes.
pub(super) struct Errors {
    model: ModelId,
    portals: Regs,
    line: Mutex<Option<(Irq, Arc<Guard>)>>,
    waiting: Arc<Mutex<Waiting>>,
    /// Those of the present device.
    provoked: Mutex<Vec<Provoked>>,
    pub(super) busy: AtomicBool,
}

impl Errors {
    pub(super) fn new(model: ModelId, portals: Regs) -> Self {
        let busy = AtomicBool::new(false);
        Self { model, portals, line: Mutex::default(), waiting: Arc::default(), provoked: Mutex::default(), busy }
    }

    pub(super) fn line(&self) -> Option<(Irq, Arc<Guard>)> {
        self.line.lock().expect("one host thread").clone()
    }

    pub(super) fn set_line(&self, line: Option<(Irq, Arc<Guard>)>) -> Option<(Irq, Arc<Guard>)> {
        std::mem::replace(&mut self.line.lock().expect("one host thread"), line)
    }

    pub(super) fn is_idle(&self) -> bool {
        Waiting::is_empty(&self.waiting)
    }

    /// The handler of a new device, which has seen no error yet.
    pub(super) fn action(&self, device: &Arc<Device<SimHal>>) -> Arc<dyn Action> {
        self.provoked.lock().expect("one host thread").clear();
        Arc::new(Handler { device: device.clone(), model: self.model, waiting: self.waiting.clone() })
    }

    /// The device is gone: nobody tells of its errors any more.
    pub(super) fn forget(&self) {
        Waiting::serve(&self.waiting);
    }

    /// Writes descriptors of this operation to a portal of a queue that is not open (DSA, "SWERROR": 51h, a portal whose queue
    /// is not enabled; 53h, a portal of interrupt message storage, which the device lacks). So much time is between them.
    pub(super) fn provoke(&self, portal: u32, opcode: u8, (count, gap_ns): (u32, u64)) {
        let code = if portal < 2 { 0x51 } else { 0x53 };
        self.provoked.lock().expect("one host thread").extend((0..count).map(|_| (code, opcode)));
        Waiting::ask(&self.waiting, ERROR);
        let page = u32::from(STRANGER) << 14 | portal << 12;
        for number in 0..count {
            if number > 0 {
                SimHal.delay_ns(gap_ns);
            }
            (0..8).for_each(|word| {
                self.portals.write64(page + 8 * word, if word == 0 { u64::from(opcode) << 56 } else { 0 });
            });
        }
    }

    /// The driver's report tells of what was provoked. The device records one error at a time, and that there were more.
    pub(super) fn check(&self, report: &DeviceErrors) {
        let provoked = self.provoked.lock().expect("one host thread").clone();
        let (told, count) = ((report.software_errors, report.overflows), provoked.len() as u64);
        let held = inspect(self.model, |dsa: &Dsa, _| (dsa.reported(), dsa.held(INTCAUSE) | dsa.held(SWERROR) & 0b11));
        let wrong = held != Some((told, 0)) || told.0 > count || (told.0 == 0) != (count == 0);
        let last = report.last.map(|last| (last.queue, last.opcode, last.error));
        let known = |&(code, opcode): &Provoked| last == Some((Some(STRANGER), Some(opcode), code));
        if wrong || report.halts > 0 || count > 0 && !provoked.iter().any(known) {
            violate(
                "operations",
                format!("the accelerator had errors {provoked:x?} {held:x?}, and its driver tells {report:x?}"),
            );
        }
    }
}

struct Handler {
    device: Arc<Device<SimHal>>,
    model: ModelId,
    waiting: Arc<Mutex<Waiting>>,
}

impl Handler {
    /// Whether an error or a cause is recorded; what changes when another one comes, or the device is reset.
    fn held(&self) -> (bool, (u64, u32)) {
        let held = inspect(self.model, |dsa: &Dsa, _| {
            let had = dsa.held(INTCAUSE) != 0 || dsa.held(SWERROR) & 0b11 != 0;
            (had, (dsa.counts().refused, dsa.held(GENSTS)))
        });
        held.unwrap_or_default()
    }
}

impl Action for Handler {
    fn handle(&self, irq: Irq) -> IrqReturn {
        // An earlier run may still be clearing what it saw.
        push_writes(self.model);
        let (had, before) = self.held();
        let answer = self.device.handle(irq);
        let is_handled = answer == IrqReturn::Handled;
        if had != is_handled && self.held().1 == before {
            violate("operations", format!("the accelerator's errors: {had}; their handler answers {answer:?}"));
        }
        if is_handled {
            Waiting::serve(&self.waiting);
        }
        answer
    }
}

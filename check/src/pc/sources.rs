//! Lines beside the drives': the ringing device, and two functions on a level pin.

use crate::checkers::truth::marks::answered;
use crate::deeds::Deeds;
use crate::mark::Mark;
use crate::server::ringer::RingerPort;
use crate::server::wire::WirePort;
use hal::Hal as _;
use irq::{Action, Irq, IrqError, IrqReturn};
use machine::SimHal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Commands of sources have numbers of their own, above every queue's.
const RING: u64 = 1 << 60;
const WIRE: u64 = 1 << 61;

/// Requests that were made and not served yet.
#[derive(Default)]
pub(super) struct Waiting {
    given: u64,
    waiting: Vec<u64>,
}

impl Waiting {
    /// Returns the number of the request.
    pub(super) fn ask(this: &Mutex<Self>, kind: u64) -> u64 {
        let number = {
            let mut this = this.lock().expect("one host thread");
            let number = kind | this.given;
            this.given += 1;
            this.waiting.push(number);
            number
        };
        Mark::Submitted.of(number);
        number
    }

    /// The request was not made after all.
    pub(super) fn take_back(this: &Mutex<Self>, number: u64) {
        let waits = |this: &mut Self| {
            let index = this.waiting.iter().position(|&asked| asked == number);
            index.inspect(|&index| _ = this.waiting.swap_remove(index)).is_some()
        };
        if waits(&mut this.lock().expect("one host thread")) {
            Mark::Refused.of(number);
        }
    }

    /// Asks for the handler by `fire`.
    pub(super) fn resend(
        this: &Mutex<Self>,
        kind: u64,
        fire: impl FnOnce() -> Result<(), IrqError>,
    ) -> Result<(), IrqError> {
        let number = Self::ask(this, kind);
        fire().inspect_err(|_| Self::take_back(this, number))
    }

    pub(super) fn serve(this: &Mutex<Self>) -> bool {
        let served = std::mem::take(&mut this.lock().expect("one host thread").waiting);
        served.iter().for_each(|number| Mark::Completed.of(*number));
        !served.is_empty()
    }

    pub(super) fn is_empty(this: &Mutex<Self>) -> bool {
        this.lock().expect("one host thread").waiting.is_empty()
    }
}

/// The ringing device: behind each of its messages its handler must begin once more.
pub(super) struct Rings {
    port: RingerPort,
    waiting: Mutex<Waiting>,
    /// The messages that the device has sent, and as many of them as there were when the handler last began.
    sent: Arc<AtomicU64>,
    seen: AtomicU64,
    /// How long the handler goes on after it has begun.
    linger_ns: u64,
    pub(super) deeds: Deeds,
    /// No handler knows the interrupt.
    pub(super) deaf: AtomicBool,
}

impl Rings {
    pub(super) fn new(
        port: RingerPort,
        sent: Arc<AtomicU64>,
        linger_ns: u64,
        (seed, deeds_percent): (u64, u64),
    ) -> Self {
        let (seen, deaf) = (AtomicU64::new(0), AtomicBool::new(false));
        let deeds = Deeds::new(seed, deeds_percent);
        Self { port, waiting: Mutex::default(), sent, seen, linger_ns, deeds, deaf }
    }

    pub(super) fn ring(&self, count: u64, period_ns: u64) {
        Waiting::ask(&self.waiting, RING);
        self.port.ring(count, period_ns);
    }

    /// Makes the line fire once more: then too its handler must begin.
    pub(super) fn resend(&self, fire: impl FnOnce() -> Result<(), IrqError>) -> Result<(), IrqError> {
        Waiting::resend(&self.waiting, RING, fire)
    }

    pub(super) fn is_idle(&self) -> bool {
        Waiting::is_empty(&self.waiting) && self.sent.load(Relaxed) == self.seen.load(Relaxed)
    }
}

impl Action for Rings {
    fn handle(&self, line: Irq) -> IrqReturn {
        self.seen.store(self.sent.load(Relaxed), Relaxed);
        Waiting::serve(&self.waiting);
        if self.linger_ns > 0 {
            SimHal.delay_ns(self.linger_ns);
        }
        self.deeds.act();
        let answer = if self.deaf.load(Relaxed) { IrqReturn::None } else { IrqReturn::Handled };
        answered(line, answer, false);
        answer
    }
}

/// A function on the shared pin: raised once until it is served.
pub(super) struct Function {
    port: WirePort,
    number: u32,
    waiting: Mutex<Waiting>,
    /// It does not release the pin.
    pub(super) stuck: AtomicBool,
}

impl Function {
    pub(super) fn new(port: WirePort, number: u32) -> Self {
        Self { port, number, waiting: Mutex::default(), stuck: AtomicBool::new(false) }
    }

    pub(super) fn raise(&self) {
        Waiting::ask(&self.waiting, WIRE | u64::from(self.number) << 32);
        self.port.raise(self.number);
    }

    pub(super) fn is_idle(&self) -> bool {
        Waiting::is_empty(&self.waiting)
    }
}

impl Action for Function {
    fn handle(&self, line: Irq) -> IrqReturn {
        let found = !self.stuck.load(Relaxed) && self.port.serve(self.number);
        if found {
            Waiting::serve(&self.waiting);
        }
        let answer = if found { IrqReturn::Handled } else { IrqReturn::None };
        answered(line, answer, false);
        answer
    }
}

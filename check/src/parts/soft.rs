//! What polls tell a tuner: the first turn after an interrupt is that interrupt's, each other one is a poll; also when the
//! interrupt comes while a poll runs, and while the poll before its last look does.

use super::tuner::{Heard, Script, Scripted};
use crate::draw::Draw;
use crate::trials::same;
use hal::CpuId;
use hal::host::HostHal;
use irq::moderation::Tuner;
use irq::poll::{PollConfig, Polled, SoftId, SoftPoll};
use std::sync::{Arc, Mutex, OnceLock, Weak};

const WEIGHT: u32 = 8;

thread_local! {
    /// A host for all trials of this thread.
    static HOST: HostHal = HostHal::manual(1);
}

/// What a turn told: of an interrupt or not, and how much it found.
type Told = (bool, u32);

fn told(script: &Mutex<Script>) -> Vec<Told> {
    let told = |heard: &Heard| match heard {
        Heard::Interrupt(_, found) => Some((true, found.completions)),
        Heard::Polled(_, found) => Some((false, found.completions)),
        _ => None,
    };
    script.lock().expect("one thread").heard.iter().filter_map(told).collect()
}

/// One turn: what it finds, and when an interrupt comes on top of it.
#[derive(Clone, Copy)]
struct Plan {
    work: u32,
    in_poll: bool,
    /// Its re-enabled interrupt comes at once.
    in_rearm: bool,
    /// Its last look finds something.
    again: bool,
}

/// A device whose turns are planned, and what they must tell.
struct Device {
    soft: OnceLock<(Weak<SoftPoll<HostHal>>, SoftId)>,
    plans: Mutex<Vec<Plan>>,
    now: Mutex<Option<Plan>>,
    is_interrupted: Mutex<bool>,
    expected: Mutex<Vec<Told>>,
}

impl Device {
    /// An interrupt of the device, on top of whatever runs.
    fn interrupt(&self) {
        let (soft, id) = self.soft.get().expect("it was added");
        let soft = soft.upgrade().expect("the trial keeps it");
        *self.is_interrupted.lock().expect("one thread") = true;
        soft.interrupt(|| soft.schedule(*id));
    }
}

impl Polled for Device {
    fn poll(&self, _: u32) -> u32 {
        let calm = Plan { work: 0, in_poll: false, in_rearm: false, again: false };
        let plan = self.plans.lock().expect("one thread").pop().unwrap_or(calm);
        *self.now.lock().expect("one thread") = Some(plan);
        let is_interrupts = std::mem::take(&mut *self.is_interrupted.lock().expect("one thread"));
        self.expected.lock().expect("one thread").push((is_interrupts, plan.work));
        if plan.in_poll {
            self.interrupt();
        }
        plan.work
    }

    fn rearm(&self) -> bool {
        let plan = self.now.lock().expect("one thread").take();
        let Some(plan) = plan else { return false };
        if plan.in_rearm {
            self.interrupt();
        }
        plan.again
    }
}

pub(super) fn soft(draw: &mut Draw) -> Result<(), String> {
    let hal = HOST.with(|&host| host);
    let mut soft = SoftPoll::new(hal, 1, PollConfig::default()).map_err(|error| error.to_string())?;
    let plans = (0..draw.within(1..=12)).map(|_| Plan {
        work: if draw.percent(40) { WEIGHT } else { draw.below(WEIGHT.into()) as u32 },
        in_poll: draw.percent(25),
        in_rearm: draw.percent(25),
        again: draw.percent(25),
    });
    let device = Arc::new(Device {
        plans: Mutex::new(plans.collect()),
        soft: OnceLock::new(),
        now: Mutex::default(),
        is_interrupted: Mutex::default(),
        expected: Mutex::default(),
    });
    let script = Arc::new(Mutex::new(Script::default()));
    let tuner = Arc::new(Tuner::new(hal, Box::new(Scripted(script.clone()))));
    let id = soft.add(CpuId(0), WEIGHT, device.clone(), Some(tuner)).map_err(|error| error.to_string())?;
    let soft = Arc::new(soft);
    _ = device.soft.set((Arc::downgrade(&soft), id));
    let mut before = 0;
    for _ in 0..draw.within(1..=4) {
        hal.interrupt(CpuId(0), || device.interrupt());
        let turns = told(&script);
        same("what turns tell", &*device.expected.lock().expect("one thread"), &turns)?;
        same("an interrupt is followed by a turn", &true, &(turns.len() > before))?;
        before = turns.len();
    }
    Ok(())
}

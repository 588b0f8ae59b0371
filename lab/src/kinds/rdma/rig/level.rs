//! Levels on their way into completion queues: the thread that programs them, and the record of what was programmed.

use super::hosts::{HostParts, RdmaHost};
use crate::kinds::rdma::Moderation;
use crate::run::error::SetupError;
use crate::work;
use drivers::rdma::CompletionQueue;
use hal::{Affinity, CpuId, Hal as _, ThreadId, ThreadSpec, Threads};
use irq::moderation::{LevelTable, Moderated, Outcome, Programmer, Setting};
use machine::SimHal;
use std::sync::{Arc, Mutex};

/// Programs levels into a queue, and records each level with the time when the device accepted it.
pub(super) struct Recorded {
    queue: Arc<CompletionQueue<SimHal>>,
    levels: LevelTable,
    log: Mutex<Vec<(u64, usize)>>,
    programmed: Mutex<u64>,
    late: Option<Late>,
}

/// Delays the programming thread: it sleeps until its time has come and the load wakes it.
struct Late {
    by_ns: u64,
    sleeper: Mutex<Option<(u64, ThreadId)>>,
}

impl Late {
    fn sleep(&self) {
        let due_ns = SimHal.now_ns() + self.by_ns;
        *self.sleeper.lock().expect("not poisoned") = Some((due_ns, SimHal.current_thread()));
        while SimHal.now_ns() < due_ns {
            SimHal.park();
        }
        *self.sleeper.lock().expect("not poisoned") = None;
    }
}

impl Recorded {
    /// Wakes the programming thread, if its time has come.
    pub(super) fn wake_late(&self) {
        let Some(late) = &self.late else { return };
        let sleeper = *late.sleeper.lock().expect("not poisoned");
        if let Some((_, thread)) = sleeper.filter(|&(due_ns, _)| SimHal.now_ns() >= due_ns) {
            SimHal.wake(thread);
        }
    }
}

impl Moderated for Recorded {
    fn program(&self, setting: Setting) -> Outcome {
        // The first level is never delayed, because it is programmed before anything runs.
        if let Some(late) = self.late.as_ref().filter(|_| *self.programmed.lock().expect("not poisoned") > 0) {
            late.sleep();
        }
        // The device takes a level by a command of its firmware.
        SimHal.work(work::FABRIC_PROGRAM, 1);
        let outcome = self.queue.program(setting);
        let level = (0..=self.levels.last()).find(|&level| self.levels.setting(level) == setting);
        *self.programmed.lock().expect("not poisoned") += 1;
        if let (Outcome::Done(_), Some(level)) = (outcome, level) {
            let mut log = self.log.lock().expect("not poisoned");
            if log.last().is_none_or(|&(_, last)| last != level) {
                log.push((SimHal.now_ns(), level));
            }
        }
        outcome
    }
}

/// The moderation of a host's completion queues.
#[derive(Default)]
pub(super) struct Levels {
    /// One entry a queue; none of a host that is not moderated.
    pub(super) recorded: Vec<Arc<Recorded>>,
    _programmers: Vec<Arc<Programmer<SimHal>>>,
}

impl Levels {
    /// An urgent thread of the queue's CPU programs a controller's levels. A fixed level is programmed here, once.
    pub(super) fn start(parts: &HostParts, host: &RdmaHost) -> Result<Self, SetupError> {
        let levels = &parts.rdma.levels;
        let record = |queue: &Arc<CompletionQueue<SimHal>>| {
            let (log, programmed) = (Mutex::default(), Mutex::default());
            let late = parts.rdma.program_takes_ns.map(|by_ns| Late { by_ns, sleeper: Mutex::default() });
            Arc::new(Recorded { queue: queue.clone(), levels: levels.clone(), log, programmed, late })
        };
        let recorded: Vec<_> = host.queues.iter().map(record).collect();
        let mut programmers = Vec::new();
        for (cpu, recorded) in parts.cpus.clone().zip(&recorded) {
            match (parts.moderation, recorded.queue.tuner()) {
                (Moderation::Level(level), _) => _ = recorded.program(levels.setting(level.into())),
                (_, Some(tuner)) => {
                    let spec = ThreadSpec { name: "moderation", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
                    programmers.push(Programmer::start(SimHal, spec, vec![(tuner.clone(), recorded.clone() as _)])?);
                }
                (Moderation::None | Moderation::Controlled(_), _) => {}
            }
        }
        Ok(Self { recorded, _programmers: programmers })
    }

    /// Number of times that a level was programmed so far.
    pub(super) fn programmed(&self) -> u64 {
        self.recorded.iter().map(|recorded| *recorded.programmed.lock().expect("not poisoned")).sum()
    }

    /// For each queue, its levels with the times when the device accepted them.
    pub(super) fn logs(&self) -> Vec<Vec<(u64, usize)>> {
        self.recorded.iter().map(|recorded| recorded.log.lock().expect("not poisoned").clone()).collect()
    }
}

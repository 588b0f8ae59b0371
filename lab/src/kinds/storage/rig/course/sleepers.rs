//! Threads that sleep until a time: a queue of timers on each CPU, behind its local APIC's timer (Linux's hrtimers).

use hal::{Hal as _, ThreadId, Threads as _};
use machine::SimHal;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use systems::Alarm;
use systems::pc::PcCpus;

/// Wake-up times in ns, with the number of the sleep and its thread.
type Queue = BinaryHeap<Reverse<(u64, u64, u32)>>;

/// The sleeping threads of all CPUs.
pub(crate) struct Sleepers {
    queues: Box<[Mutex<(Queue, u64)>]>,
    /// Known once the server is up. They own the tick, which owns the sleepers.
    cpus: OnceLock<Weak<PcCpus<SimHal>>>,
}

impl Sleepers {
    pub(crate) fn new(cpus: u32) -> Self {
        Self { queues: (0..cpus).map(|_| Mutex::default()).collect(), cpus: OnceLock::new() }
    }

    /// From now on threads can sleep.
    pub(crate) fn wake_by(&self, cpus: &Arc<PcCpus<SimHal>>) {
        assert!(self.cpus.set(Arc::downgrade(cpus)).is_ok(), "a server is brought up once");
    }

    /// Sleeps until `due_ns`, or until `is_over` says so after a wake.
    pub(super) fn sleep_until(&self, due_ns: u64, is_over: impl Fn() -> bool) {
        let thread = SimHal.current_thread();
        while SimHal.now_ns() < due_ns && !is_over() {
            let off = SimHal.irq_save();
            let first_ns = {
                let mut queue = self.here();
                queue.1 += 1;
                let number = queue.1;
                queue.0.push(Reverse((due_ns, number, thread.0)));
                queue.0.peek().map_or(due_ns, |Reverse((first_ns, ..))| *first_ns)
            };
            let cpus = self.cpus.get().and_then(Weak::upgrade);
            cpus.expect("no job sleeps before the server is up").tick_at(first_ns);
            SimHal.irq_restore(off);
            SimHal.park();
        }
    }

    /// The timer's interrupt: wakes whose time has come, and sets the timer for the next.
    pub(crate) fn expired(&self, alarm: &Alarm<SimHal>) {
        let now_ns = SimHal.now_ns();
        loop {
            let mut queue = self.here();
            let due = queue.0.peek().map(|Reverse((due_ns, _, thread))| (*due_ns, *thread));
            match due {
                Some((due_ns, thread)) if due_ns <= now_ns => {
                    queue.0.pop();
                    drop(queue);
                    SimHal.wake(ThreadId(thread));
                }
                Some((due_ns, _)) => {
                    drop(queue);
                    return alarm.arm(due_ns);
                }
                None => return,
            }
        }
    }

    fn here(&self) -> MutexGuard<'_, (Queue, u64)> {
        self.queues[SimHal.cpu().index()].lock().expect("no panic while a queue of timers is held")
    }
}

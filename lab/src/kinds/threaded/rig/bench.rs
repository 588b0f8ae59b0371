//! The bench thread: raises the line, waits until the line's thread has run, and raises it again.

use crate::work;
use hal::{Hal as _, ThreadId, Threads, Work};
use irq::{Action, Irq, IrqChipState, IrqCore, IrqReturn};
use machine::SimHal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// State that the bench thread, the line's handler and the laboratory share, all on one host thread.
pub(super) struct Bench {
    raiser: OnceLock<ThreadId>,
    is_complete: AtomicBool,
    laps: Mutex<Laps>,
}

impl Bench {
    pub(super) fn new(iterations: u32, iteration_ns: u64) -> Self {
        let laps = Laps::new(iterations, iteration_ns);
        Self { raiser: OnceLock::new(), is_complete: AtomicBool::new(false), laps: Mutex::new(laps) }
    }

    /// The endless loop of the bench thread.
    pub(super) fn run(&self, core: &IrqCore<SimHal>, line: Irq) {
        self.raiser.set(SimHal.current_thread()).expect("one thread runs it");
        loop {
            SimHal.work(work::RAISE, 1);
            self.is_complete.store(false, Relaxed);
            core.set_irqchip_state(line, IrqChipState::Pending, true).expect("a GIC keeps it");
            while !self.is_complete.load(Relaxed) {
                SimHal.park();
            }
            self.laps().note(SimHal.now_ns());
        }
    }

    /// Begins to count.
    pub(super) fn begin(&self, now_ns: u64) {
        self.laps().begin_ns = Some(now_ns);
    }

    /// Cycles so far, the ramp's included.
    pub(super) fn cycles(&self) -> u64 {
        self.laps().cycles
    }

    /// Cycles per second of each iteration in which a cycle ended.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.laps().rates()
    }

    fn laps(&self) -> std::sync::MutexGuard<'_, Laps> {
        self.laps.lock().expect("one host thread")
    }
}

/// The line's handler, which forced threading runs in a thread. It signals the completion.
impl Action for Bench {
    fn handle(&self, _: Irq) -> IrqReturn {
        SimHal.work(Work::IrqHandler, 1);
        self.is_complete.store(true, Relaxed);
        if let Some(&raiser) = self.raiser.get() {
            SimHal.wake(raiser);
        }
        IrqReturn::Handled
    }
}

/// The cycles of each iteration.
struct Laps {
    cycles: u64,
    begin_ns: Option<u64>,
    iteration_ns: u64,
    /// For each iteration, its cycles and the end of its last cycle.
    iterations: Vec<(u64, u64)>,
    /// The end of the first cycle that ended after counting began.
    first_ns: Option<u64>,
}

impl Laps {
    fn new(iterations: u32, iteration_ns: u64) -> Self {
        let iterations = vec![(0, 0); iterations as usize];
        Self { cycles: 0, begin_ns: None, iteration_ns, iterations, first_ns: None }
    }

    /// Notes the end of a cycle. The cycle that is under way when counting begins only starts the clock.
    fn note(&mut self, now_ns: u64) {
        self.cycles += 1;
        let Some(begin_ns) = self.begin_ns else { return };
        if self.first_ns.is_none() {
            self.first_ns = Some(now_ns);
            return;
        }
        let index = (now_ns - begin_ns) / self.iteration_ns;
        if let Some((cycles, end_ns)) = self.iterations.get_mut(index as usize) {
            *cycles += 1;
            *end_ns = now_ns;
        }
    }

    /// Each rate covers the time from the end of one iteration's last cycle to that of the next, so that no part is
    /// lost.
    fn rates(&self) -> Vec<f64> {
        let mut before_ns = self.first_ns.unwrap_or(0);
        let ended = self.iterations.iter().filter(|(cycles, _)| *cycles > 0);
        ended
            .map(|&(cycles, end_ns)| {
                let took_ns = end_ns - std::mem::replace(&mut before_ns, end_ns);
                cycles as f64 * 1e9 / took_ns as f64
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_counts_whole_cycles() {
        let mut laps = Laps::new(2, 1000);
        laps.note(500);
        assert_eq!((laps.cycles, laps.rates()), (1, vec![]), "the ramp's");
        laps.begin_ns = Some(1000);
        // One under way at the beginning, 300 ns each in the first iteration, 400 in the second, one too late.
        for end_ns in [1200, 1500, 1800, 2200, 2600, 3000] {
            laps.note(end_ns);
        }
        assert_eq!((laps.cycles, laps.rates()), (7, vec![1e9 / 300.0, 1e9 / 400.0]));
    }
}

//! The queues of a drive as a submitter sees them: each CPU has one.

use super::room::Room;
use drivers::nvme::QueuePair;
use hal::{CpuId, CpuSet};
use machine::SimHal;
use std::sync::Arc;

/// One queue pair and the CPUs that submit to it.
pub(crate) struct Queue {
    pub(crate) pair: Arc<QueuePair<SimHal>>,
    pub(crate) cpus: CpuSet,
    /// Where a job waits while the queue is full.
    pub(crate) room: Room,
}

/// The queues of a drive that serve one kind of I/O, by interrupts or by polling.
pub(crate) struct Queues {
    queues: Vec<Queue>,
    /// The queue of each CPU.
    of_cpu: Vec<usize>,
}

impl Queues {
    /// # Panics
    /// A CPU has no queue.
    pub(crate) fn new(queues: Vec<Queue>, cpus: u32) -> Self {
        let of = |cpu| queues.iter().position(|queue| queue.cpus.contains(CpuId(cpu))).expect("queues cover every CPU");
        let of_cpu = (0..cpus).map(of).collect();
        Self { queues, of_cpu }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter()
    }

    /// The number of the queue to which `cpu` submits.
    pub(crate) fn number_of(&self, cpu: CpuId) -> usize {
        self.of_cpu[cpu.index()]
    }

    /// The queue of this number.
    pub(crate) fn get(&self, number: usize) -> &Queue {
        &self.queues[number]
    }
}

//! The CPUs of a PC: interrupt entry, hotplug, timer, kicks.

use super::Parts;
use super::vectors::{RESCHEDULE, SPURIOUS};
use crate::Alarm;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use drivers::apic::{ApicError, Lapic, device_vectors};
use hal::{CpuId, Hal, Word};
use irq::posted::PostedMsi;
use irq::{IrqCore, IrqError, Vector};

/// The CPUs of a PC. The interrupt entry keeps this value.
pub struct PcCpus<H: Hal> {
    parts: Parts<H>,
    alarm: Arc<Alarm<H>>,
    /// The CPUs of this system, where several systems share a machine.
    range: Range<u32>,
    switches_to_x2apic: bool,
    /// Per CPU: 1 once it has gone offline.
    gone: Box<[H::Word]>,
}

impl<H: Hal> PcCpus<H> {
    pub(super) fn new(parts: Parts<H>, alarm: Arc<Alarm<H>>, range: Range<u32>, switches_to_x2apic: bool) -> Self {
        let gone = (0..range.end).map(|_| H::Word::new(0)).collect();
        Self { parts, alarm, range, switches_to_x2apic, gone }
    }

    pub(super) fn parts(&self) -> &Parts<H> {
        &self.parts
    }

    /// The entry of every vector from 0x20 up: this CPU has taken `vector`, and its interrupts are off.
    #[inline]
    pub fn interrupt(&self, vector: u8) {
        self.parts.core.handle_vector(Vector(vector));
    }

    /// Lets this CPU take interrupts. Each CPU calls this when it first starts, and again after [`PcCpus::stop_cpu`].
    /// Interrupts are off, or no interrupt can come yet.
    ///
    /// # Errors
    /// The error of [`IrqCore::cpu_online`] for a CPU that comes back. The CPU is then online, unless it was online
    /// before.
    pub fn start_cpu(&self) -> Result<(), IrqError> {
        if self.switches_to_x2apic {
            self.parts.lapic.switch_to_x2apic();
        }
        self.parts.lapic.enable(SPURIOUS);
        let cpu = self.parts.hal.cpu();
        let came = match self.gone.get(cpu.index()) {
            Some(gone) if gone.get() != 0 => {
                gone.set(0);
                self.parts.core.cpu_online(cpu)
            }
            _ => Ok(()),
        };
        if self.parts.core.next_deadline_ns(cpu).is_some() {
            let off = self.parts.hal.irq_save();
            self.alarm.look(&self.parts.core);
            self.parts.hal.irq_restore(off);
        }
        came
    }

    /// Takes this CPU offline. Its lines move to other CPUs, pending interrupts are fired there, its descriptor is
    /// emptied and its timer stopped. The CPU then leaves its interrupts off until [`PcCpus::start_cpu`].
    ///
    /// # Errors
    /// The error of [`IrqCore::cpu_offline`]. The CPU then stays online, with everything as before, except that a line
    /// which has moved to another CPU of its affinity stays there.
    pub fn stop_cpu(&self) -> Result<CpuId, IrqError> {
        let off = self.parts.hal.irq_save();
        let stopped = self.parts.core.cpu_offline();
        if let Ok(cpu) = stopped {
            // All requests posted here have been fired elsewhere. The CPU's INIT drops a notification that is under
            // way.
            self.parts.posted.iter().for_each(|posted| posted.cpu_offline());
            self.alarm.stop();
            self.gone[cpu.index()].set(1);
        }
        self.parts.hal.irq_restore(off);
        stopped
    }

    /// Makes `cpu` look at its run queue. A kernel implements its reschedule kick with it.
    ///
    /// # Errors
    /// The error of the local APIC.
    pub fn kick(&self, cpu: CpuId) -> Result<(), ApicError> {
        self.parts.lapic.send(cpu, RESCHEDULE)
    }

    /// Makes this CPU's timer interrupt it at `at_ns` by [`Hal::now_ns`] and run the kernel's tick. Replaces an
    /// earlier request.
    pub fn tick_at(&self, at_ns: u64) {
        self.alarm.arm(at_ns);
    }

    /// No tick comes on this CPU until [`PcCpus::tick_at`].
    pub fn no_tick(&self) {
        self.alarm.disarm();
    }

    /// The CPUs' timers.
    pub fn alarm(&self) -> &Arc<Alarm<H>> {
        &self.alarm
    }

    /// The delivery core.
    pub fn core(&self) -> &Arc<IrqCore<H>> {
        &self.parts.core
    }

    /// The local APICs.
    pub fn lapic(&self) -> &Arc<Lapic<H>> {
        &self.parts.lapic
    }

    /// The posted descriptors, if the policy wishes for posted delivery or a device posts.
    pub fn posted(&self) -> Option<&Arc<PostedMsi<H>>> {
        self.parts.posted.as_ref()
    }

    /// The numbers of its CPUs.
    pub fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    /// Device vectors that are pending at this CPU, in its local APIC or its posted descriptor. Interrupts are off.
    /// For debug output and tests: it reads 203 bits one by one.
    pub fn requested_here(&self) -> Vec<Vector> {
        let cpu = self.parts.hal.cpu();
        let posted = self.posted().and_then(|posted| posted.descriptor(cpu));
        let waits = |&vector: &Vector| {
            self.parts.lapic.is_requested(vector)
                || posted.as_ref().is_some_and(|descriptor| descriptor.is_pending(vector))
        };
        device_vectors().filter(waits).collect()
    }
}

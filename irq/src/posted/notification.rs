//! The descriptors of all CPUs, and the handler of the notification vector.

use super::descriptor::{Deliverable, Descriptor, Notification, Served};
use super::limited::Limited;
use crate::{Target, Vector};
use alloc::vec::Vec;
use core::fmt;
use hal::{CpuId, DeviceAddress, Dma, DmaError, Hal, Word};
use spec::vtd::posted::SIZE;

/// How notifications are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostedConfig {
    /// NV, the vector of notifications, the same on every CPU. Only vectors below it are dispatched.
    pub notification_vector: Vector,
    /// Most harvest passes before ON is cleared. The pass after the clear is unconditional and not counted here.
    pub passes: u32,
}

impl Default for PostedConfig {
    /// Linux's vector and number of passes.
    fn default() -> Self {
        Self { notification_vector: Vector(0xeb), passes: 2 }
    }
}

/// Why posted delivery could not be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostedError {
    /// No CPU was named.
    NoCpu,
    /// The notification vector leaves no vector for devices below it.
    NotificationVector(Vector),
    /// No memory for a descriptor.
    Memory(DmaError),
}

impl fmt::Display for PostedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => write!(f, "posted delivery was asked for 0 CPUs; at least 1 is needed"),
            Self::NotificationVector(vector) => {
                write!(f, "notification vector {:#04x} is not in 0x21 to 0xff", vector.0)
            }
            Self::Memory(error) => write!(f, "posted descriptor: {error}"),
        }
    }
}

impl core::error::Error for PostedError {}

/// Counts of one CPU's notifications since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Notifications taken: the PMN row of `/proc/interrupts`.
    pub notifications: u64,
    /// Notifications that found no vector to dispatch.
    pub empty_notifications: u64,
    /// Harvests that found something.
    pub passes: u64,
    /// Vectors dispatched.
    pub vectors: u64,
    /// Cleared requests for vectors that no device may have.
    pub stray: u64,
    /// Notifications that ended at their limit with requests left.
    pub cut_short: u64,
}

/// One CPU's state. Only its own CPU writes the words, so they need no atomic updates.
#[repr(align(64))]
struct PerCpu<H: Hal> {
    descriptor: H::Dma,
    /// 1 while the notification handler runs.
    serving: H::Word,
    notifications: H::Word,
    empty_notifications: H::Word,
    /// Harvests that found something, minus the number of notifications, wrapping: most often there is nothing to add.
    further_passes: H::Word,
    /// Vectors dispatched, minus the number of notifications, wrapping.
    further_vectors: H::Word,
    stray: H::Word,
    cut_short: H::Word,
    /// The vector at which the next limited notification begins.
    resume: H::Word,
}

impl<H: Hal> PerCpu<H> {
    fn new(hal: H, notification: Notification) -> Result<Self, DmaError> {
        let descriptor = hal.dma_alloc(SIZE, SIZE)?;
        Descriptor::new(descriptor.words()).initialise(notification);
        let word = || H::Word::new(0);
        Ok(Self {
            descriptor,
            serving: word(),
            notifications: word(),
            empty_notifications: word(),
            further_passes: word(),
            further_vectors: word(),
            stray: word(),
            cut_short: word(),
            resume: word(),
        })
    }

    #[inline]
    fn account(&self, served: Served) {
        let add = |word: &H::Word, count: u64| word.set(word.get().wrapping_add(count));
        add(&self.notifications, 1);
        if served.vectors != 1 {
            add(&self.further_vectors, u64::from(served.vectors).wrapping_sub(1));
            if served.vectors == 0 {
                add(&self.empty_notifications, 1);
            }
        }
        if served.passes != 1 {
            add(&self.further_passes, u64::from(served.passes).wrapping_sub(1));
        }
        if served.stray != 0 {
            add(&self.stray, served.stray.into());
        }
    }
}

/// Posted delivery of a machine: one descriptor per CPU, and the handler of their notifications.
pub struct PostedMsi<H: Hal> {
    hal: H,
    vector: Vector,
    passes: u32,
    deliverable: Deliverable,
    cpus: Vec<PerCpu<H>>,
}

impl<H: Hal> PostedMsi<H> {
    /// Descriptors for CPUs 0 up to the number of `destinations`. Each destination is its CPU's NDST: the APIC id in
    /// x2APIC mode, the id shifted left by 8 in xAPIC mode (VT-d, "Posted Interrupt Descriptor (PID)").
    ///
    /// # Errors
    /// [`PostedError`] without CPUs, without vectors below the notification vector, or without memory.
    pub fn new(hal: H, config: PostedConfig, destinations: &[u32]) -> Result<Self, PostedError> {
        let vector = config.notification_vector;
        if destinations.is_empty() {
            return Err(PostedError::NoCpu);
        }
        if vector.0 <= 0x20 {
            return Err(PostedError::NotificationVector(vector));
        }
        let cpus = destinations
            .iter()
            .map(|&destination| PerCpu::new(hal, Notification { vector, destination }))
            .collect::<Result<_, _>>()
            .map_err(PostedError::Memory)?;
        Ok(Self { hal, vector, passes: config.passes, deliverable: Deliverable::below(vector), cpus })
    }

    /// Handles one notification on this CPU, whose interrupts must be off: counts it, serves the descriptor
    /// ([`Descriptor::serve`]), and calls `eoi` once. The caller has entered interrupt context, and leaves it (and
    /// runs deferred work) after this returns.
    ///
    /// # Panics
    /// When this CPU has no descriptor.
    #[inline]
    pub fn handle(&self, dispatch: impl FnMut(Vector), eoi: impl FnOnce()) -> Served {
        let cpu = &self.cpus[self.hal.cpu().index()];
        cpu.serving.set(1);
        let hal = self.hal;
        let served = Descriptor::new(cpu.descriptor.words()).serve(
            self.passes,
            &self.deliverable,
            |work| hal.work(work, 1),
            dispatch,
        );
        cpu.account(served);
        eoi();
        cpu.serving.set(0);
        served
    }

    /// As [`PostedMsi::handle`], but begins no new handler once `limit_ns` have passed by the clock. Remaining
    /// requests then wait in the descriptor with ON set. `notify_self` is called with the notification vector and must
    /// send it to this CPU. After the EOI, interrupts of higher priority come first, then the rest. A handler that has
    /// begun is not cut short, and each notification runs at least one. So another interrupt waits for the limit and
    /// one handler.
    ///
    /// # Panics
    /// When this CPU has no descriptor.
    pub fn handle_within(
        &self,
        limit_ns: u64,
        dispatch: impl FnMut(Vector),
        notify_self: impl FnOnce(Vector),
        eoi: impl FnOnce(),
    ) -> Served {
        let cpu = &self.cpus[self.hal.cpu().index()];
        cpu.serving.set(1);
        let hal = self.hal;
        let deadline_ns = hal.now_ns().saturating_add(limit_ns);
        let Limited { served, resume } = Descriptor::new(cpu.descriptor.words()).serve_until(
            self.passes,
            &self.deliverable,
            Vector(cpu.resume.get() as u8),
            || hal.now_ns() >= deadline_ns,
            |work| hal.work(work, 1),
            dispatch,
        );
        cpu.account(served);
        if let Some(vector) = resume {
            cpu.resume.set(vector.0.into());
            cpu.cut_short.set(cpu.cut_short.get().wrapping_add(1));
            notify_self(self.vector);
        }
        eoi();
        cpu.serving.set(0);
        served
    }

    /// True if this CPU runs the notification handler, further down its stack. A vector dispatched there must not be
    /// acknowledged at the LAPIC, which never saw it. The same vector taken directly (a retrigger) must be
    /// acknowledged: otherwise it and all vectors of lower priority stay blocked on that CPU.
    #[inline]
    pub fn is_serving(&self) -> bool {
        self.cpus.get(self.hal.cpu().index()).is_some_and(|cpu| cpu.serving.get() != 0)
    }

    /// The vector of notifications.
    pub fn vector(&self) -> Vector {
        self.vector
    }

    /// The descriptor of `cpu`; none if `cpu` was not set up.
    pub fn descriptor(&self, cpu: CpuId) -> Option<Descriptor<'_, H::Word>> {
        self.cpus.get(cpu.index()).map(|cpu| Descriptor::new(cpu.descriptor.words()))
    }

    /// Empties this CPU's descriptor. Call it after [`crate::IrqCore::cpu_offline`] has returned: all requests made
    /// here have then been fired elsewhere, and the CPU's INIT drops a notification that is still under way. If ON
    /// stayed set, nobody would ever notify this CPU again.
    ///
    /// # Panics
    /// When this CPU has no descriptor.
    pub fn cpu_offline(&self) {
        Descriptor::new(self.cpus[self.hal.cpu().index()].descriptor.words()).empty();
    }

    /// Where the remapping unit finds the descriptor of `cpu`.
    pub fn descriptor_address(&self, cpu: CpuId) -> Option<DeviceAddress> {
        self.cpus.get(cpu.index()).map(|cpu| cpu.descriptor.device_address())
    }

    /// True if `target`'s vector waits in its descriptor, or if the notification handler that runs on this CPU may
    /// have harvested it and not dispatched it yet. It may also wait in the LAPIC: see [`crate::IrqChip::is_pending`].
    pub fn is_pending(&self, target: Target) -> bool {
        let harvested = target.cpu == self.hal.cpu() && self.is_serving();
        let posted = || Some(self.descriptor(target.cpu)?.is_pending(target.vector()?));
        harvested || posted().unwrap_or(false)
    }

    /// The notification counts of `cpu`; zero if `cpu` was not set up.
    pub fn statistics(&self, cpu: CpuId) -> Statistics {
        self.cpus.get(cpu.index()).map_or(Statistics::default(), |cpu| Statistics {
            notifications: cpu.notifications.get(),
            empty_notifications: cpu.empty_notifications.get(),
            passes: cpu.notifications.get().wrapping_add(cpu.further_passes.get()),
            vectors: cpu.notifications.get().wrapping_add(cpu.further_vectors.get()),
            stray: cpu.stray.get(),
            cut_short: cpu.cut_short.get(),
        })
    }
}

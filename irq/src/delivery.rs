//! The core that a kernel owns, and how interrupts enter it.

use crate::flow::Taken;
use crate::line::Line;
use crate::vectors::Matrix;
use crate::{CoreConfig, HardwareIrq, Identity, Irq, IrqChip, IrqError, Level, LevelData, Target};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{CpuId, CpuSet, Hal, KernelThreads, Lock, ThreadOps, Word, Work};

/// The handler of a system identity. Interrupts are off. If the interrupt needs an EOI, the handler does it.
pub type SystemHandler<H> = Arc<dyn Fn(&IrqCore<H>) + Send + Sync>;

/// Called when a CPU must look after its lines earlier than was known before; the time is in nanoseconds. It may run
/// under a line's lock, with interrupts off. It may use the controller, but no function of the core that takes a lock.
pub type DeadlineHook = Arc<dyn Fn(CpuId, u64) + Send + Sync>;

/// An identity that the system uses, not a device: `LOC`, `RES`, `PMN`, ….
pub(crate) struct SystemVector<H: Hal> {
    pub(crate) abbreviation: &'static str,
    pub(crate) description: &'static str,
    handler: SystemHandler<H>,
    pub(crate) counts: Box<[H::Word]>,
}

/// Added to a system identity's index in the table of identities. Larger than the entry of any line.
const SYSTEM: usize = 1 << 31;

/// The line number that a chip sees when it ends an interrupt that has no line.
const STRAY: Irq = Irq(u32::MAX);

/// The delivery core of one system.
///
/// The core allocates the storage of all lines when it is built. An interrupt takes its line's lock, allocates
/// nothing, and makes one indirect call per chip operation.
pub struct IrqCore<H: Hal> {
    pub(crate) hal: H,
    pub(crate) config: CoreConfig,
    /// Set when the first threaded handler is installed.
    pub(crate) threads: KernelThreads<H>,
    /// If set, every handler that can runs in a thread; these functions start it.
    pub(crate) forced: Option<&'static ThreadOps<H>>,
    pub(crate) lines: Arc<[Line<H>]>,
    /// Where the search for a free line begins: those before it are taken, unless it lost a race. All are searched.
    pub(crate) first_free: H::Word,
    /// The owner of each identity: `identities` entries per CPU, one CPU after the other. An entry is 0 for no owner,
    /// 1 + the line's index, or [`SYSTEM`] + an index in `systems`.
    table: Box<[H::Word]>,
    /// Number of entries per CPU in `table`.
    identities: u32,
    pub(crate) matrix: Lock<H, Matrix>,
    /// In order of registration, which is also the order of their rows in the accounting.
    pub(crate) systems: Vec<SystemVector<H>>,
    /// The chip that ends an interrupt which has no line.
    root: Option<LevelData>,
    /// Stray vectors, per CPU.
    pub(crate) strays: Box<[H::Word]>,
    last_stray: H::Word,
    /// The time at which each CPU must look after its lines; `u64::MAX` for never.
    due_ns: Box<[H::Word]>,
    deadline_hook: Option<DeadlineHook>,
}

impl<H: Hal> IrqCore<H> {
    /// A core without lines.
    ///
    /// # Errors
    /// [`IrqError::Config`] when no CPU is online, or when the identities leave no range for devices.
    pub fn new(hal: H, config: CoreConfig) -> Result<Self, IrqError> {
        config.validate()?;
        let words = |count: usize, value| (0..count).map(|_| H::Word::new(value)).collect::<Box<[_]>>();
        let cpus = config.cpus as usize;
        let identities = config.identities.map_or(0, |space| space.entries());
        Ok(Self {
            hal,
            config,
            threads: KernelThreads::new(),
            forced: None,
            lines: (0..config.lines_max).map(|_| Line::new(hal, config.cpus)).collect(),
            table: words(cpus * identities as usize, 0),
            identities,
            matrix: Lock::new(hal, Matrix::new(&config)),
            systems: Vec::new(),
            root: None,
            strays: words(cpus, 0),
            first_free: H::Word::new(0),
            last_stray: H::Word::new(u64::MAX),
            due_ns: words(cpus, u64::MAX),
            deadline_hook: None,
        })
    }

    /// The seam that the core was built with.
    pub fn hal(&self) -> H {
        self.hal
    }

    /// Calls `hook` whenever a CPU's next deadline gets earlier ([`IrqCore::next_deadline_ns`]). The hook arms a
    /// timer, so that the kernel need not poll for deadlines.
    pub fn set_deadline_hook(&mut self, hook: DeadlineHook) {
        self.deadline_hook = Some(hook);
    }

    /// Sets the CPUs that are online from the start, instead of all. The others come by [`IrqCore::cpu_online`].
    ///
    /// # Errors
    /// [`IrqError::Config`] without a CPU, [`IrqError::Cpu`] for one that does not belong to the system.
    pub fn set_online(&mut self, cpus: &CpuSet) -> Result<(), IrqError> {
        self.matrix.lock().start_with(cpus)
    }

    /// Sets the chip whose eoi ends a stray interrupt: the root of all hierarchies.
    pub fn set_root_chip(&mut self, chip: Arc<IrqChip>) {
        self.root = Some(LevelData { chip, hwirq: HardwareIrq(0) });
    }

    /// Makes `identity` a system identity. `/proc/interrupts` shows `abbreviation` and `description` in its row.
    ///
    /// # Errors
    /// [`IrqError::SystemVector`] when the identity is an exception, belongs to devices, is in use, or does not exist
    /// at the controller.
    pub fn set_system_vector(
        &mut self,
        identity: impl Into<Identity>,
        abbreviation: &'static str,
        description: &'static str,
        handler: SystemHandler<H>,
    ) -> Result<(), IrqError> {
        let identity = identity.into();
        let allowed = self.config.identities.is_some_and(|space| space.is_system(identity));
        if !allowed || self.owner(CpuId(0), identity) != 0 {
            return Err(IrqError::SystemVector(identity));
        }
        let counts = (0..self.config.cpus).map(|_| H::Word::new(0)).collect();
        let owner = SYSTEM + self.systems.len();
        self.systems.push(SystemVector { abbreviation, description, handler, counts });
        let entries = (0..self.config.cpus).filter_map(|cpu| self.entry(CpuId(cpu), identity));
        entries.for_each(|entry| entry.set(owner as u64));
        Ok(())
    }

    /// The entry of every device identity and system identity: this CPU has taken `identity`, and its interrupts are
    /// off. If nobody owns the identity, the core counts it as stray and ends it at the root chip.
    #[inline]
    pub fn handle_vector(&self, identity: impl Into<Identity>) {
        self.handle_identity(identity.into());
    }

    fn handle_identity(&self, identity: Identity) {
        self.hal.work(Work::IrqEntry, 1);
        let cpu = self.hal.cpu();
        let owner = self.owner(cpu, identity);
        if !self.deliver_by(cpu, identity, owner.wrapping_sub(1)) {
            self.handle_other(cpu, identity, owner);
        }
        self.leave(cpu);
    }

    /// Handles an identity that belongs to the system, or to nobody.
    #[inline(never)]
    fn handle_other(&self, cpu: CpuId, identity: Identity, owner: usize) {
        match self.systems.get(owner.wrapping_sub(SYSTEM)) {
            Some(system) => {
                increment(&system.counts[cpu.index()]);
                (system.handler)(self);
            }
            None => {
                self.count_stray(cpu, identity);
                self.end_stray(identity);
            }
        }
    }

    /// Delivers a device's `identity` on this CPU, without interrupt entry, exit and EOI. The handler of posted
    /// notifications calls this for each vector that it harvests. Returns false when no line owns the identity, and
    /// counts it as stray. Interrupts are off.
    #[inline]
    pub fn dispatch(&self, identity: impl Into<Identity>) -> bool {
        let (cpu, identity) = (self.hal.cpu(), identity.into());
        let served = self.deliver_by(cpu, identity, self.owner(cpu, identity).wrapping_sub(1));
        if !served {
            self.count_stray(cpu, identity);
        }
        served
    }

    #[cold]
    fn count_stray(&self, cpu: CpuId, identity: Identity) {
        increment(&self.strays[cpu.index()]);
        self.last_stray.set(u64::from(cpu.0) << 32 | u64::from(identity.0));
    }

    /// The interrupt exception of a controller without identities. `root` asks the controller which lines are raised,
    /// and calls [`IrqCore::handle_irq`] for each until no line is raised. Interrupts are off.
    pub fn handle_exception(&self, root: impl FnOnce(&Self)) {
        self.hal.work(Work::IrqEntry, 1);
        root(self);
        self.leave(self.hal.cpu());
    }

    /// The last step of every interrupt.
    #[inline]
    fn leave(&self, cpu: CpuId) {
        if self.due_ns[cpu.index()].get() != u64::MAX {
            self.housekeep();
        }
        self.hal.work(Work::IrqExit, 1);
    }

    /// Delivers a line that has no identity. The root handler of a controller that names its lines calls this, for
    /// per-CPU lines too; a demultiplexer calls it for the lines behind its own. Returns false when the line does not
    /// exist: a root handler then ends the interrupt at its controller; a demultiplexer leaves it to the pin's next
    /// line. Interrupts are off.
    pub fn handle_irq(&self, irq: Irq) -> bool {
        let taken = Taken { irq, cpu: self.hal.cpu() };
        let line = self.lines.get(irq.0 as usize);
        line.is_some_and(|line| line.deliver_unlocked(taken.cpu.index()) || self.deliver(line, taken))
    }

    #[cold]
    fn end_stray(&self, identity: Identity) {
        if let Some(LevelData { chip, .. }) = &self.root {
            let level = [LevelData { chip: chip.clone(), hwirq: HardwareIrq(identity.0.into()) }];
            chip.eoi(&Level::new(STRAY, &level));
        }
    }

    /// Number of interrupts on `cpu` whose identity belonged to no line.
    pub fn stray_vectors(&self, cpu: CpuId) -> u64 {
        self.strays.get(cpu.index()).map_or(0, |count| count.get())
    }

    /// The last identity that arrived without belonging to a line, and its CPU.
    pub fn last_stray(&self) -> Option<Target> {
        let last = self.last_stray.get();
        (last != u64::MAX).then_some(Target::of(CpuId((last >> 32) as u32), Identity(last as u32)))
    }

    /// The owner of `identity` on `cpu`: its entry in the table.
    #[inline]
    fn owner(&self, cpu: CpuId, identity: Identity) -> usize {
        self.entry(cpu, identity).map_or(0, |entry| entry.get() as usize)
    }

    #[inline]
    fn entry(&self, cpu: CpuId, identity: Identity) -> Option<&H::Word> {
        let index = cpu.index() * self.identities as usize + identity.0 as usize;
        if identity.0 < self.identities { self.table.get(index) } else { None }
    }

    /// Enters `irq` as the owner of the target's identity, if the target has one. None clears the entry.
    pub(crate) fn set_entry(&self, target: Target, irq: Option<Irq>) {
        if let Some(entry) = target.identity.and_then(|identity| self.entry(target.cpu, identity)) {
            entry.set(irq.map_or(0, |irq| u64::from(irq.0) + 1));
        }
    }

    pub(crate) fn line(&self, irq: Irq) -> Result<&Line<H>, IrqError> {
        self.lines.get(irq.0 as usize).ok_or(IrqError::NoLine(irq))
    }

    /// Makes `cpu` look after its lines at `at_ns`, or earlier.
    pub(crate) fn schedule(&self, cpu: CpuId, at_ns: u64) {
        // A CPU that goes offline looks after its lines itself. Its timer could not fire before it comes back.
        if self.note_deadline(cpu, at_ns)
            && let Some(hook) = &self.deadline_hook
            && self.matrix.lock().is_online(cpu)
        {
            hook(cpu, at_ns);
        }
    }

    /// Reports to the hook the deadlines that were noted for `cpus`.
    pub(crate) fn announce(&self, cpus: &CpuSet) {
        let Some(hook) = &self.deadline_hook else { return };
        for cpu in cpus.iter() {
            self.next_deadline_ns(cpu).into_iter().for_each(|at_ns| hook(cpu, at_ns));
        }
    }

    /// Returns true when `cpu` had no deadline this early.
    pub(crate) fn note_deadline(&self, cpu: CpuId, at_ns: u64) -> bool {
        let word = &self.due_ns[cpu.index()];
        let mut seen = word.get();
        while at_ns < seen {
            match word.compare_exchange(seen, at_ns) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The time at which [`IrqCore::housekeep`] has work on `cpu`; none when nothing waits. A CPU that takes
    /// interrupts does that work by itself. A CPU that takes none needs a timer interrupt: see
    /// [`IrqCore::set_deadline_hook`].
    pub fn next_deadline_ns(&self, cpu: CpuId) -> Option<u64> {
        self.due_ns.get(cpu.index()).map(|due_ns| due_ns.get()).filter(|&due_ns| due_ns != u64::MAX)
    }

    /// Does the work that is due on this CPU: gives back vectors that lines have left, applies deferred moves, and
    /// unmasks throttled lines.
    pub fn housekeep(&self) {
        let off = self.hal.irq_save();
        let cpu = self.hal.cpu();
        let now_ns = self.hal.now_ns();
        if self.due_ns[cpu.index()].get() <= now_ns {
            self.due_ns[cpu.index()].swap(u64::MAX);
            for line in self.lines.iter() {
                self.housekeep_line(line, cpu, now_ns);
            }
        }
        self.hal.irq_restore(off);
    }
}

/// Adds one to a word that only this CPU writes.
#[inline]
pub(crate) fn increment<W: Word>(word: &W) {
    word.set(word.get() + 1);
}

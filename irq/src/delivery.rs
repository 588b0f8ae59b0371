//! The value that a kernel owns, and the way of an interrupt into it.

use crate::line::Line;
use crate::vectors::Matrix;
use crate::{CoreConfig, HardwareIrq, Irq, IrqChip, IrqError, Level, LevelData, Target, Vector};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{CpuId, Hal, Lock, Word, Work};

/// The handler of a system vector: interrupts are off, and the EOI, where the vector needs one, is its own.
pub type SystemHandler<H> = Arc<dyn Fn(&IrqCore<H>) + Send + Sync>;

/// A vector that belongs to the system and not to a device: `LOC`, `RES`, `PMN`, ….
pub(crate) struct System<H: Hal> {
    pub(crate) abbreviation: &'static str,
    pub(crate) description: &'static str,
    handler: SystemHandler<H>,
    pub(crate) counts: Box<[H::Word]>,
}

/// Entries of a CPU's vector table.
const VECTORS: usize = 256;
/// The line of interrupts that have none, for the chip's eyes only.
const STRAY: Irq = Irq(u32::MAX);

/// The delivery core of one system.
///
/// All storage of lines is allocated here: an interrupt takes its line's lock, allocates nothing and makes one
/// indirect call a chip operation.
pub struct IrqCore<H: Hal> {
    pub(crate) hal: H,
    pub(crate) config: CoreConfig,
    pub(crate) lines: Arc<[Line<H>]>,
    /// A CPU after the other: 0, or 1 + the line's index.
    table: Box<[H::Word]>,
    pub(crate) matrix: Lock<H, Matrix>,
    /// In order of registration, which is the order of accounting.
    pub(crate) systems: Vec<System<H>>,
    /// By vector: 0, or 1 + the index in `systems`.
    system_of: Box<[u8; VECTORS]>,
    /// The chip that ends an interrupt which has no line.
    root: Option<LevelData>,
    /// Stray vectors a CPU.
    pub(crate) strays: Box<[H::Word]>,
    last_stray: H::Word,
    /// When a CPU must look after its lines, `u64::MAX` for never.
    due_ns: Box<[H::Word]>,
}

impl<H: Hal> IrqCore<H> {
    /// A core without lines.
    ///
    /// # Errors
    /// [`IrqError::Config`] when no CPU is online or the vectors are no range from 0x20 up.
    pub fn new(hal: H, config: CoreConfig) -> Result<Self, IrqError> {
        config.check()?;
        let words = |count: usize, value| (0..count).map(|_| H::Word::new(value)).collect::<Box<[_]>>();
        let cpus = config.cpus as usize;
        Ok(Self {
            hal,
            config,
            lines: (0..config.lines_max).map(|_| Line::new(hal, config.cpus)).collect(),
            table: words(cpus * VECTORS, 0),
            matrix: Lock::new(hal, Matrix::new(&config)),
            systems: Vec::new(),
            system_of: Box::new([0; VECTORS]),
            root: None,
            strays: words(cpus, 0),
            last_stray: H::Word::new(u64::MAX),
            due_ns: words(cpus, u64::MAX),
        })
    }

    /// The chip whose eoi ends a stray vector: the root of all hierarchies.
    pub fn set_root_chip(&mut self, chip: Arc<dyn IrqChip>) {
        self.root = Some(LevelData { chip, hwirq: HardwareIrq(0) });
    }

    /// Gives `vector` to the system. `abbreviation` and `description` are its row of `/proc/interrupts`.
    ///
    /// # Errors
    /// [`IrqError::SystemVector`] for an exception, a device vector, or one that is taken.
    pub fn set_system_vector(
        &mut self,
        vector: Vector,
        abbreviation: &'static str,
        description: &'static str,
        handler: SystemHandler<H>,
    ) -> Result<(), IrqError> {
        let device = self.config.device_first..=self.config.device_last;
        if vector.0 < 0x20 || device.contains(&vector) || self.system_of[usize::from(vector.0)] != 0 {
            return Err(IrqError::SystemVector(vector));
        }
        let counts = (0..self.config.cpus).map(|_| H::Word::new(0)).collect();
        self.systems.push(System { abbreviation, description, handler, counts });
        // At most 224 vectors can be given away.
        self.system_of[usize::from(vector.0)] = self.systems.len() as u8;
        Ok(())
    }

    /// The entry of every device and system vector: `vector` was taken on this CPU, whose interrupts are off. A vector
    /// that is nobody's is counted and ended at the root chip.
    pub fn handle_vector(&self, vector: Vector) {
        self.hal.work(Work::IrqEntry, 1);
        match self.system_of[usize::from(vector.0)] {
            0 if self.dispatch(vector) => {}
            0 => self.end_stray(vector),
            index => {
                let system = &self.systems[usize::from(index) - 1];
                increment(&system.counts[self.hal.cpu().index()]);
                (system.handler)(self);
            }
        }
        self.leave();
    }

    /// Delivers a device's `vector` on this CPU, without entry, exit and end: what the handler of posted
    /// notifications calls for each vector that it harvests. False when the vector is no line's; it is then counted
    /// as stray. Interrupts are off.
    #[inline]
    pub fn dispatch(&self, vector: Vector) -> bool {
        let cpu = self.hal.cpu();
        let entry = self.entry(cpu, vector).get();
        // The table may change under a vector that is on its way: the line itself knows which vectors are its own.
        let line = self.lines.get((entry as usize).wrapping_sub(1));
        let served = line.is_some_and(|line| self.deliver(line, Some(Target::at(cpu, vector))));
        if !served {
            increment(&self.strays[cpu.index()]);
            self.last_stray.set(u64::from(cpu.0) << 8 | u64::from(vector.0));
        }
        served
    }

    /// The interrupt exception of a controller without vectors: `root` asks it which lines are raised, and calls
    /// [`IrqCore::handle_irq`] for each until none is. Interrupts are off.
    pub fn handle_exception(&self, root: impl FnOnce(&Self)) {
        self.hal.work(Work::IrqEntry, 1);
        root(self);
        self.leave();
    }

    /// What ends every interrupt.
    #[inline]
    fn leave(&self) {
        if self.due_ns[self.hal.cpu().index()].get() != u64::MAX {
            self.housekeep();
        }
        self.hal.work(Work::IrqExit, 1);
    }

    /// Delivers a line that has no vector: what the root handler of a controller without vectors calls, per-CPU lines
    /// included; and a demultiplexer, for the lines behind its own. False when no such line lives: the caller ends the
    /// interrupt at its controller itself; a demultiplexer leaves it to the pin's next line. Interrupts are off.
    pub fn handle_irq(&self, irq: Irq) -> bool {
        self.lines
            .get(irq.0 as usize)
            .is_some_and(|line| line.deliver_unlocked(self.hal.cpu().index()) || self.deliver(line, None))
    }

    #[cold]
    fn end_stray(&self, vector: Vector) {
        if let Some(LevelData { chip, .. }) = &self.root {
            let level = [LevelData { chip: chip.clone(), hwirq: HardwareIrq(vector.0.into()) }];
            chip.eoi(&Level::new(STRAY, &level));
        }
    }

    /// Vectors that came although they were no line's, on `cpu`.
    pub fn stray_vectors(&self, cpu: CpuId) -> u64 {
        self.strays.get(cpu.index()).map_or(0, |count| count.get())
    }

    /// The last vector that came although it was no line's, and where.
    pub fn last_stray(&self) -> Option<Target> {
        let last = self.last_stray.get();
        (last != u64::MAX).then_some(Target::at(CpuId((last >> 8) as u32), Vector(last as u8)))
    }

    fn entry(&self, cpu: CpuId, vector: Vector) -> &H::Word {
        &self.table[cpu.index() * VECTORS + usize::from(vector.0)]
    }

    /// Makes `irq` the line of the target's vector, if it has one; none makes it nobody's.
    pub(crate) fn set_entry(&self, target: Target, irq: Option<Irq>) {
        if let Some(vector) = target.vector {
            self.entry(target.cpu, vector).set(irq.map_or(0, |irq| u64::from(irq.0) + 1));
        }
    }

    pub(crate) fn line(&self, irq: Irq) -> Result<&Line<H>, IrqError> {
        self.lines.get(irq.0 as usize).ok_or(IrqError::NoLine(irq))
    }

    /// Has `cpu` look after its lines at `at_ns`, or earlier.
    pub(crate) fn schedule(&self, cpu: CpuId, at_ns: u64) {
        let word = &self.due_ns[cpu.index()];
        let mut seen = word.get();
        while at_ns < seen {
            match word.compare_exchange(seen, at_ns) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// When [`IrqCore::housekeep`] has something to do on `cpu`; none when nothing waits. A kernel looks in its tick,
    /// or arms a timer: a CPU that takes interrupts does it by itself.
    pub fn next_deadline_ns(&self, cpu: CpuId) -> Option<u64> {
        self.due_ns.get(cpu.index()).map(|due_ns| due_ns.get()).filter(|&due_ns| due_ns != u64::MAX)
    }

    /// Does what is due on this CPU: gives back vectors that lines have left, applies moves that had to wait, ends
    /// the throttling of storms.
    pub fn housekeep(&self) {
        let off = self.hal.irq_save();
        let cpu = self.hal.cpu();
        let now_ns = self.hal.now_ns();
        if self.due_ns[cpu.index()].get() <= now_ns {
            self.due_ns[cpu.index()].swap(u64::MAX);
            for line in self.lines.iter() {
                self.look_after(line, cpu, now_ns);
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

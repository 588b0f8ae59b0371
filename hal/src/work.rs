use core::fmt;

/// A kind of work. Code reports each unit of it. Free on hardware; on the machine each unit of a kind has a cost.
///
/// An open enumeration. The named kinds are those of kernels: `irq/`, `drivers/` and schedulers report them. A host of
/// the machine has kinds of its own ([`Work::custom`]) and gives the machine their costs. A kind that the machine does
/// not know costs nothing.
///
/// One unit is one I/O, one entry, one interrupt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(u8);

/// The kinds of kernels, with their names here and in traces.
const KERNEL: [(&str, &str); 12] = [
    ("IrqEntry", "irq entry"),
    ("IrqExit", "irq exit"),
    ("IrqHandler", "irq handler"),
    ("ReapEntry", "reap"),
    ("PirHarvest", "PIR harvest"),
    ("PidClearOn", "clear ON"),
    ("PollLook", "poll"),
    ("CompletionLook", "completion look"),
    ("RemoteCompletion", "remote completion"),
    ("ContextSwitch", "context switch"),
    ("SoftPass", "poll pass"),
    ("ThreadWake", "wake thread"),
];

#[expect(non_upper_case_globals, reason = "the variants of an open enumeration")]
impl Work {
    /// Entry of one hardware interrupt, up to the first line of its flow handler.
    pub const IrqEntry: Self = Self(0);
    /// Return from one hardware interrupt.
    pub const IrqExit: Self = Self(1);
    /// A device's handler, without the entries that it takes.
    pub const IrqHandler: Self = Self(2);
    /// One completion entry taken by a handler or a poll.
    pub const ReapEntry: Self = Self(3);
    /// One harvest pass over a posted descriptor that found something: read and swap.
    pub const PirHarvest: Self = Self(4);
    /// The atomic clear of ON.
    pub const PidClearOn: Self = Self(5);
    /// One look at a completion queue by a polling submitter.
    pub const PollLook: Self = Self(6);
    /// One look at a completion queue after a batch of submissions: a read of a line that the device wrote last.
    pub const CompletionLook: Self = Self(7);
    /// One command completed on another CPU than its submitter's: fetching the cache lines of its request from there. The
    /// driver's user reports it, which knows the distance.
    pub const RemoteCompletion: Self = Self(8);
    /// One context switch from a thread to another.
    pub const ContextSwitch: Self = Self(9);
    /// One pass of budgeted polling at the end of an interrupt: raising it and its bookkeeping.
    pub const SoftPass: Self = Self(10);
    /// One wake of an interrupt's thread from the interrupt: putting it on its CPU's run queue.
    pub const ThreadWake: Self = Self(11);
}

impl Work {
    /// The most kinds there can be, custom ones included.
    pub const COUNT: usize = 256;

    /// How many custom kinds there can be.
    pub const CUSTOM_MAX: u8 = (Self::COUNT - KERNEL.len()) as u8;

    /// All kinds of kernels.
    pub fn kernel() -> impl Iterator<Item = Self> {
        (0..KERNEL.len() as u8).map(Self)
    }

    /// Custom kind `number`, for work that only a host of the machine does: an application, a load.
    ///
    /// # Panics
    /// When `number` is [`Work::CUSTOM_MAX`] or more; at compile time, in a constant.
    pub const fn custom(number: u8) -> Self {
        assert!(number < Self::CUSTOM_MAX, "a custom kind of work has a number below Work::CUSTOM_MAX");
        Self(KERNEL.len() as u8 + number)
    }

    /// The kind's place in a table of [`Work::COUNT`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The name of a kernel's kind; "work" for a custom one.
    pub fn name(self) -> &'static str {
        KERNEL.get(self.index()).map_or("work", |(_, name)| name)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match KERNEL.get(self.index()) {
            Some((kind, _)) => f.write_str(kind),
            None => write!(f, "Custom({})", self.index() - KERNEL.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_kinds_follow_those_of_kernels() {
        let kernel: alloc::vec::Vec<usize> = Work::kernel().map(Work::index).collect();
        assert!(kernel.iter().copied().eq(0..12), "{kernel:?}");
        assert_eq!((Work::custom(0).index(), Work::custom(Work::CUSTOM_MAX - 1).index()), (12, Work::COUNT - 1));
        assert_eq!((Work::ThreadWake.name(), Work::custom(3).name()), ("wake thread", "work"));
    }
}

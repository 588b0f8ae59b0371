/// Work that the code names as it does it. Free on hardware; on the machine the platform file gives each unit a cost.
///
/// The names are those of the published cost tables: one unit is one I/O, one entry, one interrupt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Work {
    /// Entry of one hardware interrupt, up to the first line of its flow handler.
    IrqEntry,
    /// Return from one hardware interrupt.
    IrqExit,
    /// A device's handler, without its entries.
    IrqHandler,
    /// One completion entry taken by a handler or a poll.
    ReapEntry,
    /// One harvest pass over a posted descriptor that found something: read and swap.
    PirHarvest,
    /// The atomic clear of ON.
    PidClearOn,
    /// One I/O of an application in user mode, libaio.
    UserAio,
    /// One I/O submitted in the kernel, libaio.
    SubmitAio,
    /// One I/O completed in the kernel, libaio.
    CompleteAio,
    /// One I/O of an application in user mode, io_uring.
    UserUring,
    /// One I/O submitted in the kernel, io_uring.
    SubmitUring,
    /// One I/O completed in the kernel, io_uring.
    CompleteUring,
    /// One I/O of an application in user mode, polled io_uring.
    UserPolled,
    /// One I/O submitted in the kernel, polled io_uring.
    SubmitPolled,
    /// One I/O completed in the kernel, polled io_uring.
    CompletePolled,
    /// One look at a completion queue by a polling submitter.
    PollLook,
    /// One look at a completion queue after a batch of submissions: a read of a line that the device wrote last.
    CheckLook,
    /// One command completed on another CPU than its submitter's: taking the lines of its request from there.
    RemoteCompletion,
    /// One context switch from a thread to another.
    ContextSwitch,
    /// One descriptor of a stream: its user is told, and makes the next.
    StreamEntry,
    /// One pass of budgeted polling at the end of an interrupt: raising it and its bookkeeping.
    SoftPass,
    /// One I/O submitted to a storage target over the network, application and kernel.
    FabricSubmit,
    /// One I/O of a storage target over the network completed in the kernel.
    FabricComplete,
    /// One I/O served by a storage target over the network.
    FabricServe,
    /// One wake of an interrupt's thread, out of the interrupt: it is put on its CPU's run queue.
    ThreadWake,
    /// One interrupt raised by software, and the wait for its end prepared.
    Raise,
}

impl Work {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::IrqEntry,
        Self::IrqExit,
        Self::IrqHandler,
        Self::ReapEntry,
        Self::PirHarvest,
        Self::PidClearOn,
        Self::UserAio,
        Self::SubmitAio,
        Self::CompleteAio,
        Self::UserUring,
        Self::SubmitUring,
        Self::CompleteUring,
        Self::UserPolled,
        Self::SubmitPolled,
        Self::CompletePolled,
        Self::PollLook,
        Self::CheckLook,
        Self::RemoteCompletion,
        Self::ContextSwitch,
        Self::StreamEntry,
        Self::SoftPass,
        Self::FabricSubmit,
        Self::FabricComplete,
        Self::FabricServe,
        Self::ThreadWake,
        Self::Raise,
    ];

    /// How many kinds there are.
    pub const COUNT: usize = Work::Raise as usize + 1;

    /// Whether the kind runs in user mode; everything else is kernel time.
    pub fn is_user(self) -> bool {
        matches!(self, Self::UserAio | Self::UserUring | Self::UserPolled)
    }
}

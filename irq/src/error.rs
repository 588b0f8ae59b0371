use crate::{Flow, Identity, Irq, Target};
use core::fmt;
use hal::CpuId;

/// Why an interrupt operation was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqError {
    /// A chip lacks the named operation.
    NotSupported(&'static str),
    /// All numbers of the named kind are taken; this many exist.
    Exhausted(&'static str, u32),
    /// The named controller cannot deliver to the target's CPU, or has no such identity.
    Target(&'static str, Target),
    /// The line cannot be delivered as asked, for this reason.
    Undeliverable(&'static str),
    /// The named controller did not do what it was told, for this reason.
    Hardware(&'static str, &'static str),
    /// No such line is allocated.
    NoLine(Irq),
    /// No level of the hierarchy provides an operation that the flow needs.
    Flow(Flow, &'static str),
    /// The named chip has the operation, but does not forward it to the levels towards the CPU.
    KeepsToItself(&'static str, &'static str),
    /// The line's handler does not share the line, or the new handler does not.
    NotShared(Irq),
    /// The handler is not installed on the line.
    NoAction(Irq),
    /// The line still has handlers.
    InUse(Irq),
    /// The caller is a handler of the line, so it cannot wait until the line's handlers have ended.
    InHandler(Irq),
    /// The handler runs only in a thread. The interrupt would repeat until that thread has run, so the line needs
    /// ONESHOT.
    NeedsOneshot(Irq),
    /// The line is per-CPU: each CPU enables and disables it for itself.
    PerCpu(Irq),
    /// The per-CPU line is still enabled on this CPU.
    EnabledOn(Irq, CpuId),
    /// The line is not a per-CPU line.
    NotPerCpu(Irq),
    /// No thread could be started for the line.
    NoThread(Irq),
    /// More enables than disables.
    NotDisabled(Irq),
    /// No CPU of the line's affinity is online.
    NoCpu(Irq),
    /// The line's affinity is managed: it belongs to its CPUs for life.
    Managed(Irq),
    /// No vector is left on any of the requested CPUs.
    NoVector {
        /// The CPU that had the most room.
        cpu: CpuId,
        /// Vectors in use there.
        used: u32,
        /// Vectors reserved there for managed lines that do not use them now.
        reserved: u32,
        /// Number of device vectors per CPU.
        total: u32,
    },
    /// There are more queues than CPUs to spread them over.
    Spread(u32, u32),
    /// The CPU is already offline or online, is the last one online, may still receive a stale route, or does not
    /// exist.
    Cpu(CpuId, &'static str),
    /// The identity belongs to devices, is an exception, already has a handler, or does not exist at the controller.
    SystemVector(Identity),
    /// The configuration is impossible, for this reason.
    Config(&'static str),
}

impl fmt::Display for IrqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupported(operation) => write!(f, "the interrupt chip has no {operation}"),
            Self::Exhausted(kind, count) => write!(f, "all {count} {kind} are taken"),
            Self::Target(controller, target) => {
                write!(f, "{controller} cannot deliver to {target}")
            }
            Self::Undeliverable(reason) => write!(f, "{reason}"),
            Self::Hardware(controller, reason) => write!(f, "{controller}: {reason}"),
            Self::NoLine(irq) => write!(f, "interrupt {irq} is not allocated"),
            Self::Flow(flow, operation) => write!(f, "flow {flow} needs {operation}, which no level of the line has"),
            Self::KeepsToItself(chip, operation) => {
                write!(f, "chip {chip} does not forward {operation}, and the line's flow needs that of its parent")
            }
            Self::NotShared(irq) => write!(f, "interrupt {irq} is taken, and not shared by both handlers"),
            Self::NoAction(irq) => write!(f, "interrupt {irq} does not have this handler"),
            Self::InUse(irq) => write!(f, "interrupt {irq} still has handlers; free them first"),
            Self::InHandler(irq) => write!(f, "the handler of interrupt {irq} cannot wait for itself"),
            Self::NeedsOneshot(irq) => {
                write!(f, "interrupt {irq} has a thread and no handler of its own: it needs ONESHOT")
            }
            Self::PerCpu(irq) => write!(f, "interrupt {irq} is per-CPU: each CPU enables and disables it for itself"),
            Self::EnabledOn(irq, cpu) => {
                write!(f, "interrupt {irq} is still enabled on CPU {cpu}; disable it there first")
            }
            Self::NotPerCpu(irq) => write!(f, "interrupt {irq} is not per-CPU"),
            Self::NoThread(irq) => write!(f, "no thread could be started for interrupt {irq}"),
            Self::NotDisabled(irq) => write!(f, "interrupt {irq} is enabled already"),
            Self::NoCpu(irq) => write!(f, "no CPU of the affinity of interrupt {irq} is online"),
            Self::Managed(irq) => write!(f, "the affinity of interrupt {irq} is managed and cannot be changed"),
            Self::NoVector { cpu, used, reserved, total } => {
                write!(f, "no vector left: CPU {cpu}, with the most room, uses {used} of {total}, {reserved} reserved")
            }
            Self::Spread(queues, cpus) => {
                write!(f, "{queues} queues cannot be spread over {cpus} CPUs; 1 to {cpus} can")
            }
            Self::Cpu(cpu, reason) => write!(f, "CPU {cpu} {reason}"),
            Self::SystemVector(Identity(vector)) => write!(
                f,
                "vector {vector:#04x} cannot be a system vector: it must be one of the controller's interrupts, not a \
                 device's, and not taken"
            ),
            Self::Config(reason) => write!(f, "{reason}"),
        }
    }
}

impl core::error::Error for IrqError {}

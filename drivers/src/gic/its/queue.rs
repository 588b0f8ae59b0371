//! The command queue: the driver posts commands, and waits for their completion.

use crate::gic::GicError;
use crate::gic::frame::Frame;
use hal::{Dma, Hal, Word};
use spec::gic::gicr::{Cacheability, Shareability};
use spec::gic::its::{CBASER, COMMAND_BYTES, CREADR, CWRITER, Command, CommandBase, Pointer};

/// One page, because only a few commands are in flight at any time.
pub(super) const COMMANDS: u16 = 128;
const QUEUE_ALIGN: usize = 0x1_0000;
/// Time limit for the ITS. Hardware answers within microseconds, an emulated ITS when its host schedules it.
const TIMEOUT_NS: u64 = 100_000_000;
const POLL_NS: u64 = 100;

pub(super) struct CommandQueue<H: Hal> {
    hal: H,
    commands: H::Dma,
    next: u16,
}

impl<H: Hal> CommandQueue<H> {
    /// Tells the disabled ITS where the queue is.
    pub(super) fn new(hal: H, frame: &Frame<'_, H::Regs>) -> Result<Self, GicError> {
        let commands = hal.dma_alloc(usize::from(COMMANDS) * COMMAND_BYTES, QUEUE_ALIGN)?;
        let base = CommandBase::new()
            .with_inner_cache(Cacheability::WRITE_BACK.0)
            .with_shareability(Shareability::INNER.0)
            .with_page(commands.device_address().0 >> 12)
            .with_valid(true);
        frame.write(CBASER, base.into_bits());
        if CommandBase::from_bits(frame.read(CBASER)).shareability() != base.shareability() {
            return Err(GicError::Missing("ITS that snoops caches (GITS_CBASER.Shareability)"));
        }
        frame.write(CWRITER, Pointer::new().into_bits());
        Ok(Self { hal, commands, next: 0 })
    }

    /// Makes the ITS execute `commands`, and waits for their completion. The queue has room for many more.
    ///
    /// An ITS may stop at a command that it refuses (IHI 0069H, "Command errors"). The driver then replaces the
    /// command with a harmless one, so that the ITS executes the commands after it, and returns an error.
    pub(super) fn post(&mut self, frame: &Frame<'_, H::Regs>, commands: &[Command]) -> Result<(), GicError> {
        // Commands of a call that timed out may still be in the queue. New commands must not overwrite them.
        if pointer(frame).index() != self.next {
            self.wait(frame, commands)?;
        }
        for command in commands {
            self.place(self.next, *command);
            self.next = (self.next + 1) % COMMANDS;
        }
        frame.write(CWRITER, Pointer::new().with_index(self.next).into_bits());
        self.wait(frame, commands)
    }

    /// Posts `commands`, and once more from the one on that the ITS refuses.
    pub(super) fn post_firmly(&mut self, frame: &Frame<'_, H::Regs>, commands: &[Command]) -> Result<(), GicError> {
        let first = self.next();
        match self.post(frame, commands) {
            Err(GicError::Stalled(index)) => {
                let done = usize::from(index.wrapping_sub(first) % COMMANDS);
                self.post(frame, commands.get(done..).unwrap_or(commands))
            }
            posted => posted,
        }
    }

    /// The index of the next command.
    pub(super) fn next(&self) -> u16 {
        self.next
    }

    fn place(&self, index: u16, command: Command) {
        let first = usize::from(index) * 4;
        for (word, value) in self.commands.words()[first..first + 4].iter().zip(command.encode()) {
            word.set(value);
        }
    }

    fn wait(&self, frame: &Frame<'_, H::Regs>, commands: &[Command]) -> Result<(), GicError> {
        let deadline_ns = self.hal.now_ns().saturating_add(TIMEOUT_NS);
        let mut outcome = Ok(());
        loop {
            let done = pointer(frame);
            if done.stalled_or_retry() {
                outcome = outcome.and(Err(GicError::Stalled(done.index())));
                if done.index() >= COMMANDS {
                    // The queue has no such index, so there is no command to replace.
                    return outcome;
                }
                self.place(done.index(), harmless(commands));
                frame.write(CWRITER, Pointer::new().with_index(self.next).with_stalled_or_retry(true).into_bits());
            } else if done.index() == self.next {
                return outcome;
            }
            if self.hal.now_ns() >= deadline_ns {
                return outcome.and(Err(GicError::Timeout("GITS_CREADR = GITS_CWRITER", TIMEOUT_NS)));
            }
            self.hal.delay_ns(POLL_NS);
        }
    }
}

fn pointer<R: hal::Regs>(frame: &Frame<'_, R>) -> Pointer {
    Pointer::from_bits(frame.read(CREADR))
}

/// A command without effect: the caller's last command if that is a SYNC, otherwise an INVALL, which only costs time.
fn harmless(commands: &[Command]) -> Command {
    match commands.last() {
        Some(&sync @ Command::Sync { .. }) => sync,
        _ => Command::InvalidateAll { collection: 0 },
    }
}

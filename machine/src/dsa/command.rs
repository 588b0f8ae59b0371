//! The command register: one command at a time (DSA, "CMD", "CMDSTATUS", "Administrative Commands").

use super::tables::{Queue, Running};
use super::{Dsa, code};
use crate::observe::Fact;
use crate::time::Ps;
use crate::world::World;
use spec::dsa::registers::{Cmd, CmdStatus, Command, CommandError, DeviceState, IntCause, QueueMask};

/// What happens to commands that are given from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommandTrouble {
    /// Nothing.
    #[default]
    None,
    /// Each does nothing, and ends with [`CommandError::HARDWARE`].
    Fails,
    /// Each takes this much longer.
    Late(Ps),
}

/// The command in progress and the result of the last one.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) status: CmdStatus,
    pub(super) trouble: CommandTrouble,
    fails: bool,
    current: Option<Cmd>,
    /// The command has taken effect and waits until these queues, one bit each, are empty.
    draining: Option<u64>,
}

fn queue_bits(mask: QueueMask) -> u64 {
    // No device here has more than 64 queues, so other queue groups name no existing queue.
    if mask.group() < 4 { u64::from(mask.queues()) << (16 * mask.group()) } else { 0 }
}

impl Dsa {
    /// A write of CMD.
    pub(super) fn command(&mut self, world: &mut World<'_>, command: Cmd) {
        if self.commands.status.active() {
            let text = format!("command {}", command.command());
            return world.fault("DSA command while another is under way", self.config.requester.into(), text);
        }
        self.commands.status = CmdStatus::new().with_active(true);
        self.commands.current = Some(command);
        let trouble = self.commands.trouble;
        if trouble != CommandTrouble::None {
            world.tell(|| Fact::Struck { source: world.me(), fault: "accelerator command" });
        }
        let asks =
            matches!(Command(command.command()), Command::RESET_DEVICE | Command::ENABLE_DEVICE | Command::ENABLE_WQ);
        self.commands.fails = trouble == CommandTrouble::Fails || asks && world.refuses();
        let later = if let CommandTrouble::Late(later) = trouble { later } else { Ps(0) };
        let at = world.now() + self.config.timing.command + later;
        world.schedule(at, code::COMMAND, 0);
    }

    /// The command's time has passed: it takes effect, and ends unless it must wait for descriptors.
    pub(super) fn command_ends(&mut self, world: &mut World<'_>) {
        let Some(command) = self.commands.current else { return };
        let done = if self.commands.fails { Err(CommandError::HARDWARE) } else { self.execute(command) };
        match done {
            Ok(queues) => {
                self.commands.draining = Some(queues);
                self.end_drained(world);
            }
            Err(error) => self.end_command(world, error),
        }
    }

    /// Ends the command that waits for queues if these queues are empty now.
    pub(super) fn end_drained(&mut self, world: &mut World<'_>) {
        let Some(bits) = self.commands.draining else { return };
        let waits = |(index, queue): (usize, &Queue)| bits >> index & 1 == 1 && !queue.is_idle();
        if self.queues.iter().enumerate().any(waits) {
            return;
        }
        for queue in &mut self.queues {
            queue.state = queue.state.filter(|state| *state != Running::Closing);
        }
        if self.state == DeviceState::DRAIN {
            self.state = DeviceState::DISABLED;
        }
        self.commands.draining = None;
        self.end_command(world, CommandError::NONE);
    }

    fn end_command(&mut self, world: &mut World<'_>, error: CommandError) {
        self.commands.status = CmdStatus::new().with_error(error.0);
        if self.commands.current.take().is_some_and(|command| command.interrupt()) {
            self.interrupt(world, IntCause::new().with_command(true));
        }
    }

    /// The immediate effect of a command. On success returns the queues that it waits for, one bit each.
    fn execute(&mut self, command: Cmd) -> Result<u64, CommandError> {
        let operand = command.operand();
        match Command(command.command()) {
            Command::ENABLE_DEVICE => self.enable_device().map(|()| 0),
            Command::DISABLE_DEVICE if self.state != DeviceState::ENABLED => Err(CommandError::DISABLE_NOT_ENABLED),
            Command::DISABLE_DEVICE => {
                self.state = DeviceState::DRAIN;
                self.close(u64::MAX);
                Ok(u64::MAX)
            }
            Command::DRAIN_ALL => Ok(u64::MAX),
            Command::ABORT_ALL => {
                self.abandon(u64::MAX);
                Ok(u64::MAX)
            }
            Command::RESET_DEVICE => {
                self.reset();
                Ok(0)
            }
            Command::ENABLE_WQ => self.enable_queue(operand).map(|()| 0),
            queue_command => self.queue_command(queue_command, queue_bits(QueueMask::from_bits(operand))),
        }
    }

    fn queue_command(&mut self, command: Command, bits: u64) -> Result<u64, CommandError> {
        if !matches!(command, Command::DISABLE_WQ | Command::DRAIN_WQ | Command::ABORT_WQ | Command::RESET_WQ) {
            return Err(CommandError::INVALID_COMMAND);
        }
        if bits == 0 || bits.checked_shr(self.queues.len() as u32).is_some_and(|beyond| beyond != 0) {
            return Err(CommandError::INVALID_QUEUE);
        }
        let disabled = |(index, queue): (usize, &Queue)| bits >> index & 1 == 1 && queue.state.is_none();
        if self.state != DeviceState::ENABLED
            || (command != Command::RESET_WQ && self.queues.iter().enumerate().any(disabled))
        {
            return Err(CommandError::QUEUE_NOT_ENABLED);
        }
        match command {
            Command::DISABLE_WQ => self.close(bits),
            Command::DRAIN_WQ => {}
            Command::ABORT_WQ => self.abandon(bits),
            _ => {
                self.abandon(bits);
                self.each(bits, |queue| queue.reset());
            }
        }
        Ok(bits)
    }

    fn each(&mut self, bits: u64, change: impl Fn(&mut Queue)) {
        let chosen = self.queues.iter_mut().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
        chosen.for_each(|(_, queue)| change(queue));
    }

    fn close(&mut self, bits: u64) {
        self.each(bits, |queue| queue.state = queue.state.map(|_| Running::Closing));
    }

    /// Discards the descriptors that wait in queues. Descriptors that engines have begun end normally.
    fn abandon(&mut self, bits: u64) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if bits >> index & 1 == 1 {
                self.counters.abandoned += queue.waiting.len() as u64;
                queue.waiting.clear();
            }
        }
    }

    /// Resets the device to its initial state. Descriptors in progress leave no trace.
    fn reset(&mut self) {
        self.abandon(u64::MAX);
        self.counters.abandoned += self.jobs.clear() as u64;
        for queue in &mut self.queues {
            queue.reset();
            queue.served = 0;
        }
        self.groups.fill(Default::default());
        self.engines.fill(Default::default());
        self.reset_registers();
        self.state = DeviceState::DISABLED;
    }

    fn enable_device(&mut self) -> Result<(), CommandError> {
        if self.state != DeviceState::DISABLED {
            return Err(CommandError::DEVICE_ENABLED);
        }
        if self.queues.iter().map(|queue| u32::from(queue.size())).sum::<u32>() > self.config.entries.into() {
            return Err(CommandError::TOTAL_SIZE);
        }
        let (mut queues, mut engines) = (0, 0);
        for group in &self.groups {
            let twice = queues & group.queues() != 0 || engines & group.engines() != 0;
            if twice || group.names_more_queues() || (group.queues() != 0) != (group.engines() != 0) {
                return Err(CommandError::GROUPS);
            }
            queues |= group.queues();
            engines |= group.engines();
        }
        let beyond = |bits: u64, count: usize| bits.checked_shr(count as u32).is_some_and(|rest| rest != 0);
        if beyond(queues, self.queues.len()) || beyond(engines, self.engines.len()) {
            return Err(CommandError::GROUPS);
        }
        self.state = DeviceState::ENABLED;
        Ok(())
    }

    fn enable_queue(&mut self, index: u32) -> Result<(), CommandError> {
        let (state, transfer_shift_max) = (self.state, self.config.transfer_shift_max);
        let queue = self.queues.get_mut(index as usize).ok_or(CommandError::INVALID_QUEUE)?;
        let mode = queue.mode();
        let wrong = [
            (state != DeviceState::ENABLED, CommandError::DEVICE_NOT_ENABLED),
            (queue.state.is_some(), CommandError::QUEUE_ENABLED),
            (queue.size() == 0, CommandError::QUEUE_SIZE),
            (mode.priority() == 0, CommandError::PRIORITY),
            (!mode.dedicated(), CommandError::MODE),
            (mode.block_on_fault(), CommandError::BLOCK_ON_FAULT),
            (mode.pasid_enable(), CommandError::PASID),
            (queue.limits().batch_shift_max() > 0, CommandError::BATCH_SIZE),
            (queue.limits().transfer_shift_max() > transfer_shift_max, CommandError::TRANSFER_SIZE),
        ];
        if let Some((_, error)) = wrong.into_iter().find(|(is, _)| *is) {
            return Err(error);
        }
        queue.state = Some(Running::Enabled);
        Ok(())
    }
}

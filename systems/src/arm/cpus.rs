//! CPUs that come online and go offline.

use super::{Arm, ArmError};
use hal::{CpuId, Hal, Word};

/// The stage of a CPU's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Life {
    /// The CPU has not started yet. The core does not count it as online.
    New,
    /// The boot CPU after the build: its interface is on, but its private lines are off.
    Booted,
    /// The CPU takes interrupts.
    Up,
    /// The CPU has no lines, and its interface is on.
    Empty,
    /// The CPU has no lines, and its interface is off.
    Off,
}

impl Life {
    fn of(word: u64) -> Self {
        [Self::New, Self::Booted, Self::Up, Self::Empty, Self::Off][word as usize]
    }
}

impl<H: Hal> Arm<H> {
    /// Each CPU calls this when it comes online; the boot CPU calls it after the build. It starts the CPU's interface,
    /// lets it receive messages, and enables the private lines. Each CPU but the boot CPU is then brought online in the
    /// core.
    ///
    /// # Errors
    /// [`ArmError::Started`], or the error of the GIC: the CPU may then try again. After the error of a line that did not come
    /// back ([`irq::IrqCore::cpu_online`]) the CPU is up, and the core tries that line again.
    pub fn start_cpu(&self) -> Result<(), ArmError> {
        let cpu = self.hal.cpu();
        let life = self.life(cpu);
        match life {
            Life::Booted => {}
            Life::Up => return Err(ArmError::Started(cpu)),
            Life::New | Life::Empty | Life::Off => {
                if life == Life::Empty {
                    self.gic.common().stop_cpu()?;
                }
                self.gic.common().start_cpu()?;
                self.messages.as_ref().map_or(Ok(()), |messages| messages.start_cpu(cpu))?;
            }
        }
        if matches!(life, Life::New | Life::Booted) {
            self.timer.silence();
        }
        self.private_lines().try_for_each(|irq| self.core.enable_percpu(irq))?;
        self.set_life(cpu, Life::Up);
        // The boot CPU has been online in the core since the build.
        let came = if life == Life::Booted { Ok(()) } else { self.core.cpu_online(cpu) };
        // The core may have set a deadline for this CPU before the CPU could be interrupted.
        if self.core.next_deadline_ns(cpu).is_some() {
            let off = self.hal.irq_save();
            self.alarm.look(&self.core);
            self.hal.irq_restore(off);
        }
        came.map_err(Into::into)
    }

    /// Takes this CPU offline: moves its lines and messages to other CPUs, stops its timer and its private lines, and
    /// closes its interface. Call this on the CPU itself with interrupts off. They stay off until [`Arm::start_cpu`].
    ///
    /// # Errors
    /// [`ArmError::Stopped`], or the error of the core or the GIC. The CPU then stays online. There is one exception:
    /// after a timeout of its interface the CPU has no lines.
    pub fn stop_cpu(&self) -> Result<(), ArmError> {
        let cpu = self.empty_cpu()?;
        self.gic.common().stop_cpu()?;
        self.set_life(cpu, Life::Off);
        Ok(())
    }

    /// The same, but leaves the interface on. For a kernel that checks whether interrupts still come to a CPU that is
    /// offline.
    ///
    /// # Errors
    /// As [`Arm::stop_cpu`].
    pub fn empty_cpu(&self) -> Result<CpuId, ArmError> {
        let cpu = self.hal.cpu();
        if self.life(cpu) != Life::Up {
            return Err(ArmError::Stopped(cpu));
        }
        self.core.cpu_offline()?;
        self.private_lines().try_for_each(|irq| self.core.disable_percpu(irq))?;
        if let (Some(messages), Some(heir)) = (&self.messages, self.heir(cpu))
            && let Err(error) = messages.stop_cpu(cpu, heir)
        {
            self.private_lines().try_for_each(|irq| self.core.enable_percpu(irq))?;
            self.core.cpu_online(cpu)?;
            return Err(error.into());
        }
        self.alarm.stop();
        self.set_life(cpu, Life::Empty);
        Ok(cpu)
    }

    /// The next CPU that is up.
    fn heir(&self, cpu: CpuId) -> Option<CpuId> {
        let cpus = self.lives.len() as u32;
        (1..cpus).map(|next| CpuId((cpu.0 + next) % cpus)).find(|&other| self.life(other) == Life::Up)
    }

    fn life(&self, cpu: CpuId) -> Life {
        Life::of(self.lives[cpu.index()].get())
    }

    pub(super) fn set_life(&self, cpu: CpuId, life: Life) {
        self.lives[cpu.index()].set(life as u64);
    }
}

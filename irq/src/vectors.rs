//! The matrix: which line owns which identity of each CPU; and the spreading of queues.

use crate::hardware::Hardware;
use crate::{CoreConfig, Identity, IrqError, Target};
use alloc::vec::Vec;
use hal::{CpuId, CpuSet};

#[derive(Clone, Default)]
struct CpuVectors {
    online: bool,
    /// A bit an identity.
    taken: Vec<u64>,
    used: u32,
    /// Kept for managed lines, in use or not.
    managed: u32,
    managed_used: u32,
}

impl CpuVectors {
    /// Identities that managed lines are owed and do not use. A line that left one here and came back uses two for a
    /// while.
    fn reserved(&self) -> u32 {
        self.managed.saturating_sub(self.managed_used)
    }
}

/// What lines have of a CPU's identities for devices: the vectors of a local APIC. As `Allocated` and `Managed` in Linux's
/// `/sys/kernel/debug/irq/domains/VECTOR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentityUse {
    /// In use, also by a line that has left and whose interrupts may still come.
    pub used: u32,
    /// Kept for managed lines, in use or not.
    pub managed: u32,
    /// In use by managed lines.
    pub managed_used: u32,
    /// How many there are; 0 with a controller that has none.
    pub total: u32,
}

/// The devices' identities on all CPUs.
pub(crate) struct Matrix {
    /// The first that devices may have.
    first: u32,
    /// How many they may have of each CPU.
    total: u32,
    /// The first CPU of this system.
    first_cpu: u32,
    cpus: Vec<CpuVectors>,
}

impl Matrix {
    pub(crate) fn new(config: &CoreConfig) -> Self {
        let range =
            config.identities.map(|space| (space.device_first.0, space.device_last.0 - space.device_first.0 + 1));
        let (first, total) = range.unwrap_or((0, 0));
        let taken = || (0..total.div_ceil(64)).map(|_| 0).collect();
        let cpu = |index| CpuVectors { online: index >= config.first_cpu, taken: taken(), ..CpuVectors::default() };
        Self { first, total, first_cpu: config.first_cpu, cpus: (0..config.cpus).map(cpu).collect() }
    }

    /// Makes exactly `cpus` online, before there are lines.
    pub(crate) fn start_with(&mut self, cpus: &CpuSet) -> Result<(), IrqError> {
        if cpus.is_empty() {
            return Err(IrqError::Config("at least 1 CPU must be online"));
        }
        self.cpus.iter_mut().for_each(|state| state.online = false);
        cpus.iter().try_for_each(|cpu| self.set_online(cpu))
    }

    /// Identities taken, and kept for managed lines, on all CPUs.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (u32, u32) {
        self.cpus.iter().fold((0, 0), |(used, managed), cpu| (used + cpu.used, managed + cpu.managed))
    }

    pub(crate) fn use_of(&self, cpu: CpuId) -> Option<IdentityUse> {
        let &CpuVectors { used, managed, managed_used, .. } = self.cpus.get(cpu.index())?;
        Some(IdentityUse { used, managed, managed_used, total: self.total })
    }

    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        self.cpus.get(cpu.index()).is_some_and(|cpu| cpu.online)
    }

    pub(crate) fn online(&self) -> CpuSet {
        (0..self.cpus.len() as u32).map(CpuId).filter(|&cpu| self.is_online(cpu)).collect()
    }

    pub(crate) fn set_online(&mut self, cpu: CpuId) -> Result<(), IrqError> {
        match self.cpus.get_mut(cpu.index()).filter(|_| cpu.0 >= self.first_cpu) {
            None => Err(IrqError::Cpu(cpu, "does not belong to this system")),
            Some(state) if state.online => Err(IrqError::Cpu(cpu, "is online already")),
            Some(state) => {
                state.online = true;
                Ok(())
            }
        }
    }

    pub(crate) fn set_offline(&mut self, cpu: CpuId) -> Result<(), IrqError> {
        if !self.is_online(cpu) {
            return Err(IrqError::Cpu(cpu, "is not online"));
        }
        if self.cpus.iter().filter(|cpu| cpu.online).count() == 1 {
            return Err(IrqError::Cpu(cpu, "is the last one online"));
        }
        self.cpus[cpu.index()].online = false;
        Ok(())
    }

    /// Free identities of an online CPU for a line of this kind.
    fn room(&self, cpu: CpuId, managed: bool) -> Option<u32> {
        let state = self.cpus.get(cpu.index()).filter(|state| state.online)?;
        let owed = if managed { 0 } else { state.reserved() };
        Some((self.total - state.used).saturating_sub(owed))
    }

    /// Takes the lowest free identity of the emptiest online CPU among `allowed`; none when no such CPU is online.
    fn allocate(&mut self, allowed: &CpuSet, managed: bool) -> Option<Result<Target, IrqError>> {
        let candidates = allowed.iter().filter_map(|cpu| Some((self.room(cpu, managed)?, cpu)));
        let (room, cpu) = candidates.max_by_key(|&(room, cpu)| (room, core::cmp::Reverse(cpu)))?;
        let (total, first) = (self.total, self.first);
        let state = &mut self.cpus[cpu.index()];
        let free = (0..total).find(|&index| state.taken[index as usize / 64] & (1 << (index % 64)) == 0);
        let Some(index) = free.filter(|_| room > 0) else {
            return Some(Err(IrqError::NoVector { cpu, used: state.used, reserved: state.reserved(), total }));
        };
        state.taken[index as usize / 64] |= 1 << (index % 64);
        state.used += 1;
        state.managed_used += u32::from(managed);
        Some(Ok(Target::of(cpu, Identity(first + index))))
    }

    /// Chooses the target of such a line: an online CPU of `allowed`, and an identity if it needs one.
    pub(crate) fn target(&mut self, allowed: &CpuSet, line: &Hardware) -> Option<Result<Target, IrqError>> {
        if line.needs_identity {
            self.allocate(allowed, line.managed)
        } else {
            allowed.iter().find(|&cpu| self.is_online(cpu)).map(|cpu| Ok(Target::on(cpu)))
        }
    }

    pub(crate) fn free(&mut self, cpu: CpuId, identity: Identity, managed: bool) {
        let index = identity.0 - self.first;
        let state = &mut self.cpus[cpu.index()];
        state.taken[index as usize / 64] &= !(1 << (index % 64));
        state.used -= 1;
        state.managed_used -= u32::from(managed);
    }

    /// Keeps one identity on each of `cpus`, online or not, so that a managed line can always come back.
    pub(crate) fn reserve(&mut self, cpus: &CpuSet) -> Result<(), IrqError> {
        for cpu in cpus.iter() {
            let state = self.cpus.get(cpu.index()).filter(|_| cpu.0 >= self.first_cpu);
            let state = state.ok_or(IrqError::Cpu(cpu, "does not belong to this system"))?;
            let (used, reserved, total) = (state.used, state.reserved(), self.total);
            if used + reserved >= total {
                return Err(IrqError::NoVector { cpu, used, reserved, total });
            }
        }
        cpus.iter().for_each(|cpu| self.cpus[cpu.index()].managed += 1);
        Ok(())
    }

    pub(crate) fn unreserve(&mut self, cpus: &CpuSet) {
        cpus.iter().for_each(|cpu| self.cpus[cpu.index()].managed -= 1);
    }
}

/// Affinities for the queues of one device: every CPU is in exactly one set, neighbours together, sizes differing by
/// one at most.
///
/// # Errors
/// [`IrqError::Spread`] without queues, or with more queues than CPUs.
pub fn spread(queues: u32, cpus: &CpuSet) -> Result<Vec<CpuSet>, IrqError> {
    let count = cpus.len();
    if queues == 0 || queues > count {
        return Err(IrqError::Spread(queues, count));
    }
    let mut rest = cpus.iter();
    let size = |queue| count / queues + u32::from(queue < count % queues);
    Ok((0..queues).map(|queue| rest.by_ref().take(size(queue) as usize).collect()).collect())
}

//! Routes interrupts to CPUs and tracks their life from pending to inactive.
//!
//! Sources: IHI 0048B, "Interrupt handling and prioritization"; IHI 0069H, "Interrupt handling and prioritization",
//! "Physical interrupt handling", "Affinity routing".

use super::cpu_interface::{Candidate, End};
use super::{AGAIN, Gic, GicConfig, IntState, PULSE, STICK, Version};
use crate::cpu::IrqInput;
use crate::observe::Fact;
use crate::world::World;
use spec::gic::{IntId, Kind, gicd};

impl GicConfig {
    /// Affinity of a CPU: level 0 in bits 7:0, level 1 in bits 15:8.
    pub(super) fn affinity(&self, cpu: u32) -> u32 {
        ((cpu / 16) << 8) | ((cpu % 16) << self.affinity_shift)
    }

    /// The CPU of an affinity, if levels 2 and 3 are 0 and level 0 is one that [`GicConfig::affinity`] gives.
    pub(super) fn cpu_of(&self, affinity: u32) -> Option<u32> {
        let cpu = (affinity >> 8) * 16 + ((affinity & 0xff) >> self.affinity_shift);
        (affinity >> 16 == 0 && self.affinity(cpu) == affinity).then_some(cpu)
    }
}

impl Gic {
    /// The most urgent interrupt that is pending, enabled, not active, and routed to `cpu`. Among equals the lowest
    /// number is chosen (the architecture leaves this to the implementation).
    pub(super) fn candidate(&self, cpu: u32) -> Option<Candidate> {
        let own = self.cpus.get(cpu as usize)?;
        if self.version == Version::V3 && (own.redistributor.is_asleep() || !self.distributor.affinity_routing) {
            return None;
        }
        let of = |(intid, interrupt): (u32, &super::interrupt::Interrupt)| Candidate {
            priority: interrupt.priority,
            intid,
            group1: interrupt.group1,
            source: if interrupt.sources == 0 { 0 } else { interrupt.sources.trailing_zeros() as u8 },
        };
        let private = own.bank.ready().map(of);
        let shared = self.shared.ready().filter(|(_, interrupt)| self.is_routed(interrupt.route, cpu)).map(of);
        // In GICv3 group 0 is signalled as FIQ, and no CPU here takes FIQs.
        let forwarded = |candidate: &Candidate| {
            self.distributor.enabled[usize::from(candidate.group1)]
                && own.interface.enabled[usize::from(candidate.group1)]
                && (candidate.group1 || self.version == Version::V2)
        };
        let of_wires = private.chain(shared).filter(forwarded).min_by_key(|found| (found.priority, found.intid));
        let of_messages = self.pending_lpi(cpu).filter(forwarded);
        of_wires.into_iter().chain(of_messages).min_by_key(|found| (found.priority, found.intid))
    }

    fn is_routed(&self, route: u64, cpu: u32) -> bool {
        if self.version == Version::V2 {
            return route >> cpu & 1 == 1;
        }
        let route = gicd::Route::from_bits(route);
        if route.any() {
            // 1 of N: the first CPU that participates.
            return self.cpus.iter().position(|own| !own.redistributor.is_asleep() && own.interface.enabled[1])
                == Some(cpu as usize);
        }
        route.affinity2() == 0
            && route.affinity3() == 0
            && u32::from(route.affinity1()) << 8 | u32::from(route.affinity0()) == self.config.affinity(cpu)
    }

    /// The interrupt that the CPU interface signals.
    fn signalled(&self, cpu: u32) -> Option<Candidate> {
        self.candidate(cpu).filter(|&candidate| self.cpus[cpu as usize].interface.passes(candidate))
    }

    /// Informs the observer of interrupts that became pending in this step.
    fn tell_of_pending(&mut self, world: &World<'_>) {
        for intid in self.shared.newly_pending.drain(..) {
            world.tell(|| Fact::GicPending { cpu: None, intid });
        }
        for (cpu, own) in self.cpus.iter_mut().enumerate() {
            let news = own.bank.newly_pending.drain(..).chain(own.redistributor.newly_pending.drain(..));
            news.for_each(|intid| world.tell(|| Fact::GicPending { cpu: Some(cpu as u32), intid }));
        }
    }

    /// The state of an interrupt as `cpu` sees it.
    pub(crate) fn state(&self, cpu: u32, intid: u32) -> Option<IntState> {
        let own = self.cpus.get(cpu as usize)?;
        if IntId(intid).kind() == Kind::Lpi {
            let is_pending = own.redistributor.pending.contains(&intid);
            return self.has_lpi(intid).then_some(IntState { is_pending, is_active: false });
        }
        let bank = if IntId(intid).is_private() { &own.bank } else { &self.shared };
        bank.get(intid).map(|interrupt| IntState { is_pending: interrupt.pending(), is_active: interrupt.active })
    }

    /// Updates the request inputs of all CPUs where they change.
    pub(super) fn signal(&mut self, world: &mut World<'_>) {
        self.tell_of_pending(world);
        for cpu in 0..self.cpus.len() as u32 {
            let input = match (self.signalled(cpu), self.config.pseudo_nmi) {
                (None, _) => IrqInput::Low,
                (Some(candidate), Some(mask)) if candidate.priority < mask => IrqInput::PseudoNmi,
                (Some(_), _) => IrqInput::Irq,
            };
            if std::mem::replace(&mut self.cpus[cpu as usize].input, input) != input {
                world.set_irq_input(cpu, input);
            }
        }
    }

    /// Acknowledges the signalled interrupt if `accepts` allows it. Otherwise returns the special INTID that `accepts`
    /// gives.
    pub(super) fn acknowledge(
        &mut self,
        world: &mut World<'_>,
        cpu: u32,
        accepts: impl Fn(Candidate) -> Result<(), IntId>,
    ) -> u32 {
        let special = match self.signalled(cpu) {
            Some(_) if self.is_withdrawn(world.now()) => IntId::SPURIOUS,
            None => IntId::SPURIOUS,
            Some(candidate) => match accepts(candidate) {
                Ok(()) => return self.activate(world, cpu, candidate),
                Err(special) => special,
            },
        };
        self.counts.spurious += 1;
        world.tell(|| Fact::GicAcknowledged { cpu, word: special.0 });
        special.0
    }

    fn activate(&mut self, world: &mut World<'_>, cpu: u32, candidate: Candidate) -> u32 {
        self.counts.acknowledged += 1;
        world.tell(|| Fact::GicAcknowledged { cpu, word: candidate.word() });
        self.cpus[cpu as usize].interface.acknowledge(candidate);
        if IntId(candidate.intid).has_active_state() {
            self.change(cpu, candidate.intid, |interrupt| interrupt.acknowledge(candidate.source));
        } else {
            self.clear_lpi(cpu, candidate.intid);
        }
        if self.config.pseudo_nmi.is_some_and(|mask| candidate.priority >= mask) {
            world.unmask_exceptions(cpu);
        }
        self.signal(world);
        candidate.word()
    }

    /// A write to an end-of-interrupt register: drops the priority and, with EOImode 0, deactivates.
    pub(super) fn end_of_interrupt(&mut self, world: &mut World<'_>, cpu: u32, word: u32) {
        if !self.names_an_interrupt(world, cpu, word) {
            return;
        }
        self.counts.ended += 1;
        let interface = &mut self.cpus[cpu as usize].interface;
        let (end, eoi_mode) = (interface.end(word), interface.eoi_mode);
        world.tell(|| Fact::GicDropped { cpu, word, in_order: end == End::InOrder });
        match end {
            End::InOrder => {}
            End::OutOfOrder => {
                let text = format!("CPU {cpu}, INTID {word:#x}: unpredictable");
                world.fault("GIC end of an interrupt that is not the latest", cpu.into(), text);
            }
            End::Nothing => {
                return world.fault("GIC end of no interrupt", cpu.into(), format!("CPU {cpu}, INTID {word:#x}"));
            }
        }
        if !eoi_mode && IntId(self.intid(word)).has_active_state() {
            self.deactivate(world, cpu, word);
        }
    }

    /// A write to a deactivation register.
    pub(super) fn deactivate_register(&mut self, world: &mut World<'_>, cpu: u32, word: u32) {
        if !self.names_an_interrupt(world, cpu, word) {
            return;
        }
        let text = || format!("CPU {cpu}, INTID {word:#x}");
        if !self.cpus[cpu as usize].interface.eoi_mode {
            return world.fault("GIC deactivation with EOImode 0", cpu.into(), text());
        }
        if !IntId(self.intid(word)).has_active_state() {
            return world.fault("GIC deactivation of an LPI, which is never active", cpu.into(), text());
        }
        self.deactivate(world, cpu, word);
    }

    /// Active to inactive. SGIs and PPIs belong to the CPU, so only that CPU can deactivate them. For an SGI of GICv2
    /// the sender must match.
    fn deactivate(&mut self, world: &mut World<'_>, cpu: u32, word: u32) {
        let source = if self.version == Version::V2 { (word >> 10 & 7) as u8 } else { 0 };
        let intid = self.intid(word);
        let was = self.change(cpu, intid, |interrupt| {
            let was_active = interrupt.active && (intid >= 16 || interrupt.active_source == source);
            interrupt.active &= !was_active;
            was_active
        });
        world.tell(|| Fact::GicDeactivated { cpu, word, was_active: was == Some(true) });
        if was == Some(true) {
            self.counts.deactivated += 1;
        } else {
            let text = format!("CPU {cpu}, INTID {word:#x}");
            world.fault("GIC deactivation of an interrupt that is not active", cpu.into(), text);
        }
    }

    fn intid(&self, word: u32) -> u32 {
        if self.version == Version::V2 { word & 0x3ff } else { word & 0xff_ffff }
    }

    /// True if a written word names an existing interrupt. Special numbers are ignored, as the manuals say. A number
    /// that does not exist is recorded as a fault.
    fn names_an_interrupt(&self, world: &mut World<'_>, cpu: u32, word: u32) -> bool {
        let intid = self.intid(word);
        let exists = match IntId(intid).kind() {
            Kind::Special => return false,
            Kind::Sgi | Kind::Ppi => true,
            Kind::Spi => self.shared.get(intid).is_some(),
            Kind::Reserved => false,
            Kind::Lpi => self.has_lpi(intid),
        };
        if !exists {
            let text = format!("CPU {cpu}, INTID {word:#x}");
            world.fault("GIC end or deactivation of an interrupt that does not exist", cpu.into(), text);
        }
        exists
    }

    /// Changes an interrupt as `cpu` sees it.
    pub(super) fn change<R>(
        &mut self,
        cpu: u32,
        intid: u32,
        change: impl FnOnce(&mut super::interrupt::Interrupt) -> R,
    ) -> Option<R> {
        if IntId(intid).is_private() {
            self.cpus.get_mut(cpu as usize)?.bank.change(intid, change)
        } else {
            self.shared.change(intid, change)
        }
    }

    /// An event with an argument in the format of [`super::wire_arg`].
    pub(super) fn wire_event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let (intid, cpu, asserted) = (arg as u32, (arg >> 32) as u32 & 0x7fff_ffff, arg >> 63 == 1);
        match code {
            STICK => return self.stick(world, intid, cpu, asserted),
            AGAIN => {
                self.change(cpu, intid, |interrupt| interrupt.latch = true);
                return;
            }
            PULSE => {
                self.wire(world, intid, cpu, true);
                self.wire(world, intid, cpu, false);
            }
            _ => self.wire(world, intid, cpu, asserted),
        }
        if code == PULSE || asserted {
            self.perhaps_again(world, intid, cpu);
        }
    }

    /// A wire of an SPI, or of a PPI of `cpu`.
    pub(super) fn wire(&mut self, world: &mut World<'_>, intid: u32, cpu: u32, asserted: bool) {
        let changed = match IntId(intid).kind() {
            Kind::Ppi | Kind::Spi => self.change(cpu, intid, |interrupt| interrupt.set_line(asserted)),
            _ => None,
        };
        if changed.is_none() {
            let text = format!("INTID {intid} of CPU {cpu}");
            world.fault("GIC wire that does not exist", intid.into(), text);
        }
    }

    /// An SGI arrives at `cpu`.
    pub(super) fn send(&mut self, cpu: u32, from: u32, intid: u32) {
        self.counts.sgis += 1;
        let version = self.version;
        self.change(cpu, intid, |interrupt| match version {
            // The console is no CPU, so its kicks come from CPU 0.
            Version::V2 => interrupt.sources |= 1_u8.checked_shl(from).unwrap_or(1),
            Version::V3 => interrupt.latch = true,
        });
    }

    /// A CPU that has not come up yet is started by firmware, without an interrupt. Afterwards the SGI stays pending,
    /// enabled or not (IHI 0048B, "GICD_SPENDSGIRn": the pending state belongs to the distributor).
    pub(super) fn kick(&mut self, cpu: u32, from: u32) {
        let intid = self.config.reschedule_sgi.into();
        let own = &self.cpus[cpu as usize];
        if own.interface.was_enabled || own.bank.get(intid).is_some_and(|sgi| sgi.enabled) {
            self.send(cpu, from, intid);
        }
    }

    /// Sends an SGI to the CPUs that `is_target` selects. The SGI arrives after an IPI's time.
    pub(super) fn send_sgi(&mut self, world: &mut World<'_>, from: u32, intid: u8, is_target: impl Fn(u32) -> bool) {
        let at = world.now() + world.ipi_time();
        for cpu in (0..self.cpus.len() as u32).filter(|&cpu| is_target(cpu)) {
            world.schedule(at, super::SENT, u64::from(intid) << 32 | u64::from(from) << 16 | u64::from(cpu));
        }
    }

    /// A time slice ends: the timer's PPI, pending until it is taken.
    pub(super) fn tick(&mut self, cpu: u32) {
        self.change(cpu, self.config.timer_ppi.into(), |interrupt| interrupt.latch = true);
    }
}

//! The disturbed schedule at the points of the seam where it can act ([`crate::unrest`]).

use super::Core;
use crate::event::{Event, ModelId, cpu_event};
use crate::observe::Fact;
use crate::time::Ps;
use crate::unrest::turns::{self, Turns};
use crate::unrest::{Kind, State};
use crate::word::Word;
use hal::{CpuId, ThreadId};
use sched::State as ThreadState;

impl Core {
    /// A point of the seam: the running CPU may lose time, or its thread may be preempted.
    #[cold]
    #[inline(never)]
    pub(super) fn disturb(&self, unrest: &State) {
        if self.on_console() || self.dead.get() {
            return;
        }
        if let Some(turns) = &unrest.turns {
            return self.take_turn(turns);
        }
        for kind in [Kind::Delay, Kind::Stall] {
            if let Some(by) = unrest.late(kind, self.board.local_now()) {
                self.tell_of_unrest(kind, by);
                self.board.owe(by);
            }
        }
        if self.is_preemptible() && unrest.draw(Kind::Preempt, self.board.local_now()).is_some() {
            self.tell_of_unrest(Kind::Preempt, Ps(0));
            self.pass_debt();
            // An interrupt may have preempted the thread already.
            if self.is_preemptible() {
                self.give_way();
            }
        }
    }

    /// A step that only adds to the debt. Other agents may act before the next step.
    #[inline]
    pub(super) fn owed_point(&self) {
        if let Some(unrest) = self.unrest() {
            self.interleave(unrest);
        }
    }

    #[cold]
    #[inline(never)]
    fn interleave(&self, unrest: &State) {
        let happens = !self.on_console() && !self.dead.get();
        if let Some(turns) = unrest.turns.as_ref().filter(|_| happens) {
            return self.take_turn(turns);
        }
        if happens && unrest.draw(Kind::Interleave, self.board.local_now()).is_some() {
            self.settle();
        }
    }

    /// The running CPU has updated a word. A plain access behind that is no point of its own, so others act here before it.
    #[inline]
    pub(crate) fn updated(&self) {
        if let Some(unrest) = self.unrest() {
            self.stop_behind(unrest, Kind::LateStep);
        }
    }

    /// The running thread has started another one, and does not know its number yet.
    pub(super) fn started(&self) {
        if let Some(unrest) = self.unrest() {
            self.stop_behind(unrest, Kind::LateStarter);
        }
    }

    #[cold]
    #[inline(never)]
    fn stop_behind(&self, unrest: &State, kind: Kind) {
        if self.on_console() || self.dead.get() {
            return;
        }
        if let Some(by) = unrest.late(kind, self.board.local_now()) {
            self.tell_of_unrest(kind, by);
            self.board.owe(by);
            self.settle();
        }
    }

    /// A point of an agent: it may have to stand until it has the turn.
    fn take_turn(&self, turns: &Turns) {
        let cpu = self.cpu();
        let working = (!cpu.in_idle_loop()).then(|| self.current_thread()).flatten();
        let Some((thread, agent)) = working.and_then(|thread| Some((thread, turns.agent_of(thread)?))) else { return };
        turns.reach(agent, self.board.local_now());
        if turns.may_go(agent, self.board.local_now()) {
            return;
        }
        let start = self.board.local_now();
        turns.stand(thread);
        while !self.dead.get() && !turns.may_go(agent, self.now()) {
            self.board.owe(turns::STEP);
            self.pass_debt();
        }
        turns.end_standing(thread);
        self.tell_of_unrest(Kind::Stall, self.now().saturating_sub(start));
    }

    /// The running thread is agent `agent` of the directed schedule from now on.
    pub(super) fn begin_agent(&self, agent: u8) {
        let Some(turns) = self.unrest().and_then(|unrest| unrest.turns.as_ref()) else { return };
        let thread = self.current_thread().filter(|_| !self.on_console());
        if !thread.is_some_and(|thread| turns.begin(thread, agent, self.now())) {
            self.board.cpu_fault("no such agent", format!("agent {agent}"));
        }
        self.settle();
    }

    /// The running thread's agent has ended.
    pub(super) fn end_agent(&self) {
        let Some(turns) = self.unrest().and_then(|unrest| unrest.turns.as_ref()) else { return };
        self.pass_debt();
        self.current_thread().into_iter().for_each(|thread| turns.end(thread, self.now()));
    }

    fn is_preemptible(&self) -> bool {
        let cpu = self.cpu();
        let runs_thread = || self.threads.sched().current(cpu.id).is_some();
        cpu.irq_on() && cpu.depth() == 0 && !cpu.in_idle_loop() && runs_thread()
    }

    /// Arrival time of a posted write that the running CPU makes now.
    #[inline]
    pub(super) fn write_arrival(&self, model: ModelId, order: u32) -> Ps {
        let at = self.board.local_now();
        match self.unrest() {
            Some(unrest) => self.late_arrival(unrest, model, order, at),
            None => {
                let arrival = self.board.memory.write_arrival(model, order, at);
                if arrival > at {
                    let wait = &self.cpu().writes_wait;
                    wait.set(wait.get().max(arrival));
                }
                arrival
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn late_arrival(&self, unrest: &State, model: ModelId, order: u32, at: Ps) -> Ps {
        let is_far = self.board.model(model).borrow().is_far();
        let mut earliest = at;
        for kind in [Kind::LateWrite, Kind::FarWrite].into_iter().filter(|kind| is_far || *kind != Kind::FarWrite) {
            if let Some(by) = unrest.late(kind, at) {
                self.tell_of_unrest(kind, by);
                earliest = earliest.max(at + by);
            }
        }
        unrest.after_writes(model, earliest, |earliest| self.board.memory.write_arrival(model, order, earliest))
    }

    /// When a write to an unposted region that the running CPU makes now arrives; none: at once.
    #[inline]
    pub(super) fn early_arrival(&self, model: ModelId, region: u8) -> Option<Ps> {
        let unrest = self.unrest().filter(|_| !self.on_console())?;
        let is_posted = self.board.model(model).borrow().acknowledges_early(region);
        let at = if is_posted { self.late_arrival(unrest, model, 0, self.board.local_now()) } else { Ps(0) };
        (at > self.now()).then_some(at)
    }

    /// An exception and a switch of threads empty the store buffer (Intel SDM volume 3, "Store Buffer").
    #[inline]
    pub(super) fn end_stores(&self, cpu: CpuId) {
        if self.board.memory.stores.is_any() {
            self.board.memory.stores.leave_of(cpu);
        }
    }

    /// A read of an unposted region pushes writes that were acknowledged early. Returns how long that takes.
    #[inline]
    pub(super) fn push_early_writes(&self, model: ModelId, region: u8) -> Ps {
        let is_posted = self.unrest().is_some() && self.board.model(model).borrow().acknowledges_early(region);
        if is_posted { self.push_writes(model) } else { Ps(0) }
    }

    /// The running CPU has stored into memory: perhaps devices see that late.
    #[cold]
    #[inline(never)]
    pub(super) fn hold_store(&self, unrest: &State, word: &Word, changed: (u64, u64)) {
        if self.on_console() || self.dead.get() {
            return;
        }
        if self.board.memory.line_of(word).is_none() {
            return self.hold_release(unrest, word, changed.0);
        }
        let (cpu, now) = (self.cpu().id, self.board.local_now());
        let late = unrest.late(Kind::SlowStore, now);
        if let Some(by) = late {
            self.tell_of_unrest(Kind::SlowStore, by);
        }
        let stores = &self.board.memory.stores;
        if late.is_some() || stores.is_any() {
            stores.leave(self.now());
            stores.hold(word, changed, cpu, (now, late.unwrap_or_default()));
        }
    }

    /// The running CPU has stored into a word that it shares with other CPUs alone. If that frees a lock, it may take a while until
    /// the lock is free. A lock's word holds the number of its owner and 1 more (`hal::Lock`), and interrupts are off.
    #[inline]
    fn hold_release(&self, unrest: &State, word: &Word, old: u64) {
        let cpu = self.cpu();
        if old != u64::from(cpu.id.0) + 1 || word.value() != 0 || cpu.irq_on() {
            return;
        }
        let Some(by) = unrest.late(Kind::LateRelease, self.board.local_now()) else { return };
        self.tell_of_unrest(Kind::LateRelease, by);
        word.set_quietly(old);
        self.board.owe(by);
        self.pass_debt();
        word.set_quietly(0);
    }

    /// A point that orders the running CPU's stores before what follows: the CPU waits until devices see them.
    #[inline]
    pub(crate) fn wait_for_stores(&self) {
        if self.board.memory.stores.is_any() {
            self.drain_stores(true);
        }
    }

    /// Waits until devices see the running CPU's stores, or those of all CPUs. What a CPU saw of another one's stores it
    /// may tell a device, by a register or a shared word.
    #[cold]
    #[inline(never)]
    pub(super) fn drain_stores(&self, all: bool) {
        let stores = &self.board.memory.stores;
        if self.on_console() || self.dead.get() {
            return stores.leave(Ps::MAX);
        }
        let by = (!all).then(|| self.cpu().id);
        let wait = stores.until(by).map_or(Ps(0), |until| until.saturating_sub(self.board.local_now()));
        if wait > Ps(0) {
            self.board.owe(wait);
            self.pass_debt();
        }
        stores.leave(self.now());
    }

    /// A read pushes earlier writes, which may be late. Returns how long that takes.
    #[inline]
    pub(super) fn push_writes(&self, model: ModelId) -> Ps {
        let until = self.unrest().map_or_else(|| self.cpu().writes_wait.get(), |unrest| unrest.writes_until(model));
        until.saturating_sub(self.board.local_now())
    }

    /// True if the waking of this thread is delayed.
    #[cold]
    #[inline(never)]
    pub(super) fn starve(&self, unrest: &State, thread: ThreadId) -> bool {
        if unrest.is_starved(thread) {
            // Both wake-ups end the same park.
            return true;
        }
        if self.threads.sched().state(thread) != ThreadState::Parked {
            return false;
        }
        let Some(by) = unrest.late(Kind::StarvedThread, self.board.local_now()) else { return false };
        self.tell_of_unrest(Kind::StarvedThread, by);
        unrest.starve(thread);
        self.clock().push(self.board.local_now() + by, Event::for_cpu(CpuId(0), cpu_event::WAKE, thread.0.into()));
        true
    }

    /// A starved thread is woken now.
    pub(super) fn starved_wakes(&self, thread: ThreadId) {
        let Some(unrest) = self.unrest() else { return };
        unrest.end_starving(thread);
        let (kicked, state) = self.wake_in_scheduler(thread);
        match (kicked, state) {
            (Some(cpu), _) => self.kick_from_nowhere(cpu),
            (None, ThreadState::Ready(cpu)) => self.arm_slice(self.board.cpus.of(cpu)),
            _ => {}
        }
    }

    /// The CPU that the disturbed schedule forces on a woken thread.
    #[cold]
    #[inline(never)]
    pub(super) fn misplacement(&self, unrest: &State, thread: ThreadId) -> Option<CpuId> {
        if self.threads.sched().state(thread) != ThreadState::Parked {
            return None;
        }
        let number = unrest.draw(Kind::MisplacedThread, self.now())?;
        self.board.tell(|| Fact::Disturbed { cpu: None, kind: Kind::MisplacedThread, by: Ps(0) });
        Some(CpuId((number % u64::from(self.board.cpus.count())) as u32))
    }

    fn tell_of_unrest(&self, kind: Kind, by: Ps) {
        self.board.tell_of_cpu(|cpu| Fact::Disturbed { cpu: Some(cpu), kind, by });
    }
}

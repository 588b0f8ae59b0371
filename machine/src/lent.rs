//! A model lent to a host: one device model of the machine, without the machine's CPUs, memory and buses.
//!
//! The host owns the guest's memory, its interrupts and the clock. The model is unchanged and sees a [`World`] as
//! always. Its DMA goes to [`Host::read`] and [`Host::write`], its transfers take no link time, and its messages go to
//! [`Host::message`]. Its events happen when the host calls [`Lent::run_until`]. There is no clock in here: the same
//! calls have the same results.

use crate::board::{Board, BoardConfig};
use crate::clock::Due;
use crate::fault::FaultRecord;
use crate::lapic::{Access, LocalApics};
use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;

pub use crate::memory::Host;
use crate::memory::Memory;

/// The bus above the model: no link, no waiting.
struct HostPort;

impl Model for HostPort {
    fn name(&self) -> &str {
        "host"
    }

    fn event(&mut self, _world: &mut World<'_>, _code: u32, _arg: u64) {}

    fn read(&mut self, _world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8) -> u64 {
        0
    }

    fn write(&mut self, _world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8, _value: u64) {}

    fn upstream(&mut self, world: &mut World<'_>, _from: ModelId, request: Upstream) {
        match request {
            Upstream::Message { address, data, .. } => world.message_to_host(address, data),
            Upstream::Transfer { model, code, arg, .. } => world.schedule_for(model, world.now(), code, arg),
        }
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// The number of the port that every lent model stands behind.
const PORT: ModelId = ModelId(0);
const LENT: ModelId = ModelId(1);

/// A lent model, and the events that it waits for.
pub struct Lent {
    board: Board,
}

impl Lent {
    /// The number of the lent model, for a model that needs its own number.
    pub const MODEL: ModelId = LENT;

    /// Lends the model that `build` makes from the port for its [`Upstream`] requests. `seed` is the seed of its
    /// random stream. Every time that it draws varies by up to `jitter_percent`.
    pub fn new(
        host: Box<dyn Host>,
        seed: u64,
        jitter_percent: u32,
        build: impl FnOnce(ModelId) -> Box<dyn Model>,
    ) -> Self {
        let config = BoardConfig { cpus: 0, seed, jitter_percent, ..BoardConfig::default() };
        let none = Memory::new(0).expect("nothing has room");
        let board = Board::new(config, none, LocalApics::build(0, 0, Access::Msr, [0; 2]).controller);
        board.memory.lend_to(host);
        board.add_model(|_| Box::new(HostPort));
        board.add_model(|_| build(PORT));
        Self { board }
    }

    /// The model's current time.
    pub fn now(&self) -> Ps {
        self.board.now()
    }

    /// When the model's next event is due.
    pub fn next_event(&self) -> Option<Ps> {
        self.board.clock.next_event()
    }

    /// Runs every event up to and at `now`, which is then the model's time. A time in the past changes nothing. A
    /// model that sends itself events at one instant without end is stopped.
    pub fn run_until(&mut self, now: Ps) {
        let now = now.max(self.board.now());
        let clock = &self.board.clock;
        while let Due::Event { at, event, mut is_still } = clock.take_due((now, u64::MAX)) {
            let mut next = Some(event);
            while let Some(due) = next {
                if core::mem::replace(&mut is_still, true) && clock.guard().is_over() {
                    return clock.set_now(now);
                }
                self.board.dispatch(at, due);
                next = clock.take_chained();
            }
        }
        clock.set_now(now);
    }

    /// Reads a register, now; as [`Model::read`].
    pub fn read(&mut self, region: u8, offset: u32, width_bytes: u8) -> u64 {
        self.board.read_register(LENT, region, offset, width_bytes)
    }

    /// Writes a register, now; as [`Model::write`].
    pub fn write(&mut self, region: u8, offset: u32, width_bytes: u8, value: u64) {
        self.board.write_register(LENT, region, offset, width_bytes, value);
    }

    /// The model's counters, as [`Model::counters`].
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.board.model(LENT).borrow().counters()
    }

    /// Number of different kinds of faults.
    pub fn fault_kinds(&self) -> usize {
        self.board.witness.fault_kinds()
    }

    /// Faults in the order in which each kind was first seen, and how many found no room.
    pub fn faults(&self) -> (Vec<FaultRecord>, u64) {
        self.board.witness.faults()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::BusError;
    use crate::model::Traffic;
    use crate::nvme::{Config, Nvme, REGION_CONTROLLER};
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Logs the model's actions. Has memory only at 0x1000.
    #[derive(Default, Clone)]
    struct Watcher(Rc<RefCell<Vec<(u64, u64)>>>);

    impl Host for Watcher {
        fn read(&self, address: u64, _bytes: u32) -> Option<u64> {
            (address == 0x1000).then_some(7)
        }
        fn write(&self, address: u64, bytes: u32, value: u64) -> bool {
            self.0.borrow_mut().push((address, value));
            address == 0x1000
                || address == 0x3001 && bytes == 1
                || address == 0x3002 && bytes == 2
                || address == 0x3004 && bytes == 4
        }
        fn message(&self, address: u64, data: u32) {
            self.0.borrow_mut().push((address, data.into()));
        }
    }

    /// A model that on event `code` reads, writes and sends a message.
    struct Prober(ModelId);

    impl Model for Prober {
        fn name(&self) -> &str {
            "prober"
        }
        fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
            assert_eq!((code, arg, world.now()), (3, 9, Ps(40)));
            assert_eq!(world.read32(0x1000), Ok(7));
            assert!(
                world.read64(0x2000).is_err() && world.read64(0x1004).is_err() && world.write64(0x2000, 1).is_err()
            );
            // Several words are read one by one, up to the first that is missing.
            assert_eq!(world.read_words::<2>(0x1000), Err(BusError { address: 0x1008, bytes: 8 }));
            assert_eq!(world.read_words::<2>(0_u64.wrapping_sub(8)).map_err(|missed| missed.bytes), Err(8));
            assert_eq!(world.write32(0x1000, 5), Ok(()));
            // Writes a part of a word in as many accesses as needed, and touches no other byte.
            assert_eq!(world.write_within(0x3000, 0x7766_5544_3322_1100, 1..8), Ok(()));
            assert_eq!(world.write_within(0x2000, 0x1100, 1..2), Err(BusError { address: 0x2001, bytes: 1 }));
            world.upstream(self.0, Upstream::Message { requester: 0, address: 0xfee0_0000, data: 33 });
        }
        fn read(&mut self, _world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8) -> u64 {
            0
        }
        fn write(&mut self, world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8, value: u64) {
            let traffic = Traffic::Write { relaxed: false };
            let (model, bytes) = (world.me(), 512);
            let transfer = Upstream::Transfer { model, requester: 0, traffic, bytes, code: 3, arg: value };
            world.upstream(self.0, transfer);
        }
        fn as_any(&mut self) -> &mut dyn core::any::Any {
            self
        }
    }

    #[test]
    fn a_models_memory_transfers_and_messages_are_the_hosts() {
        let host = Watcher::default();
        let mut lent = Lent::new(Box::new(host.clone()), 1, 0, |port| Box::new(Prober(port)));
        lent.run_until(Ps(40));
        lent.write(0, 0, 4, 9);
        assert_eq!(lent.next_event(), Some(Ps(40)), "a transfer takes no time, but is an event");
        lent.run_until(Ps(10));
        assert_eq!(lent.now(), Ps(40), "time does not go back");
        let parts = [(0x3001, 0x11), (0x3002, 0x3322), (0x3004, 0x7766_5544), (0x2001, 0x11)];
        let expected = [&[(0x2000, 1), (0x1000, 5)], &parts[..], &[(0xfee0_0000, 33)]].concat();
        assert_eq!(*host.0.borrow(), expected);
    }

    #[test]
    fn a_drive_gets_ready_when_the_hosts_clock_says_so() {
        let build = |port| Box::new(Nvme::new(port, Config::default()).expect("valid")) as Box<dyn Model>;
        let mut lent = Lent::new(Box::new(Watcher::default()), 1, 0, build);
        lent.write(REGION_CONTROLLER, 0x24, 4, 0x001f_001f);
        lent.write(REGION_CONTROLLER, 0x28, 8, 0x1000);
        lent.write(REGION_CONTROLLER, 0x30, 8, 0x2000);
        lent.write(REGION_CONTROLLER, 0x14, 4, 0x0046_0001);
        let ready_at = lent.next_event().expect("the drive gets ready");
        lent.run_until(Ps(ready_at.0 - 1));
        assert_eq!(lent.read(REGION_CONTROLLER, 0x1c, 4), 0);
        lent.run_until(ready_at);
        assert_eq!(lent.read(REGION_CONTROLLER, 0x1c, 4), 1, "CSTS.RDY");
    }
}

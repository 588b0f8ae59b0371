//! The rows of "Ordering Rules Summary" (PCI Express Base Specification, section 2.4.1: table 2-40 of revision 5.0, 2-42 of
//! 6.0), in the words of their explanations, at a port whose IOMMU keeps each message for a set time.
//!
//! The words were compared with those that the linux-pci and qemu-devel lists quote (A2a and A2b of revision 5.0, B2a of
//! 4.0 and 6.0), and all of them with a transcript of revision 6.3. The revisions differ in A2b and B2b: 6.x moves the
//! PASIDs, which are not modelled, into a sentence of their own.

use super::super::integrated::{IntegratedConfig, IntegratedPath};
use super::*;
use std::cell::RefCell;

/// What arrived, and when in ns: a message's data, or the end of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Message(u32, u64),
    Done(u64, u64),
}
use Seen::{Done, Message};

type Log = Rc<RefCell<Vec<Seen>>>;

/// An IOMMU that frees a message's place so much later.
struct Keeper {
    credits: Credits,
    keep: Ps,
    log: Log,
}

impl Model for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, from: u64) {
        self.credits.release(world, ModelId(from as u32));
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        let Upstream::Message { data, .. } = request else { return };
        self.log.borrow_mut().push(Message(data, world.now().as_ns()));
        world.schedule(world.now() + self.keep, 0, from.0.into());
    }
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Devices that send requests at set times, and note when their transfers end.
struct Devices {
    port: ModelId,
    requests: Vec<Upstream>,
    log: Log,
}

const SEND: u32 = 0;
const ENDED: u32 = 1;

impl Model for Devices {
    fn name(&self) -> &str {
        "devices"
    }
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        if code == ENDED {
            return self.log.borrow_mut().push(Done(arg, world.now().as_ns()));
        }
        world.upstream(self.port, self.requests[arg as usize]);
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

const DEVICES: ModelId = ModelId(2);
const ONE: u16 = 0x100;
const OTHER: u16 = 0x200;

fn data(requester: u16, traffic: Traffic, arg: u64) -> Upstream {
    Upstream::Transfer { model: DEVICES, requester, traffic, bytes: 1000, code: ENDED, arg }
}

fn strict(arg: u64) -> Upstream {
    data(ONE, Traffic::Write { relaxed: false }, arg)
}

fn relaxed(arg: u64) -> Upstream {
    data(ONE, Traffic::Write { relaxed: true }, arg)
}

fn read(arg: u64) -> Upstream {
    data(ONE, Traffic::Read, arg)
}

fn msi_of(requester: u16, number: u32) -> Upstream {
    Upstream::Message { requester, address: 0xfee0_0000, data: number }
}

fn msi(number: u32) -> Upstream {
    msi_of(ONE, number)
}

/// A port without special permissions, a place for one message, and a byte a nanosecond.
fn plain() -> RootPortConfig {
    RootPortConfig { waiting_messages_max: 1, ..port_config(1_000_000_000) }
}

/// What arrived when the devices sent these requests, each at its time in ns. The IOMMU keeps each message for 5 µs.
fn sent(requests: &[(u64, Upstream)], port: impl FnOnce(ModelId, ModelId, &Credits) -> Box<dyn Model>) -> Vec<Seen> {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
    let (credits, log) = (Credits::default(), Log::default());
    let keeper = Keeper { credits: credits.clone(), keep: Ps::from_ns(5_000), log: log.clone() };
    let iommu = machine.add_model(|_| Box::new(keeper));
    let port = machine.add_model(|id| port(id, iommu, &credits));
    let all = requests.iter().map(|&(_, request)| request).collect();
    let devices = machine.add_model(|_| Box::new(Devices { port, requests: all, log: log.clone() }));
    assert_eq!(devices, DEVICES);
    for (index, &(at, _)) in requests.iter().enumerate() {
        machine.poke(devices, Ps::from_ns(at), SEND, index as u64);
    }
    machine.run_until(Ps::from_ns(1_000_000));
    log.take()
}

fn through_port(config: RootPortConfig, requests: &[(u64, Upstream)]) -> Vec<Seen> {
    sent(requests, |id, iommu, credits| Box::new(RootPort::new(id, iommu, config, credits)))
}

/// "A Posted Request must not pass another Posted Request unless A2b applies": the message follows the data on the link,
/// also data with the Relaxed Ordering attribute, and does not wait for data that have not been sent.
#[test]
fn a2a_a_message_passes_no_write_sent_before_it() {
    for first in [strict(1), relaxed(1)] {
        let requests = [(0, first), (10, strict(2)), (100, msi(7))];
        let seen = through_port(plain(), &requests);
        assert_eq!(seen, [Message(7, 1000), Done(1, 1000), Done(2, 1000 + 157 + 1000)]);
    }
}

/// A transfer that waits for an earlier message to be ordered has not been sent: the next message goes first.
#[test]
fn a_write_that_has_not_begun_was_not_sent_before() {
    let config = RootPortConfig { waiting_messages_max: 2, ..plain() };
    let seen = through_port(config, &[(0, msi(7)), (0, strict(1)), (100, msi(8))]);
    assert_eq!(seen, [Message(7, 0), Message(8, 100), Done(1, 2 * 157 + 1000)]);
}

/// "A Posted Request must not pass another Posted Request": a message waits for its place, and data wait behind it.
#[test]
fn a2a_later_writes_pass_no_message_that_waits() {
    let requests = [(0, msi(7)), (1, msi(8)), (2, strict(1)), (3, strict(2))];
    let seen = through_port(plain(), &requests);
    assert_eq!(seen, [Message(7, 0), Message(8, 5000), Done(1, 5000 + 157 + 1000), Done(2, 5000 + 157 + 2000)]);
}

/// A2b: "A Posted Request with RO Set is permitted to pass another Posted Request." Its completion entry is a posted
/// request without the attribute: it follows the message.
#[test]
fn a2b_data_with_the_attribute_pass_where_the_port_uses_the_permission() {
    let requests = [(0, msi(7)), (1, msi(8)), (2, relaxed(1)), (3, relaxed(2))];
    let uses = RootPortConfig { relaxed_ordering: true, ..plain() };
    let seen = through_port(uses.clone(), &requests);
    // Both transfers have used the link while the message waited: only their entries are left.
    assert_eq!(seen, [Message(7, 0), Message(8, 5000), Done(1, 5157), Done(2, 5157)]);
    // Attributes "are hints that allow, but do not require, optimizations" (section 2.2.6.3): a port that does not use
    // the permission keeps the data back.
    assert_eq!(through_port(plain(), &requests)[2..], [Done(1, 6157), Done(2, 7157)]);
    // Data without the attribute pass in neither port.
    let requests = [(0, msi(7)), (1, msi(8)), (2, strict(1)), (3, strict(2))];
    assert_eq!(through_port(uses, &requests)[2..], [Done(1, 6157), Done(2, 7157)]);
}

/// A2b: "A Posted Request with IDO Set is permitted to pass another Posted Request if the two Requester IDs are
/// different" (or two PASIDs, which are not modelled).
#[test]
fn a2b_another_requesters_requests_pass_with_id_based_ordering_only() {
    let theirs = data(OTHER, Traffic::Write { relaxed: false }, 2);
    let requests = [(0, msi(7)), (1, msi(8)), (2, strict(1)), (3, theirs), (500, msi_of(OTHER, 9))];
    let with = RootPortConfig { id_based_ordering: true, ..plain() };
    assert_eq!(through_port(with, &requests)[..2], [Message(7, 0), Done(2, 1003)]);
    let without = through_port(plain(), &requests);
    assert_eq!(without[..2], [Message(7, 0), Message(8, 5000)]);
    assert!(without.contains(&Done(2, 5000 + 5157 + 2000)), "{without:?}");
}

/// A3: "A Posted Request must be able to pass Non-Posted Requests to avoid deadlocks." A5a: "permitted to pass a
/// Completion, but is not required to".
#[test]
fn a3_messages_wait_for_no_read() {
    let seen = through_port(plain(), &[(0, read(1)), (0, read(2)), (10, msi(7))]);
    assert_eq!(seen, [Message(7, 10), Done(1, 1000), Done(2, 2000)]);
}

/// B2a: "A Read Request must not pass a Posted Request unless B2b applies." Relaxed ordering is no exception for it.
#[test]
fn b2a_a_read_request_passes_no_message_that_waits() {
    for relaxed_ordering in [false, true] {
        let config = RootPortConfig { relaxed_ordering, ..plain() };
        let seen = through_port(config, &[(0, msi(7)), (1, msi(8)), (2, read(1))]);
        assert_eq!(seen, [Message(7, 0), Message(8, 5000), Done(1, 5000 + 157 + 1000)]);
    }
    // Nor data on the link.
    let seen = through_port(plain(), &[(0, strict(1)), (500, read(2))]);
    assert_eq!(seen, [Done(1, 1000), Done(2, 2000)]);
}

/// The two directions of a link are independent: writes use one, the data of reads the other.
#[test]
fn reads_and_writes_do_not_share_a_direction() {
    let seen = through_port(plain(), &[(0, read(1)), (1, strict(2)), (2, read(3)), (3, strict(4))]);
    assert_eq!(seen, [Done(1, 1000), Done(2, 1001), Done(3, 2001), Done(4, 2001)]);
}

/// Attribute bit 1, Relaxed Ordering, "must be Clear for [...] Memory Requests that are Message Signaled Interrupts"
/// (section 2.2.6.4): they do not overtake each other, whatever the port permits.
#[test]
fn messages_do_not_pass_each_other() {
    let config = RootPortConfig { relaxed_ordering: true, ..plain() };
    let seen = through_port(config, &[(0, msi(7)), (1, msi(8)), (2, msi(9))]);
    assert_eq!(seen, [Message(7, 0), Message(8, 5000), Message(9, 10_000)]);
}

/// A device has one request a vector: equal messages that wait become one, which keeps the place of the first.
#[test]
fn equal_messages_merge_while_they_wait() {
    let seen = through_port(plain(), &[(0, msi(7)), (1, msi(8)), (2, msi(9)), (3, msi(8)), (4, msi(8))]);
    assert_eq!(seen, [Message(7, 0), Message(8, 5000), Message(9, 10_000)]);
}

/// An integrated endpoint has no root port: its messages keep no data of other descriptors back, and wait for none.
#[test]
fn an_integrated_endpoint_has_its_own_order() {
    let config = IntegratedConfig { name: "endpoint".into(), bytes_per_second: 1_000_000_000, waiting_messages_max: 1 };
    let requests = [(0, strict(1)), (10, msi(7)), (11, msi(8)), (12, strict(2)), (13, msi(8))];
    let seen = sent(&requests, |id, iommu, credits| Box::new(IntegratedPath::new(id, iommu, config, credits)));
    assert_eq!(seen, [Message(7, 10), Done(1, 1000), Done(2, 2000), Message(8, 5010)]);
}

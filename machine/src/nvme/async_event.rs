//! Asynchronous events (Base 5.2): here the errors of the host's doorbell writes.

use super::Nvme;
use crate::world::World;
use spec::nvme::Status;
use std::collections::VecDeque;

/// AERL: requests in flight, 0's based.
pub(super) const AERL: u8 = 3;
/// The log page that reports and clears an error event (Base 5.16.1.2).
pub(super) const ERROR_LOG: u8 = 0x01;

/// An event of type 0h, error status (Base 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ErrorEvent(u8);

impl ErrorEvent {
    /// Write to Invalid Doorbell Register.
    pub(super) const INVALID_REGISTER: Self = Self(0x00);
    /// Invalid Doorbell Write Value.
    pub(super) const INVALID_VALUE: Self = Self(0x01);

    pub(super) fn text(self) -> &'static str {
        if self == Self::INVALID_REGISTER { "NVMe doorbell of no queue" } else { "NVMe doorbell with an invalid value" }
    }

    /// Dword 0 of the request's completion: type 2:0, information 15:8, log page 23:16.
    fn dword0(self) -> u32 {
        u32::from(self.0) << 8 | u32::from(ERROR_LOG) << 16
    }
}

/// Requests that wait for an event, and the event that waits for a request.
#[derive(Default)]
pub(super) struct AsyncEvents {
    requests: VecDeque<u16>,
    waiting: Option<ErrorEvent>,
    /// The host has not yet read the log page of the last event, so no other event of its type is reported (Base 5.2).
    unread: bool,
}

impl AsyncEvents {
    /// The error log was read.
    pub(super) fn log_was_read(&mut self) {
        self.unread = false;
    }

    /// Removes a request that an Abort names.
    pub(super) fn withdraw(&mut self, cid: u16) -> bool {
        let found = self.requests.iter().position(|&request| request == cid);
        found.is_some_and(|index| self.requests.remove(index).is_some())
    }
}

impl Nvme {
    /// Keeps a request until there is an event.
    pub(super) fn event_request(&mut self, world: &mut World<'_>, cid: u16) -> Option<Status> {
        if self.events.requests.len() > AERL.into() {
            return Some(Status::ASYNC_EVENT_LIMIT_EXCEEDED);
        }
        self.events.requests.push_back(cid);
        self.deliver_event(world);
        None
    }

    pub(super) fn raise_event(&mut self, world: &mut World<'_>, event: ErrorEvent) {
        self.events.waiting.get_or_insert(event);
        self.deliver_event(world);
    }

    /// Reports the waiting event if there is a request for it and the last one's log was read.
    pub(super) fn deliver_event(&mut self, world: &mut World<'_>) {
        let events = &mut self.events;
        if events.unread || events.requests.is_empty() {
            return;
        }
        if let Some(event) = events.waiting.take()
            && let Some(cid) = events.requests.pop_front()
        {
            events.unread = true;
            self.complete(world, 0, cid, Status::SUCCESS, event.dword0());
        }
    }
}

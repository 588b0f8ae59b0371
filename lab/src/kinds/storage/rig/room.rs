//! Threads that wait until a full queue has room again: Linux's wait for a tag.

use hal::{ThreadId, Threads};
use std::sync::{Arc, Mutex};

/// The threads that wait for a free command of one queue, in the order in which they came. The queue's completions wake
/// all of them; those that still find no room enlist again.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<Mutex<Vec<ThreadId>>>);

impl Room {
    /// Enlists a thread, which must then try once more before it sleeps: room may have come before it was listed.
    pub(crate) fn enlist(&self, thread: ThreadId) {
        let mut waiting = self.waiting();
        if !waiting.contains(&thread) {
            waiting.push(thread);
        }
    }

    /// The thread waits no more.
    pub(crate) fn leave(&self, thread: ThreadId) {
        self.waiting().retain(|&other| other != thread);
    }

    /// Commands of the queue have ended.
    pub(crate) fn freed<H: Threads>(&self, hal: H) {
        if self.waiting().is_empty() {
            return;
        }
        // The list is not held while threads are woken.
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(|thread| hal.wake(thread));
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<ThreadId>> {
        self.0.lock().expect("no panic while the list is held")
    }
}

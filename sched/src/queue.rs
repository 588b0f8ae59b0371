//! Queues linked through the threads themselves, so that queueing allocates nothing.

/// A first-in first-out list of thread indices; the links live beside the threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    first: Option<u32>,
    last: Option<u32>,
}

/// The thread behind this one in its queue.
pub(crate) trait Link {
    fn next(&mut self) -> &mut Option<u32>;
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn push_back<L: Link>(&mut self, threads: &mut [L], thread: u32) {
        *threads[thread as usize].next() = None;
        match self.last {
            Some(last) => *threads[last as usize].next() = Some(thread),
            None => self.first = Some(thread),
        }
        self.last = Some(thread);
    }

    pub(crate) fn push_front<L: Link>(&mut self, threads: &mut [L], thread: u32) {
        *threads[thread as usize].next() = self.first;
        self.first = Some(thread);
        self.last = self.last.or(Some(thread));
    }

    pub(crate) fn pop_front<L: Link>(&mut self, threads: &mut [L]) -> Option<u32> {
        let thread = self.first?;
        self.first = threads[thread as usize].next().take();
        if self.first.is_none() {
            self.last = None;
        }
        Some(thread)
    }
}

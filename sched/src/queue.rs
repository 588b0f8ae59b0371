//! Queues linked through the threads themselves, so that queueing allocates nothing.

/// A first-in first-out list of thread indices; the links live beside the threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    first: Option<u32>,
    last: Option<u32>,
    len: u32,
}

/// The thread behind this one in its queue.
pub(crate) trait Link {
    fn next(&mut self) -> &mut Option<u32>;
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn push_back<L: Link>(&mut self, threads: &mut [L], thread: u32) {
        *threads[thread as usize].next() = None;
        match self.last {
            Some(last) => *threads[last as usize].next() = Some(thread),
            None => self.first = Some(thread),
        }
        self.last = Some(thread);
        self.len += 1;
    }

    pub(crate) fn push_front<L: Link>(&mut self, threads: &mut [L], thread: u32) {
        *threads[thread as usize].next() = self.first;
        self.first = Some(thread);
        self.last = self.last.or(Some(thread));
        self.len += 1;
    }

    pub(crate) fn pop_front<L: Link>(&mut self, threads: &mut [L]) -> Option<u32> {
        let thread = self.first?;
        self.first = threads[thread as usize].next().take();
        if self.first.is_none() {
            self.last = None;
        }
        self.len -= 1;
        Some(thread)
    }

    /// Takes the first thread that `wanted` accepts out of the list.
    pub(crate) fn remove_first<L: Link>(&mut self, threads: &mut [L], wanted: impl Fn(&L) -> bool) -> Option<u32> {
        let mut before: Option<u32> = None;
        let mut at = self.first;
        while let Some(thread) = at {
            let next = *threads[thread as usize].next();
            if !wanted(&threads[thread as usize]) {
                before = at;
                at = next;
                continue;
            }
            *threads[thread as usize].next() = None;
            match before {
                Some(before) => *threads[before as usize].next() = next,
                None => self.first = next,
            }
            if next.is_none() {
                self.last = before;
            }
            self.len -= 1;
            return Some(thread);
        }
        None
    }
}

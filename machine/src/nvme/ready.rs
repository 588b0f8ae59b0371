//! Which I/O submission queues have commands to fetch, and whose turn it is.

/// A bit a queue, and the round-robin position. Fetching in turn is what keeps completions of one queue from bunching.
pub(super) struct Ready {
    words: Vec<u64>,
    last: usize,
}

impl Ready {
    pub(super) fn new(io_queues_max: u16) -> Self {
        Self { words: vec![0; usize::from(io_queues_max) / 64 + 1], last: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.last = 0;
    }

    pub(super) fn set(&mut self, qid: u16, ready: bool) {
        let (word, bit) = (usize::from(qid) / 64, 1 << (qid % 64));
        if ready {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }

    pub(super) fn any(&self) -> bool {
        self.words.iter().any(|&word| word != 0)
    }

    /// The next queue after the last one, and it becomes the last one.
    pub(super) fn take_turn(&mut self) -> Option<u16> {
        let next = self.from(self.last + 1, self.words.len()).or_else(|| self.from(0, self.last / 64 + 1))?;
        self.last = next;
        Some(next as u16)
    }

    fn from(&self, first: usize, words_end: usize) -> Option<usize> {
        let mut mask = u64::MAX << (first % 64);
        for index in first / 64..words_end {
            let word = self.words[index] & mask;
            if word != 0 {
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round() {
        let mut ready = Ready::new(130);
        for qid in [1, 63, 64, 128] {
            ready.set(qid, true);
        }
        let turns: Vec<_> = (0..6).map(|_| ready.take_turn()).collect();
        assert_eq!(turns, [Some(1), Some(63), Some(64), Some(128), Some(1), Some(63)]);
        ready.set(64, false);
        assert_eq!(ready.take_turn(), Some(128));
        ready.clear();
        assert_eq!(ready.take_turn(), None);
    }
}

//! MSI-X vectors of a client. Each has an eventfd, a mask and a pending bit.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::fd::AsRawFd;

struct Vector {
    eventfd: Option<File>,
    masked: bool,
    /// An interrupt is pending: the vector was masked when it was raised.
    pending: bool,
}

/// The vectors; all are masked at first.
pub(crate) struct Interrupts {
    vectors: Vec<Vector>,
    /// MSI-X is off, or the whole function is masked.
    held: bool,
    /// Messages whose vector had no eventfd.
    pub(crate) lost: u64,
}

impl Interrupts {
    pub(crate) fn new(vectors: u16) -> Self {
        let vector = |_| Vector { eventfd: None, masked: true, pending: false };
        Self { vectors: (0..vectors).map(vector).collect(), held: true, lost: 0 }
    }

    /// Assigns an eventfd to vector `vector`, or removes it.
    pub(crate) fn set(&mut self, vector: usize, eventfd: Option<File>) -> Result<(), Error> {
        let slot = self.vectors.get_mut(vector).ok_or_else(|| invalid(format!("there is no vector {vector}")))?;
        if let Some(eventfd) = &eventfd {
            // Any other file could block the device, or the server has no right to write to it.
            let kind = std::fs::read_link(format!("/proc/self/fd/{}", eventfd.as_raw_fd()))?;
            if kind.as_os_str() != "anon_inode:[eventfd]" {
                return Err(invalid(format!("vector {vector} is given {}; valid: an eventfd", kind.display())));
            }
            fcntl_setfl(eventfd, fcntl_getfl(eventfd)? | OFlags::NONBLOCK)?;
        }
        slot.eventfd = eventfd;
        Ok(())
    }

    pub(crate) fn is_set(&self, vector: usize) -> bool {
        self.vectors.get(vector).is_some_and(|vector| vector.eventfd.is_some())
    }

    /// Clears all pending bits, and holds every interrupt until MSI-X is enabled again.
    pub(crate) fn reset(&mut self) {
        self.held = true;
        self.vectors.iter_mut().for_each(|vector| vector.pending = false);
    }

    /// Masks or unmasks a vector. Unmasking sends a pending interrupt.
    pub(crate) fn set_mask(&mut self, vector: usize, masked: bool) {
        if let Some(own) = self.vectors.get_mut(vector) {
            own.masked = masked;
            self.send_pending(vector);
        }
    }

    /// Holds all vectors, or ends the hold.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
        (0..self.vectors.len()).for_each(|vector| self.send_pending(vector));
    }

    fn send_pending(&mut self, vector: usize) {
        let own = &mut self.vectors[vector];
        if own.pending && !own.masked && !self.held {
            own.pending = false;
            self.signal(vector);
        }
    }

    /// 64 pending bits, starting at vector `from`.
    pub(crate) fn pending(&self, from: usize) -> u64 {
        let bits = self.vectors.iter().skip(from).take(64).enumerate();
        bits.fold(0, |word, (bit, vector)| word | u64::from(vector.pending) << bit)
    }

    /// Sends a vector's message, or remembers it while it is masked.
    pub(crate) fn send(&mut self, vector: u16) {
        let vector = usize::from(vector);
        match self.vectors.get_mut(vector) {
            Some(own) if own.masked || self.held => own.pending = true,
            _ => self.signal(vector),
        }
    }

    /// Signals a vector, masked or not. A full eventfd counter needs no further signal.
    pub(crate) fn signal(&mut self, vector: usize) {
        match self.vectors.get_mut(vector) {
            Some(Vector { eventfd: Some(eventfd), .. }) => _ = eventfd.write(&1u64.to_ne_bytes()),
            _ => self.lost += 1,
        }
    }
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::io::Read;

    fn with_eventfd(vector: usize) -> (File, Interrupts) {
        let ours: File = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd").into();
        let mut interrupts = Interrupts::new(2);
        interrupts.set(vector, Some(ours.try_clone().expect("a second"))).expect("valid");
        (ours, interrupts)
    }

    fn count(mut eventfd: &File) -> u64 {
        let mut count = [0; 8];
        eventfd.read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
    }

    #[test]
    fn a_vector_without_an_eventfd_is_counted_and_a_full_one_does_not_block() {
        let (ours, mut interrupts) = with_eventfd(1);
        (&ours).write_all(&(u64::MAX - 1).to_ne_bytes()).expect("room");
        interrupts.signal(1);
        interrupts.signal(0);
        interrupts.signal(7);
        assert_eq!(interrupts.lost, 2);
        assert_eq!(count(&ours), u64::MAX - 1);
    }

    #[test]
    fn what_is_masked_is_sent_once_when_it_no_longer_is() {
        let (ours, mut interrupts) = with_eventfd(1);
        interrupts.send(1);
        interrupts.send(1);
        interrupts.hold(false);
        assert_eq!((count(&ours), interrupts.pending(0)), (0, 2), "masked itself");
        interrupts.hold(true);
        interrupts.set_mask(1, false);
        assert_eq!((count(&ours), interrupts.pending(1)), (0, 1), "the function is");
        interrupts.hold(false);
        assert_eq!((count(&ours), interrupts.pending(0)), (1, 0));
        interrupts.send(1);
        assert_eq!(count(&ours), 1);
    }

    #[test]
    fn only_eventfds_of_vectors_that_exist_are_taken() {
        let mut interrupts = Interrupts::new(2);
        let file = tempfile::tempfile().expect("a scratch file");
        assert!(interrupts.set(0, Some(file)).is_err_and(|error| error.to_string().contains("valid: an eventfd")));
        assert!(interrupts.set(2, None).is_err());
        assert!(!interrupts.is_set(0));
    }
}

//! MSI-X vectors of a client: an eventfd each.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::fd::AsRawFd;

/// The eventfds, by vector.
pub(crate) struct Interrupts {
    eventfds: Vec<Option<File>>,
    /// Messages whose vector had no eventfd.
    pub(crate) lost: u64,
}

impl Interrupts {
    pub(crate) fn new(vectors: u16) -> Self {
        Self { eventfds: (0..vectors).map(|_| None).collect(), lost: 0 }
    }

    /// Gives vector `vector` its eventfd, or takes it away.
    pub(crate) fn set(&mut self, vector: usize, eventfd: Option<File>) -> Result<(), Error> {
        let slot = self.eventfds.get_mut(vector).ok_or_else(|| invalid(format!("the drive has no vector {vector}")))?;
        if let Some(eventfd) = &eventfd {
            // Anything else could block the device, or is not ours to write to.
            let kind = std::fs::read_link(format!("/proc/self/fd/{}", eventfd.as_raw_fd()))?;
            if kind.as_os_str() != "anon_inode:[eventfd]" {
                return Err(invalid(format!("vector {vector} is given {}; valid: an eventfd", kind.display())));
            }
            fcntl_setfl(eventfd, fcntl_getfl(eventfd)? | OFlags::NONBLOCK)?;
        }
        *slot = eventfd;
        Ok(())
    }

    pub(crate) fn is_set(&self, vector: usize) -> bool {
        self.eventfds.get(vector).is_some_and(Option::is_some)
    }

    pub(crate) fn count(&self) -> usize {
        self.eventfds.len()
    }

    /// Signals a vector. A counter that is full needs no more.
    pub(crate) fn signal(&mut self, vector: u32) {
        match self.eventfds.get_mut(vector as usize) {
            Some(Some(eventfd)) => _ = eventfd.write(&1u64.to_ne_bytes()),
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

    #[test]
    fn a_vector_without_an_eventfd_is_counted_and_a_full_one_does_not_block() {
        let ours: File = eventfd(0, EventfdFlags::empty()).expect("an eventfd").into();
        let mut interrupts = Interrupts::new(2);
        interrupts.set(1, Some(ours.try_clone().expect("a second"))).expect("valid");
        (&ours).write_all(&(u64::MAX - 1).to_ne_bytes()).expect("room");
        interrupts.signal(1);
        interrupts.signal(0);
        interrupts.signal(7);
        assert_eq!(interrupts.lost, 2);
        let mut count = [0; 8];
        (&ours).read_exact(&mut count).expect("signalled");
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
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

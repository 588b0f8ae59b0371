//! Tests of the served functions with a client in the same process; no VMM is needed.

mod drive;
mod guest;
mod hostile;
mod posting;
mod virtio;

//! A job that follows fio's options: offsets, sizes, ends and pace are those of fio 3.33.
//!
//! The loop is that of fio's `do_io`: choose an I/O, wait for its turn, submit, reap when the queue is full, think. A job
//! that is a plain stream of I/Os does without it ([`super::job`]).

mod buffered;
mod checks;
mod draw;
mod ending;
mod files;
mod layout;
mod map;
mod pace;
mod random;
mod replay;
mod run;
mod shared;
mod sleepers;
mod starter;
mod steady;
mod streams;
mod target;
mod waits;
mod walk;

pub(crate) use ending::End;
pub(crate) use files::start_of;
pub(crate) use layout::Layout;
pub(crate) use run::{Course, CourseParts};
pub(crate) use shared::Shared;
pub(crate) use sleepers::Sleepers;
pub(crate) use starter::{Event, Starter};

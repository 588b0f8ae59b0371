//! Options of a guest's work. The kernel passes those that it does not know as environment variables.

use crate::system::{Outcome, text};
use std::env;

pub(crate) fn option(name: &str) -> Outcome<String> {
    env::var(name).map_err(|_| format!("the kernel's command line has no {name}="))
}

pub(crate) fn number(name: &str) -> Outcome<usize> {
    text(name, option(name)?.parse())
}

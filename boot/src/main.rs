//! Bare-metal images: [`hal::Hal`] on real registers, a small kernel round it, and cases that drive `irq/` and
//! `drivers/`, unchanged, on QEMU's `virt` (aarch64), `q35` and `microvm` (x86_64) machines.
//!
//! The kernel's command line names the case. A case prints each result as `count NAME VALUE`. The image ends with
//! `pass` or `fail: REASON`, and with the exit code 0 or 1.
//!
//! A build for the host makes a program that only explains this.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod arch;
#[cfg(target_os = "none")]
mod cases;
#[cfg(target_os = "none")]
mod kernel;
#[cfg(any(test, target_os = "none"))]
mod patience;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("This is a bare-metal image; `campanile boot` builds it for its machine and runs it under QEMU.");
    std::process::exit(2);
}

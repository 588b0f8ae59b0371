//! The parts of the seam on real hardware, for x86_64 and aarch64.
//!
//! A kernel that embeds `irq/` and `drivers/` implements [`hal::Hal`]. This crate has the parts of it that depend on
//! the instruction set:
//!
//! | [`hal::Hal`] | here |
//! |---|---|
//! | `Regs` | [`Mmio`]; [`Registers`] where the interrupt controller has registers in the CPU ([`CpuRegisters`]) |
//! | `Word`, `Dma`, `dma_alloc` | [`hal::AtomicWord`] and [`hal::HeapDma`], where devices address memory as the CPU does |
//! | `now_ns` | [`Clock`] |
//! | `irq_save`, `irq_restore` | [`irq_save`], [`irq_restore`] |
//! | `relax_on`, `delay_ns` | [`relax_on`], [`Clock::delay_ns`] |
//! | `wait_for_interrupt` | [`wait_for_interrupt`] |
//! | `work` | nothing: work costs what it costs |
//!
//! The kernel itself supplies the number of the CPU, from its per-CPU variables. `examples/seam` is the whole seam of
//! a kernel without threads, made of these parts; `boot/` is a kernel with threads.
//!
//! Sources: Intel SDM ("SDM"), Arm Architecture Reference Manual (DDI 0487), GIC architecture (IHI 0069).
//!
//! Not here: exception vectors, page tables, the start of CPUs, port I/O, an IOMMU that translates.
#![no_std]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod clock;
mod interrupts;
mod mmio;
mod registers;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{CpuRegisters, Timer, interrupts_off, interrupts_on, order_stores, ticks, wait_for_interrupt};
pub use clock::Clock;
pub use interrupts::{irq_restore, irq_save, relax_on};
pub use mmio::Mmio;
pub use registers::Registers;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{CpuRegisters, interrupts_off, interrupts_on, order_stores, ticks, wait_for_interrupt};

//! A small kernel: memory, threads, interrupts, and the seam on top of them.

pub(crate) mod console;
pub(crate) mod cpu;
mod hal;
mod memory;
pub(crate) mod threads;

pub(crate) use self::hal::Bare;

use crate::arch::{self, Platform};
use crate::patience::Patience;
use crate::println;
use alloc::boxed::Box;
use alloc::string::String;
use core::ops::Range;
use core::panic::PanicInfo;
use spin::Once;

/// A PCIe host bridge.
pub(crate) struct Pcie {
    /// The configuration space of bus 0.
    pub(crate) ecam: usize,
    /// Bus memory below 4 GiB that firmware leaves to the kernel.
    pub(crate) free: Range<u64>,
}

/// The machine, once it is known.
static PLATFORM: Once<Platform> = Once::new();
/// Bytes of a thread's stack.
pub(crate) const STACK_BYTES: usize = 64 << 10;
/// How long another CPU may take to come up, of the time in which the waiting one runs.
const START_LIMIT_NS: u64 = 5_000_000_000;

/// The description of this machine.
///
/// # Panics
/// Before [`main`] has read it.
pub(crate) fn platform() -> &'static Platform {
    PLATFORM.get().expect("the machine is known after boot")
}

/// The first CPU: sets up the heap and the scheduler, runs the case in a thread, and idles.
pub(crate) fn main(early: impl EarlyPlatform) -> ! {
    memory::init(arch::image_end(), early.memory_end());
    let platform = PLATFORM.call_once(|| early.platform());
    threads::init(platform.cpus());
    let spec = ::hal::ThreadSpec { name: "case", affinity: ::hal::Affinity::Cpu(::hal::CpuId(0)), urgent: false };
    threads::spawn(&spec, Box::new(|| finish(crate::cases::run(platform)))).expect("the first thread");
    threads::idle()
}

/// Machine data that is available before there is a heap.
pub(crate) trait EarlyPlatform {
    /// End of the RAM that contains the image.
    fn memory_end(&self) -> usize;
    /// Reads the complete description of the machine.
    fn platform(&self) -> Platform;
}

/// Starts every CPU but the first, and waits for them. Each runs `each`, with interrupts off, before it takes threads.
///
/// # Errors
/// The CPU that did not come up, and the reason.
pub(crate) fn start_cpus(each: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    EACH.call_once(|| Box::new(each));
    for cpu in 1..platform().cpus() {
        let stack = Box::leak(alloc::vec![0_u128; STACK_BYTES / 16].into_boxed_slice());
        let top = stack.as_ptr_range().end.addr();
        arch::start_cpu(platform(), cpu, top)
            .map_err(|answer| alloc::format!("CPU {cpu} cannot be started: {answer}"))?;
        let mut patience = Patience::new(START_LIMIT_NS, arch::CLOCK.now_ns());
        while !cpu::is_up(cpu) {
            if patience.is_over(arch::CLOCK.now_ns()) {
                return Err(alloc::format!("CPU {cpu} did not come up within {START_LIMIT_NS} ns"));
            }
            core::hint::spin_loop();
        }
    }
    Ok(())
}

/// The function that every other CPU runs first.
static EACH: Once<Box<dyn Fn() + Send + Sync>> = Once::new();

/// Entry of every other CPU: runs the function from [`start_cpus`], then idles.
pub(crate) fn secondary_main() -> ! {
    (EACH.get().expect("a CPU is started with its work"))();
    cpu::set_up();
    threads::idle()
}

/// Ends the machine with the result of the case.
pub(crate) fn finish(result: Result<(), String>) -> ! {
    match result {
        Ok(()) => {
            println!("pass");
            arch::exit(0)
        }
        Err(reason) => {
            println!("fail: {reason}");
            arch::exit(1)
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    metal::interrupts_off();
    console::unlock_for_panic();
    println!("fail: CPU {}: {info}", arch::cpu());
    arch::exit(3)
}

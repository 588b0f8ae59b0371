//! The heap.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use linked_list_allocator::Heap;
use spin::Mutex;

/// The heap. Its lock keeps interrupts off, so that no thread is preempted while it holds the lock.
struct Global(Mutex<Heap>);

#[global_allocator]
static GLOBAL: Global = Global(Mutex::new(Heap::empty()));

impl Global {
    fn with<R>(&self, f: impl FnOnce(&mut Heap) -> R) -> R {
        let were_on = metal::interrupts_off();
        let result = f(&mut self.0.lock());
        if were_on {
            metal::interrupts_on();
        }
        result
    }
}

// SAFETY: the heap hands out memory that nothing else uses until it is freed.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.with(|heap| heap.allocate_first_fit(layout).map_or(core::ptr::null_mut(), NonNull::as_ptr))
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the block came from `alloc` with this layout.
            self.with(|heap| unsafe { heap.deallocate(pointer, layout) });
        }
    }
}

/// Gives the memory between the image and the end of RAM to the heap. Call it once.
#[allow(unsafe_code)]
pub(crate) fn init(start: usize, end: usize) {
    // SAFETY: this is RAM after the image, which nothing else uses.
    GLOBAL.with(|heap| unsafe { heap.init(start as *mut u8, end - start) });
}

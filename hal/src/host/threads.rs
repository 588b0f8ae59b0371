//! Host threads: numbers, parking, joining. They belong to the whole process, as the operating system's threads do.

use crate::{Affinity, CpuId, CpuSet, SpawnError, ThreadId};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::thread_local;

struct Parker {
    woken: AtomicBool,
    /// 0, or 1 + the CPU that the thread carries after its next wake.
    next_cpu: AtomicU32,
    thread: Thread,
}

/// Indexed by thread number.
static PARKERS: Mutex<Vec<Arc<Parker>>> = Mutex::new(Vec::new());

thread_local! {
    static ME: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

fn parkers() -> MutexGuard<'static, Vec<Arc<Parker>>> {
    PARKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running thread's number, given on first use.
#[inline]
pub(super) fn current() -> ThreadId {
    ME.get().unwrap_or_else(register)
}

#[cold]
fn register() -> ThreadId {
    let mut all = parkers();
    let me = ThreadId(all.len() as u32);
    all.push(Arc::new(Parker {
        woken: AtomicBool::new(false),
        next_cpu: AtomicU32::new(0),
        thread: thread::current(),
    }));
    ME.set(Some(me));
    me
}

/// Sleeps until woken. Returns the CPU to carry from now on, if it has changed.
pub(super) fn park() -> Option<CpuId> {
    let me = current();
    let parker = parkers()[me.0 as usize].clone();
    while !parker.woken.swap(false, Ordering::Acquire) {
        thread::park();
    }
    parker.next_cpu.swap(0, Ordering::Relaxed).checked_sub(1).map(CpuId)
}

pub(super) fn set_next_cpu(thread: ThreadId, cpu: CpuId) {
    if let Some(parker) = parkers().get(thread.0 as usize) {
        parker.next_cpu.store(cpu.0 + 1, Ordering::Relaxed);
    }
}

pub(super) fn wake(thread: ThreadId) {
    let parker = parkers().get(thread.0 as usize).cloned();
    if let Some(parker) = parker {
        // A swap, not a store: the writes of an earlier waker must be visible too, although only this value is read.
        parker.woken.swap(true, Ordering::AcqRel);
        parker.thread.unpark();
    }
}

/// The CPU that a thread of this affinity carries: the first allowed one.
pub(super) fn first_cpu(affinity: &Affinity, cpus: u32) -> Result<CpuId, SpawnError> {
    let allowed = match affinity {
        Affinity::Any => CpuSet::first(cpus),
        Affinity::Cpu(cpu) => CpuSet::of(*cpu),
        Affinity::Set(set) => set.clone(),
    };
    let first = allowed.iter().next().filter(|cpu| cpu.0 < cpus);
    first.ok_or(SpawnError::NoCpu(allowed, cpus))
}

/// The threads that a world has spawned and not joined yet.
#[derive(Default)]
pub(super) struct Joins(Mutex<Spawned>);

#[derive(Default)]
struct Spawned {
    handles: Vec<JoinHandle<()>>,
    /// The payloads of threads that have panicked, and are joined already.
    panics: Vec<Box<dyn Any + Send>>,
}

impl Spawned {
    /// Joins what has ended: until then a thread keeps its stack.
    fn reap(&mut self) {
        let ended = self.handles.extract_if(.., |handle| handle.is_finished());
        self.panics.extend(ended.filter_map(|handle| handle.join().err()));
    }
}

impl Joins {
    pub(super) fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<ThreadId, SpawnError> {
        let (number, started) = mpsc::channel();
        let run = move || {
            // The receiver is gone only if the spawner has panicked. Then nobody needs the number.
            _ = number.send(current());
            body();
        };
        self.lock().reap();
        let handle = thread::Builder::new().name(name.to_string()).spawn(run);
        let exhausted = || SpawnError::Exhausted(parkers().len() as u32);
        let handle = handle.map_err(|_| exhausted())?;
        self.lock().handles.push(handle);
        started.recv().map_err(|_| exhausted())
    }

    pub(super) fn join_all(&self) {
        // Joins one at a time, without the lock: the joined thread may spawn others meanwhile.
        while let Some(handle) = { self.lock().handles.pop() } {
            if let Err(payload) = handle.join() {
                resume_unwind(payload);
            }
        }
        if let Some(payload) = { self.lock().panics.pop() } {
            resume_unwind(payload);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Spawned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_are_not_kept_until_all_are_joined() {
        let joins = Joins::default();
        for _ in 0..50 {
            joins.spawn("brief", || ()).unwrap();
            while joins.lock().handles.iter().any(|handle| !handle.is_finished()) {
                thread::yield_now();
            }
        }
        assert_eq!(joins.lock().handles.len(), 1);
    }

    #[test]
    #[should_panic(expected = "of the first")]
    fn the_panic_of_a_thread_that_ended_long_ago_is_still_told() {
        let joins = Joins::default();
        joins.spawn("first", || panic!("of the first")).unwrap();
        while joins.lock().panics.is_empty() {
            joins.spawn("next", || ()).unwrap();
        }
        joins.join_all();
    }
}

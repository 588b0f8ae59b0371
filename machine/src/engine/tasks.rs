//! Stackful coroutines, one per simulated CPU or thread, resumed by events.
//!
//! The caller defines the machine's state. A value goes in with [`Tasks::resume`] and comes out with
//! [`Seat::suspend`]. If that value owns the state, no borrow of it can span a suspension.

use core::fmt;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// A task's number: dense, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u32);

/// Why a task could not be created.
#[derive(Debug)]
pub enum TaskError {
    /// The host refused a stack of this many bytes, with this many stacks allocated already.
    Stack(usize, usize, std::io::Error),
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Stack(bytes, others, error) = self;
        write!(f, "the host refused a stack of {bytes} bytes beside {others} others ({error}); each takes two mappings")
    }
}

impl std::error::Error for TaskError {}

/// The result of resuming a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn<Out> {
    /// It waits to be resumed.
    Suspended(Out),
    /// Its body returned; it must not be resumed again.
    Ended(Out),
}

/// A running task's way back to the code that resumed it.
pub struct Seat<'a, In, Out>(&'a Yielder<In, Out>);

impl<In, Out> fmt::Debug for Seat<'_, In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat")
    }
}

impl<In, Out> Seat<'_, In, Out> {
    /// Hands `out` to the resumer and sleeps until resumed. Never returns once [`Tasks::shutdown`] unwinds the task.
    #[inline]
    pub fn suspend(&self, out: Out) -> In {
        self.0.suspend(out)
    }
}

/// All tasks of one machine, each on its own stack with a guard page.
///
/// Dropping it unwinds all suspended tasks. [`Tasks::shutdown`] does this at a time that the caller chooses, which is
/// better when a task's stack holds references to shared state.
pub struct Tasks<In, Out> {
    tasks: Vec<Coroutine<In, Out, Out>>,
    resumes: u64,
}

impl<In, Out> fmt::Debug for Tasks<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("count", &self.tasks.len()).field("resumes", &self.resumes).finish()
    }
}

impl<In: 'static, Out: 'static> Default for Tasks<In, Out> {
    fn default() -> Self {
        Self::new()
    }
}

impl<In: 'static, Out: 'static> Tasks<In, Out> {
    /// No tasks.
    pub const fn new() -> Self {
        Self { tasks: Vec::new(), resumes: 0 }
    }

    /// Adds a task on a stack of `stack_bytes` (rounded up to pages). It starts with its first resume.
    ///
    /// # Errors
    /// [`TaskError::Stack`] when the host has no memory or no mappings left.
    pub fn spawn(
        &mut self,
        stack_bytes: usize,
        body: impl FnOnce(Seat<'_, In, Out>, In) -> Out + 'static,
    ) -> Result<TaskId, TaskError> {
        let others = self.tasks.len();
        let stack = DefaultStack::new(stack_bytes).map_err(|error| TaskError::Stack(stack_bytes, others, error))?;
        self.tasks.push(Coroutine::with_stack(stack, move |yielder, input| body(Seat(yielder), input)));
        Ok(TaskId(others as u32))
    }

    /// Runs `task` until it suspends or ends. A panic of the task goes on in the caller.
    ///
    /// # Panics
    /// When the task has ended, was shut down, or does not exist.
    #[inline]
    pub fn resume(&mut self, task: TaskId, input: In) -> Turn<Out> {
        self.resumes += 1;
        match self.tasks[task.0 as usize].resume(input) {
            CoroutineResult::Yield(out) => Turn::Suspended(out),
            CoroutineResult::Return(out) => Turn::Ended(out),
        }
    }

    /// Number of times that a task was resumed. Each is one switch to a stack and one back.
    pub fn resumes(&self) -> u64 {
        self.resumes
    }

    /// Ends every task in the order of their numbers. The values on a suspended task's stack are dropped, innermost
    /// first.
    pub fn shutdown(&mut self) {
        self.tasks.iter_mut().for_each(Coroutine::force_unwind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    const STACK_BYTES: usize = 32 * 1024;

    #[test]
    fn a_value_goes_in_and_comes_out() {
        let mut tasks = Tasks::<u32, u32>::new();
        let task = tasks
            .spawn(STACK_BYTES, |seat, first| {
                let second = seat.suspend(first + 1);
                second + 10
            })
            .expect("a small stack");
        assert_eq!(tasks.resume(task, 1), Turn::Suspended(2));
        assert_eq!(tasks.resume(task, 5), Turn::Ended(15));
        assert_eq!(tasks.resumes(), 2);
    }

    /// Notes its name when dropped.
    struct Noted(Rc<RefCell<Vec<String>>>, String);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1.clone());
        }
    }

    #[test]
    fn shutdown_drops_what_suspended_stacks_hold() {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Tasks::<(), ()>::new();
        for name in ["a", "b", "never started"] {
            let notes = Rc::clone(&notes);
            let spawned = tasks.spawn(STACK_BYTES, move |seat, ()| {
                let _outer = Noted(Rc::clone(&notes), format!("{name} outer"));
                let _inner = Noted(notes, format!("{name} inner"));
                seat.suspend(());
                unreachable!("the test resumes each once");
            });
            spawned.expect("a small stack");
        }
        (0..2).for_each(|task| assert_eq!(tasks.resume(TaskId(task), ()), Turn::Suspended(())));
        tasks.shutdown();
        assert_eq!(*notes.borrow(), ["a inner", "a outer", "b inner", "b outer"]);
        assert_eq!(Rc::strong_count(&notes), 1, "a stack still holds the notes");
    }

    #[test]
    #[should_panic(expected = "of the task")]
    fn a_panic_of_the_task_goes_on_in_the_resumer() {
        let mut tasks = Tasks::<(), ()>::new();
        let task = tasks.spawn(STACK_BYTES, |_, ()| panic!("of the task")).expect("a small stack");
        tasks.resume(task, ());
    }
}

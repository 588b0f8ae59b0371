//! Whether each CPU of a guest keeps time.

use crate::cpu::bind;
use crate::system::Outcome;
use std::thread;
use std::time::Duration;

/// Sleeps on each CPU and says that the work begins. It does not come back where the timer of a CPU stands still.
pub(crate) fn begin(cpus: usize) -> Outcome<()> {
    let sleep = |cpu| bind(cpu).map(|()| thread::sleep(Duration::from_millis(5)));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || sleep(cpu))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    println!("guest: begins");
    Ok(())
}

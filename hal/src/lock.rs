//! The lock that `irq` and `drivers` use: it saves the interrupt state, and its word holds its owner.

use crate::{Hal, IrqState, Word};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A spin lock that keeps interrupts off while held. Guards nest last-in first-out and stay on their CPU.
pub struct Lock<H: Hal, T> {
    hal: H,
    /// 0 when free, else the owner's CPU number + 1.
    owner: H::Word,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and the owner word admits one guard at a time.
#[allow(unsafe_code)]
unsafe impl<H: Hal, T: Send> Sync for Lock<H, T> {}
// SAFETY: the lock owns its value.
#[allow(unsafe_code)]
unsafe impl<H: Hal, T: Send> Send for Lock<H, T> {}

impl<H: Hal, T> Lock<H, T> {
    /// A free lock round `value`.
    pub fn new(hal: H, value: T) -> Self {
        Self { hal, owner: H::Word::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. Interrupts are off until the guard is dropped.
    ///
    /// # Panics
    /// When this CPU already holds the lock: recursion would spin for ever.
    // As a call, with that of the guard's drop, it shows in the gates of the server (`cargo xtask gates`).
    #[inline(always)]
    pub fn lock(&self) -> LockGuard<'_, H, T> {
        let irq = self.hal.irq_save();
        let me = u64::from(self.hal.cpu().0) + 1;
        if let Err(owner) = self.owner.compare_exchange(0, me) {
            self.wait(me, owner);
        }
        LockGuard { lock: self, irq, not_send: PhantomData }
    }

    /// The slow path: another CPU had the lock. Tries until it gets the lock.
    #[cold]
    fn wait(&self, me: u64, mut owner: u64) {
        loop {
            assert!(owner != me, "CPU {} takes a lock that it holds", me - 1);
            self.hal.relax_on(&self.owner, owner, u64::MAX);
            match self.owner.compare_exchange(0, me) {
                Ok(_) => return,
                Err(other) => owner = other,
            }
        }
    }

    /// Takes the lock if it is free; none otherwise.
    pub fn try_lock(&self) -> Option<LockGuard<'_, H, T>> {
        let irq = self.hal.irq_save();
        let me = u64::from(self.hal.cpu().0) + 1;
        match self.owner.compare_exchange(0, me) {
            Ok(_) => Some(LockGuard { lock: self, irq, not_send: PhantomData }),
            Err(_) => {
                self.hal.irq_restore(irq);
                None
            }
        }
    }

    /// The value. The exclusive reference protects it, so no lock is needed.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Access to the value of a [`Lock`], which it holds.
pub struct LockGuard<'a, H: Hal, T> {
    lock: &'a Lock<H, T>,
    irq: IrqState,
    /// Not `Send`: the guard must be dropped on the CPU that took it.
    not_send: PhantomData<*const ()>,
}

impl<H: Hal, T> Deref for LockGuard<'_, H, T> {
    type Target = T;
    #[allow(unsafe_code)]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (see the owner word), and the reference does not outlive the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<H: Hal, T> DerefMut for LockGuard<'_, H, T> {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<H: Hal, T> Drop for LockGuard<'_, H, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.owner.set(0);
        self.lock.hal.irq_restore(self.irq);
    }
}

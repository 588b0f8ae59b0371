//! The protocol on one descriptor: post, harvest, clear.

use crate::Vector;
use hal::{Word, Work};
use spec::vtd::posted::{CONTROL_WORD, Control, PIR_WORDS, WORDS};

/// First vector that a device may have; lower ones are exceptions (Intel SDM vol. 3, "Exception and Interrupt
/// Vectors").
const FIRST_DEVICE_VECTOR: u8 = 0x20;
pub(super) const OUTSTANDING: u64 = Control::new().with_outstanding(true).into_bits();

/// A notification that the poster must send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// NV, the vector to send.
    pub vector: Vector,
    /// NDST, the destination, in the descriptor's own encoding.
    pub destination: u32,
}

/// The vectors that a notification handler dispatches: 0x20 up to, not including, the notification vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deliverable([u64; PIR_WORDS]);

impl Deliverable {
    /// Every vector that a device may have, 0x20 to 0xff. For a descriptor whose notification vector is outside its
    /// own vectors, as in a guest's descriptor.
    pub const ALL: Self = Self([u64::MAX << FIRST_DEVICE_VECTOR, u64::MAX, u64::MAX, u64::MAX]);

    /// The vectors below `notification`.
    pub const fn below(notification: Vector) -> Self {
        let mut words = [0; PIR_WORDS];
        let mut vector = FIRST_DEVICE_VECTOR;
        while vector < notification.0 {
            words[vector as usize / 64] |= 1 << (vector % 64);
            vector += 1;
        }
        Self(words)
    }
}

/// Requests that a harvest took out of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Harvest([u64; PIR_WORDS]);

impl Harvest {
    /// Returns the requests that are `deliverable`, and the number of the others.
    pub(super) fn deliverable(&self, deliverable: &Deliverable) -> ([u64; PIR_WORDS], u32) {
        let mut requests = self.0;
        let mut stray = 0;
        for (bits, mask) in requests.iter_mut().zip(deliverable.0) {
            stray += (*bits & !mask).count_ones();
            *bits &= mask;
        }
        (requests, stray)
    }

    /// True if there is no request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    /// Calls `dispatch` for each vector that is `deliverable`, ascending.
    #[inline]
    pub fn dispatch(&self, deliverable: &Deliverable, mut dispatch: impl FnMut(Vector)) -> Dispatched {
        let mut count = Dispatched::default();
        for (index, (&taken, &mask)) in self.0.iter().zip(&deliverable.0).enumerate() {
            let mut bits = taken & mask;
            if taken != bits {
                count.stray += strays(taken & !mask);
            }
            while bits != 0 {
                dispatch(Vector((index as u32 * 64 + bits.trailing_zeros()) as u8));
                bits &= bits - 1;
                count.vectors += 1;
            }
        }
        count
    }
}

/// Counts the requests, outside the hot loop: without an instruction for it, counting takes many registers.
#[cold]
fn strays(bits: u64) -> u32 {
    bits.count_ones()
}

/// The result of one harvest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dispatched {
    /// Vectors dispatched.
    pub vectors: u32,
    /// Requests for vectors that no device may have: somebody posted such a vector.
    pub stray: u32,
}

/// The result of one notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// Harvests that found something.
    pub passes: u32,
    /// Vectors dispatched.
    pub vectors: u32,
    /// Cleared requests for vectors that no device may have.
    pub stray: u32,
}

impl Served {
    #[inline]
    fn count(&mut self, dispatched: Dispatched) {
        self.passes += 1;
        self.vectors += dispatched.vectors;
        self.stray += dispatched.stray;
    }
}

/// A view of one posted descriptor: eight words that the remapping unit and other posters also write.
#[derive(Debug)]
pub struct Descriptor<'a, W> {
    pub(super) pir: &'a [W; PIR_WORDS],
    pub(super) control: &'a W,
}

impl<W> Clone for Descriptor<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Descriptor<'_, W> {}

impl<'a, W: Word> Descriptor<'a, W> {
    /// A view of the descriptor in `words`.
    ///
    /// # Panics
    /// When there are not eight words.
    #[inline]
    pub fn new(words: &'a [W]) -> Self {
        let words: &[W; WORDS] = words.try_into().expect("a posted descriptor has eight words");
        let pir = words.first_chunk().expect("the requests are the first four words");
        Self { pir, control: &words[CONTROL_WORD] }
    }

    /// Empties the descriptor and sets its notification. Call it only while nobody posts to the descriptor.
    pub fn initialise(self, notification: Notification) {
        for word in self.pir {
            word.set(0);
        }
        let control =
            Control::new().with_notification_vector(notification.vector.0).with_destination(notification.destination);
        self.control.set(control.into_bits());
    }

    /// Drops all requests and clears ON. Call it only while nobody posts to the descriptor.
    pub(super) fn empty(self) {
        for word in self.pir {
            word.set(0);
        }
        self.clear_outstanding();
    }

    /// Requests `vector`, as the remapping unit does. Returns the notification that the caller must now send, if any.
    ///
    /// The unit updates the whole descriptor in one access, software in two. The second access is a read-modify-write
    /// even when it changes nothing. If it comes before the handler clears ON, the handler's final look sees the
    /// request. If it comes after, it notifies.
    pub fn post(self, vector: Vector, urgent: bool) -> Option<Notification> {
        self.pir[usize::from(vector.0 / 64)].fetch_or(1 << (vector.0 % 64));
        let mut seen = self.control.get();
        loop {
            let control = Control::from_bits(seen);
            let notify = !control.outstanding() && (urgent || !control.suppress());
            match self
                .control
                .compare_exchange(seen, control.with_outstanding(control.outstanding() | notify).into_bits())
            {
                Ok(_) => {
                    return notify.then_some(Notification {
                        vector: Vector(control.notification_vector()),
                        destination: control.destination(),
                    });
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Whether `vector` is requested now. Free.
    #[inline]
    pub fn is_pending(self, vector: Vector) -> bool {
        self.pir[usize::from(vector.0 / 64)].get() & (1 << (vector.0 % 64)) != 0
    }

    /// Whether a notification is outstanding now. Free.
    pub fn is_outstanding(self) -> bool {
        Control::from_bits(self.control.get()).outstanding()
    }

    /// Takes all requests: first it reads all four words, then it swaps each word that is not zero, so that an empty
    /// descriptor stays shared in the cache. `found` is called between the two steps if there is a request.
    #[inline]
    pub fn harvest(self, found: impl FnOnce()) -> Harvest {
        // Each word is loaded only once: `get` is single-copy atomic.
        let mut taken = Harvest([self.pir[0].get(), self.pir[1].get(), self.pir[2].get(), self.pir[3].get()]);
        if taken.is_empty() {
            return taken;
        }
        found();
        for (taken, word) in taken.0.iter_mut().zip(self.pir) {
            if *taken != 0 {
                *taken = word.swap(0);
            }
        }
        taken
    }

    /// Clears ON: the next post notifies. A later harvest sees all posts made before.
    #[inline]
    pub fn clear_outstanding(self) {
        self.control.fetch_and(!OUTSTANDING);
    }

    /// Serves one notification. It harvests and dispatches up to `passes` times, until a harvest finds nothing. Then
    /// it clears ON. Then it always harvests once more: a post between the last pass and the clear would otherwise
    /// wait for the next notification. It never waits for posts. `name` is called for each unit of work: for a harvest
    /// before its swaps, for the clear after it, so that nothing comes between the clear and the final look.
    ///
    /// Interrupts must be off. The caller ends with one EOI, and only then runs deferred work.
    #[inline]
    pub fn serve(
        self,
        passes: u32,
        deliverable: &Deliverable,
        mut name: impl FnMut(Work),
        mut dispatch: impl FnMut(Vector),
    ) -> Served {
        let mut served = Served::default();
        let mut left = passes;
        loop {
            let last = left == 0;
            if last {
                self.clear_outstanding();
                name(Work::PidClearOn);
            }
            let taken = self.harvest(|| name(Work::PirHarvest));
            if taken.is_empty() {
                left = 0;
            } else {
                served.count(taken.dispatch(deliverable, &mut dispatch));
                left = left.saturating_sub(1);
            }
            if last {
                return served;
            }
        }
    }
}

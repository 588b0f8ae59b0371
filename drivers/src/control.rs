//! Control operations of a device, one at a time.

use hal::Word;

/// No operation runs.
pub(crate) const FREE: u64 = 0;
const BUSY: u64 = 1;

/// A guard: its holder alone may run a control operation.
pub(crate) struct Control<'a, W: Word> {
    word: &'a W,
    /// What `word` is behind the operation: [`FREE`], or a value of the driver's own with which none begins any more.
    pub(crate) behind: u64,
}

impl<'a, W: Word> Control<'a, W> {
    /// Begins an operation.
    ///
    /// # Errors
    /// The word, if an operation runs or none may begin.
    pub(crate) fn begin(word: &'a W) -> Result<Self, u64> {
        word.compare_exchange(FREE, BUSY).map(|_| Self { word, behind: FREE })
    }
}

impl<W: Word> Drop for Control<'_, W> {
    fn drop(&mut self) {
        self.word.set(self.behind);
    }
}

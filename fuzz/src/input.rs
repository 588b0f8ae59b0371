//! Reads a fuzzer's bytes as choices and values.

use arbitrary::Unstructured;

/// Bytes that are read from front to back. When they are used up, everything reads as zero.
pub(crate) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn u16(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn u32(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// Now and then: in one case of `n`.
    pub(crate) fn one_in(&mut self, n: u8) -> bool {
        self.u8() % n == n - 1
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0.int_in_range(0..=end - 1).unwrap_or_default()
    }

    /// One of `of`, which is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    /// `len` bytes, or fewer at the end.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.bytes(len.min(self.0.len())).unwrap_or_default()
    }

    /// The rest as it is.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }

    /// A register's value or an address: small, a single bit, wide, or within the `bytes` of memory from `base` on.
    /// Half of those addresses are at the start of a page.
    pub(crate) fn value(&mut self, base: u64, bytes: u64) -> u64 {
        match self.u8() % 9 {
            0 => self.u8().into(),
            1 => 1 << (self.u8() % 64),
            2 => self.u16().into(),
            3 => self.u32().into(),
            4 => self.u64(),
            5 => base + u64::from(self.u16()) * 8 % bytes,
            6 => u64::MAX << (self.u8() % 64),
            // The end of memory, and of everything.
            7 => self.pick(&[base + bytes, u64::MAX, 0xfee0_0000, 0]).wrapping_sub(u64::from(self.u8())),
            _ => (base + u64::from(self.u8()) * 4096 % bytes) | u64::from(self.u8()),
        }
    }
}

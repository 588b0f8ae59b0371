//! Quantities with their units, as text: `"2 ms"`, `"13.3 GB/s"`, `"4 KiB"`.


/// What a quantity measures, which decides its units and its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Base: nanoseconds.
    Time,
    /// Base: bytes a second.
    ByteRate,
    /// Base: bytes.
    Size,
    /// A whole number of things.
    Count,
    /// A plain factor.
    Ratio,
    /// Per cent.
    Percent,
    /// 0 or 1.
    Flag,
}

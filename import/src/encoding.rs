//! Texts as other systems save them.

use std::borrow::Cow;

/// The text as UTF-8 without a byte order mark. A shell of Windows saves what a program prints as UTF-16.
///
/// Source: The Unicode Standard, "Byte Order Mark (BOM)".
pub(crate) fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    let words = |bytes: &[u8], word: fn([u8; 2]) -> u16| {
        let words = bytes.chunks_exact(2).map(|pair| word([pair[0], pair[1]]));
        let text: String =
            char::decode_utf16(words).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        Cow::Owned(text.into_bytes())
    };
    match text {
        [0xef, 0xbb, 0xbf, rest @ ..] => Cow::Borrowed(rest),
        [0xff, 0xfe, rest @ ..] => words(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => words(rest, u16::from_be_bytes),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_go_and_utf_16_is_read() {
        assert_eq!(&*plain("\u{feff}a\u{b5}".as_bytes()), "aµ".as_bytes());
        assert_eq!(&*plain(&[0xff, 0xfe, b'a', 0, 0xb5, 0, 7]), "aµ".as_bytes());
        assert_eq!(&*plain(&[0xfe, 0xff, 0, b'a', 0xd8, 0]), "a\u{fffd}".as_bytes());
        assert_eq!(&*plain(b"\xffa"), b"\xffa");
        assert_eq!(&*plain(&[]), b"");
    }
}

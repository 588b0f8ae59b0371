//! The files of a zip archive that is cut off: one behind the other, without the list at the archive's end.
//!
//! What writes to a pipe does not know a file's sizes before its content: they and the checksum stand behind it then, and the
//! content says itself where it ends. Source: PKWARE's APPNOTE, "Local file header" and "Data descriptor".

use crate::archive::{ArchiveError, Contents, Limits, add, bounded, name, shown};
use crate::zipped;
use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use std::io::{self, BufRead, Read};
use std::path::Path;

/// How the block behind a content may begin.
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";
/// Bits of the flags: a password; sizes and checksum behind the content.
const ENCRYPTED: u16 = 1;
const DESCRIBED: u16 = 8;
/// Methods.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// What stands before a file's content.
struct Head {
    name: Vec<u8>,
    flags: u16,
    method: u16,
    checksum: u32,
    packed_bytes: u64,
}

impl Head {
    /// Reads what is behind the first four bytes.
    fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut fixed = [0; 26];
        reader.read_exact(&mut fixed)?;
        let short = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
        let mut name = vec![0; usize::from(short(22))];
        let mut extra = vec![0; usize::from(short(24))];
        reader.read_exact(&mut name)?;
        reader.read_exact(&mut extra)?;
        let packed_bytes = match long(14) {
            u32::MAX => long_size(&extra).unwrap_or(u64::from(u32::MAX)),
            bytes => u64::from(bytes),
        };
        Ok(Self { name, flags: short(2), method: short(4), checksum: long(10), packed_bytes })
    }

    /// Its size and its checksum stand behind the content.
    fn is_open(&self) -> bool {
        self.flags & DESCRIBED != 0 && self.packed_bytes == 0
    }
}

/// The packed size of a zip64 record, behind the size of the content.
fn long_size(mut extra: &[u8]) -> Option<u64> {
    loop {
        let (head, rest) = extra.split_first_chunk::<4>()?;
        let (own, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([head[2], head[3]])))?;
        if head[..2] == [1, 0] {
            return Some(u64::from_le_bytes(*own.get(8..)?.first_chunk()?));
        }
        extra = rest;
    }
}

/// Reads files up to the end or a damage, which is noted.
///
/// # Errors
/// They exceed a limit, or a name leads out of the archive.
pub(crate) fn one_by_one(
    mut reader: impl BufRead,
    limits: &Limits,
    contents: &mut Contents,
) -> Result<(), ArchiveError> {
    let mut start = [0; 4];
    if reader.read_exact(&mut start).is_err() {
        return Ok(());
    }
    for _ in 0..limits.files {
        if start != *zipped::MAGIC {
            return Ok(());
        }
        let Ok(head) = Head::read(&mut reader) else { return Ok(()) };
        // Archivers of Windows have written backslashes.
        let path: Vec<u8> = head.name.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect();
        let shown = name(Path::new(&shown(&path)))?;
        match one(&mut reader, &head, &shown, limits, contents)? {
            Some(next) => start = next,
            None => return Ok(()),
        }
    }
    Err(ArchiveError::TooMuch("files", limits.files as u64))
}

/// Reads a file, and the first bytes behind it. None if what follows cannot be found.
fn one(
    reader: &mut impl BufRead,
    head: &Head,
    shown: &str,
    limits: &Limits,
    contents: &mut Contents,
) -> Result<Option<[u8; 4]>, ArchiveError> {
    let most = if head.is_open() { u64::MAX } else { head.packed_bytes };
    let mut packed = reader.by_ref().take(most);
    let why = match (head.method, head.is_open()) {
        _ if head.flags & ENCRYPTED != 0 => Err("it is encrypted; valid: an archive without a password".to_owned()),
        (STORED, false) => Ok(bounded(&mut packed, limits)),
        (DEFLATED, _) => Ok(bounded(DeflateDecoder::new(&mut packed), limits)),
        (STORED, true) => Err("nothing says where it ends".to_owned()),
        (method, _) => Err(format!("it is compressed by method {method}; valid: stored, or deflate")),
    };
    let content = match why {
        Ok(Ok(bytes)) => Some(bytes),
        Ok(Err(ArchiveError::Io(_))) => {
            contents.note(format!("{shown} is cut off, and all that follows is missing"));
            return Ok(None);
        }
        Ok(Err(_)) => {
            contents.pass(shown, limits.file_bytes, limits)?;
            None
        }
        Err(why) => {
            contents.note(format!("{shown} cannot be read: {why}"));
            None
        }
    };
    if content.is_none() && head.is_open() {
        contents.note(format!("what follows {shown} cannot be found"));
        return Ok(None);
    }
    // An open content has ended where its compression says so.
    let is_whole = head.is_open() || io::copy(&mut packed, &mut io::sink()).is_ok() && packed.limit() == 0;
    if !is_whole {
        contents.note(format!("{shown} is cut off, and all that follows is missing"));
        return Ok(None);
    }
    let behind = behind(reader, head).ok();
    let checksum = behind.map_or((!head.is_open()).then_some(head.checksum), |(checksum, _)| Some(checksum));
    match content {
        Some(bytes) if checksum.is_some_and(|checksum| checksum != sum(&bytes)) => {
            contents.note(format!("{shown} cannot be read: its checksum is wrong"));
        }
        Some(bytes) if !shown.is_empty() && !head.name.ends_with(b"/") => {
            add(contents, limits, shown.to_owned(), bytes)?
        }
        _ => {}
    }
    Ok(behind.map(|(_, next)| next))
}

fn sum(bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum()
}

/// The checksum and the first bytes of what follows. The sizes behind a content have four or eight bytes each.
fn behind(reader: &mut impl Read, head: &Head) -> io::Result<(u32, [u8; 4])> {
    let mut four = || {
        let mut bytes = [0; 4];
        reader.read_exact(&mut bytes).map(|()| bytes)
    };
    if head.flags & DESCRIBED == 0 {
        return Ok((head.checksum, four().unwrap_or_default()));
    }
    let first = four()?;
    let checksum = u32::from_le_bytes(if first == DESCRIPTOR { four()? } else { first });
    let _sizes = [four(), four()];
    let next = match four() {
        Ok(next) if !next.starts_with(b"PK") => four().and_then(|_| four()),
        next => next,
    };
    Ok((checksum, next.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::of_bytes;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use std::io::Write;

    const LIMITS: Limits = Limits { file_bytes: 1000, total_bytes: 3000, files: 5, depth: 2 };

    /// A file as a program writes it to a pipe, with sizes of four or eight bytes behind its content.
    fn open(name: &str, text: &[u8], has_mark: bool, size_bytes: usize) -> Vec<u8> {
        let mut packer = DeflateEncoder::new(Vec::new(), Compression::best());
        packer.write_all(text).unwrap();
        let content = packer.finish().unwrap();
        let mark = if has_mark { &DESCRIPTOR[..] } else { &[] };
        let sizes = [content.len(), text.len()].map(|size| (size as u64).to_le_bytes()[..size_bytes].to_vec()).concat();
        let head =
            [&b"PK\x03\x04\x14\0\x08\0\x08\0"[..], &[0; 16], &[name.len() as u8, 0, 0, 0], name.as_bytes()].concat();
        [head, content, mark.to_vec(), sum(text).to_le_bytes().to_vec(), sizes].concat()
    }

    fn of(bytes: &[u8]) -> (Vec<(String, Vec<u8>)>, String) {
        let found = of_bytes(bytes, &LIMITS).unwrap();
        (found.files.into_iter().collect(), found.notes.join("\n"))
    }

    #[test]
    fn files_whose_sizes_stand_behind_them_are_read_up_to_a_cut() {
        for (has_mark, size_bytes) in [(true, 4), (false, 4), (true, 8), (false, 8)] {
            let file = |name: &str, text: &[u8]| open(name, text, has_mark, size_bytes);
            let whole =
                [file("x/", b""), file("x\\a", b"text of a"), file("b", &[b'b'; 900]), file("c", b"c")].concat();
            let (files, notes) = of(&whole);
            let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(
                (names.as_slice(), files[2].1.as_slice()),
                (&["b", "c", "x/a"][..], &b"text of a"[..]),
                "{notes}"
            );
            let (files, notes) = of(&whole[..whole.len() - file("c", b"c").len() + 33]);
            assert!(files.len() == 2 && notes.contains("c is cut off"), "{notes}");
            for length in 0..whole.len() {
                let _ = of_bytes(&whole[..length], &LIMITS);
            }
        }
    }

    #[test]
    fn what_is_too_long_or_damaged_is_named() {
        let mut wrong = open("a", b"a", true, 4);
        let checksum = wrong.len() - 12;
        wrong[checksum] ^= 1;
        let (files, notes) = of(&[wrong, open("b", b"b", true, 4)].concat());
        assert!(files.len() == 1 && notes.contains("a cannot be read: its checksum is wrong"), "{notes}");
        let (files, notes) = of(&[open("b", b"b", true, 4), open("long", &[0; 5000], true, 4)].concat());
        assert!(files.len() == 1 && notes.contains("long has more than 1000 bytes"), "{notes}");
        assert!(notes.contains("what follows long cannot be found"), "{notes}");
    }
}

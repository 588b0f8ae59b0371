//! What compresses an archive or a single file: gzip, bzip2, xz, zstd.
//!
//! Both xz and zstd state in their head how much memory they need; a stranger's file may state any number.

use crate::archive::ArchiveError;
use crate::xz::Streams;
use crate::zstd::Frames;
use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use std::io::{self, ErrorKind, Read};

/// Most memory that a file may ask for: twice what `xz -9` and the least `zstd --long` need.
pub(crate) const WINDOW_MAX: u64 = 128 << 20;

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    /// Not at all.
    Plain,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
}

impl Packing {
    /// How a file begins, and the ending of its name. Sources: RFC 1952, bzip2's
    /// manual, the XZ file format, RFC 8878.
    const ALL: [(Self, &[u8], &str); 4] = [
        (Self::Gzip, &[0x1f, 0x8b], ".gz"),
        (Self::Bzip2, b"BZh", ".bz2"),
        (Self::Xz, b"\xfd7zXZ\0", ".xz"),
        (Self::Zstd, b"\x28\xb5\x2f\xfd", ".zst"),
    ];

    /// What the first bytes of a file say.
    pub(crate) fn of(start: &[u8]) -> Self {
        let found = Self::ALL.iter().find(|(_, magic, _)| start.starts_with(magic));
        found.map_or(Self::Plain, |(packing, ..)| *packing)
    }

    /// A file's name without the ending that says how it is compressed.
    pub(crate) fn unpacked_name(self, name: &str) -> &str {
        let ending = Self::ALL.iter().find(|(packing, ..)| *packing == self).map_or("", |(.., ending)| *ending);
        name.strip_suffix(ending).unwrap_or(name)
    }

    /// The content of a file: of one that is cut off or damaged all that comes before, and then an error.
    pub(crate) fn reader<'a>(self, file: impl Read + 'a) -> Box<dyn Read + 'a> {
        match self {
            Self::Plain => Box::new(file),
            Self::Gzip => Box::new(MultiGzDecoder::new(file)),
            Self::Bzip2 => Box::new(MultiBzDecoder::new(file)),
            Self::Xz => Box::new(Streams::of(file)),
            Self::Zstd => Box::new(Frames::of(file)),
        }
    }

    /// Why the first bytes of a content cannot be read. A tar archive says so of later ones.
    pub(crate) fn wrong(self, error: io::Error) -> ArchiveError {
        match (self, error.kind()) {
            (Self::Plain, _) => ArchiveError::Io(error),
            (_, ErrorKind::OutOfMemory) => ArchiveError::TooMuch("bytes of memory in its compression", WINDOW_MAX),
            (_, ErrorKind::UnexpectedEof) => ArchiveError::Unreadable("it is cut off before its first file".to_owned()),
            _ => ArchiveError::Unreadable(format!("its compression is damaged ({error})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Limits, of_bytes};
    use bzip2::write::BzEncoder;
    use flate2::{Compression, write::GzEncoder};
    use lzma_rust2::{XzOptions, XzWriter};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    const LIMITS: Limits = Limits { file_bytes: 1000, total_bytes: 2000, files: 3, depth: 2 };

    fn packed(packing: Packing, content: &[u8]) -> Vec<u8> {
        match packing {
            Packing::Plain => content.to_vec(),
            Packing::Zstd => compress_to_vec(content, CompressionLevel::Fastest),
            Packing::Gzip => {
                let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
                writer.write_all(content).unwrap();
                writer.finish().unwrap()
            }
            Packing::Bzip2 => {
                let mut writer = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                writer.write_all(content).unwrap();
                writer.finish().unwrap()
            }
            Packing::Xz => {
                let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
                writer.write_all(content).unwrap();
                writer.finish().unwrap()
            }
        }
    }

    fn tar(files: &[(&str, usize)]) -> Vec<u8> {
        tar_of(files, |bytes| vec![b'x'; bytes])
    }

    fn tar_of(files: &[(&str, usize)], content: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(*bytes as u64);
            builder.append_data(&mut header, name, &content(*bytes)[..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    /// Bytes that cannot be compressed, others for each number of them.
    fn noise(bytes: usize) -> Vec<u8> {
        let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        std::iter::successors(Some(bytes as u64 * 7), next)
            .skip(1)
            .map(|state: u64| (state >> 56) as u8)
            .take(bytes)
            .collect()
    }

    fn read(bytes: &[u8]) -> Result<Vec<u8>, io::Error> {
        let mut content = Vec::new();
        Packing::of(bytes).reader(bytes).read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn every_packing_gives_the_same_files() {
        let plain = tar(&[("a/b", 700), ("c", 3)]);
        let expected = of_bytes(&plain, &LIMITS).unwrap();
        assert_eq!(expected.files.len(), 2);
        for packing in [Packing::Gzip, Packing::Bzip2, Packing::Xz, Packing::Zstd] {
            let bytes = packed(packing, &plain);
            assert_eq!(Packing::of(&bytes), packing);
            assert_eq!(of_bytes(&bytes, &LIMITS).unwrap(), expected, "{packing:?}");
            // Packers that work in parallel write several streams, each with a part.
            let (front, back) = plain.split_at(1000);
            assert_eq!(of_bytes(&[packed(packing, front), packed(packing, back)].concat(), &LIMITS).unwrap(), expected);
            for length in 0..bytes.len() {
                let _ = of_bytes(&bytes[..length], &LIMITS);
            }
        }
        assert_eq!(Packing::Xz.unpacked_name("fio.json.xz"), "fio.json");
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_read_up_to_there() {
        let limits = Limits { file_bytes: 1 << 20, total_bytes: 2 << 20, ..LIMITS };
        // zstd checks blocks of 128 KiB, and so loses the whole of a smaller file; xz and gzip do not.
        for (packing, bytes) in [
            (Packing::Gzip, 700),
            (Packing::Xz, 700),
            (Packing::Gzip, 300_000),
            (Packing::Bzip2, 300_000),
            (Packing::Xz, 300_000),
            (Packing::Zstd, 300_000),
        ] {
            let whole = packed(packing, &tar_of(&[("a", bytes), ("b", bytes + 1)], noise));
            let cut = of_bytes(&whole[..whole.len() * 3 / 4], &limits);
            let cut = cut.unwrap_or_else(|error| panic!("{packing:?}, {bytes}: {error}"));
            assert_eq!(cut.files, [("a".to_owned(), noise(bytes))].into(), "{packing:?}, {bytes}");
            assert!(cut.notes.len() == 1 && cut.notes[0].starts_with("b is cut off"), "{:?}", cut.notes);
            let error = of_bytes(&whole[..20], &limits).unwrap_err().to_string();
            assert_eq!(error, "cannot be read: it is cut off before its first file", "{packing:?}");
        }
        // A frame with a window of 128 KiB, a raw block with the first file, and one of the kind 3, which is none.
        let first = tar(&[("a", 700), ("b", 700)])[..1536].to_vec();
        let size = (first.len() as u32) << 3;
        let damaged = [b"\x28\xb5\x2f\xfd\x00\x38", &size.to_le_bytes()[..3], &first, b"\x07\0\0"].concat();
        let found = of_bytes(&damaged, &limits).unwrap();
        assert!(found.files.len() == 1 && found.notes[0].contains("block"), "{:?}", found.notes);
    }

    #[test]
    fn a_bomb_is_an_error() {
        let zeros = vec![0; 3 << 20];
        for packing in [Packing::Gzip, Packing::Bzip2, Packing::Xz, Packing::Zstd] {
            let error = of_bytes(&packed(packing, &tar(&[("a", 3 << 20)])), &LIMITS).unwrap_err().to_string();
            assert_eq!(error, "holds more than 16000 bytes in files that are too long", "{packing:?}");
            assert!(matches!(of_bytes(&packed(packing, &zeros), &LIMITS), Err(ArchiveError::NoArchive)));
        }
    }

    #[test]
    fn the_memory_that_a_file_asks_for_has_a_bound() {
        let refused = |bytes: &[u8]| of_bytes(bytes, &LIMITS).unwrap_err().to_string();
        let expected = "holds more than 134217728 bytes of memory in its compression";
        // A frame with a window of 2 GiB and one empty block.
        assert_eq!(refused(b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"), expected);
        let mut xz = packed(Packing::Xz, b"text");
        // The head of its only block: size, flags, filter, length of the filter's properties, size of the dictionary.
        let (head, size) = (12, (usize::from(xz[12]) + 1) * 4);
        assert_eq!(xz[head + 2..head + 4], [0x21, 1]);
        xz[head + 4] = 39;
        let mut sum = flate2::Crc::new();
        sum.update(&xz[head..head + size - 4]);
        xz[head + size - 4..head + size].copy_from_slice(&sum.sum().to_le_bytes());
        assert_eq!(refused(&xz), expected);
    }

    #[test]
    fn frames_of_no_content_are_passed_over_and_sums_are_checked() {
        let skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
        let frame = packed(Packing::Zstd, b"text");
        let empty = packed(Packing::Zstd, b"");
        assert_eq!(read(&[&frame[..], skipped, &empty, &frame, skipped].concat()).unwrap(), b"texttext");
        assert!(read(&[&frame[..], b"more"].concat()).is_err());
        // A frame with a checksum: a raw block of `a`, with a sum of something else.
        let wrong = b"\x28\xb5\x2f\xfd\x24\x01\x09\x00\x00a\x01\x02\x03\x04";
        assert!(read(wrong).unwrap_err().to_string().contains("checksum is wrong"));
        let error = of_bytes(b"\xfd7zXZ\0\0\x07damaged beyond use", &LIMITS).unwrap_err().to_string();
        assert!(error.starts_with("cannot be read: its compression is damaged ("), "{error}");
    }
}

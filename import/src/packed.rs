//! What compresses an archive or a single file: gzip, xz, zstd.
//!
//! Both xz and zstd state in their head how much memory they need; a stranger's file may state any number.

use crate::archive::ArchiveError;
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// Most memory that a file may ask for: twice what `xz -9` and the least `zstd --long` need.
const WINDOW_MAX: u64 = 128 << 20;

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    /// Not at all.
    Plain,
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    /// How a file begins, and the ending of its name. Sources: RFC 1952, the XZ file format, RFC 8878.
    const ALL: [(Self, &[u8], &str); 3] = [
        (Self::Gzip, &[0x1f, 0x8b], ".gz"),
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

    /// The content of a file.
    pub(crate) fn reader<'a>(self, file: impl Read + 'a) -> Box<dyn Read + 'a> {
        match self {
            Self::Plain => Box::new(file),
            Self::Gzip => Box::new(MultiGzDecoder::new(file)),
            Self::Xz => Box::new(XzReader::new_mem_limit(file, true, (WINDOW_MAX >> 10) as u32)),
            Self::Zstd => Box::new(Frames::of(file)),
        }
    }

    /// Why the first bytes of a content cannot be read. A tar archive says so of later ones.
    pub(crate) fn wrong(self, error: io::Error) -> ArchiveError {
        match (self, error.kind()) {
            (Self::Plain, _) => ArchiveError::Io(error),
            (_, ErrorKind::OutOfMemory) => ArchiveError::TooMuch("bytes of memory in its compression", WINDOW_MAX),
            _ => ArchiveError::Unreadable(format!("its compression is damaged ({error})")),
        }
    }
}

/// The content of a zstd file: its frames one after another. The library reads a single one.
struct Frames<R: Read> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    /// A frame has begun, and was not read to its end.
    is_within: bool,
}

impl<R: Read> Frames<R> {
    fn of(file: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Self { source: BufReader::new(file), decoder, is_within: false }
    }

    /// Reads of the frame that has begun; 0 at its end.
    fn read_frame(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)).map_err(invalid)?;
        }
        let count = self.decoder.read(buffer)?;
        let sums = (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
        if count == 0 && matches!(sums, (Some(stated), found) if found != Some(stated)) {
            return Err(invalid("its checksum is wrong"));
        }
        Ok(count)
    }

    /// Begins the next frame; false at the file's end. Frames without content are passed over.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error @ FrameDecoderError::WindowSizeTooBig { .. }) => {
                    return Err(io::Error::new(ErrorKind::OutOfMemory, error));
                }
                Err(error) => return Err(invalid(error)),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_within && !self.begin()? {
                return Ok(0);
            }
            match self.read_frame(buffer)? {
                0 => self.is_within = false,
                count => {
                    self.is_within = true;
                    return Ok(count);
                }
            }
        }
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Limits, of_bytes};
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
            Packing::Xz => {
                let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
                writer.write_all(content).unwrap();
                writer.finish().unwrap()
            }
        }
    }

    fn tar(files: &[(&str, usize)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(*bytes as u64);
            builder.append_data(&mut header, name, &vec![b'x'; *bytes][..]).unwrap();
        }
        builder.into_inner().unwrap()
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
        for packing in [Packing::Gzip, Packing::Xz, Packing::Zstd] {
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
    fn a_bomb_is_an_error() {
        let zeros = vec![0; 3 << 20];
        for packing in [Packing::Gzip, Packing::Xz, Packing::Zstd] {
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

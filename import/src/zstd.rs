//! The content of a zstd file. Source: RFC 8878.

use crate::packed::WINDOW_MAX;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// The frames of a file one after another. The library reads a single one.
pub(crate) struct Frames<R: Read> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    /// A frame has begun, and was not read to its end.
    is_within: bool,
    /// Why the file's rest cannot be read. It is told once the content before it has been read.
    damage: Option<(ErrorKind, String)>,
}

impl<R: Read> Frames<R> {
    pub(crate) fn of(file: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Self { source: BufReader::new(file), decoder, is_within: false, damage: None }
    }

    /// Reads of the frame that has begun; 0 at its end.
    fn read_frame(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            if let Err(error) = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)) {
                self.damage = Some(why(&error));
                self.end_frame()?;
            }
        }
        let count = self.decoder.read(buffer)?;
        if count > 0 {
            return Ok(count);
        }
        if let Some((kind, why)) = &self.damage {
            return Err(io::Error::new(*kind, why.clone()));
        }
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(stated), found) if found != Some(stated) => Err(invalid("its checksum is wrong")),
            _ => Ok(0),
        }
    }

    /// Ends a frame whose rest cannot be read. Until its end the decoder keeps the last bytes of its content, as many as its
    /// window has, since later blocks may repeat them: of a small file that is all there is.
    fn end_frame(&mut self) -> io::Result<()> {
        // The last block, raw and empty, and in place of the checksum any four bytes.
        let end = [1, 0, 0, 0, 0, 0, 0];
        self.decoder.decode_blocks(&end[..], BlockDecodingStrategy::All).map(drop).map_err(invalid)
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
                Err(error) => {
                    let (kind, why) = why(&error);
                    return Err(io::Error::new(kind, why));
                }
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
            self.is_within = true;
            match self.read_frame(buffer)? {
                0 => self.is_within = false,
                count => return Ok(count),
            }
        }
    }
}

/// Why a frame cannot be read. The library's own words for a file that ends too early are those of its types.
fn why(error: &FrameDecoderError) -> (ErrorKind, String) {
    let first: &(dyn Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |error| Error::source(*error));
    let is_end = |error: &io::Error| error.kind() == ErrorKind::UnexpectedEof;
    match causes.any(|cause| cause.downcast_ref().is_some_and(is_end)) {
        true => (ErrorKind::UnexpectedEof, "the file ends too early".to_owned()),
        false => (ErrorKind::InvalidData, error.to_string()),
    }
}

fn invalid(why: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

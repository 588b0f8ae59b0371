//! The content of an xz file.

use crate::packed::WINDOW_MAX;
use lzma_rust2::{Action, Status, XzStream};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// The streams of a file one after another.
///
/// The library's own reader, `XzReader`, unpacks a chunk of up to 64 KiB whole or not at all, and loses what it has unpacked
/// since it was called when it finds an error: of a small file that is cut off, everything. Its decoder of buffers loses nothing
/// before the end of a file that is cut off, and before a damage at most what one buffer of input holds. It reads no files
/// with several filters before LZMA2, which nobody needs for texts.
pub(crate) struct Streams<R: Read> {
    source: BufReader<R>,
    decoder: XzStream,
    /// An error that stands behind content that was read.
    damage: Option<io::Error>,
}

impl<R: Read> Streams<R> {
    pub(crate) fn of(file: R) -> Self {
        let decoder = XzStream::new_mem_limit(true, (WINDOW_MAX >> 10) as u32);
        Self { source: BufReader::new(file), decoder, damage: None }
    }
}

impl<R: Read> Read for Streams<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(error) = self.damage.take() {
            return Err(error);
        }
        loop {
            let input = self.source.fill_buf()?;
            let action = if input.is_empty() { Action::Finish } else { Action::Run };
            let before = self.decoder.total_out();
            let found = self.decoder.process(input, buffer, action);
            // With an error too, what was unpacked before it is in the buffer.
            let count = (self.decoder.total_out() - before) as usize;
            match found {
                Err(error) if count == 0 => return Err(error),
                Err(error) => {
                    self.damage = Some(error);
                    return Ok(count);
                }
                Ok(result) => {
                    let is_stuck = result.bytes_consumed == 0 && count == 0;
                    self.source.consume(result.bytes_consumed);
                    match result.status {
                        _ if count > 0 => return Ok(count),
                        Status::StreamEnd => return Ok(0),
                        Status::Ok if is_stuck => {
                            return Err(io::Error::new(ErrorKind::InvalidData, "the decoder stands still"));
                        }
                        Status::Ok => {}
                    }
                }
            }
        }
    }
}

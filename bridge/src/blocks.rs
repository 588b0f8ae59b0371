//! Block storage of a served drive. The blocks outlive the drive, which a reset or a new client builds anew.

use machine::nvme::Blocks;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

/// Blocks in a file.
pub struct FileBlocks(File);

impl FileBlocks {
    /// Opens `path`, which must exist, and also returns its size in bytes. The file is opened with `O_DSYNC`: a write
    /// returns only when the data has reached the medium, as required of a drive that declares no volatile cache.
    ///
    /// # Errors
    /// The file cannot be opened for reading and writing.
    pub fn open(path: &Path) -> io::Result<(Self, u64)> {
        let dsync = rustix::fs::OFlags::DSYNC.bits() as i32;
        let file = File::options().read(true).write(true).custom_flags(dsync).open(path)?;
        let bytes = file.metadata()?.len();
        Ok((Self(file), bytes))
    }
}

impl Blocks for FileBlocks {
    fn read(&self, offset_bytes: u64, to: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(to, offset_bytes)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> io::Result<()> {
        self.0.write_all_at(from, offset_bytes)
    }
}

/// Blocks in memory, zero at first.
pub struct MemoryBlocks(Mutex<Vec<u8>>);

impl MemoryBlocks {
    /// The host allocates a page when it is first touched.
    pub fn new(bytes: usize) -> Self {
        Self(Mutex::new(vec![0; bytes]))
    }

    fn with<R>(&self, offset_bytes: u64, len: usize, act: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let mut bytes = self.0.lock().expect("copying does not panic");
        let range = usize::try_from(offset_bytes).ok().and_then(|from| Some(from..from.checked_add(len)?));
        let part = range.and_then(|range| bytes.get_mut(range)).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(act(part))
    }
}

impl Blocks for MemoryBlocks {
    fn read(&self, offset_bytes: u64, to: &mut [u8]) -> io::Result<()> {
        self.with(offset_bytes, to.len(), |part| to.copy_from_slice(part))
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> io::Result<()> {
        self.with(offset_bytes, from.len(), |part| part.copy_from_slice(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps_what_is_written(blocks: &dyn Blocks) {
        blocks.write(4096 - 8, &[1, 2, 3, 4]).expect("inside");
        let mut read = [9; 8];
        blocks.read(4096 - 12, &mut read).expect("inside");
        assert_eq!(read, [0, 0, 0, 0, 1, 2, 3, 4]);
        assert!(blocks.read(4096 - 4, &mut read).is_err(), "beyond the end");
    }

    #[test]
    fn memory_and_files_keep_bytes() {
        let memory = MemoryBlocks::new(4096);
        keeps_what_is_written(&memory);
        assert!(memory.write(u64::MAX - 3, &[0; 8]).is_err());
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        file.as_file().set_len(4096).expect("room");
        let (blocks, bytes) = FileBlocks::open(file.path()).expect("exists");
        assert_eq!(bytes, 4096);
        keeps_what_is_written(&blocks);
    }
}

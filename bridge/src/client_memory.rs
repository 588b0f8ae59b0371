//! The guest's memory that the client shares: mapped files, each at its guest address.

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap, VolatileMemory,
};

/// Shared guest memory is little-endian, and the host's atomic accesses are little-endian too.
const _: () = assert!(cfg!(target_endian = "little"));

/// Maximum number of memory regions of one client.
const REGIONS_MAX: usize = 1024;

/// The memory of one client.
#[derive(Default)]
pub(crate) struct ClientMemory {
    map: GuestMemoryMmap,
    regions: usize,
}

impl ClientMemory {
    /// Maps `bytes` of `file` from `offset` at guest address `address`.
    ///
    /// The file must be that long and must stay so: an access behind the file's end would raise SIGBUS and end the
    /// server. Therefore the file must be a memfd that is sealed against shrinking, or that can be sealed; this call
    /// then seals it.
    pub(crate) fn map(&mut self, address: u64, offset: u64, bytes: u64, file: File) -> Result<(), Error> {
        let refuse = |why: String| {
            Error::new(ErrorKind::InvalidInput, format!("memory at {address:#x}, {bytes:#x} bytes: {why}"))
        };
        let end = offset.checked_add(bytes).ok_or_else(|| refuse(format!("offset {offset:#x} wraps")))?;
        seal(&file).map_err(|why| refuse(format!("its file may shrink while it is mapped: {why}")))?;
        let file_bytes = file.metadata()?.len();
        if end > file_bytes {
            return Err(refuse(format!("its file ends at {file_bytes:#x}, before {end:#x}")));
        }
        if bytes == 0 || address.checked_add(bytes).is_none() || self.regions == REGIONS_MAX {
            return Err(refuse(format!("valid: 1 byte to the end of the addresses, up to {REGIONS_MAX} regions")));
        }
        let file = FileOffset::new(file, offset);
        let region = GuestRegionMmap::from_range(GuestAddress(address), bytes as usize, Some(file));
        let region = region.map_err(|error| refuse(error.to_string()))?;
        self.map = self.map.insert_region(Arc::new(region)).map_err(|error| refuse(error.to_string()))?;
        self.regions += 1;
        Ok(())
    }

    /// Forgets a mapped region. A region that was never mapped is ignored: it is memory without a file.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) {
        if let Ok((map, _)) = self.map.remove_region(GuestAddress(address), bytes) {
            self.map = map;
            self.regions -= 1;
        }
    }

    /// Forgets all regions.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Reads 4 or 8 bytes, little-endian, in one access.
    pub(crate) fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        let at = GuestAddress(address);
        match bytes {
            4 => self.map.load::<u32>(at, Acquire).ok().map(|value| u32::from_le(value).into()),
            8 => self.map.load::<u64>(at, Acquire).ok().map(u64::from_le),
            _ => None,
        }
    }

    /// Writes 1, 2, 4 or 8 bytes in one access, after all earlier writes. Returns false when no memory is there.
    pub(crate) fn write(&self, address: u64, bytes: u32, value: u64) -> bool {
        let at = GuestAddress(address);
        match bytes {
            1 => self.map.store(value as u8, at, Release).is_ok(),
            2 => self.map.store((value as u16).to_le(), at, Release).is_ok(),
            4 => self.map.store((value as u32).to_le(), at, Release).is_ok(),
            8 => self.map.store(value.to_le(), at, Release).is_ok(),
            _ => false,
        }
    }

    /// Lets `update` change the 64-bit word at `address` with the host's atomic accesses. The guest's own atomic
    /// accesses use the same instructions, or the same host emulates them. Returns None when no memory is there, or
    /// when the address is not a multiple of 8.
    pub(crate) fn with_word<R>(&self, address: u64, update: impl FnOnce(&AtomicU64) -> R) -> Option<R> {
        let slice = self.map.get_slice(GuestAddress(address), 8).ok()?;
        slice.get_atomic_ref(0).ok().map(update)
    }
}

/// Seals a file against shrinking.
fn seal(file: &File) -> Result<(), String> {
    let cannot = |error: rustix::io::Errno| format!("{error}; valid: a memfd that is or may be sealed (F_SEAL_SHRINK)");
    if fcntl_get_seals(file).map_err(cannot)?.contains(SealFlags::SHRINK) {
        return Ok(());
    }
    fcntl_add_seals(file, SealFlags::SHRINK).map_err(cannot)
}

/// A file like those that back guest memory.
#[cfg(test)]
pub(crate) fn memory_file(bytes: u64) -> File {
    use rustix::fs::{MemfdFlags, memfd_create};
    let file: File = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory").into();
    file.set_len(bytes).expect("room");
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn accesses_stay_inside_regions() {
        let mut memory = ClientMemory::default();
        memory.map(0x10_0000, 0, 0x2000, memory_file(0x2000)).expect("valid");
        assert!(memory.write(0x10_1ff8, 8, 0x1122_3344_5566_7788));
        assert_eq!(memory.read(0x10_1ffc, 4), Some(0x1122_3344));
        assert_eq!((memory.read(0x10_2000, 4), memory.read(0xf_fff8, 8)), (None, None));
        assert!(!memory.write(u64::MAX - 7, 8, 0));
        assert_eq!(memory.with_word(0x10_1ff8, |word| word.fetch_add(1, SeqCst)), Some(0x1122_3344_5566_7788));
        assert_eq!(memory.read(0x10_1ff8, 8), Some(0x1122_3344_5566_7789));
        assert_eq!([0x10_1ffc, 0x10_2000, u64::MAX - 7].map(|at| memory.with_word(at, |_| ())), [None; 3]);
        memory.unmap(0x10_0000, 0x1000);
        assert!(memory.read(0x10_0000, 8).is_some(), "no such region: nothing happens");
        memory.unmap(0x10_0000, 0x2000);
        assert_eq!(memory.read(0x10_0000, 8), None);
    }

    #[test]
    fn regions_that_cannot_be_are_refused() {
        let mut memory = ClientMemory::default();
        memory.map(0x1000, 0, 0x1000, memory_file(0x1000)).expect("valid");
        for (address, offset, bytes, what) in [
            (0x1000, 0, 0x1000, "overlaps"),
            (0x4000, 0, 0x2000, "beyond the file's end"),
            (0x4000, 0x10_0000, 0x1000, "offset beyond it"),
            (0x4000, u64::MAX, 0x1000, "offset wraps"),
            (u64::MAX, 0, 0x1000, "address wraps"),
            (0x4000, 0, 0, "empty"),
        ] {
            assert!(memory.map(address, offset, bytes, memory_file(0x1000)).is_err(), "{what}");
        }
    }

    #[test]
    fn files_cannot_shrink_while_they_are_mapped() {
        let mut memory = ClientMemory::default();
        let file = memory_file(0x2000);
        memory.map(0x1000, 0, 0x2000, file.try_clone().expect("a second")).expect("valid");
        assert!(file.set_len(0x1000).is_err());
        assert!(memory.write(0x2ff8, 8, 1));
        let plain = tempfile::tempfile().expect("a scratch file");
        plain.set_len(0x1000).expect("room");
        let refused = memory.map(0x8000, 0, 0x1000, plain).expect_err("it may shrink");
        assert!(refused.to_string().contains("may shrink while it is mapped"), "{refused}");
        assert_eq!(memory.read(0x8000, 8), None);
    }
}

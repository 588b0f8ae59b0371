//! Guest memory by bytes: a ring's fields have 16 bits, and a driver's buffers stand where it likes.

use crate::memory::BusError;
use crate::world::World;

/// The words around `len` bytes at `address`: for each its address, and the first and last byte taken from it.
fn words(address: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = address + len as u64;
    (address & !7..end).step_by(8).map(move |word| {
        let (first, last) = (address.max(word) - word, end.min(word + 8) - word);
        (word, first as usize, last as usize)
    })
}

/// Whether memory is at every one of `len_bytes` bytes from `address`. It is contiguous, so both ends tell.
pub(super) fn validate(world: &World<'_>, address: u64, len_bytes: u32) -> Result<(), BusError> {
    let error = BusError { address, bytes: len_bytes };
    let last = address.checked_add(u64::from(len_bytes.max(1)) - 1).ok_or(error)?;
    for at in [address & !7, last & !7] {
        world.read64(at).map_err(|_| error)?;
    }
    Ok(())
}

pub(super) fn read_bytes(world: &World<'_>, address: u64, bytes: &mut [u8]) -> Result<(), BusError> {
    validate(world, address, bytes.len() as u32)?;
    let mut rest = bytes;
    for (word, first, last) in words(address, rest.len()) {
        let (part, behind) = rest.split_at_mut(last - first);
        part.copy_from_slice(&world.read64(word)?.to_le_bytes()[first..last]);
        rest = behind;
    }
    Ok(())
}

pub(super) fn write_bytes(world: &mut World<'_>, address: u64, bytes: &[u8]) -> Result<(), BusError> {
    validate(world, address, bytes.len() as u32)?;
    let mut rest = bytes;
    for (word, first, last) in words(address, bytes.len()) {
        let (part, behind) = rest.split_at(last - first);
        let mut value = [0; 8];
        value[first..last].copy_from_slice(part);
        world.write_within(word, u64::from_le_bytes(value), first as u32..last as u32)?;
        rest = behind;
    }
    Ok(())
}

pub(super) fn read16(world: &World<'_>, address: u64) -> Result<u16, BusError> {
    let mut bytes = [0; 2];
    read_bytes(world, address, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

pub(super) fn write16(world: &mut World<'_>, address: u64, value: u16) -> Result<(), BusError> {
    write_bytes(world, address, &value.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parts_of_words() {
        let parts: Vec<_> = words(0x1006, 12).collect();
        assert_eq!(parts, [(0x1000, 6, 8), (0x1008, 0, 8), (0x1010, 0, 2)]);
        assert_eq!(words(0x1008, 8).collect::<Vec<_>>(), [(0x1008, 0, 8)]);
        assert_eq!(words(0x1008, 0).count(), 0);
    }
}

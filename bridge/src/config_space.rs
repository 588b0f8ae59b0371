//! Configuration space of any width over a model's 32-bit registers.

/// Bytes of a conventional function's configuration space.
pub(crate) const BYTES: u64 = 256;

/// True if the access lies inside configuration space.
pub(crate) fn holds(offset: u64, len: usize) -> bool {
    offset.checked_add(len as u64).is_some_and(|end| end <= BYTES)
}

/// Reads bytes of configuration space. `register` reads one 32-bit register.
pub(crate) fn read(offset: u32, to: &mut [u8], mut register: impl FnMut(u32) -> u32) {
    for (index, byte) in to.iter_mut().enumerate() {
        let at = offset + index as u32;
        *byte = register(at & !3).to_le_bytes()[(at % 4) as usize];
    }
}

/// The registers that a write of `from` changes, with their new values.
pub(crate) fn merged(offset: u32, from: &[u8], mut register: impl FnMut(u32) -> u32) -> Vec<(u32, u32)> {
    let mut writes: Vec<(u32, u32)> = Vec::new();
    for (index, byte) in from.iter().enumerate() {
        let at = offset + index as u32;
        if writes.last().is_none_or(|&(last, _)| last != at & !3) {
            writes.push((at & !3, register(at & !3)));
        }
        let value = &mut writes.last_mut().expect("just pushed").1;
        let mut bytes = value.to_le_bytes();
        bytes[(at % 4) as usize] = *byte;
        *value = u32::from_le_bytes(bytes);
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(at: u32) -> u32 {
        0x0403_0201 + 0x0404_0404 * (at / 4)
    }

    #[test]
    fn any_width_at_any_place() {
        let mut bytes = [0; 6];
        read(3, &mut bytes, register);
        assert_eq!(bytes, [4, 5, 6, 7, 8, 9]);
        assert_eq!(merged(0x42, &[0xaa, 0xbb], |_| 0x1122_3344), [(0x40, 0xbbaa_3344)]);
        assert_eq!(merged(3, &[0xaa, 0xbb], |_| 0), [(0, 0xaa00_0000), (4, 0xbb)]);
        assert!(holds(254, 2) && !holds(255, 2) && !holds(u64::MAX, 2));
    }
}

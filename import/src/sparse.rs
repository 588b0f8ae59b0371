//! Sparse files of `tar --format=pax`: the pieces that are no holes stand behind one another, and a map says where each
//! belongs. (The other form, with a type of its own, is read by the library.)
//!
//! The map stands in records of the header (versions 0.0 and 0.1), or as lines of numbers before the pieces (1.0, which
//! is also that of BSD and macOS). Source: GNU tar's manual, "Storing Sparse Files".

/// Pieces of a map begin at a multiple of it.
const BLOCK_BYTES: usize = 512;

/// What the records of a header say of a sparse file.
#[derive(Default, Debug)]
pub(crate) struct Map {
    name: Option<String>,
    size: u64,
    /// Offset and length of each piece, one after another.
    numbers: Vec<u64>,
    /// The numbers stand before the pieces.
    is_in_content: bool,
}

impl Map {
    /// Reads a header's records. None if they are of no sparse file.
    pub(crate) fn of(records: impl Iterator<Item = (String, String)>) -> Option<Self> {
        let (mut map, mut is_sparse) = (Self::default(), false);
        for (key, value) in records {
            let Some(key) = key.strip_prefix("GNU.sparse.") else { continue };
            is_sparse = true;
            match key {
                "name" => map.name = Some(value),
                "size" | "realsize" => map.size = value.parse().ok()?,
                "offset" | "numbytes" => map.numbers.push(value.parse().ok()?),
                "map" => map.numbers = value.split(',').map(str::parse).collect::<Result<_, _>>().ok()?,
                "major" => map.is_in_content = value == "1",
                _ => {}
            }
        }
        is_sparse.then_some(map)
    }

    /// Its own name: that of the header is made up.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Bytes of the whole file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The whole file, with zeros in its holes. None if the map leads out of the file, or does not name what is stored.
    pub(crate) fn whole(self, stored: &[u8]) -> Option<Vec<u8>> {
        let (numbers, mut pieces) = match self.is_in_content {
            true => before_pieces(stored)?,
            false => (self.numbers, stored),
        };
        let mut whole = vec![0; usize::try_from(self.size).ok()?];
        let (pairs, []) = numbers.as_chunks::<2>() else { return None };
        for [offset, length] in pairs {
            let (offset, length) = (usize::try_from(*offset).ok()?, usize::try_from(*length).ok()?);
            let (piece, rest) = pieces.split_at_checked(length)?;
            whole.get_mut(offset..offset.checked_add(length)?)?.copy_from_slice(piece);
            pieces = rest;
        }
        pieces.is_empty().then_some(whole)
    }
}

/// The numbers that stand before the pieces, and the pieces: how many there are, then offset and length of each, a line
/// each.
fn before_pieces(stored: &[u8]) -> Option<(Vec<u64>, &[u8])> {
    let mut lines = stored.split_inclusive(|byte| *byte == b'\n');
    let mut bytes = 0;
    let mut next = || {
        let line = lines.next()?.strip_suffix(b"\n")?;
        bytes += line.len() + 1;
        std::str::from_utf8(line).ok()?.parse::<u64>().ok()
    };
    let count = next()?.checked_mul(2)?;
    let numbers = (0..count).map(|_| next()).collect::<Option<Vec<_>>>()?;
    stored.get(bytes.next_multiple_of(BLOCK_BYTES)..).map(|pieces| (numbers, pieces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Contents, Limits, of_bytes};

    const LIMITS: Limits = Limits { file_bytes: 1000, total_bytes: 2000, files: 3, depth: 2 };

    /// Names and values of a header.
    type Records<'a> = &'a [(&'a str, &'a str)];

    /// An archive of a file with these records and stored bytes.
    fn of(records: Records<'_>, stored: &[u8]) -> Contents {
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_pax_extensions(records.iter().map(|(key, value)| (*key, value.as_bytes()))).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(stored.len() as u64);
        builder.append_data(&mut header, "x/GNUSparseFile.7/a", stored).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        builder.append_data(&mut header, "b", &b"b"[..]).unwrap();
        of_bytes(&builder.into_inner().unwrap(), &LIMITS).unwrap()
    }

    #[test]
    fn every_version_gives_the_whole_file() {
        let whole = [&[0; 3][..], b"ab", &[0; 5], b"cde", &[0; 7]].concat();
        let versions: [(Records<'_>, Vec<u8>); 3] = [
            (
                &[
                    ("GNU.sparse.size", "20"),
                    ("GNU.sparse.numblocks", "2"),
                    ("GNU.sparse.offset", "3"),
                    ("GNU.sparse.numbytes", "2"),
                    ("GNU.sparse.offset", "10"),
                    ("GNU.sparse.numbytes", "3"),
                    ("GNU.sparse.name", "x/a"),
                ],
                b"abcde".to_vec(),
            ),
            (
                &[("GNU.sparse.size", "20"), ("GNU.sparse.map", "3,2,10,3"), ("GNU.sparse.name", "x/a")],
                b"abcde".to_vec(),
            ),
            (
                &[
                    ("GNU.sparse.major", "1"),
                    ("GNU.sparse.minor", "0"),
                    ("GNU.sparse.name", "x/a"),
                    ("GNU.sparse.realsize", "20"),
                ],
                [&b"2\n3\n2\n10\n3\n"[..], &[0; BLOCK_BYTES - 11], b"abcde"].concat(),
            ),
        ];
        for (records, stored) in versions {
            let found = of(records, &stored);
            assert_eq!((found.files.get("x/a"), found.notes.len()), (Some(&whole), 0), "{records:?} {:?}", found.notes);
        }
    }

    #[test]
    fn maps_that_make_no_sense_are_noted() {
        for (map, stored) in [
            ("3,2,19,3", &b"abcde"[..]),
            ("3,2,10", b"abcde"),
            ("3,2,10,3", b"abcd"),
            ("3,2,10,3", b"abcdef"),
            ("3,18446744073709551615", b"abcd"),
        ] {
            let found = of(&[("GNU.sparse.size", "20"), ("GNU.sparse.map", map), ("GNU.sparse.name", "a")], stored);
            assert_eq!(found.files.keys().collect::<Vec<_>>(), ["b"], "{map}");
            assert!(found.notes[0].starts_with("a is a sparse file"), "{map}: {:?}", found.notes);
        }
        let long = of(&[("GNU.sparse.size", "1001"), ("GNU.sparse.name", "a")], b"");
        assert_eq!(long.notes, ["a has more than 1000 bytes, and is not read"]);
        assert!(before_pieces(b"18446744073709551615\n1\n").is_none() && before_pieces(b"1\n2\n").is_none());
    }
}

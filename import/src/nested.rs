//! Archives within archives, and files that are compressed each by itself: `results.zip` in a tar archive, `fio.json.gz`.

use crate::archive::{ArchiveError, Contents, Limits, add, bounded, outer_of_bytes, packed_with};
use crate::packed::Packing;
use crate::zipped;

/// Most archives around a file, without the outermost.
const LEVELS_MAX: usize = 3;

/// The endings of names whose files may be packed with what is not read; the first bytes of others may look so by chance.
const ENDINGS: [&str; 8] = ["7z", "lz4", "rar", "lz", "Z", "lzma", "lzo", "cpio"];

/// Whether a file is an archive, or compressed.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    Packing::of(bytes) != Packing::Plain || bytes.starts_with(zipped::MAGIC) || bytes.get(257..262) == Some(b"ustar")
}

/// Puts what archives hold in their place, each below its archive's name. What cannot be read is a note.
pub(crate) fn unpacked(mut contents: Contents, limits: &Limits) -> Contents {
    for _ in 0..LEVELS_MAX {
        let packed = archives(&contents);
        if packed.is_empty() {
            break;
        }
        for name in packed {
            let Some(bytes) = contents.files.remove(&name) else { continue };
            if let Err(error) = one(&mut contents, limits, &name, &bytes) {
                contents.note(format!("{name} {error}"));
            }
        }
    }
    for name in archives(&contents) {
        contents.files.remove(&name);
        contents.note(format!("{name} is an archive within {LEVELS_MAX} others, and is not read; valid: unpack it"));
    }
    let of_others = |(name, bytes): (&String, &Vec<u8>)| {
        let with = packed_with(bytes)?;
        let ending = name.rsplit_once('.')?.1;
        ENDINGS.contains(&ending).then(|| format!("{name} {}", ArchiveError::Packed(with)))
    };
    let notes: Vec<String> = contents.files.iter().filter_map(of_others).collect();
    notes.into_iter().for_each(|note| contents.note(note));
    contents
}

fn archives(contents: &Contents) -> Vec<String> {
    contents.files.iter().filter(|(_, bytes)| is_archive(bytes)).map(|(name, _)| name.clone()).collect()
}

fn one(contents: &mut Contents, limits: &Limits, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
    let packing = Packing::of(bytes);
    match outer_of_bytes(bytes, limits) {
        Ok(inner) => contents.take(name, inner, limits),
        Err(ArchiveError::NoArchive | ArchiveError::Io(_)) if packing != Packing::Plain => {
            let plain = bounded(packing.reader(bytes), limits)?;
            let unpacked = packing.unpacked_name(name);
            // The same may stand beside it as it is.
            let name = if contents.files.contains_key(unpacked) { name } else { unpacked };
            add(contents, limits, name.to_owned(), plain)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::of_bytes;
    use flate2::{Compression, write::GzEncoder};
    use std::io::{Cursor, Write};
    use zip::{ZipWriter, write::SimpleFileOptions};

    const LIMITS: Limits = Limits { file_bytes: 20_000, total_bytes: 60_000, files: 20, depth: 2 };

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in files {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    /// The names of all files, and the notes.
    fn of(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
        let found = of_bytes(bytes, &LIMITS).unwrap();
        (found.files.into_keys().collect(), found.notes)
    }

    #[test]
    fn the_only_file_of_what_is_packed_is_found() {
        let only = |bytes: &[u8]| crate::archive::only_file(bytes, &LIMITS);
        assert_eq!(only(&gzip(b"reading")).as_deref(), Some(&b"reading"[..]));
        assert_eq!(only(&gzip(&tar(&[("a", b"x")]))).as_deref(), Some(&b"x"[..]));
        assert_eq!(only(&tar(&[("a", b"x"), ("b", b"y")])), None, "which of the two is not known");
        let cut = &tar(&[("a", b"x"), ("b", &[b'y'; 600])])[..1700];
        assert_eq!(of(cut).0, ["a"]);
        assert_eq!(only(cut), None, "others were cut off");
    }

    #[test]
    fn archives_within_archives_and_compressed_files_are_read() {
        let inner = gzip(&tar(&[("a/fio.json", b"{}")]));
        let alone = gzip(b"{}");
        let outer = zip(&[("run.tar.gz", &inner), ("b/fio.json.gz", &alone), ("c.json", b"{}"), ("c.json.gz", &alone)]);
        let names = ["b/fio.json", "c.json", "c.json.gz", "run.tar.gz/a/fio.json"];
        assert_eq!(of(&outer), (names.map(String::from).into(), Vec::new()));
        let names = names.map(|name| format!("all.zip/{name}"));
        assert_eq!(of(&tar(&[("all.zip", &outer)])), (names.into(), Vec::new()));
    }

    #[test]
    fn archives_within_too_many_and_damaged_ones_are_notes() {
        let mut deep = zip(&[("x", b"{}")]);
        for _ in 0..4 {
            deep = zip(&[("a.zip", &deep), ("y", b"{}")]);
        }
        let (names, notes) = of(&deep);
        assert_eq!(names.len(), 4);
        assert_eq!(notes, ["a.zip/a.zip/a.zip/a.zip is an archive within 3 others, and is not read; valid: unpack it"]);
        let (names, notes) = of(&tar(&[("a.gz", b"\x1f\x8bdamaged"), ("b", b"{}"), ("c.lz4", b"\x04\x22\x4d\x18")]));
        assert_eq!((names, notes.len()), (vec!["b".to_owned(), "c.lz4".to_owned()], 2), "{notes:?}");
        assert!(notes[0].starts_with("a.gz cannot be read") && notes[1].starts_with("c.lz4 is packed with lz4"));
    }

    #[test]
    fn limits_hold_for_all_archives_together() {
        let one = zip(&[("x", &[b' '; 15_000])]);
        let archives: Vec<(String, &[u8])> = (0..9).map(|number| (format!("{number}.zip"), &one[..])).collect();
        let archives: Vec<(&str, &[u8])> = archives.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        let (names, notes) = of(&tar(&archives));
        assert!(names.len() < 9 && notes.iter().any(|note| note.ends_with("holds more than 60000 bytes")), "{notes:?}");
    }
}

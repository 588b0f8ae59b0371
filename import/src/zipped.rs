//! The files of a zip archive, whole or cut off.

use crate::archive::{ArchiveError, Contents, Limits, add, bounded, name, shown};
use crate::tarred::link;
use crate::zip_parts::one_by_one;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use tar::EntryType;
use zip::read::ZipFile;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

/// How a zip archive begins; one without files, or in parts, begins otherwise.
pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";

/// Links by their path, with what they point to.
type Links = Vec<(String, String)>;

/// Reads an archive by its list of files, which stands at its end; where that is missing, each file behind the other.
///
/// # Errors
/// There is no file in it that can be read, or it exceeds a limit. What cannot be read is a note.
pub(crate) fn zip(mut reader: impl Read + Seek, limits: &Limits) -> Result<Contents, ArchiveError> {
    let bytes = reader.seek(SeekFrom::End(0))?;
    if bytes > limits.total_bytes {
        return Err(ArchiveError::TooMuch("bytes", limits.total_bytes));
    }
    let (mut contents, mut links) = (Contents::default(), Links::new());
    let listed = ZipArchive::new(&mut reader).ok().map(|archive| listed(archive, limits, &mut contents, &mut links));
    if listed.transpose()?.is_none() {
        reader.seek(SeekFrom::Start(0))?;
        contents.note("the archive is cut off or damaged; its files are read up to there".to_owned());
        one_by_one(BufReader::new(reader), limits, &mut contents)?;
    }
    for (path, target) in links {
        link(&mut contents, limits, EntryType::Symlink, Path::new(&path), Path::new(&target))?;
    }
    match contents.files.is_empty() {
        false => Ok(contents),
        true => Err(ArchiveError::Unreadable(contents.notes.pop().unwrap_or_else(|| "it has no files".to_owned()))),
    }
}

fn listed(
    mut archive: ZipArchive<impl Read + Seek>,
    limits: &Limits,
    contents: &mut Contents,
    links: &mut Links,
) -> Result<(), ArchiveError> {
    if archive.len() > limits.files {
        return Err(ArchiveError::TooMuch("files", limits.files as u64));
    }
    for index in 0..archive.len() {
        let raw = archive.by_index_raw(index).ok();
        let shown =
            raw.map_or_else(|| format!("file {index}"), |file| String::from_utf8_lossy(file.name_raw()).into_owned());
        match archive.by_index(index) {
            Ok(file) => {
                if let Err(why) = one(file, limits, contents, links)? {
                    contents.note(format!("{shown} cannot be read: {why}"));
                }
            }
            Err(error) => contents.note(format!("{shown} cannot be read: {}", why(&error))),
        }
    }
    Ok(())
}

/// Adds a file; the inner error says what is wrong with its content.
fn one(
    file: ZipFile<'_, impl Read>,
    limits: &Limits,
    contents: &mut Contents,
    links: &mut Links,
) -> Result<Result<(), String>, ArchiveError> {
    if file.is_dir() {
        return Ok(Ok(()));
    }
    let is_link = file.is_symlink();
    let name = match file.name() {
        // Archivers of Windows have written backslashes.
        Ok(path) => name(Path::new(&path.replace('\\', "/")))?,
        Err(_) => name(Path::new(&shown(file.name_raw())))?,
    };
    let method = file.compression();
    if !matches!(method, CompressionMethod::Stored | CompressionMethod::Deflated) {
        return Ok(Err(format!("it is compressed by {method:?}; valid: stored, or deflate")));
    }
    if file.size() > limits.file_bytes {
        contents.note_long(&name, limits);
        return Ok(Ok(()));
    }
    match bounded(file, limits) {
        // Its content is what it points to.
        Ok(bytes) if is_link => {
            links.push((name, shown(&bytes)));
            Ok(Ok(()))
        }
        Ok(bytes) => add(contents, limits, name, bytes).map(Ok),
        // It is longer than it says.
        Err(ArchiveError::TooMuch(..)) => contents.pass(&name, limits.file_bytes, limits).map(Ok),
        Err(ArchiveError::Io(error)) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

fn why(error: &ZipError) -> String {
    match error {
        ZipError::CompressionMethodNotSupported(method) => {
            format!("it is compressed by method {method}; valid: stored, or deflate")
        }
        ZipError::UnsupportedArchive(why) if *why == ZipError::PASSWORD_REQUIRED => {
            "it is encrypted; valid: an archive without a password".to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    const SMALL: Limits = Limits { file_bytes: 100, total_bytes: 2000, files: 3, depth: 2 };

    fn packed(files: &[(&str, usize)], method: CompressionMethod) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in files {
            writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
            writer.write_all(&vec![b'x'; *bytes]).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn of(bytes: &[u8]) -> Result<Contents, ArchiveError> {
        zip(Cursor::new(bytes), &SMALL)
    }

    #[test]
    fn files_are_read_whatever_their_paths_look_like() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let found = of(&packed(&[("a/", 0), ("a\\b", 3), ("./c", 0)], method)).unwrap();
            assert_eq!(found.files.keys().collect::<Vec<_>>(), ["a/b", "c"], "{:?}", found.notes);
            assert_eq!(found.files["a/b"], b"xxx");
        }
    }

    #[test]
    fn limits_hold() {
        let refused =
            |files: &[(&str, usize)]| of(&packed(files, CompressionMethod::Deflated)).unwrap_err().to_string();
        assert_eq!(refused(&[("a", 101)]), "cannot be read: a has more than 100 bytes, and is not read");
        assert_eq!(refused(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]), "holds more than 3 files");
        assert!(refused(&[("../a", 1)]).contains("leads out of it"));
        assert_eq!(refused(&[]), "cannot be read: it has no files");
        let long = packed(&[("a", 2000)], CompressionMethod::Stored);
        assert_eq!(of(&long).unwrap_err().to_string(), "holds more than 2000 bytes");
    }

    #[test]
    fn links_are_what_they_point_to() {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default();
        writer.add_symlink("x/latest", "../y/a", options).unwrap();
        writer.add_symlink("x/dev/disk/by-id/d", "../../sda", options).unwrap();
        writer.start_file("y/a", options).unwrap();
        writer.write_all(b"content").unwrap();
        let found = of(&writer.finish().unwrap().into_inner()).unwrap();
        assert_eq!((found.files.get("x/latest"), found.notes.len()), (found.files.get("y/a"), 0), "{:?}", found.notes);
        assert_eq!((found.files.len(), found.links.target("/dev/disk/by-id/d")), (2, Some("/dev/sda")));
    }

    #[test]
    fn what_precedes_a_damage_is_kept() {
        let whole = packed(&[("a", 10), ("b", 90)], CompressionMethod::Stored);
        let b = whole.windows(90).position(|window| window == [b'x'; 90]).unwrap();
        let cut = of(&whole[..b + 20]).unwrap();
        assert_eq!(cut.files.keys().collect::<Vec<_>>(), ["a"]);
        assert!(cut.notes.join("\n").contains("b is cut off"), "{:?}", cut.notes);
        let mut changed = whole.clone();
        changed[b] = b'y';
        let found = of(&changed).unwrap();
        assert!(found.files.len() == 1 && found.notes[0].starts_with("b cannot be read"), "{:?}", found.notes);
        for length in 0..whole.len() {
            let _ = of(&whole[..length]);
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = of(&changed);
        }
    }

    #[test]
    fn what_packs_otherwise_is_named() {
        let mut whole = packed(&[("a", 10)], CompressionMethod::Stored);
        // The method, in the file's head and in the list: bzip2.
        whole[8] = 12;
        let list = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        whole[list + 10] = 12;
        let error = of(&whole).unwrap_err().to_string();
        assert!(
            error.contains("a cannot be read: it is compressed by ") && error.ends_with("; valid: stored, or deflate"),
            "{error}"
        );
        let mut whole = packed(&[("a", 10)], CompressionMethod::Stored);
        whole[6] |= 1;
        whole[list + 8] |= 1;
        let error = of(&whole).unwrap_err().to_string();
        assert!(error.contains("encrypted"), "{error}");
    }
}

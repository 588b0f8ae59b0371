//! The files of a tar archive, whole or cut off.

use crate::archive::{self, ArchiveError, Contents, Limits, add, bounded, name};
use crate::links::joined;
use crate::sparse::Map;
use std::io::{self, Read};
use std::path::Path;
use tar::EntryType;

/// Reads an archive up to its end, or to a damage.
///
/// # Errors
/// It is no archive, or exceeds a limit. A damaged end is a note.
pub(crate) fn tar(reader: impl Read, limits: &Limits) -> Result<Contents, ArchiveError> {
    let mut contents = Contents::default();
    let mut archive = tar::Archive::new(reader);
    let is_whole = files(&mut archive, limits, &mut contents)?;
    // What compresses an archive has its checksum at the end.
    if is_whole && let Err(error) = io::copy(&mut archive.into_inner(), &mut io::sink()) {
        contents.note(format!("the archive's end is damaged ({error}); its files may be too"));
    }
    match (contents.files.is_empty(), contents.notes.pop()) {
        (true, Some(why)) => Err(ArchiveError::Unreadable(why)),
        (true, None) => Err(ArchiveError::NoArchive),
        (false, last) => {
            contents.notes.extend(last);
            Ok(contents)
        }
    }
}

/// Reads the files up to the end (true), or to a damage, which is noted.
fn files(
    archive: &mut tar::Archive<impl Read>,
    limits: &Limits,
    contents: &mut Contents,
) -> Result<bool, ArchiveError> {
    let (mut links, mut is_whole) = (Vec::new(), true);
    for entry in archive.entries()? {
        let read = entry.and_then(|entry| {
            let path = entry.path()?.into_owned();
            let target = entry.link_name()?.map(|target| target.into_owned());
            Ok((path, target, entry))
        });
        let (path, target, entry) = match read {
            Ok(read) => read,
            Err(_) if contents.files.is_empty() && contents.notes.is_empty() => return Err(ArchiveError::NoArchive),
            Err(error) => {
                contents.note(format!(
                    "the archive is damaged behind the files that were read ({}): {error}",
                    contents.files.len()
                ));
                is_whole = false;
                break;
            }
        };
        match (entry.header().entry_type(), target) {
            (EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse, _) => {}
            (kind @ (EntryType::Link | EntryType::Symlink), Some(target)) if links.len() < limits.files => {
                links.push((kind, path, target));
                continue;
            }
            _ => continue,
        }
        if !one(&path, entry, limits, contents)? {
            is_whole = false;
            break;
        }
    }
    for (kind, path, target) in links {
        link(contents, limits, kind, &path, &target)?;
    }
    Ok(is_whole)
}

/// Adds a file. False if the archive ends within it.
fn one(
    path: &Path,
    mut entry: tar::Entry<'_, impl Read>,
    limits: &Limits,
    contents: &mut Contents,
) -> Result<bool, ArchiveError> {
    let map = entry.pax_extensions().ok().flatten().and_then(|records| {
        Map::of(
            records
                .flatten()
                .filter_map(|record| Some((record.key().ok()?.to_owned(), record.value().ok()?.to_owned()))),
        )
    });
    let name = match map.as_ref().and_then(Map::name) {
        Some(whole) => name(Path::new(whole))?,
        None => name(path)?,
    };
    let size = entry.size();
    if size > limits.file_bytes || map.as_ref().is_some_and(|map| map.size() > limits.file_bytes) {
        contents.pass(&name, size, limits)?;
        return Ok(true);
    }
    match bounded(entry, limits) {
        Ok(bytes) if (bytes.len() as u64) < size => {
            contents.note(format!("{name} is cut off, and all that follows is missing"));
            Ok(false)
        }
        Ok(bytes) => {
            let whole = match map {
                Some(map) => map.whole(&bytes),
                None => Some(bytes),
            };
            match whole {
                Some(bytes) => add(contents, limits, name, bytes)?,
                None => contents
                    .note(format!("{name} is a sparse file whose map makes no sense; valid: tar without --sparse")),
            }
            Ok(true)
        }
        Err(ArchiveError::Io(error)) => {
            contents.note(format!("{name} is cut off: {error}"));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Adds what a link points to: a file of the archive, or a drive. A hard link names it from the archive's root on, and a
/// symbolic one from its own folder on.
pub(crate) fn link(
    contents: &mut Contents,
    limits: &Limits,
    kind: EntryType,
    path: &Path,
    target: &Path,
) -> Result<(), ArchiveError> {
    let [shown, points_to] = [path, target].map(|path| archive::shown(path.as_os_str().as_encoded_bytes()));
    let (shown, points_to) = (shown.as_str(), points_to.as_str());
    let folder = match kind {
        EntryType::Link => "",
        _ => shown.rsplit_once('/').map_or("", |(folder, _)| folder),
    };
    let whole = joined(folder, points_to);
    let is_folder = || contents.files.keys().any(|name| name.starts_with(&format!("{whole}/")));
    match contents.files.get(&whole).cloned() {
        Some(bytes) => add(contents, limits, name(path)?, bytes),
        None if is_folder() => Ok(()),
        None => {
            contents.link(shown, points_to);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::MultiGzDecoder;
    use flate2::write::GzEncoder;
    use std::io::{Cursor, Write};

    const SMALL: Limits = Limits { file_bytes: 100, total_bytes: 1000, files: 5, depth: 2 };

    fn packed(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, text) in entries {
            let mut header = tar::Header::new_gnu();
            let is_link = matches!(kind, EntryType::Link | EntryType::Symlink);
            header.set_entry_type(*kind);
            if is_link {
                header.set_link_name(text).unwrap();
            }
            let bytes = if is_link { &[] } else { text.as_bytes() };
            header.set_size(bytes.len() as u64);
            header.set_path(name).unwrap();
            header.set_cksum();
            builder.append(&header, bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn of(entries: &[(&str, EntryType, &str)]) -> Contents {
        tar(Cursor::new(packed(entries)), &SMALL).unwrap()
    }

    #[test]
    fn links_are_what_they_point_to() {
        let found = of(&[
            ("x/latest", EntryType::Symlink, "../y/a"),
            ("y/a", EntryType::Regular, "content"),
            ("x/b", EntryType::Link, "y/a"),
            ("x/dev/disk/by-id/d", EntryType::Symlink, "../../sda"),
            ("z", EntryType::Symlink, "y"),
            ("x/lost", EntryType::Symlink, "/etc/passwd"),
        ]);
        assert_eq!(found.files.keys().collect::<Vec<_>>(), ["x/b", "x/latest", "y/a"]);
        assert_eq!(found.links.target("/dev/disk/by-id/d"), Some("/dev/sda"));
        assert_eq!(found.notes, ["x/lost is a link to /etc/passwd, which is not in the archive"]);
    }

    #[test]
    fn a_wrong_checksum_is_noted() {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&packed(&[("a", EntryType::Regular, "content")])).unwrap();
        let mut whole = packer.finish().unwrap();
        let of = |bytes: &[u8]| tar(MultiGzDecoder::new(bytes), &SMALL);
        assert_eq!(of(&whole).unwrap().notes, [""; 0]);
        let checksum = whole.len() - 8;
        whole[checksum] ^= 1;
        let found = of(&whole).unwrap();
        assert!(found.files.len() == 1 && found.notes[0].contains("end is damaged"), "{:?}", found.notes);
        let cut = packed(&[("a", EntryType::Regular, "content")]);
        let error = tar(Cursor::new(&cut[..515]), &SMALL).unwrap_err().to_string();
        assert!(error.contains("a is cut off"), "{error}");
    }

    #[test]
    fn files_of_each_kind_are_read_and_those_of_macos_are_not() {
        let found = of(&[
            ("__MACOSX/a/._b", EntryType::Regular, "x"),
            ("a/._b", EntryType::Regular, "x"),
            ("a/b", EntryType::Continuous, "y"),
        ]);
        assert_eq!(found.files.keys().collect::<Vec<_>>(), ["a/b"]);
        assert!(found.notes.is_empty(), "{:?}", found.notes);
    }
}

//! The files of an archive or a folder, read into memory within limits.

use crate::fio_json::FioOutput;
use crate::links::Links;
use crate::nested;
use crate::packed::Packing;
use crate::tarred::tar;
use crate::zipped;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Component, Path};

/// Limits on what is read. An archive from a stranger may unpack to anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Of one file. Longer ones are noted, and not read: fio makes such files for its I/Os.
    pub file_bytes: u64,
    /// Of all files together.
    pub total_bytes: u64,
    /// Files.
    pub files: usize,
    /// Folders within folders.
    pub depth: usize,
}

impl Limits {
    /// Far above a real server's: 256 MiB in 100,000 files.
    pub const SERVER: Self = Self { file_bytes: 64 << 20, total_bytes: 256 << 20, files: 100_000, depth: 16 };

    /// Bytes that an archive may unpack to in files that are too long.
    fn passed_bytes(&self) -> u64 {
        self.total_bytes.saturating_mul(8)
    }
}

/// Why an archive is not read.
#[derive(Debug)]
pub enum ArchiveError {
    /// The system's error.
    Io(io::Error),
    /// It is neither a folder, nor a tar archive, plain or compressed, nor a zip archive.
    NoArchive,
    /// It is an archive without a file that can be read: why.
    Unreadable(String),
    /// It is packed with this program, whose form is not read.
    Packed(&'static str),
    /// It holds more than a limit: what, and the limit.
    TooMuch(&'static str, u64),
    /// A path leads out of the archive.
    Path(String),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read ({error})"),
            Self::Packed(with) => {
                write!(
                    f,
                    "is packed with {with}, which is not read; unpack it and give the folder, or pack it as .tar.gz, .tar.xz, .tar.zst or .zip"
                )
            }
            Self::NoArchive => f.write_str("is neither a folder nor an archive, nor an output of fio's"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::TooMuch(what, most) => write!(f, "holds more than {most} {what}"),
            Self::Path(path) => write!(f, "holds the path {path:?}, which leads out of it"),
        }
    }
}

impl std::error::Error for ArchiveError {}

impl From<io::Error> for ArchiveError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How files of other packers begin. Sources: the formats' own descriptions.
const PACKED: [(&[u8], &str); 8] = [
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"LZIP", "lzip"),
    (b"\x1f\x9d", "compress"),
    (b"\x5d\0\0", "lzma"),
    (b"\x89LZO", "lzop"),
    (b"07070", "cpio"),
];

/// Files by their path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The files and, if the archive is cut off or damaged, what is wrong with its rest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// What could be read.
    pub files: Files,
    /// Links to drives.
    pub links: Links,
    /// What is missing.
    pub notes: Vec<crate::Note>,
    /// Bytes of all files.
    total_bytes: u64,
    /// Bytes of files that were too long.
    passed_bytes: u64,
}

impl Contents {
    /// Notes what is missing; of very many files, the first.
    pub(crate) fn note(&mut self, note: crate::Note) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// Notes a file that is too long.
    pub(crate) fn note_long(&mut self, name: &str, limits: &Limits) {
        self.note(format!("{name} has more than {} bytes, and is not read", limits.file_bytes));
    }

    /// Notes a file that is too long, and whose bytes had to be unpacked.
    pub(crate) fn pass(&mut self, name: &str, bytes: u64, limits: &Limits) -> Result<(), ArchiveError> {
        self.note_long(name, limits);
        self.passed_bytes = self.passed_bytes.saturating_add(bytes);
        match self.passed_bytes <= limits.passed_bytes() {
            true => Ok(()),
            false => Err(ArchiveError::TooMuch("bytes in files that are too long", limits.passed_bytes())),
        }
    }

    /// Adds what the archive `within` holds, below its name.
    pub(crate) fn take(&mut self, within: &str, inner: Self, limits: &Limits) -> Result<(), ArchiveError> {
        self.passed_bytes = self.passed_bytes.saturating_add(inner.passed_bytes);
        if self.passed_bytes > limits.passed_bytes() {
            return Err(ArchiveError::TooMuch("bytes in files that are too long", limits.passed_bytes()));
        }
        inner.notes.into_iter().for_each(|note| self.note(format!("{within}: {note}")));
        self.links.extend(&inner.links);
        inner.files.into_iter().try_for_each(|(name, bytes)| add(self, limits, format!("{within}/{name}"), bytes))
    }

    /// Adds a link whose content is not in the archive.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        if target.contains('/') && format!("/{path}").contains("/dev/") {
            self.links.add(path, target);
        } else {
            self.note(format!("{path} is a link to {target}, which is not in the archive"));
        }
    }
}

/// Most notes on single files.
const NOTES_MAX: usize = 100;

impl From<Files> for Contents {
    fn from(files: Files) -> Self {
        Self { files, ..Self::default() }
    }
}

/// Reads a folder, a tar archive, or a single output of fio's; the latter two may be compressed with gzip, bzip2, xz or zstd.
/// Or a zip archive. Archives within are read too, and so are files that are compressed each by itself.
///
/// # Errors
/// It cannot be read at all, or exceeds a limit. A damaged end is a note.
pub fn read(path: &Path, limits: &Limits) -> Result<Contents, ArchiveError> {
    outer(path, limits).map(|contents| nested::unpacked(contents, limits))
}

/// As [`read`], without what archives within hold.
fn outer(path: &Path, limits: &Limits) -> Result<Contents, ArchiveError> {
    let mut contents = Contents::default();
    if path.is_dir() {
        folder(path, path, limits, 0, &mut contents)?;
        return Ok(contents);
    }
    let mut magic = Vec::new();
    std::fs::File::open(path)?.take(8).read_to_end(&mut magic)?;
    if let Some(with) = packed_with(&magic) {
        return Err(ArchiveError::Packed(with));
    }
    let file = std::fs::File::open(path)?;
    if magic.starts_with(zipped::MAGIC) {
        return zipped::zip(file, limits);
    }
    let packing = Packing::of(&magic);
    match unpacked(packing, file, limits) {
        found @ Err(ArchiveError::NoArchive | ArchiveError::Io(_)) => lone(path, packing, limits).map_or(found, Ok),
        found => found,
    }
}

/// The program that packed a file, if its form is not read.
pub(crate) fn packed_with(start: &[u8]) -> Option<&'static str> {
    PACKED.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, with)| *with)
}

/// Reads a tar archive that may be compressed.
fn unpacked(packing: Packing, file: impl Read, limits: &Limits) -> Result<Contents, ArchiveError> {
    // Headers count too: an archive of nothing but headers must end as well.
    let most = limits.total_bytes + limits.passed_bytes() + limits.files as u64 * 2048;
    let mut content = packing.reader(file).take(most);
    let mut head = Vec::new();
    content.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| packing.wrong(error))?;
    tar(head.chain(content), limits)
}

/// A tar archive's first header.
const HEAD_BYTES: u64 = 512;

/// A single output of fio's, in place of an archive; or an archive that was compressed once more.
fn lone(path: &Path, packing: Packing, limits: &Limits) -> Option<Contents> {
    let file = std::fs::File::open(path).ok()?;
    let bytes = bounded(packing.reader(file), limits).ok()?;
    if !(packing != Packing::Plain && nested::is_archive(&bytes)) {
        FioOutput::parse(&bytes).ok()?;
    }
    let name = packing.unpacked_name(path.file_name()?.to_str()?).to_owned();
    Some(Contents::from(Files::from([(name, bytes)])))
}

/// Reads the bytes of a tar archive that may be compressed, or of a zip archive.
///
/// # Errors
/// As [`read`].
pub fn of_bytes(bytes: &[u8], limits: &Limits) -> Result<Contents, ArchiveError> {
    outer_of_bytes(bytes, limits).map(|contents| nested::unpacked(contents, limits))
}

/// The only file in what is compressed, or in an archive. None if there are several, or perhaps others that are not read.
pub fn only_file(bytes: &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let packed = Contents::from(Files::from([("file".to_owned(), bytes.to_vec())]));
    let found = nested::unpacked(packed, limits);
    let mut files = found.files.into_values();
    files.next().filter(|_| files.next().is_none() && found.notes.is_empty())
}

/// As [`of_bytes`], without what archives within hold.
pub(crate) fn outer_of_bytes(bytes: &[u8], limits: &Limits) -> Result<Contents, ArchiveError> {
    if bytes.starts_with(zipped::MAGIC) {
        return zipped::zip(io::Cursor::new(bytes), limits);
    }
    unpacked(Packing::of(bytes), bytes, limits)
}

fn folder(
    root: &Path,
    path: &Path,
    limits: &Limits,
    depth: usize,
    contents: &mut Contents,
) -> Result<(), ArchiveError> {
    if depth > limits.depth {
        return Err(ArchiveError::TooMuch("folders within folders", limits.depth as u64));
    }
    let mut entries: Vec<_> = std::fs::read_dir(path)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            folder(root, &entry.path(), limits, depth + 1, contents)?;
        } else if kind.is_file() {
            one(root, &entry.path(), limits, contents)?;
        } else if kind.is_symlink() {
            link(root, &entry.path(), limits, contents)?;
        }
    }
    Ok(())
}

/// Adds a file of a folder.
fn one(root: &Path, path: &Path, limits: &Limits, contents: &mut Contents) -> Result<(), ArchiveError> {
    let below = path.strip_prefix(root).unwrap_or(path);
    let name = name(below)?;
    if path.metadata().is_ok_and(|data| data.len() > limits.file_bytes) {
        contents.note_long(&name, limits);
        return Ok(());
    }
    match std::fs::File::open(path).map_err(ArchiveError::from).and_then(|file| bounded(file, limits)) {
        Ok(bytes) => add(contents, limits, name, bytes),
        Err(ArchiveError::Io(error)) => {
            contents.note(format!("{name} cannot be read ({error})"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Adds what a link of a folder points to: a file of the same folder, or a drive.
fn link(root: &Path, path: &Path, limits: &Limits, contents: &mut Contents) -> Result<(), ArchiveError> {
    let below = path.strip_prefix(root).unwrap_or(path);
    let target = std::fs::read_link(path).unwrap_or_default();
    let whole = path.canonicalize().ok().filter(|whole| root.canonicalize().is_ok_and(|root| whole.starts_with(root)));
    match whole {
        Some(whole) if whole.is_file() => return one(root, path, limits, contents),
        // The folder that it points to is read where it stands.
        Some(_) => {}
        None => contents.link(&below.to_string_lossy(), &target.to_string_lossy()),
    }
    Ok(())
}

pub(crate) fn bounded(reader: impl Read, limits: &Limits) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    reader.take(limits.file_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limits.file_bytes {
        return Err(ArchiveError::TooMuch("bytes in a file", limits.file_bytes));
    }
    Ok(bytes)
}

pub(crate) fn add(contents: &mut Contents, limits: &Limits, name: String, bytes: Vec<u8>) -> Result<(), ArchiveError> {
    if is_of_system(&name) {
        return Ok(());
    }
    if contents.files.len() >= limits.files {
        return Err(ArchiveError::TooMuch("files", limits.files as u64));
    }
    contents.total_bytes += bytes.len() as u64;
    if contents.total_bytes > limits.total_bytes {
        return Err(ArchiveError::TooMuch("bytes", limits.total_bytes));
    }
    contents.files.insert(name, bytes);
    Ok(())
}

/// Whether a system adds such a file beside those that are meant: macOS keeps what it knows of a file as `._file`, in archives
/// also below a folder `__MACOSX`.
fn is_of_system(name: &str) -> bool {
    name.starts_with("__MACOSX/")
        || name.rsplit('/').next().is_some_and(|file| file.starts_with("._") || file == ".DS_Store")
}

/// A path below the archive's root, with `/` between its parts.
pub(crate) fn name(path: &Path) -> Result<String, ArchiveError> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(shown(part.as_encoded_bytes())),
            _ => return Err(ArchiveError::Path(path.to_string_lossy().into_owned())),
        }
    }
    Ok(parts.join("/"))
}

/// A name as text, each other byte as `\xe4`: two names stay two.
pub(crate) fn shown(name: &[u8]) -> String {
    let of_chunk = |chunk: std::str::Utf8Chunk<'_>| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii());
    name.utf8_chunks().map(of_chunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::MultiGzDecoder;
    use flate2::write::GzEncoder;
    use std::io::Write;

    const SMALL: Limits = Limits { file_bytes: 100, total_bytes: 250, files: 3, depth: 2 };

    fn packed(files: &[(&str, usize)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(*bytes as u64);
            // Set by hand: the library refuses to write a path that leads out.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, &vec![b'x'; *bytes][..]).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn of(bytes: &[u8]) -> Result<Contents, ArchiveError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read(file.path(), &SMALL)
    }

    #[test]
    fn an_archive_and_a_folder_hold_the_same() {
        let found = of(&packed(&[("./a/b", 3), ("c", 0)])).unwrap();
        assert_eq!(found.files.keys().collect::<Vec<_>>(), ["a/b", "c"]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/b"), "xxx").unwrap();
        std::fs::write(folder.path().join("c"), "").unwrap();
        assert_eq!(read(folder.path(), &SMALL).unwrap().files, found.files);
    }

    #[test]
    fn other_packers_are_named() {
        for (start, with) in PACKED {
            let error = of(&[start, &[7; 600]].concat()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("is packed with {with}")), "{error}");
        }
        assert!(matches!(of(b""), Err(ArchiveError::NoArchive)));
    }

    #[test]
    fn an_output_alone_is_an_archive_of_one_file() {
        let fio = b"{\"jobs\": [{\"jobname\": \"a\"}]}";
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(fio).unwrap();
        for bytes in [fio.to_vec(), packed.finish().unwrap()] {
            let found = of(&bytes).unwrap();
            assert_eq!(found.files.values().collect::<Vec<_>>(), [fio]);
        }
        let long = [&fio[..], &[b' '; 100]].concat();
        assert!(matches!(of(&long), Err(ArchiveError::NoArchive | ArchiveError::Io(_))), "longer than a file may be");
    }

    #[cfg(unix)]
    #[test]
    fn names_that_are_no_text_are_read_by_their_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"M\xe4rz"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("a"), "x").unwrap();
        std::fs::write(path.join(std::ffi::OsStr::from_bytes(b"\xff")), "y").unwrap();
        let found = read(folder.path(), &SMALL).unwrap();
        assert_eq!(found.files.keys().collect::<Vec<_>>(), ["M\\xe4rz/\\xff", "M\\xe4rz/a"]);
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_dir_all(".", folder.path()).unwrap();
        assert_eq!(of(&builder.into_inner().unwrap()).unwrap().files, found.files);
    }

    #[test]
    fn files_that_are_too_long_are_left_out() {
        let expected = ["a has more than 100 bytes, and is not read"];
        let of_tar = of(&packed(&[("a", 1500), ("b", 9)])).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), [b'x'; 1500]).unwrap();
        std::fs::write(folder.path().join("b"), [b'x'; 9]).unwrap();
        for found in [of_tar, read(folder.path(), &SMALL).unwrap()] {
            assert_eq!((found.files.len(), found.notes.as_slice()), (1, &expected.map(str::to_owned)[..]));
            assert!(found.files.contains_key("b"));
        }
    }

    #[test]
    fn limits_hold() {
        let refused = |files: &[(&str, usize)]| of(&packed(files)).unwrap_err().to_string();
        assert_eq!(refused(&[("a", 101)]), "cannot be read: a has more than 100 bytes, and is not read");
        assert_eq!(refused(&[("a", 1500), ("b", 501)]), "holds more than 2000 bytes in files that are too long");
        assert_eq!(refused(&[("a", 90), ("b", 90), ("c", 90)]), "holds more than 250 bytes");
        assert_eq!(refused(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]), "holds more than 3 files");
        assert!(refused(&[("../a", 1)]).contains("leads out of it"));
        assert!(refused(&[("/etc/a", 1)]).contains("leads out of it"));
        assert_eq!(refused(&[]), "is neither a folder nor an archive, nor an output of fio's");
        let bomb = packed(&[("a", 90), ("a", 90), ("a", 90), ("a", 90)]);
        assert!(of(&bomb).is_err(), "one name many times");
    }

    #[test]
    fn what_precedes_a_damage_is_kept() {
        let whole = packed(&[("a", 10), ("b", 90)]);
        let mut plain = Vec::new();
        MultiGzDecoder::new(&whole[..]).read_to_end(&mut plain).unwrap();
        let cut = of(&plain[..512 + 512 + 512 + 20]).unwrap();
        assert_eq!(cut.files.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(cut.notes, ["b is cut off, and all that follows is missing"]);
        for length in 0..whole.len() {
            let _ = of(&whole[..length]);
        }
        assert!(matches!(of(b"no archive at all"), Err(ArchiveError::NoArchive | ArchiveError::Io(_))));
    }
}

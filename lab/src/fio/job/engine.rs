//! How a job submits: its engine, its depth, and whether it goes through the page cache.

use super::{Options, split_names};
use crate::fio::judge::{ENGINE_DEFAULT, engine_name, refused_engine, valid_engines};
use crate::input::{InputError, Warning};
use crate::kinds::storage::IoEngine;
use crate::setting::Setting;

/// The engine of commands past the block layer, to an NVMe namespace's character device.
const PASSTHROUGH: &str = "io_uring_cmd";
/// Signs that no device's name has, but patterns and other lists have.
const OF_NO_DEVICE: [char; 11] = ['*', '?', '[', ']', '{', '}', ',', ' ', '\t', '"', '\''];
/// Such a device: `/dev/ng0n1`.
const CHARACTER_DEVICE: &str = "/dev/ng";
const CHARACTER_DEVICE_VALID: &str = "filename=/dev/ng0n1";
const NO_CHARACTER_DEVICE: &str = "is not for ioengine=io_uring_cmd, which takes a namespace's character device";

/// fio's engine of a job that names none, on Windows.
const WINDOWS_DEFAULT: &str = "windowsaio";
/// How Windows names a whole drive, with its number behind: `\\.\PhysicalDrive1`.
const OF_WINDOWS: &str = r"\\.\PhysicalDrive";

/// The drive of Windows that a name stands for, in one spelling: case does not count, nor does the direction of slashes.
fn drive_of_windows(name: &str) -> Option<String> {
    let name = name.replace('/', r"\");
    let (start, number) = name.split_at_checked(OF_WINDOWS.len())?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (start.eq_ignore_ascii_case(OF_WINDOWS) && is_number).then(|| format!("{OF_WINDOWS}{number}"))
}

/// The drive that a name stands for; none if it is a file. A namespace has two names: `/dev/nvme0n1`, and `/dev/ng0n1` for
/// commands past the block layer. Partitions are parts of their drive.
pub fn drive_of(name: &str) -> Option<String> {
    if let Some(drive) = drive_of_windows(name) {
        return Some(drive);
    }
    let below = name.strip_prefix("/dev/").filter(|below| !below.starts_with("shm/"))?;
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = below.strip_prefix("ng").filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit())) {
        return Some(format!("/dev/nvme{rest}"));
    }
    let of_nvme = below.starts_with("nvme").then(|| below.rsplit_once('p')).flatten();
    let of_nvme = of_nvme.filter(|(drive, part)| {
        is_digits(part) && drive.contains('n') && drive.ends_with(|c: char| c.is_ascii_digit())
    });
    let letters = below.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_scsi = |name: &str| {
        ["sd", "vd", "hd", "xvd"].iter().any(|kind| {
            name.strip_prefix(kind)
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase()))
        })
    };
    let of_link = below.starts_with("disk/by-").then(|| below.rsplit_once("-part")).flatten();
    let of_link = of_link.filter(|(_, part)| is_digits(part));
    let part = of_nvme.or(of_link).map(|(drive, _)| drive);
    let drive = part.or_else(|| is_scsi(letters).then_some(letters)).unwrap_or(below);
    Some(format!("/dev/{drive}"))
}

/// Whether names of files are paths of Windows: a drive's letter, or a backslash that does not escape a colon. A path that begins
/// with a slash is Linux's, whatever is in it.
fn is_of_windows(names: &str) -> bool {
    let names = names.trim();
    let has_letter = names.starts_with(|first: char| first.is_ascii_alphabetic()) && names[1..].starts_with(r"\:");
    let mut behind = names.split('\\').skip(1).filter(|behind| !behind.is_empty());
    !names.starts_with('/') && (has_letter || behind.any(|behind| !behind.starts_with(':')))
}

impl Options<'_> {
    fn engine_name(&self) -> &str {
        self.get("ioengine").map_or(self.engine_default(), |entry| engine_name(&entry.setting.text))
    }

    /// fio's default depends on its system, which the names of files tell.
    fn engine_default(&self) -> &'static str {
        let mut names = self.filenames.iter().copied().chain(self.get("directory"));
        if names.any(|entry| is_of_windows(&entry.setting.text)) { WINDOWS_DEFAULT } else { ENGINE_DEFAULT }
    }

    /// Whether its I/Os are commands that the driver passes on, which no page cache sees.
    fn passes_through(&self) -> bool {
        self.engine_name() == PASSTHROUGH
    }

    /// Whether the job says that it goes through the page cache, or that it does not.
    pub(super) fn says_direct(&self) -> bool {
        self.passes_through() || self.get("direct").is_some() || self.get("buffered").is_some()
    }

    /// `direct`, or the opposite of `buffered`; fio's default is buffered.
    pub(super) fn is_direct(&self) -> Result<bool, InputError> {
        match (self.get("direct"), self.get("buffered")) {
            (Some(entry), _) => Ok(entry.flag()? || self.passes_through()),
            (None, Some(entry)) => Ok(!entry.flag()? || self.passes_through()),
            (None, None) => Ok(true),
        }
    }

    /// fio's default is buffered I/O. A job that does not say is taken as direct.
    pub(super) fn check_direct(&self, warnings: &mut Vec<Warning>) -> Result<(), InputError> {
        if !self.says_direct() {
            self.warn(
                warnings,
                "direct",
                "not given: fio would go through the page cache, the simulated job does not (direct=1)",
            );
        }
        Ok(())
    }

    pub(super) fn engine(&self, warnings: &mut Vec<Warning>) -> Result<(IoEngine, Option<Setting>), InputError> {
        let valid = valid_engines();
        let name = match self.get("ioengine") {
            Some(entry) => engine_name(entry.text(&valid)?),
            None if self.engine_default() == WINDOWS_DEFAULT => WINDOWS_DEFAULT,
            None => {
                let meaning = format!("not given: {ENGINE_DEFAULT}, fio's default, one I/O at a time");
                self.warn(warnings, "ioengine", meaning);
                ENGINE_DEFAULT
            }
        };
        let polled_by = |polled: bool| self.get("hipri").filter(|_| polled).map(|entry| entry.setting.clone());
        match name {
            "libaio" => Ok((IoEngine::Libaio, None)),
            WINDOWS_DEFAULT => {
                let meaning = "Windows' engine, taken as libaio: the simulated system is Linux";
                self.warn(warnings, "ioengine", meaning);
                Ok((IoEngine::Libaio, None))
            }
            "io_uring" | PASSTHROUGH => {
                if name == PASSTHROUGH {
                    let meaning =
                        "taken as io_uring: a command past the block layer costs the CPU less than is simulated";
                    self.warn(warnings, "ioengine", meaning);
                }
                let polled = self.flag("hipri")?;
                let engine = IoEngine::IoUring {
                    fixed_buffers: self.flag("fixedbufs")?,
                    registered_files: self.flag("registerfiles")?,
                    polled,
                };
                Ok((engine, polled_by(polled)))
            }
            "pvsync2" => {
                let polled = self.flag("hipri")?;
                Ok((IoEngine::Sync { polled }, polled_by(polled)))
            }
            "sync" | "psync" | "pvsync" | "vsync" => Ok((IoEngine::Sync { polled: false }, None)),
            "posixaio" => {
                let meaning = "glibc serves one request of a file at a time: one I/O at a time, and the time that a \
                               request waits in its queue is not counted";
                self.warn(warnings, "ioengine", meaning);
                Ok((IoEngine::Sync { polled: false }, None))
            }
            "null" => Ok((IoEngine::Null, None)),
            _ => {
                let entry = self.get("ioengine").expect("the default is known");
                Err(refused_engine(entry).expect("all others stand above"))
            }
        }
    }

    /// `io_submit_mode=offload`: threads of the job submit, one for each I/O in flight.
    pub(super) fn offloads(&self) -> bool {
        self.get("io_submit_mode").is_some_and(|entry| entry.word() == "offload")
    }

    /// I/Os in flight: what `iodepth` says, or one for an engine that waits for each, unless other threads submit.
    pub(super) fn depth(&self, engine: IoEngine, warnings: &mut Vec<Warning>) -> Result<u32, InputError> {
        let depth = self.number("iodepth", 1, 1..=65_536)?;
        if matches!(engine, IoEngine::Libaio | IoEngine::IoUring { .. }) || depth == 1 || self.offloads() {
            return Ok(depth);
        }
        if let Some(entry) = self.get("iodepth") {
            let meaning = format!("{depth} has no effect: the engine waits for each I/O");
            warnings.push(Warning { place: entry.setting.place.clone(), key: "iodepth".into(), meaning });
        }
        Ok(1)
    }

    /// A namespace's character device takes commands alone, and commands go to such a device alone.
    ///
    /// # Errors
    /// fio or the kernel would refuse the file.
    pub(super) fn devices_agree(&self) -> Result<(), InputError> {
        let passes_through = self.passes_through();
        for entry in self.filenames.iter().filter(|_| self.engine_name() != "null") {
            for name in split_names(&entry.setting.text) {
                if name.starts_with("/dev/") && name.contains(OF_NO_DEVICE) {
                    let why = "names no device: devices stand between colons, and patterns are not read";
                    return Err(entry.wrong(why, "filename=/dev/nvme0n1:/dev/nvme1n1"));
                }
                let drive = drive_of(&name).filter(|_| name.starts_with(CHARACTER_DEVICE));
                let (why, valid) = match drive.filter(|drive| drive.starts_with("/dev/nvme")) {
                    None if passes_through => (NO_CHARACTER_DEVICE, CHARACTER_DEVICE_VALID.to_owned()),
                    Some(drive) if !passes_through => {
                        let why = "is a character device, which takes commands in place of reads and writes";
                        (why, format!("{drive}, or ioengine={PASSTHROUGH}"))
                    }
                    _ => continue,
                };
                return Err(entry.wrong(why, valid));
            }
        }
        match self.get("ioengine") {
            Some(entry) if passes_through && self.filenames.is_empty() && self.get("read_iolog").is_none() => {
                Err(entry.wrong("needs a namespace's character device", CHARACTER_DEVICE_VALID))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::drive_of;

    #[test]
    fn a_drive_has_several_names() {
        for (name, drive) in [
            ("/dev/nvme0n1", Some("/dev/nvme0n1")),
            ("/dev/ng0n1", Some("/dev/nvme0n1")),
            ("/dev/nvme10n1p12", Some("/dev/nvme10n1")),
            ("/dev/nvme0", Some("/dev/nvme0")),
            ("/dev/sda", Some("/dev/sda")),
            ("/dev/sdab3", Some("/dev/sdab")),
            ("/dev/xvda1", Some("/dev/xvda")),
            ("/dev/sg3", Some("/dev/sg3")),
            ("/dev/md0p1", Some("/dev/md0p1")),
            ("/dev/mapper/vg-data1", Some("/dev/mapper/vg-data1")),
            ("/dev/disk/by-id/nvme-x", Some("/dev/disk/by-id/nvme-x")),
            ("/dev/disk/by-id/nvme-x-part3", Some("/dev/disk/by-id/nvme-x")),
            ("/dev/disk/by-id/nvme-x-party", Some("/dev/disk/by-id/nvme-x-party")),
            ("/dev/shm/x", None),
            ("/mnt/nvme0n1p1", None),
            (r"\\.\PhysicalDrive1", Some(r"\\.\PhysicalDrive1")),
            (r"\\.\PHYSICALDRIVE12", Some(r"\\.\PhysicalDrive12")),
            ("//./PhysicalDrive1", Some(r"\\.\PhysicalDrive1")),
            (r"\\.\PhysicalDrive", None),
            (r"\\.\C:", None),
            (r"D\data", None),
            ("x", None),
        ] {
            assert_eq!(drive_of(name).as_deref(), drive, "{name}");
        }
    }
}

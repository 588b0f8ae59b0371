//! What links to drives point to: `/dev/disk/by-id/nvme-x -> ../../nvme0n1`, as archives and listings say it.

use crate::encoding::plain;
use std::collections::BTreeMap;

/// Links by their path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Links(BTreeMap<String, String>);

/// Most links that are kept, and most bytes of a listing.
const LINKS_MAX: usize = 10_000;
/// See [`LINKS_MAX`].
const BYTES_MAX: usize = 1 << 20;
/// Most links from one to the next, as of Linux.
const HOPS_MAX: usize = 40;
/// Folders of links to drives. A listing may lack its folder's name, which the names in it then tell.
const FOLDERS: [&str; 4] = ["/dev/disk/by-id", "/dev/disk/by-path", "/dev/disk/by-uuid", "/dev/mapper"];

impl Links {
    /// Adds a link of an archive, whose paths may lack what stands before `dev/`.
    pub fn add(&mut self, path: &str, target: &str) {
        let path = match path.find("dev/") {
            Some(at) if at == 0 || path.as_bytes()[at - 1] == b'/' => format!("/{}", &path[at..]),
            _ => return,
        };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let target = format!("/{}", joined(folder, target));
        if self.0.len() < LINKS_MAX {
            self.0.insert(path, target);
        }
    }

    /// Adds the links of a listing: what `ls -l /dev/disk/by-id` prints, with the folders' names (`ls -lR`) or without, and
    /// lines such as `/dev/disk/by-id/x -> /dev/nvme0n1`.
    pub fn read(&mut self, text: &[u8]) {
        if text.len() > BYTES_MAX || !text.windows(4).any(|four| four == b" -> ") {
            return;
        }
        let text = plain(text);
        let text = String::from_utf8_lossy(&text);
        let mut folder = "";
        for line in text.lines().map(str::trim) {
            if let Some(named) = line.strip_suffix(':').filter(|named| named.starts_with("/dev/")) {
                folder = named.trim_end_matches('/');
            } else if let Some((before, target)) = line.split_once(" -> ") {
                let name = before.rsplit(' ').next().unwrap_or(before).trim_matches(['\'', '"']);
                let target = target.split(' ').next().unwrap_or(target).trim_matches(['\'', '"']);
                match name.starts_with('/') {
                    true => self.add(name, target),
                    // A name stands in one of the folders; which one does not change the drive.
                    false if folder.is_empty() => {
                        FOLDERS.iter().for_each(|folder| self.add(&format!("{folder}/{name}"), target));
                    }
                    false => self.add(&format!("{folder}/{name}"), target),
                }
            }
        }
    }

    /// What a device's name points to in the end. None if it is no link that is known.
    pub fn target(&self, device: &str) -> Option<&str> {
        let mut found = self.0.get(device)?;
        for _ in 0..HOPS_MAX {
            match self.0.get(found) {
                Some(next) => found = next,
                None => return Some(found).filter(|found| found.starts_with("/dev/")).map(String::as_str),
            }
        }
        None
    }

    /// The links that are not in `self` yet.
    pub fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|(path, target)| self.add(path, target));
    }
}

/// Whether the kernel's own name of a device does not stand in this one: it is a link.
pub fn is_link(device: &str) -> bool {
    device.starts_with("/dev/disk/by-") || device.starts_with("/dev/mapper/")
}

/// What a link of `folder` to `target` points to, from the root on, without `.` and `..`.
pub(crate) fn joined(folder: &str, target: &str) -> String {
    let whole = if target.starts_with('/') { target.to_owned() } else { format!("{folder}/{target}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_of_each_form_are_read() {
        let of = |text: &str, device: &str| {
            let mut links = Links::default();
            links.read(text.as_bytes());
            links.target(device).map(str::to_owned)
        };
        let line = "lrwxrwxrwx 1 root root  13 Nov 26 10:00 nvme-x -> ../../nvme0n1";
        let id = "/dev/disk/by-id/nvme-x";
        for text in [
            line.to_owned(),
            format!("/dev/disk/by-id:\ntotal 0\n{line}\n"),
            format!("\x1b[01;36m{line}\x1b[0m\r\n"),
            "/dev/disk/by-id/nvme-x -> /dev/nvme0n1".to_owned(),
            "'/dev/disk/by-id/nvme-x' -> '/dev/nvme0n1'".to_owned(),
        ] {
            assert_eq!(of(&text, id).as_deref(), Some("/dev/nvme0n1"), "{text}");
        }
        assert_eq!(of(&format!("/dev/disk/by-path:\n{line}"), id), None, "a name of another folder");
        assert_eq!(of("/dev/mapper/a -> ../b\n/dev/b -> mapper/a", "/dev/mapper/a"), None, "in a circle");
        assert_eq!(of("/dev/mapper/a -> ../../../etc/x", "/dev/mapper/a"), None, "no device");
        assert_eq!(of("a -> b", "/dev/nvme0n1"), None);
    }

    #[test]
    fn paths_of_archives_are_below_the_root() {
        let mut links = Links::default();
        links.add("x/dev/disk/by-id/a", "../../sda");
        links.add("xdev/b", "c");
        assert_eq!((links.target("/dev/disk/by-id/a"), links.0.len()), (Some("/dev/sda"), 1));
    }
}

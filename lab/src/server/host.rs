//! Which of several hosts is the server, in outputs and texts of them all.

use super::gather::Server;
use import::fio_json::FioOutput;
use import::hosts;
use std::borrow::Cow;

impl Server {
    /// The server of that name, where outputs are of several hosts.
    pub fn on(host: Option<&str>) -> Self {
        let mut server = Self::default();
        server.host = host.map(str::to_owned);
        server
    }

    /// Whether the name of [`Self::on`] is that of a host, or of a folder of the archive.
    pub fn has_host(&self) -> bool {
        self.has_host
    }

    /// What of a text is of this server, where a program collected it from several.
    pub(super) fn part<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let of_hosts = self.host.as_deref().and_then(|host| Some((host, hosts::by_host(text)?)));
        let own = of_hosts.and_then(|(host, parts)| parts.into_iter().find(|(name, _)| name == host));
        own.map_or(Cow::Borrowed(text), |(_, text)| Cow::Owned(text.into_bytes()))
    }

    /// Leaves the jobs of this server in a run.
    ///
    /// # Errors
    /// Several hosts ran the jobs, and nobody says which is meant; or this one ran none.
    pub(super) fn keep_host(&mut self, run: &mut FioOutput) -> Result<(), String> {
        let hosts: Vec<&str> = run.hosts().into_iter().collect();
        let named = hosts.join(", ");
        match &self.host {
            None if hosts.len() > 1 => Err(format!(
                "the jobs ran on {} hosts, and each is a server of its own; valid: --host with one of {named}",
                hosts.len()
            )),
            Some(host) if !hosts.is_empty() => {
                self.has_host = true;
                if !hosts.contains(&host.as_str()) {
                    return Err(format!("no job ran on the host {host:?}; valid: --host with one of {named}"));
                }
                run.keep_host(host);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Parts;
    use super::super::gather::tests::FIO;
    use super::*;

    #[test]
    fn one_of_several_hosts_is_the_server() {
        let on = |host: &str, iops: u32| {
            format!(
                r#"{{"jobname": "a", "hostname": "{host}", "job options": {{"rw": "read", "filename": "/dev/nvme0n1"}},
                "read": {{"iops": {iops}, "total_ios": {iops}, "clat_ns": {{"mean": 5000, "max": 9, "N": 9}}}}}}"#
            )
        };
        let of = |hosts: &[&str], host: Option<&str>| {
            let jobs: Vec<String> = hosts.iter().zip(1..).map(|(host, iops)| on(host, iops * 100)).collect();
            let fio = format!("{{\"client_stats\": [{}]}}", jobs.join(","));
            let mut server = Server::on(host);
            server.add("x", &Parts { fio: fio.as_bytes(), ..Parts::default() });
            (server.measurements.first().map(|one| one.fio.iops()), server.notes.join("\n"))
        };
        let (none, notes) = of(&["n1", "n2"], None);
        assert!(none.is_none() && notes.contains("2 hosts") && notes.ends_with("--host with one of n1, n2"), "{notes}");
        let (none, notes) = of(&["n1", "n2"], Some("n3"));
        assert!(none.is_none() && notes.contains("\"n3\"; valid"), "{notes}");
        assert_eq!(of(&["n1", "n2"], Some("n2")).0, Some(200.0));
        assert_eq!((of(&["n1", "n1"], None).0, of(&["", ""], Some("n1")).0), (Some(300.0), Some(300.0)));
    }

    #[test]
    fn counters_of_several_hosts_are_those_of_the_server() {
        let on = |host: &str, text: &str| text.lines().map(|line| format!("{host}: {line}\n")).collect::<String>();
        let both = |[first, second]: [&str; 2]| on("n1", first) + &on("n2", second);
        let [before, after] = [both(["cpu 0 0 0 0", "cpu 0 0 0 0"]), both(["cpu 9 0 0 1", "cpu 1 0 0 3"])];
        let (stat, fio) = (Some([before.as_bytes(), after.as_bytes()]), both([FIO, FIO]));
        let mut server = Server::on(Some("n2"));
        server.add("x", &Parts { fio: fio.as_bytes(), stat, ..Parts::default() });
        assert_eq!(server.measurements[0].cpu, Some([25.0, 0.0, 0.0, 75.0]), "{:?}", server.notes);
        let stat =
            Some([&b"cpu 0 0 0 0\ncpu0 0 0 0 0\ncpu1 0 0 0 0\n"[..], b"cpu 1 0 0 3\ncpu0 1 0 0 1\ncpu1 0 0 0 2\n"]);
        server.add("y", &Parts { fio: FIO.as_bytes(), stat, ..Parts::default() });
        assert_eq!(server.measurements[1].online, Some(2));
    }
}

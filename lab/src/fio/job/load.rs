//! The options of a load: sizes, order, files, ends, start, syncs.

use super::Options;
use super::values::{self, Parts};
use crate::fio::lines::is_blank;
use crate::fio::number::float;
use crate::fio::{Entry, special};
use crate::input::InputError;
use crate::kinds::storage::load::{
    Amount, Distribution, Ends, EndsOthers, Files, Generator, Load, Order, Service, Sizes, Start, Steady, Syncs,
    Verify, Zones,
};

/// The longest I/O, which is one buffer.
pub(in crate::fio) const BLOCK_MAX: u64 = 1 << 30;
/// The largest size or place that is kept.
const BYTES_MAX: u64 = 1 << 62;
/// The longest window of a steady state.
const STEADY_WINDOW_MAX_NS: u64 = 86_400_000_000_000;

impl Options<'_> {
    /// The whole load.
    pub(super) fn load(&self) -> Result<Load, InputError> {
        let sizes = self.sizes()?;
        let files = self.files()?;
        let verifies = self.get("verify").is_some_and(|entry| !matches!(entry.word(), "0" | "none"));
        Ok(Load {
            order: self.order()?,
            ends: self.ends()?,
            pace: self.pace()?,
            start: self.start()?,
            syncs: Syncs {
                range: self.sync_range()?,
                at_end: self.flag("end_fsync")? || self.flag("fsync_on_close")?,
                each: self.get("sync").is_some_and(|entry| !matches!(entry.word(), "0" | "none")),
                buffered: !self.is_direct()?,
            },
            verify: Verify {
                after: verifies && self.get("do_verify").map_or(Ok(true), Entry::flag)?,
                checks: verifies,
            },
            replay: None,
            depth_low: self.number("iodepth_low", 0, 0..=u64::from(u32::MAX))?,
            sizes,
            files,
        })
    }

    /// Sizes of I/Os: `bs`, `bsrange`, `bssplit`, `blockalign`.
    fn sizes(&self) -> Result<[Sizes; 3], InputError> {
        let bounds = 1..=BLOCK_MAX;
        let mut sizes = [(); 3].map(|()| Sizes::of(4096));
        if let Some(entry) = self.get("bs") {
            let parts = Parts::of_numbers(entry).whole(|part| part.number(bounds.clone(), self.kb_base))?;
            values::spread(&parts, |direction, bytes| sizes[direction] = Sizes::of(bytes));
        }
        if let Some(entry) = self.get("bsrange") {
            let range = |part: &Entry| values::range(part, |part| part.number(bounds.clone(), self.kb_base));
            let parts = Parts::of(entry).whole(range)?;
            values::spread(&parts, |direction, (min, max)| {
                sizes[direction] = Sizes { min, max, split: Vec::new(), align: min };
            });
        }
        if let Some(entry) = self.get("bssplit") {
            let splits = special::splits(&entry.setting.text, self.kb_base);
            let splits = splits.map_err(|(why, valid)| entry.wrong(why, valid))?;
            for (direction, split) in splits.into_iter().enumerate().filter(|(_, split)| !split.is_empty()) {
                if let Some((bytes, _)) = split.iter().find(|(bytes, _)| !bounds.contains(bytes)) {
                    return Err(entry.wrong(format!("has the size {bytes}"), format!("sizes from 1 to {BLOCK_MAX}")));
                }
                sizes[direction] = values::split_sizes(&split);
            }
        }
        if let Some(entry) = self.get("blockalign") {
            let parts = Parts::of_numbers(entry).whole(|part| part.number(1..=BLOCK_MAX, self.kb_base))?;
            values::spread(&parts, |direction, bytes| sizes[direction].align = bytes);
        }
        Ok(sizes)
    }

    fn order(&self) -> Result<Order, InputError> {
        let mut order = Order { map: !self.flag("norandommap")?, ..Order::default() };
        if let Some(entry) = self.get("percentage_random") {
            let parts = Parts::of_numbers(entry).whole(|part| part.number(0..=100, self.kb_base))?;
            values::spread(&parts, |direction, percent| order.random_percent[direction] = percent as u8);
        }
        if let Some(entry) = self.get("random_distribution") {
            order.distribution = self.distribution(entry)?;
        }
        order.generator = match self.get("random_generator").map(Entry::word) {
            Some("lfsr") => Generator::Lfsr,
            Some("tausworthe64") => Generator::Tausworthe64,
            _ => Generator::Tausworthe,
        };
        if let Some((_, nth)) = self.get("rw").and_then(|entry| entry.setting.text.split_once(':')) {
            let entry = self.get("rw").expect("it was there");
            self.offset_modifier(entry, nth, &mut order)?;
        }
        order.identical = self.get("rw_sequencer").is_some_and(|entry| entry.word() == "identical");
        order.unaligned = self.flag("bs_unaligned")?;
        order.sizes_by_order = self.flag("bs_is_seq_rand")?;
        if self.get("zonemode").is_some_and(|entry| entry.word() == "strided") {
            let of = |name| self.get(name).map_or(Ok(0), |entry| entry.number(0..=1 << 61, self.kb_base));
            let (size, skip) = (of("zonesize")?, of("zoneskip")?);
            let range = match of("zonerange")? {
                0 => size,
                range => range,
            };
            order.zones = (size > 0).then_some(Zones { size, range, skip });
        }
        if let Some(entry) = self.get("randseed") {
            order.seed = entry.number(0..=u64::MAX, self.kb_base)?;
        } else if let Some(entry) = self.get("randrepeat") {
            order.repeats = entry.flag()?;
        }
        Ok(order)
    }

    /// The part of `rw` behind its colon: a number of I/Os if random, else bytes.
    fn offset_modifier(&self, entry: &Entry, text: &str, order: &mut Order) -> Result<(), InputError> {
        if entry.setting.text.starts_with("rand") {
            // fio keeps 32 bits of the leading digits.
            order.offset_every = special::leading(text) as u32;
            return Ok(());
        }
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let bytes = values::part(entry, digits).number(0..=1 << 62, self.kb_base)? as i64;
        order.skip_bytes = if negative { -bytes } else { bytes };
        Ok(())
    }

    fn distribution(&self, entry: &Entry) -> Result<Distribution, InputError> {
        let valid = "random, zipf:1.2, pareto:0.9, normal:10, zoned:60/10:40/90 or zoned_abs:60/10g:40/90g";
        let (name, rest) = entry.setting.text.split_once(':').unwrap_or((entry.setting.text.as_str(), ""));
        let mut numbers = rest.split(':');
        let mut next = |default: f64| match numbers.next().filter(|text| !text.is_empty()) {
            None => Ok(default),
            Some(text) => float(text).ok_or_else(|| entry.wrong("has a part that is no number", valid)),
        };
        Ok(match name.split(',').next().unwrap_or_default() {
            "random" => Distribution::Even,
            "zipf" => {
                let theta = next(1.1)?;
                if theta < 0.0 || (theta - 1.0).abs() < 1e-9 || !theta.is_finite() {
                    return Err(entry.wrong("has a theta that the law has not", "0 or above, but not 1"));
                }
                Distribution::Zipf(theta, values::centre(entry, next(-1.0)?)?)
            }
            "pareto" => {
                let power = next(0.2)?;
                if !(power > 0.0 && power < 1.0) {
                    return Err(entry.wrong("has a power out of bounds", "above 0 and below 1"));
                }
                Distribution::Pareto(power, values::centre(entry, next(-1.0)?)?)
            }
            "normal" => {
                let deviation = next(0.0)?;
                if !(0.0..=100.0).contains(&deviation) {
                    return Err(entry.wrong("has a deviation out of bounds", "0 to 100 per cent"));
                }
                Distribution::Normal(deviation, values::centre(entry, next(-1.0)?)?)
            }
            "zoned" => {
                let part = values::part(entry, rest);
                let zones = |part: &Entry| values::zones(part, Some(100), |part| part.number(0..=100, self.kb_base));
                let parts = Parts::of(&part).whole(zones)?;
                let mut all = [(); 3].map(|()| Vec::new());
                values::spread(&parts, |direction, zones: Vec<(u8, u64)>| {
                    all[direction] = zones.into_iter().map(|(share, size)| (share, size as u8)).collect();
                });
                Distribution::Zoned(all)
            }
            "zoned_abs" => {
                let part = values::part(entry, rest);
                let zones = |part: &Entry| values::zones(part, None, |part| part.number(0..=1 << 62, self.kb_base));
                let parts = Parts::of(&part).whole(zones)?;
                let mut all = [(); 3].map(|()| Vec::new());
                values::spread(&parts, |direction, zones: Vec<(u8, u64)>| all[direction] = zones);
                Distribution::ZonedAbsolute(all)
            }
            _ => return Err(entry.wrong("is no distribution", valid)),
        })
    }

    fn files(&self) -> Result<Files, InputError> {
        let bytes = |name: &str| self.get(name).map(|entry| self.amount(entry)).transpose();
        let mut files = Files {
            size: bytes("size")?
                .filter(|size| ![Amount::Bytes(0), Amount::Percent(100), Amount::Bytes(BYTES_MAX)].contains(size)),
            offset: bytes("offset")?.unwrap_or(Amount::Bytes(0)),
            increment: bytes("offset_increment")?.unwrap_or(Amount::Bytes(0)),
            ..Files::default()
        };
        if let Some(entry) = self.get("filesize") {
            let one = |part: &Entry| part.number(0..=1 << 62, self.kb_base);
            files.file_size = Some(values::range(entry, one)?).filter(|&(_, most)| most > 0);
        }
        if let Some(entry) = self.get("offset_align") {
            files.offset_align = entry.number(0..=1 << 40, self.kb_base)?;
        }
        if let Some(entry) = self.get("file_service_type") {
            let valid = "random, roundrobin, sequential, zipf, pareto or normal, with :N I/Os a file";
            let mut parts = entry.text(valid)?.split(':');
            let name = parts.next().unwrap_or_default();
            let second = parts.next();
            let wrong = || entry.wrong("has a part that is no number", valid);
            let parameter = |default: f64| second.map_or(Ok(default), |text| float(text).ok_or_else(wrong));
            files.service = match name.split(',').next().unwrap_or_default() {
                "random" => Service::Random,
                "roundrobin" => Service::RoundRobin,
                "sequential" => Service::Sequential,
                "zipf" => Service::Zipf(parameter(1.1)?),
                "pareto" => Service::Pareto(parameter(0.2)?),
                "normal" | "gauss" => Service::Normal(parameter(0.0)?),
                _ => return Err(entry.wrong("is no way to choose a file", valid)),
            };
            let is_even = matches!(files.service, Service::Random | Service::RoundRobin | Service::Sequential);
            let count = if is_even { second } else { parts.next() };
            if let Some(text) = count {
                let part = values::part(entry, text);
                files.service_ios = part.number(1..=u64::from(u32::MAX), self.kb_base)? as u32;
            }
        }
        Ok(files)
    }

    /// Bytes, or per cent.
    fn amount(&self, entry: &Entry) -> Result<Amount, InputError> {
        // What follows the sign does not matter, as in fio.
        match entry.setting.text.trim_matches(is_blank).split_once('%') {
            Some((percent, _)) => {
                let part = values::part(entry, percent);
                // More than the whole is nearly 2^64 bytes in fio: a size without a limit, a place behind every end.
                match part.number(0..=u64::from(u32::MAX), self.kb_base)? {
                    percent @ 0..=100 => Ok(Amount::Percent(percent as u8)),
                    _ => Ok(Amount::Bytes(BYTES_MAX)),
                }
            }
            None => Ok(Amount::Bytes(entry.number(0..=BYTES_MAX, self.kb_base)?)),
        }
    }

    fn ends(&self) -> Result<Ends, InputError> {
        let seconds = |name: &str| self.get(name).map(|entry| entry.time_ns(1_000_000_000)).transpose();
        let mut ends = Ends {
            io_size: self.get("io_size").map(|entry| self.amount(entry)).transpose()?,
            time_based: self.flag("time_based")?,
            runtime_ns: seconds("runtime")?.filter(|&ns| ns > 0),
            ramp_ns: seconds("ramp_time")?.unwrap_or(0),
            fill: self.flag("fill_device")?,
            ..Ends::default()
        };
        ends.io_size = ends.io_size.filter(|&size| size != Amount::Bytes(0) && size != Amount::Percent(100));
        let count = |name: &str, default| self.get(name).map_or(Ok(default), |e| e.number(0..=1 << 62, self.kb_base));
        ends.number_ios = count("number_ios", 0)?;
        ends.loops = count("loops", 1)?.max(1);
        ends.time_based &= ends.runtime_ns.is_some();
        if let Some(entry) = self.get("max_latency") {
            let parts = Parts::of_numbers(entry).whole(|part| part.time_ns(1_000))?;
            values::spread(&parts, |direction, ns| ends.latency_ns_max[direction] = ns);
        }
        ends.exitall = self.flag("exitall")?;
        ends.exits_on_error = self.flag("exitall_on_error")?;
        ends.exit_what = match self.get("exit_what").map(Entry::word) {
            Some("stonewall") => EndsOthers::Stonewall,
            Some("all") => EndsOthers::All,
            _ => EndsOthers::Group,
        };
        let steady = self.get("steadystate").map(|entry| self.steady(entry)).transpose()?;
        // Without a window, fio looks for no steady state.
        ends.steady = steady.filter(|steady| steady.window_ns > 0);
        Ok(ends)
    }

    fn steady(&self, entry: &Entry) -> Result<Steady, InputError> {
        let valid = "iops:0.3%, iops_slope:0.3%, bw:1% or bw_slope:1%";
        let (name, limit) = entry.text(valid)?.split_once(':').ok_or_else(|| entry.wrong("has no limit", valid))?;
        let (bandwidth, slope) = match name {
            "iops" => (false, false),
            "iops_slope" => (false, true),
            "bw" => (true, false),
            "bw_slope" => (true, true),
            _ => return Err(entry.wrong("is no criterion", valid)),
        };
        let (is_share, part) = (limit.contains('%'), values::part(entry, limit));
        let number = match limit.split_once('%') {
            None if bandwidth => part.number(0..=1 << 62, self.kb_base).ok().map(|bytes| bytes as f64),
            Some((percent, _)) => float(percent),
            None => float(limit),
        };
        let number = number.filter(|number| *number >= 0.0 && number.is_finite());
        let number = number.ok_or_else(|| entry.wrong("has a limit that is no number", valid))?;
        let limit = if is_share { number * 10_000.0 } else { number } as u64;
        let time = |names: [&str; 2], default| {
            let entry = names.iter().find_map(|name| self.get(name));
            entry.map_or(Ok(default), |entry| entry.time_ns(1_000_000_000))
        };
        Ok(Steady {
            bandwidth,
            slope,
            limit,
            is_share,
            is_grouped: self.flag("group_reporting")?,
            window_ns: self.steady_window_ns(time(["steadystate_duration", "ss_dur"], 0)?)?,
            ramp_ns: time(["steadystate_ramp_time", "ss_ramp"], 0)?,
        })
    }

    /// A sample of each second of the window is kept, and written into fio's JSON.
    fn steady_window_ns(&self, window_ns: u64) -> Result<u64, InputError> {
        match ["steadystate_duration", "ss_dur"].iter().find_map(|name| self.get(name)) {
            Some(entry) if window_ns > STEADY_WINDOW_MAX_NS => Err(entry.wrong("is more than a day", "up to 1d")),
            _ => Ok(window_ns),
        }
    }

    fn start(&self) -> Result<Start, InputError> {
        let mut start = Start {
            stonewall: self.flag("stonewall")? || self.flag("wait_for_previous")?,
            wait_for: self
                .get("wait_for")
                .map(|entry| entry.text("a section's name").map(str::to_owned))
                .transpose()?,
            section: self.section.name.clone(),
            ..Start::default()
        };
        if let Some(entry) = self.get("startdelay") {
            start.delay_ns = values::range(entry, |part| part.time_ns(1_000_000_000))?;
        }
        Ok(start)
    }

    fn sync_range(&self) -> Result<u32, InputError> {
        let Some(entry) = self.get("sync_file_range") else { return Ok(0) };
        let Some((_, number)) = entry.setting.text.split_once(':') else { return Ok(1) };
        Ok(values::part(entry, number).number(0..=u64::from(u32::MAX), self.kb_base)? as u32)
    }
}

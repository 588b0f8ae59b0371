//! Files of the laboratory: job files, scenarios, platforms.

use lab::fio::{Section, jobs, sections};
use lab::input::{InputError, Place};
use lab::platform::Platform;
use lab::scenario::Request;
use lab::setting::Setting;
use lab::sweep::{Definition, Grid};
use std::str::from_utf8;

/// Checks that an error is a sentence with a place.
fn said(error: &InputError) {
    assert!(error.to_string().len() > error.place.to_string().len());
}

/// A job file. It may include itself, or a few lines.
pub(crate) fn fio(data: &[u8]) {
    let include = |name: &str, _from: &str| match name {
        "self" => Ok((name.to_owned(), data.to_vec())),
        "lines" => Ok((name.to_owned(), b"[global]\nbs=4k\n[a]\niodepth=2\n".to_vec())),
        _ => Err("no such file".to_owned()),
    };
    let read = match sections("job.fio", data, &include) {
        Ok(read) => read,
        Err(error) => return said(&error),
    };
    let written = written(&read);
    let again = sections("job.fio", written.as_bytes(), &include).expect("what is written can be read");
    assert_eq!(written, self::written(&again));
    let of = |sections: &[Section]| jobs("job.fio", sections, &[]);
    match (of(&read), of(&again)) {
        (Ok((jobs, _)), Ok((same, _))) => assert_eq!(jobs.len(), same.len()),
        (Err(error), Err(_)) => said(&error),
        (one, other) => panic!("read once {:?}, written and read again {:?}", one.err(), other.err()),
    }
}

/// Sections as a job file.
fn written(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        text += &format!("[{}]\n", section.name);
        for entry in &section.entries {
            let Setting { key, text: value, .. } = &entry.setting;
            text += &if entry.bare { format!("{key}\n") } else { format!("{key}={value}\n") };
        }
    }
    text
}

/// True if a text names files that are devices: reading a device may never end.
fn names_devices(text: &str) -> bool {
    ["/dev", "/proc", "/sys"].iter().any(|folder| text.contains(folder))
}

/// The file that an input stands for: itself, or, if its first byte is no ASCII, one of the project's own with some lines
/// changed. Random text is refused before it comes to anything.
fn file(own: &[&str], data: &[u8]) -> Vec<u8> {
    let Some((first, edits)) = data.split_first().filter(|(first, _)| !first.is_ascii()) else { return data.to_vec() };
    let mut lines: Vec<Vec<u8>> =
        own[usize::from(*first) % own.len()].lines().map(|line| line.as_bytes().to_vec()).collect();
    for edit in edits.split(|byte| *byte == b'\n') {
        let [line, action, text @ ..] = edit else { continue };
        let line = usize::from(*line) % lines.len();
        match action % 4 {
            0 => {
                let key = lines[line].iter().position(|byte| *byte == b'=').map_or(0, |at| at + 1);
                lines[line].splice(key.., text.iter().copied());
            }
            1 => lines.insert(line, text.to_vec()),
            2 if lines.len() > 1 => _ = lines.remove(line),
            _ => lines.insert(line, lines[usize::from(text.first().copied().unwrap_or(0)) % lines.len()].clone()),
        }
    }
    lines.join(&b'\n')
}

const SCENARIOS: [&str; 6] = [
    include_str!("../../../scenarios/emr-mixed.toml"),
    include_str!("../../../scenarios/azure-one-job-check.toml"),
    include_str!("../../../scenarios/dsa-loops.toml"),
    include_str!("../../../scenarios/gic-altra-since.toml"),
    include_str!("../../../scenarios/emr-polled.toml"),
    include_str!("../../../scenarios/emr-compile.toml"),
];
const PLATFORMS: [&str; 4] = [
    include_str!("../../../platforms/emr.toml"),
    include_str!("../../../platforms/altra.toml"),
    include_str!("../../../platforms/rdma-vm.toml"),
    "base = \"emr\"\nabout = \"mine\"\n[fabric]\ndispatch = { value = 50, unit = \"ns\", reason = \"measured\" }\n",
];

/// A scenario, up to the plan: with its jobs, platform and settings resolved and checked.
pub(crate) fn scenario(data: &[u8]) {
    let data = file(&SCENARIOS, data);
    if from_utf8(&data).is_ok_and(names_devices) {
        return;
    }
    match Request::of("scenarios/fuzz.toml").plan_of(data.clone()) {
        Ok(plan) => {
            plan.validate().expect("a plan is valid");
            assert!(plan == Request::of("scenarios/fuzz.toml").plan_of(data).expect("it was read before"));
        }
        Err(error) => said(&error),
    }
}

/// A platform; its constants are printed and read again.
pub(crate) fn platform(data: &[u8]) {
    let data = file(&PLATFORMS, data);
    let Ok(text) = from_utf8(&data) else { return };
    if names_devices(text) {
        return;
    }
    let platform = match Platform::read("fuzz", "fuzz.toml", text) {
        Ok(platform) => platform,
        Err(error) => return said(&error),
    };
    platform.validate().expect("a platform that was read is valid");
    for (key, spec, constant) in platform.constants() {
        let printed = spec.unit.format(constant.value);
        let setting = Setting::new(Place::option("printed"), key, printed.as_str());
        // Printing rounds to six places, so a printed value may exceed its bounds by as much.
        if let Ok(value) = spec.unit.read(&setting, spec.min, spec.max) {
            assert!((value - constant.value).abs() <= constant.value.abs() * 1e-5 + 1e-6, "{printed}");
        }
    }
}

/// A sweep's file; its runs are numbered.
pub(crate) fn sweep(data: &[u8]) {
    let Ok(text) = from_utf8(data) else { return };
    if names_devices(text) {
        return;
    }
    let definition = match Definition::parse("fuzz.toml", text) {
        Ok(definition) => definition,
        Err(error) => return said(&error),
    };
    match Grid::new(definition) {
        Ok(grid) => {
            let runs = grid.runs();
            assert!(runs > 0 && runs <= lab::sweep::RUNS_MAX);
            for run in [0, runs / 2, runs - 1] {
                let setup = grid.setup(run);
                assert!(setup.point < grid.points());
                assert_eq!((setup.values.len(), setup.point), (grid.keys.len(), grid.point_of(run)));
            }
        }
        Err(error) => said(&error),
    }
}

use super::*;
use crate::input::Place;

fn load(name: &str) -> Platform {
    Platform::load(&Setting::new(Place::option("--platform"), "", name)).unwrap()
}

/// A platform file that differs from `emr` only in `lines`.
fn variant(lines: &str) -> Result<Platform, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, format!("about = \"a variant\"\nbase = \"emr\"\n{lines}\n")).unwrap();
    let path = path.to_str().unwrap();
    Platform::load(&Setting::new(Place::option("--platform"), "", path))
        .map_err(|error| error.to_string().replace(path, "mine.toml"))
}

#[test]
fn a_form_that_is_not_known_is_refused_by_name() {
    let read = |schema: &str| {
        let text = format!("schema = {schema}\nabout = \"x\"\nbase = \"emr\"\n");
        Platform::read("x", "x.toml", &text).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(read("1"), Ok(()));
    assert_eq!(read("2").unwrap_err(), "x.toml:1: schema: `2` is a form that only a newer program reads; valid: 1");
    assert_eq!(read("0").unwrap_err(), "x.toml:1: schema: `0` is no form of platform files; valid: 1");
    assert_eq!(read("\"1\"").unwrap_err(), "x.toml:1: schema: `1` is a string; valid: 1, without quotes");
}

#[test]
fn every_platform_that_is_carried_loads_and_gives_reasons() {
    for (name, ..) in EMBEDDED {
        let platform = load(name);
        assert_eq!(platform.name, name);
        for (key, _, constant) in platform.constants() {
            assert!(constant.reason.len() > 10, "{name}: {key}: no reason");
        }
    }
}

#[test]
fn no_platform_has_more_free_constants_than_fitted_rows() {
    let rows = include_str!("../../../scenarios/published.csv");
    for (name, ..) in EMBEDDED {
        let fitted = rows.lines().filter(|row| row.contains(&format!(",{name},")) && row.contains(",fit,")).count();
        let free = load(name).free_constants().len();
        // A platform that only differs from its base in size has neither.
        assert!((free > 0) == (fitted > 0) && free <= fitted, "{name}: {free} free constants, {fitted} fitted rows");
    }
}

#[test]
fn a_base_lends_what_the_file_does_not_give() {
    let (spr, emr) = (load("spr"), load("emr"));
    assert_eq!(spr.cpu.user_aio.value, emr.cpu.user_aio.value);
    assert_ne!(spr.cpu.scale.value, emr.cpu.scale.value);
    let scaled = |of: &Constant| (of.value * spr.cpu.scale.value * 1000.0).round() as u64;
    assert_eq!(spr.cpu.scaled_ps(&spr.cpu.user_aio), scaled(&emr.cpu.user_aio));
    assert_eq!(spr.work_ps(hal::Work::IrqEntry), scaled(&emr.cpu.irq_entry));
    assert!(!spr.cpu.user_aio.fit, "what is lent is not fitted anew");
}

#[test]
fn a_constant_that_is_not_given_as_such_shows_the_form_of_its_kind() {
    for (lines, valid) in [
        ("[cpu]\nscale = 1", "{ value = 1, reason = \"why\" }"),
        ("[drive.gen5]\nvolatile_cache = true", "{ value = true, reason = \"why\" }"),
        ("[drive.gen5]\nlink = 1", "{ value = 1, unit = \"B/s\", reason = \"why\" }"),
    ] {
        let error = variant(lines).unwrap_err();
        assert!(error.ends_with(&format!("has neither unit nor reason; valid: {valid}")), "{error}");
    }
}

#[test]
fn a_constant_needs_unit_reason_and_bounds() {
    let case = |line: &str| variant(&format!("[fabric]\n{line}")).unwrap_err();
    assert_eq!(
        case("dispatch = { value = 112, unit = \"MHz\", reason = \"r\" }"),
        "mine.toml:4: fabric.dispatch: `112 MHz` has the wrong unit `MHz`; \
         valid: a time with ns, us, ms or s, from 0 ns to 1 ms"
    );
    assert_eq!(
        case("dispatch = { value = 112, unit = \"ns\" }"),
        "mine.toml:4: fabric.dispatch.reason: must be given; valid: why it has this value"
    );
    assert_eq!(
        case("dispatch = 112"),
        "mine.toml:4: fabric.dispatch: `112` has neither unit nor reason; \
         valid: { value = 1, unit = \"ns\", reason = \"why\" }"
    );
    assert_eq!(
        case("dispatch = { value = -1, unit = \"ns\", reason = \"r\" }"),
        "mine.toml:4: fabric.dispatch: `-1 ns` is negative; valid: a time with ns, us, ms or s, from 0 ns to 1 ms"
    );
    assert_eq!(
        case("dipsatch = { value = 1, unit = \"ns\", reason = \"r\" }"),
        "mine.toml:4: fabric.dipsatch: the name is unknown; valid: dispatch"
    );
    assert_eq!(
        variant("[drive.gen5]\nmedia_floor = { value = 2, unit = \"s\", reason = \"r\" }").unwrap_err(),
        "mine.toml:4: drive.gen5.media_floor: `2 s` is out of bounds; \
         valid: a time with ns, us, ms or s, from 0 ns to 1 s"
    );
    assert_eq!(
        variant("[drive.gen5]\nmedia_floor = { value = 2, unit = \"ms\", reason = \"r\" }").unwrap_err(),
        "mine.toml:4: drive.gen5.media_floor: `2 ms` is above the mean; \
         valid: at most drive.gen5.media_mean, 60 us (platforms/emr.toml:69)"
    );
    assert_eq!(
        variant("[drive.gen5]\nmedia_mean = { value = 2, unit = \"us\", reason = \"r\" }").unwrap_err(),
        "mine.toml:4: drive.gen5.media_mean: `2 us` is below the smallest time; \
         valid: at least drive.gen5.media_floor, 45 us (platforms/emr.toml:70)"
    );
    assert_eq!(
        variant("[drive.new]\nslots = { value = 2, reason = \"r\" }").unwrap_err(),
        "mine.toml:3: drive.new.msi_interval: must be given; valid: { value = 1, unit = \"ns\", reason = \"why\" }"
    );
}

#[test]
fn a_platform_that_is_not_there_is_an_error() {
    let load =
        |name: &str| Platform::load(&Setting::new(Place::option("--platform"), "", name)).unwrap_err().to_string();
    assert_eq!(
        load("emx"),
        "--platform: `emx` is no platform; valid: emr, spr, optane, azure, dsa-loops, dsa-headline, rdma-vm, rdma-host, virtio-host, emag, altra, juno, or the path of a file (./my.toml)"
    );
    assert!(load("./no-such.toml").contains("cannot be read"));
}

#[test]
fn a_set_constant_is_checked_and_says_so() {
    let mut emr = load("emr");
    emr.set(&Setting::from_option("fabric.dispatch=56ns").unwrap()).unwrap();
    assert_eq!(emr.fabric.dispatch.ps(), 56_000);
    assert_eq!(emr.fabric.dispatch.reason, "set by --set");
    emr.set(&Setting::from_option("drive.gen5.link=1 GB/s").unwrap()).unwrap();
    assert_eq!(emr.drive("gen5").unwrap().link.whole(), 1_000_000_000);
    emr.set(&Setting::from_option("fabric.posted_capability=false").unwrap()).unwrap();
    assert!(!emr.fabric.posted_capability.is_set());
    let error = emr.set(&Setting::from_option("fabric.dispach=1ns").unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "--set: fabric.dispach: the name is unknown; valid: fabric.dispatch");
}

#[test]
fn a_drive_refines_the_kind_that_it_names() {
    let read = |text: &str| Platform::read("mine", "mine.toml", text);
    let base = "about = \"x\"\nbase = \"emr\"\n[drive.mine]\n";
    let slots = "slots = { value = 9, reason = \"counted\", uncertainty = 0.04 }\n";
    let own = read(&format!("{base}base = \"gen5\"\n{slots}")).unwrap();
    let (mine, emr) = (own.drive("mine").unwrap(), load("emr"));
    assert_eq!((mine.slots.value, mine.slots.uncertainty), (9.0, Some(0.04)));
    assert_eq!(mine.link.value, emr.drive("gen5").unwrap().link.value);
    let other = read(&format!("{base}base = \"azure.local\"\n")).unwrap();
    assert_eq!(other.drive("mine").unwrap().hidden_entries.value, 8.0);
    let error = read(&format!("{base}base = \"gen6\"\n")).unwrap_err().to_string();
    assert!(error.contains("`gen6` is no kind of drive to refine; valid: gen5"), "{error}");
    let error = read(&format!("{base}{slots}")).unwrap_err().to_string();
    assert!(error.contains("drive.mine."), "without a base every constant is needed: {error}");
}

#[test]
fn a_platform_is_somebodys_own_unless_the_program_carries_it() {
    assert!(EMBEDDED.iter().all(|(name, ..)| !load(name).is_own));
    assert!(Platform::read("emr", "emr.toml", "about = \"x\"\nbase = \"emr\"\n").unwrap().is_own);
}

#[test]
fn a_platform_of_very_many_kinds_of_drive_is_refused_soon() {
    let of = |count: usize| {
        let kinds = (0..count).map(|number| format!("[drive.k{number}]\nbase = \"gen5\"\n"));
        variant(&kinds.collect::<String>()).map(|platform| platform.drives.len())
    };
    assert_eq!(of(20), Ok(21), "and that of the base");
    assert_eq!(
        of(30_000),
        Err("mine.toml:3: drive: `30000` tables are too many; valid: at most 256 kinds of drive".into())
    );
}

#[test]
fn a_region_is_a_list_of_factors() {
    let of = |region: &str| {
        let line = format!(
            "[fabric]\nremap_service = {{ value = 50, unit = \"ns\", region = {region}, reason = \"why not\" }}"
        );
        variant(&line).map(|platform| platform.fabric.remap_service.region)
    };
    assert_eq!(of("[0.5, 1, 2.25]"), Ok(vec![0.5, 1.0, 2.25]));
    assert_eq!(of("[]"), Ok(Vec::new()));
    for (wrong, why) in [("[0]", "`0`"), ("[1, \"x\"]", "`x`"), ("0.5", "is no list"), ("[[1]]", "is a list")] {
        assert!(of(wrong).unwrap_err().contains(why), "{wrong}: {:?}", of(wrong));
    }
    let many = format!("[{}]", ["1"; 101].join(", "));
    assert!(of(&many).unwrap_err().contains("more than 100"));
    let two = "[fabric]\nremap_service = { value = 50, unit = \"ns\", region = [0.5, 2], reason = \"r\" }\n\
               dispatch = { value = 50, unit = \"ns\", region = [0.5, 2, 1], reason = \"r\" }";
    assert_eq!(
        variant(two).unwrap_err(),
        "mine.toml:5: fabric.dispatch.region: `3` factors are not as many as those of fabric.remap_service, and the first of \
         all belong together; valid: 2 factors"
    );
    let mut set = load("emr");
    set.fabric.remap_service.region = vec![0.5];
    set.set(&Setting::new(Place::option("--set"), "fabric.remap_service", "60ns")).unwrap();
    assert!(set.fabric.remap_service.region.is_empty());
}

#[test]
fn a_base_of_itself_and_a_table_without_drives_are_named() {
    let error = variant("[drive]").unwrap_err();
    assert!(error.contains("drive: must be given; valid: a table a kind of drive"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.toml");
    let path = path.to_str().unwrap();
    std::fs::write(path, format!("about = \"x\"\nbase = \"{path}\"\n")).unwrap();
    let error = Platform::load(&Setting::new(Place::option("--platform"), "", path)).unwrap_err().to_string();
    assert!(error.contains("too many bases, or the base of itself; valid: four bases at most"), "{error}");
}

/// They were looked for in the folder that the command was called from.
#[test]
fn bases_that_are_files_are_beside_the_file_that_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    write("lender.toml", "about = \"x\"\nbase = \"emr\"\n[cpu]\nscale = { value = 3, unit = \"\", reason = \"r\" }\n");
    write("sub/own.toml", "about = \"x\"\nbase = \"../lender.toml\"\n[drive.fast]\nbase = \"../lender.toml.gen5\"\n");
    let path = folder.path().join("sub/own.toml");
    let load = || Platform::load(&Setting::new(Place::option("--platform"), "", path.to_str().unwrap()));
    assert_eq!(load().unwrap().cpu.scale.value, 3.0);
    std::fs::remove_file(folder.path().join("lender.toml")).unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("sub/../lender.toml` cannot be read"), "{error}");
}

/// Declaring a kind of drive hid those of the base.
#[test]
fn a_kind_of_ones_own_stands_beside_those_of_the_base() {
    let slots = "slots = { value = 7, reason = \"r\" }";
    let platform = variant(&format!("[drive.mine]\nbase = \"gen5\"\n{slots}")).unwrap();
    let kinds: Vec<&str> = platform.drives.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["mine", "gen5"], "the own kind is the first, which drives have that name none");
    let emr = Platform::load(&Setting::new(Place::option("--platform"), "", "emr")).unwrap();
    assert_eq!(platform.drive("gen5").unwrap().slots.value, emr.drive("gen5").unwrap().slots.value);
    let platform = variant(&format!("[drive.gen5]\n{slots}")).unwrap();
    assert_eq!((platform.drives.len(), platform.drive("gen5").unwrap().slots.value), (1, 7.0), "one name, one kind");
}

/// `import` writes both for one constant.
#[test]
fn uncertainty_and_region_may_stand_together() {
    let line = "dispatch = { value = 112, unit = \"ns\", uncertainty = 0.03, region = [0.9, 1.1], reason = \"r\" }";
    let dispatch = variant(&format!("[fabric]\n{line}")).unwrap().fabric.dispatch;
    assert_eq!((dispatch.uncertainty, dispatch.region), (Some(0.03), vec![0.9, 1.1]));
}

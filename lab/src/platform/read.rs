//! Reading a platform file.
//!
//! ```toml
//! schema = 1                  # optional: the form of this file
//! about = "one line"
//! base = "emr"                # optional: another platform, whose constants hold unless this file gives them; a file's path starts at this file
//! misses = ["a/iops -75.6 %"] # optional: measurements that it was fitted to and does not give back
//! [fabric]
//! dispatch = { value = 112, unit = "ns", fit = true, reason = "why this value" }
//! [drive.gen5]                # one table a kind of drive; a file of one's own also has the other kinds of its base
//! base = "emr.gen5"           # optional: another kind of drive, of the base or of the platform that is named
//! ```

use super::{Accelerator, Constant, Cpu, Drive, Fabric, GROUPS, Gic, Needed, Nic, Platform, Spec, Vhost};
use crate::document::{Document, Node, Table};
use crate::house::House;
use crate::input::{InputError, Place, Problem, read_file};
use crate::inputs;
use crate::scenario::files::Files;
use crate::setting::Setting;

/// The platforms that the program carries: name, path in the project, text.
pub const EMBEDDED: [(&str, &str, &str); 12] = [
    ("emr", "platforms/emr.toml", include_str!("../../../platforms/emr.toml")),
    ("spr", "platforms/spr.toml", include_str!("../../../platforms/spr.toml")),
    ("optane", "platforms/optane.toml", include_str!("../../../platforms/optane.toml")),
    ("azure", "platforms/azure.toml", include_str!("../../../platforms/azure.toml")),
    ("dsa-loops", "platforms/dsa-loops.toml", include_str!("../../../platforms/dsa-loops.toml")),
    ("dsa-headline", "platforms/dsa-headline.toml", include_str!("../../../platforms/dsa-headline.toml")),
    ("rdma-vm", "platforms/rdma-vm.toml", include_str!("../../../platforms/rdma-vm.toml")),
    ("rdma-host", "platforms/rdma-host.toml", include_str!("../../../platforms/rdma-host.toml")),
    ("virtio-host", "platforms/virtio-host.toml", include_str!("../../../platforms/virtio-host.toml")),
    ("emag", "platforms/emag.toml", include_str!("../../../platforms/emag.toml")),
    ("altra", "platforms/altra.toml", include_str!("../../../platforms/altra.toml")),
    ("juno", "platforms/juno.toml", include_str!("../../../platforms/juno.toml")),
];

impl Platform {
    /// The platform that `setting` names: one that the program carries, or a file (a path with a `/` or `.toml`).
    ///
    /// # Errors
    /// No such platform or file, or the file is wrong.
    pub fn load(setting: &Setting) -> Result<Self, InputError> {
        Self::load_within(setting, 0)
    }

    /// The platform `name` that `text` describes; errors name `file`.
    ///
    /// # Errors
    /// The text is wrong, or its base is.
    pub fn read(name: &str, file: &str, text: &str) -> Result<Self, InputError> {
        Self::parse(name, file, text, 0)
    }

    /// As [`Self::load`], `depth` files below the first.
    fn load_within(setting: &Setting, depth: u32) -> Result<Self, InputError> {
        let name = setting.text.as_str();
        if depth > 4 {
            return Err(setting.wrong("is the last of too many bases, or the base of itself", "four bases at most"));
        }
        if let Some((name, file, text)) = EMBEDDED.iter().find(|(known, ..)| *known == name) {
            inputs::note_file(file, text.as_bytes(), true);
            return Self::parse(name, file, text, depth);
        }
        if !is_path(name) {
            let known = EMBEDDED.map(|(name, ..)| name).join(", ");
            return Err(setting.wrong("is no platform", format!("{known}, or the path of a file (./my.toml)")));
        }
        let text = read_file(name)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned()))
            .map_err(|error| setting.wrong(format!("cannot be read ({error})"), "the path of a platform file"))?;
        let stem = std::path::Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
        Self::parse(&stem, name, &text, depth)
    }

    fn parse(name: &str, file: &str, text: &str, depth: u32) -> Result<Self, InputError> {
        let document = Document::parse(file, text)?;
        let root = document.root();
        House::Platform.check(&root)?;
        root.only(&["schema", "about", "base", "misses"].into_iter().chain(GROUPS).collect::<Vec<_>>())?;
        root.known_schema(u64::from(SCHEMA), "platform files")?;
        let about = root.scalar("about", "one line about the platform")?.text;
        let lender = root.get("base").map(|node| node.scalar("the name of a platform")).transpose()?;
        let base = lender.as_ref().map(|lender| Self::load_within(&beside(lender), depth + 1)).transpose()?;
        let base = base.as_ref();
        let misses = match root.get("misses") {
            Some(node) => read_misses(node)?,
            None => base.map(|base| base.misses.clone()).unwrap_or_default(),
        };
        let is_own = EMBEDDED.iter().all(|(_, _, carried)| *carried != text);
        // A carried platform is a server that was measured: it has the drives of its file alone.
        let drives = drives(&root, base, is_own, depth)?;
        let accelerator = match (root.get("accelerator"), base.and_then(|base| base.accelerator.as_ref())) {
            (None, None) => None,
            (_, lent) => {
                let group = Group::of(&root, "accelerator", Accelerator::SPECS)?;
                Some(Accelerator::build(|spec| group.constant(spec, lent.map(Accelerator::iter)))?)
            }
        };
        let nic = match (root.get("nic"), base.and_then(|base| base.nic.as_ref())) {
            (None, None) => None,
            (_, lent) => {
                let group = Group::of(&root, "nic", Nic::SPECS)?;
                Some(Nic::build(|spec| group.constant(spec, lent.map(Nic::iter)))?)
            }
        };
        let vhost = match (root.get("vhost"), base.and_then(|base| base.vhost.as_ref())) {
            (None, None) => None,
            (_, lent) => {
                let group = Group::of(&root, "vhost", Vhost::SPECS)?;
                Some(Vhost::build(|spec| group.constant(spec, lent.map(Vhost::iter)))?)
            }
        };
        let gic = match (root.get("gic"), base.and_then(|base| base.gic.as_ref())) {
            (None, None) => None,
            (_, lent) => {
                let group = Group::of(&root, "gic", Gic::SPECS)?;
                Some(Gic::build(|spec| group.constant(spec, lent.map(Gic::iter)))?)
            }
        };
        let is_needed = |spec: &Spec| match spec.needed {
            Needed::Always => true,
            Needed::Devices => gic.is_none(),
            Needed::Pci => !drives.is_empty() || accelerator.is_some() || nic.is_some(),
            Needed::Drives => !drives.is_empty(),
            Needed::Threads => !drives.is_empty() || gic.is_some(),
        };
        let cpu_group = Group::of(&root, "cpu", Cpu::SPECS)?;
        let cpu = Cpu::build(|spec| cpu_group.constant_if(is_needed(spec), spec, base.map(|base| base.cpu.iter())))?;
        let fabric_group = Group::of(&root, "fabric", Fabric::SPECS)?;
        let fabric =
            Fabric::build(|spec| fabric_group.constant_if(is_needed(spec), spec, base.map(|base| base.fabric.iter())))?;
        let name = name.to_owned();
        let platform =
            Self { name, about, base: lender, is_own, misses, cpu, fabric, drives, accelerator, nic, vhost, gic };
        platform.validate_as(|constant| constant.place.file == file)?;
        Ok(platform)
    }
}

/// Whether a platform's name is a file's path.
pub fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

/// A base as its file names it: the path of another file starts there.
fn beside(base: &Setting) -> Setting {
    let text = if is_path(&base.text) { Files::beside(&base.text, &base.place.file) } else { base.text.clone() };
    Setting { text, ..base.clone() }
}

/// `misses = ["one-drive-full/iops -75.6 %"]`
fn read_misses(node: Node<'_, '_>) -> Result<Vec<String>, InputError> {
    let valid = "a list of rows that the platform misses, such as [\"one-drive-full/iops -75.6 %\"]";
    match node {
        Node::Array(_, items) => items.into_iter().map(|item| Ok(item.scalar(valid)?.text)).collect(),
        node => Err(node.scalar(valid)?.wrong("is no list", valid)),
    }
}

/// The form of platform files. A file without `schema` has form 1. It grows when an older reader would misread a file.
pub const SCHEMA: u32 = 1;

/// Most kinds of drive of a platform. Each is looked up among all.
const KINDS_MAX: usize = 256;

/// The kinds of drive in a file. Each refines the kind that it names as its base, or else the base's kind of the same
/// name. Behind them stand the other kinds of the base if `keeps_bases`. A file without any has those of the base.
fn drives(
    root: &Table<'_, '_>,
    base: Option<&Platform>,
    keeps_bases: bool,
    depth: u32,
) -> Result<Vec<(String, Drive)>, InputError> {
    let valid = "a table a kind of drive: [drive.gen5]";
    let read = |kind: &str, group: &Group<'_, '_>| {
        let named = group.table.as_ref().and_then(|table| table.get("base"));
        let lent = match named {
            Some(node) => Some(lent_drive(&node.scalar("the name of a kind of drive")?, base, depth)?),
            None => base.and_then(|base| base.drive(kind)).cloned(),
        };
        Ok((kind.to_owned(), Drive::build(|spec| group.constant(spec, lent.as_ref().map(Drive::iter)))?))
    };
    match (root.get("drive"), base) {
        (Some(Node::Table(kinds)), _) if kinds.iter().count() > KINDS_MAX => {
            let valid = format!("at most {KINDS_MAX} kinds of drive");
            Err(InputError::value(&kinds.place, "drive", kinds.iter().count(), "tables are too many", valid))
        }
        (Some(Node::Table(kinds)), _) if kinds.iter().next().is_some() => {
            let own = kinds.iter().map(|(kind, _)| read(kind, &Group::of_drive(&kinds, kind)?));
            let lent = base.into_iter().filter(|_| keeps_bases).flat_map(|base| &base.drives);
            let lent = lent.filter(|(kind, _)| kinds.get(kind).is_none());
            let lent = lent.map(|(kind, _)| read(kind, &Group::of_drive(&kinds, kind)?));
            own.chain(lent).collect()
        }
        (Some(Node::Table(kinds)), _) => {
            Err(InputError::new(&kinds.place, "drive", Problem::Missing { valid: valid.to_owned() }))
        }
        (Some(node), _) => Err(node.scalar(valid)?.wrong("is no table", valid)),
        (None, Some(base)) => {
            base.drives.iter().map(|(kind, _)| read(kind, &Group::of(root, "drive", Drive::SPECS)?)).collect()
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// The kind of drive that lends its constants: `gen5` of the base, or `emr.gen5`.
fn lent_drive(named: &Setting, base: Option<&Platform>, depth: u32) -> Result<Drive, InputError> {
    let other = match named.text.rsplit_once('.') {
        Some((platform, _)) => {
            let platform = beside(&Setting { text: platform.to_owned(), ..named.clone() });
            Some(Platform::load_within(&platform, depth + 1)?)
        }
        None => None,
    };
    let kind = named.text.rsplit_once('.').map_or(named.text.as_str(), |(_, kind)| kind);
    let lender = other.as_ref().or(base);
    let known = lender.map_or(&[][..], |lender| &lender.drives);
    known.iter().find(|(name, _)| name == kind).map(|(_, drive)| drive.clone()).ok_or_else(|| {
        let kinds: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        let valid =
            if kinds.is_empty() { "a platform and its kind of drive: emr.gen5".into() } else { kinds.join(", ") };
        named.wrong("is no kind of drive to refine", valid)
    })
}

/// One group's table, which may be absent.
struct Group<'d, 't> {
    table: Option<Table<'d, 't>>,
    place: Place,
    key: String,
}

impl<'d, 't> Group<'d, 't> {
    /// The group of a kind of drive, which may name a base.
    fn of_drive(parent: &Table<'d, 't>, kind: &str) -> Result<Self, InputError> {
        Self::with(parent, kind, Drive::SPECS, &["base"])
    }

    fn of(parent: &Table<'d, 't>, key: &str, specs: &[Spec]) -> Result<Self, InputError> {
        Self::with(parent, key, specs, &[])
    }

    fn with(parent: &Table<'d, 't>, key: &str, specs: &[Spec], others: &[&str]) -> Result<Self, InputError> {
        let table = match parent.get(key) {
            Some(Node::Table(table)) => Some(table),
            Some(node) => {
                return Err(node.scalar("a table")?.wrong("is no table", format!("[{key}] and its constants")));
            }
            None => None,
        };
        if let Some(table) = &table {
            table.only(&specs.iter().map(|spec| spec.name).chain(others.iter().copied()).collect::<Vec<_>>())?;
        }
        let place = table.as_ref().map_or_else(|| parent.place.clone(), |table| table.place.clone());
        Ok(Self { table, place, key: parent.key(key) })
    }

    /// As [`Self::constant`], for a constant that may be absent unless the platform needs it.
    fn constant_if<'a>(
        &self,
        is_needed: bool,
        spec: &Spec,
        base: Option<impl Iterator<Item = (&'static Spec, &'a Constant)>>,
    ) -> Result<Constant, InputError> {
        let given = self.constant(spec, base);
        match given {
            Err(error) if !is_needed && matches!(*error.problem, Problem::Missing { .. }) && !self.names(spec) => {
                Ok(Constant::absent(spec, &self.place))
            }
            given => given,
        }
    }

    fn names(&self, spec: &Spec) -> bool {
        self.table.as_ref().is_some_and(|table| table.get(spec.name).is_some())
    }

    /// The constant of `spec`, from this file or else from the base.
    fn constant<'a>(
        &self,
        spec: &Spec,
        base: Option<impl Iterator<Item = (&'static Spec, &'a Constant)>>,
    ) -> Result<Constant, InputError> {
        let valid = &example(spec.unit);
        match self.table.as_ref().and_then(|table| table.get(spec.name)) {
            Some(Node::Table(fields)) => read_constant(&fields, spec),
            Some(node) => {
                let scalar = node.scalar(valid)?;
                Err(scalar.wrong("has neither unit nor reason", valid))
            }
            None => base
                .and_then(|mut base| base.find(|(known, _)| known.name == spec.name))
                .map(|(_, constant)| Constant { fit: false, ..constant.clone() })
                .ok_or_else(|| {
                    let key = format!("{}.{}", self.key, spec.name);
                    InputError::new(&self.place, key, Problem::Missing { valid: valid.clone() })
                }),
        }
    }
}

/// How a constant of this unit is given.
fn example(unit: super::Unit) -> String {
    let unit = match unit {
        super::Unit::Flag => return "{ value = true, reason = \"why\" }".to_owned(),
        super::Unit::Resend => return "{ value = \"per_entry\", reason = \"why\" }".to_owned(),
        _ => unit.names()[0].0,
    };
    let unit = if unit.is_empty() { String::new() } else { format!("unit = \"{unit}\", ") };
    format!("{{ value = 1, {unit}reason = \"why\" }}")
}

/// `{ value, unit, reason, fit, uncertainty, region }`. A plain number has the unit `""`, or none. A constant may have both
/// `uncertainty`, the standard error of its fit, and `region`, where it belongs together with other constants: `import` writes
/// both. Where a constant is moved, its region counts alone.
fn read_constant(fields: &Table<'_, '_>, spec: &Spec) -> Result<Constant, InputError> {
    fields.only(&["value", "unit", "reason", "fit", "uncertainty", "region"])?;
    let value = fields.scalar("value", "a number")?;
    let unit = match fields.get("unit") {
        Some(node) => node.scalar("the name of a unit")?.text,
        None => String::new(),
    };
    let reason = fields.scalar("reason", "why it has this value")?;
    if reason.text.trim().is_empty() {
        return Err(reason.wrong("says nothing", "why the constant has this value"));
    }
    let fit = match fields.get("fit") {
        Some(node) => super::Unit::Flag.read(&node.scalar("true or false")?, 0.0, 1.0)? != 0.0,
        None => false,
    };
    let uncertainty = match fields.get("uncertainty") {
        Some(node) => Some(super::Unit::Ratio.read(&node.scalar("a share, such as 0.03")?, 0.0, 1.0)?),
        None => None,
    };
    let place = value.place.clone();
    let (_, own) = value.text.split_at(super::unit::number_len(&value.text));
    if !unit.is_empty() && !own.trim().is_empty() {
        return Err(value.wrong(
            "has a unit, and `unit` stands beside it",
            "a number beside `unit`, or a value with its unit alone",
        ));
    }
    let quantity = Setting::new(value.place, value.key.trim_end_matches(".value"), format!("{} {unit}", value.text));
    let value = spec.unit.read(&Setting { text: quantity.text.trim().to_owned(), ..quantity }, spec.min, spec.max)?;
    Ok(Constant { value, reason: reason.text, fit, uncertainty, region: read_region(fields)?, place })
}

/// Most points of a region.
const REGION_MAX: usize = 100;

/// `region = [0.97, 1.02]`; empty if there is none.
fn read_region(fields: &Table<'_, '_>) -> Result<Vec<f64>, InputError> {
    let valid = "a list of factors from 0.01 to 100, such as [0.97, 1.02]";
    match fields.get("region") {
        None => Ok(Vec::new()),
        Some(Node::Array(_, items)) if items.len() <= REGION_MAX => {
            items.into_iter().map(|item| super::Unit::Ratio.read(&item.scalar(valid)?, 0.01, 100.0)).collect()
        }
        Some(Node::Array(list, _)) => Err(list.wrong("has more than 100 factors", valid)),
        Some(node) => Err(node.scalar(valid)?.wrong("is no list", valid)),
    }
}
